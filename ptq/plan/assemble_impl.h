/* Assembly: the memory and the work of its two halves.  Only files of this folder and their tests include it. */
#pragma once

#include "ptq/plan/assemble.h"

/* Which fold set of which block, and its float weights. */
typedef struct calm_fold_set_ref {
    const calm_block *block;
    calm_sublayer sublayer;
    long expert;               /* CALM_NO_EXPERT, CALM_SHARED_EXPERT or its number */
    const calm_weight *weight; /* [CALM_N_ROLES] */
} calm_fold_set_ref;

/* Assemble a fold set into ctx->out.
 * CALM_EFORMAT: a fetched job does not fit the block, or has an input scale that cannot be folded.  CALM_ENUMERIC: a
 * folded scale is out of range. */
calm_status calm_assemble_fold_set(calm_ctx *ctx, const calm_model *model, const calm_plan *plan,
                                const calm_fold_set_ref *set, calm_fold_set *out);

/* Bytes that calm_assemble_fold_set leaves in ctx->out at most, for jobs begin .. end - 1 that are all quantized to
 * `scheme`, with the `extras` (CALM_QJOB_SCALED, CALM_QJOB_BIASED). */
size_t calm_assemble_fold_set_bytes(const calm_model *model, size_t begin, size_t end, const calm_scheme *scheme,
                                 unsigned extras);

/* The float weights of a sublayer, and the fold set that they are: of a mixture's MLP the shared expert. */
calm_weight *calm_fold_set_weights(calm_block *block, calm_sublayer sublayer, calm_fold_set_ref *set);

/* Bytes of the norm that a job's input scale folds into, with its bias and the block's name; 0: it folds elsewhere. */
size_t calm_assembled_norm_bytes(const calm_config *config, const calm_job_ref *job);

/* Replace the float weights by the assembled ones, as a reader of the checkpoint computes them (ctx->out): in weight
 * [CALM_N_ROLES] and in the norm (NULL for an expert). */
calm_status calm_fold_set_apply(calm_ctx *ctx, const calm_fold_set *assembled, calm_weight *weight, calm_norm *norm);
