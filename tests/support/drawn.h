/* Normal numbers and linears made of them, for oracles.  The test that includes this header defines DRAWN_SEED. */
#ifndef CALM_TESTS_DRAWN_H
#define CALM_TESTS_DRAWN_H

#include <math.h>

#include "ptq/base/rng.h"
#include "ptq/weights/weight.h"
#include "tests/support/harness.h"

static float *draw(size_t n, double mean, double spread, uint64_t stream)
{
    float *x;
    ck_ok(CALM_NEW(ctx, ctx->out, x, n));
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(mean + spread * calm_rng_normal(DRAWN_SEED, stream, i));
    return x;
}

static calm_weight draw_weight(size_t out, size_t in, bool bias, uint64_t stream)
{
    return (calm_weight){.name = "w", .out = out, .in = in, .w = draw(out * in, 0, 1.5 / sqrt((double)in), stream),
                         .bias = bias ? draw(out, 0, 0.5, stream + 100) : NULL};
}

#endif
