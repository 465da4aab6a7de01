/* Floating-point operations of a run, from its shapes alone: the same on every machine, before anything has run. */
#pragma once

#include "ptq/state/inputs.h"

/* A multiply-add counts two. */
typedef struct calm_run_work {
    double forward;    /* of forward passes: capture and guard                                       */
    double gram;       /* Gram matrices of inputs, in float                                          */
    double outputs;    /* of candidates that are scored, in float                                    */
    double factors;    /* of Gram matrices, in double                                                */
    double scores;     /* Gram matrices of scores, in double                                         */
    double chains;     /* of algorithms that work on the Gram matrix, besides its factors             */
} calm_run_work;

/* Of all kinds as one figure, in operations of float products: those in double take twice as long. */
double calm_run_work_cost(const calm_run_work *work);

/* Of the forward pass of one token through the whole model, head included. */
double calm_run_work_token(const calm_inputs *in);

/* Of the forward pass of one token in a window of this many through blocks first .. end - 1, attention included. */
double calm_run_work_blocks(const calm_inputs *in, size_t first, size_t end, double window);

/* Of the head for one token. */
double calm_run_work_head(const calm_inputs *in);

/* Of a pass of gradients over the first n calibration windows, back to what enters block `first`. */
double calm_run_work_gradients(const calm_inputs *in, size_t n, size_t first);

/* Of one block that the recipe quantizes, or only runs: one pass of the calibration windows through it where candidates
 * need their rows, and its candidates. */
calm_run_work calm_run_work_of_block(const calm_inputs *in, size_t block);

/* Of the guard's forward passes: the float model, the hybrid and every uniform run. */
double calm_run_work_guard(const calm_inputs *in);

/* Choose which rows candidates are scored on, into in->score_tokens and in->scoring (in ctx->out): all of the scoring
 * windows, or the beginning of each where the recipe limits the rows, so that scores are a tenth at most of what a pool
 * like the default one takes next to them.  It follows from model and calibration windows alone.  CALM_ENOMEM. */
calm_status calm_run_work_cut_scoring(calm_ctx *ctx, calm_inputs *in);

/* Windows of the evaluation's text, of an encoder's its sentences: the first ones or all as the recipe says, else,
 * spread over the text, as many as cost 15 % of the run, the evaluation included; where that is below 64 of 512 tokens,
 * as many of those as cost a third, and at least 16.
 * Fails as calm_windows_read and calm_sentences_read do. */
calm_status calm_run_work_read_eval(calm_ctx *ctx, const calm_inputs *in, calm_windows *out);
