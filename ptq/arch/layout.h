/* Layout: the table of all linears that calm quantizes, grouped into jobs, block by block.
 *
 * Where v may get another quantization type than q and k (ptq/quant/mix.h), the layout is split: qk and v are two jobs
 * of the kind CALM_JOB_QKV.  They read the same input, so neither can have a separate input scale.
 * Jobs are numbered through the model: those of block b are block_begin[b] .. block_begin[b + 1] - 1, attention first,
 * then the MLP or, in a mixture, the shared expert and the experts by number. */
#pragma once

#include "ptq/arch/config.h"
#include "ptq/quant/mix.h"

/* One weight matrix. */
typedef struct calm_linear_ref {
    calm_role role;
    const char *module;      /* "model.layers.0.self_attn.q_proj"       */
    size_t out, in;
    bool bias;
} calm_linear_ref;

typedef struct calm_kind_job calm_kind_job;    /* kind.h */

/* The linears of a block that read the same input. */
typedef struct calm_job_ref {
    size_t block;
    calm_job_kind kind;
    const calm_kind_job *traits;    /* its descriptor in the kind of sublayer (kind.h)                 */
    long expert;             /* CALM_NO_EXPERT, CALM_SHARED_EXPERT or the expert's number              */
    const char *role;        /* name within the block: "qkv", "experts.3.down", "shared_expert.gate_up"; in a split
                              * layout "qk" and "v"                                                    */
    const char *name;        /* "model.layers.0.qkv"                                                   */
    size_t first, n;         /* linears first .. first + n - 1                                         */
    size_t out, in;          /* sum of the linears' rows; columns                                      */
    bool can_absorb;         /* a per-channel scale of its input can be folded into the weights before it */
    bool halved;             /* another job of the block reads the same input                          */
    calm_place place;        /* its properties for mixes of quantization types (ptq/quant/mix.h)       */
} calm_job_ref;

/* Largest number of jobs of a dense sublayer or of an expert; largest number of linears of a job. */
#define CALM_FOLD_SET_JOBS 4
#define CALM_JOB_LINEARS   3

/* A linear and its job. */
typedef struct calm_named_linear {
    const calm_linear_ref *linear;
    const calm_job_ref *job;
} calm_named_linear;

typedef struct calm_layout {
    calm_linear_ref *linears;
    size_t n_linears;
    calm_named_linear *by_name;    /* [n_linears] sorted by module */
    calm_job_ref *jobs;
    size_t n_jobs;
    size_t *block_begin;     /* [n_blocks + 1] */
    const char *head;        /* module of the head, "lm_head"; NULL: the family has none */
} calm_layout;

/* The unit that gets one choice of method: a job, jobs that fold into each other (calm_layout_fold_set), a block. */
typedef enum calm_unit { CALM_UNIT_JOB, CALM_UNIT_SUBLAYER, CALM_UNIT_BLOCK, CALM_N_UNITS } calm_unit;

#define CALM_UNIT_NAMES "job|sublayer|block"    /* in the order of calm_unit, for option tables */

/* Returns "job", "sublayer" or "block". */
const char *calm_unit_name(calm_unit unit);

/* Gives the range of jobs, first and last + 1, of the unit that a job belongs to. */
void calm_layout_unit(const calm_layout *layout, calm_unit unit, size_t job, size_t *begin, size_t *end);

/* Makes the name of a job's unit, in ctx->out: "model.layers.0.qkv", "model.layers.0.attention",
 * "model.layers.0.experts.3", "model.layers.0". */
calm_status calm_layout_unit_name(calm_ctx *ctx, const calm_layout *layout, calm_unit unit, size_t job, char **out);

/* Builds the layout in ctx->out.  `prefix`: first part of the checkpoint's tensor names; `split`: v is a separate job,
 * where the family stores it in a separate matrix. */
calm_status calm_layout_build(calm_ctx *ctx, const calm_config *config, const char *prefix, bool split,
                              calm_layout *out);

/* Finds the linear whose module is `name` [n]; NULL: the layout does not have it (a router, an embedding, the head). */
const calm_named_linear *calm_layout_find(const calm_layout *layout, const char *name, size_t n);

/* Returns the width of the input and output rows of a numbered expert (moe.latent) or of any other sublayer. */
size_t calm_expert_width(const calm_config *config, long expert);

/* Gives the shape [out, in] of a role in a dense block or in an expert, by the block's config (calm_config_at). */
void calm_role_shape(const calm_config *config, calm_role role, long expert, size_t *out, size_t *in);

/* Makes a role's module name in ctx->out: "model.layers.0.self_attn.q_proj", "model.layers.0.mlp.experts.3.up_proj". */
calm_status calm_role_module(calm_ctx *ctx, const calm_config *config, const char *prefix, size_t block, calm_role role,
                             long expert, calm_string_out out);

/* Does any linear of the job have a bias? */
bool calm_layout_biased(const calm_layout *layout, const calm_job_ref *job);

/* Does the family, or with a block's config the block, have this role?  (q_proj or the fused qkv_proj, not both.) */
bool calm_has_role(const calm_config *config, calm_role role);

/* Does the expert have this role?  Its linears may differ from those of its block. */
bool calm_expert_has_role(const calm_config *config, calm_role role, long expert);

/* Gives the range of jobs, first and last + 1, whose scales fold into each other: the attention of a block, its dense
 * MLP, or one expert. */
void calm_layout_fold_set(const calm_layout *layout, size_t block, calm_sublayer sublayer, long expert, size_t *begin,
                       size_t *end);

/* Gives the range of jobs, first and last + 1, of a sublayer of a block. */
void calm_layout_sublayer(const calm_layout *layout, size_t block, calm_sublayer sublayer, size_t *begin, size_t *end);
