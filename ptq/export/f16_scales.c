/* bfloat16 scales in formats that store float16: scales below 2^-17 are not exact there, so their codes change. */
#include "ptq/export/safetensors_export.h"

#include <math.h>
#include <string.h>

static float as_f16(float scale)
{
    return calm_f16_to_f32(calm_f32_to_f16(scale));
}

static size_t count_inexact(const calm_qlinear *linear)
{
    size_t n = 0;
    for (size_t i = 0; i < linear->out * linear->n_groups; i++)
        n += fabsf(linear->scales[i]) < (float)CALM_SCALE_MIN && as_f16(linear->scales[i]) != linear->scales[i];
    return n;
}

/* Sums over the weights of groups that changed. */
typedef struct change {
    double square, error;
} change;

/* Rounds the scale of a group, and computes the nearest codes [n] of its weights again. */
static void fit_group(const calm_qlinear *linear, size_t cell, uint8_t *codes, size_t n, change *sum)
{
    const calm_scheme *scheme = &linear->scheme;
    const uint8_t zero = linear->zeros ? linear->zeros[cell] : calm_symmetric_zero(scheme);
    const float before = linear->scales[cell], rounded = as_f16(before);
    const float after = rounded != 0 ? rounded : copysignf((float)CALM_SCALE_LEAST_F16, before);
    for (size_t j = 0; j < n; j++) {
        const double w = (double)before * ((double)codes[j] - zero);
        uint8_t code;
        calm_grid_encode(scheme, (calm_grid){.scale = after, .zero = zero}, &w, 1, &code);
        const double back = (double)after * ((double)code - zero);
        codes[j] = code;
        sum->square += w * w;
        sum->error += (w - back) * (w - back);
    }
    linear->scales[cell] = after;
}

calm_status calm_export_fit_f16(calm_ctx *ctx, const char *name, calm_qlinear *linear)
{
    const size_t n = linear->scheme.family ? 0 : count_inexact(linear);    /* families have float16 scales */
    change sum = {0, 0};
    uint8_t *codes;
    if (!n)
        return CALM_OK;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, codes, linear->out * linear->in));
    memcpy(codes, linear->codes, linear->out * linear->in);
    for (size_t row = 0; row < linear->out; row++)
        for (size_t g = 0; g < linear->n_groups; g++) {
            const size_t cell = row * linear->n_groups + g, first = g * linear->group;
            if (fabsf(linear->scales[cell]) < (float)CALM_SCALE_MIN &&
                as_f16(linear->scales[cell]) != linear->scales[cell])
                fit_group(linear, cell, codes + row * linear->in + first,
                          calm_size_min(linear->group, linear->in - first), &sum);
        }
    linear->codes = codes;
    calm_log(ctx, CALM_LOG_INFO, "%s: %zu of %zu scales are below what float16 holds exactly and are rounded: relative "
             "error %.2g of their weights", name, n, linear->out * linear->n_groups,
             sum.square > 0 ? sqrt(sum.error / sum.square) : 0);
    return CALM_OK;
}
