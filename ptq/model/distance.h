/* What is added to attention scores for the distance of two tokens (MPNet, T5): one number a head and bucket of
 * distances, the same in all blocks.
 *
 *   d = position_t - position_j     32 buckets, 16 for keys behind the query and 16 for keys after it:
 *   |d| < 8: |d| itself;  else min(15, 8 + 8 ln(|d| / 8) / ln(128 / 8)) without its fraction
 *
 * Reference: arXiv 2004.09297; transformers' modeling_mpnet.py, which takes 32 buckets whatever
 * "relative_attention_num_buckets" says. */
#pragma once

#include "ptq/model/model.h"

#define CALM_DISTANCE_BUCKETS 32
/* From here on all distances are one. */
#define CALM_DISTANCE_FAR ((size_t)128)
/* Numbers of one head: distances -FAR .. FAR. */
#define CALM_DISTANCE_WIDTH (2 * CALM_DISTANCE_FAR + 1)

/* What `table` [n_heads, CALM_DISTANCE_WIDTH] of calm_distance_load adds to a score. */
static inline float calm_distance_at(const float *table, size_t head, size_t from, size_t to)
{
    const size_t near = to > from ? CALM_DISTANCE_FAR + calm_size_min(to - from, CALM_DISTANCE_FAR)
                                  : CALM_DISTANCE_FAR - calm_size_min(from - to, CALM_DISTANCE_FAR);
    return table[head * CALM_DISTANCE_WIDTH + near];
}

/* Is the model's table there, with a row for each bucket? */
calm_status calm_distance_check(calm_ctx *ctx, const calm_model *model);

/* What is added, by distance, in ctx->out. */
calm_status calm_distance_load(calm_ctx *ctx, const calm_model *model, const float **out);

/* What that leaves. */
size_t calm_distance_bytes(const calm_config *config);
