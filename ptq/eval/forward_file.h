/* What a model computes for given tokens, as a safetensors file: the door through which any other library compares.
 *
 *   logits              [S, T, V]  models with a head: language models, masked ones too
 *   last_hidden_state   [S, T, D]  encoders
 *   pooler_output       [S, D]     encoders with a pooler, of the first token that is not padding
 *   hidden.embed        [S, T, D]  on demand: what enters block 0,
 *   hidden.00, ...      [S, T, D]            what each block puts out,
 *   hidden.final_norm   [S, T, D]            the final norm's output, where there is one
 *
 * All float32.  S sequences; T is the length of the longest: rows beyond the end of a shorter one, and those of
 * padding, are 0.  Padding does not exist for the model; the other tokens keep their positions. */
#ifndef CALM_EVAL_FORWARD_FILE_H
#define CALM_EVAL_FORWARD_FILE_H

#include "ptq/data/token_file.h"
#include "ptq/model/model.h"

typedef struct calm_forward_request {
    const calm_model *model;
    const calm_token_file *tokens;
    bool hidden;              /* also hidden.*                                             */
    size_t memory;            /* bytes of hidden rows kept in memory; 0: 1 GiB             */
    calm_tick_fn *tick;       /* may be NULL: hears of parts of the model that have run    */
    void *tick_user;
} calm_forward_request;

typedef struct calm_forward_result {
    calm_tensor *tensors;     /* [n] name and shape of what was written, in ctx->out */
    size_t n;
} calm_forward_result;

/* CALM_EFORMAT, with file and line, for a token type or a position that the model does not have. */
calm_status calm_forward_check(calm_ctx *ctx, const calm_config *config, const calm_token_file *tokens);

/* Run the model and write `path`, under a temporary name until it is complete.  More hidden rows than request->memory
 * lie in a nameless file beside it; logits are written as they come.
 * Fails as calm_forward_check, reading the model and writing files do; nothing is left behind then. */
calm_status calm_forward_write(calm_ctx *ctx, const calm_forward_request *request, const char *path,
                               calm_forward_result *out);

#endif
