/* Evaluation: runs models over batches of windows, and sums predictions over windows. */
#include "ptq/eval/evaluate.h"

#include <math.h>

/* Limit for the hidden states of one model for one batch. */
#define BATCH_BYTES ((size_t)24 * 1024 * 1024)
/* The least width that a model counts as, because sums per row and model need memory too. */
#define BATCH_WIDTH ((size_t)256)

/* The request and the state of an evaluation. */
typedef struct evaluation {
    const calm_subject *reference;  /* NULL: there is none                         */
    calm_eval_result *reference_result;
    const calm_subject *subjects;   /* [n]                                         */
    size_t n;
    calm_eval_result *subject_results;    /* [n]                                   */
    calm_tick_fn *tick;             /* NULL: none */
    void *tick_user;
    size_t n_before, n_now;         /* windows of earlier batches; of the current batch */
    double passed;                  /* weights that the batch's tokens were multiplied by so far, in all models */
    double all;
    calm_predictors set;
    calm_batch *batches;            /* [set.n] hidden states of the current windows */
    calm_eval_result **results;     /* [set.n] NULL: not wanted */
    const calm_windows *windows;
    uint32_t *targets;              /* [rows of the batch]                         */
    calm_eval_worst *worst;         /* largest divergences of model 1; NULL: not wanted */
} evaluation;

/* ---- positions with the largest divergence ---- */

/* Inserts a position behind equal divergences, because positions come in rising order. */
static void keep_worst(calm_eval_worst *worst, const calm_eval_position *position)
{
    if (worst->n == worst->most && (!worst->most || !(position->kl > worst->each[worst->n - 1].kl)))
        return;
    size_t at = worst->n < worst->most ? worst->n++ : worst->n - 1;
    for (; at > 0 && position->kl > worst->each[at - 1].kl; at--)
        worst->each[at] = worst->each[at - 1];
    worst->each[at] = *position;
}

/* ---- results ---- */

/* Adds the predictions of window i of the batch to the window's sums. */
static calm_status add_window(calm_ctx *ctx, const evaluation *e, size_t i, size_t m)
{
    const calm_predictor *model = &e->set.models[m];
    const calm_batch *batch = &e->batches[m];
    const size_t window = batch->first + i, begin = calm_batch_row(batch, i), end = begin + calm_batch_tokens(batch, i);
    const bool compared = e->set.has_reference;
    calm_eval_window *sums = &e->results[m]->windows[window];
    for (size_t t = begin; t + 1 < end; t++) {
        const calm_prediction *row = &model->rows[t], *ref = &e->set.models[0].rows[t];
        const double nll = calm_prediction_nll(row), kl = compared ? calm_prediction_kl(ref, row) : 0;
        if (!isfinite(nll) || !isfinite(kl))
            return calm_fail(ctx, CALM_ENUMERIC, "%s: a logit is not finite", calm_model_dir(model->subject->model));
        sums->tokens++;
        sums->nll += nll;
        sums->kl += kl;
        sums->top1 += compared && row->best == ref->best;
        sums->top5 += compared && (m == 0 || calm_top_has(&model->top[t], ref->best));
        if (!e->worst || m != 1)
            continue;
        e->worst->kl[e->worst->n_kl++] = kl;
        keep_worst(e->worst, &(calm_eval_position){window, t - begin + 1, kl, nll, calm_prediction_nll(ref),
                                                   e->targets[t], row->best, ref->best});
    }
    return CALM_OK;
}

/* Finds the token after each row of a batch. */
static calm_status find_targets(calm_ctx *ctx, evaluation *e, const calm_batch *batch, calm_arena *arena)
{
    const uint32_t *ids = e->windows->ids + e->windows->begin[batch->first];
    CALM_TRY(CALM_NEW_RAW(ctx, arena, e->targets, batch->rows));
    for (size_t t = 0; t + 1 < batch->rows; t++)
        e->targets[t] = ids[t + 1];
    for (size_t i = 0; i < batch->n; i++)
        if (calm_batch_tokens(batch, i))
            e->targets[calm_batch_row(batch, i) + calm_batch_tokens(batch, i) - 1] = CALM_NO_TARGET;
    return CALM_OK;
}

/* Returns true if the first blocks of model m are those of the reference. */
static bool follows(const evaluation *e, size_t m)
{
    const calm_subject *subject = e->set.models[m].subject;
    return m > 0 && e->set.has_reference && subject->model == e->reference->model && !e->reference->override &&
           !e->reference->passed && !subject->passed && subject->first_block > 0 &&
           subject->first_block < calm_model_config(subject->model)->n_blocks;
}

/* ---- progress in windows times models, in proportion to the weights that tokens are multiplied by ----
 *
 * A large vocabulary has more weights than the blocks of a small model. */

/* Returns the weights of the blocks that model m runs itself. */
static double block_weights(const evaluation *e, size_t m)
{
    const calm_subject *subject = e->set.models[m].subject;
    const calm_layout *layout = calm_model_layout(subject->model);
    const size_t first = follows(e, m) ? subject->first_block : 0;
    return subject->passed ? 0 : calm_model_weights(subject->model, layout->block_begin[first], layout->n_jobs, true);
}

static double head_weights(const evaluation *e)
{
    return (double)e->set.n * (double)e->set.vocab * (double)e->set.models[0].head.hidden;
}

static void begin_progress(evaluation *e, size_t first, size_t n)
{
    e->n_before = first;
    e->n_now = n;
    e->passed = 0;
    e->all = head_weights(e);
    for (size_t m = 0; m < e->set.n; m++)
        e->all += block_weights(e, m);
}

static void tell_progress(const evaluation *e, double passed)
{
    const double share = passed / e->all;
    if (e->tick)
        e->tick(e->tick_user, e->n_before * e->set.n + (size_t)(share * (double)(e->n_now * e->set.n)),
                e->windows->n * e->set.n);
}

/* A calm_tick_fn of the predictions, the last part of a batch. */
static void predicted(void *user, size_t done, size_t total)
{
    const evaluation *e = user;
    tell_progress(e, done == total ? e->all : e->passed + head_weights(e) * ((double)done / (double)total));
}

/* ---- one batch ---- */

/* Runs the first model (the reference, if there is one) over all its blocks.  Models that differ from it only from some
 * block on get its hidden states there. */
static calm_status run_first(calm_ctx *ctx, evaluation *e, size_t first, size_t n, calm_arena *arena)
{
    const calm_predictor *model = &e->set.models[0];
    const calm_subject *subject = model->subject;
    calm_batch *batch = &e->batches[0];
    CALM_TRY(calm_batch_embed(ctx, subject->model, e->windows, first, n, arena, NULL, batch));
    for (size_t i = 0; i < calm_model_config(subject->model)->n_blocks; i++) {
        for (size_t m = 1; m < e->set.n; m++)
            if (follows(e, m) && e->set.models[m].subject->first_block == i)
                CALM_TRY(calm_batch_copy(ctx, batch, batch->n, arena, NULL, &e->batches[m]));
        CALM_TRY(calm_batch_load_block(ctx, subject->model, &model->rope, i, subject->override, subject->user, batch));
    }
    return calm_batch_norm(ctx, &model->head.norm, batch);
}

/* Prepares a model whose hidden states behind the last block are given: only the final norm is computed. */
static calm_status take_passed(calm_ctx *ctx, evaluation *e, size_t m, size_t first, size_t n, calm_arena *arena)
{
    const calm_predictor *model = &e->set.models[m];
    const calm_subject *subject = model->subject;
    calm_batch *batch = &e->batches[m];
    const size_t row = e->windows->begin[first] - e->windows->begin[0];
    CALM_TRY(calm_batch_open(ctx, calm_model_config(subject->model), e->windows, first, n, arena, NULL, batch));
    CALM_TRY(calm_row_store_read(ctx, subject->passed, subject->passed_first + row, batch->rows, batch->hidden.data));
    return calm_batch_norm(ctx, &model->head.norm, batch);
}

/* Runs model m over windows first .. first + n - 1, and allocates its predictions. */
static calm_status run_model(calm_ctx *ctx, evaluation *e, size_t m, size_t first, size_t n, calm_arena *arena)
{
    calm_predictor *model = &e->set.models[m];
    const calm_subject *subject = model->subject;
    calm_batch *batch = &e->batches[m];
    if (subject->passed)
        CALM_TRY(take_passed(ctx, e, m, first, n, arena));
    else if (m == 0)
        CALM_TRY(run_first(ctx, e, first, n, arena));
    else if (follows(e, m))
        CALM_TRY(calm_batch_finish(ctx, subject->model, &model->rope, &model->head, subject->first_block,
                                   subject->override, subject->user, batch));
    else
        CALM_TRY(calm_batch_forward(ctx, subject->model, &model->rope, &model->head, e->windows, first, n,
                                    subject->override, subject->user, arena, batch));
    model->hidden = &batch->hidden;
    CALM_TRY(CALM_NEW(ctx, arena, model->rows, batch->rows));
    return e->set.has_reference && m > 0 ? CALM_NEW(ctx, arena, model->top, batch->rows) : CALM_OK;
}

/* Runs all models over windows first .. first + n - 1. */
static calm_status run_batch(calm_ctx *ctx, evaluation *e, size_t first, size_t n)
{
    CALM_SCOPED_ARENA(arena);    /* frees a batch's hidden states and predictions before the next batch */
    begin_progress(e, first, n);
    for (size_t m = 0; m < e->set.n; m++) {
        CALM_TRY(run_model(ctx, e, m, first, n, &arena));
        e->passed += block_weights(e, m);
        tell_progress(e, e->passed);
    }
    CALM_TRY(find_targets(ctx, e, &e->batches[0], &arena));
    CALM_TRY(calm_predict(ctx, &e->set, e->targets, e->batches[0].rows));
    for (size_t m = 0; m < e->set.n; m++)
        for (size_t i = 0; i < e->batches[m].n && e->results[m]; i++)
            CALM_TRY(add_window(ctx, e, i, m));
    return CALM_OK;
}

/* ---- all windows ---- */

size_t calm_evaluation_rows(const calm_config *config)
{
    return BATCH_BYTES / (calm_size_max(config->hidden, BATCH_WIDTH) * sizeof(float));
}

size_t calm_evaluation_batch(const calm_config *config, size_t n_windows, size_t longest)
{
    return longest ? calm_size_min(n_windows, calm_size_max(1, calm_evaluation_rows(config) / longest)) : n_windows;
}

static void finish(calm_eval_result *result, size_t n_windows, bool compared)
{
    double nll = 0, kl = 0, top1 = 0, top5 = 0;
    result->tokens = 0;
    for (size_t w = 0; w < n_windows; w++) {
        result->tokens += result->windows[w].tokens;
        nll += result->windows[w].nll;
        kl += result->windows[w].kl;
        top1 += result->windows[w].top1;
        top5 += result->windows[w].top5;
    }
    const double n = (double)result->tokens;
    result->nll = nll / n;
    result->ppl = exp(result->nll);
    result->kl = compared ? kl / n : NAN;
    result->top1 = compared ? top1 / n : NAN;
    result->top5 = compared ? top5 / n : NAN;
}

static calm_status evaluate(calm_ctx *ctx, evaluation *e)
{
    const size_t n_windows = e->windows->n, first = e->reference ? 1 : 0;
    if (e->reference && e->reference_result)
        CALM_TRY(CALM_NEW(ctx, ctx->out, e->reference_result->windows, n_windows));
    for (size_t i = 0; i < e->n; i++)
        CALM_TRY(CALM_NEW(ctx, ctx->out, e->subject_results[i].windows, n_windows));
    /* Heads and rotary tables live until this call ends. */
    CALM_SCOPED_ARENA(tables);
    CALM_SCOPED_OUT(ctx, &tables);
    CALM_TRY(calm_predictors_open(ctx, e->reference, e->subjects, e->n, calm_windows_reach(e->windows), &e->set));
    e->set.tick = predicted;
    e->set.tick_user = e;
    CALM_TRY(CALM_NEW(ctx, ctx->out, e->batches, e->n + 1));
    CALM_TRY(CALM_NEW(ctx, ctx->out, e->results, e->n + 1));
    e->results[0] = e->reference_result;
    for (size_t i = 0; i < e->n; i++)
        e->results[first + i] = &e->subject_results[i];
    const calm_config *config = calm_model_config(e->set.models[0].subject->model);
    const size_t most = calm_evaluation_batch(config, n_windows, e->windows->longest);
    for (size_t w = 0; w < n_windows; w += most)
        CALM_TRY(run_batch(ctx, e, w, calm_size_min(n_windows - w, most)));
    for (size_t m = 0; m < e->set.n; m++)
        if (e->results[m])
            finish(e->results[m], n_windows, e->set.has_reference);
    return CALM_OK;
}

calm_status calm_evaluate(calm_ctx *ctx, const calm_subject *reference, calm_eval_result *reference_result,
                          const calm_subject *subjects, size_t n, calm_eval_result *results,
                          const calm_windows *windows, calm_tick_fn *tick, void *tick_user)
{
    evaluation e = {reference, reference_result, subjects, n, results, tick, tick_user, .windows = windows};
    return evaluate(ctx, &e);
}

calm_status calm_evaluate_worst(calm_ctx *ctx, const calm_subject *reference, calm_eval_result *reference_result,
                                const calm_subject *subject, calm_eval_result *result, const calm_windows *windows,
                                size_t most, calm_tick_fn *tick, void *tick_user, calm_eval_worst *worst)
{
    evaluation e = {reference, reference_result, subject, 1, result, tick, tick_user, .windows = windows,
                    .worst = worst};
    *worst = (calm_eval_worst){.most = most};
    CALM_TRY(CALM_NEW(ctx, ctx->out, worst->each, most ? most : 1));
    /* An upper bound: one token per window is not predicted. */
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, worst->kl, windows->begin[windows->n] ? windows->begin[windows->n] : 1));
    return evaluate(ctx, &e);
}

/* ---- parts ---- */

calm_status calm_evaluation_part(calm_ctx *ctx, const calm_config *config, const calm_windows *windows, size_t part,
                                 size_t n_parts, calm_windows *out, size_t *first)
{
    return calm_windows_part(ctx, windows, calm_evaluation_batch(config, windows->n, windows->longest), part, n_parts,
                             out, first);
}

calm_status calm_evaluate_join(calm_ctx *ctx, const calm_eval_result *parts, const size_t *n_windows, size_t n,
                           bool compared, calm_eval_result *out)
{
    size_t total = 0, at = 0;
    for (size_t i = 0; i < n; i++)
        total += n_windows[i];
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->windows, total));
    for (size_t i = 0; i < n; i++)
        for (size_t w = 0; w < n_windows[i]; w++)
            out->windows[at++] = parts[i].windows[w];
    finish(out, total, compared);
    return CALM_OK;
}

calm_status calm_evaluate_worst_join(calm_ctx *ctx, const calm_eval_worst *parts, const size_t *n_windows, size_t n,
                                 calm_eval_worst *out)
{
    size_t n_kl = 0, first = 0;
    for (size_t i = 0; i < n; i++)
        n_kl += parts[i].n_kl;
    *out = (calm_eval_worst){.most = n ? parts[0].most : 0};
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->each, out->most ? out->most : 1));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, out->kl, n_kl ? n_kl : 1));
    for (size_t i = 0; i < n; i++) {
        for (size_t t = 0; t < parts[i].n_kl; t++)
            out->kl[out->n_kl++] = parts[i].kl[t];
        /* By falling divergence, ties by position: inserting in this order keeps ties in order. */
        for (size_t t = 0; t < parts[i].n; t++) {
            calm_eval_position position = parts[i].each[t];
            position.window += first;
            keep_worst(out, &position);
        }
        first += n_windows[i];
    }
    return CALM_OK;
}

/* ---- memory ---- */

size_t calm_evaluate_bytes(const calm_evaluation_shape *shape)
{
    const size_t worst =
        shape->n_kl ? CALM_BYTES(double, shape->n_kl) + CALM_BYTES(calm_eval_position, shape->worst) : 0;
    return (shape->n + shape->has_reference) * CALM_BYTES(calm_eval_window, shape->n_windows) + worst;
}

size_t calm_evaluate_scratch_bytes(const calm_evaluation_shape *shape, size_t n_threads)
{
    const calm_config *config = shape->config;
    const size_t models = shape->n + shape->has_reference;
    const size_t rows = calm_evaluation_batch(config, shape->n_windows, shape->longest) * shape->longest;
    const size_t tables = calm_predictors_open_bytes(config, shape->n, shape->n_checkpoints, shape->longest) +
                          CALM_BYTES(calm_batch, shape->n + 1) + CALM_BYTES(calm_eval_result *, shape->n + 1);
    const size_t each = calm_row_store_bytes(rows, calm_batch_width(config)) + CALM_BYTES(calm_prediction, rows);
    const size_t tops = shape->has_reference ? shape->n * CALM_BYTES(calm_top, rows) : 0;
    return tables + models * each + tops +
           calm_size_max(shape->block_bytes, CALM_BYTES(uint32_t, rows) + calm_predict_scratch_bytes(config, rows,
                                                                                   shape->has_reference, n_threads));
}
