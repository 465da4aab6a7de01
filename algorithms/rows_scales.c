/* Least-squares scales, and minima, of a chunk of rows.
 *
 *   per row the normal equations of min over s, d of e H e^T,  e = w - S q - D 1,
 *     A = [ sum q_i H_ij q_j   sum q_i H_ij ]   over i in g, j in g',   b = [ sum over i in g of q_i (H w)_i ]
 *         [        .             sum H_ij   ]                               [ sum over i in g of (H w)_i     ]
 *   with 1e-6 of the mean diagonal of each half added.  w has the present minima m subtracted; the new ones are m + d.
 *
 * Schemes without minima have only the first half.  Schemes with minima also try new scales alone, because storable
 * minima are coarse, and a row takes the solution of least loss.  A group whose codes are all zero keeps its scale.
 * For rows that share scales, A and b are summed over the rows. */
#include <math.h>
#include <string.h>

#include "algorithms/rows.h"
#include "ptq/base/simd.h"
#include "ptq/tensor/vector.h"

#define RIDGE 1e-6

static bool has_minima(int family)
{
    return calm_scheme_has_mins(&(calm_scheme){.family = family});
}

size_t calm_rows_unknowns(int family, size_t n_groups)
{
    return has_minima(family) ? 2 * n_groups : n_groups;
}

size_t calm_rows_scales_bytes(const calm_job_shape *shape, size_t n)
{
    const size_t groups = shape->n_groups, unknowns = calm_rows_unknowns(shape->family, groups);
    const size_t systems = calm_scheme_rows(&(calm_scheme){.family = shape->family}) > 1 ? 1 : n;
    const size_t minima = has_minima(shape->family) ? CALM_BYTES(double, groups * shape->in) +
                                                          CALM_BYTES(double, groups * groups) : 0;
    return CALM_BYTES(size_t, n) + CALM_BYTES(double, n * shape->in) +
           CALM_BYTES(double, systems * unknowns * unknowns) +
           CALM_BYTES(double, systems * unknowns) + CALM_BYTES(double, unknowns * unknowns) +
           CALM_BYTES(double, unknowns) + CALM_BYTES(float, groups * n * CALM_SWEEP_BLOCK) + minima;
}

/* Computes `ones`, the sum of H's rows over each group, and `ones_ones`, the sums of `ones` over each group's columns.
 * */
static calm_status sum_groups(calm_ctx *ctx, calm_rows *rows)
{
    const calm_problem *problem = rows->problem;
    const size_t in = problem->in, n_groups = problem->n_groups;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, rows->ones, n_groups * in));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, rows->ones_ones, n_groups * n_groups));
    for (size_t g = 0; g < n_groups; g++) {
        const size_t start = calm_problem_group_start(problem, g);
        double *ones = rows->ones + g * in;
        for (size_t j = start; j < start + calm_problem_group_columns(problem, g); j++)
            for (size_t i = 0; i < in; i++)
                ones[i] += rows->h[j * in + i];
        for (size_t i = 0; i < in; i++)
            rows->ones_ones[g * n_groups + i / problem->group] += ones[i];
    }
    return CALM_OK;
}

CALM_VECTORIZE
static void add_products(const float *restrict x, size_t n, double unit, double *restrict out)
{
    for (size_t i = 0; i < n; i++)
        out[i] += (double)x[i] * unit;
}

/* Computes wh = W H of rows r [n]: float products per block of columns, summed in double. */
static calm_status multiply_weights(calm_ctx *ctx, calm_rows *rows, const size_t *r, size_t n)
{
    const size_t in = rows->problem->in;
    const double unit = 1 / (rows->unit_h * rows->unit_w);
    for (size_t i = 0; i < n; i++)
        memset(rows->wh + r[i] * in, 0, in * sizeof *rows->wh);
    for (size_t start = 0; n && start < in; start += CALM_SWEEP_BLOCK) {
        const size_t columns = calm_size_min(CALM_SWEEP_BLOCK, in - start);
        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; j < columns; j++)
                rows->gradient[i * CALM_SWEEP_BLOCK + j] = (float)(rows->w[r[i] * in + start + j] * rows->unit_w);
        CALM_TRY(calm_rows_multiply_gradient(ctx, rows, n, start, start + columns));
        for (size_t i = 0; i < n; i++)
            add_products(rows->product + i * in, in, unit, rows->wh + r[i] * in);
    }
    return CALM_OK;
}

calm_status calm_rows_begin_scales(calm_ctx *ctx, calm_rows *rows, double *wh, bool *known)
{
    const size_t n = rows->n, in = rows->problem->in, n_groups = rows->problem->n_groups;
    const size_t room = rows->room, systems = rows->shared ? 1 : room;
    const size_t unknowns = calm_rows_unknowns(rows->qjob->scheme.family, n_groups);
    size_t *missing, n_missing = 0;
    rows->unknowns = unknowns;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, missing, room));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, rows->wh, room * in));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, rows->normal, systems * unknowns * unknowns));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, rows->right, systems * unknowns));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, rows->system, unknowns * unknowns));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, rows->solution, unknowns));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, rows->cross, n_groups * room * CALM_SWEEP_BLOCK));
    if (rows->qjob->mins)
        CALM_TRY(sum_groups(ctx, rows));
    /* Computed once for all rounds: W H changes only with minima, and move_minima updates it. */
    for (size_t r = 0; r < n; r++)
        if (wh && known[rows->row[r]])
            memcpy(rows->wh + r * in, wh + rows->row[r] * in, in * sizeof *wh);
        else
            missing[n_missing++] = r;
    CALM_TRY(multiply_weights(ctx, rows, missing, n_missing));
    for (size_t i = 0; wh && i < n_missing; i++) {
        const size_t row = rows->row[missing[i]];
        memcpy(wh + row * in, rows->wh + missing[i] * in, in * sizeof *wh);
        known[row] = true;
    }
    return CALM_OK;
}

/* Returns w H w - 2 s b + s A s of row r, for s [n]: scales, or scales and then changes of minima.  If rows share
 * scales, r is 0 and the sum is over all rows. */
static double loss_at(const calm_rows *rows, size_t r, const double *s, size_t n)
{
    const size_t in = rows->problem->in, unknowns = rows->unknowns;
    double loss = calm_vec_ddot(in, rows->w + r * in, rows->wh + r * in);
    for (size_t i = 1; rows->shared && i < rows->n; i++)
        loss += calm_vec_ddot(in, rows->w + i * in, rows->wh + i * in);
    for (size_t g = 0; g < n; g++) {
        const double *normal = rows->normal + (r * unknowns + g) * unknowns;
        double sum = -2 * rows->right[r * unknowns + g] + normal[g] * s[g];
        for (size_t k = g + 1; k < n; k++)
            sum += 2 * normal[k] * s[k];
        loss += s[g] * sum;
    }
    return loss;
}

/* Rounds the solution of row r to storable scales, and with `minima` to changes that lead to storable minima; false: it
 * is out of range. */
static bool round_solution(calm_rows *rows, size_t r, bool minima)
{
    const calm_problem *problem = rows->problem;
    const calm_scheme *scheme = &rows->qjob->scheme;
    const bool alone = calm_scheme_family(scheme)->super == 1;
    double *const solution = rows->solution, *const moves = solution + problem->n_groups;
    for (size_t g = 0, n; g < problem->n_groups; g += n) {
        float scales[CALM_SUPER_MAX], mins[CALM_SUPER_MAX];
        const float *mins_of = rows->qjob->mins ? rows->qjob->mins + rows->row[r] * problem->n_groups + g : NULL;
        n = calm_problem_super(problem, g);
        for (size_t i = 0; i < n; i++) {
            const double min = mins_of ? (double)mins_of[i] + (minima ? moves[g + i] : 0) : 0;
            scales[i] = alone ? calm_scale_round(scheme, problem->global, solution[g + i]) : (float)solution[g + i];
            mins[i] = alone && minima ? calm_min_round(scheme, min) : (float)min;
        }
        /* Unchanged minima are storable and stay the same. */
        if (!alone)
            calm_scales_round(scheme, problem->global, n, scales, mins_of ? mins : NULL);
        for (size_t i = 0; i < n; i++) {
            solution[g + i] = scales[i];
            if (minima)
                moves[g + i] = (double)mins[i] - (double)mins_of[i];
            if (!isfinite(scales[i]) || (minima && !isfinite(mins[i])))
                return false;
        }
    }
    return true;
}

/* Computes the storable least-squares scales of row r, with `minima` also their changes, in rows->solution; false:
 * there is no solution. */
static bool solve_row(calm_ctx *ctx, calm_rows *rows, size_t r, bool minima)
{
    const size_t n_groups = rows->problem->n_groups, unknowns = rows->unknowns, n = minima ? unknowns : n_groups;
    const double *normal = rows->normal + r * unknowns * unknowns;
    double ridge[2] = {0, 0};
    for (size_t g = 0; g < n; g++)
        ridge[g >= n_groups] += RIDGE * normal[g * unknowns + g] / (double)n_groups;
    for (size_t g = 0; g < n; g++) {
        memcpy(rows->system + g * n, normal + g * unknowns, n * sizeof *normal);
        /* An empty group has a zero row and column: 1 on the diagonal leaves its scale as it is. */
        const bool empty = !(normal[g * unknowns + g] > 0);
        rows->system[g * n + g] = empty ? 1 : normal[g * unknowns + g] + ridge[g >= n_groups];
        rows->solution[g] = !empty ? rows->right[r * unknowns + g] : g < n_groups ? rows->scale[r * n_groups + g] : 0;
    }
    /* The ridge makes this rare: two groups whose codes have the same effect on the output. */
    if (calm_dcholesky_upper(ctx, n, rows->system, n) != CALM_OK)
        return false;
    if (calm_dcholesky_solve(ctx, n, rows->system, n, 1, rows->solution, 1) != CALM_OK)
        return false;
    return round_solution(rows, r, minima);
}

/* Changes the minima of row r by rows->solution, and w and wh with them. */
static void move_minima(calm_rows *rows, size_t r)
{
    const calm_problem *problem = rows->problem;
    const size_t in = problem->in, n_groups = problem->n_groups;
    for (size_t g = 0; g < n_groups; g++) {
        const double move = rows->solution[n_groups + g];
        float *min = &rows->qjob->mins[rows->row[r] * n_groups + g];
        const size_t start = calm_problem_group_start(problem, g);
        for (size_t i = start; i < start + calm_problem_group_columns(problem, g); i++)
            rows->w[r * in + i] -= move;
        for (size_t i = 0; i < in; i++)
            rows->wh[r * in + i] -= move * rows->ones[g * in + i];
        *min = (float)((double)*min + move);
    }
}

/* Solves row r, and takes the solution if the loss falls. */
static void improve(calm_ctx *ctx, calm_rows *rows, size_t r, bool minima)
{
    const size_t n_groups = rows->problem->n_groups;
    calm_ctx_clear_failure(ctx);
    if (!solve_row(ctx, rows, r, minima))
        return;
    /* Compare the stored scales: rounding to 16 bits may undo the gain of least squares. */
    const double loss = loss_at(rows, r, rows->solution, minima ? rows->unknowns : n_groups);
    if (!(loss < rows->loss[r]))
        return;
    memcpy(rows->scale + r * n_groups, rows->solution, n_groups * sizeof *rows->scale);
    rows->loss[r] = loss;
    if (minima)
        move_minima(rows, r);
}

/* Builds the normal equations of the current codes. */
static calm_status build_normal(calm_ctx *ctx, calm_rows *rows)
{
    const size_t in = rows->problem->in;
    calm_rows_normal_begin(rows);
    for (size_t start = 0; start < in; start += CALM_SWEEP_BLOCK) {
        const size_t end = calm_size_min(start + CALM_SWEEP_BLOCK, in);
        const calm_rows_block block = calm_rows_panel(rows, start, end, 0);
        CALM_TRY(calm_rows_multiply_groups(ctx, rows, &block));
        CALM_TRY(calm_rows_normal_add(ctx, rows, &block));
    }
    return CALM_OK;
}

calm_status calm_rows_scales(calm_ctx *ctx, calm_rows *rows)
{
    size_t n_groups = rows->problem->n_groups;
    /* A row that cannot be solved keeps its scales; its failure must not become that of the run. */
    calm_ctx trial = *ctx;
    if (!rows->built)
        CALM_TRY(build_normal(ctx, rows));
    rows->built = false;
    memset(rows->before, 0, rows->n * sizeof *rows->before);
    memset(rows->loss, 0, rows->n * sizeof *rows->loss);
    for (size_t r = 0; r < (rows->shared ? 1 : rows->n); r++) {
        rows->before[r] = rows->loss[r] = loss_at(rows, r, rows->scale + r * n_groups, n_groups);
        improve(&trial, rows, r, false);
        if (rows->qjob->mins)
            improve(&trial, rows, r, true);
    }
    /* Rows that share scales take the first row's. */
    for (size_t r = 1; rows->shared && r < rows->n; r++)
        memcpy(rows->scale + r * n_groups, rows->scale, n_groups * sizeof *rows->scale);
    return CALM_OK;
}
