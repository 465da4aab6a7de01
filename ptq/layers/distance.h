/* Relative position bias of attention scores (MPNet, T5): one number for each head and bucket of distances, the same in
 * all blocks.
 *
 *   d = position_t - position_j     32 buckets, 16 for keys before the query and 16 for keys after it:
 *   |d| < 8: |d|;  else min(15, floor(8 + 8 ln(|d| / 8) / ln(128 / 8)))
 *
 * Reference: arXiv 2004.09297; transformers' modeling_mpnet.py, which takes 32 buckets whatever
 * "relative_attention_num_buckets" says. */
#pragma once

#include "ptq/arch/config.h"
#include "ptq/base/context.h"
#include "ptq/io/safetensors.h"

/* All distances from here on share a bucket. */
#define CALM_DISTANCE_FAR ((size_t)128)
/* Biases of one head: for distances -FAR .. FAR. */
#define CALM_DISTANCE_WIDTH (2 * CALM_DISTANCE_FAR + 1)

/* Returns the bias from `table` [n_heads, CALM_DISTANCE_WIDTH] of calm_distance_load for the score of a query at
 * position `from` and a key at `to`. */
static inline float calm_distance_at(const float *table, size_t head, size_t from, size_t to)
{
    const size_t near = to > from ? CALM_DISTANCE_FAR + calm_size_min(to - from, CALM_DISTANCE_FAR)
                                  : CALM_DISTANCE_FAR - calm_size_min(from - to, CALM_DISTANCE_FAR);
    return table[head * CALM_DISTANCE_WIDTH + near];
}

/* Checks that the model has the table, with a row for each bucket; its name begins with `prefix`. */
calm_status calm_distance_check(calm_ctx *ctx, const calm_config *config, const calm_safetensors *tensors,
                                const char *prefix);

/* Computes the biases by distance, [n_heads, CALM_DISTANCE_WIDTH], in ctx->out. */
calm_status calm_distance_load(calm_ctx *ctx, const calm_config *config, const calm_safetensors *tensors,
                               const char *prefix, const float **out);

/* Returns the bytes that this allocates in ctx->out. */
size_t calm_distance_bytes(const calm_config *config);
