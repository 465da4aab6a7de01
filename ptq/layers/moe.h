/* Mixture of experts: routing, and the MLP of a sparse block over a whole batch, expert by expert.
 *
 *   y = sum_e w_e expert_e(h) + sigmoid(h . g) shared(h)       w_e the weights of the chosen experts (router.h)
 *
 * The sum runs by increasing e.  Without a gate g the shared expert's factor is 1.  With moe.weighs_input the sum is
 * sum_e expert_e(w_e h); with moe.latent it is C sum_e w_e expert_e(B h), B [W, D] and C [D, W] linears of the block
 * and W the width of the experts' inputs and outputs; else W = D.
 *
 * Experts are loaded in waves, and each wave is released before the next.  Neither the size of a wave nor the number of
 * threads changes a bit of the result. */
#pragma once

#include "ptq/layers/batch.h"
#include "ptq/layers/block.h"

/* One of the experts chosen for a token. */
typedef struct calm_route {
    uint32_t expert;
    float weight;
} calm_route;

/* The routes of a batch's tokens, by token and by expert; `rows` tokens in all. */
typedef struct calm_routing {
    calm_route *routes;    /* [rows, top_k]                                                  */
    size_t *begin;         /* [n_experts + 1] tokens of expert e: token[begin[e]] .. token[begin[e + 1] - 1] */
    uint32_t *token;       /* [rows top_k] rows of the batch, increasing within an expert    */
    float *weight;         /* [rows top_k] factors of the experts' outputs                   */
    float *input;          /* [rows top_k] factors of the experts' inputs; NULL: 1           */
    float *latent;         /* [rows, W] input of the experts; NULL: the normalised rows      */
    float *sum;            /* [rows, W] sum over experts, kept for the backward pass; or NULL */
    float *given;          /* [rows, D] input of the norm after the experts, kept likewise; or NULL */
    size_t *window;        /* [n_experts][batch->n + 1] first token of each window, per expert */
    size_t n_windows;
} calm_routing;

/* Returns whether a block's tensor, by its name in the block, is the linear B (IN), C (OUT) or neither. */
typedef enum calm_latent_side { CALM_LATENT_NONE, CALM_LATENT_IN, CALM_LATENT_OUT } calm_latent_side;
calm_latent_side calm_moe_latent_side(const calm_names *names, const char *tensor);

/* Routes every row of the batch (hidden states before the MLP sublayer), into ctx->out.  Observers see the router's
 * input as the block's gate_up_in. */
calm_status calm_moe_route(calm_ctx *ctx, const calm_block *block, const calm_batch *batch,
                           const calm_observer *observer, calm_routing *out);

/* Return the bytes that this allocates in ctx->out for `rows` rows in n_windows windows, and a worker's peak bytes of
 * ctx->scratch with a window of T tokens. */
size_t calm_moe_route_bytes(const calm_config *config, size_t rows, size_t n_windows);
size_t calm_moe_route_scratch_bytes(const calm_config *config, size_t n_tokens);

/* The sum over experts in progress. */
typedef struct calm_moe_sum {
    calm_row_store rows;        /* [rows, W] */
} calm_moe_sum;

/* Declares a sum that is not begun yet, and is closed at the end of its scope. */
#define CALM_SCOPED_MOE_SUM(name) CALM_SCOPED(calm_moe_sum, calm_moe_sum_release) name = {.rows.file = -1}
static inline void calm_moe_sum_release(calm_moe_sum *sum)
{
    calm_row_store_close(&sum->rows);
}

/* Allocates the sum, zeroed, in `arena` or in a file, like the batch's hidden states.  `config` is the block's. */
calm_status calm_moe_begin(calm_ctx *ctx, const calm_config *config, const calm_batch *batch, calm_arena *arena,
                           calm_moe_sum *out);

/* Runs experts first .. first + n - 1 over their tokens, in parallel over experts, and adds their weighted outputs, by
 * increasing expert, to the sum.  Observers see each expert's rows in pieces of at most CALM_MOE_ROWS, in order. */
#define CALM_MOE_ROWS ((size_t)2048)
calm_status calm_moe_experts(calm_ctx *ctx, const calm_block *block, const calm_batch *batch,
                             const calm_routing *routing, size_t first, size_t n, const calm_observer *observer,
                             calm_moe_sum *sum);

/* Return its bytes of ctx->scratch for n experts with `tokens` tokens each; and those of each worker in addition while
 * it runs one expert, without the expert's weights, which the loader allocates. */
size_t calm_moe_experts_scratch_bytes(const calm_config *config, size_t n, size_t tokens);
size_t calm_moe_expert_scratch_bytes(const calm_config *config, size_t tokens);

/* Limit of the outputs of a wave's experts in calm_moe_run. */
#define CALM_MOE_WAVE_BYTES ((size_t)64 * 1024 * 1024)

/* Returns an estimate of the tokens of the busiest expert, of `rows` rows: eight times an even share. */
size_t calm_moe_busiest_tokens(const calm_moe_config *moe, size_t rows);

/* Returns how many experts from `first` on form a wave whose outputs take at most `most_bytes`; at least 1. */
size_t calm_moe_wave(const calm_block *block, const calm_routing *routing, size_t first, size_t most_bytes);

/* Computes for a window's rows x [n, D] the shared expert's output y [n, D] before its gate, and h [n, D], the input of
 * the expert and of the gate; both in ctx->scratch. */
calm_status calm_moe_shared(calm_ctx *ctx, const calm_block *block, const float *x, const calm_span *span,
                            const calm_observer *observer, float **h, float **y);

/* Computes gate [n], the factors of the shared expert's output for rows x [n, D]; 1 without a gate. */
calm_status calm_moe_shared_gate(calm_ctx *ctx, const calm_block *block, const float *x, size_t n, float *gate);

/* Ends the sublayer: adds the shared expert and the sum to the hidden states, in parallel over windows. */
calm_status calm_moe_end(calm_ctx *ctx, const calm_block *block, calm_batch *batch, const calm_observer *observer,
                         calm_moe_sum *sum);

/* Returns a worker's bytes of ctx->scratch in calm_moe_end with a window of T tokens. */
size_t calm_moe_end_scratch_bytes(const calm_config *config, size_t n_tokens);

/* Runs the MLP sublayer of a sparse block over a batch: all of the steps above. */
calm_status calm_moe_run(calm_ctx *ctx, const calm_block *block, calm_batch *batch, const calm_observer *observer);

/* Returns its peak bytes of ctx->scratch, all workers together, for windows of the same length in memory;
 * `expert_bytes`: size of a loaded expert. */
size_t calm_moe_run_scratch_bytes(const calm_config *config, size_t n_windows, size_t longest, size_t expert_bytes,
                                  size_t n_threads);

/* Does the block have a shared expert? */
bool calm_moe_has_shared(const calm_block *block);
