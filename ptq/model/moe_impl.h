/* Steps of a mixture that its backward pass takes too.  Only files of this folder and their tests include it. */
#pragma once

#include "ptq/model/moe.h"

/* gate [n] = sigmoid(h . g) of normalised rows h [n, D], what the shared expert's output is multiplied by; 1 without a
 * gate. */
void calm_shared_gate_rows(const calm_block *block, const float *h, size_t n, float *gate);

/* The norm of what experts read: that of the router and the shared expert, or a separate one. */
const calm_norm *calm_moe_experts_norm(const calm_block *block);

/* Has the router another norm than the shared expert (Gemma 4)? */
bool calm_moe_has_router_norm(const calm_block *block);

/* That norm; behind it rows are multiplied by *scale. */
calm_norm calm_moe_router_norm(const calm_block *block, float *scale);

/* h [n, D] = what the router reads of rows x [n, D], in ctx->scratch. */
calm_status calm_moe_router_rows(calm_ctx *ctx, const calm_block *block, const float *x, size_t n, float **h);

/* The linear to what experts read, CALM_PLAIN_EXPERTS_IN, or the one behind their sum, CALM_PLAIN_EXPERTS_OUT, of a
 * block whose experts have another width than the model. */
calm_weight calm_moe_latent_linear(const calm_block *block, calm_plain plain);

/* calm_moe_experts over all of them, wave by wave. */
calm_status calm_moe_all_experts(calm_ctx *ctx, const calm_block *block, const calm_batch *batch,
                                 const calm_routing *routing, const calm_observer *observer, calm_moe_sum *sum);

/* What such waves hold for this many rows, a matrix [tokens, W] of every expert of a wave, and a worker `worker_bytes`.
 */
size_t calm_moe_all_experts_bytes(const calm_config *config, size_t rows, size_t worker_bytes, size_t n_threads);
