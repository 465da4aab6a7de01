/* Backward pass of one transformer block over one window of tokens.
 *
 *   tape    the values of the forward pass that the backward pass reads
 *   dy      d loss / d y, of y's shape
 *
 * Everything is float32, with every sum in a fixed order: the bytes are the same for any number of threads.  Work is
 * parallel over rows, heads, experts and tiles of products inside the window.  Quantization of a linear's input has
 * derivative 1 (straight-through).  The choice of experts is held fixed; gradients pass through their weights.
 *
 * Recomputed instead of kept: attention probabilities that take more than 32 MiB or have capped scores, scaled or
 * quantized inputs of linears, and in a mixture the router's probabilities and the experts' activations. */
#pragma once

#include "ptq/layers/block.h"

/* Gradients of the linears of one expert, roles as in calm_block_grads. */
typedef struct calm_expert_grads {
    float *weight[CALM_N_ROLES], *bias[CALM_N_ROLES];
} calm_expert_grads;

/* The tape of one forward pass over one window, in ctx->scratch: it lives until the caller rewinds that, and refers to
 * the x and span of the forward pass. */
typedef struct calm_block_tape calm_block_tape;

/* An additional loss inside the block: the difference of its attention's token relations from those of another block
 * (attention_relations.c). */
typedef struct calm_relations {
    const calm_block_tape *reference;    /* of the other block, over the same span              */
    double scale;                        /* factor of the loss                                  */
    double *loss;                        /* scale times the window's loss is added to it        */
} calm_relations;

/* Gradients of a block's parameters, each of its parameter's shape; NULL: not wanted.  The backward pass adds to them,
 * so that they sum over windows; their owner zeroes them first. */
typedef struct calm_block_grads {
    float *weight[CALM_N_ROLES];                            /* [out, in] of the weight as applied            */
    float *bias[CALM_N_ROLES];                              /* [out]                                         */
    float *norm[CALM_N_SUBLAYERS][CALM_N_NORM_PLACES];      /* [D] of calm_norm.w                            */
    float *norm_bias[CALM_N_SUBLAYERS][CALM_N_NORM_PLACES]; /* [D] of calm_norm.b                            */
    float *plain[CALM_N_PLAINS];                            /* of calm_block.plain                           */
    float *router;                                          /* [n_experts, D]                                */
    calm_expert_grads shared;                               /* of the shared expert                          */
    float *shared_gate;                                     /* [D]                                           */
    const calm_expert_grads *experts;                       /* [n_experts]; NULL: none of them is wanted     */
    float *lengths[CALM_N_JOBS];                            /* [T] written: norm of each row of the gradient */
                                                            /* of the job's output; of experts of their sum  */
    const calm_relations *relations;                        /* adds its gradient to that of dz; or NULL      */
} calm_block_grads;

/* Runs the block: z [T, D] from x [T, D], the same bytes as calm_block_run and calm_batch_block.  x must stay unchanged
 * as long as the tape is used.  CALM_ENUMERIC: z is not finite, naming the block and the token. */
calm_status calm_block_forward_tape(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, const float *x,
                                    const calm_span *span, float *z, calm_block_tape **out);

/* From dz [T, D]: adds to every gradient that is wanted (`grads` NULL: none is), and writes dx [T, D] (NULL: not
 * wanted).  dx may be dz, which is otherwise unchanged.  CALM_ENUMERIC: a gradient is not finite, naming block and
 * tensor. */
calm_status calm_block_back(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, const calm_block_tape *tape,
                            const float *dz, const calm_block_grads *grads, float *dx);

/* Returns a sublayer's part of the tape, the struct of its kind (calm_kind_back). */
const void *calm_block_tape_of(const calm_block_tape *tape, calm_sublayer sublayer);

/* Returns the peak bytes of ctx->scratch of the tape and both calls together, workers included, for block `index` and T
 * tokens, as if the inputs of all linears were scaled or quantized.  `expert_bytes`: size of a loaded expert, 0 for
 * dense models. */
size_t calm_block_back_scratch_bytes(const calm_config *config, size_t index, size_t n_tokens, size_t expert_bytes,
                                     size_t n_threads);
