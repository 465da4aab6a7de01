/* H in float32 as refits read it, and losses that descent computes without measuring them. */
#include <float.h>

#include "algorithms/rows.h"
#include "ptq/base/scope.h"
#include "ptq/tensor/bf16_product.h"
#include "tests/support/slow_parts.h"

#define IN 192
#define OUT 40
#define ROWS 400
#define UNIT 0x1p-24

/* Kept whole or rounded a few rows at a time, rows of H are the same numbers, for any size of H. */
TEST(rows_of_h_are_the_same_kept_or_not)
{
    static const double sizes[] = {1, 0x1p-200, 0x1p180};
    slow_problem p;
    slow_problem_new(&p, 1, IN, ROWS, "w4a16_g32");
    for (size_t u = 0; u < sizeof sizes / sizeof *sizes; u++) {
        const calm_problem problem = {.in = IN, .group = 32, .h = slow_doubles(IN * IN), .h_diag = slow_doubles(IN)};
        for (size_t i = 0; i < IN * IN; i++)
            problem.h[i] = p.h[i] * sizes[u];
        for (size_t i = 0; i < IN; i++)
            problem.h_diag[i] = problem.h[i * IN + i];
        calm_rows_kept all;
        ck_ok(calm_rows_keep(ctx, &problem, 0, &all));
        ck_assert(!all.packs);
        ck_assert_ptr_nonnull(all.rounded);
        calm_rows kept = {.problem = &problem, .h = all.h, .unit_h = all.unit}, few = kept;
        kept.rounded = all.rounded;
        ck_ok(CALM_NEW(ctx, ctx->out, few.panel, CALM_SWEEP_BLOCK * IN));
        for (size_t start = 0; start < IN; start += 56)
            for (size_t from = 0; from <= start; from += 28) {
                const size_t n = calm_size_min(CALM_SWEEP_BLOCK, IN - start);
                const float *a = calm_rows_panel(&kept, start, start + n, from).h,
                            *b = calm_rows_panel(&few, start, start + n, from).h;
                for (size_t k = 0; k < n; k++)
                    for (size_t j = from; j < IN; j++) {
                        const double wanted = problem.h[(start + k) * IN + j] * all.unit;
                        ck_assert_float_eq(a[k * IN + j], (float)wanted);
                        ck_assert_float_eq(b[k * IN + j], (float)wanted);
                    }
            }
    }
}
END_OF_TEST

/* Either all of H in float32 counts, or a few rows for each worker. */
TEST(memory_is_counted_kept_or_not)
{
    ck_assert(calm_rows_keeps(14336) && !calm_rows_keeps(14337));
    const calm_job_shape narrow = {.in = 14336, .group = 128}, wide = {.in = 14337, .group = 128};
    ck_assert_uint_ge(calm_rows_kept_bytes(14336), 14336UL * 14336 * sizeof(float));
    ck_assert_uint_eq(calm_rows_panel_bytes(&narrow, 128), 0);
    ck_assert_uint_eq(calm_rows_kept_bytes(14337), 0);
    ck_assert_uint_ge(calm_rows_panel_bytes(&wide, 128), CALM_SWEEP_BLOCK * 14337 * sizeof(float));
}
END_OF_TEST

/* The state of each row of a job after two rounds. */
typedef struct known {
    double least[OUT], loss[OUT];
    double said[OUT], deviation[OUT];    /* the loss that descent computes, and the standard deviation of its error */
} known;

/* Returns the variance of the float32 error of sum of v_j h_j over I columns: the operands and the product of each term
 * are rounded by at most UNIT, and each sum is, with a third of the square in the mean.  Of two bfloat16 a term has an
 * error of 3 * 2^-18 and three sums. */
static double variance_of(const double *v, const double *h, bool two_parts)
{
    double sum = 0, variance = 0;
    for (size_t j = 0; j < IN; j++) {
        const double term = v[j] * h[j];
        sum += term;
        variance += (two_parts ? pow(3 * 0x1p-18, 2) : 3 * UNIT * UNIT) / 3 * term * term;
        variance += (two_parts ? 3 : 1) * UNIT * UNIT / 3 * sum * sum;
    }
    return variance;
}

/* Returns the variance of the error of row r's loss, (w - 2 v) H w + v H v less what the last sweep gained; v = s q,
 * `before`: the row's codes before that sweep.  A change d of v_j gains d (2 (H (w - v))_j - d H_jj). */
static double loss_variance(const calm_rows *rows, size_t r, const float *before)
{
    const double *w = rows->w + r * IN;
    double v[IN], variance = 0;
    for (size_t j = 0; j < IN; j++)
        v[j] = rows->scale[r * rows->problem->n_groups + j / rows->problem->group] * (double)rows->q[r * IN + j];
    for (size_t j = 0; j < IN; j++) {
        const double scale = rows->scale[r * rows->problem->n_groups + j / rows->problem->group];
        const double d = v[j] - scale * (double)before[j];
        const double of_w = variance_of(w, rows->h + j * IN, rows->two_parts),
                     of_v = variance_of(v, rows->h + j * IN, rows->two_parts);
        variance += pow(w[j] - 2 * v[j], 2) * of_w + v[j] * v[j] * of_v + 4 * d * d * (of_w + of_v);
    }
    return variance;
}

static calm_status descend(calm_ctx *to, calm_rows *rows, const void *opts)
{
    known *const *out = opts;
    float *before;
    CALM_TRY(CALM_NEW(to, to->scratch, before, rows->n * IN));
    CALM_TRY(calm_rows_begin_scales(to, rows, NULL, NULL));
    for (int round = 0; round < 2; round++) {
        CALM_TRY(calm_rows_scales(to, rows));
        memcpy(before, rows->q, rows->n * IN * sizeof *before);
        CALM_TRY(calm_rows_sweep(to, rows, true, round == 0));
    }
    for (size_t r = 0; r < rows->n; r++) {
        (*out)->least[rows->row[r]] = calm_rows_least(rows, r);
        (*out)->said[rows->row[r]] = rows->loss[r];
        (*out)->deviation[rows->row[r]] = sqrt(loss_variance(rows, r, before + r * IN));
    }
    return CALM_OK;
}

static calm_status measure(calm_ctx *to, calm_rows *rows, const void *opts)
{
    known *const *out = opts;
    CALM_TRY(calm_rows_losses(to, rows));
    for (size_t r = 0; r < rows->n; r++)
        (*out)->loss[rows->row[r]] = rows->loss[r];
    return CALM_OK;
}

/* Returns the sum of |e_i H_ij e_j| over row r, e = w - s q, H damped by 0.01 of its mean diagonal. */
static double magnitude_of(const slow_problem *p, const calm_qjob *q, size_t r)
{
    const double *h = slow_damped(p);
    float *w;
    double sum = 0;
    ck_ok(CALM_NEW(ctx, ctx->out, w, OUT * IN));
    calm_qjob_dequantize(q, w);
    for (size_t i = 0; i < IN; i++)
        for (size_t j = 0; j < IN; j++)
            sum += fabs(((double)p->w[r * IN + i] - (double)w[r * IN + i]) * h[i * IN + j] *
                        ((double)p->w[r * IN + j] - (double)w[r * IN + j]));
    return sum;
}

/* Returns w' H w' of row r, w' = w minus the minima, and in `size` the sum of its magnitudes. */
static double power_of(const slow_problem *p, const calm_qjob *q, size_t r, double *size)
{
    const double *h = slow_damped(p);
    double sum = 0, w[IN];
    *size = 0;
    for (size_t j = 0; j < IN; j++)
        w[j] = (double)p->w[r * IN + j] - (q->mins ? (double)q->mins[r * q->n_groups + j / q->group] : 0);
    for (size_t i = 0; i < IN; i++)
        for (size_t j = 0; j < IN; j++) {
            sum += w[i] * h[i * IN + j] * w[j];
            *size += fabs(w[i] * h[i * IN + j] * w[j]);
        }
    return sum;
}

/* A loss is not below what descent says, L - E.  Descent's own loss L is within eight standard deviations of a measured
 * one, which is a sum of products of errors: I + 4 roundings of their magnitudes, or 3 2^-18 more.  E = LOSS_ERROR L +
 * POWER_ERROR w H w (algorithms/rows.c), the latter with the error of a product.
 *
 * The loss of some rows alone is that of all but for the order of float32 products' sums: operands are the same, and
 * I products in any order err by I 2^-24 of their magnitudes, in both. */
static void check_known(calm_operands operands)
{
    CALM_SCOPED_OPERANDS(ctx, operands);
    static const char *const schemes[] = {"w4a16_g32", "w4a16_g64_asym", "w8a16", "q4_1"};
    const bool two_parts = operands == CALM_OPERANDS_BF16X2 && calm_bf16_is_fast(operands);
    const double of_products = (IN + 4) * UNIT + (two_parts ? 3 * 0x1p-18 : 0);
    const double power_error = two_parts ? 3.5e-5 : 2e-6, loss_error = 1e-3;
    for (size_t s = 0; s < sizeof schemes / sizeof *schemes; s++) {
        slow_problem p;
        slow_problem_new(&p, OUT, IN, ROWS, schemes[s]);
        calm_qjob q = slow_run(&p, "absmax+nearest");
        calm_problem problem = {.job = &p.job, .out = OUT, .in = IN, .group = q.group, .n_groups = q.n_groups,
                                .w = p.w, .h = slow_doubles(IN * IN), .h_diag = slow_doubles(IN)};
        memcpy(problem.h, p.h, IN * IN * sizeof *p.h);    /* damped in place */
        for (size_t j = 0; j < IN; j++)
            problem.h_diag[j] = p.h[j * IN + j];
        known all = {.loss = {0}}, some = {.loss = {0}};
        const known *const to_all = &all, *const to_some = &some;
        static const size_t listed[] = {1, 7, 8, 39};
        ck_ok(calm_rows_each(ctx, &problem, &q, 0.01, 16, descend, &to_all));
        ck_ok(calm_rows_each(ctx, &problem, &q, 0.01, 16, measure, &to_all));
        calm_rows_kept kept;
        ck_ok(calm_rows_keep(ctx, &problem, 0.01, &kept));
        ck_ok(calm_rows_some(ctx, &problem, &q, &kept, listed, 4, 3, measure, &to_some));
        for (size_t r = 0; r < OUT; r++) {
            double size;
            const double error = loss_error * all.said[r] + power_error * power_of(&p, &q, r, &size);
            ck_assert_msg(all.least[r] <= all.loss[r], "%s, row %zu: at least %g, found %g", schemes[s], r,
                          all.least[r], all.loss[r]);
            ck_near(all.said[r], all.loss[r], 8 * all.deviation[r] + of_products * magnitude_of(&p, &q, r));
            ck_near(all.least[r], all.said[r] - error, power_error * of_products * size);
        }
        for (size_t i = 0; i < 4; i++)
            ck_near(some.loss[listed[i]], all.loss[listed[i]], 2 * IN * 0x1p-24 * magnitude_of(&p, &q, listed[i]));
        ck_assert_double_eq(some.loss[0], 0);
    }
}

TEST(losses_are_not_below_what_descent_knows)
{
    check_known(CALM_OPERANDS_F32);
    check_known(CALM_OPERANDS_BF16X2);
}
END_OF_TEST

static calm_status descend_and_measure(calm_ctx *to, calm_rows *rows, const void *opts)
{
    double *const *loss = opts;
    CALM_TRY(calm_rows_begin_scales(to, rows, NULL, NULL));
    for (int round = 0; round < 3; round++) {
        CALM_TRY(calm_rows_scales(to, rows));
        CALM_TRY(calm_rows_sweep(to, rows, true, round != 1));
    }
    CALM_TRY(calm_rows_losses(to, rows));
    for (size_t r = 0; r < rows->n; r++)
        (*loss)[rows->row[r]] = rows->loss[r];
    return CALM_OK;
}

/* Operands packed once for all products, by chunks of any size and on several threads, give the bytes of products that
 * pack their operands. */
static void check_packed(const char *scheme, size_t group)
{
    enum { MANY = 150 };
    slow_problem p;
    slow_problem_new(&p, MANY, IN, ROWS, scheme);
    const calm_qjob start = slow_run(&p, "absmax+nearest");
    calm_problem problem = {.job = &p.job, .out = MANY, .in = IN, .group = start.group, .n_groups = start.n_groups,
                            .w = p.w, .h = p.h, .h_diag = slow_doubles(IN)};
    for (size_t j = 0; j < IN; j++)
        problem.h_diag[j] = p.h[j * IN + j];
    calm_rows_kept packed, plain;
    ck_assert_uint_eq(start.group, group);
    ck_ok(calm_rows_keep(ctx, &problem, 0.01, &packed));
    {
        CALM_SCOPED_OPERANDS(ctx, CALM_OPERANDS_F32);
        ck_ok(calm_rows_keep(ctx, &problem, 0.01, &plain));
    }
    ck_assert(!plain.packs && packed.packs == (group % 32 == 0));
    calm_qjob found[3];
    for (size_t i = 0; i < 3; i++)
        found[i] = slow_run(&p, "absmax+nearest");
    double *loss[] = {slow_doubles(MANY), slow_doubles(MANY), slow_doubles(MANY)};
    ck_ok(calm_rows_some(ctx, &problem, &found[0], &plain, NULL, MANY, 128, descend_and_measure, &loss[0]));
    ck_ok(calm_rows_some(ctx, &problem, &found[1], &packed, NULL, MANY, 256, descend_and_measure, &loss[1]));
    ctx->n_threads = 3;
    ck_ok(calm_rows_some(ctx, &problem, &found[2], &packed, NULL, MANY, 33, descend_and_measure, &loss[2]));
    ctx->n_threads = 1;
    for (size_t i = 1; i < 3; i++) {
        ck_assert_mem_eq(found[i].codes, found[0].codes, (size_t)MANY * IN);
        ck_assert_mem_eq(found[i].scales, found[0].scales, MANY * start.n_groups * sizeof *start.scales);
        ck_assert_mem_eq(loss[i], loss[0], MANY * sizeof **loss);
    }
    ck_assert(memcmp(found[0].codes, start.codes, (size_t)MANY * IN) != 0);
}

TEST(packed_rows_have_the_bytes_of_others)
{
    CALM_SCOPED_OPERANDS(ctx, CALM_OPERANDS_BF16X2);
    if (!calm_packed_fits(ctx->operands, CALM_PACKED_STEP))
        return;
    check_packed("w4a16_g32", 32);
    check_packed("w4a16_g64_asym", 64);
    check_packed("q4_1", 32);
    check_packed("w8a16", IN);
    check_packed("w4a16_g48", 48);    /* not packed */
}
END_OF_TEST

int main(void)
{
    return run_tests("rows_panel", (const TTest *[]){rows_of_h_are_the_same_kept_or_not, memory_is_counted_kept_or_not,
                                                     losses_are_not_below_what_descent_knows,
                                                     packed_rows_have_the_bytes_of_others, NULL});
}
