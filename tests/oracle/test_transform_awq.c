/* awq by trying every exponent: scales from the definition, each group rounded one weight at a time, the loss by the
 * sum over all pairs of columns.
 *
 * Codes are compared on the scales the chain found, which are then exact. */
#include "ptq/base/rng.h"
#include "tests/support/slow_parts.h"

#define LEAST 1e-5

typedef enum which_grid { ABSMAX, MSE, HMSE } which_grid;

/* Computes s of an exponent: shared over absorb groups by the geometric mean, then divided so that the product of all
 * is 1; both over channels with input, the others have 1. */
static void slow_scale(const slow_problem *p, double exponent, double *s)
{
    double *raw = slow_doubles(p->in);
    for (size_t j = 0; j < p->in; j++)
        if (p->stats.sumabs[j] > 0)
            raw[j] = pow(fmax(p->stats.sumabs[j] / (double)p->rows, LEAST), exponent);
    slow_channel_scales(p, raw, s);
}

/* Computes codes less zeros of W diag(s) on a grid, and its scales [O, G]. */
static void slow_nearest(const slow_problem *p, const double *s, which_grid grid, double *q, float *scale)
{
    const calm_scheme *scheme = &p->job.scheme;
    size_t in = p->in, group = scheme->group ? scheme->group : in, n_groups = (in + group - 1) / group;
    double *scaled = slow_doubles(in), *h = slow_doubles(in);
    float *w;
    ck_ok(CALM_NEW(ctx, ctx->out, w, in));
    for (size_t r = 0; r < p->out; r++) {
        for (size_t j = 0; j < in; j++) {
            scaled[j] = w[j] = p->w[r * in + j] * (float)s[j];
            h[j] = p->h[j * in + j] / (s[j] * s[j]);
        }
        for (size_t g = 0; g < n_groups; g++) {
            size_t start = g * group, n = in - start < group ? in - start : group, zero;
            float *out = &scale[r * n_groups + g];
            if (grid == ABSMAX)
                slow_absmax(scheme, scaled + start, n, out, &zero);
            else
                *out = slow_search(scheme, w + start, grid == HMSE ? h + start : NULL, 1, n, false, false, &zero);
            for (size_t j = start; j < start + n; j++)
                q[r * in + j] = slow_rounded(scheme, w[j] / (double)*out, zero);
        }
    }
}

static double slow_error(const slow_problem *p, const double *s, which_grid grid)
{
    size_t in = p->in, group = p->job.scheme.group ? p->job.scheme.group : in, n_groups = (in + group - 1) / group;
    double *q = slow_doubles(p->out * in), *e = slow_doubles(in), sum = 0;
    float *scale;
    ck_ok(CALM_NEW(ctx, ctx->out, scale, p->out * n_groups));
    slow_nearest(p, s, grid, q, scale);
    for (size_t r = 0; r < p->out; r++) {
        for (size_t j = 0; j < in; j++)
            e[j] = p->w[r * in + j] - scale[r * n_groups + j / group] * q[r * in + j] / s[j];
        for (size_t i = 0; i < in; i++)
            for (size_t j = 0; j < in; j++)
                sum += e[i] * p->h[i * in + j] * e[j];
    }
    return sum;
}

/* Compares with the chain; returns the exponent's number. */
static size_t check_awq(const slow_problem *p, which_grid grid)
{
    static const char *const names[] = {"absmax", "mse", "hmse"};
    calm_qjob qjob = slow_run(p, test_format("awq+%s+nearest", names[grid]));
    double *s = slow_doubles(p->in), *q = slow_doubles(p->out * p->in), least = INFINITY, second = INFINITY;
    size_t best = 0;
    float *scale;
    for (size_t i = 0; i < 20; i++) {
        slow_scale(p, 0.05 * (double)i, s);
        for (size_t j = 0; j < p->in; j++)
            s[j] = (float)s[j];
        double loss = slow_error(p, s, grid);
        second = loss < least ? least : fmin(second, loss);
        best = loss < least ? i : best;
        least = fmin(loss, least);
    }
    ck_assert_double_gt(second, least * (1 + 1e-6));    /* no tie that sums in double decide */
    slow_scale(p, 0.05 * (double)best, s);
    ck_assert_ptr_nonnull(qjob.in_scale);
    for (size_t j = 0; j < p->in; j++) {
        ck_near(qjob.in_scale[j], s[j], SLOW_SCALE_ERROR * s[j]);
        s[j] = qjob.in_scale[j];
    }
    ck_ok(CALM_NEW(ctx, ctx->out, scale, p->out * qjob.n_groups));
    slow_nearest(p, s, grid, q, scale);
    ck_assert_mem_eq(scale, qjob.scales, p->out * qjob.n_groups * sizeof *scale);
    slow_check_codes(&qjob, q);
    return best;
}

/* O crosses a chunk of 128 rows, I a block of 128 columns. */
static void new_problem(slow_problem *p, size_t out, size_t in, const char *scheme)
{
    slow_problem_new(p, out, in, 300, scheme);
    p->job.can_absorb = true;
}

TEST(exponent_of_least_error)
{
    slow_problem p;
    new_problem(&p, 131, 150, "w4a16_g32");
    size_t found = check_awq(&p, ABSMAX);
    ck_assert(found > 0 && found < 19);
    check_awq(&p, MSE);
    check_awq(&p, HMSE);
    new_problem(&p, 40, 70, "w3a16_asym");
    check_awq(&p, ABSMAX);
    new_problem(&p, 40, 70, "w2a16_g64");
    check_awq(&p, MSE);
}
END_OF_TEST

/* Weights that already have absorbed the input's size leave nothing to move. */
TEST(no_exponent_where_weights_are_large_with_the_input)
{
    slow_problem p;
    new_problem(&p, 40, 70, "w4a16");
    for (size_t i = 0; i < p.out * p.in; i++)
        p.w[i] *= (float)p.stats.sumabs[i % p.in];
    ck_assert_uint_eq(check_awq(&p, ABSMAX), 0);
}
END_OF_TEST

/* Channels without input do not affect the scales of others; those of one group share. */
TEST(shared_and_dead_channels)
{
    slow_problem p;
    uint32_t share[70];
    new_problem(&p, 40, 70, "w4a16_g32");
    for (size_t t = 0; t < p.rows; t++)
        p.x[t * p.in + 7] = 0;
    slow_problem_measure(&p);
    check_awq(&p, ABSMAX);
    for (size_t j = 0; j < p.in; j++)
        share[j] = (uint32_t)(j % 20);
    p.job.absorb_group = share;
    p.job.n_absorb_groups = 20;
    check_awq(&p, ABSMAX);
    check_awq(&p, MSE);
}
END_OF_TEST

/* With few rows and coarse codes the error is a rough function of the exponent, so any mistake changes some choice. */
TEST(many_small_problems)
{
    slow_problem p;
    for (size_t in = 129; in < 149; in++) {
        new_problem(&p, 2, in, "w2a16_g64");
        check_awq(&p, ABSMAX);
        new_problem(&p, 2, in, "w3a16_g32");
        check_awq(&p, HMSE);
    }
}
END_OF_TEST

/* After smoothing the input is the smoothed one.  The problem that is smoothed here has rounded inputs, which changes
 * the means, and s and its divisor with the exponent of at most 0.95, by a unit each; both chains round s, and the
 * first one its product with the scale of `smooth`. */
TEST(after_smoothing)
{
    slow_problem p;
    for (size_t in = 60; in < 80; in++) {
        new_problem(&p, 3, in, "w3a16_g32");
        calm_qjob both = slow_run(&p, "smooth+awq+absmax+nearest"), smooth = slow_run(&p, "smooth+absmax+nearest");
        for (size_t i = 0; i < p.out * p.in; i++)
            p.w[i] *= smooth.in_scale[i % p.in];
        for (size_t i = 0; i < p.rows * p.in; i++)
            p.x[i] /= smooth.in_scale[i % p.in];
        slow_problem_measure(&p);
        calm_qjob after = slow_run(&p, "awq+absmax+nearest");
        for (size_t j = 0; j < p.in; j++)
            ck_near(both.in_scale[j], (double)smooth.in_scale[j] * (double)after.in_scale[j],
                    5 * SLOW_SCALE_ERROR * (double)both.in_scale[j]);
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("transform_awq", (const TTest *[]){exponent_of_least_error,
                                                        no_exponent_where_weights_are_large_with_the_input,
                                                        shared_and_dead_channels, many_small_problems,
                                                        after_smoothing, NULL});
}
