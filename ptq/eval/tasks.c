/* Tasks: each choice is a window of a batch; only hidden states that predict a choice's tokens go through the head. */
#include "ptq/eval/tasks.h"

#include <math.h>
#include <string.h>

#include "ptq/eval/evaluate.h"

/* ---- reading ---- */

/* Reads tasks one at a time, choice by choice. */
typedef struct source {
    calm_task_reader reader;
    calm_arena arena;       /* arena of `task` */
    calm_task task;
    size_t index, choice;   /* number of the task; its next choice */
    bool has_task;
} source;

/* Closes a source; does nothing if the reader was never opened. */
static void source_close(source *s)
{
    calm_arena_clear(&s->arena);
    calm_task_reader_close(&s->reader);
}

/* Reads the next task unless s->task has further choices; at the end s->has_task is false. */
static calm_status source_fill(calm_ctx *ctx, source *s)
{
    if (s->has_task && s->choice < s->task.n)
        return CALM_OK;
    s->index += s->has_task;
    s->choice = 0;
    calm_arena_clear(&s->arena);
    CALM_SCOPED_OUT(ctx, &s->arena);
    CALM_SCOPED_SCRATCH(ctx);
    return calm_task_reader_next(ctx, &s->reader, &s->task, &s->has_task);
}

/* Counts the tasks, choices and tokens of the file. */
static calm_status survey(calm_ctx *ctx, const char *path, const calm_tokenizer *tokenizer,
                          const calm_task_options *options, calm_tasks_result *out)
{
    CALM_SCOPED(source, source_close) s = {.index = 0};
    CALM_TRY(calm_task_reader_open(ctx, tokenizer, path, options, &s.reader));
    for (;;) {
        CALM_TRY(source_fill(ctx, &s));
        if (!s.has_task)
            return CALM_OK;
        out->n++;
        out->n_choices += s.task.n;
        for (; s.choice < s.task.n; s.choice++) {
            const calm_task_choice *choice = &s.task.choices[s.choice];
            out->tokens += choice->own;
            out->longest = choice->n - 1 > out->longest ? choice->n - 1 : out->longest;
        }
    }
}

static calm_status changed(calm_ctx *ctx, const source *s)
{
    return calm_fail(ctx, CALM_EIO, "%s changed while it was read", s->reader.path);
}

/* ---- a batch of choices ---- */

typedef struct work {
    calm_predictors set;
    source *source;
    calm_tasks_result *out;
    size_t capacity;         /* most rows of a batch */
    size_t done;             /* choices before the batch */
    calm_windows windows;    /* the batch's inputs, one window per choice */
    uint32_t *targets;       /* [predicted rows] targets of the batch */
    size_t *row;             /* [predicted rows] row in the batch */
    size_t *own;             /* [windows.n] number of predicted rows of each choice, which are neighbours */
    size_t n_predicted;
} work;

static calm_status new_batch(calm_ctx *ctx, work *w, calm_arena *arena)
{
    w->windows = (calm_windows){.n = 0};
    w->n_predicted = 0;
    CALM_TRY(CALM_NEW_RAW(ctx, arena, w->windows.ids, w->capacity));
    CALM_TRY(CALM_NEW(ctx, arena, w->windows.begin, w->capacity + 1));
    CALM_TRY(CALM_NEW_RAW(ctx, arena, w->targets, w->capacity));
    CALM_TRY(CALM_NEW_RAW(ctx, arena, w->row, w->capacity));
    return CALM_NEW_RAW(ctx, arena, w->own, w->capacity);
}

/* Adds the source's next choice: all its tokens but the last are inputs, and its own tokens are targets. */
static void add_choice(work *w)
{
    const calm_task_choice *choice = &w->source->task.choices[w->source->choice++];
    calm_windows *windows = &w->windows;
    const size_t begin = windows->begin[windows->n], n_read = choice->n - 1;
    memcpy(windows->ids + begin, choice->ids, n_read * sizeof *windows->ids);
    for (size_t t = n_read - choice->own; t < n_read; t++) {
        w->row[w->n_predicted] = begin + t;
        w->targets[w->n_predicted++] = choice->ids[t + 1];
    }
    w->out->length[w->done + windows->n] = choice->length;
    w->own[windows->n++] = choice->own;
    windows->begin[windows->n] = begin + n_read;
    windows->longest = n_read > windows->longest ? n_read : windows->longest;
}

/* Adds choices until the batch is full or the file ends. */
static calm_status fill_batch(calm_ctx *ctx, work *w)
{
    source *s = w->source;
    for (;;) {
        CALM_TRY(source_fill(ctx, s));
        if (!s->has_task)
            return CALM_OK;
        const size_t n_read = s->task.choices[s->choice].n - 1;
        if (s->index >= w->out->n || n_read > w->capacity || w->done + w->windows.n >= w->out->n_choices)
            return changed(ctx, s);
        if (n_read > w->capacity - w->windows.begin[w->windows.n])
            return CALM_OK;
        if (s->choice == 0) {
            w->out->line[s->index] = s->task.line;
            w->out->answer[s->index] = s->task.answer;
            w->out->begin[s->index + 1] = w->done + w->windows.n + s->task.n;
        }
        add_choice(w);
    }
}

/* Gathers the hidden states of model m that predict a choice's token. */
static calm_status gather(calm_ctx *ctx, const work *w, const calm_batch *batch, calm_arena *arena,
                          calm_row_store **out)
{
    CALM_TRY(CALM_NEW(ctx, arena, *out, 1));
    CALM_TRY(calm_row_store_open(ctx, arena, w->n_predicted, batch->width, NULL, *out));
    for (size_t i = 0; i < w->n_predicted; i++) {
        float *from, *to;
        CALM_TRY(calm_row_store_get(ctx, &batch->hidden, w->row[i], 1, &from));
        CALM_TRY(calm_row_store_get(ctx, *out, i, 1, &to));
        memcpy(to, from, batch->width * sizeof *to);
    }
    return CALM_OK;
}

/* Runs a model over the batch; its hidden states before the head live until this call ends. */
static calm_status run_model(calm_ctx *ctx, const work *w, calm_predictor *model, calm_arena *arena)
{
    calm_row_store *hidden;
    calm_batch batch;
    CALM_SCOPED_ARENA(rows);
    CALM_TRY(calm_batch_forward(ctx, model->subject->model, &model->rope, &model->head, &w->windows, 0, w->windows.n,
                                model->subject->override, model->subject->user, &rows, &batch));
    CALM_TRY(gather(ctx, w, &batch, arena, &hidden));
    model->hidden = hidden;
    return CALM_OK;
}

/* Adds up the log-probabilities of the batch's choices by model m. */
static calm_status add_batch(calm_ctx *ctx, const work *w, size_t m, calm_task_answers *answers)
{
    const calm_predictor *model = &w->set.models[m];
    for (size_t c = 0, i = 0; c < w->windows.n; c++) {
        double *sum = &answers->log_prob[w->done + c];
        for (const size_t end = i + w->own[c]; i < end; i++)
            *sum -= calm_prediction_nll(&model->rows[i]);
        if (!isfinite(*sum))
            return calm_fail(ctx, CALM_ENUMERIC, "%s: a logit is not finite", calm_model_dir(model->subject->model));
    }
    return CALM_OK;
}

static calm_status run_batch(calm_ctx *ctx, work *w, calm_arena *arena, calm_tick_fn *tick, void *tick_user)
{
    const size_t n = w->set.n;
    for (size_t m = 0; m < n; m++) {
        CALM_TRY(run_model(ctx, w, &w->set.models[m], arena));
        CALM_TRY(CALM_NEW(ctx, arena, w->set.models[m].rows, w->n_predicted));
        if (tick)
            tick(tick_user, w->done * n + w->windows.n * (m + 1), w->out->n_choices * n);
    }
    CALM_TRY(calm_predict(ctx, &w->set, w->targets, w->n_predicted));
    for (size_t m = 0; m < n; m++)
        CALM_TRY(add_batch(ctx, w, m, m + 1 < n ? &w->out->reference : &w->out->model));
    w->done += w->windows.n;
    return CALM_OK;
}

/* ---- answers ---- */

/* Returns the index of the first of the greatest values, each divided by its length (NULL: not divided). */
static size_t greatest(const double *values, const size_t *length, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if ((length ? values[i] / (double)length[i] : values[i]) >
            (length ? values[best] / (double)length[best] : values[best]))
            best = i;
    return best;
}

static double mean_se(double mean, size_t n)
{
    return n < 2 ? NAN : sqrt(mean * (1 - mean) / (double)(n - 1));
}

static void judge(const calm_tasks_result *tasks, calm_task_answers *answers)
{
    size_t right = 0, right_norm = 0;
    for (size_t t = 0; t < tasks->n; t++) {
        const size_t begin = tasks->begin[t], n = tasks->begin[t + 1] - begin;
        answers->choice[t] = greatest(answers->log_prob + begin, NULL, n);
        answers->choice_norm[t] = greatest(answers->log_prob + begin, tasks->length + begin, n);
        right += answers->choice[t] == tasks->answer[t];
        right_norm += answers->choice_norm[t] == tasks->answer[t];
    }
    answers->acc = (double)right / (double)tasks->n;
    answers->acc_norm = (double)right_norm / (double)tasks->n;
    answers->acc_se = mean_se(answers->acc, tasks->n);
    answers->acc_norm_se = mean_se(answers->acc_norm, tasks->n);
}

static void compare(calm_tasks_result *tasks)
{
    size_t same = 0, same_norm = 0;
    for (size_t t = 0; t < tasks->n; t++) {
        same += tasks->model.choice[t] == tasks->reference.choice[t];
        same_norm += tasks->model.choice_norm[t] == tasks->reference.choice_norm[t];
    }
    tasks->same = (double)same / (double)tasks->n;
    tasks->same_norm = (double)same_norm / (double)tasks->n;
}

static calm_status new_answers(calm_ctx *ctx, const calm_tasks_result *tasks, calm_task_answers *out)
{
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->log_prob, tasks->n_choices));
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->choice, tasks->n));
    return CALM_NEW(ctx, ctx->out, out->choice_norm, tasks->n);
}

static calm_status new_result(calm_ctx *ctx, bool compared, calm_tasks_result *out)
{
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->line, out->n));
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->answer, out->n));
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->begin, out->n + 1));
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->length, out->n_choices));
    CALM_TRY(new_answers(ctx, out, &out->model));
    return compared ? new_answers(ctx, out, &out->reference) : CALM_OK;
}

/* Answers all choices, with heads and tables in a separate arena.  Here the reference is a model like the other,
 * because distributions are not compared. */
static calm_status answer(calm_ctx *ctx, const calm_subject *reference, const calm_subject *subject, work *w,
                          calm_tick_fn *tick, void *tick_user)
{
    const calm_subject models[2] = {reference ? *reference : *subject, *subject};
    CALM_SCOPED_RESULTS(ctx);
    CALM_TRY(calm_predictors_open(ctx, NULL, models, reference ? 2 : 1, w->out->longest, &w->set));
    w->capacity = calm_size_max(calm_evaluation_rows(calm_model_config(models[0].model)), w->out->longest);
    while (w->done < w->out->n_choices) {
        CALM_SCOPED_ARENA(arena);
        CALM_TRY(new_batch(ctx, w, &arena));
        CALM_TRY(fill_batch(ctx, w));
        if (w->windows.n == 0)
            return changed(ctx, w->source);
        CALM_TRY(run_batch(ctx, w, &arena, tick, tick_user));
    }
    return CALM_OK;
}

calm_status calm_tasks_evaluate(calm_ctx *ctx, const char *path, const calm_tokenizer *tokenizer,
                                const calm_task_options *options, const calm_subject *reference,
                                const calm_subject *subject, calm_tick_fn *tick, void *tick_user,
                                calm_tasks_result *out)
{
    CALM_SCOPED(source, source_close) again = {.index = 0};
    work w = {.source = &again, .out = out};
    *out = (calm_tasks_result){.same = NAN, .same_norm = NAN};
    CALM_TRY(survey(ctx, path, tokenizer, options, out));
    CALM_TRY(new_result(ctx, reference != NULL, out));
    CALM_TRY(calm_task_reader_open(ctx, tokenizer, path, options, &again.reader));
    CALM_TRY(answer(ctx, reference, subject, &w, tick, tick_user));
    judge(out, &out->model);
    if (reference) {
        judge(out, &out->reference);
        compare(out);
    }
    return CALM_OK;
}
