/* Relative position biases of scores. */
#include "ptq/layers/distance.h"

#include <math.h>

#include "ptq/arch/arch.h"
#include "ptq/weights/widen.h"

/* Returns the bucket of a key at `to` for a query at `from`. */
static size_t bucket(size_t from, size_t to)
{
    /* Half of the buckets are for keys before the query; half of those hold a single distance each. */
    const size_t half = CALM_DISTANCE_BUCKETS / 2, exact = half / 2, after = to > from ? half : 0;
    const size_t d = to > from ? to - from : from - to;
    if (d < exact)
        return after + d;
    /* In float32 and in this order, like transformers: rounding decides on which side of a bucket's bound a value
     * is. */
    const float octaves = logf((float)d / (float)exact) / (float)log((double)CALM_DISTANCE_FAR / (double)exact);
    return after + calm_size_min(half - 1, exact + (size_t)(octaves * (float)(half - exact)));
}

/* Finds the stored table [rows, n_heads]; config.json gives its rows. */
static calm_status need_table(calm_ctx *ctx, const calm_config *config, const calm_safetensors *tensors,
                              const char *prefix, const calm_tensor **out)
{
    char *name;
    CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%s%s.weight", prefix, config->arch->names->distance));
    return calm_safetensors_need_floats(ctx, tensors, name, 2,
                                        (const size_t[2]){config->n_distances, config->n_heads}, out);
}

calm_status calm_distance_check(calm_ctx *ctx, const calm_config *config, const calm_safetensors *tensors,
                                const char *prefix)
{
    const calm_tensor *tensor;
    return need_table(ctx, config, tensors, prefix, &tensor);
}

calm_status calm_distance_load(calm_ctx *ctx, const calm_config *config, const calm_safetensors *tensors,
                               const char *prefix, const float **out)
{
    const size_t n_heads = config->n_heads;
    const calm_tensor *tensor;
    float *stored, *table;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, table, n_heads * CALM_DISTANCE_WIDTH));
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(need_table(ctx, config, tensors, prefix, &tensor));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, stored, tensor->n_elements));
    CALM_TRY(calm_widen(ctx, tensors, tensor, stored));
    /* In the order in which attention reads them: by head, then from the farthest key before to the farthest after. */
    for (size_t head = 0; head < n_heads; head++)
        for (size_t i = 0; i < CALM_DISTANCE_WIDTH; i++)
            table[head * CALM_DISTANCE_WIDTH + i] =
                stored[bucket(CALM_DISTANCE_FAR, i) * n_heads + head];
    *out = table;
    return CALM_OK;
}

size_t calm_distance_bytes(const calm_config *config)
{
    return CALM_BYTES(float, config->n_heads * CALM_DISTANCE_WIDTH);
}
