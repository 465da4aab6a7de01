/* Evaluation, streaming over batches of windows. */
#include "ptq/eval/evaluate.h"

#include <math.h>
#include <string.h>

#include "ptq/base/threads.h"
#include "ptq/tensor/vector.h"

/* Hidden rows of one model for one batch; all models together hold (n + 1) of these. */
#define BATCH_BYTES ((size_t)24 * 1024 * 1024)
/* Logits of one task for one model. */
#define LOGITS_FLOATS ((size_t)1024 * 1024)

/* A subject with what its model needs; tables are shared between subjects of the same model. */
typedef struct runner {
    const calm_subject *subject;
    calm_rope rope;
    calm_head head;
    calm_batch batch;
    calm_eval_result *result;    /* NULL: not wanted */
} runner;

typedef struct evaluation {
    runner *runners;      /* [n], the reference first when there is one */
    size_t n;
    bool has_reference;
    const calm_windows *windows;
} evaluation;

/* ---- one window ---- */

/* A row of logits as what is needed of it. */
typedef struct row_summary {
    const float *logits;
    double log_sum;    /* log sum exp */
    size_t best;
} row_summary;

static calm_status summarize(calm_ctx *ctx, const float *logits, size_t vocab, float *exponentials, row_summary *out)
{
    out->logits = logits;
    out->best = calm_vec_argmax(vocab, logits);
    const float max = logits[out->best];
    const double sum = calm_vec_exp_sum(vocab, max, logits, exponentials);
    out->log_sum = (double)max + log(sum);
    if (!isfinite(out->log_sum))
        return calm_fail(ctx, CALM_ENUMERIC, "a logit is not finite");
    return CALM_OK;
}

/* KL = sum p (l_ref - l) - log_sum_ref + log_sum, with p from the reference's exponentials. */
static double divergence(const row_summary *ref, const float *exponentials, const row_summary *row, size_t vocab)
{
    const double weighted = calm_vec_weighted_difference(vocab, exponentials, ref->logits, row->logits);
    const double mass = exp(ref->log_sum - (double)ref->logits[ref->best]);    /* sum of the exponentials */
    return weighted / mass - ref->log_sum + row->log_sum;
}

/* Logits of a chunk of rows for every model, then the sums of each predicted row. */
static calm_status score_chunk(calm_ctx *ctx, const evaluation *e, size_t window, size_t row, size_t rows,
                               size_t in_batch, float **logits, float *exponentials, float *unused)
{
    const size_t vocab = e->runners[0].head.vocab;
    const uint32_t *ids = e->windows->ids + e->windows->begin[window] + row;
    for (size_t m = 0; m < e->n; m++) {
        const runner *r = &e->runners[m];
        const float *x = r->batch.hidden.data + (calm_batch_row(&r->batch, in_batch) + row) * r->head.hidden;
        CALM_TRY(calm_head_logits(ctx, &r->head, x, rows, logits[m]));
    }
    for (size_t t = 0; t < rows; t++) {
        row_summary ref = {0};
        for (size_t m = 0; m < e->n; m++) {
            const bool is_reference = e->has_reference && m == 0;
            row_summary here;
            CALM_TRY(summarize(ctx, logits[m] + t * vocab, vocab, m == 0 ? exponentials : unused, &here));
            if (is_reference)
                ref = here;
            if (!e->runners[m].result)
                continue;
            calm_eval_window *sums = &e->runners[m].result->windows[window];
            sums->tokens++;
            sums->nll += here.log_sum - (double)here.logits[ids[t + 1]];
            if (e->has_reference) {
                sums->kl += is_reference ? 0 : divergence(&ref, exponentials, &here, vocab);
                sums->top1 += here.best == ref.best;
            }
        }
    }
    return CALM_OK;
}

static calm_status score_window(calm_ctx *ctx, size_t in_batch, void *user)
{
    const evaluation *e = user;
    const size_t window = e->runners[0].batch.first + in_batch, vocab = e->runners[0].head.vocab;
    const size_t predicted = calm_batch_tokens(&e->runners[0].batch, in_batch) - 1;
    size_t chunk = LOGITS_FLOATS / vocab;
    chunk = chunk < 1 ? 1 : chunk > predicted ? predicted : chunk;
    float **logits, *exponentials, *unused;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, logits, e->n));
    for (size_t m = 0; m < e->n; m++)
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, logits[m], chunk * vocab));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, exponentials, vocab));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, unused, vocab));
    for (size_t row = 0; row < predicted; row += chunk)
        CALM_TRY(score_chunk(ctx, e, window, row, predicted - row < chunk ? predicted - row : chunk, in_batch, logits,
                             exponentials, unused));
    return CALM_OK;
}

/* ---- all windows ---- */

static calm_status prepare(calm_ctx *ctx, evaluation *e, const calm_subject *subject, calm_eval_result *result)
{
    runner *r = &e->runners[e->n];
    *r = (runner){.subject = subject, .result = result};
    for (size_t m = 0; m < e->n; m++)
        if (e->runners[m].subject->model == subject->model) {
            r->rope = e->runners[m].rope;
            r->head = e->runners[m].head;
        }
    if (!r->head.table) {
        CALM_TRY(calm_rope_init(ctx, calm_model_config(subject->model), calm_windows_reach(e->windows), &r->rope));
        CALM_TRY(calm_model_load_head(ctx, subject->model, &r->head));
    }
    if (r->head.vocab != e->runners[0].head.vocab)
        return calm_fail(ctx, CALM_EARG, "%s has a vocabulary of %zu, %s one of %zu: they cannot be compared",
                         calm_model_dir(subject->model), r->head.vocab, calm_model_dir(e->runners[0].subject->model),
                         e->runners[0].head.vocab);
    e->n++;
    return CALM_OK;
}

static void finish(calm_eval_result *result, size_t n_windows, bool compared)
{
    double nll = 0, kl = 0, top1 = 0;
    result->tokens = 0;
    for (size_t w = 0; w < n_windows; w++) {
        result->tokens += result->windows[w].tokens;
        nll += result->windows[w].nll;
        kl += result->windows[w].kl;
        top1 += result->windows[w].top1;
    }
    const double n = (double)result->tokens;
    result->nll = nll / n;
    result->ppl = exp(result->nll);
    result->kl = compared ? kl / n : NAN;
    result->top1 = compared ? top1 / n : NAN;
}

/* All models over windows first .. first + n - 1. */
static calm_status run_batch(calm_ctx *ctx, evaluation *e, size_t first, size_t n, calm_tick_fn *tick, void *tick_user)
{
    calm_arena arena;
    calm_arena_init(&arena);
    calm_status status = CALM_OK;
    for (size_t m = 0; m < e->n && status == CALM_OK; m++) {
        runner *r = &e->runners[m];
        status = calm_batch_forward(ctx, r->subject->model, &r->rope, &r->head, e->windows, first, n,
                                    r->subject->override, r->subject->user, &arena, &r->batch);
        if (tick && status == CALM_OK)
            tick(tick_user, first * e->n + n * (m + 1), e->windows->n * e->n);
    }
    if (status == CALM_OK)
        status = calm_parallel_for(ctx, n, score_window, e);
    calm_arena_clear(&arena);
    return status;
}

static calm_status run_all(calm_ctx *ctx, const calm_subject *reference, calm_eval_result *reference_result,
                           const calm_subject *subjects, size_t n, calm_eval_result *results, evaluation *e,
                           calm_tick_fn *tick, void *tick_user)
{
    const size_t n_windows = e->windows->n;
    CALM_TRY(CALM_NEW(ctx, ctx->out, e->runners, n + 1));
    if (reference)
        CALM_TRY(prepare(ctx, e, reference, reference_result));
    for (size_t i = 0; i < n; i++)
        CALM_TRY(prepare(ctx, e, &subjects[i], &results[i]));
    for (size_t w = 0; w < n_windows;) {
        const size_t width = calm_model_config(e->runners[0].subject->model)->hidden;
        const size_t most = calm_batch_windows(e->windows, width, BATCH_BYTES);
        const size_t now = n_windows - w < most ? n_windows - w : most;
        CALM_TRY(run_batch(ctx, e, w, now, tick, tick_user));
        w += now;
    }
    for (size_t m = 0; m < e->n; m++)
        if (e->runners[m].result)
            finish(e->runners[m].result, n_windows, e->has_reference);
    return CALM_OK;
}

calm_status calm_evaluate(calm_ctx *ctx, const calm_subject *reference, calm_eval_result *reference_result,
                          const calm_subject *subjects, size_t n, calm_eval_result *results,
                          const calm_windows *windows, calm_tick_fn *tick, void *tick_user)
{
    evaluation e = {.has_reference = reference != NULL, .windows = windows};
    if (reference && reference_result)
        CALM_TRY(CALM_NEW(ctx, ctx->out, reference_result->windows, windows->n));
    for (size_t i = 0; i < n; i++)
        CALM_TRY(CALM_NEW(ctx, ctx->out, results[i].windows, windows->n));
    /* Heads and tables live no longer than this call. */
    calm_arena tables, *caller = ctx->out;
    calm_arena_init(&tables);
    ctx->out = &tables;
    calm_status status = run_all(ctx, reference, reference_result, subjects, n, results, &e, tick, tick_user);
    ctx->out = caller;
    calm_arena_clear(&tables);
    return status;
}

void calm_eval_compare(const calm_eval_result *a, const calm_eval_result *b, size_t n_windows, double *delta,
                       double *se)
{
    double mean = 0, spread = 0;
    for (size_t w = 0; w < n_windows; w++)
        mean += (b->windows[w].kl - a->windows[w].kl) / (double)a->windows[w].tokens / (double)n_windows;
    for (size_t w = 0; w < n_windows; w++) {
        const double d = (b->windows[w].kl - a->windows[w].kl) / (double)a->windows[w].tokens - mean;
        spread += d * d;
    }
    *delta = mean;
    *se = n_windows < 2 ? NAN : sqrt(spread / (double)(n_windows - 1) / (double)n_windows);
}
