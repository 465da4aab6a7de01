/* Times GPTQ on one linear against the time that the rates of Cholesky and dgemm allow, and the other algorithms.
 *
 *   allowed = (4/3 I^3) / Cholesky rate + O I^2 / dgemm rate
 *
 * Each of the two factorisations takes I^3/3 operations, the inverse between them 2/3 I^3, the updates of the columns
 * after each block O I^2.  The same run measures the rates on I x I matrices. */
#include "cli/bench_quantize.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/bench_timing.h"
#include "cli/print.h"
#include "ptq/base/rng.h"
#include "ptq/base/threads.h"
#include "ptq/state/environment.h"
#include "ptq/tensor/linalg.h"

#define FACTORS ((size_t)4)
#define SEED 7

/* Algorithms that are timed next to gptq, and their schemes. */
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
} bench;

/* A named algorithm to run on the linear. */
typedef struct trial {
    const bench *b;
    const char *algorithm, *scheme;
} trial;

enum { GPTQ, CHOLESKY, DGEMM, PEAK, N_ITEMS };

/* ---- the linear ---- */

/* Makes one token: independent values plus factors that all channels share; channels differ in size. */
static void make_rows(size_t index, void *user)
{
    const bench *b = user;
    const size_t in = b->asked->in;
    float *x = b->x + index * in;
    for (size_t j = 0; j < in; j++) {
        double value = calm_rng_normal(SEED, 1, index * in + j);
        for (size_t f = 0; f < FACTORS; f++)
            value += calm_rng_normal(SEED, 2, index * FACTORS + f) * calm_rng_normal(SEED, 3, f * in + j);
        x[j] = (float)(value * exp(0.5 * calm_rng_normal(SEED, 4, j)));
    }
}

/* Makes weights, 8 input rows per column, and their statistics. */
static calm_status make_linear(calm_ctx *ctx, bench *b)
{
    const size_t out = b->asked->out, in = b->asked->in, rows = 8 * in;
    float *w;
    CALM_TRY(CALM_NEW(ctx, ctx->out, w, out * in));
    CALM_TRY(CALM_NEW(ctx, ctx->out, b->x, rows * in));
    for (size_t i = 0; i < out * in; i++)
        w[i] = (float)(0.05 * calm_rng_normal(SEED, 0, i));
    b->linear = (calm_linear){.name = "linear", .out = out, .in = in, .w = w};
    calm_parallel_each(ctx, rows, make_rows, b);
    CALM_TRY(calm_stats_new(ctx, b->x, rows, in, &b->stats));
    for (size_t i = 0; i < 3; i++)
        CALM_TRY(CALM_NEW(ctx, ctx->out, b->work[i], in * in));
    for (size_t i = 0; i < in * in; i++)
        b->work[0][i] = b->stats.gram[i] / (double)rows + (i / in == i % in);
    return CALM_OK;
}

/* ---- what is timed ---- */

/* The factor overwrites the matrix, so each run needs a copy. */
static void copy_matrix(void *user)
{
    const bench *b = user;
    memcpy(b->work[1], b->work[0], b->asked->in * b->asked->in * sizeof(double));
}

static calm_status run_cholesky(calm_ctx *ctx, void *user)
{
    const bench *b = user;
    return calm_dcholesky_upper(ctx, b->asked->in, b->work[1], b->asked->in);
}

static calm_status run_dgemm(calm_ctx *ctx, void *user)
{
    const bench *b = user;
    const size_t in = b->asked->in;
    (void)ctx;
    calm_dgemm_nn(in, in, in, 1, b->work[0], in, b->work[0], in, 0, b->work[2], in);
    return CALM_OK;
}

static calm_status run_algorithm(calm_ctx *ctx, void *user)
{
    const trial *of = user;
    const bench *b = of->b;
    calm_job job = {.name = "linear", .linears = &b->linear, .n_linears = 1, .stats = &b->stats, .can_absorb = true};
    calm_algorithm *algorithm;
    calm_qjob qjob;
    calm_arena_mark mark = calm_arena_save(ctx->out);
    CALM_TRY(calm_scheme_parse(ctx, of->scheme, &job.scheme));
    CALM_TRY(calm_algorithm_parse(ctx, of->algorithm, &algorithm));
    CALM_TRY(calm_algorithm_run(ctx, algorithm, &job, &qjob));
    calm_arena_rewind(ctx->out, mark);
    return CALM_OK;
}

/* Times the rates and gptq in turn, then each other algorithm alone. */
static calm_status time_all(calm_ctx *ctx, bench *b, calm_bench_item items[N_ITEMS], calm_bench_item made[N_OTHERS])
{
    const double in = (double)b->asked->in;
    trial of = {b, "gptq", "w4a16_g128"};
    items[GPTQ] = (calm_bench_item){.name = "gptq", .run = run_algorithm, .user = &of};
    items[CHOLESKY] = (calm_bench_item){
        .name = "cholesky", .flops = in * in * in / 3, .run = run_cholesky, .prepare = copy_matrix, .user = b};
    items[DGEMM] = (calm_bench_item){.name = "dgemm", .flops = 2 * in * in * in, .run = run_dgemm, .user = b};
    items[PEAK] = calm_bench_peak(ctx, true);
    CALM_TRY(calm_bench_measure(ctx, items, N_ITEMS, b->asked->repeats));
    for (size_t a = 0; a < N_OTHERS; a++) {
        of = (trial){b, others[a].algorithm, others[a].scheme};
        made[a] = (calm_bench_item){.name = others[a].algorithm, .run = run_algorithm, .user = &of};
        CALM_TRY(calm_bench_measure(ctx, &made[a], 1, b->asked->repeats));
    }
    return CALM_OK;
}

/* ---- printing ---- */

static void print_seconds(const calm_bench_item *item, const char *scheme)
{
    if (calm_timing_is_steady(&item->timing))
        printf("  %-12s %-10s %7.3f s, spread %.1f %%\n", item->name, scheme, item->timing.median,
               100 * item->timing.spread);
    else
        calm_bench_print(item, NULL, NULL);
}

static calm_status print_json(calm_ctx *ctx, const bench *b, const calm_bench_item items[N_ITEMS],
                              const calm_bench_item made[N_OTHERS], double allowed)
{
    calm_json *environment;
    const double dgemm = calm_bench_rate(&items[DGEMM]), peak = calm_bench_rate(&items[PEAK]);
    CALM_TRY(calm_environment_json(ctx, &environment));
    calm_json *list = calm_json_new_object();
    for (size_t a = 0; a < N_OTHERS; a++)
        calm_json_set_number(list, others[a].algorithm, calm_bench_seconds(&made[a]));
    return calm_print_json(ctx, CALM_OBJECT(
        CALM_KV("subject", "quantize"), CALM_KV("out", b->asked->out), CALM_KV("in", b->asked->in),
        CALM_KV("seconds", calm_bench_seconds(&items[GPTQ])), CALM_KV("allowed_seconds", allowed),
        CALM_KV("cholesky_gflops", calm_bench_rate(&items[CHOLESKY]) * 1e-9), CALM_KV("dgemm_gflops", dgemm * 1e-9),
        CALM_KV("peak_gflops", peak * 1e-9), CALM_KV("ratio", allowed / calm_bench_seconds(&items[GPTQ])),
        CALM_KV("dgemm_share_of_peak", dgemm / peak), CALM_KV("spread", calm_bench_spreads(items, N_ITEMS)),
        CALM_KV("runs", items[GPTQ].timing.n), CALM_KV("other_seconds", list), CALM_KV("environment", environment)));
}

static calm_status report(calm_ctx *ctx, const bench *b, const calm_bench_item items[N_ITEMS],
                          const calm_bench_item made[N_OTHERS])
{
    const double in = (double)b->asked->in, out = (double)b->asked->out;
    const double allowed = 4 * in * in * in / 3 / calm_bench_rate(&items[CHOLESKY]) +
                           out * in * in / calm_bench_rate(&items[DGEMM]);
    if (b->asked->json)
        return print_json(ctx, b, items, made, allowed);
    printf("quantize %zu x %zu in double precision, one thread: median of %zu runs\n", b->asked->out, b->asked->in,
           items[GPTQ].timing.n);
    for (size_t i = CHOLESKY; i <= PEAK; i++)
        calm_bench_print(&items[i], NULL, i == PEAK ? NULL : &items[PEAK]);
    print_seconds(&items[GPTQ], "w4a16_g128");
    if (isfinite(allowed / calm_bench_seconds(&items[GPTQ])))
        printf("  these rates allow %.3f s for gptq, ratio %.2f\n", allowed,
               allowed / calm_bench_seconds(&items[GPTQ]));
    for (size_t a = 0; a < N_OTHERS; a++)
        print_seconds(&made[a], others[a].scheme);
    return calm_bench_print_machine(ctx);
}

calm_status calm_bench_quantize_run(calm_ctx *ctx, const calm_bench_quantize *asked)
{
    bench b = {.asked = asked};
    calm_bench_item items[N_ITEMS], made[N_OTHERS];
    const int threads = ctx->n_threads;
    CALM_TRY(make_linear(ctx, &b));
    ctx->n_threads = 1;
    const calm_status status = time_all(ctx, &b, items, made);
    ctx->n_threads = threads;
    CALM_TRY(status);
    return report(ctx, &b, items, made);
}
