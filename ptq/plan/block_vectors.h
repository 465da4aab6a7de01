/* The vectors of a block (norm weights, norm biases, biases of linears), each with the name of its tensor. */
#pragma once

#include "ptq/model/model.h"
#include "ptq/quant/vectors.h"

typedef enum calm_block_vector_kind {
    CALM_VECTOR_NORM,         /* weight of the norm at (sublayer, place)    */
    CALM_VECTOR_NORM_BIAS,    /* bias of that norm                          */
    CALM_VECTOR_PLAIN,        /* weight of the norm `plain` in a sublayer   */
    CALM_VECTOR_BIAS,         /* bias of the linear `role`                  */
} calm_block_vector_kind;

typedef struct calm_block_vector {
    calm_block_vector_kind kind;
    calm_sublayer sublayer;
    calm_norm_place place;
    calm_role role;
    calm_plain plain;
    const char *name;         /* the tensor's name: "model.layers.0.input_layernorm.weight" */
    size_t n;
    const float **at;         /* the pointer in calm_block to the values [n]              */
    calm_dtype dtype;         /* dtype of the tensor                                      */
    float offset;             /* block's value minus tensor's value: 1 for Gemma norms, else 0 */
} calm_block_vector;

/* Returns the dtype of a tensor of the checkpoint; BF16 if there is no tensor of this name. */
calm_dtype calm_stored_dtype(const calm_model *model, const char *tensor);

/* Lists all vectors of the dense part of a block in ctx->out.  The list points into `block`, which must not move. */
calm_status calm_block_vectors(calm_ctx *ctx, const calm_model *model, calm_block *block, calm_block_vector **out,
                               size_t *n);

/* Replaces the block's vectors that are in `vectors`; copies are in ctx->out.  CALM_EFORMAT: a length differs. */
calm_status calm_block_vectors_set(calm_ctx *ctx, const calm_model *model, const calm_vectors *vectors,
                                   calm_block *block);
