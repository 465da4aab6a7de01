/* Assembly: turns a plan's candidates for a sublayer or an expert into codes and scales per linear, and folds input
 * scales into other tensors.
 *
 *   job      its input scale s folds into
 *   qkv      the norm before attention:  weight / s
 *   gate_up  the norm before the MLP:    weight / s      (not in a mixture: the norm feeds the router and all experts)
 *   o        v:   row r / s (all query heads of a kv head share s)
 *   down     up:  row r / s (where a gate multiplies it)
 * Of a learned block candidates and vectors are of the folded form: the scales left to fold are those that rows of a
 * float linear take, which has no candidate.
 * A correction of biases (calm_qjob.bias_delta) is added to them before anything is folded.  A folded norm, bias or
 * float weight, and a corrected bias, is rounded to the checkpoint's dtype; a row of a quantized linear is folded into
 * its scales, which are rounded again but never raised: codes are fixed by then.  Guard and exporters both start from
 * here, so what is measured is what is written. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/plan/plan.h"
#include "ptq/model/model.h"

/* One linear of an assembled fold set. */
typedef struct calm_qlinear {
    bool quantized;
    calm_scheme scheme;
    size_t out, in, group, n_groups;
    const uint8_t *codes;    /* [out, in]                                          */
    float *scales;           /* [out, n_groups], as the scheme stores them         */
    const uint8_t *zeros;    /* [out, n_groups] or NULL when symmetric             */
    float *mins;             /* [out, n_groups]; NULL: none                        */
    float global;            /* that scales are divided by; 0: none                */
    float act_global;        /* the same for scales of activations                 */
    float *w;                /* [out, in] a float linear that folding changed; else NULL */
    float *bias;             /* [out] a bias that folding or a correction changed; else NULL */
    const calm_tensor *source;    /* the float weight that it was made from, for exporters; NULL: not said */
    const uint32_t *order;   /* [in] column k of codes is of input order[k]; NULL: of input k */
    const float *in_scale;   /* [in] that could not be folded, in a plan that allows it; else NULL */
    const float *fed_scale;  /* [in] that rows of a float linear took; else NULL   */
} calm_qlinear;

/* The jobs that fold into each other: a block's attention, its dense MLP, or one expert. */
typedef struct calm_fold_set {
    calm_qlinear linear[CALM_N_ROLES];
    float *norm, *norm_bias;    /* [D] of the norm before it, folded, as the checkpoint stores them; NULL: unchanged */
    calm_vectors vectors;       /* of the whole block, where it was learned; they count more                         */
} calm_fold_set;

/* Load block `index` and assemble its attention and its MLP (of a mixture the shared expert).  `block` keeps the float
 * weights.  In ctx->out.  CALM_EFORMAT: a fetched job does not fit the block, or has an input scale that cannot be
 * folded. CALM_ENUMERIC: a folded scale is out of range. */
calm_status calm_assemble_block(calm_ctx *ctx, const calm_model *model, const calm_plan *plan, size_t index,
                                calm_block *block, calm_fold_set sublayer[CALM_N_SUBLAYERS]);

/* The same for a writer, who copies float weights from the shards: those of `block` are NULL. */
calm_status calm_assemble_parts(calm_ctx *ctx, const calm_model *model, const calm_plan *plan, size_t index,
                                calm_block *block, calm_fold_set sublayer[CALM_N_SUBLAYERS]);

/* Load one expert of a block, its float weights into `weight`, and assemble it.  Fails as calm_assemble_block. */
calm_status calm_assemble_expert(calm_ctx *ctx, const calm_model *model, const calm_plan *plan, const calm_block *block,
                                 size_t expert, calm_weight weight[CALM_N_ROLES], calm_fold_set *out);

/* Of the `extras` that candidates may have (CALM_QJOB_SCALED, CALM_QJOB_BIASED) those of a job: without a correction
 * where no linear has a bias. */
unsigned calm_assembled_extras(const calm_layout *layout, const calm_job_ref *job, unsigned extras);

/* w[role] [out, in] = the weight that each linear of jobs begin .. end - 1, whole fold sets, would have if the plan's
 * input scales were folded into their float weights, not rounded: what codes and folded scales represent.  NULL of
 * other roles.  In ctx->out. */
calm_status calm_assemble_targets(calm_ctx *ctx, const calm_model *model, const calm_plan *plan,
                                  const calm_weight weight[CALM_N_ROLES], size_t begin, size_t end,
                                  float *w[CALM_N_ROLES]);

/* Bytes that assembling a fold set holds of ctx->scratch at most, besides a few names, for jobs begin .. end - 1 that
 * are all quantized to `scheme`. */
size_t calm_assemble_fold_set_scratch_bytes(const calm_model *model, size_t begin, size_t end,
                                            const calm_scheme *scheme);

/* Bytes of a block's float weights and of what is assembled of them, without experts; and those of one expert, 0 in
 * a dense block.  `extras` is what candidates may have (CALM_QJOB_SCALED, CALM_QJOB_BIASED).  _parts_: of
 * calm_assemble_parts. */
size_t calm_assembled_block_bytes(const calm_model *model, size_t block, const calm_scheme *scheme, unsigned extras);
size_t calm_assembled_parts_bytes(const calm_model *model, size_t block, const calm_scheme *scheme, unsigned extras);
size_t calm_assembled_expert_bytes(const calm_model *model, size_t block, const calm_scheme *scheme, unsigned extras);

/* An override of the forward pass (ptq/model/forward.h) that computes with the plan's weights: calm_plan_apply replaces
 * the float weights of a block by the assembled ones, in whole numbers where ctx->ints and the scheme allow; experts
 * are assembled when they are loaded. */
typedef struct calm_plan_override {
    const calm_model *model;
    const calm_plan *plan;
} calm_plan_override;
calm_status calm_plan_apply(void *plan_override, calm_ctx *ctx, size_t index, calm_block *block);

/* Bytes that the replaced weights of jobs begin .. end - 1, all quantized, take of ctx->out next to what assembly
 * leaves there. */
size_t calm_fold_set_apply_bytes(const calm_model *model, size_t begin, size_t end, unsigned extras);
