/* Restarts, row by row, against slow versions of GPTQ and of descent, whose orders and rules follow the head of
 * refit_restarts.c. */
#include "ptq/base/array.h"
#include "ptq/base/rng.h"
#include "tests/support/slow_parts.h"

enum { OUT = 20, IN = 96 };

/* Rounds one row on given scales, columns in this order: errors move to the remaining columns by the inverse of the
 * remaining H. */
static void slow_feedback(const calm_qjob *qjob, size_t r, const slow_problem *p, const size_t *order,
                          const float *scale, double *q)
{
    const size_t in = p->in;
    double *w = slow_doubles(in), *inverse = slow_inverted(slow_damped(p), in);
    bool *done;
    ck_ok(CALM_NEW(ctx, ctx->out, done, in));
    for (size_t i = 0; i < in; i++)
        w[i] = p->w[r * in + i];
    for (size_t step = 0; step < in; step++) {
        const size_t j = order[step], g = j / qjob->group;
        done[j] = true;
        q[j] = slow_rounded(&qjob->scheme, w[j] / (double)scale[g], slow_zero(qjob, r, g));
        const double e = (w[j] - (double)scale[g] * q[j]) / inverse[j * in + j];
        for (size_t k = 0; k < in; k++)
            if (!done[k])
                w[k] -= e * inverse[j * in + k];
        slow_eliminate(inverse, in, j);
    }
}

/* Orders columns by decreasing H_jj exp(jitter z_j). */
static void slow_order(const slow_problem *p, double jitter, uint64_t k, size_t *order)
{
    for (size_t j = 0; j < p->in; j++) {
        const double power = p->h[j * p->in + j] * exp(jitter * calm_rng_normal(0x63616c6d, k, j));
        size_t at = j;
        for (; at > 0; at--) {
            const size_t other = order[at - 1];
            if (p->h[other * p->in + other] * exp(jitter * calm_rng_normal(0x63616c6d, k, other)) >= power)
                break;
            order[at] = other;
        }
        order[at] = j;
    }
}

/* The kept result of each row. */
typedef struct kept_rows {
    calm_qjob qjob;
    double *h, *q;        /* [I, I], [O, I] codes less zeros */
    bool taken[OUT];      /* a restart was better */
    size_t n_stopped;     /* descents that stopped because they could not win */
} kept_rows;

static void keep_start(const slow_problem *p, kept_rows *kept)
{
    const calm_qjob *qjob = &kept->qjob;
    for (size_t i = 0; i < p->out * p->in; i++)
        kept->q[i] = (double)qjob->codes[i] - (double)slow_zero(qjob, i / p->in, i % p->in / qjob->group);
}

/* Runs GPTQ in this order and descent on row r, and keeps the result if its loss is lower; fall: NULL, or the largest
 * decrease to expect from each step. */
static void restart_row(const slow_problem *p, size_t r, const size_t *order, int rounds, kept_rows *kept,
                        slow_path *path, const double *fall)
{
    calm_qjob *best = &kept->qjob;
    const float *w = p->w + r * p->in;
    float *scale = best->scales + r * best->n_groups, other[IN];
    uint8_t *zero = best->zeros ? best->zeros + r * best->n_groups : NULL, zeros[IN];
    double *row = kept->q + r * p->in, *trial = slow_doubles(p->in);
    memcpy(other, scale, best->n_groups * sizeof *scale);
    if (zero)
        memcpy(zeros, zero, best->n_groups);
    path->fall = fall;
    path->best = slow_loss(kept->h, w, row, scale, p->in, best->group);
    slow_feedback(best, r, p, order, other, trial);
    slow_descent(best, r, kept->h, w, trial, other, rounds, true, path);
    const double loss = path->loss[path->n - 1];
    kept->n_stopped += path->fall && !(loss * path->fall[path->n - 1] < path->best);
    if (loss < path->best) {
        memcpy(row, trial, p->in * sizeof *row);
        memcpy(scale, other, best->n_groups * sizeof *scale);
        kept->taken[r] = true;
    } else if (zero)
        memcpy(zero, zeros, best->n_groups);
}

/* Steps with a separate fall; later ones use the last. */
#define FALLS 9

/* In the first order one row in four runs to its end. */
#define EXPLORERS 4

/* Returns the fall of a step: the share `leave` of rows whose loss decreased more after it; rows that did not reach the
 * step do not count. */
static double slow_fall(const slow_path *path, int step, double leave)
{
    double end[OUT];
    size_t n = 0;
    for (size_t r = 0; r < OUT; r += EXPLORERS)
        if (step < path[r].n)
            end[n++] = path[r].loss[path[r].n - 1] / path[r].loss[step];
    qsort(end, n, sizeof *end, calm_compare_doubles);
    return n ? end[(size_t)(leave * (double)n)] : 0;
}

/* Checks row by row the best of the existing result and of GPTQ and descent in other orders, each from the best scales
 * so far.  The product does not report its choice: some rows must be of each kind, or this would test nothing; with
 * `leave` some must stop. */
static void check_restarts(const char *scheme, double jitter, int n, int rounds, double leave)
{
    slow_problem p;
    size_t order[IN], n_taken = 0;
    double fall[SLOW_STEPS];
    slow_problem_new(&p, OUT, IN, 500, scheme);
    kept_rows kept = {.qjob = slow_run(&p, "hls+gptq"), .h = slow_damped(&p), .q = slow_doubles(OUT * IN)};
    const calm_qjob after = slow_run(&p, test_format("hls+gptq+restarts(n=%d,jitter=%g,rounds=%d,leave=%g)", n, jitter,
                                                     rounds, leave));
    keep_start(&p, &kept);
    for (int k = 1; k <= n; k++) {
        slow_path path[OUT] = {{.n = 0}};
        slow_order(&p, jitter, (uint64_t)k, order);
        for (size_t r = 0; r < OUT; r += EXPLORERS)
            restart_row(&p, r, order, rounds, &kept, &path[r], k > 1 && leave > 0 ? fall : NULL);
        for (int step = 0; k == 1 && step < SLOW_STEPS; step++)
            fall[step] = slow_fall(path, step < FALLS ? step : FALLS - 1, leave);
        for (size_t r = 0; r < OUT; r++)
            if (r % EXPLORERS)
                restart_row(&p, r, order, rounds, &kept, &path[r], leave > 0 ? fall : NULL);
    }
    for (size_t i = 0; i < OUT * after.n_groups; i++)
        ck_assert(kept.qjob.scales[i] == after.scales[i]);
    slow_check_codes(&after, kept.q);
    for (size_t r = 0; r < OUT; r++)
        n_taken += kept.taken[r];
    ck_assert_msg(n_taken > 0, "%s: no restart was better in any row", scheme);
    ck_assert_msg(n > 1 || n_taken < OUT, "%s: a restart was better in every row", scheme);
    ck_assert_msg((kept.n_stopped > 0) == (leave > 0), "%s: %zu rows stopped", scheme, kept.n_stopped);
}

TEST(restarts_row_by_row)
{
    check_restarts("w3a16_g32", 0.5, 1, 2, 0);
    check_restarts("w2a16_g32_asym", 1, 3, 2, 0);
    check_restarts("w4a16", 0.25, 2, 2, 0);
}
END_OF_TEST

TEST(rows_stop_without_hope)
{
    check_restarts("w3a16_g32", 0.5, 3, 2, 0.1);
    check_restarts("w4a16", 0.5, 4, 2, 0.3);
    check_restarts("w2a16_g32_asym", 1, 3, 2, 0.5);
    /* Rows of a chunk are swapped when others stop between scales and codes. */
    check_restarts("w3a16_g32", 0.3, 4, 2, 0.1);
    check_restarts("w4a16_g32", 1, 4, 4, 0.1);
    check_restarts("w2a16_g16", 2, 4, 8, 0.3);      /* more rounds than steps with a separate fall */
    check_restarts("w3a16_g32", 0.5, 1, 2, 0.1);    /* some rows of the first order stop, too */
}
END_OF_TEST

/* Powers of two change neither codes nor scales; GPTQ's factor is of a float32 H, whose range they may exceed. */
TEST(any_size_of_inputs)
{
    static const int exponents[] = {-70, -20, 60};    /* of inputs; twice that of H */
    slow_problem p;
    slow_problem_new(&p, OUT, IN, 500, "w3a16_g32");
    const calm_qjob first = slow_run(&p, "hls+gptq+restarts(n=2)");
    for (size_t i = 0; i < sizeof exponents / sizeof *exponents; i++) {
        slow_problem other;
        slow_problem_new(&other, OUT, IN, 500, "w3a16_g32");
        for (size_t j = 0; j < IN * IN; j++)
            ((double *)other.stats.gram)[j] = ldexp(p.stats.gram[j], 2 * exponents[i]);
        const calm_qjob found = slow_run(&other, "hls+gptq+restarts(n=2)");
        ck_assert_mem_eq(found.codes, first.codes, OUT * IN);
        ck_assert_mem_eq(found.scales, first.scales, OUT * first.n_groups * sizeof *first.scales);
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("refit_restarts", (const TTest *[]){restarts_row_by_row, rows_stop_without_hope,
                                                           any_size_of_inputs, NULL});
}
