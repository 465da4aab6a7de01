/* Compares chunked scans with their recurrence: random operands; outputs and norms of the state agree within
 * tolerances. */
#ifndef CALM_TESTS_RECURRENCE_H
#define CALM_TESTS_RECURRENCE_H

#include <math.h>

#include "ptq/base/rng.h"
#include "tests/support/harness.h"

/* Returns `scale` times standard normal numbers [n] in ctx->scratch. */
static inline float *scan_draws(size_t n, uint64_t stream, double scale)
{
    float *x;
    ck_ok(CALM_NEW_RAW(ctx, ctx->scratch, x, n));
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(scale * calm_rng_normal(7, stream, i));
    return x;
}

/* Outputs and norms of the state after each gate, from a scan and from its recurrence. */
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

/* Fills with NaN, so that values which a scan does not write are found. */
static inline void scan_result_spoil(scan_result *r)
{
    memset(r->out, 0xff, r->n_out * sizeof *r->out);
    memset(r->norms, 0xff, r->n_gates * sizeof *r->norms);
}

/* Runs n tokens from token t on; `memory` is the state from the tokens before, and the function updates it. */
typedef void scan_part_fn(void *user, size_t t, size_t n, float *memory);

/* Runs a window of 150 tokens in parts (one token, less than a chunk, and more), which pass a state of `size`
 * elements on. */
static inline void scan_in_parts(scan_part_fn *run, void *user, size_t size)
{
    static const size_t parts[] = {1, 5, 64, 1, 70, 9};
    float *memory;
    ck_ok(CALM_NEW(ctx, ctx->scratch, memory, size));
    for (size_t i = 0, t = 0; i < sizeof parts / sizeof *parts; t += parts[i++])
        run(user, t, parts[i], memory);
}

/* Decay rates of states for windows that are cut into parts. */
static const double scan_cut_speeds[] = {0, 0.1, 5};

/* Compares outputs within `tolerance` and squared norms within `of_square`: a state that is nearly zero keeps the
 * errors of its earlier values. */
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
