/* Rows under refit, and the sweep over their codes, for a chunk of rows at once so that the work is matrix products.
 *
 *   sweep   for each column j: q_j = round(q_j + c_j / (H_jj s_j)) clipped, c = H e, e = w - s q.  This is
 *           round((w_j + sum over k != j of H_jk e_k / H_jj) / s_j).  c is updated by matrix products before each block
 *           of columns, and column by column inside a block, where a tile of rows is transposed.
 *           With `zeros`, for schemes that have zero points: each group is swept with its zero, one less and one more,
 *           and keeps the zero of least loss, the old one among equals.  q = code - zero is unchanged by another zero,
 *           which only changes the range of q. */
#include "algorithms/rows.h"

#include <math.h>
#include <string.h>

#include "ptq/base/scope.h"
#include "ptq/base/simd.h"
#include "ptq/tensor/bf16_product.h"
#include "ptq/tensor/vector.h"

#define TILE ((size_t)32)
#define FEW_ROWS ((size_t)8)    /* doubles of a cache line */
#define NORMAL_CELLS ((size_t)1 << 21)    /* 16 MiB of normal equations in a chunk */
/* With this many rows or more, chunks are twice as large and read H half as often; there are still enough chunks for
 * many threads. */
#define MANY_ROWS ((size_t)4096)
#define ROUND_F64 0x1.8p52
/* Bounds of the error of an updated loss, as shares of the loss and of w H w^T, the latter with operands of float32 and
 * of two bfloat16: TIMES_SEEN times the largest observed error. */
#define LOSS_ERROR 1e-3
#define POWER_ERROR 2e-6
#define POWER_ERROR_BF16X2 3.5e-5
#define TIMES_SEEN 10

static size_t chunk_rows(const calm_job_shape *shape)
{
    const size_t unknowns = calm_rows_unknowns(shape->family, shape->n_groups),
                 cells = NORMAL_CELLS / unknowns / unknowns;
    /* With calm's own kernels the bytes of a row do not depend on the other rows of its chunk. */
    if (shape->out < MANY_ROWS || !calm_rows_packs(shape->operands, shape->in, shape->group))
        return calm_size_min(calm_size_max(cells, 4), CALM_ROW_CHUNK);
    return calm_size_min(calm_size_max(cells / CALM_PACKED_STEP, 1) * CALM_PACKED_STEP, 2 * CALM_ROW_CHUNK);
}

size_t calm_rows_chunk(const calm_ctx *ctx, const calm_problem *problem, const calm_qjob *qjob)
{
    calm_job_shape shape = calm_job_shape_of(&qjob->scheme, problem->out, problem->in);
    shape.operands = ctx->operands;
    return chunk_rows(&shape);
}

/* ---- loading and storing ---- */

/* In the order of calm_rows_load_bytes. */
static calm_status allocate(calm_ctx *ctx, calm_rows *rows)
{
    const size_t n = rows->room;
    size_t in = rows->problem->in, n_groups = rows->problem->n_groups;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, rows->row, n));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, rows->w, n * in));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, rows->q, n * in));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, rows->scale, n * n_groups));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, rows->zero, n * n_groups));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, rows->loss, n));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, rows->before, n));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, rows->product, n * in));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, rows->gradient, n * CALM_SWEEP_BLOCK));
    return calm_rows_new_panel(ctx, rows);
}

size_t calm_rows_load_bytes(const calm_job_shape *shape, size_t n)
{
    return CALM_BYTES(size_t, n) + CALM_BYTES(double, n * shape->in) + 2 * CALM_BYTES(float, n * shape->in) +
           2 * CALM_BYTES(double, n * shape->n_groups) + 2 * CALM_BYTES(double, n) +
           CALM_BYTES(float, n * CALM_SWEEP_BLOCK) + calm_rows_panel_bytes(shape, n);
}

static bool is_shared(int family)
{
    return calm_scheme_rows(&(calm_scheme){.family = family}) > 1;
}

calm_part_memory calm_rows_refit_memory(const calm_job_shape *shape, const void *opts)
{
    /* Each worker has the rows of one chunk. */
    const bool shared = is_shared(shape->family);
    const size_t chunk = shared ? CALM_ROW_CHUNK : chunk_rows(shape);
    const size_t n_chunks = shared ? calm_shape_chunks(shape) : (shape->out + chunk - 1) / chunk;
    const size_t n = calm_size_min(chunk, shape->out);
    (void)opts;
    return (calm_part_memory){.most = calm_rows_kept_bytes(shape->in) +
                                      calm_size_min(shape->n_threads, n_chunks) *
                                          (calm_rows_load_bytes(shape, n) + calm_rows_scales_bytes(shape, n))};
}

CALM_VECTORIZE
static double largest(const double *w, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++)
        most = fabs(w[i]) > most ? fabs(w[i]) : most;
    return most;
}

typedef struct rows_job {
    const calm_problem *problem;
    calm_qjob *qjob;
    const calm_rows_kept *kept;
    const size_t *row;       /* [n]; NULL: the first n rows of the job */
    size_t n, chunk;
    calm_rows_fn *fn;
    const void *opts;
} rows_job;

CALM_VECTORIZE
static void load_weights(const float *w, size_t n, double min, double *out)
{
    for (size_t j = 0; j < n; j++)
        out[j] = w[j] - min;
}

CALM_VECTORIZE
static void load_codes(const uint8_t *codes, size_t n, float zero, float *out)
{
    for (size_t j = 0; j < n; j++)
        out[j] = (float)codes[j] - zero;
}

CALM_VECTORIZE
static void store_codes(const float *q, size_t n, float zero, uint8_t *out)
{
    for (size_t j = 0; j < n; j++)
        out[j] = (uint8_t)(int)(q[j] + zero);
}

/* Loads columns first .. first + n - 1 of row r, all of group g: subtracts the minimum from the weights and converts
 * codes to levels, so that w = s q for all schemes. */
static void load_group(calm_rows *rows, size_t r, size_t g, size_t first, size_t n)
{
    const calm_problem *problem = rows->problem;
    const calm_qjob *qjob = rows->qjob;
    const size_t cell = rows->row[r] * problem->n_groups + g, at = rows->row[r] * problem->in + first;
    const size_t to = r * problem->in + first;
    const double zero = calm_qjob_grid(qjob, cell).zero;
    rows->scale[r * problem->n_groups + g] = qjob->scales[cell];
    rows->zero[r * problem->n_groups + g] = zero;
    load_weights(problem->w + at, n, qjob->mins ? (double)qjob->mins[cell] : 0, rows->w + to);
    if (!calm_scheme_levels(&qjob->scheme))
        load_codes(qjob->codes + at, n, (float)zero, rows->q + to);
    for (size_t j = 0; calm_scheme_levels(&qjob->scheme) && j < n; j++)
        rows->q[to + j] = (float)calm_level_value(&qjob->scheme, zero, qjob->codes[at + j]);
}

/* Loads rows first .. first + n - 1 of the job's list into ctx->scratch.  Their loss is 0 until `scales` sets it. */
static calm_status load(calm_ctx *ctx, calm_rows *rows, const rows_job *job, size_t first, size_t n)
{
    const calm_problem *problem = job->problem;
    const calm_qjob *qjob = job->qjob;
    *rows = (calm_rows){.problem = problem, .qjob = job->qjob, .h = job->kept->h, .rounded = job->kept->rounded,
                        .packed = job->kept->packs ? &job->kept->packed : NULL, .unit_h = job->kept->unit,
                        .shared = is_shared(qjob->scheme.family), .n = n,
                        .two_parts = calm_bf16_is_fast(ctx->operands)};
    /* A chunk with fewer rows reserves as much as a full one; pages that are never used take no memory. */
    rows->room = rows->shared ? n : calm_size_min(job->chunk, problem->out);
    CALM_TRY(allocate(ctx, rows));
    for (size_t r = 0; r < n; r++) {
        rows->row[r] = job->row ? job->row[first + r] : first + r;
        for (size_t g = 0; g < problem->n_groups; g++)
            load_group(rows, r, g, calm_problem_group_start(problem, g), calm_problem_group_columns(problem, g));
    }
    rows->unit_w = calm_problem_unit(largest(rows->w, n * problem->in));
    return CALM_OK;
}

/* Write row r back to the job. */
static void store(const calm_rows *rows, size_t r)
{
    size_t in = rows->problem->in, n_groups = rows->problem->n_groups, row = rows->row[r];
    for (size_t g = 0; g < n_groups; g++)
        rows->qjob->scales[row * n_groups + g] = (float)rows->scale[r * n_groups + g];
    for (size_t g = 0; rows->qjob->zeros && g < n_groups; g++)
        rows->qjob->zeros[row * n_groups + g] = (uint8_t)rows->zero[r * n_groups + g];
    for (size_t g = 0; g < n_groups; g++) {
        const size_t first = calm_problem_group_start(rows->problem, g), at = r * in + first;
        const size_t n = calm_problem_group_columns(rows->problem, g);
        const double zero = rows->zero[r * n_groups + g];
        uint8_t *codes = rows->qjob->codes + row * in + first;
        if (!calm_scheme_levels(&rows->qjob->scheme))
            store_codes(rows->q + at, n, (float)zero, codes);
        for (size_t j = 0; calm_scheme_levels(&rows->qjob->scheme) && j < n; j++)
            codes[j] = calm_level_code(&rows->qjob->scheme, zero, (double)rows->q[at + j]);
    }
}

/* Copies row `from` of a matrix to row `to`, which may be the same. */
static void move_row(double *matrix, size_t width, size_t from, size_t to)
{
    memmove(matrix + to * width, matrix + from * width, width * sizeof *matrix);
}

void calm_rows_drop(calm_rows *rows, size_t r)
{
    size_t last = rows->n - 1, in = rows->problem->in, n_groups = rows->problem->n_groups;
    store(rows, r);
    /* All arrays that later scales and sweeps read. */
    rows->row[r] = rows->row[last];
    move_row(rows->w, in, last, r);
    move_row(rows->wh, in, last, r);
    memmove(rows->q + r * in, rows->q + last * in, in * sizeof *rows->q);
    move_row(rows->scale, n_groups, last, r);
    move_row(rows->zero, n_groups, last, r);
    move_row(rows->loss, 1, last, r);
    move_row(rows->before, 1, last, r);
    if (rows->built && !rows->shared) {
        move_row(rows->normal, rows->unknowns * rows->unknowns, last, r);
        move_row(rows->right, rows->unknowns, last, r);
    }
    rows->n--;
}

/* ---- all rows ---- */

/* Loads one chunk, runs the part over it, and stores the rows that the part has not dropped. */
static calm_status run_chunk(calm_ctx *ctx, size_t index, void *user)
{
    const rows_job *job = user;
    size_t first = index * job->chunk, n = calm_size_min(job->n - first, job->chunk);
    calm_rows rows;
    /* Rows that share scales are solved together, and no others with them. */
    if (is_shared(job->qjob->scheme.family))
        n = calm_problem_chunk(job->problem, index, &first);
    CALM_TRY(load(ctx, &rows, job, first, n));
    CALM_TRY(job->fn(ctx, &rows, job->opts));
    for (size_t r = 0; r < rows.n; r++)
        store(&rows, r);
    return CALM_OK;
}

calm_status calm_rows_some(calm_ctx *ctx, const calm_problem *problem, calm_qjob *qjob, const calm_rows_kept *kept,
                           const size_t *row, size_t n, size_t chunk, calm_rows_fn *fn, const void *opts)
{
    const bool shared = is_shared(qjob->scheme.family);
    rows_job job = {problem, qjob, kept, row, n, chunk, fn, opts};
    return calm_parallel_for(ctx, shared ? calm_problem_chunks(problem) : (n + chunk - 1) / chunk, run_chunk, &job);
}

calm_status calm_rows_each(calm_ctx *ctx, const calm_problem *problem, calm_qjob *qjob, double damp, size_t chunk,
                           calm_rows_fn *fn, const void *opts)
{
    calm_rows_kept kept;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(calm_rows_keep(ctx, problem, damp, &kept));
    return calm_rows_some(ctx, problem, qjob, &kept, NULL, problem->out, chunk, fn, opts);
}

/* ---- sweep ---- */

/* A tile of rows, transposed: the columns of a block, and values per row. */
typedef struct sweep_tile {
    double gradient[CALM_SWEEP_BLOCK][TILE], q[CALM_SWEEP_BLOCK][TILE];
    double scale[TILE], lo[TILE], hi[TILE], gain[TILE], step[TILE];
} sweep_tile;

/* Computes new codes of column k of the block; step is subtracted from its errors.  Returns sum |step|, 0 if no code
 * changed. */
CALM_VECTORIZE
static double move_column(sweep_tile *tile, size_t k, double power)
{
    double moved = 0;
    for (size_t r = 0; r < TILE; r++) {
        double c = tile->gradient[k][r], q = tile->q[k][r], next = q + c / (power * tile->scale[r]);
        next = next < tile->lo[r] ? tile->lo[r] : next;
        next = next > tile->hi[r] ? tile->hi[r] : next;
        next = (next + ROUND_F64) - ROUND_F64;
        double step = tile->scale[r] * (next - q);
        /* The loss falls by 2 step (H e)_j - step^2 H_jj when e_j changes by -step. */
        tile->gain[r] += step * (2 * c - step * power);
        tile->q[k][r] = next;
        tile->step[r] = step;
    }
    for (size_t r = 0; r < TILE; r++)
        moved += fabs(tile->step[r]);
    return moved;
}

/* Computes gradient[k] -= h[k] step for k in [from, to). */
CALM_VECTORIZE
static void follow(sweep_tile *tile, size_t from, size_t to, const double *h)
{
    for (size_t k = from; k < to; k++)
        for (size_t r = 0; r < TILE; r++)
            tile->gradient[k][r] -= h[k] * tile->step[r];
}

/* Does what move_column does, for levels that are not whole numbers. */
static double move_levels(sweep_tile *tile, size_t k, double power, const calm_levels *levels)
{
    /* Distances between levels differ, so the target is the nearest level, not a number of steps. */
    double moved = 0, next[TILE];
    for (size_t r = 0; r < TILE; r++)
        next[r] = tile->q[k][r] + tile->gradient[k][r] / (power * tile->scale[r]);
    calm_levels_nearest(levels, next, TILE);
    for (size_t r = 0; r < TILE; r++) {
        double step = tile->scale[r] * (next[r] - tile->q[k][r]);
        tile->gain[r] += step * (2 * tile->gradient[k][r] - step * power);
        tile->q[k][r] = next[r];
        tile->step[r] = step;
        moved += fabs(step);
    }
    return moved;
}

/* Sets scale and code range of group g for rows first .. first + n - 1; padding rows have one code. */
static void enter_group(const calm_rows *rows, sweep_tile *tile, size_t first, size_t n, size_t g)
{
    const calm_scheme *scheme = &rows->qjob->scheme;
    for (size_t r = 0; r < TILE; r++) {
        size_t cell = (first + r) * rows->problem->n_groups + g;
        tile->scale[r] = r < n ? rows->scale[cell] : 1;
        tile->lo[r] = r < n ? calm_code_min(scheme) - rows->zero[cell] : 0;
        tile->hi[r] = r < n ? calm_code_max(scheme) - rows->zero[cell] : 0;
    }
}

/* Position of a sweep: columns from .. to - 1, of one group, in the block of columns start .. end - 1, for the tile's
 * rows first .. first + n - 1. */
typedef struct sweep_place {
    size_t first, n, start, end, from, to;
} sweep_place;

/* Changes the codes of columns from .. to - 1, and updates the gradients of the columns before `until`. */
static void sweep_group(const calm_rows *rows, sweep_tile *tile, const sweep_place *at, size_t until)
{
    const size_t in = rows->problem->in, start = at->start;
    const calm_levels *levels = calm_scheme_levels(&rows->qjob->scheme);
    for (size_t j = at->from; j < at->to; j++)
        if ((levels ? move_levels(tile, j - start, rows->h[j * in + j], levels)
                    : move_column(tile, j - start, rows->h[j * in + j])) > 0)
            follow(tile, j + 1 - start, until - start, rows->h + j * in + start);
}

/* A group before its zero changes, and the best result of the zeros tried. */
typedef struct zero_trial {
    double gradient[CALM_SWEEP_BLOCK][TILE], q[CALM_SWEEP_BLOCK][TILE], best[CALM_SWEEP_BLOCK][TILE];
    double lo[TILE], hi[TILE], before[TILE], gain[TILE], shift[TILE];
} zero_trial;

/* Sweeps the group from its first state with zeros changed by `shift`, and keeps the result for rows whose loss falls
 * more. */
static void try_shift(const calm_rows *rows, sweep_tile *tile, const sweep_place *at, zero_trial *trial, int shift)
{
    const size_t k = at->from - at->start, n_columns = at->to - at->from;
    const double least = calm_code_min(&rows->qjob->scheme), most = calm_code_max(&rows->qjob->scheme);
    memcpy(tile->gradient[k], trial->gradient, n_columns * sizeof *trial->gradient);
    memcpy(tile->q[k], trial->q, n_columns * sizeof *trial->q);
    memset(tile->gain, 0, sizeof tile->gain);
    for (size_t r = 0; r < TILE; r++) {
        tile->lo[r] = trial->lo[r] - (r < at->n ? shift : 0);
        tile->hi[r] = trial->hi[r] - (r < at->n ? shift : 0);
    }
    sweep_group(rows, tile, at, at->to);
    for (size_t r = 0; r < at->n; r++) {
        const double zero = least - tile->lo[r];
        /* A zero must itself be a code. */
        if (shift && (zero < least || zero > most || !(tile->gain[r] > trial->gain[r])))
            continue;
        trial->gain[r] = tile->gain[r];
        trial->shift[r] = shift;
        for (size_t j = 0; j < n_columns; j++)
            trial->best[j][r] = tile->q[k + j][r];
    }
}

/* Does what sweep_group does, with the best of three zeros per row. */
static void sweep_zeros(calm_rows *rows, sweep_tile *tile, const sweep_place *at)
{
    const size_t in = rows->problem->in, k = at->from - at->start, n_columns = at->to - at->from;
    zero_trial trial;
    memcpy(trial.gradient, tile->gradient[k], n_columns * sizeof *trial.gradient);
    memcpy(trial.q, tile->q[k], n_columns * sizeof *trial.q);
    memcpy(trial.best, tile->q[k], n_columns * sizeof *trial.best);    /* for padding rows, which do not change */
    memcpy(trial.lo, tile->lo, sizeof trial.lo);
    memcpy(trial.hi, tile->hi, sizeof trial.hi);
    memcpy(trial.before, tile->gain, sizeof trial.before);
    memset(trial.gain, 0, sizeof trial.gain);
    for (int i = 0; i < 3; i++)
        try_shift(rows, tile, at, &trial, (const int[]){0, -1, 1}[i]);
    /* Update the columns after the group by the chosen codes. */
    for (size_t j = 0; j < n_columns; j++) {
        for (size_t r = 0; r < TILE; r++)
            tile->step[r] = tile->scale[r] * (trial.best[j][r] - trial.q[j][r]);
        memcpy(tile->q[k + j], trial.best[j], sizeof trial.best[j]);
        follow(tile, at->to - at->start, at->end - at->start, rows->h + (at->from + j) * in + at->start);
    }
    for (size_t r = 0; r < TILE; r++)
        tile->gain[r] = trial.before[r] + trial.gain[r];
    for (size_t r = 0; r < at->n; r++)
        rows->zero[(at->first + r) * rows->problem->n_groups + at->from / rows->problem->group] += trial.shift[r];
}

/* Sweeps columns start .. end - 1 of the tile of rows from `first` on; rows->gradient holds H e of the block. */
static void sweep_block(calm_rows *rows, sweep_tile *tile, size_t first, size_t start, size_t end, bool zeros,
                        bool build)
{
    const size_t in = rows->problem->in, group = rows->problem->group, n = calm_size_min(rows->n - first, TILE);
    const double unit = 1 / (rows->unit_h * rows->unit_w);
    sweep_place at = {.first = first, .n = n, .start = start, .end = end};
    /* A few rows at a time: rows are a power of two bytes apart, so more of them would evict each other from the
     * cache. */
    for (size_t some = 0; some < TILE; some += FEW_ROWS)
        for (size_t k = 0; k < end - start; k++)
            for (size_t r = some; r < some + FEW_ROWS; r++) {
                tile->gradient[k][r] = r < n ? (double)rows->gradient[(first + r) * CALM_SWEEP_BLOCK + k] * unit : 0;
                if (build && r < n)
                    tile->gradient[k][r] = rows->wh[(first + r) * in + start + k] - tile->gradient[k][r];
                tile->q[k][r] = r < n ? (double)rows->q[(first + r) * in + start + k] : 0;
            }
    memset(tile->gain, 0, sizeof tile->gain);
    /* Blocks and groups end at different columns if the group size does not divide the block. */
    for (at.from = start; at.from < end; at.from = at.to) {
        at.to = calm_size_min((at.from / group + 1) * group, end);
        enter_group(rows, tile, first, n, at.from / group);
        if (zeros)
            sweep_zeros(rows, tile, &at);
        else
            sweep_group(rows, tile, &at, end);
    }
    for (size_t r = 0; r < n; r++) {
        for (size_t k = 0; k < end - start; k++)
            rows->q[(first + r) * in + start + k] = (float)tile->q[k][r];
        rows->loss[first + r] -= tile->gain[r];
    }
}

/* Computes product = errors w - s q of columns start .. end - 1, times unit_w. */
static void update_errors(calm_rows *rows, size_t start, size_t end)
{
    size_t in = rows->problem->in, n_groups = rows->problem->n_groups, group = rows->problem->group;
    for (size_t r = 0; r < rows->n; r++) {
        const double *w = rows->w + r * in;
        const float *q = rows->q + r * in;
        for (size_t g = start / group, j = start; j < end; g++) {
            double scale = rows->scale[r * n_groups + g];
            for (size_t stop = (g + 1) * group < end ? (g + 1) * group : end; j < stop; j++)
                rows->product[r * in + j] = (float)((w[j] - scale * (double)q[j]) * rows->unit_w);
        }
    }
    calm_rows_pack_product(rows, start, end);
}

/* Computes rows->gradient = H e of the block, or with `build` H (s q), from products that the normal equations need. */
static calm_status multiply_block(calm_ctx *ctx, calm_rows *rows, const calm_rows_block *block, bool build)
{
    if (!build)
        return calm_rows_multiply_product(ctx, rows, block, 0, rows->problem->in, 0, rows->gradient);
    CALM_TRY(calm_rows_multiply_groups(ctx, rows, block));
    return calm_rows_multiply_values(ctx, rows, block);
}

calm_status calm_rows_sweep(calm_ctx *ctx, calm_rows *rows, bool zeros, bool build)
{
    const size_t in = rows->problem->in, group = rows->problem->group;
    size_t block = CALM_SWEEP_BLOCK;
    sweep_tile tile;
    zeros = zeros && rows->qjob->zeros && group <= block;
    /* A zero is tried on its whole group, so groups must not cross blocks. */
    if (zeros)
        block = block / group * group;
    if (build) {
        calm_rows_normal_begin(rows);
        calm_rows_values(rows);
    } else
        update_errors(rows, 0, in);
    for (size_t start = 0; start < in; start += block) {
        const size_t end = calm_size_min(start + block, in);
        const calm_rows_block of = calm_rows_panel(rows, start, end, 0);
        CALM_TRY(multiply_block(ctx, rows, &of, build));
        for (size_t first = 0; first < rows->n; first += TILE)
            sweep_block(rows, &tile, first, start, end, zeros, build);
        /* The next block's product reads the new errors of this block. */
        if (build)
            CALM_TRY(calm_rows_normal_add(ctx, rows, &of));
        else
            update_errors(rows, start, end);
    }
    rows->built = build;
    return CALM_OK;
}

/* ---- losses ---- */

/* w H w^T of row r. */
static double power_of(const calm_rows *rows, size_t r)
{
    const size_t in = rows->problem->in;
    return calm_vec_ddot(in, rows->w + r * in, rows->wh + r * in);
}

double calm_rows_likely(const calm_rows *rows, size_t r)
{
    if (!rows->two_parts)
        return rows->loss[r];
    return rows->loss[r] - POWER_ERROR_BF16X2 / TIMES_SEEN * power_of(rows, r);
}

double calm_rows_least(const calm_rows *rows, size_t r)
{
    const double share = rows->two_parts ? POWER_ERROR_BF16X2 : POWER_ERROR;
    return (1 - LOSS_ERROR) * rows->loss[r] - share * power_of(rows, r);
}

void calm_rows_sums(const calm_rows *rows, double *before, double *loss)
{
    *before = *loss = 0;
    for (size_t r = 0; r < rows->n; r++) {
        *before += rows->before[r];
        *loss += rows->loss[r];
    }
}

/* Computes gradient [n, CALM_SWEEP_BLOCK] = errors H of the columns from the block on, the block itself counted half,
 * times the units: half of e H e^T has each pair of blocks once. */
static calm_status multiply_following(calm_ctx *ctx, calm_rows *rows, size_t start, size_t end)
{
    const calm_rows_block block = calm_rows_panel(rows, start, end, start);
    CALM_TRY(calm_rows_multiply_product(ctx, rows, &block, start, end, 0, rows->gradient));
    /* If no columns follow, this only halves the gradient. */
    return calm_rows_multiply_product(ctx, rows, &block, end, rows->problem->in, 0.5f, rows->gradient);
}

calm_status calm_rows_losses(calm_ctx *ctx, calm_rows *rows)
{
    const size_t in = rows->problem->in;
    const double unit = 2 / (rows->unit_h * rows->unit_w * rows->unit_w);
    update_errors(rows, 0, in);
    memset(rows->loss, 0, rows->n * sizeof *rows->loss);
    for (size_t start = 0; start < in; start += CALM_SWEEP_BLOCK) {
        const size_t n = calm_size_min(in - start, CALM_SWEEP_BLOCK);
        CALM_TRY(multiply_following(ctx, rows, start, start + n));
        for (size_t r = 0; r < rows->n; r++)
            rows->loss[r] += unit * calm_vec_dot(n, rows->gradient + r * CALM_SWEEP_BLOCK,
                                                 rows->product + r * in + start);
    }
    return CALM_OK;
}
