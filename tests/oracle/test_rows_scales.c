/* Scales with minima of refits, and of grids, from their definition: for the codes as they are both are those of least
 * loss, found together.
 *
 * Storable numbers are float16s, so what is found is compared with the continuous optimum x* of the quadratic loss A:
 *   rounding   moves each number by 2^-11 of itself at most, which adds (sum |move| sqrt A_ii)^2 at most
 *   the ridge  adds lambda |x*|^2 at most, lambda 1e-6 of the mean diagonal of each half
 * and (sqrt a + sqrt b)^2 of both together, since sqrt loss above the optimum is a norm. */
#include "tests/support/slow_parts.h"

#define OUT 20
#define IN 96    /* three groups of q4_1 */
#define GROUP 32
#define G (IN / GROUP)
#define U (2 * G)
#define ROWS 300

/* One row's system: A [U, U] and b [U] for scales and minima, and w H w. */
typedef struct slow_system {
    double a[U * U], b[U], ww;
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
            const double wj = p->w[r * IN + j];
            out->ww += (double)p->w[r * IN + i] * h[i * IN + j] * wj;
            for (size_t u = 0; u < U; u++) {
                out->b[u] += basis(q, r, u, i) * h[i * IN + j] * wj;
                for (size_t v = 0; v < U; v++)
                    out->a[u * U + v] += basis(q, r, u, i) * h[i * IN + j] * basis(q, r, v, j);
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

/* Returns the largest loss that storing and the ridge may add to that of the optimum x. */
static double allowed(const slow_system *s, const double *x, const double *before)
{
    double moved = 0, ridge = 0, mean[2] = {0, 0};
    for (size_t u = 0; u < U; u++) {
        moved += 0x1p-11 * fabs(x[u]) * (1 + 1e-3) * sqrt(s->a[u * U + u]);
        mean[u >= G] += s->a[u * U + u] / G;
    }
    for (size_t u = 0; u < U; u++) {
        const double from = u < G ? 0 : before[u];    /* of a minimum its change */
        ridge += 1e-6 * mean[u >= G] * (x[u] - from) * (x[u] - from);
    }
    return (moved + sqrt(ridge)) * (moved + sqrt(ridge));
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
        double x[U], now[U], before[U];
        build(&p, h, &plain, r, &s);
        solve(&s, x);
        numbers_of(&plain, r, before);
        numbers_of(&fitted, r, now);
        const double least = loss_of(&s, x), found = loss_of(&s, now), bound = least + allowed(&s, x, before);
        /* The least loss itself is a difference of sums of the size of w H w, in double. */
        ck_assert_msg(found <= bound + 1e-10 * s.ww, "row %zu: loss %g, least %g, allowed %g", r, found, least, bound);
        more_than_scales += scales_alone(&s, before) > bound;
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
        double x[U], now[U], none[U] = {0};
        build(&p, eye, &q, r, &s);
        solve(&s, x);
        numbers_of(&q, r, now);
        const double least = loss_of(&s, x), found = loss_of(&s, now);
        ck_assert_msg(found <= least + allowed(&s, x, none) + 1e-10 * s.ww, "row %zu: loss %g, least %g", r, found,
                      least);
        sum += found;
        build(&p, eye, &span, r, &s);
        numbers_of(&span, r, now);
        of_span += loss_of(&s, now);
    }
    ck_assert_double_lt(sum, of_span);
}
END_OF_TEST

/* Brute force: scale and minimum on a mesh finer than the steps of a search, each with the nearest codes.  A search
 * tries evenly shrinking spans, so the mesh may be better, for a group by chance, but over many groups by less than a
 * tenth. */
TEST(grids_beside_brute_force)
{
    enum { MESH = 120 };
    slow_problem p;
    slow_problem_new(&p, OUT, IN, ROWS, "q4_1");
    const calm_qjob q = slow_run(&p, "ls+nearest");
    double found = 0, best_of_all = 0;
    for (size_t cell = 0; cell < OUT * G; cell++) {
        const float *w = p.w + cell * GROUP;
        double lo = w[0], hi = w[0], best = INFINITY;
        for (size_t j = 0; j < GROUP; j++) {
            lo = fmin(lo, (double)w[j]);
            hi = fmax(hi, (double)w[j]);
            const double e = (double)w[j] - (double)q.mins[cell] - (double)q.scales[cell] * q.codes[cell * GROUP + j];
            found += e * e;
        }
        for (size_t a = 0; a < MESH; a++)
            for (size_t b = 0; b < MESH; b++) {
                const double m = lo + (hi - lo) * (0.3 * (double)a / MESH - 0.05);
                const double s = (hi + (hi - lo) * (0.05 - 0.3 * (double)b / MESH) - m) / 15;
                double loss = 0;
                for (size_t j = 0; j < GROUP; j++) {
                    const double code = fmin(fmax(rint(((double)w[j] - m) / s), 0), 15);
                    loss += ((double)w[j] - m - s * code) * ((double)w[j] - m - s * code);
                }
                best = fmin(best, loss);
            }
        best_of_all += best;
    }
    ck_assert_msg(found <= 1.1 * best_of_all, "squared error %g, by brute force %g", found, best_of_all);
}
END_OF_TEST

int main(void)
{
    return run_tests("rows_scales", (const TTest *[]){refits_find_scales_and_minima_together,
                                                      grids_end_at_their_own_least_squares, grids_beside_brute_force,
                                                      NULL});
}
