/* Decoding: logits of a growing text, with all weights of the model in memory.
 *
 * New tokens use the state that earlier ones left (past.h), so their hidden states equal those of one window over the
 * whole text up to the order of sums.  A text that grows beyond the original length of longrope, or the trained length
 * of dynamic tables, is run again from its first token, since its keys rotate by other angles. */
#pragma once

#include "ptq/layers/past.h"
#include "ptq/model/head.h"

typedef struct calm_decoder calm_decoder;

/* Opens a decoder for texts of up to `room` tokens; the model must stay open as long.  If ctx->decode is set, weights
 * stay as they are stored (row_linear.h), and it must also be set in calm_decoder_run.  CALM_EUNSUPPORTED: an encoder.
 * CALM_ENOMEM. */
calm_status calm_decoder_open(calm_ctx *ctx, const calm_model *model, size_t room, calm_decoder **out);
void calm_decoder_close(calm_decoder *decoder);

/* Runs n >= 1 more tokens and computes the logits [V] of the last.  CALM_EARG: more than `room` tokens; an id outside
 * of the vocabulary.  After any other failure close the decoder: recurrent states may have advanced. */
calm_status calm_decoder_run(calm_ctx *ctx, calm_decoder *decoder, const uint32_t *ids, size_t n, float *logits);

/* Finds the token of the largest logit, the lowest id of equal ones.  CALM_ENUMERIC: all logits are NaN. */
calm_status calm_decoder_best(calm_ctx *ctx, const float *logits, size_t vocab, uint32_t *out);

/* Returns the bytes of weights that each token reads: all blocks with top_k experts each, and the head, as they are in
 * memory. */
double calm_decoder_token_bytes(const calm_decoder *decoder);

/* Declares `calm_decoder *name = NULL`, which is closed at the end of its scope. */
#define CALM_SCOPED_DECODER(name) CALM_SCOPED(calm_decoder, calm_decoder_release) *name = NULL
static inline void calm_decoder_release(calm_decoder **decoder)
{
    calm_decoder_close(*decoder);
}
