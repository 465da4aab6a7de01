/* asym from its definition: sums over the rows of two inputs, Gaussian elimination; then what follows must do what it
 * does for W* given by hand.  Both W* are at most one float32 rounding apart, which is checked; so codes of up to 4
 * bits can differ only where w / s is within 2^-21 of a tie, one random weight in 10^6 of the 1,480 here, and must be
 * equal. */
#include "ptq/base/rng.h"
#include "tests/support/slow_parts.h"

#define OUT 37
#define IN 40
#define ROWS 700    /* more than 16 per input */

static float exact[ROWS * IN];    /* the input after float blocks */

static void new_problem(slow_problem *p, const char *scheme)
{
    slow_problem_new(p, OUT, IN, ROWS, scheme);
    double *cross = slow_doubles(IN * IN);
    for (size_t i = 0; i < ROWS * IN; i++)
        exact[i] = p->x[i] * 1.1f + (float)(0.3 * calm_rng_normal(5, 1, i));
    for (size_t t = 0; t < ROWS; t++)
        for (size_t i = 0; i < IN; i++)
            for (size_t j = 0; j < IN; j++)
                cross[i * IN + j] += (double)p->x[t * IN + i] * (double)exact[t * IN + j];
    p->stats.cross = cross;
    p->job.can_absorb = true;
}

/* Replaces the weights by W*. */
static void slow_asym(slow_problem *p, double alpha, double lambda)
{
    double *h = slow_doubles(IN * IN), *c = slow_doubles(IN * IN), *power = slow_doubles(IN);
    for (size_t t = 0; t < ROWS; t++)
        for (size_t i = 0; i < IN; i++) {
            const double xi = p->x[t * IN + i], yi = exact[t * IN + i];
            power[i] += yi * yi / ROWS;
            for (size_t j = 0; j < IN; j++) {
                h[i * IN + j] += xi * (double)p->x[t * IN + j] / ROWS;
                c[i * IN + j] += xi * (double)exact[t * IN + j] / ROWS;
            }
        }
    slow_fit fit = {.rows = ROWS, .h = h, .c = c, .power = power, .lambda = lambda, .alpha = alpha};
    slow_fit_weights(&fit, p->w, OUT, IN);
    slow_check_fit(p, test_format("asym(alpha=%.17g,lambda=%.17g)", alpha, lambda), NULL, &fit);
    for (size_t i = 0; i < OUT * IN; i++)
        p->w[i] = (float)fit.fitted[i];
}

static void check_fit(const char *scheme, double alpha, double lambda, const char *rest)
{
    slow_problem p;
    new_problem(&p, scheme);
    const calm_qjob found = slow_run(&p, test_format("asym(alpha=%.17g,lambda=%.17g)+%s", alpha, lambda, rest));
    slow_asym(&p, alpha, lambda);
    const calm_qjob expected = slow_run(&p, rest);
    ck_assert_mem_eq(expected.scales, found.scales, found.out * found.n_groups * sizeof *found.scales);
    ck_assert_mem_eq(expected.codes, found.codes, found.out * found.in);
}

TEST(weights_for_the_input_as_it_is)
{
    check_fit("w4a16_g16", 1, 0.01, "absmax+nearest");
    check_fit("w4a16_g16", 0.5, 0.3, "absmax+nearest");
    check_fit("w3a16_g16_asym", 1, 0.01, "hmse+nearest");
    check_fit("w2a16_g16", 1, 0.01, "hls(signed=true)+gptq+mkq");
    check_fit("w4a8", 1, 0.01, "absmax+gptq");
    check_fit("w4a16_g16", 0, 0.01, "absmax+gptq");
}
END_OF_TEST

/* Returns E|W y - W^ x|^2, y the exact input. */
static double output_error(const slow_problem *p, const calm_qjob *q)
{
    double sum = 0;
    float *w;
    ck_ok(CALM_NEW(ctx, ctx->out, w, OUT * IN));
    calm_qjob_effective(q, w);
    for (size_t t = 0; t < ROWS; t++)
        for (size_t r = 0; r < OUT; r++) {
            double y = 0;
            for (size_t j = 0; j < IN; j++)
                y += (double)p->w[r * IN + j] * (double)exact[t * IN + j] -
                     (double)w[r * IN + j] * (double)p->x[t * IN + j];
            sum += y * y;
        }
    return sum;
}

/* The purpose, also after a transform that rescales the input: the error falls.  By how much follows from W*, which is
 * checked above. */
TEST(outputs_come_nearer_to_the_float_ones)
{
    static const char *const before[] = {"", "smooth+"};
    for (size_t i = 0; i < 2; i++) {
        slow_problem p;
        new_problem(&p, "w8a16");
        const calm_qjob plain = slow_run(&p, test_format("%sabsmax+nearest", before[i]));
        const calm_qjob fitted = slow_run(&p, test_format("%sasym+absmax+nearest", before[i]));
        ck_assert(!fitted.in_scale == !*before[i]);
        ck_assert_double_lt(output_error(&p, &fitted), output_error(&p, &plain));
    }
}
END_OF_TEST

TEST(too_few_rows_and_missing_products)
{
    slow_problem p;
    calm_algorithm *algorithm;
    calm_qjob q;
    new_problem(&p, "w4a16_g16");
    ck_ok(calm_algorithm_parse(ctx, "asym+absmax+nearest", &algorithm));
    p.stats.rows = 639;
    ck_fails(calm_algorithm_run(ctx, algorithm, &p.job, &q), CALM_ENUMERIC,
             "job: asym has 639 rows for 40 inputs, needs 640: more calibration windows");
    p.stats.rows = 640;
    ck_ok(calm_algorithm_run(ctx, algorithm, &p.job, &q));
    double *cross = slow_doubles(IN * IN);
    cross[2 * IN + 3] = NAN;
    p.stats.cross = cross;
    ck_fails(calm_algorithm_run(ctx, algorithm, &p.job, &q), CALM_ENUMERIC, "job: product of inputs [2, 3] is nan");
    p.stats.cross = NULL;
    ck_fails(calm_algorithm_run(ctx, algorithm, &p.job, &q), CALM_EARG,
             "needs the inputs' products with those behind float blocks, which calibration did not collect");
    p.stats.rows = 0;    /* no input: nothing to fit to */
    ck_ok(calm_algorithm_run(ctx, algorithm, &p.job, &q));
    ck_fails(calm_algorithm_parse(ctx, "asym+smooth+absmax+nearest", &algorithm), CALM_EARG,
             "must be the last transform");
}
END_OF_TEST

int main(void)
{
    return run_tests("transform_asym", (const TTest *[]){weights_for_the_input_as_it_is,
                                                         outputs_come_nearer_to_the_float_ones,
                                                         too_few_rows_and_missing_products, NULL});
}
