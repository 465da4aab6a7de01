/* Routing: which experts a token goes to and what their outputs are multiplied by.
 *
 *   r = h R^T + a                      logits, a of the families that have it
 *   s = softmax(r) or sigmoid(r)       scores of all experts
 *   c = s + b, or c = r                what the choice is by, b a vector of the checkpoint or 0
 *   the top k of c; with groups of the E / n experts of one after another only those of the best groups, a group by the
 *   sum of its two largest c or by its largest
 *   w = s of the chosen, with norm_top_k divided by max(their sum + a, m), times a factor
 *
 * sparsemixer (arXiv 2409.12136): k times the largest logit of those not yet chosen; its weight is its share of the
 * softmax over those that are less than 2 jitter from it, relative to the larger size of the two. */
#pragma once

#include "ptq/model/moe.h"

/* logits [n, E] of the router for normalised rows h [n, D]. */
void calm_router_logits(const calm_block *block, const float *h, size_t n, float *logits);

/* out [n, top_k] = the experts of each row by falling choice, of two equal ones the lower number, with their weights.
 * CALM_ENUMERIC: a logit is not finite. */
calm_status calm_router_choose(calm_ctx *ctx, const calm_block *block, const float *logits, size_t n, calm_route *out);

/* What that holds of ctx->scratch. */
size_t calm_router_choose_bytes(const calm_moe_config *moe);

/* u [top_k] = the weights of one row's routes before the factors of experts, and the routes with them; s [E] holds the
 * row's logits and is changed. */
void calm_router_unscaled(const calm_moe_config *moe, const calm_route *routes, float *s, calm_route *u);

/* dlogits [E] from the gradients dweight [top_k] of one row's weights, which have no factors of experts; the choice is
 * held fixed.  s [E] holds the row's logits and is changed. */
void calm_router_back(const calm_moe_config *moe, const calm_route *routes, const float *dweight, float *s,
                      float *dlogits);
