/* GPTQ on one linear against what the machine's Cholesky and dgemm rates allow, and the other algorithms in seconds.
 *
 *   allowed = (4/3 I^3) / Cholesky rate + O I^2 / dgemm rate
 *
 * I^3/3 each for the two factorisations and 2/3 I^3 for the inverse between them; O I^2 for the updates of the columns
 * after each block. Rates are measured in the same run, on I x I matrices. */
#include "cli/bench_quantize.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "algorithms/algorithm.h"
#include "cli/print.h"
#include "ptq/base/rng.h"
#include "ptq/base/threads.h"
#include "ptq/tensor/linalg.h"

#define FACTORS ((size_t)4)
#define SEED 7

/* What is timed beside gptq, and on which scheme. */
static const struct {
    const char *algorithm, *scheme;
} others[] = {{"rtn", "w4a16_g128"},      {"mkq", "w4a16_g128"},       {"absmax+cd", "w4a16_g128"},
              {"gptq-hls", "w4a16_g128"}, {"mkq-full", "w4a16_g128"},  {"awq", "w4a16_g128"},
              {"smoothquant", "w4a16_g128"}, {"actfit", "w4a4_g128"}};
#define N_OTHERS (sizeof others / sizeof *others)

typedef struct bench {
    const calm_bench_quantize *asked;
    calm_linear linear;
    float *x;             /* [rows, I] its input */
    calm_stats stats;
    double *work[3];      /* [I, I] each: a positive definite matrix, and two to work in */
    double gptq, cholesky, dgemm, other[N_OTHERS];    /* seconds */
} bench;

/* ---- the linear ---- */

/* One token: independent parts, and factors that all channels share; channels differ in size. */
static calm_status make_rows(calm_ctx *ctx, size_t index, void *user)
{
    const bench *b = user;
    const size_t in = b->asked->in;
    float *x = b->x + index * in;
    (void)ctx;
    for (size_t j = 0; j < in; j++) {
        double value = calm_rng_normal(SEED, 1, index * in + j);
        for (size_t f = 0; f < FACTORS; f++)
            value += calm_rng_normal(SEED, 2, index * FACTORS + f) * calm_rng_normal(SEED, 3, f * in + j);
        x[j] = (float)(value * exp(0.5 * calm_rng_normal(SEED, 4, j)));
    }
    return CALM_OK;
}

/* Weights, 8 rows per input, and their statistics. */
static calm_status make_linear(calm_ctx *ctx, bench *b)
{
    const size_t out = b->asked->out, in = b->asked->in, rows = 8 * in;
    float *w;
    CALM_TRY(CALM_NEW(ctx, ctx->out, w, out * in));
    CALM_TRY(CALM_NEW(ctx, ctx->out, b->x, rows * in));
    for (size_t i = 0; i < out * in; i++)
        w[i] = (float)(0.05 * calm_rng_normal(SEED, 0, i));
    b->linear = (calm_linear){.name = "linear", .out = out, .in = in, .w = w};
    CALM_TRY(calm_parallel_for(ctx, rows, make_rows, b));
    CALM_TRY(calm_stats_new(ctx, b->x, rows, in, &b->stats));
    for (size_t i = 0; i < 3; i++)
        CALM_TRY(CALM_NEW(ctx, ctx->out, b->work[i], in * in));
    for (size_t i = 0; i < in * in; i++)
        b->work[0][i] = b->stats.gram[i] / (double)rows + (i / in == i % in);
    return CALM_OK;
}

/* ---- what is timed ---- */

static calm_status time_cholesky(calm_ctx *ctx, bench *b, double *seconds)
{
    const size_t in = b->asked->in;
    memcpy(b->work[1], b->work[0], in * in * sizeof(double));
    const double begun = calm_seconds();
    calm_status status = calm_dcholesky_upper(ctx, in, b->work[1], in);
    *seconds = calm_seconds() - begun;
    return status;
}

static double time_dgemm(const bench *b)
{
    const size_t in = b->asked->in;
    const double begun = calm_seconds();
    calm_dgemm_nn(in, in, in, 1, b->work[0], in, b->work[0], in, 0, b->work[2], in);
    return calm_seconds() - begun;
}

static calm_status time_algorithm(calm_ctx *ctx, const bench *b, const char *name, const char *scheme, double *seconds)
{
    calm_job job = {.name = "linear", .linears = &b->linear, .n_linears = 1, .stats = &b->stats, .can_absorb = true};
    calm_algorithm *algorithm;
    calm_qjob qjob;
    calm_arena_mark mark = calm_arena_save(ctx->out);
    CALM_TRY(calm_scheme_parse(ctx, scheme, &job.scheme));
    CALM_TRY(calm_algorithm_parse(ctx, name, &algorithm));
    const double begun = calm_seconds();
    CALM_TRY(calm_algorithm_run(ctx, algorithm, &job, &qjob));
    *seconds = calm_seconds() - begun;
    calm_arena_rewind(ctx->out, mark);
    return CALM_OK;
}

/* The rates and gptq in turn, so that they meet the same noise; then the others, once each. */
static calm_status time_all(calm_ctx *ctx, bench *b)
{
    double cholesky, gptq;
    b->cholesky = b->dgemm = b->gptq = INFINITY;
    for (long long i = 0; i < b->asked->repeats; i++) {
        CALM_TRY(time_cholesky(ctx, b, &cholesky));
        b->dgemm = fmin(b->dgemm, time_dgemm(b));
        CALM_TRY(time_algorithm(ctx, b, "gptq", "w4a16_g128", &gptq));
        b->cholesky = fmin(b->cholesky, cholesky);
        b->gptq = fmin(b->gptq, gptq);
    }
    for (size_t a = 0; a < N_OTHERS; a++)
        CALM_TRY(time_algorithm(ctx, b, others[a].algorithm, others[a].scheme, &b->other[a]));
    return CALM_OK;
}

/* ---- printing ---- */

static calm_status report(calm_ctx *ctx, const bench *b)
{
    const double in = (double)b->asked->in, out = (double)b->asked->out;
    const double cholesky = in * in * in / 3 / b->cholesky, dgemm = 2 * in * in * in / b->dgemm;
    const double allowed = 4 * in * in * in / 3 / cholesky + out * in * in / dgemm;
    if (b->asked->json) {
        calm_json *list = calm_json_new_object();
        for (size_t a = 0; a < N_OTHERS; a++)
            calm_json_set_number(list, others[a].algorithm, b->other[a]);
        return calm_print_json(ctx, CALM_OBJECT(
            CALM_KV("subject", "quantize"), CALM_KV("out", b->asked->out), CALM_KV("in", b->asked->in),
            CALM_KV("seconds", b->gptq), CALM_KV("allowed_seconds", allowed),
            CALM_KV("cholesky_gflops", cholesky * 1e-9), CALM_KV("dgemm_gflops", dgemm * 1e-9),
            CALM_KV("ratio", allowed / b->gptq), CALM_KV("other_seconds", list)));
    }
    printf("quantize %zu x %zu, one thread: Cholesky %.1f Gflop/s, dgemm %.1f Gflop/s\n", b->asked->out, b->asked->in,
           cholesky * 1e-9, dgemm * 1e-9);
    printf("  %-12s %-10s %7.3f s   these rates allow %.3f s   ratio %.2f\n", "gptq", "w4a16_g128", b->gptq, allowed,
           allowed / b->gptq);
    for (size_t a = 0; a < N_OTHERS; a++)
        printf("  %-12s %-10s %7.3f s\n", others[a].algorithm, others[a].scheme, b->other[a]);
    return CALM_OK;
}

calm_status calm_bench_quantize_run(calm_ctx *ctx, const calm_bench_quantize *asked)
{
    bench b = {.asked = asked};
    const int threads = ctx->n_threads;
    CALM_TRY(make_linear(ctx, &b));
    ctx->n_threads = 1;
    const calm_status status = time_all(ctx, &b);
    ctx->n_threads = threads;
    CALM_TRY(status);
    return report(ctx, &b);
}
