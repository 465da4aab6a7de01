/* Capture of experts: the statistics of each expert equal a slow computation over the tokens routed to it; the bytes
 * depend neither on threads, nor on waves, nor on where hidden states are kept. */
#include "ptq/calib/capture.h"
#include "ptq/calib/gram.h"

#include "tests/support/bounded.h"
#include "tests/support/harness.h"
#include "tests/support/same_capture.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_plan.h"

#define HIDDEN  32
#define EXPERTS 5
#define TOP     2
#define SCORE_WINDOWS 2

static const size_t many[] = {9, 17, 2, 30, 12}, few[] = {2};

/* A mixture block, the hidden states that enter its MLP, and its output. */
typedef struct bench {
    calm_model *model;
    calm_windows windows;
    calm_block block;
    calm_rope rope;
    calm_batch batch;
    calm_routing routing;
    float *rows;           /* [n, HIDDEN], inputs of the sublayer */
    size_t n_rows;
} bench;

static void embed(bench *b, const char *spill_dir)
{
    ck_ok(calm_batch_embed(ctx, b->model, &b->windows, 0, b->windows.n, ctx->out, spill_dir, &b->batch));
    ck_ok(calm_batch_sublayer(ctx, &b->block, CALM_SUBLAYER_ATTENTION, &b->rope, &b->batch, NULL));
}

static void new_bench(bench *b, const char *family, const size_t *lengths, size_t n)
{
    const tiny_model spec = tiny_of(family);
    *b = (bench){.windows = tiny_windows(lengths, n)};
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &b->model));
    ck_ok(calm_rope_init(ctx, calm_model_config(b->model), 30, &b->rope));
    ck_ok(calm_model_load_block(ctx, b->model, 0, &b->block));
    embed(b, NULL);
    b->n_rows = b->batch.rows;
    ck_ok(CALM_NEW(ctx, ctx->out, b->rows, b->n_rows * HIDDEN));
    memcpy(b->rows, b->batch.hidden.data, b->n_rows * HIDDEN * sizeof *b->rows);
}

static const calm_capture_options everything = {.jobs = CALM_CAPTURE_ALL_JOBS, .grams = true, .samples = true,
                                                .activations = true, .score_windows = SCORE_WINDOWS};

/* All experts, captured in waves of `wave` to the end of the sublayer, and what belongs to the block as a whole. */
typedef struct captured {
    calm_capture expert[EXPERTS], whole;
    float *moved;          /* [n, HIDDEN] */
} captured;

static captured *capture(bench *b, int threads, size_t wave)
{
    captured *out;
    calm_moe_sum sum;
    calm_moe_watch *watch;
    ctx->n_threads = threads;
    ck_ok(CALM_NEW(ctx, ctx->out, out, 1));
    ck_ok(calm_moe_watch_begin(ctx, b->block.config, &b->batch, &watch));
    const calm_observer observer = calm_moe_watch_observer(watch);
    ck_ok(calm_moe_route(ctx, &b->block, &b->batch, &observer, &b->routing));
    ck_ok(calm_moe_begin(ctx, b->block.config, &b->batch, ctx->out, &sum));
    for (size_t first = 0; first < EXPERTS; first += wave) {
        const size_t n = EXPERTS - first < wave ? EXPERTS - first : wave;
        ck_ok(calm_capture_experts(ctx, &b->block, &b->batch, &b->routing, first, n, &everything, &sum,
                                   out->expert + first));
    }
    ck_ok(calm_moe_end(ctx, &b->block, &b->batch, &observer, &sum));
    ck_ok(calm_moe_watch_end(ctx, watch, &out->whole));
    ck_ok(calm_row_store_get(ctx, &b->batch.hidden, 0, b->n_rows, &out->moved));
    return out;
}

/* ---- a slow computation in double, with bounds on the error of float32 ---- */

/* Returns the normalised rows [n, HIDDEN]. */
static float *normalised(const bench *b)
{
    float *h;
    ck_ok(CALM_NEW(ctx, ctx->out, h, b->n_rows * HIDDEN));
    calm_norm_rows(&b->block.norm[CALM_SUBLAYER_MLP][CALM_NORM_IN], b->rows, b->n_rows, h);
    return h;
}

/* An expert's rows: in [n, HIDDEN], middle [n, inner], out [n, HIDDEN]. */
typedef struct slow_rows {
    size_t n, inner;
    bounded *in, *middle, *out;
} slow_rows;

static slow_rows run_slowly(const calm_weight weight[CALM_N_ROLES], const float *h, const size_t *rows, size_t n)
{
    slow_rows slow = {.n = n, .inner = weight[CALM_ROLE_DOWN].in};
    ck_ok(CALM_NEW(ctx, ctx->out, slow.in, n * HIDDEN));
    ck_ok(CALM_NEW(ctx, ctx->out, slow.middle, n * slow.inner));
    ck_ok(CALM_NEW(ctx, ctx->out, slow.out, n * HIDDEN));
    for (size_t t = 0; t < n; t++) {
        bounded *x = slow.in + t * HIDDEN, *y = slow.middle + t * slow.inner;
        bounded_exactly(h + rows[t] * HIDDEN, HIDDEN, x);
        for (size_t i = 0; i < slow.inner; i++)
            y[i] = bounded_gated(bounded_dot(weight[CALM_ROLE_GATE].w + i * HIDDEN, x, HIDDEN, 0),
                                 bounded_dot(weight[CALM_ROLE_UP].w + i * HIDDEN, x, HIDDEN, 0));
        for (size_t i = 0; i < HIDDEN; i++)
            slow.out[t * HIDDEN + i] = bounded_dot(weight[CALM_ROLE_DOWN].w + i * slow.inner, y, slow.inner, 0);
    }
    return slow;
}

/* Returns the rows x [n, width] times p [n], which float32 rounds once more. */
static bounded *weighted(const bounded *x, const bounded *p, size_t n, size_t width)
{
    bounded *out;
    ck_ok(CALM_NEW(ctx, ctx->out, out, n * width));
    for (size_t i = 0; i < n * width; i++)
        out[i] = bounded_times(x[i], p[i / width]);
    return out;
}

/* Returns the router's weights of an expert, which test_moe.c checks. */
static bounded *router_weights(const bench *b, size_t expert)
{
    const size_t begin = b->routing.begin[expert], n = b->routing.begin[expert + 1] - begin;
    bounded *out;
    ck_ok(CALM_NEW(ctx, ctx->out, out, n));
    bounded_exactly(b->routing.weight + begin, n, out);
    return out;
}

/* Finds the rows that the router sends to an expert: those with the expert's logit among the two largest. */
static size_t route_slowly(const bench *b, const float *h, size_t expert, size_t *rows)
{
    size_t n = 0;
    for (size_t t = 0; t < b->n_rows; t++) {
        bounded x[HIDDEN], logit[EXPERTS];
        size_t above = 0;
        bounded_exactly(h + t * HIDDEN, HIDDEN, x);
        for (size_t e = 0; e < EXPERTS; e++)
            logit[e] = bounded_dot(b->block.moe.router + e * HIDDEN, x, HIDDEN, 0);
        for (size_t e = 0; e < EXPERTS; e++)
            above += logit[e].value > logit[expert].value;
        /* No tie, which float32 would have to break. */
        for (size_t e = 0; e < EXPERTS; e++)
            ck_assert(e == expert || fabs(logit[e].value - logit[expert].value) > logit[e].error + logit[expert].error);
        if (above < TOP)
            rows[n++] = t;
    }
    return n;
}

/* ---- comparison ---- */

static void check_rows(const float *found, const bounded *expected, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ck_near(found[i], expected[i].value, expected[i].error);
}

/* Sums over weighted rows [n, width], and maxima over unweighted ones.  Each value may be off; sums in double add
 * far less than units of float32. */
static void check_sums(const calm_stats *stats, const bounded *x, const bounded *plain, size_t n, size_t width)
{
    for (size_t i = 0; i < width; i++) {
        double sum = 0, sumsq = 0, sumabs = 0, most = 0, error = 0, error_sq = 0, error_most = 0;
        for (size_t t = 0; t < n; t++) {
            const bounded *v = &x[t * width + i];
            sum += v->value;
            sumsq += v->value * v->value;
            sumabs += fabs(v->value);
            most = fmax(most, fabs(plain[t * width + i].value));
            error_most = fmax(error_most, plain[t * width + i].error);
            error += v->error;
            error_sq += 2 * fabs(v->value) * v->error + v->error * v->error;
        }
        ck_near(stats->sum[i], sum, error + 1e-12 * sumabs);
        ck_near(stats->sumabs[i], sumabs, error + 1e-12 * sumabs);
        ck_near(stats->sumsq[i], sumsq, error_sq + 1e-12 * sumsq);
        ck_near(stats->absmax[i], most, error_most);
    }
}

/* Float32 products of at most n rows at once. */
static void check_gram(const double *gram, const bounded *x, size_t n, size_t width)
{
    for (size_t i = 0; i < width; i++)
        for (size_t j = 0; j < width; j++) {
            double sum = 0, error = 0;
            for (size_t t = 0; t < n; t++) {
                const bounded a = x[t * width + i], c = x[t * width + j];
                sum += a.value * c.value;
                error += (fabs(a.value) + a.error) * c.error + a.error * fabs(c.value) +
                         (double)(n + 1) * UNIT * fabs(a.value * c.value);
            }
            ck_near(gram[i * width + j], sum, error);
        }
}

/* Checks one job's capture of [held + n, width] rows, of which the first are held out and the first `scored` are
 * kept, with weights p [held + n]. */
static void check_job(const calm_job_capture *job, const bounded *rows, const bounded *p, size_t held, size_t n,
                      size_t width, size_t scored)
{
    const bounded *plain = rows + held * width, *x = weighted(plain, p + held, n, width);
    ck_assert(job->used);
    ck_assert_uint_eq(job->width, width);
    ck_assert_uint_eq(job->stats.rows, n);
    check_sums(&job->stats, x, plain, n, width);
    check_gram(job->stats.gram, x, n, width);
    ck_assert_uint_eq(job->stats.n_samples, n);    /* few enough that all are kept */
    check_rows(job->stats.samples, x, n * width);
    check_rows(job->score_input, rows, scored * width);
}

static void check_accumulator(const calm_actstat_acc *acc, const bounded *x, size_t n, size_t width)
{
    double sumabs = 0, error = 0, most = 0;
    ck_assert_uint_eq(acc->n_tokens, n);
    ck_assert_uint_eq(acc->count, n * width);
    for (size_t i = 0; i < n * width; i++) {
        sumabs += fabs(x[i].value);
        error += x[i].error;
        most = fmax(most, fabs(x[i].value));
    }
    ck_near(acc->sumabs, sumabs, error + 1e-12 * sumabs);
    ck_near(fabs((double)acc->top[0].value), most, error);
}

/* ---- experts ---- */

/* The largest value is stored with its window and token. */
static void check_place(const bench *b, const calm_actstat_acc *acc, const float *h)
{
    const calm_actstat_peak *peak = &acc->top[0];
    const size_t row = b->windows.begin[peak->window] + peak->token;
    ck_assert_uint_lt(peak->token, b->windows.begin[peak->window + 1] - b->windows.begin[peak->window]);
    ck_assert(h[row * HIDDEN + peak->channel] == peak->value);
}

TEST(each_expert_over_its_tokens)
{
    bench b;
    new_bench(&b, "qwen3_moe", many, 5);
    const captured *found = capture(&b, 2, EXPERTS);
    const float *h = normalised(&b);
    size_t total = 0, *rows, least = b.n_rows, most = 0;
    ck_ok(CALM_NEW(ctx, ctx->out, rows, b.n_rows));
    for (size_t e = 0; e < EXPERTS; e++) {
        const calm_capture *capture = &found->expert[e];
        const size_t n = route_slowly(&b, h, e, rows);
        const slow_rows slow = run_slowly(tiny_plan_weights(&b.block, (long)e), h, rows, n);
        size_t scored = 0;
        while (scored < n && rows[scored] < b.windows.begin[SCORE_WINDOWS])
            scored++;
        ck_assert_int_eq(capture->expert, (long)e);
        ck_assert_int_eq(capture->sublayer, CALM_SUBLAYER_MLP);
        ck_assert_uint_eq(capture->rows, n);
        ck_assert_uint_eq(capture->score_rows, scored);
        const bounded *p = router_weights(&b, e);
        check_job(&capture->job[CALM_JOB_GATE_UP], slow.in, p, 0, n, HIDDEN, scored);
        check_job(&capture->job[CALM_JOB_DOWN], slow.middle, p, 0, n, slow.inner, scored);
        ck_assert(!capture->job[CALM_JOB_QKV].used && !capture->job[CALM_JOB_O].used);
        check_rows(capture->score_output, weighted(slow.out, p, scored, HIDDEN), scored * HIDDEN);
        check_rows(capture->score_weight, p, scored);
        check_accumulator(capture->activations[CALM_HOOK_GATE_UP_IN], slow.in, n, HIDDEN);
        check_accumulator(capture->activations[CALM_HOOK_DOWN_IN], slow.middle, n, slow.inner);
        check_place(&b, capture->activations[CALM_HOOK_GATE_UP_IN], h);
        ck_assert(memcmp(capture->weight[CALM_ROLE_UP].w, tiny_plan_weights(&b.block, (long)e)[CALM_ROLE_UP].w,
                         slow.inner * HIDDEN * sizeof(float)) == 0);
        total += n;
        least = n < least ? n : least;
        most = n > most ? n : most;
    }
    ck_assert_uint_eq(total, TOP * b.n_rows);
    ck_assert_uint_lt(least, most);    /* they saw different values */
    calm_model_close(b.model);
}
END_OF_TEST

/* The first window, of 9 tokens, is held out: each expert's statistics are of its rows in the other windows. */
TEST(rows_of_windows_that_are_held_out)
{
    bench b;
    calm_capture_options options = everything;
    calm_moe_sum sum;
    calm_capture found[EXPERTS];
    new_bench(&b, "qwen3_moe", many, 5);
    const captured *all = capture(&b, 2, EXPERTS);
    const float *h = normalised(&b);
    size_t *rows, n_held = 0;
    embed(&b, NULL);
    options.held_windows = 1;
    ck_ok(CALM_NEW(ctx, ctx->out, rows, b.n_rows));
    ck_ok(calm_moe_begin(ctx, b.block.config, &b.batch, ctx->out, &sum));
    ck_ok(calm_capture_experts(ctx, &b.block, &b.batch, &b.routing, 0, EXPERTS, &options, &sum, found));
    for (size_t e = 0; e < EXPERTS; e++) {
        const size_t n = route_slowly(&b, h, e, rows), scored = all->expert[e].score_rows;
        size_t held = 0;
        while (held < n && rows[held] < many[0])
            held++;
        const slow_rows slow = run_slowly(tiny_plan_weights(&b.block, (long)e), h, rows, n);
        const bounded *p = router_weights(&b, e);
        check_job(&found[e].job[CALM_JOB_GATE_UP], slow.in, p, held, n - held, HIDDEN, scored);
        check_job(&found[e].job[CALM_JOB_DOWN], slow.middle, p, held, n - held, slow.inner, scored);
        ck_assert_uint_eq(found[e].tokens, n);
        ck_assert_uint_eq(found[e].score_rows, scored);
        check_accumulator(found[e].activations[CALM_HOOK_DOWN_IN], slow.middle, n, slow.inner);
        n_held += held;
    }
    ck_assert_uint_eq(n_held, TOP * many[0]);
    calm_row_store_close(&sum.rows);
    calm_model_close(b.model);
}
END_OF_TEST

/* So many tokens that an expert takes its rows in pieces: they are kept in order nevertheless. */
TEST(kept_rows_of_many_tokens)
{
    enum { WINDOWS = 300, LENGTH = 30 };
    static size_t lengths[WINDOWS];
    const calm_capture_options options = {.jobs = 1u << CALM_JOB_GATE_UP, .samples = true};
    calm_capture found[EXPERTS];
    calm_moe_sum sum;
    size_t in_pieces = 0;
    bench b;
    for (size_t i = 0; i < WINDOWS; i++)
        lengths[i] = LENGTH;
    new_bench(&b, "qwen3_moe", lengths, WINDOWS);
    const float *h = normalised(&b);
    ctx->n_threads = 2;
    ck_ok(calm_moe_route(ctx, &b.block, &b.batch, NULL, &b.routing));
    ck_ok(calm_moe_begin(ctx, b.block.config, &b.batch, ctx->out, &sum));
    ck_ok(calm_capture_experts(ctx, &b.block, &b.batch, &b.routing, 0, EXPERTS, &options, &sum, found));
    for (size_t e = 0; e < EXPERTS; e++) {
        const calm_stats *stats = &found[e].job[CALM_JOB_GATE_UP].stats;
        ck_assert_uint_eq(stats->n_samples, b.routing.begin[e + 1] - b.routing.begin[e]);
        in_pieces += stats->n_samples > CALM_MOE_ROWS;
        for (size_t i = 0; i < stats->n_samples * HIDDEN; i++) {
            const size_t at = b.routing.begin[e] + i / HIDDEN;
            ck_assert(stats->samples[i] == b.routing.weight[at] * h[b.routing.token[at] * HIDDEN + i % HIDDEN]);
        }
    }
    ck_assert_uint_gt(in_pieces, 0);
    calm_model_close(b.model);
}
END_OF_TEST

/* The router's input and logits, and the sublayer's sum and output, over all tokens in order. */
TEST(the_block_as_a_whole)
{
    bench b;
    new_bench(&b, "qwen3_moe", many, 5);
    const captured *found = capture(&b, 2, 2);
    const float *h = normalised(&b);
    bounded *x, *logits;
    ck_ok(CALM_NEW(ctx, ctx->out, x, b.n_rows * HIDDEN));
    ck_ok(CALM_NEW(ctx, ctx->out, logits, b.n_rows * EXPERTS));
    bounded_exactly(h, b.n_rows * HIDDEN, x);
    check_accumulator(found->whole.activations[CALM_HOOK_GATE_UP_IN], x, b.n_rows, HIDDEN);
    check_place(&b, found->whole.activations[CALM_HOOK_GATE_UP_IN], h);
    /* Before the softmax: one value per expert, in which outliers of the router show. */
    for (size_t t = 0; t < b.n_rows; t++)
        for (size_t e = 0; e < EXPERTS; e++)
            logits[t * EXPERTS + e] = bounded_dot(b.block.moe.router + e * HIDDEN, x + t * HIDDEN, HIDDEN, 0);
    check_accumulator(found->whole.activations[CALM_HOOK_ROUTER_LOGITS], logits, b.n_rows, EXPERTS);
    for (size_t e = 0; e < EXPERTS; e++)    /* statistics of the block */
        ck_assert_ptr_null(found->expert[e].activations[CALM_HOOK_ROUTER_LOGITS]);
    bounded_exactly(found->moved, b.n_rows * HIDDEN, x);
    check_accumulator(found->whole.activations[CALM_HOOK_BLOCK_OUT], x, b.n_rows, HIDDEN);
    for (size_t i = 0; i < b.n_rows * HIDDEN; i++)    /* off by the rounding of the addition */
        x[i] = (bounded){(double)found->moved[i] - (double)b.rows[i], UNIT * fabs((double)found->moved[i])};
    check_accumulator(found->whole.activations[CALM_HOOK_MLP_OUT], x, b.n_rows, HIDDEN);
    ck_assert_ptr_null(found->whole.activations[CALM_HOOK_DOWN_IN]);
    ck_assert_uint_eq(found->whole.rows, b.n_rows);
    /* Capturing is the same as running the block. */
    embed(&b, NULL);
    ck_ok(calm_batch_sublayer(ctx, &b.block, CALM_SUBLAYER_MLP, &b.rope, &b.batch, NULL));
    ck_assert(memcmp(b.batch.hidden.data, found->moved, b.n_rows * HIDDEN * sizeof(float)) == 0);
    calm_model_close(b.model);
}
END_OF_TEST

/* ---- bytes ---- */

TEST(same_bytes_for_threads_waves_and_files)
{
    static const struct {
        int threads;
        size_t wave;
        bool spilled;
    } rows[] = {{1, 1, false}, {2, 2, false}, {4, 3, false}, {2, 5, true}, {3, 2, true}};
    bench b;
    new_bench(&b, "qwen3_moe", many, 5);
    const captured *first = capture(&b, 1, EXPERTS);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        embed(&b, rows[i].spilled ? test_directory() : NULL);
        const captured *other = capture(&b, rows[i].threads, rows[i].wave);
        for (size_t e = 0; e < EXPERTS; e++)
            same_expert_capture(&first->expert[e], &other->expert[e], HIDDEN);
        for (calm_hook hook = 0; hook < CALM_N_HOOKS; hook++)
            same_accumulators(first->whole.activations[hook], other->whole.activations[hook]);
        ck_assert(memcmp(first->moved, other->moved, b.n_rows * HIDDEN * sizeof(float)) == 0);
        calm_batch_close(&b.batch);
    }
    calm_model_close(b.model);
}
END_OF_TEST

/* Two tokens reach at most four experts. */
TEST(an_expert_without_tokens)
{
    bench b;
    new_bench(&b, "qwen3_moe", few, 1);
    const captured *found = capture(&b, 2, EXPERTS);
    size_t idle = 0, busy = 0;
    for (size_t e = 0; e < EXPERTS; e++) {
        const calm_capture *capture = &found->expert[e];
        busy += capture->rows;
        if (capture->rows)
            continue;
        idle++;
        ck_assert_uint_eq(capture->score_rows, 0);
        ck_assert_ptr_null(capture->score_output);
        ck_assert_ptr_nonnull(capture->weight[CALM_ROLE_DOWN].w);    /* quantized nevertheless */
        for (calm_job_kind kind = CALM_JOB_GATE_UP; kind <= CALM_JOB_DOWN; kind++) {
            ck_assert(capture->job[kind].used);
            ck_assert_uint_eq(capture->job[kind].stats.rows, 0);
            ck_assert_ptr_null(capture->job[kind].stats.gram);
            ck_assert_ptr_null(capture->job[kind].stats.samples);
            ck_assert(capture->job[kind].stats.absmax[0] == 0 && capture->job[kind].stats.sumsq[0] == 0);
        }
        ck_assert_uint_eq(capture->activations[CALM_HOOK_DOWN_IN]->count, 0);
    }
    ck_assert_uint_ge(idle, 1);
    ck_assert_uint_eq(busy, 2 * TOP);
    calm_model_close(b.model);
}
END_OF_TEST

/* ---- the shared expert ---- */

TEST(the_shared_expert_sees_every_token)
{
    bench b;
    new_bench(&b, "qwen2_moe", many, 5);
    calm_capture_options options = everything;
    calm_capture found;
    size_t *rows;
    bounded *p;
    options.stay = true;
    ctx->n_threads = 2;
    ck_ok(calm_capture_sublayer(ctx, &b.block, CALM_SUBLAYER_MLP, CALM_SHARED_EXPERT, &b.rope, &b.batch, &options,
                                &found));
    ck_assert(memcmp(b.batch.hidden.data, b.rows, b.n_rows * HIDDEN * sizeof(float)) == 0);
    ck_ok(CALM_NEW(ctx, ctx->out, rows, b.n_rows));
    for (size_t t = 0; t < b.n_rows; t++)
        rows[t] = t;
    const size_t scored = b.windows.begin[SCORE_WINDOWS];
    const float *h = normalised(&b);
    const slow_rows slow = run_slowly(b.block.moe.shared, h, rows, b.n_rows);
    /* sigmoid(g . h): its slope is below 1/4, and its exponential is good to a few units. */
    ck_ok(CALM_NEW(ctx, ctx->out, p, b.n_rows));
    for (size_t t = 0; t < b.n_rows; t++)
        p[t] = bounded_sigmoid(bounded_dot(b.block.moe.shared_gate, slow.in + t * HIDDEN, HIDDEN, 0));
    ck_assert_uint_eq(slow.inner, tiny_default.shared_inner);
    ck_assert_int_eq(found.expert, CALM_SHARED_EXPERT);
    ck_assert_uint_eq(found.score_rows, scored);
    check_job(&found.job[CALM_JOB_GATE_UP], slow.in, p, 0, b.n_rows, HIDDEN, scored);
    check_job(&found.job[CALM_JOB_DOWN], slow.middle, p, 0, b.n_rows, slow.inner, scored);
    check_rows(found.score_output, weighted(slow.out, p, scored, HIDDEN), scored * HIDDEN);
    check_rows(found.score_weight, p, scored);
    check_accumulator(found.activations[CALM_HOOK_DOWN_IN], slow.middle, b.n_rows, slow.inner);
    check_accumulator(found.activations[CALM_HOOK_MLP_OUT], slow.out, b.n_rows, HIDDEN);
    ck_assert_ptr_null(found.activations[CALM_HOOK_BLOCK_OUT]);
    calm_model_close(b.model);
}
END_OF_TEST

/* ---- memory ---- */

/* Each expert by itself on one thread: the bytes that it leaves exactly, and its peak, up to the chunks of arenas
 * and to the product of the first input, which is wider than the second but precedes the MLP's activations. */
static void check_memory(bench *b, const calm_capture_options *options, calm_moe_sum *sum)
{
    const calm_config *config = calm_model_config(b->model);
    const calm_routing *routing = &b->routing;
    calm_capture_shape shape = {.config = config, .sublayer = CALM_SUBLAYER_MLP, .n_windows = b->windows.n,
                                .longest = 70, .in_file = b->batch.hidden.file >= 0};
    const size_t first = calm_gram_add_scratch_bytes(CALM_OPERANDS_F32, &config->hidden, 1, false, 1);
    size_t begin, end, checked = 0;
    for (size_t e = 0; e < EXPERTS; e++) {
        calm_capture out;
        shape.rows = shape.most_rows = routing->begin[e + 1] - routing->begin[e];
        shape.score_rows = routing->window[e * (routing->n_windows + 1) + options->score_windows] - routing->begin[e];
        calm_layout_fold_set(calm_model_layout(b->model), 0, CALM_SUBLAYER_MLP, (long)e, &begin, &end);
        if (!shape.rows || !shape.score_rows)
            continue;
        const size_t left = calm_capture_experts_bytes(&shape, options, 1) +
                            calm_model_load_jobs_bytes(b->model, begin, end);
        ck_memory_of_workers(calm_capture_experts(ctx, &b->block, &b->batch, routing, e, 1, options, sum, &out), left,
                             calm_capture_experts_scratch_bytes(&shape, options, 1, 1), 4, first);
        checked++;
    }
    ck_assert_uint_ge(checked, 3);
}

TEST(memory)
{
    static const char *const families[] = {"qwen2_moe", "qwen3_moe"};
    static const size_t same[] = {70, 70, 70, 70};
    for (size_t f = 0; f < 2; f++)
        for (int variant = 0; variant < 4; variant++) {
            static float of_rows[280], *const factors[CALM_N_JOBS] = {of_rows, of_rows, of_rows, of_rows};
            const calm_capture_options options = {.factors = variant & 1 ? factors : NULL,
                                                  .jobs = CALM_CAPTURE_ALL_JOBS, .grams = variant & 1,
                                                  .samples = variant & 1, .activations = true, .score_windows = 3};
            tiny_model spec = tiny_of(families[f]);
            bench b = {.windows = tiny_windows(same, 4)};
            calm_moe_watch *watch;
            calm_moe_sum sum;
            calm_capture whole;
            spec.hidden = 256;
            spec.head_dim = 64;
            spec.expert_inner = 128;
            ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &b.model));
            ck_ok(calm_rope_init(ctx, calm_model_config(b.model), 70, &b.rope));
            ck_ok(calm_model_load_block(ctx, b.model, 0, &b.block));
            ctx->n_threads = 1;
            embed(&b, variant & 2 ? test_directory() : NULL);
            ck_ok(calm_moe_route(ctx, &b.block, &b.batch, NULL, &b.routing));
            ck_ok(calm_moe_begin(ctx, b.block.config, &b.batch, ctx->out, &sum));
            check_memory(&b, &options, &sum);
            calm_row_store_close(&sum.rows);
            test_memory_begin();
            ck_ok(calm_moe_watch_begin(ctx, b.block.config, &b.batch, &watch));
            ck_ok(calm_moe_watch_end(ctx, watch, &whole));
            ck_assert_uint_eq(test_memory_end().out, calm_moe_watch_bytes(280, 4, 70, 1));
            calm_batch_close(&b.batch);
            calm_model_close(b.model);
        }
}
END_OF_TEST

int main(void)
{
    return run_tests("capture_experts",
                     (const TTest *[]){each_expert_over_its_tokens, rows_of_windows_that_are_held_out,
                                       kept_rows_of_many_tokens, the_block_as_a_whole,
                                       same_bytes_for_threads_waves_and_files, an_expert_without_tokens,
                                       the_shared_expert_sees_every_token, memory, NULL});
}
