/* The tail of a block, after its sublayers (Gemma 4): a per-layer input from each token's id, and a factor.
 *
 *   p = (RMSNorm(D^-1/2 C_b e) + P^1/2 E_b[id]) / 2^1/2      e the input of block 0 for the token
 *   x' = s (x + RMSNorm(projection(act(gate x) * p)))
 *
 * C_b [P, D] and E_b [V, P] are the rows and columns of block b in a linear and a table of the whole model.  p only
 * depends on the id, so each block computes it instead of storing it.  Without per-layer inputs x' = s x.
 *
 * Reference: transformers' modeling_gemma4.py. */
#pragma once

#include "ptq/layers/block.h"

/* Values for the backward pass (tail_back.h); NULL where the block has no per-layer input. */
typedef struct calm_tail_tape {
    float *p;       /* [T, P]                              */
    float *gate;    /* [T, P] gate x                       */
    float *raw;     /* [T, D] input of the norm            */
} calm_tail_tape;

/* Runs the tail in place on x [T, D], where the family has one; `observer` sees the projection's input, and the arrays
 * of `tape` are filled in (NULL: nothing is kept).  CALM_EARG: the span has no ids, or an id without a row. */
calm_status calm_tail_run(calm_ctx *ctx, const calm_block *block, float *x, const calm_span *span,
                          const calm_observer *observer, const calm_tail_tape *tape);

/* Computes out [T, D] = RMSNorm(projection(act(gate x) * p)) from x [T, D], which must be another array. */
calm_status calm_tail_input(calm_ctx *ctx, const calm_block *block, const float *x, const calm_span *span, float *out,
                            const calm_observer *observer, const calm_tail_tape *tape);

/* Returns the bytes of ctx->scratch that calm_tail_run holds. */
size_t calm_tail_scratch_bytes(const calm_config *config, size_t n_tokens);
