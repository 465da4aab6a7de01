/* Past: the state that earlier tokens leave (keys and values, or a recurrent state), so that generation runs only new
 * tokens.
 *
 * A block of attention keeps keys and values (of latent attention those of all heads, and the shared key).  A
 * recurrence or a convolution keeps its state (calm_kind.state), which is as large after any number of tokens. */
#pragma once

#include "ptq/model/block.h"
#include "ptq/model/kind.h"

/* Of one block, rows by token; what its mixer does not keep is NULL. */
typedef struct calm_past_block {
    float *k, *v;      /* [room, width] as the product with queries and with their weights reads them; latent attention
                          has both in k, side by side                                                               */
    float *shared;     /* [room, rope] the part of the key that all heads have */
    float *state;      /* [calm_kind.state] as the kind lays it out            */
} calm_past_block;

/* Of a model. */
typedef struct calm_past {
    size_t n, room;             /* tokens that it has, and may have          */
    float *carried;             /* [room, C] (calm_span); NULL: C is 0       */
    calm_past_block *blocks;    /* [n_blocks]                                */
} calm_past;

/* Room for `room` tokens in ctx->out, of which it has none; and what that takes. */
calm_status calm_past_init(calm_ctx *ctx, const calm_config *config, size_t room, calm_past *out);
size_t calm_past_bytes(const calm_config *config, size_t room);

/* The state that the tokens before those of a span have left in a block, for its mixer to read and to replace: zeros
 * where there are none before.  NULL: the span is a whole window, or the state has no element. */
float *calm_past_state(const calm_block *block, const calm_span *span);
