/* Multiple-choice tasks: a model's answer is the choice whose tokens are most probable.
 *
 *   log p(choice) = sum over its tokens of log p(token | context and the choice's tokens before it)
 *   acc           share of tasks whose right answer has the greatest log p
 *   acc_norm      the same with log p divided by the choice's length in characters
 * Of equal values the first choice wins.  Standard errors are those of a mean over tasks, sqrt(acc (1 - acc) / (n -
 * 1)).  acc and acc_norm are defined as in EleutherAI's lm-evaluation-harness (ConfigurableTask.process_results,
 * mean_stderr); the length is Python's len(), in code points, of the choice in the file (ptq/data/task_file.h).
 * Logits and exponentials are in float32, sums in double. */
#pragma once

#include "ptq/eval/predict.h"
#include "ptq/data/task_file.h"

/* The answers of one model. */
typedef struct calm_task_answers {
    double *log_prob;               /* [n_choices]                                   */
    size_t *choice, *choice_norm;   /* [n] choice of greatest log p; of greatest log p / length */
    double acc, acc_norm;
    double acc_se, acc_norm_se;     /* NaN for fewer than 2 tasks                    */
} calm_task_answers;

/* The result of all tasks; arrays are in ctx->out. */
typedef struct calm_tasks_result {
    size_t n, n_choices;            /* tasks; choices of all of them                       */
    size_t tokens, longest;         /* predicted tokens; the most tokens that a model read at once */
    size_t *line, *answer;          /* [n] line in the file; right choice */
    size_t *begin;                  /* [n + 1] choices of task t: begin[t] .. begin[t + 1] - 1 */
    size_t *length;                 /* [n_choices] characters                              */
    calm_task_answers model;
    calm_task_answers reference;    /* zero without a reference */
    double same, same_norm;         /* share of tasks with the same answer of both models; NaN without a reference */
} calm_tasks_result;

/* Answers the tasks of a file by `subject`, and by `reference` (NULL: none).  The file is read twice: first to its end,
 * so that a fault anywhere in the file is found before the work begins, then one batch of choices at a time.
 * `tick` (NULL: none) counts choices times models.  Fails as calm_task_reader_next does; CALM_EIO: the file
 * changed between the readings; CALM_EARG: a model is an encoder, or the vocabularies have different sizes;
 * CALM_ENUMERIC: a logit is not finite. */
calm_status calm_tasks_evaluate(calm_ctx *ctx, const char *path, const calm_tokenizer *tokenizer,
                                const calm_task_options *options, const calm_subject *reference,
                                const calm_subject *subject, calm_tick_fn *tick, void *tick_user,
                                calm_tasks_result *out);
