/* A cache of streams of normal numbers (normals.h): a table with open addressing, emptied when it is full. */
#include "tests/support/normals.h"

#include <stdlib.h>

#include "ptq/base/rng.h"
#include "tests/support/harness.h"

enum { N_SLOTS = 1 << 13, N_VALUES = 1 << 24 };

typedef struct stream {
    uint64_t seed, number;
    double *values;    /* [n]; NULL: the slot is free */
    size_t n;
} stream;

static stream slots[N_SLOTS];
static size_t n_used, n_values;

static void forget_all(void)
{
    for (size_t i = 0; i < N_SLOTS; i++) {
        free(slots[i].values);
        slots[i] = (stream){0};
    }
    n_used = n_values = 0;
}

static stream *find(uint64_t seed, uint64_t number)
{
    size_t at = (size_t)(seed * 977 + number) % N_SLOTS;
    while (slots[at].values && (slots[at].seed != seed || slots[at].number != number))
        at = (at + 1) % N_SLOTS;
    return &slots[at];
}

const double *test_normals(uint64_t seed, uint64_t number, size_t n)
{
    stream *s = find(seed, number);
    if (s->values && s->n >= n)
        return s->values;
    if (n_values + n > N_VALUES || n_used >= N_SLOTS / 2) {
        forget_all();
        s = find(seed, number);
    }
    double *values = realloc(s->values, (n + 1) * sizeof *values);
    ck_assert_msg(values != NULL, "no memory for %zu normal numbers", n);
    for (size_t i = s->n; i < n; i++)
        values[i] = calm_rng_normal(seed, number, i);
    n_used += !s->values;
    n_values += n - s->n;
    *s = (stream){seed, number, values, n};
    return values;
}
