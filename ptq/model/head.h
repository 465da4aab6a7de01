/* The end of the model: final norm, head, and what encoders have instead.
 *
 * The head's matrix is read tile by tile, so that its float32 form never stands in memory whole. */
#pragma once

#include "ptq/model/model.h"

typedef struct calm_head {
    size_t hidden, vocab;
    calm_norm norm;              /* w NULL: the family has none                                      */
    const calm_tensor *table;    /* [V, D] as stored, the embedding if tied; NULL: an encoder without */
    const calm_safetensors *set; /* it belongs to                                                    */
    const float *bias;           /* [V] or NULL                                                      */
    float logit_scale;           /* of the product, before bias and cap; 0: none                     */
    float logit_cap;             /* 0: none                                                          */
    calm_activation activation;  /* a masked language model transforms its rows before the head:      */
    calm_weight transform;       /* w NULL: there is no such step                                    */
    calm_norm transform_norm;
    calm_weight pooler;          /* tanh(W x_0 + b) of the first token; w NULL: none                  */
} calm_head;

/* In ctx->out: norms and small matrices; the table is borrowed from the model. */
calm_status calm_model_load_head(calm_ctx *ctx, const calm_model *model, calm_head *out);

/* What that leaves at most: an encoder need not have every part. */
size_t calm_model_load_head_bytes(const calm_config *config);

/* Columns of logits that are computed together: a tile of the table in float32 takes a few MB. */
size_t calm_head_tile(const calm_head *head);

/* What calm_head_tile_logits holds of ctx->scratch: a tile in float32. */
size_t calm_head_tile_bytes(const calm_head *head);

/* What the table multiplies: x [n, D] itself, or its transform, in place. */
calm_status calm_head_prepare(calm_ctx *ctx, const calm_head *head, float *x, size_t n);

/* w [count, D] = the table's rows for tokens first .. first + count - 1 in float32; their pages are released.
 * CALM_ENUMERIC: a weight that is not finite. */
calm_status calm_head_read_tile(calm_ctx *ctx, const calm_head *head, size_t first, size_t count, float *w);

/* logits [n, count] (row stride `stride`) of prepared rows x [n, D] for the tokens of such a tile. */
calm_status calm_head_multiply(calm_ctx *ctx, const calm_head *head, const float *w, const float *x, size_t n,
                               size_t first, size_t count, float *logits, size_t stride);

/* Backward: dx [n, D] is added to, from dlogits [n, count] (both matrices without gaps) of the logits that such a tile
 * gave; the cap's slope multiplies dlogits in place. */
calm_status calm_head_multiply_back(calm_ctx *ctx, const calm_head *head, const float *w, const float *logits, size_t n,
                                    size_t count, float *dlogits, float *dx);

/* Read a tile and multiply, with the tile in ctx->scratch. */
calm_status calm_head_tile_logits(calm_ctx *ctx, const calm_head *head, const float *x, size_t n, size_t first,
                                  size_t count, float *logits, size_t stride);

/* out [D] = tanh(W x + b) of the first token's row x [D] of a window. */
calm_status calm_head_pool(calm_ctx *ctx, const calm_head *head, const float *x, float *out);
