/* Model: a checkpoint directory or a GGUF file opened for reading - mapped shards, config.json, names - and its parts
 * as float32.
 *
 * Float checkpoints and those in a quantized format (qformat.h) are read alike: a quantized linear comes out as the
 * float32 weight its codes and scales represent.  Weights are converted when they are loaded, one sublayer or
 * expert at a time. */
#pragma once

#include "ptq/base/scope.h"
#include "ptq/base/context.h"
#include "ptq/base/option.h"
#include "ptq/io/safetensors.h"
#include "ptq/model/block.h"
#include "ptq/model/config.h"
#include "ptq/model/layout.h"
#include "ptq/model/qformat.h"

/* How a model is opened; zeros: as it is stored. */
typedef struct calm_model_how {
    calm_words accept_keys;    /* keys of config.json that are taken to change nothing (config.h)    */
    const char *adapter;       /* folder of a LoRA adapter to merge into the weights (adapter.h); NULL: none */
    bool floats;               /* as calm_model_open_floats                                          */
    bool glance;               /* another opening says which tensors are not used (model_unread.h)   */
} calm_model_how;

/* calm_model_open in one of these ways; `how` is read while the model is opened.  Also fails as calm_adapter_merge. */
calm_status calm_model_open_as(calm_ctx *ctx, const char *dir, const calm_model_how *how, calm_model **out);

/* The same as floats, where calm could compute with a checkpoint as it is quantized too: what was published as small
 * floats (published.h) is a source of floats. */
calm_status calm_model_open_floats(calm_ctx *ctx, const char *dir, const calm_model_how *how, calm_model **out);

/* Parts of the open model, borrowed until it is closed. */
const calm_config *calm_model_config(const calm_model *model);
const calm_layout *calm_model_layout(const calm_model *model);
const char *calm_model_dir(const calm_model *model);                    /* a GGUF file's own path */
const char *calm_model_prefix(const calm_model *model);                 /* "model." */
const calm_json *calm_model_json(const calm_model *model);              /* config.json */
const calm_json *calm_model_text_json(const calm_model *model);         /* the same of the text model (wrapper.h) */
bool calm_model_is_wrapped(const calm_model *model);                    /* are those two different? */
const char *calm_model_class(const calm_model *model);                  /* "Qwen3ForCausalLM"; a wrapper's own */
const calm_safetensors *calm_model_tensors(const calm_model *model);
bool calm_model_is_file(const calm_model *model);                       /* a GGUF file, no directory */
bool calm_model_is_quantized(const calm_model *model);

/* Are its keys and values rounded as a cache of 8 bits rounds them (kv_cache.h)? */
bool calm_model_has_kv_scales(const calm_model *model);
const char *calm_model_format(const calm_model *model);                 /* of a quantized one, as engines write it */
const char *calm_model_published(const calm_model *model);              /* what is read as floats; NULL: floats */
const calm_qformat_reader *calm_model_qformat(const calm_model *model);          /* NULL: float, or GGUF */

/* Set the rule (grid.h) by which inputs are quantized, in a checkpoint that quantizes them.  After opening it is that
 * of compressed-tensors.  CALM_EARG: another rule, and no linear has quantized activations. */
calm_status calm_model_set_act_rule(calm_ctx *ctx, calm_model *model, calm_act_rule rule);

/* From here on down reads x H in blocks of the largest power of two that divides its columns, as a checkpoint's
 * transform "hadamard" says it; its weights are to be W H.  CALM_EUNSUPPORTED: a mixture, whose readers hold all
 * experts in one tensor; an odd width. */
calm_status calm_model_use_hadamard(calm_ctx *ctx, calm_model *model);

/* From here on v is its own job in the layout (ptq/model/layout.h), which is another one: what borrows the one
 * before is to ask again. */
calm_status calm_model_split(calm_ctx *ctx, calm_model *model);

/* Numbers of all stored float parameters, and of bytes of all tensors: as they are stored, and as float tensors of what
 * was published otherwise. */
size_t calm_model_n_params(const calm_model *model);
size_t calm_model_bytes(const calm_model *model);
size_t calm_model_float_bytes(const calm_model *model);

/* Weights of jobs first .. end - 1; `active`: those that one token meets, of a mixture its share of the experts. */
double calm_model_weights(const calm_model *model, size_t first, size_t end, bool active);

/* "model.layers.3" in ctx->out. */
calm_status calm_model_block_name(calm_ctx *ctx, const calm_model *model, size_t index, char **out);

/* Block `index` in float32, in ctx->out, without its experts, which block->moe.load reads; the pages of the shards are
 * released afterwards.  CALM_ENUMERIC: a weight is NaN or infinite, with tensor and index. */
calm_status calm_model_load_block(calm_ctx *ctx, const calm_model *model, size_t index, calm_block *out);

/* The same with the weights of one sublayer alone. */
calm_status calm_model_load_sublayer(calm_ctx *ctx, const calm_model *model, size_t index, calm_sublayer sublayer,
                                     calm_block *out);

/* The same without the weights of linears, whose w is NULL: shapes, names, biases, norms. */
calm_status calm_model_load_outline(calm_ctx *ctx, const calm_model *model, size_t index, calm_block *out);

/* The linears of one job, in ctx->out: their weights are behind each other as the rows of one matrix, as those of every
 * job do that the functions above load. */
calm_status calm_model_load_job(calm_ctx *ctx, const calm_model *model, const calm_job_ref *job,
                                calm_weight weight[CALM_N_ROLES]);

/* Bytes that calm_model_load_sublayer and calm_model_load_outline leave in ctx->out, and those of the linears of jobs
 * begin .. end - 1, which of an expert is all that its loader leaves. */
size_t calm_model_load_sublayer_bytes(const calm_model *model, size_t index, calm_sublayer sublayer);
size_t calm_model_load_outline_bytes(const calm_model *model, size_t index);
size_t calm_model_load_jobs_bytes(const calm_model *model, size_t begin, size_t end);

/* The same of one expert of a block, any: all have the same shape.  0 where the block is dense. */
size_t calm_model_load_expert_bytes(const calm_model *model, size_t index);

/* One linear, norm or vector by name, in ctx->out.  A norm or vector whose `out` is NULL is checked alone. */
calm_status calm_model_load_linear(calm_ctx *ctx, const calm_model *model, const char *module, size_t out, size_t in,
                                   bool bias, calm_weight *weight);
calm_status calm_model_load_norm(calm_ctx *ctx, const calm_model *model, const char *module, size_t width,
                                 calm_norm *out);
calm_status calm_model_load_vector(calm_ctx *ctx, const calm_model *model, const char *name, size_t n,
                                   const float **out);

/* The stored tensor [V, D] of the embedding, or with `head` that of a head which is not tied to it; borrowed.
 * CALM_ENOTFOUND, CALM_EFORMAT: it is missing, of another shape, or no floats. */
calm_status calm_model_table(calm_ctx *ctx, const calm_model *model, bool head, const calm_tensor **out);

/* What that gives as a linear without a bias whose input stays float, in ctx->out: where ctx->decode as it is stored
 * (row_linear.h), else as floats.  Fails as calm_model_table and calm_model_load_linear. */
calm_status calm_model_load_table(calm_ctx *ctx, const calm_model *model, bool head, calm_weight *out);

/* The same model with other tables, [0] in place of the embedding and [1] of the head (NULL: its own; of a tied model
 * the embedding is both), in ctx->out.  It borrows all of `model`, and is not closed. */
calm_status calm_model_view(calm_ctx *ctx, const calm_model *model, const calm_tensor *const tables[2],
                            const calm_model **out);

/* out [T, D] = what enters block 0 for ids [T]: embeddings times their scale; encoders add position and type and
 * normalise.  `types` [T] or NULL = 0.  CALM_EARG: an id, position or type that the model has no row for. */
calm_status calm_model_embed(calm_ctx *ctx, const calm_model *model, const uint32_t *ids, const uint8_t *types,
                             const calm_span *span, float *out);

/* For scopes: `calm_model *name = NULL` that is closed at their end. */
#define CALM_SCOPED_MODEL(name) CALM_SCOPED(calm_model, calm_model_release) *name = NULL
static inline void calm_model_release(calm_model **model)
{
    calm_model_close(*model);
}
