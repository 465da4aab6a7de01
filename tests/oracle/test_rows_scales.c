/* Scales with minima of refits, and of grids, from their definition: for the codes as they are both are those of least
 * loss, found together.
 *
 * The quadratic loss A has its optimum at x*; the square root of a loss above the optimum's is a norm, so what is found
 * may be above it by the square of the sum of these norms:
 *   the ridge  computed: lambda, 1e-6 of the mean diagonal of each half, changes the solution to x
 *   rounding   moves each number of x by 2^-11 of itself at most, because float16 has 11 bits: sum |move| sqrt A_ii
 *   products   of refits are float32, so that A x - b is off by r, which moves x by A^-1 r: sqrt(r |A^-1| r) */
#include "ptq/tensor/dtype.h"
#include "tests/support/slow_parts.h"

#define OUT 20
#define IN 96    /* three groups of q4_1 */
#define GROUP 32
#define G (IN / GROUP)
#define U (2 * G)
#define ROWS 300

/* One row's system: A [U, U] and b [U] for scales and minima, and w H w; and these sums over the terms'
 * magnitudes, in b |w - m| + |m| of a weight, because refits subtract its minimum m first. */
typedef struct slow_system {
    double a[U * U], b[U], ww;
    double abs_a[U * U], abs_b[U], abs_ww;
} slow_system;

static double basis(const calm_qjob *q, size_t r, size_t unknown, size_t j)
{
    if (j / GROUP != unknown % G)
        return 0;
    return unknown < G ? q->codes[r * IN + j] : 1;
}

static void build(const slow_problem *p, const double *h, const calm_qjob *q, size_t r, slow_system *out)
{
    *out = (slow_system){.ww = 0};
    for (size_t i = 0; i < IN; i++)
        for (size_t j = 0; j < IN; j++) {
            const double hw = h[i * IN + j] * (double)p->w[r * IN + j], wi = p->w[r * IN + i];
            const double min = q->mins[r * G + j / GROUP];
            out->ww += wi * hw;
            out->abs_ww += fabs(wi * hw);
            for (size_t u = 0; u < U; u++) {
                const double bi = basis(q, r, u, i);
                out->b[u] += bi * hw;
                out->abs_b[u] += fabs(bi * h[i * IN + j]) * (fabs((double)p->w[r * IN + j] - min) + fabs(min));
                for (size_t v = 0; v < U; v++) {
                    out->a[u * U + v] += bi * h[i * IN + j] * basis(q, r, v, j);
                    out->abs_a[u * U + v] += fabs(bi * h[i * IN + j] * basis(q, r, v, j));
                }
            }
        }
}

static double loss_of(const slow_system *s, const double *x)
{
    double loss = s->ww;
    for (size_t u = 0; u < U; u++) {
        loss -= 2 * s->b[u] * x[u];
        for (size_t v = 0; v < U; v++)
            loss += x[u] * s->a[u * U + v] * x[v];
    }
    return loss;
}

/* Computes x [U] of least loss. */
static void solve(const slow_system *s, double *x)
{
    double a[U * U];
    memcpy(a, s->a, sizeof a);
    memcpy(x, s->b, sizeof s->b);
    slow_solve(a, x, U, 1);
}

/* Computes scales of least loss for fixed minima. */
static double scales_alone(const slow_system *s, const double *now)
{
    double a[G * G], x[U];
    memcpy(x + G, now + G, G * sizeof *x);
    for (size_t u = 0; u < G; u++) {
        x[u] = s->b[u];
        for (size_t v = 0; v < G; v++) {
            a[u * G + v] = s->a[u * U + v];
            x[u] -= s->a[u * U + G + v] * now[G + v];
        }
    }
    slow_solve(a, x, G, 1);
    return loss_of(s, x);
}

/* Returns how much loss_of() errs: a sum of n terms in double by n 2^-53 of their magnitudes; each of its sums has at
 * most 2 I^2 terms. */
static double error_of_loss(const slow_system *s, const double *x)
{
    double sum = s->abs_ww;
    for (size_t u = 0; u < U; u++) {
        sum += 2 * s->abs_b[u] * fabs(x[u]);
        for (size_t v = 0; v < U; v++)
            sum += fabs(x[u]) * s->abs_a[u * U + v] * fabs(x[v]);
    }
    return 2 * IN * IN * 0x1p-53 * sum;
}

/* Returns sqrt(r |A^-1| r) for the error r of A x - b.  calm sums q H of a group's columns, and w H, in float32, with H
 * rounded to float32 first: n products err by (n + 1) 2^-24 of their magnitudes.  The rest is in double. */
static double by_products(const slow_system *s, const double *x)
{
    double r[U], sum = 0;
    const double *inverse = slow_inverted(s->a, U);
    for (size_t u = 0; u < U; u++) {
        r[u] = (IN + 1) * 0x1p-24 * s->abs_b[u];
        for (size_t v = 0; u < G && v < G; v++)
            r[u] += (GROUP + 1) * 0x1p-24 * s->abs_a[u * U + v] * fabs(x[v]);
    }
    for (size_t u = 0; u < U; u++)
        for (size_t v = 0; v < U; v++)
            sum += r[u] * fabs(inverse[u * U + v]) * r[v];
    return sqrt(sum);
}

/* Returns the least loss, and in *most the largest that may be found from the numbers `before`; `ridge` is lambda
 * of a refit; 0: of a grid, which has none and sums in double. */
static double least_of(const slow_system *s, const double *before, double ridge, double *most)
{
    double x[U], mean[2] = {0, 0}, moved = 0;
    slow_system pulled = *s;
    solve(s, x);
    const double least = loss_of(s, x);
    for (size_t u = 0; u < U; u++)
        mean[u >= G] += s->a[u * U + u] / G;
    for (size_t u = 0; u < U; u++) {
        pulled.a[u * U + u] += ridge * mean[u >= G];
        pulled.b[u] += u < G ? 0 : ridge * mean[1] * before[u];    /* of a minimum the change is pulled to 0 */
    }
    solve(&pulled, x);
    for (size_t u = 0; u < U; u++)
        moved += 0x1p-11 * fabs(x[u]) * sqrt(s->a[u * U + u]);
    const double norm = sqrt(fmax(loss_of(s, x) - least, 0)) + moved + (ridge > 0 ? by_products(s, x) : 0);
    /* Two losses here and the one that is compared. */
    *most = least + norm * norm + 3 * error_of_loss(s, x);
    return least;
}

static void numbers_of(const calm_qjob *q, size_t r, double *x)
{
    for (size_t g = 0; g < G; g++) {
        x[g] = q->scales[r * G + g];
        x[G + g] = q->mins[r * G + g];
    }
}

TEST(refits_find_scales_and_minima_together)
{
    slow_problem p;
    slow_problem_new(&p, OUT, IN, ROWS, "q4_1");
    /* Weights far from zero, so that minima matter. */
    for (size_t i = 0; i < OUT * IN; i++)
        p.w[i] += 0.02F * (float)(i % 5);
    const double *h = slow_damped(&p);
    const calm_qjob plain = slow_run(&p, "absmax+nearest"), fitted = slow_run(&p, "absmax+nearest+ls");
    size_t more_than_scales = 0;
    ck_assert_mem_eq(plain.codes, fitted.codes, OUT * IN);
    for (size_t r = 0; r < OUT; r++) {
        slow_system s;
        double now[U], before[U], most;
        build(&p, h, &plain, r, &s);
        numbers_of(&plain, r, before);
        numbers_of(&fitted, r, now);
        const double least = least_of(&s, before, 1e-6, &most), found = loss_of(&s, now);
        ck_assert_msg(found <= most, "row %zu: loss %g, least %g, allowed %g", r, found, least, most);
        more_than_scales += scales_alone(&s, before) > most;
    }
    /* Otherwise unchanged minima would pass. */
    ck_assert_uint_ge(more_than_scales, OUT / 2);
}
END_OF_TEST

/* A grid sees a diagonal H, so each group separately: after its last round, least squares on its codes improves nothing
 * beyond storing. */
TEST(grids_end_at_their_own_least_squares)
{
    slow_problem p;
    slow_problem_new(&p, OUT, IN, ROWS, "q4_1");
    double *eye = slow_doubles(IN * IN);
    for (size_t j = 0; j < IN; j++)
        eye[j * IN + j] = 1;
    const calm_qjob q = slow_run(&p, "ls(rounds=1000)+nearest"), span = slow_run(&p, "absmax+nearest");
    double sum = 0, of_span = 0;
    for (size_t r = 0; r < OUT; r++) {
        slow_system s;
        double now[U], most;
        build(&p, eye, &q, r, &s);
        numbers_of(&q, r, now);
        const double least = least_of(&s, now, 0, &most), found = loss_of(&s, now);
        ck_assert_msg(found <= most, "row %zu: loss %g, least %g, allowed %g", r, found, least, most);
        sum += found;
        build(&p, eye, &span, r, &s);
        numbers_of(&span, r, now);
        of_span += loss_of(&s, now);
    }
    ck_assert_double_lt(sum, of_span);
}
END_OF_TEST

/* Returns sum (w - m - s q)^2 of a group for the nearest codes of the scale *s and the minimum *m as float16 stores
 * them, and the scale and minimum of least squares for these codes; *s and *m stay if all codes are equal. */
static double measured(const float *w, double *s, double *m)
{
    const double scale = calm_dtype_round(CALM_F16, (float)*s), min = calm_dtype_round(CALM_F16, (float)*m);
    double loss = 0, q = 0, qq = 0, sum = 0, wq = 0;
    for (size_t j = 0; j < GROUP; j++) {
        const double code = fmin(fmax(rint(((double)w[j] - min) / scale), 0), 15);
        const double e = (double)w[j] - min - scale * code;
        loss += e * e;
        q += code;
        qq += code * code;
        sum += w[j];
        wq += (double)w[j] * code;
    }
    if (GROUP * qq > q * q) {
        *s = (GROUP * wq - q * sum) / (GROUP * qq - q * q);
        *m = (sum - *s * q) / GROUP;
    }
    return loss;
}

/* The search's definition (algorithms/scale_search.c): 36 spans from 1.1 down to 0.35 of the group's and the group's
 * own; none of them, and none of their least-squares fits, may be better than what is found. */
TEST(grids_are_the_best_of_their_search)
{
    slow_problem p;
    slow_problem_new(&p, OUT, IN, ROWS, "q4_1");
    const calm_qjob q = slow_run(&p, "ls+nearest");
    size_t not_the_span = 0;
    for (size_t cell = 0; cell < OUT * G; cell++) {
        const float *w = p.w + cell * GROUP;
        double lo = w[0], hi = w[0], found = 0;
        for (size_t j = 0; j < GROUP; j++) {
            lo = fmin(lo, (double)w[j]);
            hi = fmax(hi, (double)w[j]);
            const double e = (double)w[j] - (double)q.mins[cell] - (double)q.scales[cell] * q.codes[cell * GROUP + j];
            found += e * e;
        }
        /* Two sums of the same terms >= 0 in double, in two orders. */
        const double order = 2 * GROUP * 0x1p-53 * found;
        for (int k = -1; k < 36; k++) {
            const double share = k < 0 ? 1 : 1.1 - k * 0.75 / 35;
            double s = share * (hi - lo) / 15, m = share * lo;
            for (int fit = 0; fit < 2; fit++) {
                const double loss = measured(w, &s, &m);
                ck_assert_msg(found <= loss + order, "group %zu: squared error %g, span %g fit %d %g", cell, found,
                              share, fit, loss);
                not_the_span += k < 0 && fit == 1 && found + order < loss;
            }
        }
    }
    /* Otherwise the group's own span and its fit would pass. */
    ck_assert_uint_gt(not_the_span, OUT * G / 2);
}
END_OF_TEST

int main(void)
{
    return run_tests("rows_scales",
                     (const TTest *[]){refits_find_scales_and_minima_together, grids_end_at_their_own_least_squares,
                                       grids_are_the_best_of_their_search, NULL});
}
