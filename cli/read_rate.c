/* Measures how fast threads read memory. */
#include "cli/read_rate.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "ptq/base/scope.h"
#include "ptq/base/simd.h"
#include "ptq/base/threads.h"

/* Larger than the last-level cache of most machines. */
#define BYTES ((size_t)256 << 20)
#define PIECE ((size_t)1 << 20)
#define PASSES 4

typedef struct memory {
    const uint64_t *words;    /* [BYTES / 8] the memory to read                          */
    uint64_t *sums;           /* sum of each piece, so that the compiler keeps the reads */
} memory;

CALM_VECTORIZE static uint64_t add_words(const uint64_t *words, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += words[i];
    return sum;
}

static void read_piece(size_t index, void *user)
{
    const memory *m = user;
    const size_t n = PIECE / sizeof *m->words;
    m->sums[index] = add_words(m->words + index * n, n);
}

calm_status calm_read_rate(calm_ctx *ctx, double *out)
{
    CALM_SCOPED_SCRATCH(ctx);
    uint64_t *words;
    memory m;
    double least = INFINITY;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, words, BYTES / sizeof *words));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, m.sums, BYTES / PIECE));
    /* Pages that were never written all map to one page of zeros. */
    memset(words, 1, BYTES);
    m.words = words;
    for (int pass = 0; pass < PASSES; pass++) {
        const double start = calm_seconds();
        calm_parallel_each(ctx, BYTES / PIECE, read_piece, &m);
        least = fmin(least, calm_seconds() - start);
    }
    *out = (double)BYTES / least;
    return CALM_OK;
}
