/* Model: a checkpoint directory or a GGUF file opened for reading (mapped shards, config.json, names), and its parts
 * as float32.
 *
 * Float checkpoints and those in a quantized format (qformat.h) are read alike: a quantized linear is loaded as the
 * float32 weight that its codes and scales represent.  Weights are converted when they are loaded, one sublayer or
 * expert at a time. */
#pragma once

#include "ptq/base/scope.h"
#include "ptq/base/context.h"
#include "ptq/base/option.h"
#include "ptq/io/safetensors.h"
#include "ptq/layers/block.h"
#include "ptq/arch/config.h"
#include "ptq/arch/layout.h"
#include "ptq/weights/qformat.h"

/* Options of opening a model; zeros: as it is stored. */
typedef struct calm_model_how {
    calm_words accept_keys;    /* unknown keys of config.json to ignore (calm_config_read_accepting) */
    const char *adapter;       /* folder of a LoRA adapter to merge into the weights (adapter.h); NULL: none */
    bool floats;               /* as calm_model_open_floats                                          */
    bool glance;               /* do not warn about unread tensors (model_unread.h): another opening does */
} calm_model_how;

/* Opens a model like calm_model_open, with options that are only read during the call.  Also fails as
 * calm_adapter_merge. */
calm_status calm_model_open_as(calm_ctx *ctx, const char *dir, const calm_model_how *how, calm_model **out);

/* Opens a model like calm_model_open_as, but reads weights that were published as small floats (published.h) as floats
 * even where calm could compute with them as they are quantized. */
calm_status calm_model_open_floats(calm_ctx *ctx, const char *dir, const calm_model_how *how, calm_model **out);

/* Parts of the open model, borrowed until it is closed. */
const calm_config *calm_model_config(const calm_model *model);
const calm_layout *calm_model_layout(const calm_model *model);
const char *calm_model_dir(const calm_model *model);                    /* directory, or path of the GGUF file */
const char *calm_model_prefix(const calm_model *model);                 /* "model." */
const calm_json *calm_model_json(const calm_model *model);              /* config.json */
const calm_json *calm_model_text_json(const calm_model *model);         /* the text model's part of it (wrapper.h) */
bool calm_model_is_wrapped(const calm_model *model);                    /* do the two differ? */
const char *calm_model_class(const calm_model *model);                  /* "Qwen3ForCausalLM", or a wrapper's class */
const calm_safetensors *calm_model_tensors(const calm_model *model);
bool calm_model_is_file(const calm_model *model);                       /* is it a GGUF file? */
bool calm_model_is_quantized(const calm_model *model);

/* Are keys and values rounded as in an 8-bit KV cache (kv_cache.h)? */
bool calm_model_has_kv_scales(const calm_model *model);
const char *calm_model_format(const calm_model *model);                 /* label of the quantized format */
const char *calm_model_published(const calm_model *model);              /* published.h: "fp8", ...; NULL: floats */
const calm_qformat_reader *calm_model_qformat(const calm_model *model);          /* NULL: float, or GGUF */

/* Sets the rounding rule (grid.h) of quantized activations; after opening it is that of compressed-tensors.
 * CALM_EARG: another rule for a checkpoint without quantized activations. */
calm_status calm_model_set_act_rule(calm_ctx *ctx, calm_model *model, calm_act_rule rule);

/* Makes down, with `every` all linears, read x H, with Hadamard blocks of the largest power of two that divides the
 * columns, like the transform "hadamard" of a checkpoint; the caller makes the weights W H.  CALM_EUNSUPPORTED: a
 * mixture, since engines hold all experts in one tensor; an odd width; with `every` a sublayer that is neither
 * attention nor an MLP, or whose input is not a norm's output that it alone reads. */
calm_status calm_model_use_hadamard(calm_ctx *ctx, calm_model *model, bool every);

/* Splits the layout (ptq/arch/layout.h): v becomes a separate job.  Pointers into the old layout become invalid. */
calm_status calm_model_split(calm_ctx *ctx, calm_model *model);

/* Return the number of stored float parameters, and the bytes of all tensors: as they are stored, and with published
 * small floats (published.h) counted as float tensors. */
size_t calm_model_n_params(const calm_model *model);
size_t calm_model_bytes(const calm_model *model);
size_t calm_model_float_bytes(const calm_model *model);

/* Returns the number of weights of jobs first .. end - 1; `active`: of those that one token uses, experts counted as
 * top_k / n_experts. */
double calm_model_weights(const calm_model *model, size_t first, size_t end, bool active);

/* Makes the name of a block, "model.layers.3", in ctx->out. */
calm_status calm_model_block_name(calm_ctx *ctx, const calm_model *model, size_t index, char **out);

/* Loads block `index` in float32 into ctx->out, without its experts, which block->moe.load reads; releases the pages of
 * the mapped shards afterwards.  CALM_ENUMERIC: a weight is NaN or infinite, with tensor and index. */
calm_status calm_model_load_block(calm_ctx *ctx, const calm_model *model, size_t index, calm_block *out);

/* Loads a block with the weights of only one sublayer. */
calm_status calm_model_load_sublayer(calm_ctx *ctx, const calm_model *model, size_t index, calm_sublayer sublayer,
                                     calm_block *out);

/* Loads a block without the weights of linears, whose w is NULL: shapes, names, biases, norms. */
calm_status calm_model_load_outline(calm_ctx *ctx, const calm_model *model, size_t index, calm_block *out);

/* Loads the linears of one job into ctx->out.  Here and in the functions above the weights of a job are contiguous: the
 * rows of one matrix. */
calm_status calm_model_load_job(calm_ctx *ctx, const calm_model *model, const calm_job_ref *job,
                                calm_weight weight[CALM_N_ROLES]);

/* Return the bytes that calm_model_load_sublayer and calm_model_load_outline allocate in ctx->out, and those of the
 * linears of jobs begin .. end - 1, which for an expert are all that its loader allocates. */
size_t calm_model_load_sublayer_bytes(const calm_model *model, size_t index, calm_sublayer sublayer);
size_t calm_model_load_outline_bytes(const calm_model *model, size_t index);
size_t calm_model_load_jobs_bytes(const calm_model *model, size_t begin, size_t end);

/* Returns the bytes that loading any one expert of a block allocates; 0 for a dense block. */
size_t calm_model_load_expert_bytes(const calm_model *model, size_t index);

/* Load one linear, norm or vector by name into ctx->out.  With `out` NULL a norm or vector is only checked. */
calm_status calm_model_load_linear(calm_ctx *ctx, const calm_model *model, const char *module, size_t out, size_t in,
                                   bool bias, calm_weight *weight);
calm_status calm_model_load_norm(calm_ctx *ctx, const calm_model *model, const char *module, size_t width,
                                 calm_norm *out);
calm_status calm_model_load_vector(calm_ctx *ctx, const calm_model *model, const char *name, size_t n,
                                   const float **out);

/* Gives the stored tensor [V, D] of the embedding, or with `head` that of a head which is not tied to it; borrowed.
 * CALM_ENOTFOUND, CALM_EFORMAT: it is missing, of another shape, or no floats. */
calm_status calm_model_table(calm_ctx *ctx, const calm_model *model, bool head, const calm_tensor **out);

/* Loads the table of calm_model_table as a linear without bias and with float input, into ctx->out: as it is stored
 * (row_linear.h) if ctx->decode is set, else as floats.  Fails as calm_model_table and calm_model_load_linear. */
calm_status calm_model_load_table(calm_ctx *ctx, const calm_model *model, bool head, calm_weight *out);

/* Makes a view of the model with other tables, [0] for the embedding and [1] for the head (NULL: the model's own; in a
 * tied model the embedding is both), in ctx->out.  It borrows everything from `model`, and must not be closed. */
calm_status calm_model_view(calm_ctx *ctx, const calm_model *model, const calm_tensor *const tables[2],
                            const calm_model **out);

/* Computes the input of block 0, out [T, D], for ids [T]: embeddings times their scale; encoders add position and token
 * type embeddings and normalise.  `types` [T] or NULL = 0.  CALM_EARG: an id, position or type without a row. */
calm_status calm_model_embed(calm_ctx *ctx, const calm_model *model, const uint32_t *ids, const uint8_t *types,
                             const calm_span *span, float *out);

/* Declares `calm_model *name = NULL`, which is closed at the end of its scope. */
#define CALM_SCOPED_MODEL(name) CALM_SCOPED(calm_model, calm_model_release) *name = NULL
static inline void calm_model_release(calm_model **model)
{
    calm_model_close(*model);
}
