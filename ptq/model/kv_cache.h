/* The 8-bit cache of keys and values, as vLLM and SGLang have it if kv_cache_scheme of compressed-tensors asks for it:
 * each is divided by its block's scale, rounded to E4M3 (beyond the ends to the ends) and multiplied by it again. Keys
 * are what attention multiplies by, behind norms and rotation. */
#pragma once

#include <stdatomic.h>

#include "ptq/io/safetensors.h"
#include "ptq/model/config.h"

/* The largest number that E4M3 holds. */
#define CALM_KV_LARGEST 448.0f

/* Of a block; k 0: its keys and values stay float. */
typedef struct calm_kv_scales {
    float k, v;
} calm_kv_scales;

/* The largest |k| and |v| that went into a block's cache; begins at 0.  Any number of threads adds. */
typedef struct calm_kv_peaks {
    _Atomic float k, v;
} calm_kv_peaks;

/* x [n, stride], of which `width` columns count: into the peak; and as the cache gives them back, in place. */
void calm_kv_watch(_Atomic float *peak, const float *x, size_t n, size_t stride, size_t width);
void calm_kv_round(float scale, float *x, size_t n, size_t stride, size_t width);

/* The scale of a peak, peak / 448; of an input that was always 0 it is 1. */
float calm_kv_scale(float peak);

/* Has the block a cache of keys and values: attention of queries over keys? */
bool calm_kv_has(const calm_config *config, size_t block);

/* "model.layers.0.self_attn.k_scale", `which` 'k' or 'v', in ctx->out. */
calm_status calm_kv_name(calm_ctx *ctx, const calm_config *config, const char *prefix, size_t block, char which,
                         calm_string_out out);

/* Scales [n_blocks] of a checkpoint whose quantization entry (`json` is its config.json) has a kv_cache_scheme that is
 * read here: floats of 8 bits, one fixed scale for k and one for v; in `arena`.  NULL: it has none, or another one.
 * CALM_EFORMAT: a scale is not one finite number above 0. */
calm_status calm_kv_read(calm_ctx *ctx, calm_arena *arena, const calm_json *json, const calm_config *config,
                         const char *prefix, const calm_safetensors *tensors, calm_kv_scales **out);
