/* Chains whose products have operands of two bfloat16, against sums in double and against the same chains in float32;
 * whichever kernels compute them here: where none is fast with such operands, they stay float32. */
#include <float.h>

#include "algorithms/rows.h"
#include "ptq/base/scope.h"
#include "ptq/tensor/bf16_product.h"
#include "tests/support/slow_parts.h"

/* Relative error of a term of a product of two bfloat16 parts. */
#define TERM (3 * 0x1p-18)

enum { OUT = 160, IN = 320, ROWS = 900 };

static calm_qjob run_by(calm_operands operands, const slow_problem *p, const char *chain)
{
    CALM_SCOPED_OPERANDS(ctx, operands);
    return slow_run(p, chain);
}

/* ---- sums ---- */

static calm_status keep_losses(calm_ctx *to, calm_rows *rows, const void *opts)
{
    double *const *loss = opts;
    CALM_TRY(calm_rows_losses(to, rows));
    for (size_t r = 0; r < rows->n; r++)
        (*loss)[rows->row[r]] = rows->loss[r];
    return CALM_OK;
}

/* Computes e_j = w_j - s q_j of row r. */
static void errors_of(const slow_problem *p, const calm_qjob *q, size_t r, double *e)
{
    for (size_t j = 0; j < p->in; j++) {
        const double code = (double)q->codes[r * p->in + j] - (double)slow_zero(q, r, j / q->group);
        e[j] = (double)p->w[r * p->in + j] - (double)q->scales[r * q->n_groups + j / q->group] * code;
    }
}

/* sum |h_j e_j| */
static double size_of(const double *h, const double *e, size_t n)
{
    double sum = 0;
    for (size_t j = 0; j < n; j++)
        sum += fabs(h[j] * e[j]);
    return sum;
}

/* Losses of codes to nearest: each term e_i H_ij e_j is off by what its product is, by the roundings of e and H to
 * float32, and by those of sums of IN terms.  Not those of float32, where such operands are multiplied. */
TEST(losses)
{
    slow_problem p;
    slow_problem_new(&p, OUT, IN, ROWS, "w4a16_g64");
    calm_qjob q = slow_run(&p, "absmax+nearest");
    calm_problem problem = {.job = &p.job, .out = OUT, .in = IN, .group = q.group, .n_groups = q.n_groups, .w = p.w,
                            .h = p.h, .h_diag = slow_doubles(IN)};
    double *h = slow_damped(&p), *e = slow_doubles(IN), *found = slow_doubles(OUT), *plain = slow_doubles(OUT);
    for (size_t j = 0; j < IN; j++)
        problem.h_diag[j] = p.h[j * IN + j];
    ck_ok(calm_rows_each(ctx, &problem, &q, 0.01, 64, keep_losses, &(double *const){plain}));
    {
        CALM_SCOPED_OPERANDS(ctx, CALM_OPERANDS_BF16X2);
        ck_ok(calm_rows_each(ctx, &problem, &q, 0.01, 64, keep_losses, &(double *const){found}));
    }
    for (size_t r = 0; r < OUT; r++) {
        double loss = 0, size = 0;
        errors_of(&p, &q, r, e);
        for (size_t i = 0; i < IN; i++) {
            for (size_t j = 0; j < IN; j++)
                loss += e[i] * h[i * IN + j] * e[j];
            size += fabs(e[i]) * size_of(h + i * IN, e, IN);
        }
        ck_near(found[r], loss, (TERM + (3 + IN) * FLT_EPSILON) * size);
        ck_assert_int_eq(found[r] == plain[r], !calm_bf16_is_fast(CALM_OPERANDS_BF16X2));
    }
}
END_OF_TEST

/* ---- decisions ---- */

/* Where descent ends, no code within its range is more than half a step from its best value, up to the error of the
 * product that decides. */
static void check_end(calm_operands operands, const char *scheme)
{
    slow_problem p;
    slow_problem_new(&p, OUT, IN, ROWS, scheme);
    const calm_qjob q = run_by(operands, &p, "absmax+cd(sweeps=200)");
    double *h = slow_damped(&p), *e = slow_doubles(IN);
    const double off = (operands == CALM_OPERANDS_BF16X2 ? TERM : 0) + (3 + IN) * FLT_EPSILON;
    size_t inside = 0;
    for (size_t r = 0; r < OUT; r++) {
        errors_of(&p, &q, r, e);
        for (size_t j = 0; j < IN; j++) {
            const double s = (double)q.scales[r * q.n_groups + j / q.group];
            const int code = q.codes[r * IN + j];
            double c = 0;
            for (size_t k = 0; k < IN; k++)
                c += h[j * IN + k] * e[k];
            if (code == calm_code_min(&q.scheme) || code == calm_code_max(&q.scheme))
                continue;
            ck_assert_double_le(fabs(c), h[j * IN + j] * s / 2 + off * size_of(h + j * IN, e, IN));
            inside++;
        }
    }
    ck_assert_uint_gt(inside, OUT * IN / 2);
}

TEST(ends_of_descent)
{
    for (calm_operands operands = CALM_OPERANDS_F32; operands <= CALM_OPERANDS_BF16X2; operands++) {
        check_end(operands, "w4a16_g64");
        check_end(operands, "w3a16_g48_asym");
        check_end(operands, "w8a16");
    }
}
END_OF_TEST

/* Returns the loss of row r, in double. */
static double loss_of(const slow_problem *p, const calm_qjob *q, const double *h, size_t r, double *e)
{
    double loss = 0;
    errors_of(p, q, r, e);
    for (size_t i = 0; i < IN; i++)
        for (size_t j = 0; j < IN; j++)
            loss += e[i] * h[i * IN + j] * e[j];
    return loss;
}

/* Where other products turn a decision that was close, rows end in other minima, some above and some below: the mean of
 * log (loss by two bfloat16 / loss by float32) over the rows is not above 0 by more than three of its standard errors;
 * of 8 bits it may be below, since more rows are kept that may become better.  Returns how many codes differ. */
static size_t compare_chains(const char *scheme, const char *chain)
{
    slow_problem p;
    slow_problem_new(&p, OUT, IN, ROWS, scheme);
    const calm_qjob two = run_by(CALM_OPERANDS_BF16X2, &p, chain), one = run_by(CALM_OPERANDS_BF16, &p, chain),
                    plain = run_by(CALM_OPERANDS_F32, &p, chain);
    double *h = slow_damped(&p), *e = slow_doubles(IN), sum = 0, squares = 0;
    size_t moved = 0;
    for (size_t r = 0; r < OUT; r++) {
        const double d = log(loss_of(&p, &two, h, r, e) / loss_of(&p, &plain, h, r, e));
        sum += d;
        squares += d * d;
    }
    const double mean = sum / OUT, error = sqrt((squares / OUT - mean * mean) / (OUT - 1));
    ck_assert_msg(mean <= 3 * error, "%s, %s: mean %g, standard error %g", scheme, chain, mean, error);
    for (size_t i = 0; i < OUT * IN; i++)
        moved += two.codes[i] != plain.codes[i];
    /* A single bfloat16 is only for calibrations. */
    ck_assert_mem_eq(one.codes, plain.codes, OUT * IN);
    ck_assert_mem_eq(one.scales, plain.scales, OUT * plain.n_groups * sizeof *plain.scales);
    return moved;
}

TEST(chains_lose_as_much)
{
    const size_t moved = compare_chains("w4a16_g64", "mkq-full") + compare_chains("w3a16_g48_asym", "mkq-full") +
                         compare_chains("w8a16_g64", "mkq-full") + compare_chains("w2a16_g32", "hls+gptq+mkq");
    ck_assert_int_eq(moved > 0, calm_bf16_is_fast(CALM_OPERANDS_BF16X2));
}
END_OF_TEST

/* Threads could take halves of the two chunks, whose last products, of `in` % 128 columns, are as small as there are
 * other kernels for. */
static void check_threads(calm_operands operands, size_t in)
{
    slow_problem p;
    slow_problem_new(&p, 256, in, in + 60, "w4a16_g32");
    ctx->n_threads = 1;
    const calm_qjob first = run_by(operands, &p, "hls+gptq+restarts(n=2)");
    for (ctx->n_threads = 2; ctx->n_threads <= 4; ctx->n_threads++) {
        const calm_qjob again = run_by(operands, &p, "hls+gptq+restarts(n=2)");
        ck_assert_mem_eq(again.codes, first.codes, p.out * p.in);
        ck_assert_mem_eq(again.scales, first.scales, p.out * first.n_groups * sizeof *first.scales);
    }
}

TEST(the_same_bytes_for_any_number_of_threads)
{
    for (size_t in = 256; in <= 384; in += 32) {
        check_threads(CALM_OPERANDS_F32, in);
        check_threads(CALM_OPERANDS_BF16X2, in);
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("chain_operands", (const TTest *[]){losses, ends_of_descent, chains_lose_as_much,
                                                         the_same_bytes_for_any_number_of_threads, NULL});
}
