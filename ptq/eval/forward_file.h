/* What a model computes for given tokens, as a safetensors file: for comparisons with any other library.
 *
 *   logits              [S, T, V]  models with a head: language models, masked ones too
 *   last_hidden_state   [S, T, D]  encoders
 *   pooler_output       [S, D]     encoders with a pooler, of the first token that is not padding
 *   hidden.embed        [S, T, D]  on demand: the input of block 0,
 *   hidden.00, ...      [S, T, D]            the output of each block,
 *   hidden.final_norm   [S, T, D]            the final norm's output, where there is one
 *
 * All float32.  S sequences; T is the length of the longest: rows beyond the end of a shorter one, and those of
 * padding, are 0.  Padding does not exist for the model; the other tokens keep their positions. */
#pragma once

#include "ptq/data/token_file.h"
#include "ptq/model/model.h"

typedef struct calm_forward_request {
    const calm_model *model;
    const calm_token_file *tokens;
    bool hidden;              /* also hidden.*                                             */
    size_t memory;            /* bytes of hidden rows kept in memory; 0: 1 GiB             */
    calm_tick_fn *tick;       /* may be NULL: counts parts of the model that have run      */
    void *tick_user;
} calm_forward_request;

typedef struct calm_forward_result {
    calm_tensor *tensors;     /* [n] name and shape of what was written, in ctx->out */
    size_t n;
} calm_forward_result;

/* Check tokens before a model runs.  CALM_EFORMAT, with file and line: a token type or a position that the model does
 * not have. */
calm_status calm_forward_check(calm_ctx *ctx, const calm_config *config, const calm_token_file *tokens);

/* Run the model and write `path`, under a temporary name until it is complete.  Hidden rows beyond request->memory are
 * kept in an unnamed file next to it; logits are written as they are computed.
 * Fails as calm_forward_check, reading the model and writing files do, and then leaves no file. */
calm_status calm_forward_write(calm_ctx *ctx, const calm_forward_request *request, const char *path,
                               calm_forward_result *out);
