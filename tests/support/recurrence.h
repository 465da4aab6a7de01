/* Chunked scans against their recurrence: random operands, and outputs and norms of the state within tolerances. */
#ifndef CALM_TESTS_RECURRENCE_H
#define CALM_TESTS_RECURRENCE_H

#include <math.h>

#include "ptq/base/rng.h"
#include "tests/support/harness.h"

/* `scale` times numbers of the standard normal distribution, [n] in ctx->scratch. */
static inline float *scan_draws(size_t n, uint64_t stream, double scale)
{
    float *x;
    ck_ok(CALM_NEW_RAW(ctx, ctx->scratch, x, n));
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(scale * calm_rng_normal(7, stream, i));
    return x;
}

/* Outputs and norms of the state after each gate, as a scan and its recurrence give them. */
typedef struct scan_result {
    size_t n_out, n_gates;
    float *out, *norms;
    double *expected, *expected_norms;
} scan_result;

static inline scan_result scan_result_new(size_t n_out, size_t n_gates)
{
    scan_result r = {.n_out = n_out, .n_gates = n_gates};
    ck_ok(CALM_NEW_RAW(ctx, ctx->scratch, r.out, n_out));
    ck_ok(CALM_NEW_RAW(ctx, ctx->scratch, r.norms, n_gates));
    ck_ok(CALM_NEW_RAW(ctx, ctx->scratch, r.expected, n_out));
    ck_ok(CALM_NEW_RAW(ctx, ctx->scratch, r.expected_norms, n_gates));
    return r;
}

/* Not numbers, so that what a scan does not write is seen. */
static inline void scan_result_spoil(scan_result *r)
{
    memset(r->out, 0xff, r->n_out * sizeof *r->out);
    memset(r->norms, 0xff, r->n_gates * sizeof *r->norms);
}

/* `of_square`: of the squares of norms, which are compared: those of a state that is nearly empty have the errors of
 * what it held before. */
static inline void scan_result_near(const scan_result *r, double tolerance, double of_square)
{
    double worst = 0, worst_norm = 0;
    for (size_t i = 0; i < r->n_out; i++)
        worst = test_worse(worst, fabs((double)r->out[i] - r->expected[i]));
    for (size_t i = 0; i < r->n_gates; i++)
        worst_norm = test_worse(worst_norm, fabs((double)r->norms[i] * (double)r->norms[i]
                                                 - r->expected_norms[i] * r->expected_norms[i]));
    ck_near(worst, 0, tolerance);
    ck_near(worst_norm, 0, of_square);
}

#endif
