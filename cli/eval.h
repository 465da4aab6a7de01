/* Parts of calm eval: multiple-choice tasks, and the places where a model differs most from its reference. */
#pragma once

#include "cli/command.h"
#include "ptq/eval/evaluate.h"
#include "ptq/io/json.h"
#include "ptq/model/model.h"
#include "ptq/text/table.h"
#include "ptq/tokenizer/tokenizer.h"

/* The options of calm eval. */
typedef struct calm_eval_options {
    calm_common common;
    calm_model_how how;                                       /* for the model; the reference has no adapter */
    const char *model, *text, *tokens, *tasks, *reference;    /* as typed; NULL: not given                   */
    long long seqlen, samples, worst;                         /* samples 0: all                              */
    int act_rule;                                             /* a calm_act_rule                             */
    int dtype;                                                /* a value of cmd_eval.c's enum                */
    bool special, no_special, exact_float, json, detail;
} calm_eval_options;

/* Evaluates the model, and the reference unless NULL, on the tasks of the file o->tasks, encoded as
 * calm_eval_text_task_options says, and prints the accuracies. */
calm_status calm_eval_tasks(calm_ctx *ctx, const calm_eval_options *o, const calm_model *model,
                            const calm_model *reference, const calm_tokenizer *tokenizer);

/* Fills an empty table with a row per position: {window, position, kl, reference_nll, nll, context, next,
 * reference_predicted, predicted}.  Tokens are text, or ids if `tokenizer` is NULL. */
calm_status calm_eval_worst_table(calm_ctx *ctx, const calm_tokenizer *tokenizer, const calm_windows *windows,
                                  const calm_eval_worst *worst, calm_table *table);

/* Prints quantiles of the divergence over tokens and its mean by position, as tables, or makes {quantiles,
 * positions}. */
calm_status calm_eval_detail_print(calm_ctx *ctx, const calm_windows *windows, const calm_eval_worst *worst);
calm_status calm_eval_detail_json(calm_ctx *ctx, const calm_windows *windows, const calm_eval_worst *worst,
                                  calm_json **out);
