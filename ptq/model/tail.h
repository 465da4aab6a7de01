/* The tail of a block, after its sublayers (Gemma 4): an input from each token's id, and a factor.
 *
 *   p = (RMSNorm(D^-1/2 C_b e) + P^1/2 E_b[id]) / 2^1/2      e what enters block 0 for the token
 *   x' = s (x + RMSNorm(projection(act(gate x) * p)))
 *
 * C_b [P, D] and E_b [V, P] are the rows and columns of block b in a linear and a table of the whole model.  p follows
 * from the id alone, so that each block makes it again rather than keep it.  Without per-layer inputs x' = s x.
 *
 * Reference: transformers' modeling_gemma4.py. */
#pragma once

#include "ptq/model/block.h"

/* What the way back reads (tail_back.h); NULL where the block has no input of the token's id. */
typedef struct calm_tail_tape {
    float *p;       /* [T, P]                              */
    float *gate;    /* [T, P] gate x                       */
    float *raw;     /* [T, D] what the norm reads          */
} calm_tail_tape;

/* x [T, D] in place, where the family has a tail; what the projection reads is observed, and what `tape` points to
 * filled in (NULL: nothing is kept).  CALM_EARG: the span has no ids, or one that a table has no row for. */
calm_status calm_tail_run(calm_ctx *ctx, const calm_block *block, float *x, const calm_span *span,
                          const calm_observer *observer, const calm_tail_tape *tape);

/* out [T, D] = RMSNorm(projection(act(gate x) * p)) of x [T, D], another array. */
calm_status calm_tail_input(calm_ctx *ctx, const calm_block *block, const float *x, const calm_span *span, float *out,
                            const calm_observer *observer, const calm_tail_tape *tape);

/* What calm_tail_run holds of ctx->scratch. */
size_t calm_tail_scratch_bytes(const calm_config *config, size_t n_tokens);
