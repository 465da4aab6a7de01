/* channel by its definition: for fixed codes the factors per input minimise the damped loss, and later steps of a chain
 * work on the resulting weights and inputs. */
#include "algorithms/chain.h"
#include "tests/support/slow_parts.h"

#define OUT 300    /* more than a chunk of rows */
#define IN 140     /* more than a tile of inputs */
#define ROWS 600

static void new_problem(slow_problem *p, const char *scheme)
{
    slow_problem_new(p, OUT, IN, ROWS, scheme);
    p->job.can_absorb = true;
}

/* Returns the weights that the codes represent, in the original frame: W^ / in_scale [O, I]. */
static float *effective(const calm_qjob *q)
{
    float *w;
    ck_ok(CALM_NEW(ctx, ctx->out, w, OUT * IN));
    calm_qjob_effective(q, w);
    return w;
}

/* sum over rows of (w - v t) Hd (w - v t)^T; t NULL: ones. */
static double loss_of(const slow_problem *p, const double *h, const float *v, const double *t)
{
    double loss = 0, e[IN];
    for (size_t r = 0; r < OUT; r++) {
        for (size_t j = 0; j < IN; j++)
            e[j] = (double)p->w[r * IN + j] - (double)v[r * IN + j] * (t ? t[j] : 1);
        for (size_t i = 0; i < IN; i++)
            for (size_t j = 0; j < IN; j++)
                loss += e[i] * h[i * IN + j] * e[j];
    }
    return loss;
}

/* Returns how much loss_of(p, h, v, t) may change if each v t changes by `share` of itself, and errs itself: a sum of n
 * terms in double errs by n 2^-53 of their magnitudes. */
static double error_of_loss(const slow_problem *p, const double *h, const float *v, const double *t, double share)
{
    double first = 0, second = 0, magnitude = 0, e[IN], d[IN];
    for (size_t r = 0; r < OUT; r++) {
        for (size_t j = 0; j < IN; j++) {
            const double value = (double)v[r * IN + j] * t[j];
            e[j] = (double)p->w[r * IN + j] - value;
            d[j] = share * fabs(value);
        }
        for (size_t i = 0; i < IN; i++) {
            double he = 0;
            for (size_t j = 0; j < IN; j++) {
                he += h[i * IN + j] * e[j];
                second += d[i] * fabs(h[i * IN + j]) * d[j];
                magnitude += fabs(e[i] * h[i * IN + j] * e[j]);
            }
            first += 2 * d[i] * fabs(he);
        }
    }
    return first + second + OUT * IN * IN * 0x1p-53 * magnitude;
}

/* Computes the factors of least loss for the weights v, one for each `share` [I] of inputs, with a pull towards 1 of
 * 1e-6 of the mean diagonal.
 *
 * error [n]: bounds of the difference to other sums of the same definition A t = b.  The terms of A_ij and of steps of
 * Cholesky's factorisation have magnitudes up to z_i z_j, z_i^2 the diagonal (Cauchy and Schwarz; of a group z is the
 * sum of its inputs'), those of b_i up to z_i sum_j y_j, y of w as z of v.  Sums here and there have OUT + 2 I terms,
 * so A and b are off by d = 2 (OUT + 2 I) 2^-53 of that, and t by |A^-1| d z sum_j (z_j |t_j| + y_j). */
static double *slow_factors(const slow_problem *p, const double *h, const float *v, const uint32_t *share, size_t n,
                            double *error)
{
    double *a = slow_doubles(n * n), *b = slow_doubles(n), *z = slow_doubles(n), magnitude = 0;
    for (size_t i = 0; i < IN; i++) {
        double of_v = 0, of_w = 0;
        for (size_t j = 0; j < IN; j++) {
            double qq = 0, qw = 0;
            for (size_t r = 0; r < OUT; r++) {
                qq += (double)v[r * IN + i] * (double)v[r * IN + j];
                qw += (double)v[r * IN + i] * (double)p->w[r * IN + j];
            }
            a[share[i] * n + share[j]] += qq * h[i * IN + j];
            b[share[i]] += qw * h[j * IN + i];
        }
        for (size_t r = 0; r < OUT; r++) {
            of_v += (double)v[r * IN + i] * (double)v[r * IN + i];
            of_w += (double)p->w[r * IN + i] * (double)p->w[r * IN + i];
        }
        z[share[i]] += sqrt(of_v * h[i * IN + i]);
        magnitude += sqrt(of_w * h[i * IN + i]);
    }
    double ridge = 0;
    for (size_t i = 0; i < n; i++)
        ridge += 1e-6 * a[i * n + i] / (double)n;
    for (size_t i = 0; i < n; i++) {
        a[i * n + i] += ridge;
        b[i] += ridge;
    }
    const double *inverse = slow_inverted(a, n);
    slow_solve(a, b, n, 1);
    for (size_t i = 0; i < n; i++)
        magnitude += z[i] * fabs(b[i]);
    for (size_t i = 0; i < n; i++) {
        error[i] = 0;
        for (size_t j = 0; j < n; j++)
            error[i] += fabs(inverse[i * n + j]) * 2 * (OUT + 2 * IN) * 0x1p-53 * z[j] * magnitude;
    }
    return b;
}

/* Compares in_scale of the chain with 1 / factor; codes and scales are those without channel. */
static void check_factors(const char *scheme, const char *chain, size_t n)
{
    slow_problem p;
    uint32_t share[IN];
    double t[IN], error[IN], most = 0;
    new_problem(&p, scheme);
    for (size_t j = 0; j < IN; j++)
        share[j] = (uint32_t)(j % n);
    if (n < IN) {
        p.job.absorb_group = share;
        p.job.n_absorb_groups = n;
    }
    const calm_qjob plain = slow_run(&p, chain), found = slow_run(&p, test_format("%s+channel", chain));
    ck_assert_ptr_null(plain.in_scale);
    ck_assert_ptr_nonnull(found.in_scale);
    ck_assert_mem_eq(plain.codes, found.codes, OUT * IN);
    ck_assert_mem_eq(plain.scales, found.scales, OUT * found.n_groups * sizeof *found.scales);
    const double *h = slow_damped(&p), *expected;
    const float *v = effective(&plain);
    expected = slow_factors(&p, h, v, share, n, error);
    for (size_t j = 0; j < IN; j++) {
        t[j] = expected[share[j]];
        /* in_scale is 1 / t rounded to float32, 2^-24 relative, and 1 / in_scale off by 1 / (2^24 - 1) of t. */
        ck_near(1 / (double)found.in_scale[j], t[j], t[j] / (0x1p24 - 1) + error[share[j]]);
        most = fmax(most, error[share[j]] / t[j]);
    }
    const double before = loss_of(&p, h, v, NULL), after = loss_of(&p, h, effective(&found), NULL);
    ck_assert_double_lt(after, before);
    /* The weights that codes represent are float32 quotients by in_scale: two roundings. */
    ck_near(after, loss_of(&p, h, v, t), error_of_loss(&p, h, v, t, 2 / (0x1p24 - 1) + most));
}

TEST(factors_of_least_loss)
{
    static const char *const schemes[] = {"w4a16_g64", "w3a16_g64_asym", "q4_1"};
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        check_factors(schemes[i], "absmax+nearest", IN);
        check_factors(schemes[i], "absmax+nearest", 35);
    }
    check_factors("w2a16_g64", "hls+gptq+mkq", IN);
}
END_OF_TEST

/* Nearest codes of 2 bits would have factors down to .2: those stay 1, and the loss decreases all the same. */
TEST(factors_have_a_range)
{
    slow_problem p;
    size_t n_kept = 0;
    new_problem(&p, "w2a16_g64");
    const double *h = slow_damped(&p);
    const calm_qjob plain = slow_run(&p, "absmax+nearest"), found = slow_run(&p, "absmax+nearest+channel");
    for (size_t j = 0; j < IN; j++) {
        ck_assert_double_ge(found.in_scale[j], .5);
        ck_assert_double_le(found.in_scale[j], 2);
        n_kept += found.in_scale[j] == 1;
    }
    ck_assert_uint_gt(n_kept, 0);
    ck_assert_double_le(loss_of(&p, h, effective(&found), NULL), loss_of(&p, h, effective(&plain), NULL));
}
END_OF_TEST

/* Runs mkq by hand on W diag(s), in float32, and H_ij / (s_i s_j), s = in_scale of q. */
static void slow_mkq(const slow_problem *p, calm_qjob *q)
{
    float *w;
    calm_algorithm *algorithm;
    calm_problem by_hand = {.job = &p->job, .out = OUT, .in = IN, .group = q->group, .n_groups = q->n_groups,
                            .h = slow_doubles(IN * IN), .h_diag = slow_doubles(IN)};
    ck_ok(CALM_NEW(ctx, ctx->out, w, OUT * IN));
    for (size_t i = 0; i < OUT * IN; i++)
        w[i] = p->w[i] * q->in_scale[i % IN];
    for (size_t i = 0; i < IN * IN; i++)
        by_hand.h[i] = p->h[i] / ((double)q->in_scale[i / IN] * (double)q->in_scale[i % IN]);
    for (size_t j = 0; j < IN; j++)
        by_hand.h_diag[j] = by_hand.h[j * IN + j];
    by_hand.w = w;
    ck_ok(calm_algorithm_parse(ctx, "absmax+nearest+mkq", &algorithm));
    const calm_step *mkq = &algorithm->steps[algorithm->n_steps - 1];
    ck_ok(mkq->part->run.refit(ctx, &by_hand, mkq->opts, q));
}

/* After a transform the factors change its scale, and a later refit uses W diag(in_scale) and the new H: it does the
 * same operations as by hand, so codes and scales are equal. */
TEST(other_steps_follow)
{
    slow_problem p;
    new_problem(&p, "w3a16_g64");
    const double *h = slow_damped(&p);
    const calm_qjob smooth = slow_run(&p, "smooth+absmax+gptq+mkq");
    const calm_qjob found = slow_run(&p, "smooth+absmax+gptq+mkq+channel");
    size_t n_changed = 0;
    for (size_t j = 0; j < IN; j++) {
        n_changed += found.in_scale[j] != smooth.in_scale[j];
        /* The scale of the transform times a factor of [1/2, 2], rounded to float32. */
        const double factor = (double)found.in_scale[j] / (double)smooth.in_scale[j];
        ck_assert(factor >= 0.5 * (1 - 0x1p-24) && factor <= 2 * (1 + 0x1p-24));
    }
    ck_assert_uint_gt(n_changed, IN / 2);
    ck_assert_mem_eq(smooth.codes, found.codes, OUT * IN);
    const calm_qjob less = slow_run(&p, "absmax+gptq+channel"), more = slow_run(&p, "absmax+gptq+channel+mkq");
    ck_assert_mem_eq(more.in_scale, less.in_scale, IN * sizeof *more.in_scale);
    ck_assert_double_lt(loss_of(&p, h, effective(&more), NULL), loss_of(&p, h, effective(&less), NULL));
    calm_qjob expected = less;
    slow_mkq(&p, &expected);
    ck_assert_mem_eq(expected.codes, more.codes, OUT * IN);
    ck_assert_mem_eq(expected.scales, more.scales, OUT * more.n_groups * sizeof *more.scales);
    /* Restarts need the inverse of the new H: there is one. */
    const calm_qjob most = slow_run(&p, "absmax+gptq+channel+mkq+restarts(n=2)");
    ck_assert_double_lt(loss_of(&p, h, effective(&most), NULL), loss_of(&p, h, effective(&more), NULL));
}
END_OF_TEST

/* Where no weights can absorb an input scale, the chain equals the one without channel. */
TEST(left_out_where_nothing_absorbs)
{
    slow_problem p;
    new_problem(&p, "w3a16_g64");
    p.job.can_absorb = false;
    const calm_qjob plain = slow_run(&p, "absmax+gptq+mkq"), found = slow_run(&p, "absmax+gptq+channel+mkq");
    ck_assert_ptr_null(found.in_scale);
    ck_assert_mem_eq(plain.codes, found.codes, OUT * IN);
}
END_OF_TEST

/* Inputs with zero weights keep factor 1, and so do all inputs of a job without weights. */
TEST(dead_inputs_keep_one)
{
    slow_problem p;
    new_problem(&p, "w4a16_g64");
    for (size_t r = 0; r < OUT; r++)
        p.w[r * IN + 5] = p.w[r * IN + 139] = 0;
    const calm_qjob found = slow_run(&p, "absmax+nearest+channel");
    ck_assert(found.in_scale[5] == 1 && found.in_scale[139] == 1);
    ck_assert(found.in_scale[6] != 1);
    for (size_t i = 0; i < OUT * IN; i++)
        p.w[i] = 0;
    const calm_qjob none = slow_run(&p, "absmax+nearest+channel");
    for (size_t j = 0; j < IN; j++)
        ck_assert(none.in_scale[j] == 1);
}
END_OF_TEST

int main(void)
{
    return run_tests("refit_channel", (const TTest *[]){factors_of_least_loss, factors_have_a_range,
                                                        other_steps_follow, left_out_where_nothing_absorbs,
                                                        dead_inputs_keep_one, NULL});
}
