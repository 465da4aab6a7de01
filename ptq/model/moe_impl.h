/* The router's two steps.  Only files of this folder and their tests include it. */
#ifndef CALM_MODEL_MOE_IMPL_H
#define CALM_MODEL_MOE_IMPL_H

#include "ptq/model/moe.h"

/* logits [n, E] of the router for normalised rows h [n, D]. */
void calm_router_logits(const calm_block *block, const float *h, size_t n, float *logits);

/* out [n, top_k] = the experts of each row by falling probability, of two equal ones the lower number, with their
 * weights.  CALM_ENUMERIC: a logit is not finite. */
calm_status calm_router_choose(calm_ctx *ctx, const calm_block *block, const float *logits, size_t n, calm_route *out);

#endif
