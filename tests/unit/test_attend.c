/* Attention with integer products against sums in double; and the same bytes for every instruction set. */
#include "ptq/tensor/attend.h"

#include <math.h>
#include <string.h>

#include "ptq/base/rng.h"
#include "tests/support/harness.h"
#include "tests/support/int_sets.h"

enum { MOST_N = 200, MOST_D = 256, MOST = MOST_N * MOST_D };

/* A head and a block of its queries; rows are `stride` apart. */
typedef struct head {
    size_t n, d, stride;
    float q[CALM_ATTEND_ROWS * (MOST_D + 3)], k[MOST_N * (MOST_D + 3)], v[MOST_N * (MOST_D + 3)];
    float context[CALM_ATTEND_ROWS * MOST_D];
    calm_attend_queries queries;
} head;

/* Makes a head whose queries see all keys, or each a different subset. */
static head *new_head(size_t n, size_t d, size_t n_queries, bool masked)
{
    head *h;
    ck_ok(CALM_NEW(ctx, ctx->out, h, 1));
    h->n = n;
    h->d = d;
    h->stride = d + 3;
    for (size_t i = 0; i < CALM_ATTEND_ROWS * h->stride; i++)
        h->q[i] = (float)(3 * calm_rng_normal(1, d, i));
    for (size_t i = 0; i < n * h->stride; i++) {
        h->k[i] = (float)calm_rng_normal(2, d, i);
        h->v[i] = (float)calm_rng_normal(3, d, i);
    }
    h->queries = (calm_attend_queries){.n = n_queries, .q = h->q, .q_stride = h->stride, .context = h->context,
                                       .scale = (float)(1 / sqrt((double)d)), .stride = d};
    for (size_t r = 0; r < n_queries; r++) {
        h->queries.first[r] = masked ? (size_t)(calm_rng_uniform(4, n, r) * (double)n) : 0;
        h->queries.end[r] = masked ? h->queries.first[r] + 1 + (size_t)(calm_rng_uniform(5, n, r) *
                                                                        (double)(n - h->queries.first[r])) : n;
        h->queries.end[r] = calm_size_min(h->queries.end[r], n);
    }
    return h;
}

/* Computes the context [n, d], which is NaN before. */
static void attend(calm_int_set set, head *h)
{
    const size_t bytes = calm_attend_bytes(h->n, h->d);
    char *memory;
    calm_attend_keys keys;
    ck_ok(CALM_NEW_RAW(ctx, ctx->scratch, memory, bytes));
    memset(memory, 0xa5, bytes);    /* uninitialised memory must not be read */
    memset(h->context, 0xff, sizeof h->context);
    calm_attend_pack(h->n, h->d, h->k, h->v, h->stride, memory, &keys);
    calm_attend(set, &keys, &h->queries);
}

/* Returns the largest magnitude and the sum of magnitudes of a row. */
static double most_of(const float *x, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)x[i]));
    return most;
}

static double sum_of(const float *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += fabs((double)x[i]);
    return sum;
}

/* Compares a query with the formula in double, within the bound that attend.h derives and 20 roundings of float32. */
static void check_query(const head *h, size_t r)
{
    const size_t d = h->d, first = h->queries.first[r], end = h->queries.end[r];
    const double limit = fmin(floor(sqrt(2147483647.0 / (double)d)), 32767), scale = (double)h->queries.scale;
    const float *q = h->q + r * h->stride;
    double z[MOST_N], most = -INFINITY, sum = 0, error = 0, v_most = 0;
    for (size_t j = first; j < end; j++) {
        const float *k = h->k + j * h->stride;
        double dot = 0;
        for (size_t c = 0; c < d; c++)
            dot += (double)q[c] * (double)k[c];
        z[j] = scale * dot;
        most = fmax(most, z[j]);
        error = fmax(error, scale / 2 / limit *
                     (sum_of(q, d) * most_of(k, d) + sum_of(k, d) * most_of(q, d)
                      + (double)d * most_of(q, d) * most_of(k, d) / 2 / limit) + 8 * 0x1p-24 * fabs(z[j]));
    }
    for (size_t j = first; j < end; j++)
        sum += exp(z[j] - most);
    for (size_t j = 0; j < h->n; j++)
        v_most = fmax(v_most, most_of(h->v + j * h->stride, d));
    const double weights = 2 * expm1(error) + ((double)(end - first) + 1) / 16383 + 1e-5;
    for (size_t c = 0; c < d; c++) {
        double expected = 0;
        for (size_t j = first; j < end; j++)
            expected += exp(z[j] - most) / sum * (double)h->v[j * h->stride + c];
        ck_near(h->context[r * d + c], expected, v_most * (weights + 1 / (2.0 * 2047) + 20 * 0x1p-24));
    }
}

static void check(head *h)
{
    float first[CALM_ATTEND_ROWS * MOST_D];
    attend(CALM_INT_PLAIN, h);
    for (size_t r = 0; r < h->queries.n; r++)
        check_query(h, r);
    memcpy(first, h->context, sizeof first);
    for (int set = 0; set < CALM_N_INT_SETS; set++)
        if (has_int_set(set)) {
            attend((calm_int_set)set, h);
            ck_assert_msg(memcmp(first, h->context, sizeof first) == 0, "%zu keys of %zu: other bytes with %s", h->n,
                          h->d, calm_int_set_names[set]);
        }
}

/* Numbers of keys and channels that panels, vectors and groups do not divide; fewer queries than a block has. */
static const size_t n_keys[] = {1, 7, 63, 64, 65, 200}, widths[] = {1, 5, 24, 32, 64, 80, 128, 256};

TEST(contexts)
{
    for (size_t n = 0; n < sizeof n_keys / sizeof *n_keys; n++)
        for (size_t d = 0; d < sizeof widths / sizeof *widths; d++)
            for (int masked = 0; masked < 2; masked++)
                check(new_head(n_keys[n], widths[d], masked ? 5 : CALM_ATTEND_ROWS, masked));
}
END_OF_TEST

/* The largest possible sums stay below 2^31: all codes are at their limits, all numerators are P. */
TEST(largest_sums)
{
    for (size_t d = 0; d < sizeof widths / sizeof *widths; d++) {
        head *h = new_head(192, widths[d], CALM_ATTEND_ROWS, false);
        for (size_t i = 0; i < CALM_ATTEND_ROWS * h->stride; i++)
            h->q[i] = -2;
        for (size_t i = 0; i < h->n * h->stride; i++)
            h->k[i] = h->v[i] = 3;
        check(h);
        for (size_t i = 0; i < CALM_ATTEND_ROWS * h->d; i++)
            ck_near(h->context[i], 3, 3 * 4 * 0x1p-24);
    }
}
END_OF_TEST

/* Rows of zeros, rows of very small values, and scores so far apart that one key gets all weight. */
TEST(extreme_rows)
{
    head *h = new_head(70, 32, CALM_ATTEND_ROWS, false);
    memset(h->q, 0, h->d * sizeof *h->q);                     /* equal scores */
    memset(h->k + 3 * h->stride, 0, h->d * sizeof *h->k);
    for (size_t c = 0; c < h->d; c++) {
        h->q[h->stride + c] = 1e-38f;
        h->v[5 * h->stride + c] = 0;
        h->k[60 * h->stride + c] = 1e6f * h->q[2 * h->stride + c];
    }
    for (size_t j = 64; j < h->n; j++)
        memset(h->v + j * h->stride, 0, h->d * sizeof *h->v);    /* a group of values that are 0 */
    check(h);
    for (size_t c = 0; c < h->d; c++)
        ck_near(h->context[2 * h->d + c], h->v[60 * h->stride + c], 4.0 / 2047);
}
END_OF_TEST

/* Values that are not finite or too large: in a query they affect it alone, in a key or value all queries. */
TEST(odd_numbers)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY, 2e15f};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        for (int where = 0; where < 3; where++) {
            head *h = new_head(70, 32, 6, false);
            float *const rows[] = {h->q + 2 * h->stride, h->k + 65 * h->stride, h->v + 65 * h->stride};
            rows[where][31] = odd[i];
            for (int set = 0; set < CALM_N_INT_SETS; set++) {
                if (!has_int_set(set))
                    continue;
                attend((calm_int_set)set, h);
                for (size_t r = 0; r < 6; r++)
                    for (size_t c = 0; c < h->d; c++)
                        ck_assert_int_eq(isnan(h->context[r * h->d + c]) != 0, where > 0 || r == 2);
            }
        }
}
END_OF_TEST

int main(void)
{
    return run_tests("attend", (const TTest *[]){contexts, largest_sums, extreme_rows, odd_numbers, NULL});
}
