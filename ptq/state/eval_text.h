/* The input of an evaluation (windows of a text, sentences for an encoder, or tokens of multiple-choice tasks), built
 * in the same way for the command line and the library. */
#pragma once

#include "ptq/data/task_file.h"
#include "ptq/data/windows.h"
#include "ptq/eval/encode.h"
#include "ptq/model/model.h"

/* A text, and how it is divided into windows. */
typedef struct calm_eval_text {
    const char *text;           /* text or JSON lines; NULL: the bundled WikiText-2 test                         */
    const char *tokens;         /* token file instead of a text; NULL: none                                      */
    size_t seqlen, samples;     /* tokens per window, or at most per sentence; number of windows or sentences, 0: all */
    bool no_special;            /* windows have no special tokens; sentences always have them */
} calm_eval_text;

/* Reads windows for a decoder, or sentences for an encoder, into ctx->out.  `tokenizer` may be NULL with a token file.
 * Fails as reading windows, sentences and token files does. */
calm_status calm_eval_text_windows(calm_ctx *ctx, const calm_model *model, const calm_tokenizer *tokenizer,
                                 const calm_eval_text *text, calm_windows *out);

/* Encodes the same sentences by both models and compares the embeddings; `tick` (NULL: none) counts the sentences of
 * both models. */
calm_status calm_eval_text_embeddings(calm_ctx *ctx, const calm_model *model, const calm_model *reference,
                                    const calm_windows *windows, calm_tick_fn *tick, void *user,
                                    calm_embedding_result *out);

/* Sets how tasks become tokens for a model and its reference (NULL: none), as EleutherAI's lm-evaluation-harness does:
 * the most tokens is the smaller limit of the two models (2048 if config.json has none), and an empty context becomes
 * the token bos_token, else eos_token, of tokenizer_config.json, or without that file the id of the same name in
 * config.json. */
calm_status calm_eval_text_task_options(calm_ctx *ctx, const calm_model *model, const calm_model *reference,
                                      const calm_tokenizer *tokenizer, calm_task_options *out);
