/* Evaluation: models run over batches of windows; then the head, tile after tile of the vocabulary, for all of them.
 *
 * A tile of a head is widened once for a whole batch and shared by the models that have that table.  Rows meet the
 * tiles in one order, each with its running maximum m: s = sum exp(l - m) is multiplied by exp(m - m') when the maximum
 * rises to m'. */
#include "ptq/eval/evaluate.h"

#include <math.h>
#include <string.h>

#include "ptq/base/threads.h"
#include "ptq/model/arch.h"
#include "ptq/tensor/vector.h"

/* Narrow models count as so wide, since a row of sums is kept per row and model too. */
#define BATCH_WIDTH ((size_t)256)
/* Logits of one task for one model: rows times a tile. */
#define CHUNK_FLOATS ((size_t)1024 * 1024)
#define CHUNK_ROWS ((size_t)256)
/* Of a tile, widened by one task. */
#define SLICE_FLOATS ((size_t)64 * 1024)

#define NOT_PREDICTED UINT32_MAX

/* What is known of a row's logits so far. */
typedef struct row_sums {
    double sum;      /* of exp(l - max)                                               */
    double cross;    /* of l exp(r - max r), r the reference's logits                 */
    float max;
    float target;    /* logit of the token that follows                               */
    uint32_t best;   /* first token with the maximum                                  */
} row_sums;

/* A subject with what its model needs; tables are shared between subjects of the same model. */
typedef struct runner {
    const calm_subject *subject;
    calm_rope rope;
    calm_head head;
    calm_batch batch;
    row_sums *rows;              /* [batch.rows]                                                */
    float *tile;                 /* [e->tile, D]                                                */
    bool shares;                 /* tile belongs to an earlier runner with the same table       */
    calm_eval_result *result;    /* NULL: not wanted */
} runner;

typedef struct evaluation {
    runner *runners;      /* [n], the reference first when there is one */
    size_t n;
    bool has_reference;
    const calm_windows *windows;
    uint32_t *targets;              /* [rows of the batch] */
    size_t vocab, tile, chunk;      /* tokens; of a tile; rows of a task */
    size_t slices;                  /* tasks that widen a tile           */
    size_t first, count;            /* the tile in work */
} evaluation;

/* ---- one tile for a chunk of rows ---- */

/* A tile of a row's logits joins its sums; leaves exp(l - max) in `exponentials`.  Returns what earlier sums of such
 * exponentials are to be multiplied by. */
static double join(row_sums *row, size_t first, size_t count, const float *logits, uint32_t target, float *exponentials)
{
    const float max = calm_vec_max(count, logits);
    double factor = 1;
    if (first == 0 || max > row->max) {
        factor = first == 0 ? 0 : exp((double)row->max - (double)max);
        row->max = max;
        row->best = (uint32_t)(first + calm_vec_argmax(count, logits));
    }
    row->sum = row->sum * factor + calm_vec_exp_sum(count, row->max, logits, exponentials);
    if (target >= first && target - first < count)
        row->target = logits[target - first];
    return factor;
}

/* Task: one model after the other, since all need the reference's exponentials alone. */
static calm_status score_chunk(calm_ctx *ctx, size_t index, void *user)
{
    const evaluation *e = user;
    const size_t row = index * e->chunk, left = e->runners[0].batch.rows - row;
    const size_t rows = left < e->chunk ? left : e->chunk;
    float *logits, *weights = NULL, *exponentials;
    double *factors = NULL;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, logits, rows * e->count));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, exponentials, e->count));
    if (e->has_reference) {
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, weights, rows * e->count));
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, factors, rows));
    }
    for (size_t m = 0; m < e->n; m++) {
        const runner *r = &e->runners[m];
        const bool is_reference = e->has_reference && m == 0;
        float *x;
        CALM_TRY(calm_row_store_get(ctx, &r->batch.hidden, row, rows, &x));
        calm_head_multiply(&r->head, r->tile, x, rows, e->first, e->count, logits, e->count);
        for (size_t t = 0; t < rows; t++) {
            if (e->targets[row + t] == NOT_PREDICTED)
                continue;
            row_sums *sums = &r->rows[row + t];
            const float *y = logits + t * e->count;
            float *w = is_reference ? weights + t * e->count : exponentials;
            const double factor = join(sums, e->first, e->count, y, e->targets[row + t], w);
            if (is_reference)
                factors[t] = factor;
            if (e->has_reference)
                sums->cross = sums->cross * factors[t] + calm_vec_dot(e->count, weights + t * e->count, y);
        }
    }
    return CALM_OK;
}

/* Task: a slice of the tile, of one model's table. */
static calm_status read_slice(calm_ctx *ctx, size_t index, void *user)
{
    const evaluation *e = user;
    const runner *r = &e->runners[index / e->slices];
    const size_t begin = index % e->slices * e->count / e->slices, end = (index % e->slices + 1) * e->count / e->slices;
    if (r->shares)
        return CALM_OK;
    return calm_head_read_tile(ctx, &r->head, e->first + begin, end - begin, r->tile + begin * r->head.hidden);
}

static calm_status score_tiles(calm_ctx *ctx, evaluation *e)
{
    const size_t rows = e->runners[0].batch.rows;
    for (e->first = 0; e->first < e->vocab; e->first += e->count) {
        e->count = e->vocab - e->first < e->tile ? e->vocab - e->first : e->tile;
        CALM_TRY(calm_parallel_for(ctx, e->n * e->slices, read_slice, e));
        CALM_TRY(calm_parallel_for(ctx, (rows + e->chunk - 1) / e->chunk, score_chunk, e));
    }
    return CALM_OK;
}

/* ---- one batch ---- */

/* KL = sum p (r - l) - log sum exp r + log sum exp l. */
static double divergence(const row_sums *ref, const row_sums *row, double log_ref, double log_row)
{
    return (ref->cross - row->cross) / ref->sum - log_ref + log_row;
}

/* Rows of window i of the batch, in order, into the window's sums. */
static calm_status add_window(calm_ctx *ctx, const evaluation *e, size_t i, const runner *r)
{
    const calm_batch *batch = &r->batch;
    const size_t begin = calm_batch_row(batch, i), end = begin + calm_batch_tokens(batch, i);
    calm_eval_window *sums = &r->result->windows[batch->first + i];
    for (size_t t = begin; t + 1 < end; t++) {
        const row_sums *row = &r->rows[t], *ref = &e->runners[0].rows[t];
        const double log_sum = (double)row->max + log(row->sum), log_ref = (double)ref->max + log(ref->sum);
        const double kl = e->has_reference ? divergence(ref, row, log_ref, log_sum) : 0;
        if (!isfinite(log_sum) || !isfinite(kl))
            return calm_fail(ctx, CALM_ENUMERIC, "%s: a logit is not finite", calm_model_dir(r->subject->model));
        sums->tokens++;
        sums->nll += log_sum - (double)row->target;
        sums->kl += kl;
        sums->top1 += e->has_reference && row->best == ref->best;
    }
    return CALM_OK;
}

static calm_status add_batch(calm_ctx *ctx, const evaluation *e)
{
    for (size_t m = 0; m < e->n; m++)
        for (size_t i = 0; i < e->runners[m].batch.n && e->runners[m].result; i++)
            CALM_TRY(add_window(ctx, e, i, &e->runners[m]));
    return CALM_OK;
}

/* The token after each row of a batch. */
static calm_status find_targets(calm_ctx *ctx, evaluation *e, const calm_batch *batch, calm_arena *arena)
{
    const uint32_t *ids = e->windows->ids + e->windows->begin[batch->first];
    CALM_TRY(CALM_NEW_RAW(ctx, arena, e->targets, batch->rows));
    for (size_t t = 0; t + 1 < batch->rows; t++)
        e->targets[t] = ids[t + 1];
    for (size_t i = 0; i < batch->n; i++)
        if (calm_batch_tokens(batch, i))
            e->targets[calm_batch_row(batch, i) + calm_batch_tokens(batch, i) - 1] = NOT_PREDICTED;
    return CALM_OK;
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
        if (status == CALM_OK)
            status = CALM_NEW(ctx, &arena, r->rows, r->batch.rows);
        if (tick && status == CALM_OK)
            tick(tick_user, first * e->n + n * (m + 1), e->windows->n * e->n);
    }
    if (status == CALM_OK)
        status = find_targets(ctx, e, &e->runners[0].batch, &arena);
    if (status == CALM_OK)
        status = score_tiles(ctx, e);
    if (status == CALM_OK)
        status = add_batch(ctx, e);
    calm_arena_clear(&arena);
    return status;
}

/* ---- all windows ---- */

static calm_status prepare(calm_ctx *ctx, evaluation *e, const calm_subject *subject, calm_eval_result *result)
{
    runner *r = &e->runners[e->n];
    const char *dir = calm_model_dir(subject->model);
    *r = (runner){.subject = subject, .result = result};
    if (calm_model_config(subject->model)->arch->encoder)
        return calm_fail(ctx, CALM_EARG, "%s is an encoder: it predicts no next token", dir);
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
        return calm_fail(ctx, CALM_EARG, "%s has a vocabulary of %zu, %s one of %zu: they cannot be compared", dir,
                         r->head.vocab, calm_model_dir(e->runners[0].subject->model), e->runners[0].head.vocab);
    e->n++;
    return CALM_OK;
}

/* One size of tile for all models, and a place for each table's. */
size_t calm_eval_width(size_t hidden)
{
    return hidden < BATCH_WIDTH ? BATCH_WIDTH : hidden;
}

size_t calm_eval_chunk(size_t tile)
{
    const size_t rows = CHUNK_FLOATS / tile;
    return rows < 1 ? 1 : rows < CHUNK_ROWS ? rows : CHUNK_ROWS;
}

static calm_status prepare_tiles(calm_ctx *ctx, evaluation *e)
{
    e->vocab = e->tile = e->runners[0].head.vocab;
    for (size_t m = 0; m < e->n; m++) {
        const size_t tile = calm_head_tile(&e->runners[m].head);
        e->tile = tile < e->tile ? tile : e->tile;
    }
    e->slices = (e->tile * e->runners[0].head.hidden + SLICE_FLOATS - 1) / SLICE_FLOATS;
    e->chunk = calm_eval_chunk(e->tile);
    for (size_t m = 0; m < e->n; m++) {
        runner *r = &e->runners[m];
        for (size_t k = 0; k < m && !r->shares; k++) {
            r->shares = e->runners[k].head.table->data == r->head.table->data;
            r->tile = r->shares ? e->runners[k].tile : NULL;
        }
        if (!r->shares)
            CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, r->tile, e->tile * r->head.hidden));
    }
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
    CALM_TRY(prepare_tiles(ctx, e));
    for (size_t w = 0; w < n_windows;) {
        const size_t most =
            calm_batch_windows(e->windows, calm_eval_width(e->runners[0].head.hidden), CALM_EVAL_BATCH_BYTES);
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
