/* Greedy generation: the token with the largest logit, again and again. */
#pragma once

#include "ptq/model/decode.h"

/* A token was chosen; `ids` [n] are all of them so far. */
typedef calm_status calm_token_fn(calm_ctx *ctx, void *user, const uint32_t *ids, size_t n);

typedef struct calm_generation_request {
    const uint32_t *prompt;    /* [n_prompt], at least one                      */
    size_t n_prompt, most;     /* tokens to add at most                         */
    const uint32_t *stops;     /* [n_stops] after each of which the text ends   */
    size_t n_stops;
    calm_token_fn *told;       /* NULL: nobody is                               */
    void *user;
} calm_generation_request;

typedef struct calm_generation {
    uint32_t *ids;             /* [n] of which the last may be one of the stops  */
    size_t n;
    bool stopped;              /* it is                                         */
    double load_seconds;       /* until the weights were in memory              */
    double prompt_seconds;     /* until the first token was chosen              */
    double token_seconds;      /* of the n - 1 behind it                        */
    double token_bytes;        /* of weights that each of those reads           */
    size_t past_bytes;         /* of keys, values and what else tokens leave for those after them, at most */
} calm_generation;

/* Into ctx->out.  CALM_EUNSUPPORTED: an encoder.  CALM_EARG: no token in the prompt, an id outside the vocabulary, more
 * tokens than the model has positions; the answer ends where these do.  CALM_ENUMERIC: logits that are no numbers. */
calm_status calm_generate(calm_ctx *ctx, const calm_model *model, const calm_generation_request *request,
                          calm_generation *out);

/* The ids of eos_token_id, in generation_config.json of the model's directory or else in config.json, in ctx->out: one
 * number or a list; none where neither has it.  CALM_EFORMAT: what is no id. */
calm_status calm_generation_stops(calm_ctx *ctx, const calm_model *model, uint32_t **ids, size_t *n);
