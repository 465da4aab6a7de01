/* Decoding: the hidden rows and logits of a text that grows, with all weights of the model in memory.
 *
 * Tokens run behind those before them (past.h), so the rows are those of one window over the whole text but for the
 * order of sums.  A window that leaves the original length of longrope, or the trained one of dynamic tables, is run
 * again from its first token: its keys turn otherwise. */
#pragma once

#include "ptq/model/head.h"
#include "ptq/model/past.h"

typedef struct calm_decoder calm_decoder;

/* Load a decoder for texts of `room` tokens; the model stays open as long.  Where ctx->decode weights stay as they are
 * stored (row_linear.h), and so they are to be applied.  CALM_EUNSUPPORTED: an encoder.  CALM_ENOMEM. */
calm_status calm_decoder_open(calm_ctx *ctx, const calm_model *model, size_t room, calm_decoder **out);
void calm_decoder_close(calm_decoder *decoder);

/* Run n >= 1 more tokens: logits [V] of the last.  CALM_EARG: no room; an id outside the vocabulary.  After any other
 * failure close the decoder: the states of recurrences may have advanced. */
calm_status calm_decoder_run(calm_ctx *ctx, calm_decoder *decoder, const uint32_t *ids, size_t n, float *logits);

/* The token of the largest logit, of equal ones the lowest.  CALM_ENUMERIC: none is a number. */
calm_status calm_decoder_best(calm_ctx *ctx, const float *logits, size_t vocab, uint32_t *out);

/* Bytes of weights that each token reads: those of all blocks, of experts those that a token is given, and of the head,
 * each as it is in memory. */
double calm_decoder_token_bytes(const calm_decoder *decoder);

/* For scopes: `calm_decoder *name = NULL` that is closed at their end. */
#define CALM_SCOPED_DECODER(name) CALM_SCOPED(calm_decoder, calm_decoder_release) *name = NULL
static inline void calm_decoder_release(calm_decoder **decoder)
{
    calm_decoder_close(*decoder);
}
