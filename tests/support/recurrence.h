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

/* Run the n tokens from token t on; `memory` is what those before have left, and is left for those after. */
typedef void scan_part_fn(void *user, size_t t, size_t n, float *memory);

/* A window of 150 tokens in parts, whose memory of `size` elements passes from one to the next: one token, less than a
 * chunk, and more. */
static inline void scan_in_parts(scan_part_fn *run, void *user, size_t size)
{
    static const size_t parts[] = {1, 5, 64, 1, 70, 9};
    float *memory;
    ck_ok(CALM_NEW(ctx, ctx->scratch, memory, size));
    for (size_t i = 0, t = 0; i < sizeof parts / sizeof *parts; t += parts[i++])
        run(user, t, parts[i], memory);
}

/* How fast memories fade that are cut. */
static const double scan_cut_speeds[] = {0, 0.1, 5};

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
