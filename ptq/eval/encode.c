/* Sentence embeddings and their comparison. */
#include "ptq/eval/encode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ptq/base/simd.h"
#include "ptq/base/threads.h"
#include "ptq/model/pooling.h"

/* Limit for the hidden states of a batch. */
#define BATCH_BYTES ((size_t)24 * 1024 * 1024)
#define DOT_LANES 8

/* ---- embeddings ---- */

typedef struct pooling {
    const calm_pooling *how;
    const calm_batch *batch;
    const calm_embeddings *out;
} pooling;

/* Task: the embedding of one window. */
static calm_status pool_window(calm_ctx *ctx, size_t i, void *user)
{
    const pooling *task = user;
    const size_t n = calm_batch_tokens(task->batch, i), width = task->out->width, sentence = task->batch->first + i;
    const double *found;
    float *x;
    double *room;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(calm_row_store_get(ctx, &task->batch->hidden, calm_batch_row(task->batch, i), n, &x));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, room, calm_pooling_room(task->how)));
    found = calm_pooling_run(task->how, x, n, room);
    for (size_t j = 0; j < width; j++)
        if (!isfinite(found[j]))
            return calm_fail(ctx, CALM_ENUMERIC, "the embedding of sentence %zu is not finite", sentence);
    memcpy(task->out->x + sentence * width, found, width * sizeof *found);
    return CALM_OK;
}

size_t calm_encode_batch(const calm_config *config, size_t n, size_t longest)
{
    return calm_size_min(n, calm_batch_count(n, longest, config->hidden, BATCH_BYTES));
}

size_t calm_encode_bytes(const calm_config *config, size_t n)
{
    return CALM_BYTES(double, n * calm_pooling_width(config));
}

size_t calm_encode_scratch_bytes(const calm_config *config, size_t n, size_t longest, size_t n_subjects,
                                 size_t block_bytes)
{
    /* Hidden states of the first subject, and of one subject that starts from them.  A block's memory is freed before
     * the last hidden states are pooled, which needs less. */
    return calm_rope_bytes(config, longest) + calm_model_load_head_bytes(config) + calm_pooling_load_bytes(config) +
           calm_size_min(n_subjects, 2) *
               calm_row_store_bytes(calm_encode_batch(config, n, longest) * longest, config->hidden) + block_bytes;
}

/* The embeddings of several subjects over the same windows. */
typedef struct encoding {
    const calm_subject *subjects;    /* [n] */
    size_t n;
    const calm_windows *windows;
    calm_tick_fn *tick;
    void *tick_user;
    size_t done, total;              /* windows of all subjects */
    const calm_block *blocks;        /* all blocks of the only subject; NULL: each is loaded per batch */
    size_t batch;                    /* windows of a batch; 0: as many as BATCH_BYTES allows */
    calm_pooling how;                /* pooling of the subject's model */
    calm_embeddings *out;            /* [n] */
} encoding;

/* Returns true if the first blocks of subject s are those of the first subject. */
static bool follows(const encoding *e, size_t s)
{
    const calm_subject *subject = &e->subjects[s], *ahead = &e->subjects[0];
    return s > 0 && subject->model == ahead->model && !ahead->override && subject->first_block > 0 &&
           subject->first_block < calm_model_config(subject->model)->n_blocks;
}

/* Pools the last hidden states of subject s to embeddings. */
static calm_status pool(calm_ctx *ctx, encoding *e, size_t s, const calm_batch *batch)
{
    pooling task = {&e->how, batch, &e->out[s]};
    CALM_TRY(calm_parallel_for(ctx, batch->n, pool_window, &task));
    e->done += batch->n;
    if (e->tick)
        e->tick(e->tick_user, e->done, e->total);
    return CALM_OK;
}

/* Runs the subjects that differ from the first one only from block `index` on; ahead: hidden states before that
 * block. */
static calm_status run_followers(calm_ctx *ctx, encoding *e, const calm_rope *rope, const calm_head *head, size_t index,
                                 const calm_batch *ahead)
{
    for (size_t s = 1; s < e->n; s++) {
        if (!follows(e, s) || e->subjects[s].first_block != index)
            continue;
        CALM_SCOPED_ARENA(arena);    /* one subject at a time: at most two batches of hidden states exist */
        calm_batch batch;
        CALM_TRY(calm_batch_copy(ctx, ahead, ahead->n, &arena, NULL, &batch));
        CALM_TRY(calm_batch_finish(ctx, e->subjects[s].model, rope, head, index, e->subjects[s].override,
                                   e->subjects[s].user, &batch));
        CALM_TRY(pool(ctx, e, s, &batch));
    }
    return CALM_OK;
}

static calm_status run_block(calm_ctx *ctx, const encoding *e, size_t s, const calm_rope *rope, size_t index,
                             calm_batch *batch)
{
    const calm_subject *subject = &e->subjects[s];
    return e->blocks ? calm_batch_block(ctx, &e->blocks[index], rope, batch, NULL)
                     : calm_batch_load_block(ctx, subject->model, rope, index, subject->override, subject->user, batch);
}

/* Runs subject s over windows first .. first + n - 1, and with the first subject those that start from it. */
static calm_status encode_batch(calm_ctx *ctx, encoding *e, size_t s, const calm_rope *rope, const calm_head *head,
                                size_t first, size_t n)
{
    const calm_subject *subject = &e->subjects[s];
    CALM_SCOPED_ARENA(arena);    /* frees a batch's hidden states before the next batch */
    calm_batch batch;
    CALM_TRY(calm_batch_embed(ctx, subject->model, e->windows, first, n, &arena, NULL, &batch));
    for (size_t i = 0; i < calm_model_config(subject->model)->n_blocks; i++) {
        if (s == 0)
            CALM_TRY(run_followers(ctx, e, rope, head, i, &batch));
        CALM_TRY(run_block(ctx, e, s, rope, i, &batch));
    }
    CALM_TRY(calm_batch_norm(ctx, &head->norm, &batch));
    return pool(ctx, e, s, &batch);
}

/* Runs subject s over all windows. */
static calm_status encode_subject(calm_ctx *ctx, encoding *e, size_t s)
{
    const calm_model *model = e->subjects[s].model;
    const calm_config *config = calm_model_config(model);
    const size_t most = e->batch ? e->batch : calm_encode_batch(config, e->windows->n, e->windows->longest);
    calm_rope rope;
    calm_head head;
    CALM_SCOPED_ARENA(tables);    /* heads and rotary tables, until this call ends */
    CALM_SCOPED_OUT(ctx, &tables);
    CALM_TRY(calm_rope_init(ctx, config, calm_windows_reach(e->windows), &rope));
    CALM_TRY(calm_model_load_head(ctx, model, &head));
    CALM_TRY(calm_pooling_load(ctx, config, &e->how));
    for (size_t first = 0, n; first < e->windows->n; first += n) {
        n = calm_size_min(e->windows->n - first, most);
        CALM_TRY(encode_batch(ctx, e, s, &rope, &head, first, n));
    }
    return CALM_OK;
}

static calm_status new_embeddings(calm_ctx *ctx, const calm_model *model, size_t n, calm_embeddings *out)
{
    size_t values;
    const calm_config *config = calm_model_config(model);
    *out = (calm_embeddings){.n = n, .width = calm_pooling_width(config), .unit = calm_pooling_is_unit(config)};
    if (!calm_size_mul(&values, out->n, out->width))
        return calm_fail(ctx, CALM_ENOMEM, "embeddings: %zu x %zu overflows", out->n, out->width);
    return CALM_NEW(ctx, ctx->out, out->x, values);
}

static calm_status load_blocks(calm_ctx *ctx, const calm_model *model, calm_arena *arena, calm_block **out)
{
    const size_t n = calm_model_config(model)->n_blocks;
    CALM_SCOPED_OUT(ctx, arena);
    CALM_TRY(CALM_NEW(ctx, ctx->out, *out, n));
    for (size_t i = 0; i < n; i++)
        CALM_TRY(calm_model_load_block(ctx, model, i, &(*out)[i]));
    return CALM_OK;
}

calm_status calm_encode_in_memory(calm_ctx *ctx, const calm_model *model, const calm_windows *windows, size_t batch,
                                  calm_tick_fn *tick, void *tick_user, calm_time *loaded, calm_embeddings *out)
{
    const calm_subject subject = {.model = model};
    encoding e = {&subject, 1, windows, tick, tick_user, .total = windows->n, .batch = batch, .out = out};
    calm_block *blocks;
    CALM_SCOPED_ARENA(arena);
    CALM_TRY(load_blocks(ctx, model, &arena, &blocks));
    e.blocks = blocks;
    *loaded = calm_time_now();
    CALM_TRY(new_embeddings(ctx, model, windows->n, out));
    /* Rows of the embedding table are read again and again, so their pages stay. */
    CALM_SCOPED_RESIDENT(ctx, true);
    return encode_subject(ctx, &e, 0);
}

calm_status calm_encode_all(calm_ctx *ctx, const calm_subject *subjects, size_t n, const calm_windows *windows,
                            calm_tick_fn *tick, void *tick_user, calm_embeddings *out)
{
    encoding e = {subjects, n, windows, tick, tick_user, .total = n * windows->n, .out = out};
    for (size_t s = 0; s < n; s++)
        CALM_TRY(new_embeddings(ctx, subjects[s].model, windows->n, &out[s]));
    for (size_t s = 0; s < n; s++)
        if (!follows(&e, s))
            CALM_TRY(encode_subject(ctx, &e, s));
    return CALM_OK;
}

calm_status calm_encode(calm_ctx *ctx, const calm_subject *subject, const calm_windows *windows, calm_tick_fn *tick,
                        void *tick_user, calm_embeddings *out)
{
    return calm_encode_all(ctx, subject, 1, windows, tick, tick_user, out);
}

size_t calm_encode_step(const calm_config *config, size_t n, size_t longest)
{
    return calm_config_is_mixture(config) ? calm_encode_batch(config, n, longest) : 1;
}

calm_status calm_encode_part(calm_ctx *ctx, const calm_config *config, const calm_windows *windows, size_t part,
                             size_t n_parts, calm_windows *out, size_t *first)
{
    return calm_windows_part(ctx, windows, calm_encode_step(config, windows->n, windows->longest), part, n_parts, out,
                             first);
}

/* ---- distance ---- */

/* Sums in a fixed number of lanes, so that equal rows give equal bits. */
CALM_VECTORIZE static double dot(size_t n, const double *a, const double *b)
{
    double lane[DOT_LANES] = {0}, sum = 0;
    size_t i = 0;
    for (; i + DOT_LANES <= n; i += DOT_LANES)
        for (size_t j = 0; j < DOT_LANES; j++)
            lane[j] += a[i + j] * b[i + j];
    for (; i < n; i++)
        lane[i % DOT_LANES] += a[i] * b[i];
    for (size_t j = 0; j < DOT_LANES; j++)
        sum += lane[j];
    return sum;
}

static double cosine(size_t width, const double *a, const double *b)
{
    /* sqrt(a^2) is exact, so equal embeddings have cosine 1. */
    const double lengths = sqrt(dot(width, a, a) * dot(width, b, b));
    return lengths > 0 ? fmin(fmax(dot(width, a, b) / lengths, -1), 1) : 0;
}

/* Computes the figures over all sentences from those of each. */
static void sum_up(calm_embedding_result *out)
{
    out->cosine_min = 1;
    for (size_t i = 0; i < out->n; i++) {
        out->error += out->each[i].error / (double)out->n;
        out->cosine += out->each[i].cosine / (double)out->n;
        out->cosine_min = fmin(out->cosine_min, out->each[i].cosine);
    }
}

static calm_status measure(calm_ctx *ctx, const calm_embeddings *reference, const calm_embeddings *found,
                           calm_embedding_result *out)
{
    const size_t width = reference->width;
    for (size_t i = 0; i < out->n; i++) {
        const double *f = reference->x + i * width, *q = found->x + i * width, length = dot(width, f, f);
        const double own = dot(width, q, q);
        const double scale = reference->unit == found->unit ? 1 : own > 0 ? sqrt(length / own) : 0;
        double square = 0;
        if (!(length > 0))
            return calm_fail(ctx, CALM_ENUMERIC, "the reference's embedding of sentence %zu is 0", i);
        for (size_t j = 0; j < width; j++)
            square += (scale * q[j] - f[j]) * (scale * q[j] - f[j]);
        out->each[i] = (calm_embedding_distance){sqrt(square / length), cosine(width, q, f)};
    }
    sum_up(out);
    return CALM_OK;
}

/* ---- pairs ---- */

typedef struct pairing {
    const calm_embeddings *from;
    double *cosines;    /* pair (i, j), j < i, is number i (i - 1) / 2 + j */
} pairing;

static void pair_sentence(size_t i, void *user)
{
    const pairing *task = user;
    const size_t width = task->from->width;
    for (size_t j = 0; j < i; j++)
        task->cosines[i * (i - 1) / 2 + j] = cosine(width, task->from->x + i * width, task->from->x + j * width);
}

typedef struct ranked {
    double value;
    size_t index;
} ranked;

static int by_value(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    return (x->value > y->value) - (x->value < y->value);
}

calm_status calm_ranks(calm_ctx *ctx, const double *values, size_t n, double *ranks)
{
    CALM_SCOPED_SCRATCH(ctx);
    ranked *sorted;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, sorted, n));
    for (size_t i = 0; i < n; i++)
        sorted[i] = (ranked){values[i], i};
    qsort(sorted, n, sizeof *sorted, by_value);
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && !(sorted[end].value > sorted[i].value);)
            end++;
        for (size_t k = i; k < end; k++)
            ranks[sorted[k].index] = ((double)i + 1 + (double)end) / 2;    /* mean of i + 1 .. end */
    }
    return CALM_OK;
}

double calm_rank_correlation(const double *a, const double *b, size_t n)
{
    const double mean = ((double)n + 1) / 2;    /* the mean of any ranks, with or without ties */
    double ab = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < n; i++) {
        ab += (a[i] - mean) * (b[i] - mean);
        aa += (a[i] - mean) * (a[i] - mean);
        bb += (b[i] - mean) * (b[i] - mean);
    }
    return aa > 0 && bb > 0 ? ab / (sqrt(aa) * sqrt(bb)) : NAN;
}

static calm_status rank_pairs(calm_ctx *ctx, const calm_embeddings *from, size_t sentences, size_t pairs, double *ranks)
{
    pairing task = {.from = from};
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, task.cosines, pairs));
    calm_parallel_each(ctx, sentences, pair_sentence, &task);
    return calm_ranks(ctx, task.cosines, pairs, ranks);
}

static size_t count_pairs(size_t n)
{
    return n * (n - 1) / 2;
}

size_t calm_embedding_compare_bytes(size_t n)
{
    return CALM_BYTES(calm_embedding_distance, n);
}

size_t calm_embedding_compare_scratch_bytes(size_t n)
{
    const size_t pairs = count_pairs(calm_size_min(n, CALM_PAIRED_SENTENCES));
    return 3 * CALM_BYTES(double, pairs) + CALM_BYTES(ranked, pairs);
}

static calm_status correlate(calm_ctx *ctx, const calm_embeddings *reference, const calm_embeddings *found,
                             calm_embedding_result *out)
{
    const size_t n = calm_size_min(out->n, CALM_PAIRED_SENTENCES);
    CALM_SCOPED_SCRATCH(ctx);
    double *a, *b;
    out->pairs = count_pairs(n);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, a, out->pairs));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, b, out->pairs));
    CALM_TRY(rank_pairs(ctx, reference, n, out->pairs, a));
    CALM_TRY(rank_pairs(ctx, found, n, out->pairs, b));
    out->spearman = calm_rank_correlation(a, b, out->pairs);
    return CALM_OK;
}

calm_status calm_embedding_compare(calm_ctx *ctx, const calm_embeddings *reference, const calm_embeddings *found,
                                   calm_embedding_result *out)
{
    *out = (calm_embedding_result){.n = reference->n};
    if (reference->n != found->n || reference->width != found->width)
        return calm_fail(ctx, CALM_EARG, "%zu embeddings of width %zu cannot be compared with %zu of width %zu",
                         found->n, found->width, reference->n, reference->width);
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->each, out->n));
    CALM_TRY(measure(ctx, reference, found, out));
    return correlate(ctx, reference, found, out);
}

calm_status calm_embedding_join(calm_ctx *ctx, const calm_embedding_result *parts, size_t n,
                                calm_embedding_result *out)
{
    size_t at = 0;
    *out = (calm_embedding_result){.spearman = NAN};
    for (size_t i = 0; i < n; i++)
        out->n += parts[i].n;
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->each, out->n));
    for (size_t i = 0; i < n; i++)
        for (size_t s = 0; s < parts[i].n; s++)
            out->each[at++] = parts[i].each[s];
    sum_up(out);
    return CALM_OK;
}
