/* Mixture of experts: routing, and the MLP of a sparse block over a whole batch, expert by expert.
 *
 *   w = the weights of the experts that the router chooses (router.h)
 *   y = sum_e w_e expert_e(h), by rising e, + sigmoid(h . g) shared(h), without a gate g + shared(h)
 *   of some families sum_e expert_e(w_e h) instead, of some C sum_e w_e expert_e(B h), B [W, D] and C [D, W] of the
 *   block: experts as wide as a latent (moe.latent); else W = D
 *
 * Experts are read wave by wave, and released: memory holds one wave of them.  Neither the size of a wave nor
 * the number of threads changes a bit. */
#pragma once

#include "ptq/model/batch.h"
#include "ptq/model/block.h"

/* One of the experts chosen for a token. */
typedef struct calm_route {
    uint32_t expert;
    float weight;
} calm_route;

/* Tokens of a batch by expert. */
typedef struct calm_routing {
    calm_route *routes;    /* [rows, top_k]                                                  */
    size_t *begin;         /* [n_experts + 1] tokens of expert e are token[begin[e]] ..      */
    uint32_t *token;       /* [rows top_k] rows of the batch, rising within an expert        */
    float *weight;         /* [rows top_k] what their outputs are multiplied by              */
    float *input;          /* [rows top_k] what experts' rows are multiplied by; NULL: 1     */
    float *latent;         /* [rows, W] what experts read; NULL: the normalised rows         */
    float *sum;            /* [rows, W] of the experts, where the backward pass reads it   */
    float *given;          /* [rows, D] what the norm behind the experts reads, likewise        */
    size_t *window;        /* [n_experts][batch->n + 1] where each window's tokens begin     */
    size_t n_windows;
} calm_routing;

/* What a tensor of a block, by its name there, is to the latent space of the block's experts: B, C or neither. */
typedef enum calm_latent_side { CALM_LATENT_NONE, CALM_LATENT_IN, CALM_LATENT_OUT } calm_latent_side;
calm_latent_side calm_moe_latent_side(const calm_names *names, const char *tensor);

/* Route every row of the batch (hidden rows as they enter the MLP sublayer), into ctx->out.  Observers see what the
 * router reads as the block's gate_up_in. */
calm_status calm_moe_route(calm_ctx *ctx, const calm_block *block, const calm_batch *batch,
                           const calm_observer *observer, calm_routing *out);

/* What it leaves in ctx->out, for this many rows of this many windows; and what a worker holds of ctx->scratch at most,
 * with a window of T tokens. */
size_t calm_moe_route_bytes(const calm_config *config, size_t rows, size_t n_windows);
size_t calm_moe_route_scratch_bytes(const calm_config *config, size_t n_tokens);

/* The sum over experts in progress. */
typedef struct calm_moe_sum {
    calm_row_store rows;        /* [rows, W] */
} calm_moe_sum;

/* For scopes: a sum that is not begun, and closed at their end. */
#define CALM_SCOPED_MOE_SUM(name) CALM_SCOPED(calm_moe_sum, calm_moe_sum_release) name = {.rows.file = -1}
static inline void calm_moe_sum_release(calm_moe_sum *sum)
{
    calm_row_store_close(&sum->rows);
}

/* Zeroed; where the batch's hidden rows are (memory or file).  `config` is the block's. */
calm_status calm_moe_begin(calm_ctx *ctx, const calm_config *config, const calm_batch *batch, calm_arena *arena,
                           calm_moe_sum *out);

/* Run experts first .. first + n - 1 over their tokens, in parallel over experts, and add their weighted outputs, by
 * rising expert, to the sum.  Observers see each expert's rows in pieces of at most CALM_MOE_ROWS, in order. */
#define CALM_MOE_ROWS ((size_t)2048)
calm_status calm_moe_experts(calm_ctx *ctx, const calm_block *block, const calm_batch *batch,
                             const calm_routing *routing, size_t first, size_t n, const calm_observer *observer,
                             calm_moe_sum *sum);

/* What it holds of ctx->scratch for n experts with this many tokens each; and each worker besides, while it runs one
 * expert, not counting its weights, which the loader allocates. */
size_t calm_moe_experts_scratch_bytes(const calm_config *config, size_t n, size_t tokens);
size_t calm_moe_expert_scratch_bytes(const calm_config *config, size_t tokens);

/* Outputs of the experts of a wave, when a batch is run for itself. */
#define CALM_MOE_WAVE_BYTES ((size_t)64 * 1024 * 1024)

/* Tokens of the expert that most of this many rows are routed to, as estimates have it: eight times an even share. */
size_t calm_moe_most_tokens(const calm_moe_config *moe, size_t rows);

/* How many experts from `first` on make a wave whose outputs take at most `most_bytes`; at least one. */
size_t calm_moe_wave(const calm_block *block, const calm_routing *routing, size_t first, size_t most_bytes);

/* y [n, D] = the shared expert's output for a window's rows x before its gate, and h [n, D] what it and the gate read,
 * both in ctx->scratch. */
calm_status calm_moe_shared(calm_ctx *ctx, const calm_block *block, const float *x, const calm_span *span,
                            const calm_observer *observer, float **h, float **y);

/* gate [n] = what the shared expert's output is multiplied by, of rows x [n, D]; 1 without a gate. */
calm_status calm_moe_shared_gate(calm_ctx *ctx, const calm_block *block, const float *x, size_t n, float *gate);

/* Add the shared expert and the sum to the hidden rows, in parallel over windows: the end of the sublayer. */
calm_status calm_moe_end(calm_ctx *ctx, const calm_block *block, calm_batch *batch, const calm_observer *observer,
                         calm_moe_sum *sum);

/* What a worker holds of ctx->scratch there, with a window of T tokens. */
size_t calm_moe_end_scratch_bytes(const calm_config *config, size_t n_tokens);

/* All of that: the MLP sublayer of a sparse block over a batch. */
calm_status calm_moe_run(calm_ctx *ctx, const calm_block *block, calm_batch *batch, const calm_observer *observer);

/* The most that holds for windows of the same length in memory, its workers together; `expert_bytes`: what the
 * loader leaves of an expert. */
size_t calm_moe_run_scratch_bytes(const calm_config *config, size_t n_windows, size_t longest, size_t expert_bytes,
                                  size_t n_threads);

/* Has a block an expert that sees every token? */
bool calm_moe_has_shared(const calm_block *block);
