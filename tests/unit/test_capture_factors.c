/* Factors of calibration rows, from norms of gradients; and what capture does with rows that have factors. */
#include <math.h>
#include <string.h>

#include "ptq/calib/capture.h"
#include "tests/support/first_block.h"
#include "tests/support/harness.h"
#include "tests/support/same_capture.h"
#include "tests/support/tiny_model.h"

#define N_WINDOWS 5
#define HIDDEN 32
#define EXPERTS 5
#define UNIT 0x1p-24

static const size_t lengths[N_WINDOWS] = {9, 17, 2, 30, 12};

/* ---- from norms to factors ---- */

/* Computes the definition in double: within a factor of 32 of the mean, then mean 1, then the root.  Float rounds
 * twice. */
TEST(factors_of_lengths)
{
    enum { N = 200, CLIP = 32 };
    static const float some[] = {1, 2, 0, 1000, 3, 4, 5, 0.01f, 7, 8, 100};
    float given[N], found[N], zero[3] = {0, 0, 0}, bad[3] = {1, NAN, 2}, large[2] = {INFINITY, 1};
    double mean = 0, sum = 0, held[N];
    for (size_t i = 0; i < N; i++)
        given[i] = i < sizeof some / sizeof *some ? some[i] : 1;
    for (size_t i = 0; i < N; i++)
        mean += (double)given[i] / N;
    for (size_t i = 0; i < N; i++)
        sum += held[i] = fmax(mean / CLIP, fmin(mean * CLIP, (double)given[i]));
    /* One value is clamped from above and one from below; a sink's row, with 15 times the mean, is not clamped. */
    ck_assert(held[3] < (double)given[3] && held[2] > 0 && held[10] == (double)given[10] && held[10] > 10 * mean);
    memcpy(found, given, sizeof found);
    ck_assert(calm_capture_factors(found, N));
    for (size_t i = 0; i < N; i++)
        ck_near(found[i], sqrt(held[i] * N / sum), 2 * UNIT * sqrt(held[i] * N / sum));
    ck_assert(found[2] == found[7]);
    ck_assert(calm_capture_factors(zero, 3));
    ck_assert(zero[0] == 1 && zero[1] == 1 && zero[2] == 1);
    ck_assert(!calm_capture_factors(bad, 3) && bad[0] == 1 && bad[2] == 2);
    ck_assert(!calm_capture_factors(large, 2));
}
END_OF_TEST

/* The definition: T / 16 within 1 and 32 for first tokens and 1 for others, with mean 1, then the root.  A window
 * may have a single token. */
TEST(factors_of_first_tokens)
{
    static const size_t begin[] = {7, 16, 17, 65, 577, 1177};
    enum { WINDOWS = 5, N = 1170 };
    static const double weights[WINDOWS] = {1, 1, 3, 32, 32};
    double sum = N;
    float found[N];
    for (size_t w = 0; w < WINDOWS; w++)
        sum += weights[w] - 1;
    calm_capture_first_factors(begin, WINDOWS, found);
    for (size_t i = 0, w = 0; i < N; i++) {
        const bool first = i + 7 == begin[w];
        const double expected = sqrt((first ? weights[w] : 1) / (sum / N));
        w += first;
        ck_near(found[i], expected, 2 * UNIT * expected);
    }
}
END_OF_TEST

/* ---- capture ---- */

static first_block new_block(const char *family)
{
    const tiny_model spec = tiny_of(family);
    ctx->n_threads = 2;
    return first_block_open(tiny_model_write(&spec), lengths, N_WINDOWS);
}

static const calm_capture_options everything = {.jobs = CALM_CAPTURE_ALL_JOBS, .grams = true, .samples = true,
                                                .activations = true, .score_windows = 2};

typedef struct captured {
    calm_capture sublayer[CALM_N_SUBLAYERS];
} captured;

static const calm_job_capture *job_of(const captured *c, calm_job_kind kind)
{
    return &c->sublayer[calm_job_sublayer(kind)].job[kind];
}

static captured capture_dense(first_block *b, const calm_capture_options *options)
{
    captured out;
    first_block_embed(b);
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++)
        ck_ok(calm_capture_sublayer(ctx, &b->block, s, CALM_NO_EXPERT, &b->rope, &b->batch, options, &out.sublayer[s]));
    return out;
}

/* Captures all experts in waves of `wave`. */
static calm_capture *capture_experts(first_block *b, size_t wave, const calm_capture_options *options,
                                     calm_routing *routing)
{
    calm_capture *out;
    calm_moe_sum sum;
    ck_ok(CALM_NEW(ctx, ctx->out, out, EXPERTS));
    first_block_embed(b);
    ck_ok(calm_moe_route(ctx, &b->block, &b->batch, NULL, routing));
    ck_ok(calm_moe_begin(ctx, b->block.config, &b->batch, ctx->out, &sum));
    for (size_t first = 0; first < EXPERTS; first += wave)
        ck_ok(calm_capture_experts(ctx, &b->block, &b->batch, routing, first, calm_size_min(wave, EXPERTS - first),
                                   options, &sum, out + first));
    return out;
}

/* Rows are multiplied by their factors job by job: kept rows to the bit, and sums of them.  Maxima, activations and
 * outputs have the rows without factors, and a job without factors is unchanged. */
TEST(rows_with_factors)
{
    first_block b = new_block("qwen3");
    float of_rows[70], *const factors[CALM_N_JOBS] = {[CALM_JOB_QKV] = of_rows, [CALM_JOB_DOWN] = of_rows};
    calm_capture_options options = everything;
    for (size_t t = 0; t < 70; t++)
        of_rows[t] = (float)(1 + t % 7) / 4;
    const captured plain = capture_dense(&b, &options);
    options.factors = factors;
    const captured found = capture_dense(&b, &options);
    size_t n_jobs = 0;
    for (calm_job_kind kind = 0; kind < CALM_N_JOBS; kind++) {
        const calm_job_capture *job = job_of(&found, kind), *before = job_of(&plain, kind);
        const size_t width = job->width;
        float *x;
        if (width == 0)    /* a job of another kind of sublayer */
            continue;
        n_jobs++;
        ck_ok(CALM_NEW(ctx, ctx->out, x, 70 * width));
        for (size_t i = 0; i < 70 * width; i++)
            x[i] = (factors[kind] ? of_rows[i / width] : 1) * before->stats.samples[i];
        ck_assert(memcmp(job->stats.samples, x, 70 * width * sizeof *x) == 0);
        near_gram(job->stats.gram, x, 70, width);
        for (size_t j = 0; j < width; j++) {
            double sum = 0, size = 0;
            for (size_t t = 0; t < 70; t++) {
                sum += (double)x[t * width + j];
                size += fabs((double)x[t * width + j]);
            }
            ck_near(job->stats.sum[j], sum, 1e-13 * size);
            ck_assert(job->stats.absmax[j] == before->stats.absmax[j]);
        }
        ck_assert(memcmp(job->score_input, before->score_input, (9 + 17) * width * sizeof *x) == 0);
    }
    ck_assert_uint_eq(n_jobs, 4);
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++) {
        for (calm_hook hook = 0; hook < CALM_N_HOOKS; hook++)
            same_accumulators(found.sublayer[s].activations[hook], plain.sublayer[s].activations[hook]);
        ck_assert(memcmp(found.sublayer[s].score_output, plain.sublayer[s].score_output, (9 + 17) * 32 * sizeof(float))
                  == 0);
    }
    calm_model_close(b.model);
}
END_OF_TEST

/* Rows times the factors of their tokens, together with the router's weights: the product of both is rounded once
 * more.  Windows have the factors in one of both orders, and the first is held out. */
TEST(experts_over_rows_with_factors)
{
    static float of_rows[70];
    static float *const factors[CALM_N_JOBS] = {[CALM_JOB_GATE_UP] = of_rows};
    calm_capture_options options = everything;
    options.held_windows = 1;
    for (size_t t = 0; t < 70; t++)
        of_rows[t] = (float)(1 + t % 7) / 3;
    for (int weighted_by_router = 0; weighted_by_router < 2; weighted_by_router++) {
        options.unweighted = !weighted_by_router;
        options.factors = NULL;
        first_block b = new_block("qwen3_moe");
        calm_routing routing;
        const calm_capture *plain = capture_experts(&b, EXPERTS, &options, &routing);
        options.factors = factors;
        const calm_capture *found = capture_experts(&b, 2, &options, &routing);
        for (size_t e = 0; e < EXPERTS; e++) {
            const calm_job_capture *x = found[e].job, *y = plain[e].job;
            const size_t first = routing.window[e * (routing.n_windows + 1) + 1], n = found[e].rows;
            ck_assert_uint_eq(x[CALM_JOB_GATE_UP].stats.n_samples, n);
            for (size_t i = 0; i < n * HIDDEN; i++) {
                const double value = (double)of_rows[routing.token[first + i / HIDDEN]] *
                                     (double)y[CALM_JOB_GATE_UP].stats.samples[i];
                ck_near(x[CALM_JOB_GATE_UP].stats.samples[i], value, 4 * UNIT * fabs(value));
            }
            same_job(&x[CALM_JOB_DOWN], &y[CALM_JOB_DOWN], found[e].score_rows);
            for (size_t j = 0; j < HIDDEN; j++)
                ck_assert(x[CALM_JOB_GATE_UP].stats.absmax[j] == y[CALM_JOB_GATE_UP].stats.absmax[j]);
            ck_assert(memcmp(found[e].score_output, plain[e].score_output,
                             found[e].score_rows * HIDDEN * sizeof(float)) == 0);
        }
        calm_model_close(b.model);
    }
}
END_OF_TEST

/* The shared expert's gate times the token's factor. */
TEST(a_shared_expert_over_rows_with_factors)
{
    first_block b = new_block("qwen2_moe");
    float of_rows[70], *const factors[CALM_N_JOBS] = {[CALM_JOB_DOWN] = of_rows};
    calm_capture_options options = everything;
    calm_capture found[2];
    options.stay = true;
    for (size_t t = 0; t < 70; t++)
        of_rows[t] = (float)(1 + t % 5) / 3;
    for (size_t i = 0; i < 2; i++) {
        calm_batch batch;
        options.factors = i ? factors : NULL;
        ck_ok(calm_batch_embed(ctx, b.model, &b.windows, 0, N_WINDOWS, ctx->out, NULL, &batch));
        ck_ok(calm_capture_sublayer(ctx, &b.block, CALM_SUBLAYER_MLP, CALM_SHARED_EXPERT, &b.rope, &batch, &options,
                                    &found[i]));
    }
    const calm_job_capture *plain = found[0].job, *weighed = found[1].job;
    const size_t width = plain[CALM_JOB_DOWN].width;
    same_job(&plain[CALM_JOB_GATE_UP], &weighed[CALM_JOB_GATE_UP], found[0].score_rows);
    for (size_t i = 0; i < 70 * width; i++) {
        const double value = (double)of_rows[i / width] * (double)plain[CALM_JOB_DOWN].stats.samples[i];
        ck_near(weighed[CALM_JOB_DOWN].stats.samples[i], value, 4 * UNIT * fabs(value));
    }
    near_gram(weighed[CALM_JOB_DOWN].stats.gram, weighed[CALM_JOB_DOWN].stats.samples, 70, width);
    ck_assert(memcmp(found[0].score_output, found[1].score_output, found[0].score_rows * HIDDEN * sizeof(float)) == 0);
    calm_model_close(b.model);
}
END_OF_TEST

/* ---- the first tokens of the scoring windows ---- */

/* Finds row i of a whole capture in one that scores only first tokens. */
static void same_row(const calm_capture *whole, size_t i, const calm_capture *cut, size_t n)
{
    for (calm_job_kind kind = CALM_JOB_GATE_UP; kind <= CALM_JOB_DOWN; kind++) {
        const size_t width = whole->job[kind].width;
        ck_assert(memcmp(whole->job[kind].score_input + i * width, cut->job[kind].score_input + n * width,
                         width * sizeof(float)) == 0);
    }
    ck_assert(memcmp(whole->score_output + i * HIDDEN, cut->score_output + n * HIDDEN, HIDDEN * sizeof(float)) == 0);
    ck_assert(whole->score_weight[i] == cut->score_weight[n]);
}

/* The first 5 of the windows' 9 and 17 tokens: those of an expert's rows that are among them, in order. */
TEST(experts_over_beginnings)
{
    enum { TOKENS = 5 };
    calm_capture_options options = everything;
    first_block b = new_block("qwen3_moe");
    calm_routing routing;
    const calm_capture *whole = capture_experts(&b, EXPERTS, &options, &routing);
    options.score_tokens = TOKENS;
    const calm_capture *cut = capture_experts(&b, 2, &options, &routing);
    size_t total = 0;
    for (size_t e = 0; e < EXPERTS; e++) {
        size_t n = 0;
        for (size_t i = 0; i < whole[e].score_rows; i++) {
            const size_t row = routing.token[routing.begin[e] + i];
            if (row < TOKENS || (row >= 9 && row < 9 + TOKENS))
                same_row(&whole[e], i, &cut[e], n++);
        }
        ck_assert_uint_eq(cut[e].score_rows, n);
        same_job(&whole[e].job[CALM_JOB_DOWN], &cut[e].job[CALM_JOB_DOWN], 0);    /* statistics are unchanged */
        total += n;
    }
    ck_assert_uint_eq(total, 2 * TOKENS * calm_model_config(b.model)->moe.top_k);
    calm_model_close(b.model);
}
END_OF_TEST

TEST(a_shared_expert_over_beginnings)
{
    enum { TOKENS = 5 };
    first_block b = new_block("qwen2_moe");
    calm_capture_options options = everything;
    calm_capture found[2];
    options.stay = true;
    for (size_t i = 0; i < 2; i++) {
        options.score_tokens = i ? TOKENS : 0;
        first_block_embed(&b);
        ck_ok(calm_capture_sublayer(ctx, &b.block, CALM_SUBLAYER_MLP, CALM_SHARED_EXPERT, &b.rope, &b.batch, &options,
                                    &found[i]));
    }
    ck_assert_uint_eq(found[1].score_rows, 2 * TOKENS);
    for (size_t n = 0; n < 2 * TOKENS; n++)
        same_row(&found[0], n < TOKENS ? n : 9 + n - TOKENS, &found[1], n);
    calm_model_close(b.model);
}
END_OF_TEST

int main(void)
{
    return run_tests("capture_factors",
                     (const TTest *[]){factors_of_lengths, factors_of_first_tokens, rows_with_factors,
                                       experts_over_rows_with_factors, a_shared_expert_over_rows_with_factors,
                                       experts_over_beginnings, a_shared_expert_over_beginnings, NULL});
}
