/* Capture of a sublayer: statistics equal naive ones and rows are the right ones; the bytes depend neither on the
 * number of threads, nor on what is captured together, nor on where rows are kept. */
#include "ptq/calib/capture.h"

#include "tests/support/first_block.h"
#include "tests/support/harness.h"
#include "tests/support/same_capture.h"
#include "tests/support/tiny_model.h"

#define N_WINDOWS 5
#define SCORE_WINDOWS 2

static const size_t lengths[N_WINDOWS] = {9, 17, 2, 30, 12};

static const calm_capture_options everything = {.jobs = CALM_CAPTURE_ALL_JOBS, .grams = true, .samples = true,
                                                .activations = true, .score_windows = SCORE_WINDOWS};

/* Both sublayers of the block. */
typedef struct captured {
    calm_capture sublayer[CALM_N_SUBLAYERS];
} captured;

static const calm_job_capture *job_of(const captured *c, calm_job_kind kind)
{
    return &c->sublayer[calm_job_sublayer(kind)].job[kind];
}

/* Returns the statistics of a hook, NULL if there are none. */
static const calm_actstat_acc *activations_of(const captured *c, calm_hook hook)
{
    const calm_actstat_acc *first = c->sublayer[0].activations[hook], *second = c->sublayer[1].activations[hook];
    ck_assert(!first || !second);
    return first ? first : second;
}

static captured capture_with(first_block *b, int threads, const calm_capture_options *options)
{
    captured out;
    ctx->n_threads = threads;
    first_block_embed(b);
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++)
        ck_ok(calm_capture_sublayer(ctx, &b->block, s, CALM_NO_EXPERT, &b->rope, &b->batch, options, &out.sublayer[s]));
    return out;
}

static captured capture(first_block *b, int threads)
{
    return capture_with(b, threads, &everything);
}

/* All rows at each hook, one after the other. */
typedef struct recording {
    float *rows[CALM_N_HOOKS];
    size_t n[CALM_N_HOOKS], width[CALM_N_HOOKS];
} recording;

static calm_status record(void *user, calm_ctx *task, const calm_observation *seen)
{
    recording *r = user;
    (void)task;
    ck_assert_int_eq(seen->expert, CALM_NO_EXPERT);
    if (!r->rows[seen->hook])
        ck_ok(CALM_NEW(ctx, ctx->out, r->rows[seen->hook], 70 * seen->width));
    memcpy(r->rows[seen->hook] + r->n[seen->hook] * seen->width, seen->x, seen->n_rows * seen->width * sizeof *seen->x);
    r->n[seen->hook] += seen->n_rows;
    r->width[seen->hook] = seen->width;
    return CALM_OK;
}

static recording record_block(const first_block *b, calm_batch *batch)
{
    static recording r;
    const calm_observer observer = {record, &r};
    r = (recording){0};
    ctx->n_threads = 1;
    ck_ok(calm_batch_embed(ctx, b->model, &b->windows, 0, N_WINDOWS, ctx->out, NULL, batch));
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

TEST(statistics_equal_naive_ones)
{
    tiny_model spec = tiny_default;
    spec.bias = true;
    first_block b = first_block_open(tiny_model_write(&spec), lengths, N_WINDOWS);
    const captured found = capture(&b, 2);
    calm_batch batch;
    const recording r = record_block(&b, &batch);
    for (calm_job_kind kind = 0; kind < TINY_N_JOBS; kind++) {
        const calm_hook hook = calm_job_input(kind);
        const calm_job_capture *job = job_of(&found, kind);
        ck_assert(job->used);
        ck_assert_uint_eq(job->width, r.width[hook]);
        ck_assert_uint_eq(job->stats.rows, 70);
        check_channels(&job->stats, r.rows[hook], 70, r.width[hook]);
        near_gram(job->stats.gram, r.rows[hook], 70, r.width[hook]);
        ck_assert_uint_eq(job->stats.n_samples, 70);    /* few enough that all are kept */
        ck_assert(memcmp(job->stats.samples, r.rows[hook], 70 * r.width[hook] * sizeof(float)) == 0);
        ck_assert(memcmp(job->score_input, r.rows[hook], (9 + 17) * r.width[hook] * sizeof(float)) == 0);
    }
    const size_t bytes = (9 + 17) * 32 * sizeof(float);
    const calm_capture *attention = &found.sublayer[CALM_SUBLAYER_ATTENTION], *mlp = &found.sublayer[CALM_SUBLAYER_MLP];
    ck_assert_uint_eq(attention->score_rows, 9 + 17);
    ck_assert_uint_eq(mlp->score_rows, 9 + 17);
    ck_assert(memcmp(attention->score_output, r.rows[CALM_HOOK_ATTN_OUT], bytes) == 0);
    ck_assert(memcmp(mlp->score_output, r.rows[CALM_HOOK_MLP_OUT], bytes) == 0);
    /* The batch now has the block's output. */
    ck_assert(memcmp(b.batch.hidden.data, batch.hidden.data, 70 * 32 * sizeof(float)) == 0);
    for (calm_hook hook = 0; hook < CALM_N_HOOKS; hook++) {
        ck_assert((activations_of(&found, hook) != NULL) == (r.rows[hook] != NULL));
        if (r.rows[hook])
            ck_assert_uint_eq(activations_of(&found, hook)->count, 70 * r.width[hook]);
    }
    calm_model_close(b.model);
}
END_OF_TEST

/* ---- kept rows ---- */

TEST(so_many_rows_are_kept)
{
    static const struct {
        size_t rows, width, count;    /* every row, every 2nd, 7th or 8th */
    } cases[] = {{0, 640, 0},         {1, 640, 1},         {8192, 640, 8192},    {16383, 640, 16383},
                 {16384, 640, 8192},  {16385, 640, 8193},  {65536, 640, 8192},   {65536, 1024, 8192},
                 {65536, 1025, 9363}, {65536, 3072, 32768}, {65536, 8192, 65536}, {100, 8192, 100}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ck_assert_uint_eq(calm_sample_count(cases[i].rows, cases[i].width), cases[i].count);
}
END_OF_TEST

/* One row of each `step` is kept, the same one for any pieces in which rows come. */
TEST(kept_rows_come_in_pieces)
{
    enum { N = 40, WIDTH = 3 };
    static const size_t pieces[][4] = {{40, 0, 0, 0}, {1, 1, 37, 1}, {2, 3, 4, 31}, {3, 3, 30, 4}, {5, 0, 9, 26}};
    float x[N * WIDTH];
    for (size_t i = 0; i < N * WIDTH; i++)
        x[i] = (float)i;
    for (size_t step = 1; step < 7; step++) {
        float whole[N * WIDTH];
        for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++) {
            float kept[N * WIDTH] = {0};
            const calm_job_sums sums = {.samples = kept, .rows = N, .step = step};
            for (size_t first = 0, i = 0; i < 4; first += pieces[p][i++])
                calm_job_samples_keep(&sums, first, x + first * WIDTH, pieces[p][i], WIDTH, NULL);
            if (p == 0)
                memcpy(whole, kept, sizeof kept);
            ck_assert_mem_eq(kept, whole, sizeof kept);
        }
        for (size_t i = 0; i * step < N; i++) {
            const size_t row = (size_t)whole[i * WIDTH] / WIDTH;    /* the first value is the row's number */
            ck_assert_uint_ge(row, i * step);
            ck_assert_uint_lt(row, calm_size_min((i + 1) * step, N));
            ck_assert_mem_eq(whole + i * WIDTH, x + row * WIDTH, WIDTH * sizeof *x);
        }
        for (size_t i = (N + step - 1) / step * WIDTH; i < N * WIDTH; i++)
            ck_assert(whole[i] == 0);    /* memory beyond calm_sample_count() is not written */
    }
}
END_OF_TEST

/* 128 windows of 512 tokens, of which every eighth row is kept: no place in a window is kept more often than by chance,
 * above all not the first, where activations are unlike all others.
 *
 * Each row is kept with probability 1/8, and rows of different groups of eight are independent.  Of the 128 first
 * rows 16 are expected, with a standard deviation of sqrt(128 (1/8) (7/8)) = 3.7; of the 8,192 rows at one place
 * modulo 8, 1024 with 29.9.  The bound is five of these: 1 of 3 million draws exceeds it, and this draw never
 * changes. */
TEST(kept_rows_favour_no_place_in_a_window)
{
    enum { WINDOW = 512, WINDOWS = 128, N = WINDOW * WINDOWS, STEP = 8 };
    static float x[N], kept[N / STEP];
    size_t first = 0, at[STEP] = {0};
    const calm_job_sums sums = {.samples = kept, .rows = N, .step = STEP};
    ck_assert_uint_eq(calm_sample_count(N, 1), N / STEP);
    for (size_t i = 0; i < N; i++)
        x[i] = (float)i;
    for (size_t w = 0; w < WINDOWS; w++)
        calm_job_samples_keep(&sums, w * WINDOW, x + w * WINDOW, WINDOW, 1, NULL);
    for (size_t i = 0; i < N / STEP; i++) {
        first += (size_t)kept[i] % WINDOW == 0;
        at[(size_t)kept[i] % STEP]++;
    }
    ck_near((double)first, 16, 5 * 3.75);
    for (size_t i = 0; i < STEP; i++)
        ck_near((double)at[i], 1024, 5 * 29.95);
}
END_OF_TEST

/* More rows than are kept: one of every two, counted across windows of odd length. */
TEST(one_of_two_rows_of_many)
{
    enum { WINDOWS = 547, LENGTH = 31, ROWS = WINDOWS * LENGTH };    /* 16957: twice 8192 and some */
    static size_t many[WINDOWS];
    const calm_capture_options options = {.jobs = 1u << CALM_JOB_QKV, .samples = true};
    calm_capture found;
    float *input;
    for (size_t i = 0; i < WINDOWS; i++)
        many[i] = LENGTH;
    first_block b = first_block_open(tiny_model_write(&tiny_default), many, WINDOWS);
    first_block_embed(&b);
    ck_ok(CALM_NEW(ctx, ctx->out, input, ROWS * 32));
    calm_norm_rows(&b.block.norm[CALM_SUBLAYER_ATTENTION][CALM_NORM_IN], b.batch.hidden.data, ROWS, input);
    ctx->n_threads = 2;
    ck_ok(calm_capture_sublayer(ctx, &b.block, CALM_SUBLAYER_ATTENTION, CALM_NO_EXPERT, &b.rope, &b.batch, &options,
                                &found));
    const calm_stats *stats = &found.job[CALM_JOB_QKV].stats;
    ck_assert_uint_eq(stats->rows, ROWS);
    ck_assert_uint_eq(stats->n_samples, (ROWS + 1) / 2);
    size_t second = 0;
    for (size_t i = 0; i < stats->n_samples; i++) {
        const float *pair = input + 2 * i * 32;
        const bool is_first = memcmp(stats->samples + i * 32, pair, 32 * sizeof *pair) == 0;
        if (!is_first)    /* the last row has no partner */
            ck_assert_mem_eq(stats->samples + i * 32, pair + 32 * (2 * i + 1 < ROWS), 32 * sizeof *pair);
        second += !is_first;
    }
    ck_assert_uint_gt(second, 0);
    ck_assert_uint_lt(second, stats->n_samples);
    calm_model_close(b.model);
}
END_OF_TEST

/* The first two windows, of 9 and 17 rows, are held out: statistics for fits have the other rows only, scores and
 * activation statistics are unchanged; for groups of any size. */
TEST(windows_that_are_held_out)
{
    enum { HELD = 9 + 17, FITTED = 70 - HELD };
    first_block b = first_block_open(tiny_model_write(&tiny_default), lengths, N_WINDOWS);
    const captured all = capture(&b, 2);
    calm_batch batch;
    const recording r = record_block(&b, &batch);
    for (size_t group = 0; group <= 40000; group += 20000) {
        calm_capture_options options = everything;
        options.held_windows = 2;
        options.group_bytes = group ? group - 19999 : 0;    /* the default, window by window, a few at once */
        const captured found = capture_with(&b, 2, &options);
        for (calm_job_kind kind = 0; kind < TINY_N_JOBS; kind++) {
            const calm_job_capture *job = job_of(&found, kind);
            const size_t width = job->width;
            const float *x = r.rows[calm_job_input(kind)] + HELD * width;
            ck_assert_uint_eq(job->stats.rows, FITTED);
            check_channels(&job->stats, x, FITTED, width);
            near_gram(job->stats.gram, x, FITTED, width);
            ck_assert_uint_eq(job->stats.n_samples, FITTED);
            ck_assert_mem_eq(job->stats.samples, x, FITTED * width * sizeof *x);
            ck_assert_mem_eq(job->score_input, job_of(&all, kind)->score_input, HELD * width * sizeof *x);
        }
        for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++) {
            ck_assert_uint_eq(found.sublayer[s].rows, FITTED);
            ck_assert_uint_eq(found.sublayer[s].tokens, 70);
            ck_assert_uint_eq(found.sublayer[s].score_rows, HELD);
            ck_assert_mem_eq(found.sublayer[s].score_output, all.sublayer[s].score_output, HELD * 32 * sizeof(float));
        }
        for (calm_hook hook = 0; hook < CALM_N_HOOKS; hook++)
            same_accumulators(activations_of(&found, hook), activations_of(&all, hook));
        calm_batch_close(&b.batch);
    }
    calm_model_close(b.model);
}
END_OF_TEST

/* Compares outputs of a sublayer for n tokens, whose products have other numbers of rows and other orders of sums.  A
 * value passes at most q or v, the keys, o, or gate and down; a sum of k terms of random signs errs by about k 2^-24 of
 * itself: its magnitudes add up to sqrt(k) times it, its k roundings have random signs. */
static void same_outputs(const float *found, const float *expected, size_t n)
{
    double largest = 0;
    for (size_t i = 0; i < n * 32; i++)
        largest = fmax(largest, fabs((double)expected[i]));
    for (size_t i = 0; i < n * 32; i++)
        ck_near(found[i], expected[i], (double)(32 + n + 32 + tiny_default.inner) * 0x1p-24 * largest);
}

/* Each job's kept inputs give the kept outputs of its sublayer. */
TEST(score_outputs_follow_from_score_inputs)
{
    first_block b = first_block_open(tiny_model_write(&tiny_default), lengths, N_WINDOWS);
    const captured found = capture(&b, 2);
    const calm_span span = {.n_tokens = 17};
    float out[17 * 32];
    for (calm_job_kind kind = 0; kind < TINY_N_JOBS; kind++) {
        const calm_job_capture *job = job_of(&found, kind);
        const float *input = job->score_input + 9 * job->width;    /* the second window */
        const float *expected = found.sublayer[calm_job_sublayer(kind)].score_output + 9 * 32;
        ck_ok(calm_block_from_job(ctx, &b.block, &b.rope, kind, input, &span, out));
        same_outputs(out, expected, 17);
    }
    calm_model_close(b.model);
}
END_OF_TEST

/* The first 12 tokens of each scoring window, all 9 of the first: the same rows as from whole windows, and a
 * sublayer's inputs give its outputs without the later tokens. */
TEST(beginnings_of_windows)
{
    enum { TOKENS = 12 };
    first_block b = first_block_open(tiny_model_write(&tiny_default), lengths, N_WINDOWS);
    const captured whole = capture(&b, 2);
    calm_capture_options options = everything;
    calm_windows cut;
    calm_batch rows, began;
    options.score_tokens = TOKENS;
    const captured found = capture_with(&b, 2, &options);
    ck_ok(calm_windows_cut(ctx, &b.windows, SCORE_WINDOWS, TOKENS, &cut));
    ck_ok(calm_batch_embed(ctx, b.model, &b.windows, 0, N_WINDOWS, ctx->out, NULL, &began));
    ck_ok(calm_batch_cut(ctx, &began, &cut, ctx->out, &rows));
    ck_assert_uint_eq(rows.rows, 9 + TOKENS);
    ck_assert(memcmp(rows.hidden.data, began.hidden.data, (9 + TOKENS) * 32 * sizeof(float)) == 0);
    for (calm_job_kind kind = 0; kind < TINY_N_JOBS; kind++) {
        const calm_job_capture *job = job_of(&found, kind);
        const calm_span span = calm_batch_span(&rows, 1);
        const float *expected = found.sublayer[calm_job_sublayer(kind)].score_output + 9 * 32;
        float out[TOKENS * 32];
        same_job(job_of(&whole, kind), job, 9 + TOKENS);
        ck_assert_uint_eq(span.n_tokens, TOKENS);
        ck_ok(calm_block_from_job(ctx, &b.block, &b.rope, kind, job->score_input + 9 * job->width, &span, out));
        same_outputs(out, expected, TOKENS);
    }
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++) {
        ck_assert_uint_eq(found.sublayer[s].score_rows, 9 + TOKENS);
        ck_assert(memcmp(found.sublayer[s].score_output, whole.sublayer[s].score_output,
                         (9 + TOKENS) * 32 * sizeof(float)) == 0);
    }
    calm_model_close(b.model);
}
END_OF_TEST

static void same_capture(const captured *a, const captured *b)
{
    const size_t rows = a->sublayer[0].score_rows;
    for (calm_job_kind kind = 0; kind < TINY_N_JOBS; kind++) {
        ck_assert(job_of(a, kind)->stats.gram != NULL);
        same_job(job_of(a, kind), job_of(b, kind), rows);
    }
    for (calm_hook hook = 0; hook < CALM_N_HOOKS; hook++)
        same_accumulators(activations_of(a, hook), activations_of(b, hook));
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++) {
        ck_assert_uint_eq(a->sublayer[s].score_rows, b->sublayer[s].score_rows);
        ck_assert(memcmp(a->sublayer[s].score_output, b->sublayer[s].score_output, rows * 32 * sizeof(float)) == 0);
    }
}

TEST(same_bytes_for_every_number_of_threads)
{
    static const int threads[] = {1, 2, 4};
    first_block b = first_block_open(tiny_model_write(&tiny_default), lengths, N_WINDOWS);
    const captured first = capture(&b, 1);
    const float *hidden = b.batch.hidden.data;
    for (size_t t = 1; t < 3; t++) {
        const captured other = capture(&b, threads[t]);
        ck_assert(memcmp(hidden, b.batch.hidden.data, 70 * 32 * sizeof *hidden) == 0);
        same_capture(&first, &other);
    }
    calm_model_close(b.model);
}
END_OF_TEST

TEST(same_bytes_for_every_group)
{
    static const size_t bytes[] = {1, 20000, 1 << 20};    /* one window, a few, all */
    first_block b = first_block_open(tiny_model_write(&tiny_default), lengths, N_WINDOWS);
    const captured first = capture(&b, 2);
    for (size_t i = 0; i < 3; i++) {
        calm_capture_options options = everything;
        options.group_bytes = bytes[i];
        const captured other = capture_with(&b, 2, &options);
        same_capture(&first, &other);
    }
    calm_model_close(b.model);
}
END_OF_TEST

/* Passes that leave rows for the next pass give what a single pass gives. */
TEST(one_kind_of_jobs_after_the_other)
{
    first_block b = first_block_open(tiny_model_write(&tiny_default), lengths, N_WINDOWS);
    const captured whole = capture(&b, 2);
    const float *moved = b.batch.hidden.data;
    calm_batch batch;
    ck_ok(calm_batch_embed(ctx, b.model, &b.windows, 0, N_WINDOWS, ctx->out, NULL, &batch));
    float before[70 * 32];
    for (calm_job_kind kind = 0; kind < TINY_N_JOBS; kind++) {
        calm_capture_options options = everything;
        const calm_sublayer s = calm_job_sublayer(kind);
        const bool last = kind + 1 == TINY_N_JOBS || calm_job_sublayer(kind + 1) != s;
        calm_capture found;
        options.jobs = 1u << kind;
        options.stay = !last;
        memcpy(before, batch.hidden.data, sizeof before);
        ck_ok(calm_capture_sublayer(ctx, &b.block, s, CALM_NO_EXPERT, &b.rope, &batch, &options, &found));
        ck_assert((memcmp(before, batch.hidden.data, sizeof before) == 0) == !last);
        for (calm_job_kind other = 0; other < TINY_N_JOBS; other++)
            ck_assert(found.job[other].used == (other == kind));
        same_job(job_of(&whole, kind), &found.job[kind], found.score_rows);
        ck_assert(memcmp(whole.sublayer[s].score_output, found.score_output, found.score_rows * 32 * sizeof(float)) ==
                  0);
        for (calm_hook hook = 0; hook < CALM_N_HOOKS; hook++)
            same_accumulators(whole.sublayer[s].activations[hook], found.activations[hook]);
    }
    ck_assert(memcmp(moved, batch.hidden.data, 70 * 32 * sizeof *moved) == 0);
    calm_model_close(b.model);
}
END_OF_TEST

/* Hidden states in a file give what hidden states in memory give. */
TEST(rows_in_a_file)
{
    first_block b = first_block_open(tiny_model_write(&tiny_default), lengths, N_WINDOWS);
    const captured first = capture(&b, 2);
    const float *expected = b.batch.hidden.data;
    captured found;
    calm_batch batch;
    calm_actstat_acc *rows, *spilled, **of_text;
    float *moved;
    ck_ok(calm_capture_rows(ctx, &b.batch, &rows, &of_text));
    ck_ok(calm_batch_embed(ctx, b.model, &b.windows, 0, N_WINDOWS, ctx->out, test_directory(), &batch));
    ck_assert_ptr_null(batch.hidden.data);
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++)
        ck_ok(
            calm_capture_sublayer(ctx, &b.block, s, CALM_NO_EXPERT, &b.rope, &batch, &everything, &found.sublayer[s]));
    same_capture(&first, &found);
    ck_ok(calm_row_store_get(ctx, &batch.hidden, 0, 70, &moved));
    ck_assert(memcmp(moved, expected, 70 * 32 * sizeof *moved) == 0);
    ck_ok(calm_capture_rows(ctx, &batch, &spilled, &of_text));
    same_accumulators(rows, spilled);
    calm_batch_close(&batch);
    calm_model_close(b.model);
}
END_OF_TEST

TEST(only_what_is_asked_for)
{
    const calm_capture_options nothing = {0}, sums = {.jobs = 1u << CALM_JOB_DOWN};
    first_block b = first_block_open(tiny_model_write(&tiny_default), lengths, N_WINDOWS);
    calm_actstat_acc *rows, **of_text;
    first_block_embed(&b);
    ck_ok(calm_capture_rows(ctx, &b.batch, &rows, &of_text));
    ck_assert_ptr_null(of_text);    /* a single text */
    ck_assert_uint_eq(rows->n_tokens, 70);
    ck_assert_uint_eq(rows->count, 70 * 32);
    const captured none = capture_with(&b, 2, &nothing), found = capture_with(&b, 2, &sums);
    for (calm_job_kind kind = 0; kind < TINY_N_JOBS; kind++) {
        ck_assert(!job_of(&none, kind)->used);
        ck_assert(job_of(&found, kind)->used == (kind == CALM_JOB_DOWN));
        ck_assert_ptr_null(job_of(&none, kind)->stats.absmax);
        ck_assert_ptr_null(job_of(&found, kind)->stats.gram);
        ck_assert_ptr_null(job_of(&found, kind)->stats.samples);
        ck_assert_uint_eq(job_of(&found, kind)->stats.n_samples, 0);
        ck_assert_ptr_null(job_of(&found, kind)->score_input);
    }
    ck_assert_ptr_nonnull(job_of(&found, CALM_JOB_DOWN)->stats.absmax);
    ck_assert_uint_eq(none.sublayer[0].score_rows, 0);
    for (calm_hook hook = 0; hook < CALM_N_HOOKS; hook++) {
        ck_assert_ptr_null(activations_of(&none, hook));
        ck_assert_ptr_null(activations_of(&found, hook));
    }
    calm_model_close(b.model);
}
END_OF_TEST

/* ---- memory ---- */

/* Four windows of 70 tokens through a sublayer, in one group or one by one; wide enough that chunks count little. */
static void check_memory(const first_block *b, calm_batch *batch, calm_sublayer s, calm_capture_options options,
                         size_t n_threads)
{
    const calm_config *config = calm_model_config(b->model);
    const calm_capture_shape shape = {.config = config, .sublayer = s, .expert = CALM_NO_EXPERT, .rows = 280,
                                      .n_windows = 4, .score_rows = 70 * options.score_windows,
                                      .held_rows = 70 * options.held_windows, .longest = 70,
                                      .in_file = batch->hidden.file >= 0};
    const size_t left = calm_capture_bytes(&shape, &options);
    const size_t held = calm_capture_sublayer_scratch_bytes(&shape, &options, n_threads);
    calm_capture out;
    ctx->n_threads = (int)n_threads;
    test_memory_begin();
    ck_ok(calm_capture_sublayer(ctx, &b->block, s, CALM_NO_EXPERT, &b->rope, batch, &options, &out));
    const test_memory found = test_memory_end();
    ck_assert_uint_eq(found.out, left);
    /* One thread holds all of the estimate at one time.  Of several threads one may end before the last one's peak.
     * Small requests fill three quarters of their chunks. */
    ck_assert_msg(found.most <= left + held + held / 3 + 4 * CALM_ARENA_CHUNK, "took %zu, said %zu", found.most,
                  left + held);
    ck_assert_msg(n_threads > 1 || found.most >= left + held, "took %zu, said %zu", found.most, left + held);
}

TEST(memory)
{
    static const size_t same[] = {70, 70, 70, 70};
    static const char *const families[] = {"qwen3", "phi3", "olmo2", "bert"};
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        tiny_model spec = tiny_of(families[f]);
        spec.hidden = 256;
        spec.head_dim = 64;
        spec.inner = 512;
        first_block b = first_block_open(tiny_model_write(&spec), same, 4);
        for (int variant = 0; variant < 16; variant++) {
            calm_capture_options options = {.jobs = CALM_CAPTURE_ALL_JOBS, .grams = variant & 1, .samples = variant & 1,
                                            .activations = true, .score_windows = variant & 2 ? 3 : 0,
                                            .group_bytes = variant & 4 ? 1 : 0,
                                            .held_windows = variant & 2 ? 2 : 0};
            ck_ok(calm_batch_embed(ctx, b.model, &b.windows, 0, 4, ctx->out, variant & 8 ? test_directory() : NULL,
                                   &b.batch));
            for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++)
                check_memory(&b, &b.batch, s, options, variant & 1 ? 1 : 2);
            options.jobs = 1u << CALM_JOB_DOWN;
            options.inputs = 1u << CALM_JOB_GATE_UP;
            options.stay = true;
            check_memory(&b, &b.batch, CALM_SUBLAYER_MLP, options, 1);
            calm_batch exact;
            ck_ok(calm_batch_copy(ctx, &b.batch, 4, ctx->out, variant & 8 ? test_directory() : NULL, &exact));
            options.exact = &exact;
            options.crosses = options.grams;
            check_memory(&b, &b.batch, CALM_SUBLAYER_MLP, options, 1);
            calm_batch_close(&exact);
            calm_batch_close(&b.batch);
        }
        calm_model_close(b.model);
    }
}
END_OF_TEST

TEST(memory_of_rows)
{
    static const size_t same[] = {40, 40, 40};
    first_block b = first_block_open(tiny_model_write(&tiny_default), lengths, N_WINDOWS);
    calm_actstat_acc *acc, **of_text;
    b.windows = tiny_windows(same, 3);
    ctx->n_threads = 1;
    ck_ok(calm_batch_embed(ctx, b.model, &b.windows, 0, 3, ctx->out, NULL, &b.batch));
    ck_memory(calm_actstat_new(ctx, ctx->out, 32, 120, &acc), calm_actstat_new_bytes(120), 0);
    ck_memory(calm_capture_rows(ctx, &b.batch, &acc, &of_text), calm_actstat_new_bytes(120),
              calm_capture_rows_scratch_bytes(3, 40));
    calm_model_close(b.model);
}
END_OF_TEST

/* The largest number of kept rows for at most N rows. */
TEST(most_samples)
{
    for (size_t width = 512; width <= 4096; width *= 8)
        for (size_t rows = 1; rows < 200000; rows = rows * 7 / 5 + 1) {
            size_t most = 0;
            for (size_t fewer = 0; fewer <= rows; fewer += rows < 1000 || fewer + 997 > rows ? 1 : 997)
                most = calm_size_max(most, calm_sample_count(fewer, width));
            ck_assert_uint_ge(calm_sample_most(rows, width), most);
            ck_assert_uint_le(calm_sample_most(rows, width), rows);
        }
    ck_assert_uint_eq(calm_sample_most(20000, 64), calm_sample_count(16383, 64));
}
END_OF_TEST

int main(void)
{
    return run_tests("capture",
                     (const TTest *[]){statistics_equal_naive_ones, so_many_rows_are_kept, kept_rows_come_in_pieces,
                                       kept_rows_favour_no_place_in_a_window, one_of_two_rows_of_many,
                                       windows_that_are_held_out, score_outputs_follow_from_score_inputs,
                                       beginnings_of_windows,
                                       same_bytes_for_every_number_of_threads, same_bytes_for_every_group,
                                       one_kind_of_jobs_after_the_other, rows_in_a_file, only_what_is_asked_for, memory,
                                       memory_of_rows, most_samples, NULL});
}
