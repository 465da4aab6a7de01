/* The vectors of a block - norms and biases - by the tensors that hold them. */
#pragma once

#include "ptq/model/model.h"
#include "ptq/quant/vectors.h"

typedef enum calm_block_vector_kind {
    CALM_VECTOR_NORM,         /* weight of the norm at (sublayer, place)    */
    CALM_VECTOR_NORM_BIAS,    /* its bias                                   */
    CALM_VECTOR_PLAIN,        /* weight of the norm `plain` in a sublayer   */
    CALM_VECTOR_BIAS,         /* of the linear `role`                       */
} calm_block_vector_kind;

typedef struct calm_block_vector {
    calm_block_vector_kind kind;
    calm_sublayer sublayer;
    calm_norm_place place;
    calm_role role;
    calm_plain plain;
    const char *name;         /* of the tensor: "model.layers.0.input_layernorm.weight"   */
    size_t n;
    const float **at;         /* where the block has its values [n]                       */
    calm_dtype dtype;         /* of the tensor                                            */
    float offset;             /* by which the block's values exceed the tensor's: 0, or 1 */
} calm_block_vector;

/* Type of a tensor of the checkpoint; BF16 where there is none of this name. */
calm_dtype calm_stored_dtype(const calm_model *model, const char *tensor);

/* All vectors of the dense part of a block, which must stay where it is; in ctx->out. */
calm_status calm_block_vectors(calm_ctx *ctx, const calm_model *model, calm_block *block, calm_block_vector **out,
                               size_t *n);

/* Replace those of a block that `vectors` has, in ctx->out.  CALM_EFORMAT: one has another length. */
calm_status calm_block_vectors_set(calm_ctx *ctx, const calm_model *model, const calm_vectors *vectors,
                                   calm_block *block);
