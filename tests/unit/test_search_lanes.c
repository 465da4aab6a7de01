/* Loops over candidates of a scale search: plain sums, and the same bytes for every instruction set. */
#include "algorithms/search_lanes.h"

#include <math.h>
#include <string.h>

#include "ptq/base/rng.h"
#include "tests/support/harness.h"

enum { COLUMNS = 33, FIRST = 8, END = 24 };

/* Makes candidates of both signs with narrow limits, and weights beyond these, halfway between two codes, 0, and not
 * finite. */
static calm_lanes *new_lanes(double w[COLUMNS], double h[COLUMNS])
{
    calm_lanes *c;
    ck_ok(CALM_NEW(ctx, ctx->out, c, 1));
    c->n = END;
    for (size_t i = 0; i < END; i++) {
        c->scale[i] = (i % 3 ? 1 : -1) * exp2(-(double)(i % 7)) * (i % 4 ? 1 + calm_rng_uniform(1, 0, i) : 1);
        c->lo[i] = -(double)(i % 5) * 2;
        c->hi[i] = 7;
        c->inverse[i] = c->loss[i] = NAN;
    }
    for (size_t j = 0; j < COLUMNS; j++) {
        w[j] = 3 * calm_rng_normal(2, 0, j);
        h[j] = calm_rng_uniform(3, 0, j);
    }
    w[0] = 0;
    w[1] = -0.0;
    for (size_t j = 2; j < 10; j++)
        w[j] = 0.5 * (double)j - 3;
    return c;
}

/* Returns the instruction set number i if this CPU has it, or NULL. */
static const calm_lane_kernels *set_of(size_t i)
{
#if defined(__x86_64__)
    if (i == 1 && __builtin_cpu_supports("avx2"))
        return &calm_lanes_avx2;
    if (i == 2 && __builtin_cpu_supports("avx512f"))
        return &calm_lanes_avx512;
#endif
    return i ? NULL : &calm_lanes_plain;
}

#define EACH_SET                                                                                                       \
    for (size_t s = 0; s < 3; s++)                                                                                     \
        if (set_of(s))

/* rint rounds as the kernels do: to nearest, ties to even. */
static double code_of(const calm_lanes *c, size_t i, double w)
{
    const double q = w * (1 / c->scale[i]), above = q < c->lo[i] ? c->lo[i] : q;
    return rint(above > c->hi[i] ? c->hi[i] : above);
}

static bool same(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

static void check_losses(calm_lanes *c, const double *w, const double *h)
{
    EACH_SET
    {
        set_of(s)->measure(c, FIRST, END, w, h, COLUMNS);
        for (size_t i = FIRST; i < END; i++) {
            double loss = 0;
            for (size_t j = 0; j < COLUMNS; j++) {
                const double e = w[j] - c->scale[i] * code_of(c, i, w[j]);
                loss += (h ? h[j] : 1) * e * e;
            }
            ck_assert(same(c->loss[i], loss) && c->inverse[i] == 1 / c->scale[i]);
        }
        ck_assert(isnan(c->loss[FIRST - 1]));
    }
}

static void check_sums(calm_lanes *c, const double *w, const double *h)
{
    EACH_SET
    {
        calm_lane_sums sums;
        set_of(s)->measure(c, FIRST, END, w, h, COLUMNS);
        set_of(s)->project(c, FIRST, END, w, h, COLUMNS, &sums);
        for (size_t i = FIRST; i < END; i++) {
            double wq = 0, qq = 0;
            for (size_t j = 0; j < COLUMNS; j++) {
                const double q = code_of(c, i, w[j]), hj = h ? h[j] : 1;
                wq += hj * w[j] * q;
                qq += hj * q * q;
            }
            ck_assert(same(sums.wq[i - FIRST], wq) && same(sums.qq[i - FIRST], qq) && sums.sq[i - FIRST] == 0);
        }
    }
}

TEST(losses_are_sums_one_by_one)
{
    double w[COLUMNS], h[COLUMNS];
    calm_lanes *c = new_lanes(w, h);
    check_losses(c, w, h);
    check_losses(c, w, NULL);
    w[COLUMNS / 2] = NAN;
    check_losses(c, w, h);
    w[COLUMNS / 2] = INFINITY;
    check_losses(c, w, h);
}
END_OF_TEST

TEST(projections_are_sums_one_by_one)
{
    double w[COLUMNS], h[COLUMNS];
    calm_lanes *c = new_lanes(w, h);
    check_sums(c, w, h);
    check_sums(c, w, NULL);
    w[COLUMNS / 2] = NAN;
    check_sums(c, w, h);
}
END_OF_TEST

/* Flags are raised and never cleared. */
TEST(lost_are_those_of_greater_loss)
{
    double w[COLUMNS], h[COLUMNS];
    const calm_lanes *c = new_lanes(w, h);
    EACH_SET
    {
        size_t n_lost = 0, n_beyond = 0;
        for (size_t j = 0; j < COLUMNS; j++) {
            const double least = 0.05;
            calm_lane_flags is;
            memset(&is, 0, sizeof is);
            is.lost[1] = is.beyond[1] = -1;
            set_of(s)->lose(c, FIRST, END, w[j], h[j], least, &is);
            for (size_t i = FIRST; i < END; i++) {
                const double x = w[j] * (1 / c->scale[i]), e = w[j] - c->scale[i] * code_of(c, i, w[j]);
                const bool lost = h[j] * e * e > least, beyond = lost && (x < c->lo[i] || x > c->hi[i]);
                if (i != FIRST + 1) {
                    ck_assert(is.lost[i - FIRST] == -(int64_t)lost);
                    ck_assert(is.beyond[i - FIRST] == -(int64_t)beyond);
                }
                n_lost += lost;
                n_beyond += beyond;
            }
            ck_assert(is.lost[1] == -1 && is.beyond[1] == -1);
        }
        ck_assert(n_lost > n_beyond && n_beyond > 0);
    }
}
END_OF_TEST

TEST(the_widest_set_is_taken)
{
    EACH_SET if (s == 2 || !set_of(s + 1)) ck_assert(calm_lanes_here() == set_of(s));
}
END_OF_TEST

int main(void)
{
    return run_tests("search_lanes",
                     (const TTest *[]){losses_are_sums_one_by_one, projections_are_sums_one_by_one,
                                       lost_are_those_of_greater_loss, the_widest_set_is_taken, NULL});
}
