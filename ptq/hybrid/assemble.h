/* Assembly: what a plan makes of a block - codes and scales per linear, and the tensors that input scales are folded
 * into.
 *
 *   job      its input scale s folds into
 *   qkv      the attention norm:  weight / s
 *   gate_up  the MLP norm:        weight / s
 *   o        v:   row r / s (all query heads of a kv head share s)
 *   down     up:  row r / s
 * A folded norm, bias or float weight is rounded to the checkpoint's dtype; a row of a quantized linear is folded into its
 * scales, which are rounded again.  Guard and exporters both start from here, so what is measured is what is written. */
#ifndef CALM_HYBRID_ASSEMBLE_H
#define CALM_HYBRID_ASSEMBLE_H

#include "ptq/base/context.h"
#include "ptq/hybrid/plan.h"
#include "ptq/model/model.h"

/* One linear of an assembled block. */
typedef struct calm_qlinear {
    bool quantized;
    calm_scheme scheme;
    size_t out, in, group, n_groups;
    const uint8_t *codes;    /* [out, in]                                          */
    float *scales;           /* [out, n_groups], storable in scheme.scale_dtype    */
    const uint8_t *zeros;    /* [out, n_groups] or NULL when symmetric             */
    float *w;                /* [out, in] a float linear that folding changed; else NULL */
    float *bias;             /* [out] a bias that folding changed; else NULL       */
} calm_qlinear;

typedef struct calm_qblock {
    calm_qlinear linear[CALM_N_ROLES];
    float *norm[CALM_N_SUBLAYERS];    /* [D] folded, storable in the checkpoint's dtype; NULL: unchanged */
} calm_qblock;

/* Assemble block `block` (float, as loaded) into ctx->out.
 * CALM_EFORMAT: a fetched job does not fit the block.  CALM_ENUMERIC: a folded scale is out of range. */
calm_status calm_assemble_block(calm_ctx *ctx, const calm_model *model, const calm_plan *plan, const calm_block *block,
                                calm_qblock *out);

/* Put the assembled weights in place of the float ones, as a reader of the checkpoint computes them (ctx->out). */
calm_status calm_qblock_apply(calm_ctx *ctx, const calm_qblock *assembled, calm_block *block);

/* Both steps as an override of the forward pass. */
typedef struct calm_plan_override {
    const calm_model *model;
    const calm_plan *plan;
} calm_plan_override;
calm_status calm_plan_apply(void *plan_override, calm_ctx *ctx, size_t index, calm_block *block);

#endif
