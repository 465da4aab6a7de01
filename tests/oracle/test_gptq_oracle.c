/* Slow independent implementations of the numerical parts, written from the formulas of docs/method.md:
 *
 *   gptq    by elimination in the explicit inverse, one column and one rank-one update at a time
 *   search  by trying each candidate with rint
 *   ls      by Gaussian elimination of normal equations summed from their definition
 *   cd      by the sum over all other columns at every step
 *
 * The weights are random, so no value is within 1e-9 of a rounding tie and codes must be equal. */
#include "algorithms/descent.h"
#include "ptq/base/rng.h"
#include "tests/support/slow_parts.h"

/* ---- gptq ---- */

/* Returns the column with the largest power of those left; the first of equals. */
static size_t next_column(const slow_problem *p, const bool *done, bool by_power)
{
    size_t best = p->in;
    for (size_t j = 0; j < p->in; j++)
        if (!done[j] && (best == p->in || (by_power && p->h[j * p->in + j] > p->h[best * p->in + best])))
            best = j;
    return best;
}

static void slow_gptq(const slow_problem *p, const calm_qjob *qjob, bool by_power, bool sequential, double *q)
{
    size_t in = p->in, group = qjob->group;
    double *w = slow_doubles(p->out * in), *inverse = slow_inverted(slow_damped(p), in);
    float *scale;
    size_t *zero;
    bool *done;
    ck_ok(CALM_NEW(ctx, ctx->out, done, in));
    ck_ok(CALM_NEW(ctx, ctx->out, scale, p->out * qjob->n_groups));
    ck_ok(CALM_NEW(ctx, ctx->out, zero, p->out * qjob->n_groups));
    for (size_t i = 0; i < p->out * in; i++)
        w[i] = p->w[i];
    for (size_t step = 0; step < in; step++) {
        size_t j = next_column(p, done, by_power), g = j / group;
        for (size_t r = 0; r < p->out; r++)
            for (size_t k = 0; k < qjob->n_groups; k++)
                if (sequential ? j % group == 0 && k == g : step == 0)
                    slow_absmax(&qjob->scheme, w + r * in + k * group, group < in - k * group ? group : in - k * group,
                               &scale[r * qjob->n_groups + k], &zero[r * qjob->n_groups + k]);
        done[j] = true;
        for (size_t r = 0; r < p->out; r++) {
            size_t cell = r * qjob->n_groups + g;
            q[r * in + j] = slow_rounded(&qjob->scheme, w[r * in + j] / scale[cell], zero[cell]);
            double e = (w[r * in + j] - scale[cell] * q[r * in + j]) / inverse[j * in + j];
            for (size_t k = 0; k < in; k++)
                if (!done[k])
                    w[r * in + k] -= e * inverse[j * in + k];
            ck_assert(scale[cell] == qjob->scales[cell]);
        }
        slow_eliminate(inverse, in, j);
    }
}

static void check_gptq(const char *scheme, size_t in, const char *chain, bool by_power, bool sequential)
{
    slow_problem p;
    slow_problem_new(&p, 37, in, 500, scheme);
    calm_qjob qjob = slow_run(&p, chain);
    double *q = slow_doubles(p.out * p.in);
    slow_gptq(&p, &qjob, by_power, sequential, q);
    slow_check_codes(&qjob, q);
    ck_assert(qjob.damp == 0.01);
}

TEST(gptq_by_explicit_inverse)
{
    check_gptq("w4a16_g32", 150, "absmax+gptq", true, false);
    check_gptq("w3a16_asym", 150, "absmax+gptq", true, false);
    check_gptq("w4a16_g32", 150, "absmax+gptq(order=none)", false, false);
    check_gptq("w8a16", 150, "absmax+gptq(order=none)", false, false);
}
END_OF_TEST

/* Groups that divide a block of columns, that do not, and that are longer than a block. */
TEST(gptq_sequential_groups)
{
    check_gptq("w4a16_g32", 150, "absmax+gptq(order=none,groups=sequential)", false, true);
    check_gptq("w4a16_g48_asym", 150, "absmax+gptq(order=none,groups=sequential)", false, true);
    check_gptq("w3a16_g140", 150, "absmax+gptq(order=none,groups=sequential)", false, true);
    check_gptq("w4a16_g1", 40, "absmax+gptq(order=none,groups=sequential)", false, true);
    check_gptq("w4a16_g140", 300, "absmax+gptq(order=none,groups=sequential)", false, true);
}
END_OF_TEST

TEST(gptq_doubles_its_damping)
{
    /* The matrix [1, 1+d; 1+d, 1], which no inputs have, is positive definite with a damping above d. */
    double gram[] = {1, 1.1, 1.1, 1};
    float w[] = {0.3f, -0.7f};
    calm_linear linear = {"linear", 1, 2, w, false};
    calm_stats stats = {.rows = 1, .gram = gram};
    slow_problem p = {.job = {.name = "job", .linears = &linear, .n_linears = 1, .stats = &stats}};
    ck_ok(calm_scheme_parse(ctx, "w4a16", &p.job.scheme));
    calm_qjob qjob = slow_run(&p, "gptq");
    ck_assert(qjob.damp == 0.16);
    calm_algorithm *algorithm;
    gram[1] = gram[2] = 10;
    ck_ok(calm_algorithm_parse(ctx, "gptq", &algorithm));
    ck_fails(calm_algorithm_run(ctx, algorithm, &p.job, &qjob), CALM_ENUMERIC, "at a damping of 2.56 of its mean");
}
END_OF_TEST

/* Smoothing and then GPTQ gives the same as GPTQ on smoothed weights with the Gram matrix of smoothed inputs. */
TEST(gptq_after_smoothing)
{
    slow_problem p;
    float absmax[150];
    slow_problem_new(&p, 37, 150, 500, "w4a16_g32");
    double *gram = slow_doubles(p.in * p.in);
    for (size_t j = 0; j < p.in; j++)
        absmax[j] = (float)exp(2 * calm_rng_normal(8, 0, j));
    p.stats.absmax = absmax;
    p.job.can_absorb = true;
    calm_qjob smoothed = slow_run(&p, "smooth(alpha=0.7)+hls+gptq");
    const float *s = smoothed.in_scale;
    for (size_t i = 0; i < p.out * p.in; i++)
        p.w[i] *= s[i % p.in];
    for (size_t i = 0; i < p.in * p.in; i++)
        gram[i] = p.stats.gram[i] / ((double)s[i / p.in] * s[i % p.in]);
    p.stats.gram = gram;
    calm_qjob plain = slow_run(&p, "hls+gptq");
    ck_assert(plain.in_scale == NULL);
    ck_assert_mem_eq(plain.scales, smoothed.scales, plain.out * plain.n_groups * sizeof *plain.scales);
    ck_assert_mem_eq(plain.codes, smoothed.codes, plain.out * plain.in);
}
END_OF_TEST

/* Makes input j zero in the statistics. */
static void kill_input(slow_problem *p, size_t j)
{
    double *gram = slow_doubles(p->in * p->in);
    for (size_t i = 0; i < p->in * p->in; i++)
        gram[i] = i / p->in == j || i % p->in == j ? 0 : p->stats.gram[i];
    p->stats.gram = gram;
    for (size_t i = 0; i < p->in; i++)
        p->h[i * p->in + j] = p->h[j * p->in + i] = 0;
}

TEST(gptq_clears_dead_columns)
{
    slow_problem p;
    slow_problem_new(&p, 5, 20, 500, "w4a16");
    kill_input(&p, 7);
    p.w[7] = 100;    /* would stretch the grid of its row if the input were alive */
    calm_qjob qjob = slow_run(&p, "gptq");
    for (size_t r = 0; r < p.out; r++)
        ck_assert_uint_eq(qjob.codes[r * p.in + 7], 8);
    ck_assert(qjob.scales[0] < 1);
}
END_OF_TEST

/* ---- scale search ---- */

static void check_search(const char *scheme, const char *grid, bool weighted, bool both, bool refine)
{
    slow_problem p;
    slow_problem_new(&p, 20, 70, 500, scheme);
    calm_qjob qjob = slow_run(&p, test_format("%s+nearest", grid));
    for (size_t r = 0; r < p.out; r++)
        for (size_t g = 0; g < qjob.n_groups; g++) {
            size_t start = g * qjob.group, n = qjob.group < p.in - start ? qjob.group : p.in - start, zero;
            float s = slow_search(&qjob.scheme, p.w + r * p.in + start, weighted ? p.h + start * (p.in + 1) : NULL,
                                  p.in + 1, n, both && qjob.scheme.symmetric, refine, &zero);
            float found = qjob.scales[r * qjob.n_groups + g];
            ck_assert_msg(s == found, "%s %s row %zu group %zu: %g, expected %g", scheme, grid, r, g, found, s);
            ck_assert_uint_eq(slow_zero(&qjob, r, g), zero);
        }
}

TEST(searches_by_brute_force)
{
    static const char *const schemes[] = {"w4a16_g32", "w3a16_g16",      "w2a16",
                                          "w8a16_g16", "w4a16_g32_asym", "w2a16_asym"};
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        check_search(schemes[i], "mse", false, false, false);
        check_search(schemes[i], "mse(signed=true)", false, true, false);
        check_search(schemes[i], "hmse", true, false, false);
        check_search(schemes[i], "hmse(signed=true)", true, true, false);
        check_search(schemes[i], "ls", false, false, true);
        check_search(schemes[i], "ls(signed=true)", false, true, true);
        check_search(schemes[i], "hls", true, false, true);
        check_search(schemes[i], "hls(signed=true)", true, true, true);
    }
}
END_OF_TEST

/* hls(weights=inverse): grids before gptq weight errors by 1 / [H^-1]_jj, grids before nearest by H_jj. */
static void check_inverse_weights(const char *scheme, bool feedback)
{
    slow_problem p;
    size_t n_moved = 0;
    slow_problem_new(&p, 20, 70, 500, scheme);
    const calm_qjob qjob = slow_run(&p, test_format("hls(weights=inverse)+%s", feedback ? "gptq" : "nearest"));
    const calm_qjob diagonal = slow_run(&p, test_format("hls+%s", feedback ? "gptq" : "nearest"));
    double *inverse = slow_inverted(slow_damped(&p), p.in), *weight = slow_doubles(p.in);
    for (size_t j = 0; j < p.in; j++)
        weight[j] = feedback ? 1 / inverse[j * (p.in + 1)] : p.h[j * (p.in + 1)];
    for (size_t r = 0; r < p.out; r++)
        for (size_t g = 0; g < qjob.n_groups; g++) {
            const size_t start = g * qjob.group, cell = r * qjob.n_groups + g;
            size_t zero;
            const float s = slow_search(&qjob.scheme, p.w + r * p.in + start, weight + start, 1,
                                        calm_size_min(qjob.group, p.in - start), false, true, &zero);
            ck_assert(s == qjob.scales[cell]);
            ck_assert_uint_eq(slow_zero(&qjob, r, g), zero);
            n_moved += s != diagonal.scales[cell];
        }
    ck_assert((n_moved > 0) == feedback);
}

TEST(weights_of_the_inverse)
{
    check_inverse_weights("w4a16_g32", true);
    check_inverse_weights("w2a16_g16_asym", true);
    check_inverse_weights("w3a16_g16", false);
}
END_OF_TEST

/* In a group without any input all columns have equal weights. */
TEST(dead_groups_are_searched_unweighted)
{
    slow_problem p;
    slow_problem_new(&p, 20, 40, 500, "w3a16_g8");
    for (size_t j = 8; j < 16; j++)
        kill_input(&p, j);
    calm_qjob weighted = slow_run(&p, "hls+nearest"), plain = slow_run(&p, "ls+nearest");
    for (size_t r = 0; r < p.out; r++)
        ck_assert(weighted.scales[r * 5 + 1] == plain.scales[r * 5 + 1]);
}
END_OF_TEST

/* A scale out of the format's range is no candidate, a smaller one that clips the largest weight is. */
TEST(search_leaves_out_what_cannot_be_stored)
{
    slow_problem p;
    slow_problem_new(&p, 2, 8, 500, "w4a16");
    p.w[3] = 65280 * 8;
    calm_qjob qjob = slow_run(&p, "mse+nearest");
    ck_assert(qjob.scales[0] > 20000 && qjob.scales[0] <= 65280);
}
END_OF_TEST

/* ---- refits ---- */

/* Refits the result of `chain` slowly, with `rounds` of scales and, if asked, sweeps; compares it with `refit`. */
static void check_refit(const char *scheme, const char *chain, const char *refit, int rounds, bool sweeps)
{
    slow_problem p;
    slow_problem_new(&p, 37, 150, 500, scheme);
    for (size_t j = 0; j < 32; j++)
        p.w[4 * p.in + j] = 0;    /* a group, or half of one, whose codes are zero */
    calm_qjob before = slow_run(&p, chain), after = slow_run(&p, test_format("%s+%s", chain, refit));
    double *h = slow_damped(&p), *q = slow_doubles(p.out * p.in);
    for (size_t r = 0; r < p.out; r++) {
        const float *w = p.w + r * p.in;
        float *scale = before.scales + r * before.n_groups;
        double *row = q + r * p.in;
        for (size_t j = 0; j < p.in; j++)
            row[j] = (double)before.codes[r * p.in + j] - (double)slow_zero(&before, r, j / before.group);
        slow_descent(&before, r, h, w, row, scale, rounds, sweeps, NULL);
        for (size_t g = 0; g < before.n_groups; g++)
            ck_assert(scale[g] == after.scales[r * before.n_groups + g]);
        for (size_t g = 0; g < before.n_groups; g++)
            ck_assert_uint_eq(slow_zero(&before, r, g), slow_zero(&after, r, g));
    }
    slow_check_codes(&after, q);
}

TEST(ls_by_elimination)
{
    check_refit("w4a16_g32", "hls+nearest", "ls", 1, false);
    check_refit("w2a16_g64_asym", "hls+nearest", "ls", 1, false);
    check_refit("w3a16", "hls+nearest", "ls", 1, false);
    /* With scales this good the rounded solution is often worse. */
    check_refit("w3a16_g16", "hls+gptq+mkq(rounds=1)", "ls", 1, false);
    check_refit("w4a16_g8", "hls+gptq+mkq(rounds=2)", "ls", 1, false);
}
END_OF_TEST

TEST(mkq_by_plain_descent)
{
    check_refit("w4a16_g32", "hls+nearest", "mkq(rounds=1)", 1, true);
    check_refit("w2a16_g32", "hls+nearest", "mkq", 4, true);
    check_refit("w4a16_g64_asym", "hls+nearest", "mkq(rounds=2)", 2, true);
    check_refit("w2a16_g32_asym", "hls+gptq", "mkq", 4, true);
    check_refit("w3a16_g48_asym", "absmax+nearest", "mkq(rounds=9)", 9, true);    /* groups cross blocks of columns */
    check_refit("w3a16", "hls+nearest", "mkq(rounds=9)", 9, true);
}
END_OF_TEST

/* Returns the least (w - s q) H (w - s q)^T of a group with one scale over all codes and zero points of b bits.  For
 * given codes and zero point the scale is w H q / q H q. */
static double least_loss(const double *h, const float *w, size_t in, int bits, size_t *zero)
{
    double least = INFINITY, *q = slow_doubles(in);
    const size_t codes = (size_t)1 << bits;
    for (size_t z = 0; z < codes; z++)
        for (size_t which = 0; which < (size_t)1 << (size_t)bits * in; which++) {
            double wq = 0, qq = 0;
            for (size_t j = 0; j < in; j++)
                q[j] = (double)(which >> (size_t)bits * j & (codes - 1)) - (double)z;
            for (size_t i = 0; i < in; i++)
                for (size_t j = 0; j < in; j++) {
                    wq += w[i] * h[i * in + j] * q[j];
                    qq += q[i] * h[i * in + j] * q[j];
                }
            /* A negative scale is the mirrored grid with the mirrored zero point, which is another candidate. */
            if (wq < 0)
                continue;
            const float scale = qq > 0 ? slow_storable(wq / qq) : 1;
            const double loss = slow_loss(h, w, q, &scale, in, in);
            if (!(loss < least))
                continue;
            least = loss;
            *zero = z;
        }
    return least;
}

/* Starts a row near a grid with a zero point that is off by one: the refit must move it to the one at which brute
 * force over zero points, codes and scales finds the least loss. */
static void check_zero_moves(const int *q, size_t true_zero, int shift)
{
    enum { IN = 6, BITS = 2 };
    slow_problem p;
    size_t zero = 0;
    slow_problem_new(&p, 1, IN, 500, "w2a16_asym");
    for (size_t j = 0; j < IN; j++)
        p.w[j] = (float)(0.125 * q[j] + 0.002 * calm_rng_normal(9, 0, j));
    double *h = slow_damped(&p), h_diag[IN];
    float scale = 0.125f;
    uint8_t codes[IN], stored = (uint8_t)((int)true_zero + shift);
    calm_qjob qjob = {.out = 1, .in = IN, .n_groups = 1, .group = IN, .scheme = p.job.scheme, .codes = codes,
                      .scales = &scale, .zeros = &stored};
    for (size_t j = 0; j < IN; j++) {
        h_diag[j] = p.h[j * (IN + 1)];
        codes[j] = (uint8_t)(slow_rounded(&qjob.scheme, p.w[j] / (double)scale, stored) + stored);
    }
    const calm_problem problem = {.job = &p.job, .out = 1, .in = IN, .group = IN, .n_groups = 1, .w = p.w, .h = p.h,
                                  .h_diag = h_diag};
    const double least = least_loss(h, p.w, IN, BITS, &zero);
    ck_assert_uint_eq(zero, true_zero);
    ck_ok(calm_descent_mkq(ctx, &problem, 9, 0.01, NULL, &qjob));
    double found[IN];
    for (size_t j = 0; j < IN; j++)
        found[j] = (double)codes[j] - stored;
    ck_assert_uint_eq(stored, true_zero);
    /* The codes are equal, so the losses differ by the rounding of sums of 36 terms. */
    ck_assert_double_eq_tol(slow_loss(h, p.w, found, &scale, IN, IN), least, 1e-9 * least);
}

TEST(zeros_move_to_the_best)
{
    check_zero_moves((const int[]){-1, 0, 1, 2, 2, 1}, 1, -1);
    check_zero_moves((const int[]){-1, 0, 1, 2, -1, 1}, 1, 1);
}
END_OF_TEST

/* Weights and inputs scaled by powers of two, beyond the range of float32 products, give the same codes, and scales
 * with the weights' factor. */
static void check_size(const char *scheme, const char *chain, int weights, int inputs)
{
    slow_problem p;
    slow_problem_new(&p, 40, 200, 300, scheme);
    const calm_qjob before = slow_run(&p, chain);
    for (size_t i = 0; i < p.out * p.in; i++)
        p.w[i] = ldexpf(p.w[i], weights);
    for (size_t i = 0; i < p.rows * p.in; i++)
        p.x[i] = ldexpf(p.x[i], inputs);
    slow_problem_measure(&p);
    const calm_qjob after = slow_run(&p, chain);
    ck_assert_mem_eq(after.codes, before.codes, p.out * p.in);
    for (size_t i = 0; i < p.out * before.n_groups; i++)
        ck_assert(after.scales[i] == ldexpf(before.scales[i], weights));
}

TEST(numbers_of_any_size)
{
    check_size("w4a16_g64", "hls+gptq+mkq", -60, -60);
    check_size("w3a16_g32_asym", "hls+nearest+mkq", 8, 80);
    check_size("w4a16", "hls+gptq+restarts(n=2)", -60, 80);
    check_size("w3a16_g32", "absmax+cd", 8, -80);
}
END_OF_TEST

int main(void)
{
    return run_tests("gptq_oracle", (const TTest *[]){gptq_by_explicit_inverse, gptq_sequential_groups,
                                                      gptq_doubles_its_damping, gptq_after_smoothing,
                                                      gptq_clears_dead_columns, searches_by_brute_force,
                                                      weights_of_the_inverse, dead_groups_are_searched_unweighted,
                                                      search_leaves_out_what_cannot_be_stored,
                                                      ls_by_elimination, mkq_by_plain_descent,
                                                      zeros_move_to_the_best, numbers_of_any_size, NULL});
}
