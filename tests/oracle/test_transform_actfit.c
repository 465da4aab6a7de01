/* actfit from its definition: tokens quantized one value at a time, sums over rows, Gaussian elimination; then what
 * follows must do what it does for W* and Hq given by hand.
 *
 * Both W* are the same double up to the errors of sums (slow_fit_weights computes their bounds), rounded to float32
 * once, which is checked: at most one rounding, 2^-24, apart.  So codes of b bits can differ only where w / s is within
 * 2^(b-1) 2^-24 of a tie: of random weights one in 10^6 at 4 bits, one in 65 000 at 8.  No test here has more than
 * 5,550 weights of 4 bits or 1,480 of 8, so codes must be equal. */
#include "tests/support/slow_parts.h"

/* Replaces the weights by W* [O, I] and the Gram matrix by Hq; removes the input scale from p. */
static void slow_actfit(slow_problem *p, float *in_scale, double lambda)
{
    size_t in = p->in;
    double *hq = slow_doubles(in * in), *cq = slow_doubles(in * in), *power = slow_doubles(in);
    float *x, *xq, *w;
    ck_ok(CALM_NEW(ctx, ctx->out, x, in));
    ck_ok(CALM_NEW(ctx, ctx->out, xq, in));
    ck_ok(CALM_NEW(ctx, ctx->out, w, p->out * in));
    for (size_t t = 0; t < p->rows; t++) {
        for (size_t j = 0; j < in; j++) {
            x[j] = in_scale ? p->x[t * in + j] / in_scale[j] : p->x[t * in + j];
            power[j] += (double)x[j] * (double)x[j] / (double)p->rows;
        }
        slow_token(&p->job.scheme, x, in, xq);
        for (size_t i = 0; i < in; i++)
            for (size_t j = 0; j < in; j++) {
                hq[i * in + j] += (double)xq[i] * xq[j] / (double)p->rows;
                cq[i * in + j] += (double)xq[i] * x[j] / (double)p->rows;
            }
    }
    for (size_t i = 0; i < p->out * in; i++)
        w[i] = in_scale ? p->w[i] * in_scale[i % in] : p->w[i];
    slow_fit fit = {.rows = p->rows, .h = hq, .c = cq, .power = power, .lambda = lambda, .alpha = 1};
    slow_fit_weights(&fit, w, p->out, in);
    slow_check_fit(p, test_format("actfit(lambda=%.17g)", lambda), in_scale, &fit);
    for (size_t i = 0; i < p->out * in; i++)
        p->w[i] = (float)fit.fitted[i];
    for (size_t i = 0; i < in * in; i++)
        hq[i] *= (double)p->rows;
    p->stats.gram = hq;
}

/* Chains: `smooth` or "", and the steps after actfit. */
static void check_fit(size_t in, size_t rows, const char *scheme, const char *smooth, double lambda, const char *rest)
{
    slow_problem p;
    slow_problem_new(&p, 37, in, rows, scheme);
    p.job.can_absorb = true;
    calm_qjob found = slow_run(&p, test_format("%sactfit(lambda=%.17g)+%s", smooth, lambda, rest));
    ck_assert(!found.in_scale == !*smooth);
    slow_actfit(&p, found.in_scale, lambda);
    calm_qjob expected = slow_run(&p, rest);
    ck_assert_mem_eq(expected.scales, found.scales, found.out * found.n_groups * sizeof *found.scales);
    ck_assert_mem_eq(expected.codes, found.codes, found.out * found.in);
}

/* Kept rows cross a chunk of 256, inputs a tile of 128. */
TEST(weights_and_gram_of_the_quantized_input)
{
    check_fit(40, 400, "w4a4_g16", "", 0.01, "absmax+nearest");
    check_fit(40, 400, "w4a4_g16", "", 0.3, "absmax+nearest");
    check_fit(40, 400, "w4a4_g16_asymact", "", 0.01, "hmse+nearest");
    check_fit(40, 330, "w8a8", "", 0.01, "absmax+gptq");
    check_fit(150, 1201, "w4a4_g32", "", 0.01, "hls(signed=true)+gptq");
}
END_OF_TEST

TEST(of_the_smoothed_input)
{
    check_fit(40, 400, "w4a4_g16", "smooth+", 0.01, "absmax+gptq");
    check_fit(40, 400, "w4a4_g16", "awq+", 0.01, "hls+gptq");
}
END_OF_TEST

/* The purpose: the output from quantized activations is closer to the float one than without the fit.  By how
 * much follows from W*, which is checked above. */
static double output_error(const slow_problem *p, const char *chain)
{
    calm_qjob qjob = slow_run(p, chain);
    double sum = 0;
    float *w, *xq;
    ck_ok(CALM_NEW(ctx, ctx->out, w, p->out * p->in));
    ck_ok(CALM_NEW(ctx, ctx->out, xq, p->in));
    calm_qjob_dequantize(&qjob, w);
    for (size_t t = 0; t < p->rows; t++) {
        slow_token(&p->job.scheme, p->x + t * p->in, p->in, xq);
        for (size_t r = 0; r < p->out; r++) {
            double e = 0;
            for (size_t j = 0; j < p->in; j++)
                e += (double)p->w[r * p->in + j] * p->x[t * p->in + j] - (double)w[r * p->in + j] * xq[j];
            sum += e * e;
        }
    }
    return sum;
}

TEST(the_fit_lowers_the_error)
{
    slow_problem p;
    slow_problem_new(&p, 5, 40, 800, "w8a4");
    ck_assert_double_lt(output_error(&p, "actfit+absmax+nearest"), output_error(&p, "absmax+nearest"));
}
END_OF_TEST

/* Rows of zeros carry no information: the weights do not change. */
TEST(nothing_to_fit_to)
{
    slow_problem p;
    slow_problem_new(&p, 5, 20, 200, "w4a4_g16");
    memset(p.x, 0, p.rows * p.in * sizeof *p.x);
    calm_qjob found = slow_run(&p, "actfit+absmax+nearest"), expected = slow_run(&p, "absmax+nearest");
    ck_assert_mem_eq(expected.codes, found.codes, found.out * found.in);
}
END_OF_TEST

int main(void)
{
    return run_tests("transform_actfit",
                     (const TTest *[]){weights_and_gram_of_the_quantized_input, of_the_smoothed_input,
                                       the_fit_lowers_the_error, nothing_to_fit_to, NULL});
}
