/* Multiple-choice tasks: the answer of a model is the choice to whose tokens it gives the greatest probability.
 *
 *   log p(choice) = sum over its tokens of log p(token | context and the choice's tokens before it)
 *   acc           share of tasks whose right answer has the greatest log p
 *   acc_norm      the same with log p divided by the choice's length in characters
 * Of equal values the first choice wins.  Standard errors are those of a mean over tasks, sqrt(acc (1 - acc) / (n -
 * 1)). These are acc and acc_norm of EleutherAI's lm-evaluation-harness (ConfigurableTask.process_results,
 * mean_stderr); length there is Python's len(), code points, of the choice as the task has it (ptq/io/task_file.h).
 * Logits and exponentials in float32, sums in double. */
#ifndef CALM_EVAL_TASKS_H
#define CALM_EVAL_TASKS_H

#include "ptq/eval/predict.h"
#include "ptq/data/task_file.h"

/* Of one model. */
typedef struct calm_task_answers {
    double *log_prob;               /* [n_choices]                                   */
    size_t *choice, *choice_norm;   /* [n] greatest log p, and divided by length     */
    double acc, acc_norm;
    double acc_se, acc_norm_se;     /* NaN for fewer than 2 tasks                    */
} calm_task_answers;

/* Arrays in ctx->out. */
typedef struct calm_tasks_result {
    size_t n, n_choices;            /* tasks; choices of all of them                       */
    size_t tokens, longest;         /* predicted; that a model read at most                */
    size_t *line, *answer;          /* [n] in the file; the right choice                   */
    size_t *begin;                  /* [n + 1] choices of task t: begin[t] .. begin[t + 1] - 1 */
    size_t *length;                 /* [n_choices] characters                              */
    calm_task_answers model;
    calm_task_answers reference;    /* zeroed without one                                  */
    double same, same_norm;         /* share of tasks that both models answer alike; NaN without a reference */
} calm_tasks_result;

/* Let `subject`, and `reference` unless NULL, answer the tasks of a file.  The file is read twice, first to its end, so
 * that whatever is wrong with it is found before the work begins; after that one batch of choices is in memory.  `tick`
 * (may be NULL) hears of choices times models. The failures of calm_task_reader_next, for tasks that change between the
 * readings too; CALM_EARG: an encoder, vocabularies of different size; CALM_ENUMERIC: a logit that is not finite. */
calm_status calm_tasks_evaluate(calm_ctx *ctx, const char *path, const calm_tokenizer *tokenizer,
                                const calm_task_options *options, const calm_subject *reference,
                                const calm_subject *subject, calm_tick_fn *tick, void *tick_user,
                                calm_tasks_result *out);

#endif
