/* Greedy generation: appends the token with the largest logit, one after the other. */
#pragma once

#include "ptq/model/decode.h"

/* Called after each chosen token; ids [n] are all tokens chosen by then. */
typedef calm_status calm_token_fn(calm_ctx *ctx, void *user, const uint32_t *ids, size_t n);

typedef struct calm_generation_request {
    const uint32_t *prompt;    /* [n_prompt], at least one                      */
    size_t n_prompt, most;     /* tokens of the prompt; the most tokens to add */
    const uint32_t *stops;     /* [n_stops] tokens that end the text */
    size_t n_stops;
    calm_token_fn *told;       /* NULL: none */
    void *user;
} calm_generation_request;

typedef struct calm_generation {
    uint32_t *ids;             /* [n] added tokens; the last may be a stop */
    size_t n;
    bool stopped;              /* true: the last token is a stop */
    double load_seconds;       /* until the weights were in memory */
    double prompt_seconds;     /* from then until the first token was chosen */
    double token_seconds;      /* for the n - 1 tokens after it */
    double token_bytes;        /* bytes of weights that each of these tokens reads */
    size_t past_bytes;         /* peak bytes of the KV cache and other states of past tokens */
} calm_generation;

/* Generates tokens into ctx->out.  CALM_EUNSUPPORTED: an encoder.  CALM_EARG: an empty prompt, an id outside the
 * vocabulary, or a prompt longer than the model's positions; the answer ends at the last position.  CALM_ENUMERIC: a
 * logit is not finite. */
calm_status calm_generate(calm_ctx *ctx, const calm_model *model, const calm_generation_request *request,
                          calm_generation *out);

/* Reads the ids of eos_token_id, a number or a list, from generation_config.json of the model's directory, or else from
 * config.json, into ctx->out; n 0: neither has them.  CALM_EFORMAT: a value is no id. */
calm_status calm_generation_stops(calm_ctx *ctx, const calm_model *model, uint32_t **ids, size_t *n);
