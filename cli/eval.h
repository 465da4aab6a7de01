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
    calm_model_how how;                                       /* of the model; the reference has no adapter */
    const char *model, *text, *tokens, *tasks, *reference;    /* as typed; NULL: not given   */
    long long seqlen, samples, worst;                         /* samples 0: all              */
    int act_rule;                                             /* a calm_act_rule             */
    int dtype;                                                /* of cmd_eval.c               */
    bool special, no_special, exact_float, json, detail;
} calm_eval_options;

/* Let both models (reference NULL: one) answer the file o->tasks, encoded as calm_eval_text_task_options says, and
 * print it. */
calm_status calm_eval_tasks(calm_ctx *ctx, const calm_eval_options *o, const calm_model *model,
                            const calm_model *reference, const calm_tokenizer *tokenizer);

/* Fill an empty table with the positions, a row {window, position, kl, reference_nll, nll, context, next,
 * reference_predicted, predicted} each; tokens as text, or as ids when `tokenizer` is NULL. */
calm_status calm_eval_worst_table(calm_ctx *ctx, const calm_tokenizer *tokenizer, const calm_windows *windows,
                                  const calm_eval_worst *worst, calm_table *table);

/* Quantiles of the divergence and its mean by position: as tables, or as {quantiles, positions}. */
calm_status calm_eval_detail_print(calm_ctx *ctx, const calm_windows *windows, const calm_eval_worst *worst);
calm_status calm_eval_detail_json(calm_ctx *ctx, const calm_windows *windows, const calm_eval_worst *worst,
                                  calm_json **out);
