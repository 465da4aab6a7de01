/* Steps that a mixture's forward and backward pass share.  Only files of this folder and their tests include it. */
#pragma once

#include "ptq/layers/moe.h"

/* Computes gate [n] = sigmoid(h . g) from normalised rows h [n, D], the factors of the shared expert's output; 1
 * without a gate. */
void calm_shared_gate_rows(const calm_block *block, const float *h, size_t n, float *gate);

/* Returns the norm before the experts: the MLP's IN norm, or a separate one. */
const calm_norm *calm_moe_experts_norm(const calm_block *block);

/* Does the router have a separate norm (Gemma 4)? */
bool calm_moe_has_router_norm(const calm_block *block);

/* Returns that norm, whose output is multiplied by *scale. */
calm_norm calm_moe_router_norm(const calm_block *block, float *scale);

/* Computes h [n, D], the router's input for rows x [n, D], in ctx->scratch. */
calm_status calm_moe_router_rows(calm_ctx *ctx, const calm_block *block, const float *x, size_t n, float **h);

/* Returns the linear B, CALM_PLAIN_EXPERTS_IN, or C, CALM_PLAIN_EXPERTS_OUT, of a block with a latent space of experts
 * (moe.h). */
calm_weight calm_moe_latent_linear(const calm_block *block, calm_plain plain);

/* Runs calm_moe_experts over all experts, wave by wave. */
calm_status calm_moe_all_experts(calm_ctx *ctx, const calm_block *block, const calm_batch *batch,
                                 const calm_routing *routing, const calm_observer *observer, calm_moe_sum *sum);

/* Returns its peak bytes of ctx->scratch for `rows` rows: outputs [tokens, W] of a wave's experts, and `worker_bytes`
 * for each worker. */
size_t calm_moe_all_experts_bytes(const calm_config *config, size_t rows, size_t worker_bytes, size_t n_threads);
