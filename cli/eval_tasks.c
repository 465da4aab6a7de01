/* Runs multiple-choice tasks for calm eval --tasks and prints the accuracies. */
#include <math.h>

#include "cli/eval.h"
#include "cli/progress.h"
#include "cli/print.h"
#include "ptq/eval/tasks.h"
#include "ptq/state/eval_text.h"

/* ---- printing ---- */

static void add_row(calm_table *table, const char *name, const calm_task_answers *answers)
{
    CALM_CELLS(table, CALM_TEXT(name), CALM_FIXED(answers->acc, 4), CALM_FIXED(answers->acc_se, 4),
               CALM_FIXED(answers->acc_norm, 4), CALM_FIXED(answers->acc_norm_se, 4));
}

static calm_status print_text(calm_ctx *ctx, const calm_eval_options *o, const calm_tasks_result *result)
{
    CALM_SCOPED_TABLE(table);
    calm_table_columns(&table, "model|#acc|#+- std. error|#acc_norm|#+- std. error");
    if (o->reference)
        add_row(&table, o->reference, &result->reference);
    add_row(&table, o->model, &result->model);
    printf("tasks        %zu of %zu choices together, %zu tokens predicted\n\n", result->n, result->n_choices,
           result->tokens);
    CALM_TRY(calm_print_table(ctx, &table, stdout));
    if (o->reference)
        printf("\nagreement    %.2f %% the same answer, %.2f %% by length\n", 100 * result->same,
               100 * result->same_norm);
    return CALM_OK;
}

static calm_json *values(const double *from, size_t n)
{
    calm_json *array = calm_json_new_array();
    for (size_t i = 0; i < n; i++)
        calm_json_add(array, calm_json_of_number(from[i]));
    return array;
}

static calm_json *task_json(const calm_tasks_result *result, size_t t)
{
    const size_t begin = result->begin[t], n = result->begin[t + 1] - begin;
    const calm_task_answers *model = &result->model, *reference = &result->reference;
    return CALM_OBJECT(CALM_KV("line", result->line[t]), CALM_KV("answer", result->answer[t]),
                       CALM_KV("choice", model->choice[t]), CALM_KV("choice_norm", model->choice_norm[t]),
                       CALM_KV("log_probs", values(model->log_prob + begin, n)),
                       CALM_KV("reference_log_probs", reference->log_prob ? values(reference->log_prob + begin, n)
                                                                          : calm_json_new_null()));
}

static calm_status print_json(calm_ctx *ctx, const calm_eval_options *o, const calm_tasks_result *result)
{
    calm_json *each = calm_json_new_array();
    for (size_t t = 0; t < result->n; t++)
        calm_json_add(each, task_json(result, t));
    const calm_task_answers *model = &result->model;
    calm_task_answers reference = result->reference;
    if (!o->reference)
        reference.acc = reference.acc_se = reference.acc_norm = reference.acc_norm_se = NAN;
    return calm_print_json(ctx, CALM_OBJECT(
        CALM_KV("model", o->model), CALM_KV("reference", o->reference), CALM_KV("tasks", result->n),
        CALM_KV("choices", result->n_choices), CALM_KV("tokens", result->tokens), CALM_KV("acc", model->acc),
        CALM_KV("acc_se", model->acc_se), CALM_KV("acc_norm", model->acc_norm),
        CALM_KV("acc_norm_se", model->acc_norm_se), CALM_KV("reference_acc", reference.acc),
        CALM_KV("reference_acc_se", reference.acc_se), CALM_KV("reference_acc_norm", reference.acc_norm),
        CALM_KV("reference_acc_norm_se", reference.acc_norm_se), CALM_KV("agreement", result->same),
        CALM_KV("agreement_norm", result->same_norm), CALM_KV("per_task", each)));
}

/* ---- running ---- */

calm_status calm_eval_tasks(calm_ctx *ctx, const calm_eval_options *o, const calm_model *model,
                            const calm_model *reference, const calm_tokenizer *tokenizer)
{
    const calm_subject subject = {.model = model}, against = {.model = reference};
    calm_task_options options = {.samples = (size_t)o->samples, .special = o->special};
    calm_tasks_result result;
    calm_progress progress;
    CALM_TRY(calm_eval_text_task_options(ctx, model, reference, tokenizer, &options));
    calm_progress_begin(ctx, &progress, o->common.quiet);
    calm_progress_add(&progress, "tasks", "choices");
    calm_tasks_evaluate(ctx, o->tasks, tokenizer, &options, reference ? &against : NULL, &subject, calm_progress_tick,
                        &progress, &result);
    CALM_TRY(calm_progress_end(ctx, &progress));
    return o->json ? print_json(ctx, o, &result) : print_text(ctx, o, &result);
}
