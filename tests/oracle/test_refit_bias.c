/* bias by its definition: with the correction the mean error of every output is zero on the rows of the measurement,
 * and unchanged for a linear without a bias. */
#include "tests/support/slow_parts.h"

#define OUT 37
#define IN 40
#define ROWS 1100    /* more than twice a chunk of kept rows */

/* Inputs whose mean is far from zero: otherwise there is nothing to correct. */
static void new_problem(slow_problem *p, const char *scheme)
{
    slow_problem_new(p, OUT, IN, ROWS, scheme);
    for (size_t i = 0; i < ROWS * IN; i++)
        p->x[i] += (float)(i % IN % 5) - 1;
    slow_problem_measure(p);
    p->linear.bias = true;
    p->job.can_absorb = true;
}

/* Returns the mean over the rows of W x - W^ xq - delta of output r, and in *size the mean of the terms' magnitudes. */
static double mean_error(const slow_problem *p, const calm_qjob *q, size_t r, double *size)
{
    double error = 0;
    float *w, *x, *xq;
    ck_ok(CALM_NEW(ctx, ctx->out, w, OUT * IN));
    ck_ok(CALM_NEW(ctx, ctx->out, x, IN));
    ck_ok(CALM_NEW(ctx, ctx->out, xq, IN));
    calm_qjob_dequantize(q, w);
    *size = 0;
    for (size_t t = 0; t < ROWS; t++) {
        for (size_t j = 0; j < IN; j++)
            x[j] = xq[j] = q->in_scale ? p->x[t * IN + j] / q->in_scale[j] : p->x[t * IN + j];
        if (q->scheme.act_bits)
            slow_token(&q->scheme, x, IN, xq);
        for (size_t j = 0; j < IN; j++) {
            const double exact = (double)p->w[r * IN + j] * (double)p->x[t * IN + j];
            const double found = (double)w[r * IN + j] * (double)xq[j];
            error += (exact - found) / ROWS;
            *size += (fabs(exact) + fabs(found)) / ROWS;
        }
    }
    return error - (q->bias_delta ? (double)q->bias_delta[r] : 0);
}

static void check_corrected(const char *scheme, const char *chain)
{
    slow_problem p;
    double before = 0, after = 0, size;
    new_problem(&p, scheme);
    const calm_qjob plain = slow_run(&p, chain), found = slow_run(&p, test_format("%s+bias", chain));
    ck_assert_ptr_null(plain.bias_delta);
    ck_assert_ptr_nonnull(found.bias_delta);
    ck_assert_mem_eq(plain.codes, found.codes, OUT * IN);
    ck_assert_mem_eq(plain.scales, found.scales, OUT * found.n_groups * sizeof *found.scales);
    for (size_t r = 0; r < OUT; r++) {
        const double left = mean_error(&p, &found, r, &size);
        /* x / s is rounded to float32 once here and once in E[x / s - xq], whose parts are of the sum's size; delta is
         * a float32. */
        ck_assert_msg(fabs(left) <= 3 * 0x1p-24 * size, "%s, %s, row %zu: %g of %g", scheme, chain, r, left, size);
        after += fabs(left);
        before += fabs(mean_error(&p, &plain, r, &size));
    }
    ck_assert_double_lt(after, 1e-3 * before);
}

TEST(mean_errors_vanish)
{
    static const char *const schemes[] = {"w4a16_g16", "w3a16_g16_asym", "w8a8", "w8a8_asymact", "w4a4_g16",
                                          "w4a4_g16_asymact"};
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        check_corrected(schemes[i], "absmax+nearest");
        check_corrected(schemes[i], "smooth+hls(signed=true)+gptq+mkq");
    }
    check_corrected("w4a4_g16_asymact", "actfit+absmax+gptq");
}
END_OF_TEST

/* Two linears of a job, of which the second has a bias. */
TEST(linears_without_a_bias_stay)
{
    slow_problem p;
    double size;
    new_problem(&p, "w4a4_g16");
    const calm_linear two[] = {{"first", 20, IN, p.w, false}, {"second", OUT - 20, IN, p.w + 20 * IN, true}};
    const calm_qjob whole = slow_run(&p, "absmax+nearest+bias");
    p.job.linears = two;
    p.job.n_linears = 2;
    const calm_qjob found = slow_run(&p, "absmax+nearest+bias");
    for (size_t r = 0; r < OUT; r++)
        ck_assert(found.bias_delta[r] == (r < 20 ? 0 : whole.bias_delta[r]));
    ck_assert_double_gt(fabs(mean_error(&p, &found, 0, &size)), 1e-3 * size);
}
END_OF_TEST

/* Without a bias there is nothing to correct, and calibration measures nothing. */
TEST(jobs_without_biases_are_left_alone)
{
    slow_problem p;
    new_problem(&p, "w4a4_g16");
    p.linear.bias = false;
    p.stats = (calm_stats){.rows = ROWS};
    ck_assert_ptr_null(slow_run(&p, "absmax+nearest+bias").bias_delta);
}
END_OF_TEST

TEST(missing_statistics)
{
    slow_problem p;
    calm_algorithm *algorithm;
    calm_qjob q;
    new_problem(&p, "w4a4_g16");
    const calm_stats all = p.stats;
    double *sum = slow_doubles(IN);
    ck_ok(calm_algorithm_parse(ctx, "absmax+nearest+bias", &algorithm));
    sum[6] = -INFINITY;
    p.stats.sum = sum;
    ck_fails(calm_algorithm_run(ctx, algorithm, &p.job, &q), CALM_ENUMERIC, "job: the sum of x of input 6 is -inf");
    p.stats.sum = NULL;
    ck_fails(calm_algorithm_run(ctx, algorithm, &p.job, &q), CALM_EARG, "needs the inputs' sums");
    p.stats = all;
    p.stats.samples = NULL;
    ck_fails(calm_algorithm_run(ctx, algorithm, &p.job, &q), CALM_EARG, "needs the inputs' kept rows");
    p.job.scheme.act_bits = 0;
    ck_ok(calm_algorithm_run(ctx, algorithm, &p.job, &q));
    p.job.stats = NULL;
    ck_fails(calm_algorithm_run(ctx, algorithm, &p.job, &q), CALM_EARG, "needs calibration");
}
END_OF_TEST

int main(void)
{
    return run_tests("refit_bias", (const TTest *[]){mean_errors_vanish, linears_without_a_bias_stay,
                                                     jobs_without_biases_are_left_alone, missing_statistics, NULL});
}
