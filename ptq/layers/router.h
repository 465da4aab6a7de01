/* Routing: the choice of experts for each token, and the weights of their outputs.
 *
 *   r = h R^T + a                      logits; a: router bias, or 0
 *   s = softmax(r) or sigmoid(r)       scores of all experts
 *   c = s + b, or c = r                values that decide the choice; b: choice bias of the checkpoint, or 0
 *   the k largest c are chosen; with n groups of E / n consecutive experts, only among the groups whose largest c, or
 *   sum of the two largest c, is best
 *   w = s of the chosen experts, with norm_top_k divided by max(their sum + sum_plus, sum_min), times moe.scale
 *
 * sparsemixer (arXiv 2409.12136): k times the largest remaining logit; its weight is its softmax over the remaining
 * logits whose distance from it, relative to the larger magnitude of the two, is at most 2 jitter. */
#pragma once

#include "ptq/layers/moe.h"

/* Computes the router's logits [n, E] for normalised rows h [n, D]. */
void calm_router_logits(const calm_block *block, const float *h, size_t n, float *logits);

/* Chooses the experts of each row, out [n, top_k] by decreasing c, the lower number of equal ones first, with their
 * weights.  CALM_ENUMERIC: a logit is not finite. */
calm_status calm_router_choose(calm_ctx *ctx, const calm_block *block, const float *logits, size_t n, calm_route *out);

/* Returns the bytes of ctx->scratch that calm_router_choose holds. */
size_t calm_router_choose_bytes(const calm_moe_config *moe);

/* Computes u [top_k], one row's routes with their weights before CALM_PLAIN_EXPERT_SCALE multiplies them; s [E] holds
 * the row's logits and is overwritten. */
void calm_router_unscaled(const calm_moe_config *moe, const calm_route *routes, float *s, calm_route *u);

/* Computes dlogits [E] from the gradients dweight [top_k] of one row's weights before CALM_PLAIN_EXPERT_SCALE; the
 * choice is held fixed.  s [E] holds the row's logits and is overwritten. */
void calm_router_back(const calm_moe_config *moe, const calm_route *routes, const float *dweight, float *s,
                      float *dlogits);
