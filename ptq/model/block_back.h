/* Backward pass of one transformer block over one window of tokens.
 *
 *   tape    what the forward pass computed and the backward pass reads again
 *   dy      d loss / d y, of y's shape
 *
 * Everything is float32, with every sum in one order: the bytes are the same for any number of threads.  Work is
 * parallel over rows, heads, experts and tiles of products inside the window.  Inputs that a linear quantizes have
 * derivative 1 (straight-through).  The choice of experts is held fixed; gradients pass through their weights.
 *
 * Recomputed instead of kept: the attention's probabilities where they take more than 32 MiB or scores are capped, the
 * prepared inputs of linears, and of a mixture the probabilities of its routing and what its experts compute. */
#pragma once

#include "ptq/model/block.h"

/* Gradients of the linears of one expert, roles as in calm_block_grads. */
typedef struct calm_expert_grads {
    float *weight[CALM_N_ROLES], *bias[CALM_N_ROLES];
} calm_expert_grads;

/* What one forward pass over one window leaves for the backward pass, in ctx->scratch: it lives until the caller
 * rewinds that, and reads the x and span it was made from. */
typedef struct calm_block_tape calm_block_tape;

/* A loss of the block's own: what tokens are to each other in its attention, against another block
 * (attention_relations.c). */
typedef struct calm_relations {
    const calm_block_tape *reference;    /* of the other block, over the same span              */
    double scale;                        /* of the loss                                         */
    double *loss;                        /* scale times the loss of this window is added        */
} calm_relations;

/* Gradients of what a block has, each of its parameter's shape; NULL: not wanted.  They are added to, so that windows
 * sum up; the code that owns them zeroes them first. */
typedef struct calm_block_grads {
    float *weight[CALM_N_ROLES];                            /* [out, in] of the weight as it is applied      */
    float *bias[CALM_N_ROLES];                              /* [out]                                         */
    float *norm[CALM_N_SUBLAYERS][CALM_N_NORM_PLACES];      /* [D] of calm_norm.w                            */
    float *norm_bias[CALM_N_SUBLAYERS][CALM_N_NORM_PLACES]; /* [D] LayerNorm alone                           */
    float *plain[CALM_N_PLAINS];                            /* of the norms in it, [width]                   */
    float *router;                                          /* [n_experts, D]                                */
    calm_expert_grads shared;                               /* the expert that sees every token              */
    float *shared_gate;                                     /* [D]                                           */
    const calm_expert_grads *experts;                       /* [n_experts]; NULL: none of them is wanted     */
    float *lengths[CALM_N_JOBS];                            /* [T] of the gradient at the job's outputs, row */
                                                            /* by row, written; of experts at their sum      */
    const calm_relations *relations;                        /* whose gradient goes back with dz's; NULL      */
} calm_block_grads;

/* z [T, D] = the block applied to x [T, D], the same bytes as calm_block_run and calm_batch_block; x stays and outlives
 * the tape.  CALM_ENUMERIC: z is not finite, naming the block and the token. */
calm_status calm_block_forward_tape(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, const float *x,
                                    const calm_span *span, float *z, calm_block_tape **out);

/* From dz [T, D]: add to every gradient that is wanted (`grads` NULL: none is), and write dx [T, D] (NULL: not wanted).
 * dz stays; dx may be dz.  CALM_ENUMERIC: a gradient is not finite, naming block and tensor. */
calm_status calm_block_back(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, const calm_block_tape *tape,
                            const float *dz, const calm_block_grads *grads, float *dx);

/* What the kind of a sublayer keeps of a pass: its own tape (calm_kind_back). */
const void *calm_block_tape_of(const calm_block_tape *tape, calm_sublayer sublayer);

/* The most that the tape and both calls hold of ctx->scratch together, workers included, for block `index` and T
 * tokens. `expert_bytes`: what the loader leaves of an expert, 0 for dense models.  Counted as if the inputs of all
 * linears were scaled or quantized. */
size_t calm_block_back_scratch_bytes(const calm_config *config, size_t index, size_t n_tokens, size_t expert_bytes,
                                     size_t n_threads);
