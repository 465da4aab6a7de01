/* The 8-bit KV cache, which vLLM and SGLang use if kv_cache_scheme of compressed-tensors asks for it: each key and
 * value is divided by its block's scale, rounded to E4M3 with saturation, and multiplied by the scale again.  Keys are
 * cached after norms and rotation. */
#pragma once

#include <stdatomic.h>

#include "ptq/arch/config.h"
#include "ptq/io/safetensors.h"

/* The largest number that E4M3 holds. */
#define CALM_KV_LARGEST 448.0f

/* Scales of a block; k 0: its keys and values stay float. */
typedef struct calm_kv_scales {
    float k, v;
} calm_kv_scales;

/* The largest |k| and |v| that went into a block's cache; begins at 0.  Several threads may update it. */
typedef struct calm_kv_peaks {
    _Atomic float k, v;
} calm_kv_peaks;

/* For the first `width` columns of x [n, stride]: update the peak of |x|; and round x in place as the cache does. */
void calm_kv_watch(_Atomic float *peak, const float *x, size_t n, size_t stride, size_t width);
void calm_kv_round(float scale, float *x, size_t n, size_t stride, size_t width);

/* Returns the scale for a peak: peak / 448, or 1 for a peak of 0. */
float calm_kv_scale(float peak);

/* Does the block have a KV cache that this format covers? */
bool calm_kv_has(const calm_config *config, size_t block);

/* Makes a scale's tensor name, "model.layers.0.self_attn.k_scale", in ctx->out; `which` is 'k' or 'v'. */
calm_status calm_kv_name(calm_ctx *ctx, const calm_config *config, const char *prefix, size_t block, char which,
                         calm_string_out out);

/* Reads the scales [n_blocks] of a checkpoint into `arena` where the quantization entry of its config.json `json` has a
 * kv_cache_scheme of 8-bit floats with one static scale for k and one for v.  *out NULL: it has none, or another
 * scheme.  CALM_EFORMAT: a scale is not one finite number above 0. */
calm_status calm_kv_read(calm_ctx *ctx, calm_arena *arena, const calm_json *json, const calm_config *config,
                         const char *prefix, const calm_safetensors *tensors, calm_kv_scales **out);
