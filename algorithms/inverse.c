/* H^-1 for a chain: its upper factor in an order of the columns, and its diagonal. */
#include "algorithms/inverse.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ptq/base/scope.h"
#include "ptq/base/threads.h"
#include "ptq/tensor/inverse_root.h"

/* From 0.01 to 2.56 of the mean diagonal; with more, the damping would outweigh H. */
#define MAX_DOUBLINGS 8

calm_status calm_inverse_new(calm_ctx *ctx, calm_arena *arena, const char *name, size_t n, calm_inverse **out)
{
    size_t cells;
    if (!calm_size_mul(&cells, n, n))
        return calm_fail(ctx, CALM_ENOMEM, "%s: a %zu x %zu matrix does not fit", name, n, n);
    CALM_TRY(CALM_NEW(ctx, arena, *out, 1));
    CALM_TRY(CALM_NEW(ctx, arena, (*out)->u, cells));
    CALM_TRY(CALM_NEW(ctx, arena, (*out)->order, n));
    return CALM_NEW(ctx, arena, (*out)->left, n);
}

size_t calm_inverse_bytes(size_t in)
{
    return CALM_BYTES(calm_inverse, 1) + CALM_BYTES(double, in * in) + CALM_BYTES(size_t, in) + CALM_BYTES(double, in);
}

void calm_inverse_begin(calm_inverse *inverse)
{
    /* `left` from a factor in another order sums the same squares in another order, and a chain's bytes must not depend
     * on the chains before it. */
    if (!inverse->first)
        inverse->damp = 0;
}

/* ---- the order ---- */

typedef struct ranked {
    double power;
    size_t index;
} ranked;

/* Compares columns for an order by falling power, equal ones from left to right. */
static int compare_columns(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->power != y->power)
        return x->power > y->power ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

calm_status calm_inverse_order(calm_ctx *ctx, size_t n, const double *power, size_t **out)
{
    ranked *columns;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, *out, n));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, columns, n));
    for (size_t j = 0; j < n; j++)
        columns[j] = (ranked){power ? power[j] : 0, j};
    qsort(columns, n, sizeof *columns, compare_columns);
    for (size_t j = 0; j < n; j++)
        (*out)[j] = columns[j].index;
    return CALM_OK;
}

size_t calm_inverse_order_bytes(size_t n)
{
    return CALM_BYTES(size_t, n) + CALM_BYTES(ranked, n);
}

/* ---- the factor ---- */

size_t calm_inverse_factor_scratch_bytes(size_t in)
{
    return calm_size_max(calm_dinverse_root_scratch_bytes(in), CALM_BYTES(double, in));
}

size_t calm_inverse_root_float_scratch_bytes(calm_operands operands, size_t in)
{
    return calm_sroot_scratch_bytes(operands, in);
}

typedef struct factor_task {
    const calm_problem *problem;
    const size_t *order;
    double *u, *sum;
    float *single;   /* [I, I] instead of u: H times unit in float32 */
    double unit;
    double added;    /* damping that is added to the diagonal */
} factor_task;

/* Computes `sum` of columns first .. first + n - 1, each in the order of rows. */
static void sum_columns(size_t first, size_t n, void *user)
{
    const factor_task *task = user;
    const size_t in = task->problem->in;
    for (size_t i = 0; i < first + n; i++)
        for (size_t j = calm_size_max(i, first); j < first + n; j++)
            task->sum[j] += task->u[i * in + j] * task->u[i * in + j];
}

/* Computes left [I] = 1 / [H^-1]_jj from the column sums of u^2, whose columns are in `order`. */
static calm_status keep_diagonal(calm_ctx *ctx, const calm_problem *problem, const size_t *order)
{
    calm_inverse *inverse = problem->inverse;
    factor_task task = {.problem = problem, .u = inverse->u};
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, task.sum, problem->in));
    calm_parallel_each_rows(ctx, problem->in, sum_columns, &task);
    for (size_t j = 0; j < problem->in; j++)
        inverse->left[order[j]] = 1 / task.sum[j];
    return CALM_OK;
}

/* Copies row `row` of the damped H, from its diagonal on, in the order of the columns: from problem->h, or with the
 * same values from the Gram matrix. */
static void copy_row(const factor_task *task, size_t row)
{
    const calm_problem *problem = task->problem;
    const size_t n = problem->in, *order = task->order;
    const double *h = problem->h ? problem->h : problem->gram;
    const double rows = problem->h || !h ? 1 : (double)problem->job->stats->rows;
    for (size_t j = row; j < n; j++) {
        /* The diagonal of problem->h may be damped. */
        const double value = j == row ? problem->h_diag[order[row]] + task->added
                             : h      ? h[order[row] * n + order[j]] / rows
                                      : 0;
        if (task->single)
            task->single[row * n + j] = (float)(value * task->unit);
        else
            task->u[row * n + j] = value;
    }
}

/* Copies only the upper triangle, because the factorisation reads no more. */
static void copy_rows(size_t first, size_t n, void *user)
{
    for (size_t i = first; i < first + n; i++)
        copy_row(user, i);
}

/* Returns damp mean(diag H). */
static double added_of(const calm_problem *problem, double damp)
{
    double sum = 0;
    for (size_t i = 0; i < problem->in; i++)
        sum += problem->h_diag[i];
    return damp * (sum / (double)problem->in);
}

static calm_status factor(calm_ctx *ctx, const calm_problem *problem, const size_t *order, double damp)
{
    const size_t n = problem->in;
    calm_inverse *inverse = problem->inverse;
    double *u = inverse->u;
    factor_task task = {.problem = problem, .order = order, .u = u, .added = added_of(problem, damp)};
    calm_parallel_each_rows(ctx, n, copy_rows, &task);
    CALM_TRY(calm_dinverse_root(ctx, n, u, n));
    inverse->first = inverse->damp != damp;    /* the diagonal is the same in every order */
    if (inverse->first)
        CALM_TRY(keep_diagonal(ctx, problem, order));
    inverse->damp = damp;
    return CALM_OK;
}

/* Computes the root in float32 of H times *unit, a power of two that brings H into float32's range. */
static calm_status root_float(calm_ctx *ctx, const calm_problem *problem, const size_t *order, double damp,
                              float *r, double *unit)
{
    const size_t n = problem->in;
    factor_task task = {.problem = problem, .order = order, .single = r, .added = added_of(problem, damp)};
    double most = 0;
    for (size_t i = 0; i < n; i++)
        most = fmax(most, problem->h_diag[i]);
    *unit = task.unit = calm_problem_unit(most);
    calm_parallel_each_rows(ctx, n, copy_rows, &task);
    return calm_sroot(ctx, n, r, n);
}

/* Calls factor, or with `single` root_float, and doubles `damp` until the call succeeds. */
static calm_status factor_damped(calm_ctx *ctx, const calm_problem *problem, const size_t *order, double damp,
                                 float *single, double *unit, double *used)
{
    /* Failures of the attempts stay in a separate context; the last one is quoted. */
    calm_ctx trial = *ctx;
    calm_inverse *inverse = problem->inverse;
    assert(inverse != problem->common);    /* which other chains read */
    inverse->asked = 0;    /* u is overwritten */
    for (int doubling = 0; doubling <= MAX_DOUBLINGS; doubling++, damp *= 2) {
        calm_ctx_clear_failure(&trial);
        *used = damp;
        const calm_status status = single ? root_float(&trial, problem, order, damp, single, unit)
                                          : factor(&trial, problem, order, damp);
        if (status == CALM_OK)
            return CALM_OK;
        if (status != CALM_ENUMERIC)    /* more damping does not help */
            return calm_fail(ctx, status, "%s", trial.message);
    }
    return calm_fail(ctx, CALM_ENUMERIC, "%s: the Gram matrix is not positive definite at a damping of %g of its mean "
                                         "diagonal: %s", problem->job->name, *used, trial.message);
}

/* Does `inverse` hold the factor of this order and damping? */
static bool is_there(const calm_inverse *inverse, const size_t *order, double damp, size_t n)
{
    return inverse && inverse->asked == damp && memcmp(inverse->order, order, n * sizeof *order) == 0;
}

calm_status calm_inverse_factor(calm_ctx *ctx, const calm_problem *problem, const size_t *order, double damp,
                                const double **u, double *used)
{
    calm_inverse *inverse = problem->inverse;
    const calm_inverse *common = problem->common;
    const size_t n = problem->in;
    /* Parts that call this have CALM_NEEDS_INVERSE among their caps. */
    assert(inverse);
    /* common->left has the same bytes as if this chain had computed it first. */
    if (is_there(common, order, damp, n)) {
        if (inverse != common) {
            memcpy(inverse->left, common->left, n * sizeof *common->left);
            inverse->damp = common->damp;
        }
        *u = common->u;
        *used = common->damp;
        return CALM_OK;
    }
    *u = inverse->u;
    *used = inverse->damp;
    if (is_there(inverse, order, damp, n))
        return CALM_OK;
    CALM_TRY(factor_damped(ctx, problem, order, damp, NULL, NULL, used));
    memcpy(inverse->order, order, n * sizeof *order);
    inverse->asked = damp;
    return CALM_OK;
}

/* Packs rows first .. first + n - 1 of R from column `first` on. */
static void pack_rows(size_t first, size_t n, void *user)
{
    calm_root_float *root = user;
    const size_t in = root->packed.terms;
    calm_packed_put_columns(&root->packed, first, in - first, first, n, root->r + first * (in + 1), in);
}

calm_status calm_inverse_root_float(calm_ctx *ctx, const calm_problem *problem, const size_t *order, double damp,
                                    calm_root_float *out, double *used)
{
    /* R overwrites the double factor, which is not read again: R is in one half of its memory, packed R in the other.
     * */
    const size_t in = problem->in;
    float *const single = (float *)problem->inverse->u;
    *out = (calm_root_float){.r = single, .packs = calm_packed_fits(ctx->operands, in)};
    CALM_TRY(factor_damped(ctx, problem, order, damp, single, &out->unit, used));
    if (!out->packs)
        return CALM_OK;
    calm_packed_in(ctx, true, in, in, single + in * in, &out->packed);
    calm_parallel_each_rows(ctx, in, pack_rows, out);
    return CALM_OK;
}
