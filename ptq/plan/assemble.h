/* Assembly: turns a plan's candidates for a sublayer or an expert into codes and scales per linear, and folds input
 * scales into other tensors.
 *
 *   job      its input scale s folds into
 *   qkv      the norm before attention:  weight / s
 *   gate_up  the norm before the MLP:    weight / s      (not in a mixture: the norm feeds the router and all experts)
 *   o        v:   row r / s (all query heads of a kv head share s)
 *   down     up:  row r / s (where a gate multiplies it)
 * In a learned block, candidates and vectors are folded already; only the input scales that are folded into the rows of
 * a float linear, which has no candidate, are still to fold.
 * A bias correction (calm_qjob.bias_delta) is added before anything is folded.  A folded norm, bias or float weight and
 * a corrected bias are rounded to the checkpoint's dtype.  A row of a quantized linear is folded into its scales, which
 * are rounded again; the codes do not change, so a scale that its dtype cannot hold is an error.  The guard and the
 * exporters both use this code, so that calm measures the weights that it writes. */
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
    float *scales;           /* [out, n_groups], rounded to the scheme's dtype of scales */
    const uint8_t *zeros;    /* [out, n_groups] or NULL when symmetric             */
    float *mins;             /* [out, n_groups] group minima; NULL: the scheme has none */
    float global;            /* global scale that divides the stored scales; 0: none */
    float act_global;        /* global scale of the activation scales; 0: none     */
    float *w;                /* [out, in] weight of a float linear after folding; NULL: unchanged, or quantized */
    float *bias;             /* [out] bias after folding or correction; NULL: unchanged */
    const calm_tensor *source;    /* the checkpoint's float weight, for exporters; NULL: unknown */
    const uint32_t *order;   /* [in] column k of `codes` multiplies input order[k]; NULL: input k */
    const float *in_scale;   /* [in] input scale that could not be folded (calm_plan.free_scales); else NULL */
    const float *fed_scale;  /* [in] input scale that was folded into rows of a float linear; else NULL */
} calm_qlinear;

/* The jobs whose input scales fold into each other's linears: a block's attention, its dense MLP, or one expert. */
typedef struct calm_fold_set {
    calm_qlinear linear[CALM_N_ROLES];
    float *norm, *norm_bias;    /* [D] folded weight and bias of the norm before the set, as stored; NULL: unchanged */
    calm_vectors vectors;       /* vectors of a learned block; they replace `norm` and biases above; else empty      */
} calm_fold_set;

/* Loads block `index` into `block` (its float weights) and assembles its attention and its MLP, or the shared expert of
 * a mixture, into `sublayer`; all memory is in ctx->out.  CALM_EFORMAT: a stored candidate has another shape than its
 * job, or an input scale that cannot be folded.  CALM_ENUMERIC: a folded scale is out of range. */
calm_status calm_assemble_block(calm_ctx *ctx, const calm_model *model, const calm_plan *plan, size_t index,
                                calm_block *block, calm_fold_set sublayer[CALM_N_SUBLAYERS]);

/* Does the same for exporters, which copy float weights from the shards: the float weights of `block` are NULL. */
calm_status calm_assemble_parts(calm_ctx *ctx, const calm_model *model, const calm_plan *plan, size_t index,
                                calm_block *block, calm_fold_set sublayer[CALM_N_SUBLAYERS]);

/* Loads the float weights of one expert into `weight` and assembles the expert.  Fails as calm_assemble_block does. */
calm_status calm_assemble_expert(calm_ctx *ctx, const calm_model *model, const calm_plan *plan, const calm_block *block,
                                 size_t expert, calm_weight weight[CALM_N_ROLES], calm_fold_set *out);

/* Returns `extras` (CALM_QJOB_SCALED, CALM_QJOB_BIASED) without CALM_QJOB_BIASED if no linear of the job has a
 * bias. */
unsigned calm_assembled_extras(const calm_layout *layout, const calm_job_ref *job, unsigned extras);

/* Computes w[role] [out, in] for each linear of jobs begin .. end - 1, which are whole fold sets: the float weight with
 * the plan's input scales folded in, unrounded, that is the weight which codes and folded scales approximate.  w[role]
 * is NULL for other roles.  Results are in ctx->out. */
calm_status calm_assemble_targets(calm_ctx *ctx, const calm_model *model, const calm_plan *plan,
                                  const calm_weight weight[CALM_N_ROLES], size_t begin, size_t end,
                                  float *w[CALM_N_ROLES]);

/* Returns the peak bytes of ctx->scratch while a fold set of jobs begin .. end - 1, all quantized to `scheme`, is
 * assembled (names are not counted). */
size_t calm_assemble_fold_set_scratch_bytes(const calm_model *model, size_t begin, size_t end,
                                            const calm_scheme *scheme);

/* Return bytes of ctx->out: _block_ of a block's float weights and assembled linears without experts; _parts_ the same
 * for calm_assemble_parts; _expert_ of one expert, 0 in a dense block.  `extras`: what candidates may have
 * (CALM_QJOB_SCALED, CALM_QJOB_BIASED). */
size_t calm_assembled_block_bytes(const calm_model *model, size_t block, const calm_scheme *scheme, unsigned extras);
size_t calm_assembled_parts_bytes(const calm_model *model, size_t block, const calm_scheme *scheme, unsigned extras);
size_t calm_assembled_expert_bytes(const calm_model *model, size_t block, const calm_scheme *scheme, unsigned extras);

/* An override of the forward pass (ptq/model/forward.h) that computes with the plan's weights.  calm_plan_apply
 * replaces the float weights of a block by the assembled ones (as integers if ctx->ints is set and the scheme allows
 * it); experts are assembled when they are loaded. */
typedef struct calm_plan_override {
    const calm_model *model;
    const calm_plan *plan;
} calm_plan_override;
calm_status calm_plan_apply(void *plan_override, calm_ctx *ctx, size_t index, calm_block *block);

/* Returns the bytes of ctx->out that calm_plan_apply needs for jobs begin .. end - 1, all quantized, in addition to the
 * bytes of assembly. */
size_t calm_fold_set_apply_bytes(const calm_model *model, size_t begin, size_t end, unsigned extras);
