/* Module names in quantization entries: regexes for the linears of one scheme, names of modules that stay float.
 *
 * Engines fuse q, k, v into qkv_proj and gate, up into gate_up_proj and look up the fused name; the regexes match both
 * spellings, and those of different schemes are disjoint (docs/formats.md section 3.4). */
#pragma once

#include "ptq/arch/arch.h"
#include "ptq/base/option.h"
#include "ptq/base/text.h"
#include "ptq/export/export.h"
#include "ptq/plan/assemble.h"

/* Regex for the head of a wrapper, whose name has a prefix in some readers only. */
#define CALM_WRAPPED_HEAD "(language_model\\.)?lm_head$"

/* Does the job belong to the requested ones? */
typedef bool calm_plan_match_fn(const void *user, const calm_plan_job *job);

/* Receives a regex for whole module names, without "re:", ending in $. */
typedef void calm_pattern_fn(void *user, const char *regex);

/* Calls `each` with one regex per kind of job and place (block, shared expert, experts) for which a block's job
 * matches; the first expert of a block decides for all. */
void calm_module_regexes(const calm_export_input *input, calm_plan_match_fn *match, const void *match_user,
                  calm_pattern_fn *each, void *user);

/* Does the same for all jobs of a kind, quantized or not. */
void calm_module_regexes_of_job(const calm_export_input *input, calm_job_kind kind, calm_pattern_fn *each, void *user);

/* A calm_plan_match_fn: quantized with the calm_scheme `scheme`. */
bool calm_plan_has_scheme(const void *scheme, const calm_plan_job *job);

/* A calm_plan_match_fn: stays float. */
bool calm_plan_is_float(const void *unused, const calm_plan_job *job);

/* Lists the different schemes of a plan in order of first use, in ctx->scratch; *base: index of the scheme of most
 * weights. */
calm_status calm_plan_schemes(calm_ctx *ctx, const calm_export_input *input, calm_scheme **schemes, size_t *n,
                              size_t *base);

/* Lists the modules whose matrix stays float, in ctx->scratch: the head first (even if it is tied and not in the file),
 * then the others by name; `embeddings`: with embedding modules. */
calm_status calm_float_modules(calm_ctx *ctx, const calm_export_input *input, bool embeddings, const char ***out,
                               size_t *n);

/* Adds the float modules without embeddings to a JSON array. */
calm_status calm_add_float_modules(calm_ctx *ctx, const calm_export_input *input, calm_json *array);

/* Lists, in ctx->scratch, the first words of modules in the checkpoint that are not in calm's model, "mtp" of
 * mtp.layers.0.self_attn.q_proj, or in a wrapper "visual" of model.visual.merger.  Engines that build these modules
 * fuse them under names that are not in the file, so one entry for everything below the word keeps them float.  A word
 * has letters, digits, - and _, and no quantized module begins with it. */
calm_status calm_foreign_roots(calm_ctx *ctx, const calm_export_input *input, calm_words *out);

/* The kind of a checkpoint's tensor: how assembly changes it and how a format writes it. */
typedef enum calm_export_part_kind {
    CALM_EXPORT_COPY,         /* stays as the checkpoint has it                                   */
    CALM_EXPORT_NORM,         /* the norm before a sublayer, which input scales fold into         */
    CALM_EXPORT_NORM_BIAS,    /* the bias of such a norm                                          */
    CALM_EXPORT_BIAS,         /* the bias of a linear                                             */
    CALM_EXPORT_WEIGHT,       /* the weight of a linear                                           */
    CALM_EXPORT_QUANTIZED,    /* one of the tensors that a weight becomes (safetensors_export.h)  */
    CALM_EXPORT_EXPERTS,      /* weights of all experts (gguf_layout.h)                           */
    CALM_EXPORT_STREAMS,      /* matrices NAME.0, NAME.1 and so on of streams (gguf_layout.h)     */
    CALM_EXPORT_ZEROS,        /* zeros in place of a tensor that has no effect (gguf_layout.h)    */
    CALM_EXPORT_ROPE_FACTORS, /* rope factors, which are not in the checkpoint (gguf_layout.h)    */
    CALM_EXPORT_DENSE,        /* a layer that modules.json lists after the pooling, from its own file */
} calm_export_part_kind;

typedef struct calm_export_part {
    calm_export_part_kind kind;
    long block;                    /* -1: outside the blocks                                           */
    const calm_job_ref *job;       /* job of a linear's tensor; else NULL                              */
    calm_role role;                /* role of a linear's tensor                                        */
    const char *module;            /* module of a linear's tensor: "model.layers.0.self_attn.q_proj"   */
    calm_sublayer sublayer;        /* sublayer of a norm or of a linear's tensor                       */
    const calm_tensor *source;     /* tensor of the float checkpoint                                   */
} calm_export_part;

/* Classifies a tensor of the checkpoint by its name. */
calm_export_part calm_export_part_of(const calm_model *model, const calm_tensor *source);

/* Returns the assembled floats of a part of a kind up to CALM_EXPORT_WEIGHT; NULL: assembly does not change them. */
const float *calm_export_part_floats(const calm_export_part *part, const calm_fold_set *set);

/* Returns the number of the block that has a tensor of the checkpoint, and the rest of its name in *rest; -1: outside
 * the blocks. */
long calm_tensor_block(const calm_model *model, const char *tensor, const char **rest);

/* Appends a regex that matches only `name` [n]: dots get a backslash. */
void calm_append_escaped(calm_text *text, const char *name, size_t n);
