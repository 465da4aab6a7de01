/* Module names in quantization entries: regexes for the linears that a plan treats alike, names of what stays
 * float.
 *
 * Engines fuse q, k, v into qkv_proj and gate, up into gate_up_proj and look for the fused name; the regexes match both
 * spellings, and those of different schemes are disjoint (docs/formats.md section 3.4). */
#pragma once

#include "ptq/base/option.h"
#include "ptq/base/text.h"
#include "ptq/export/export.h"
#include "ptq/model/arch.h"
#include "ptq/plan/assemble.h"

/* The head of a wrapper, as a regex: its name has a prefix in some readers and none in others. */
#define CALM_WRAPPED_HEAD "(language_model\\.)?lm_head$"

/* Is the job one of the requested ones? */
typedef bool calm_plan_match_fn(const void *user, const calm_plan_job *job);

/* Called with a regex for whole module names, without "re:", ending in $. */
typedef void calm_pattern_fn(void *user, const char *regex);

/* One regex per kind of job and place (block, shared expert, experts) of which some block's job matches; the first
 * expert of a block is named for all. */
void calm_module_regexes(const calm_export_input *input, calm_plan_match_fn *match, const void *match_user,
                  calm_pattern_fn *each, void *user);

/* A calm_plan_match_fn: quantized with the calm_scheme `scheme`. */
bool calm_plan_has_scheme(const void *scheme, const calm_plan_job *job);

/* A calm_plan_match_fn: stays float. */
bool calm_plan_is_float(const void *unused, const calm_plan_job *job);

/* The different schemes of a plan in order of first use, in ctx->scratch; *base: number of the one of most weights. */
calm_status calm_plan_schemes(calm_ctx *ctx, const calm_export_input *input, calm_scheme **schemes, size_t *n,
                              size_t *base);

/* Modules whose matrix stays float, in ctx->scratch: the head first (also where it is tied and not in the file),
 * then by name; with `embeddings` those too. */
calm_status calm_float_modules(calm_ctx *ctx, const calm_export_input *input, bool embeddings, const char ***out,
                               size_t *n);

/* Add those without embeddings to a JSON array. */
calm_status calm_add_float_modules(calm_ctx *ctx, const calm_export_input *input, calm_json *array);

/* First words of modules that the model does not have, "mtp" of mtp.layers.0.self_attn.q_proj, in ctx->scratch: engines
 * that build these modules fuse them under names that are not in the file, so that an entry for all below a word says
 * that they stay float.  No quantized module begins with such a word, of letters, digits, - and _.  In a wrapper, whose
 * parts may all be below "model.", "visual" of model.visual.merger. */
calm_status calm_foreign_roots(calm_ctx *ctx, const calm_export_input *input, calm_words *out);

/* What a tensor of the checkpoint is, as assembly changes it, and how a format writes it. */
typedef enum calm_export_part_kind {
    CALM_EXPORT_COPY,         /* stays as the checkpoint has it                                   */
    CALM_EXPORT_NORM,         /* the norm before a sublayer, which input scales fold into         */
    CALM_EXPORT_NORM_BIAS,
    CALM_EXPORT_BIAS,         /* of a linear                                                      */
    CALM_EXPORT_WEIGHT,
    CALM_EXPORT_QUANTIZED,    /* one of the tensors that a weight becomes (safetensors_export.h)  */
    CALM_EXPORT_EXPERTS,      /* weights of all experts (gguf_layout.h)                           */
    CALM_EXPORT_STREAMS,      /* matrices NAME.0, NAME.1 and so on of streams (gguf_layout.h)     */
    CALM_EXPORT_ZEROS,        /* of no tensor that counts (gguf_layout.h)                         */
    CALM_EXPORT_ROPE_FACTORS, /* of no tensor of the checkpoint (gguf_layout.h)                   */
    CALM_EXPORT_DENSE,        /* the same: a layer that modules.json lists behind the pooling     */
} calm_export_part_kind;

typedef struct calm_export_part {
    calm_export_part_kind kind;
    long block;                    /* -1: outside the blocks                                           */
    const calm_job_ref *job;       /* of a linear's tensors; else NULL                                 */
    calm_role role;                /* likewise                                                         */
    const char *module;            /* likewise: "model.layers.0.self_attn.q_proj"                      */
    calm_sublayer sublayer;        /* of a norm, of a linear's tensors                                 */
    const calm_tensor *source;     /* of the float checkpoint                                          */
} calm_export_part;

/* What a tensor of the checkpoint is, by its name. */
calm_export_part calm_export_part_of(const calm_model *model, const calm_tensor *source);

/* What assembly made of the floats of a part up to CALM_EXPORT_WEIGHT; NULL: they stay. */
const float *calm_export_part_floats(const calm_export_part *part, const calm_fold_set *set);

/* Number of the block that a tensor of the checkpoint is in, *rest is its name within the block; -1: outside. */
long calm_tensor_block(const calm_model *model, const char *tensor, const char **rest);

/* `name` [n] as a regex that matches it alone: dots with a backslash. */
void calm_append_escaped(calm_text *text, const char *name, size_t n);
