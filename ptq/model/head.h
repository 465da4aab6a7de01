/* The end of the model: final norm and head, or an encoder's pooler and masked language model's head.
 *
 * The head's matrix is converted tile by tile, so that memory never holds all of it in float32. */
#pragma once

#include "ptq/model/model.h"

typedef struct calm_head {
    size_t hidden, vocab;
    calm_norm norm;              /* final norm; w NULL: the family has none                          */
    const calm_tensor *table;    /* [V, D] as stored, the embedding if tied; NULL: an encoder without a head */
    const calm_safetensors *set; /* the set that holds `table`                                       */
    const float *bias;           /* [V] or NULL                                                      */
    float logit_scale;           /* factor of the product, before bias and cap; 0: none              */
    float logit_cap;             /* soft cap of logits; 0: none                                      */
    calm_activation activation;  /* masked language model: rows become norm(activation(transform x)) */
    calm_weight transform;       /* w NULL: there is no such step                                    */
    calm_norm transform_norm;
    calm_weight pooler;          /* tanh(W x_0 + b) of the first token's row x_0; w NULL: none       */
} calm_head;

/* Loads norms and small matrices into ctx->out; the table is borrowed from the model. */
calm_status calm_model_load_head(calm_ctx *ctx, const calm_model *model, calm_head *out);

/* Returns an upper bound of the bytes that this allocates: encoders may lack some parts. */
size_t calm_model_load_head_bytes(const calm_config *config);

/* Returns the number of tokens in a tile of the table, which takes a few MB in float32. */
size_t calm_head_tile(const calm_head *head);

/* Returns the bytes of ctx->scratch that calm_head_tile_logits holds: a tile in float32. */
size_t calm_head_tile_bytes(const calm_head *head);

/* Applies the masked language model's transform to rows x [n, D] in place; without one x is unchanged. */
calm_status calm_head_prepare(calm_ctx *ctx, const calm_head *head, float *x, size_t n);

/* Reads the table's rows for tokens first .. first + count - 1 into w [count, D] and releases their mapped pages.
 * CALM_ENUMERIC: a weight is not finite. */
calm_status calm_head_read_tile(calm_ctx *ctx, const calm_head *head, size_t first, size_t count, float *w);

/* Computes logits [n, count] (row stride `stride`) of prepared rows x [n, D] for the tokens of a tile w. */
calm_status calm_head_multiply(calm_ctx *ctx, const calm_head *head, const float *w, const float *x, size_t n,
                               size_t first, size_t count, float *logits, size_t stride);

/* Backward of one tile: adds to dx [n, D] from logits and dlogits [n, count], both without gaps between rows; dlogits
 * is multiplied by the cap's derivative in place. */
calm_status calm_head_multiply_back(calm_ctx *ctx, const calm_head *head, const float *w, const float *logits, size_t n,
                                    size_t count, float *dlogits, float *dx);

/* Reads a tile into ctx->scratch and computes its logits. */
calm_status calm_head_tile_logits(calm_ctx *ctx, const calm_head *head, const float *x, size_t n, size_t first,
                                  size_t count, float *logits, size_t stride);

/* Computes out [D] = tanh(W x + b) from a window's first row x [D]. */
calm_status calm_head_pool(calm_ctx *ctx, const calm_head *head, const float *x, float *out);
