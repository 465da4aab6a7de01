/* Assembly of one fold set and its use in the forward pass.  Only files of this folder and their tests include it. */
#pragma once

#include "ptq/plan/assemble.h"

/* Names a fold set of a block. */
typedef struct calm_fold_set_ref {
    const calm_block *block;
    calm_sublayer sublayer;
    long expert;               /* CALM_NO_EXPERT, CALM_SHARED_EXPERT or the expert's number */
    const calm_weight *weight; /* [CALM_N_ROLES] float weights of the fold set */
} calm_fold_set_ref;

/* Assembles a fold set into ctx->out.
 * CALM_EFORMAT: a stored candidate has another shape than its job, or an input scale that cannot be folded.
 * CALM_ENUMERIC: a folded scale is out of range. */
calm_status calm_assemble_fold_set(calm_ctx *ctx, const calm_model *model, const calm_plan *plan,
                                const calm_fold_set_ref *set, calm_fold_set *out);

/* Returns the most bytes that calm_assemble_fold_set allocates in ctx->out for jobs begin .. end - 1, all quantized to
 * `scheme`, with `extras` (CALM_QJOB_SCALED, CALM_QJOB_BIASED). */
size_t calm_assemble_fold_set_bytes(const calm_model *model, size_t begin, size_t end, const calm_scheme *scheme,
                                 unsigned extras);

/* Returns the float weights of a sublayer (of a mixture's MLP: of the shared expert) and fills `set` with its name. */
calm_weight *calm_fold_set_weights(calm_block *block, calm_sublayer sublayer, calm_fold_set_ref *set);

/* Returns the bytes of the folded norm, its bias and the block's name, for a job whose input scale folds into a norm;
 * 0 for other jobs. */
size_t calm_assembled_norm_bytes(const calm_config *config, const calm_job_ref *job);

/* Replaces the float weights in weight [CALM_N_ROLES] and the norm (NULL for an expert) by the assembled ones, with the
 * values that a reader of the checkpoint computes; memory in ctx->out. */
calm_status calm_fold_set_apply(calm_ctx *ctx, const calm_fold_set *assembled, calm_weight *weight, calm_norm *norm);
