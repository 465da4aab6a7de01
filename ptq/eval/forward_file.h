/* Outputs of a model for given tokens, as a safetensors file, to compare them with any other library.
 *
 *   logits              [S, T, V]  models with a head: causal and masked language models
 *   last_hidden_state   [S, T, D]  encoders
 *   pooler_output       [S, D]     encoders with a pooler: of the first token that is not padding
 *   hidden.embed        [S, T, D]  on demand: the input of block 0,
 *   hidden.00, ...      [S, T, D]            the output of each block,
 *   hidden.final_norm   [S, T, D]            the output of the final norm, if there is one
 *
 * All are float32.  S: sequences; T: length of the longest.  Rows behind the end of a shorter sequence and rows of
 * padding are 0.  The model does not see padding; the other tokens keep their positions. */
#pragma once

#include "ptq/data/token_file.h"
#include "ptq/model/model.h"

typedef struct calm_forward_request {
    const calm_model *model;
    const calm_token_file *tokens;
    bool hidden;              /* write hidden.* too */
    size_t memory;            /* bytes of hidden states in memory; 0: 1 GiB */
    calm_tick_fn *tick;       /* NULL: none; counts the parts of the model that have run */
    void *tick_user;
} calm_forward_request;

typedef struct calm_forward_result {
    calm_tensor *tensors;     /* [n] name and shape of the written tensors, in ctx->out */
    size_t n;
} calm_forward_result;

/* Checks tokens before a model runs.  CALM_EFORMAT, with file and line: the model lacks a token type or a position. */
calm_status calm_forward_check(calm_ctx *ctx, const calm_config *config, const calm_token_file *tokens);

/* Runs the model and writes `path`, under a temporary name until it is complete.  Hidden states beyond request->memory
 * are in an unnamed file next to it; logits are written as they are computed.
 * Fails as calm_forward_check, reading the model and writing files do; then there is no file. */
calm_status calm_forward_write(calm_ctx *ctx, const calm_forward_request *request, const char *path,
                               calm_forward_result *out);
