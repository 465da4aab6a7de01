/* Past: the state that earlier tokens leave (a KV cache, or a recurrent state), so that generation only runs new
 * tokens.
 *
 * A block of attention keeps keys and values (latent attention those of all heads, and the shared key).  A recurrence
 * or a convolution keeps a state (calm_kind.state) whose size does not depend on the number of tokens. */
#pragma once

#include "ptq/arch/kind.h"
#include "ptq/layers/block.h"

/* State of one block, by token; arrays that its mixer does not keep are NULL. */
typedef struct calm_past_block {
    float *k, *v;      /* [room, width] keys after norm and rotation, and values; latent attention has both in k, side
                          by side                                                                                   */
    float *shared;     /* [room, rope] the part of the key that heads share    */
    float *state;      /* [calm_kind.state] in the layout of the kind          */
} calm_past_block;

/* State of all blocks of a model. */
typedef struct calm_past {
    size_t n, room;             /* number of tokens, and its maximum         */
    float *carried;             /* [room, C] (calm_span); NULL: C is 0       */
    calm_past_block *blocks;    /* [n_blocks]                                */
} calm_past;

/* Allocates an empty state for up to `room` tokens in ctx->out; and returns the bytes that this takes. */
calm_status calm_past_init(calm_ctx *ctx, const calm_config *config, size_t room, calm_past *out);
size_t calm_past_bytes(const calm_config *config, size_t room);

/* Returns the recurrent state that the tokens before a span left in a block, for its mixer to read and to replace;
 * zeros if there are none before.  NULL: the span is a whole window, or the state is empty. */
float *calm_past_state(const calm_block *block, const calm_span *span);
