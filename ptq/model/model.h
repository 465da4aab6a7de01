/* Model: a checkpoint directory opened for reading - mapped shards, config.json, names - and its parts as float32.
 *
 * Float checkpoints and those in compressed-tensors format are read alike: a quantized linear comes out as the float32
 * weight its codes and scales stand for.  Nothing is converted before it is asked for, one block at a time. */
#ifndef CALM_MODEL_MODEL_H
#define CALM_MODEL_MODEL_H

#include "ptq/base/context.h"
#include "ptq/io/safetensors.h"
#include "ptq/model/block.h"
#include "ptq/model/config.h"

typedef struct calm_model calm_model;

/* Open `dir` (config.json and safetensors) and check every tensor's presence, shape and dtype against config.json.
 * Close with calm_model_close.  CALM_ENOTFOUND, CALM_EFORMAT, CALM_EUNSUPPORTED; file, tensor, expected, found. */
calm_status calm_model_open(calm_ctx *ctx, const char *dir, calm_model **out);
void calm_model_close(calm_model *model);

/* Parts of the open model, borrowed until it is closed. */
const calm_config *calm_model_config(const calm_model *model);
const char *calm_model_dir(const calm_model *model);
const calm_json *calm_model_json(const calm_model *model);              /* config.json */
const calm_safetensors *calm_model_tensors(const calm_model *model);
bool calm_model_is_quantized(const calm_model *model);

/* Numbers of all stored float parameters, and of bytes of all tensors. */
size_t calm_model_n_params(const calm_model *model);
size_t calm_model_bytes(const calm_model *model);

/* "model.layers.3" and "model.layers.3.mlp.up_proj" in ctx->out. */
calm_status calm_model_block_name(calm_ctx *ctx, const calm_model *model, size_t index, char **out);
calm_status calm_model_linear_name(calm_ctx *ctx, const calm_model *model, size_t index, calm_role role, char **out);

/* [out, in] of a role's weight as the config has it. */
void calm_config_role_shape(const calm_config *config, calm_role role, size_t *out, size_t *in);

/* Block `index` in float32, in ctx->out; the pages of the shards are released afterwards.
 * CALM_ENUMERIC: a weight is NaN or infinite, with tensor and index. */
calm_status calm_model_load_block(calm_ctx *ctx, const calm_model *model, size_t index, calm_block *out);

/* out [n, D] = embedding rows of ids [n].  CALM_EARG: an id outside the vocabulary. */
calm_status calm_model_embed(calm_ctx *ctx, const calm_model *model, const uint32_t *ids, size_t n, float *out);

/* The end of the model: final norm and head, in float32. */
typedef struct calm_head {
    size_t hidden, vocab;
    float norm_eps;
    const float *norm;    /* [D]                          */
    const float *w;       /* [V, D] the embedding if tied */
} calm_head;

/* In ctx->out. */
calm_status calm_model_load_head(calm_ctx *ctx, const calm_model *model, calm_head *out);

/* x [n, D] normalised in place. */
void calm_head_norm(const calm_head *head, float *x, size_t n);

/* logits [n, V] of normalised rows x [n, D]. */
void calm_head_logits(const calm_head *head, const float *x, size_t n, float *logits);

#endif
