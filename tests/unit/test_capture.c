/* Capture of a block: statistics equal naive ones, rows are the right ones, and no number of threads changes a byte. */
#include "ptq/calib/capture.h"

#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

#define N_WINDOWS 5
#define SCORE_WINDOWS 2

static const size_t lengths[N_WINDOWS] = {9, 17, 2, 30, 12};

/* A model with its first block and the windows' embeddings. */
typedef struct bench {
    calm_model *model;
    calm_windows windows;
    calm_rope rope;
    calm_block block;
    calm_batch batch;
} bench;

static bench new_bench(const char *dir)
{
    bench b = {.windows = tiny_windows(lengths, N_WINDOWS)};
    ck_ok(calm_model_open(ctx, dir, &b.model));
    ck_ok(calm_rope_init(ctx, calm_model_config(b.model), 30, &b.rope));
    ck_ok(calm_model_load_block(ctx, b.model, 0, &b.block));
    return b;
}

static calm_capture capture(bench *b, int threads)
{
    const calm_capture_options options = {.grams = true, .activations = true, .score_windows = SCORE_WINDOWS};
    calm_capture out;
    ctx->n_threads = threads;
    ck_ok(calm_batch_embed(ctx, b->model, &b->windows, 0, N_WINDOWS, ctx->out, &b->batch));
    ck_ok(calm_capture_block(ctx, &b->block, &b->rope, &b->batch, &options, &out));
    return out;
}

/* All rows that pass each hook point, one after the other. */
typedef struct recording {
    float *rows[CALM_N_HOOKS];
    size_t n[CALM_N_HOOKS], width[CALM_N_HOOKS];
} recording;

static calm_status record(void *user, calm_ctx *task, calm_hook hook, size_t window, const float *x, size_t n, size_t width)
{
    recording *r = user;
    (void)task, (void)window;
    if (!r->rows[hook])
        ck_ok(CALM_NEW(ctx, ctx->out, r->rows[hook], 70 * width));
    memcpy(r->rows[hook] + r->n[hook] * width, x, n * width * sizeof *x);
    r->n[hook] += n;
    r->width[hook] = width;
    return CALM_OK;
}

static recording record_block(const bench *b, calm_batch *batch)
{
    static recording r;
    const calm_observer observer = {record, &r, 0};
    r = (recording){0};
    ctx->n_threads = 1;
    ck_ok(calm_batch_embed(ctx, b->model, &b->windows, 0, N_WINDOWS, ctx->out, batch));
    ck_ok(calm_batch_block(ctx, &b->block, &b->rope, batch, &observer));
    return r;
}

static void check_channels(const calm_stats *stats, const float *x, size_t n, size_t width)
{
    for (size_t i = 0; i < width; i++) {
        double sum = 0, sumsq = 0, sumabs = 0;
        float absmax = 0;
        for (size_t t = 0; t < n; t++) {
            const float value = x[t * width + i];
            sum += (double)value;
            sumsq += (double)value * (double)value;
            sumabs += (double)fabsf(value);
            absmax = fabsf(value) > absmax ? fabsf(value) : absmax;
        }
        ck_assert(stats->absmax[i] == absmax);
        ck_near(stats->sum[i], sum, 1e-13 * sumabs);
        ck_near(stats->sumsq[i], sumsq, 1e-13 * sumsq);
        ck_near(stats->sumabs[i], sumabs, 1e-13 * sumabs);
    }
}

/* Float32 products of at most the 30 rows of a window, sums over windows in double. */
static void check_gram(const double *gram, const float *x, size_t n, size_t width)
{
    for (size_t i = 0; i < width; i++)
        for (size_t j = 0; j < width; j++) {
            double sum = 0, size = 0;
            for (size_t t = 0; t < n; t++) {
                const double term = (double)x[t * width + i] * (double)x[t * width + j];
                sum += term;
                size += fabs(term);
            }
            ck_near(gram[i * width + j], sum, 30 * 0x1p-24 * size);
            ck_assert(gram[i * width + j] == gram[j * width + i]);
        }
}

TEST(statistics_equal_naive_ones)
{
    tiny_model spec = tiny_default;
    spec.bias = true;
    bench b = new_bench(tiny_model_write(&spec));
    const calm_capture found = capture(&b, 2);
    calm_batch batch;
    const recording r = record_block(&b, &batch);
    for (calm_job_kind job = 0; job < CALM_N_JOBS; job++) {
        const calm_hook hook = calm_job_input(job);
        ck_assert_uint_eq(found.width[job], r.width[hook]);
        ck_assert_uint_eq(found.stats[job].rows, 70);
        check_channels(&found.stats[job], r.rows[hook], 70, r.width[hook]);
        check_gram(found.stats[job].gram, r.rows[hook], 70, r.width[hook]);
        ck_assert(memcmp(found.score_input[job], r.rows[hook], found.score_rows * r.width[hook] * sizeof(float)) == 0);
    }
    ck_assert_uint_eq(found.score_rows, 9 + 17);
    const size_t bytes = found.score_rows * 32 * sizeof(float);
    ck_assert(memcmp(found.score_output[CALM_SUBLAYER_ATTENTION], r.rows[CALM_HOOK_ATTN_OUT], bytes) == 0);
    ck_assert(memcmp(found.score_output[CALM_SUBLAYER_MLP], r.rows[CALM_HOOK_MLP_OUT], bytes) == 0);
    /* The batch has moved on to the block's output. */
    ck_assert(memcmp(b.batch.hidden, batch.hidden, 70 * 32 * sizeof(float)) == 0);
    for (calm_hook hook = 0; hook < CALM_N_HOOKS; hook++) {
        ck_assert((found.activations[hook] != NULL) == (r.rows[hook] != NULL));
        if (r.rows[hook])
            ck_assert_uint_eq(found.activations[hook]->count, 70 * r.width[hook]);
    }
    calm_model_close(b.model);
}
END_OF_TEST

/* The score point: what each job's own input gives is what the sublayer gave. */
TEST(score_outputs_follow_from_score_inputs)
{
    bench b = new_bench(tiny_model_write(&tiny_default));
    const calm_capture found = capture(&b, 2);
    float out[17 * 32];
    for (calm_job_kind job = 0; job < CALM_N_JOBS; job++) {
        const float *input = found.score_input[job] + 9 * found.width[job];    /* the second window */
        const float *expected = found.score_output[calm_job_sublayer(job)] + 9 * 32;
        ck_ok(calm_block_from_job(ctx, &b.block, &b.rope, job, input, 17, out));
        for (size_t i = 0; i < 17 * 32; i++)
            ck_near(out[i], expected[i], 1e-5);
    }
    calm_model_close(b.model);
}
END_OF_TEST

static void same_accumulators(const calm_act_acc *a, const calm_act_acc *b)
{
    calm_act_summary first, second;
    ck_assert_uint_eq(a->n_tokens, b->n_tokens);
    ck_assert(a->sum == b->sum && a->sumsq == b->sumsq && a->sumabs == b->sumabs && a->min == b->min && a->max == b->max);
    ck_assert(memcmp(a->histogram, b->histogram, sizeof a->histogram) == 0);
    ck_assert(a->n_top == b->n_top && memcmp(a->top, b->top, a->n_top * sizeof *a->top) == 0);
    ck_assert(memcmp(a->peak, b->peak, a->n_tokens * sizeof *a->peak) == 0);
    ck_assert(memcmp(a->ratio, b->ratio, a->n_tokens * sizeof *a->ratio) == 0);
    memset(&first, 0, sizeof first), memset(&second, 0, sizeof second);
    calm_act_summarize(a, &first);
    calm_act_summarize(b, &second);
    ck_assert(memcmp(&first, &second, sizeof first) == 0);
}

TEST(same_bytes_for_every_number_of_threads)
{
    static const int threads[] = {1, 2, 4};
    bench b = new_bench(tiny_model_write(&tiny_default));
    const calm_capture first = capture(&b, 1);
    const float *hidden = b.batch.hidden;
    for (size_t t = 1; t < 3; t++) {
        const calm_capture other = capture(&b, threads[t]);
        ck_assert(memcmp(hidden, b.batch.hidden, 70 * 32 * sizeof *hidden) == 0);
        for (calm_job_kind job = 0; job < CALM_N_JOBS; job++) {
            const calm_stats *x = &first.stats[job], *y = &other.stats[job];
            const size_t width = first.width[job];
            ck_assert(memcmp(x->gram, y->gram, width * width * sizeof *x->gram) == 0);
            ck_assert(memcmp(x->absmax, y->absmax, width * sizeof *x->absmax) == 0);
            ck_assert(memcmp(x->sum, y->sum, width * sizeof *x->sum) == 0);
            ck_assert(memcmp(x->sumsq, y->sumsq, width * sizeof *x->sumsq) == 0);
            ck_assert(memcmp(x->sumabs, y->sumabs, width * sizeof *x->sumabs) == 0);
        }
        for (calm_hook hook = 0; hook < CALM_N_HOOKS; hook++)
            if (first.activations[hook])
                same_accumulators(first.activations[hook], other.activations[hook]);
    }
    calm_model_close(b.model);
}
END_OF_TEST

TEST(only_what_is_asked_for)
{
    const calm_capture_options nothing = {0};
    bench b = new_bench(tiny_model_write(&tiny_default));
    calm_capture out;
    calm_act_acc *rows;
    ck_ok(calm_batch_embed(ctx, b.model, &b.windows, 0, N_WINDOWS, ctx->out, &b.batch));
    ck_ok(calm_capture_rows(ctx, &b.batch, &rows));
    ck_assert_uint_eq(rows->n_tokens, 70);
    ck_assert_uint_eq(rows->count, 70 * 32);
    ck_ok(calm_capture_block(ctx, &b.block, &b.rope, &b.batch, &nothing, &out));
    ck_assert_uint_eq(out.score_rows, 0);
    for (calm_job_kind job = 0; job < CALM_N_JOBS; job++) {
        ck_assert_ptr_null(out.stats[job].gram);
        ck_assert_ptr_nonnull(out.stats[job].absmax);
    }
    for (calm_hook hook = 0; hook < CALM_N_HOOKS; hook++)
        ck_assert_ptr_null(out.activations[hook]);
    calm_model_close(b.model);
}
END_OF_TEST

int main(void)
{
    return run_tests("capture", (const TTest *[]){
        statistics_equal_naive_ones, score_outputs_follow_from_score_inputs, same_bytes_for_every_number_of_threads,
        only_what_is_asked_for, NULL});
}
