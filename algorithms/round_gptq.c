/* GPTQ: rounds column by column, and later columns compensate each error (Frantar et al. 2022, arXiv 2210.17323).
 *
 *   Hd = H + damp mean(diag H) I,  Hd^-1 = U^T U with U upper triangular
 *   for each column j:  q_j = round(w_j),  e = (w_j - q_j) / U_jj,  w_k -= e U_jk for k > j
 *
 * Columns are in the order of falling diag H (order=activation) or from left to right.  With static groups, scales come
 * from the original weights.  With sequential groups, the scale of a group comes from its weights corrected by all
 * earlier columns; the published code corrects them only up to the last block of 128 columns, so blocks here never end
 * inside a group that starts in an earlier block.
 *
 * The algorithm uses double, because an error of H^-1 grows with H's condition number, and every column passes its
 * error on to later ones.  Restarts, which measure their results, use float32, or the operands of ctx->operands, and
 * another factor that needs half the operations (LDLQ, Chee et al. 2023, arXiv 2307.13304):
 *
 *   Hd = R R^T with R upper, so U = R^-1
 *   for each column k:  w_k += sum over j < k of (v_j - q_j) R_jk / R_kk, v the original weights;  q_k = round(w_k)
 *
 * Rows are independent, and a task has CALM_ROW_CHUNK of them.  Within a block of columns a tile of TILE rows is
 * transposed, so that rows are vector lanes; the correction of all columns after the block is one matrix product (the
 * paper's lazy update).  Within the block, corrections are delayed for PANEL columns, without a change of bits: each
 * weight still has the errors of earlier columns subtracted one after the other. */
#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "algorithms/descent.h"
#include "algorithms/inverse.h"
#include "ptq/base/simd.h"
#include "ptq/base/threads.h"
#include "ptq/tensor/linalg.h"
#include "ptq/tensor/product.h"

#define BLOCK ((size_t)128)
#define TILE ((size_t)32)
#define FEW_ROWS ((size_t)8)    /* doubles of a cache line */
/* Number of columns whose errors correct later columns in one pass. */
#define PANEL ((size_t)8)
/* Adding and subtracting it rounds a double to a whole number, ties to even, in a vector lane. */
#define ROUND_F64 0x1.8p52

enum { ORDER_ACTIVATION, ORDER_NONE };
enum { GROUPS_STATIC, GROUPS_SEQUENTIAL };

typedef struct gptq_options {
    int order, groups;
    double damp;
} gptq_options;

static const calm_option gptq_table[] = {
    {.name = "order", .help = "columns by falling input power, or from left to right",
     .offset = offsetof(gptq_options, order), .type = CALM_OPTION_ENUM, .fallback = "activation",
     .values = "activation|none"},
    {.name = "groups", .help = "scales from the original or from the corrected weights",
     .offset = offsetof(gptq_options, groups), .type = CALM_OPTION_ENUM, .fallback = "static",
     .values = "static|sequential"},
    {.name = "damp", .help = "share of the mean of diag H added to it", .offset = offsetof(gptq_options, damp),
     .type = CALM_OPTION_DOUBLE, .fallback = "0.01", .min = 1e-6, .max = 1},
    {.name = NULL},
};

static calm_status check_options(calm_ctx *ctx, const void *opts)
{
    const gptq_options *options = opts;
    if (options->order == ORDER_ACTIVATION && options->groups == GROUPS_SEQUENTIAL)
        return calm_fail(ctx, CALM_EARG, "gptq: groups=sequential needs order=none: columns by falling input power do "
                                         "not enter a group from its first column on");
    return CALM_OK;
}

/* Sets the weights of columns whose input is always zero to zero. */
static void clear_dead_columns(calm_problem *problem)
{
    for (size_t j = 0; j < problem->in; j++)
        for (size_t i = 0; problem->h_diag[j] == 0 && i < problem->out; i++)
            problem->w[i * problem->in + j] = 0;
}

/* ---- a chunk of rows ---- */

typedef struct gptq_job {
    const calm_problem *problem;
    calm_qjob *qjob;
    const size_t *order;    /* [I] position -> column        */
    const double *u;        /* [I, I] the factor in that order */
    const float *single;    /* [I, I] instead of u: R of H times a constant, which changes no code; NULL: u */
    const calm_packed *packed;    /* `single` packed for products, or NULL */
    double *loss;           /* [O] sum of squared errors; NULL: not wanted */
    bool sequential;
    size_t parts;           /* number of tasks per chunk      */
} gptq_job;

/* The state of a task: rows first .. first + n - 1, and the tile that begins at `tile_row` of them. */
typedef struct chunk_state {
    const gptq_job *job;
    size_t first, n, tile_row;
    double *w;               /* [n, I] in order, corrected                       */
    double *e;               /* [n, BLOCK] errors of the block                  */
    float *sums;             /* [n, I] with job->single instead of w: sums (v - q) R */
    float *single_e;         /* [n, BLOCK] with job->single instead of e: v - q */
    calm_packed packed_e;    /* [n, BLOCK] with job->packed: single_e packed    */
    double (*before)[TILE];  /* [BLOCK][TILE] with job->single: v of the tile   */
    const double *u;         /* the factor from row and column `start` of the block on */
    size_t ldu;              /* row stride of u                                 */
    double *corner;          /* [BLOCK, BLOCK] with job->single memory of u: 1 / R_kk, and -R_jk / R_kk  */
    double *scale, *zero;    /* [tiles, G, TILE]                                 */
    double *min;             /* the same; NULL: none                             */
    double *group_w;         /* [calm_shape_together]                            */
    double (*tile)[TILE];    /* [BLOCK][TILE] the block's columns of this tile  */
} chunk_state;

/* Computes code [TILE] and error e [TILE] of one column. */
CALM_VECTORIZE
static void quantize_column(const double *w, const double *scale, const double *zero, double least, double most,
                            double pivot, uint8_t *code, double *e)
{
    for (size_t r = 0; r < TILE; r++) {
        double q = w[r] / scale[r], lo = least - zero[r], hi = most - zero[r];
        q = q < lo ? lo : q;
        q = q > hi ? hi : q;
        q = (q + ROUND_F64) - ROUND_F64;
        code[r] = (uint8_t)(int)(q + zero[r]);
        e[r] = (w[r] - scale[r] * q) / pivot;
    }
}

/* Does the same for levels that are not whole numbers, or with a minimum (NULL: none). */
static void quantize_levels(const calm_scheme *scheme, const double *w, const double *scale, const double *zero,
                            const double *min, double pivot, uint8_t *code, double *e)
{
    double q[TILE];
    /* zero[0] suffices: schemes whose zero points differ from row to row are plain and do not come here. */
    for (size_t r = 0; r < TILE; r++)
        q[r] = (w[r] - (min ? min[r] : 0)) / scale[r];
    calm_level_nearest(scheme, zero[0], q, TILE);
    for (size_t r = 0; r < TILE; r++) {
        code[r] = calm_level_code(scheme, zero[r], q[r]);
        e[r] = (w[r] - (min ? min[r] : 0) - scale[r] * q[r]) / pivot;
    }
}

/* Computes tile[k] -= u[k] e for k in [from, to). */
CALM_VECTORIZE
static void correct_columns(double (*restrict tile)[TILE], size_t from, size_t to, const double *u, const double *e)
{
    for (size_t k = from; k < to; k++)
        for (size_t r = 0; r < TILE; r++)
            tile[k][r] -= u[k] * e[r];
}

/* Does the same for PANEL columns, one after the other; their rows of u have stride `in`. */
CALM_VECTORIZE
static void correct_by_panel(double (*restrict tile)[TILE], size_t from, size_t to, const double *restrict u, size_t in,
                             double (*restrict e)[TILE])
{
    for (size_t k = from; k < to; k++)
        for (size_t r = 0; r < TILE; r++) {
            double w = tile[k][r];
            for (size_t p = 0; p < PANEL; p++)
                w -= u[p * in + k] * e[p][r];
            tile[k][r] = w;
        }
}

/* Returns the number of rows of the tile; the last tile of a chunk may have fewer. */
static size_t tile_rows(const chunk_state *state)
{
    return calm_size_min(state->n - state->tile_row, TILE);
}

/* Returns the index of scale and zero of the tile's group g. */
static size_t tile_grid(const chunk_state *state, size_t g)
{
    return (state->tile_row / TILE * state->job->problem->n_groups + g) * TILE;
}

/* Reads scales, zeros and minima of group g for the rows of the tile; missing rows get scale 1. */
static void read_grids(chunk_state *state, size_t g)
{
    const calm_qjob *qjob = state->job->qjob;
    uint8_t middle = calm_symmetric_zero(&qjob->scheme);
    for (size_t r = 0; r < TILE; r++) {
        size_t cell = (state->first + state->tile_row + r) * qjob->n_groups + g;
        bool inside = r < tile_rows(state);
        state->scale[tile_grid(state, g) + r] = inside ? qjob->scales[cell] : 1;
        state->zero[tile_grid(state, g) + r] = inside && qjob->zeros ? qjob->zeros[cell] : middle;
        if (state->min)
            state->min[tile_grid(state, g) + r] = inside ? qjob->mins[cell] : 0;
    }
}

/* Enters group g, the first of a super-block: computes the scales of the super-block from the corrected weights.
 * Columns before `end` are in the tile; later ones are in state->w, which this block has not changed. */
static calm_status enter_group(calm_ctx *ctx, chunk_state *state, size_t g, size_t start, size_t end)
{
    const calm_problem *problem = state->job->problem;
    const size_t first = calm_problem_group_start(problem, g), n = calm_problem_super(problem, g);
    const size_t stop = calm_size_min(first + n * problem->group, problem->in);
    for (size_t r = 0; r < tile_rows(state); r++) {
        calm_grid grid[CALM_SUPER_MAX];
        const double *row = state->w + (state->tile_row + r) * problem->in;
        for (size_t j = first; j < stop; j++)
            state->group_w[j - first] = j < end ? state->tile[j - start][r] : row[j];
        size_t absolute = state->first + state->tile_row + r;
        CALM_TRY(calm_problem_run(ctx, problem, absolute, g, n, state->group_w, grid));
        for (size_t i = 0; i < n; i++)
            calm_qjob_set_grid(state->job->qjob, absolute, g + i, grid[i]);
    }
    for (size_t i = 0; i < n; i++)
        read_grids(state, g + i);
    return CALM_OK;
}

/* Does the same for all rows of the chunk, which share a scale.  A block of columns begins at the group's first column,
 * so state->w is corrected by all earlier columns. */
static calm_status enter_block(calm_ctx *ctx, chunk_state *state, size_t start)
{
    const calm_problem *problem = state->job->problem;
    const size_t g = start / problem->group, columns = calm_problem_group_columns(problem, g);
    calm_grid grid;
    assert(start % problem->group == 0);
    for (size_t i = 0; i < state->n * columns; i++)
        state->group_w[i] = state->w[i / columns * problem->in + start + i % columns];
    CALM_TRY(calm_problem_block(ctx, problem, state->first, state->n, g, state->group_w, &grid));
    for (size_t r = 0; r < state->n; r++)
        calm_qjob_set_grid(state->job->qjob, state->first + r, g, grid);
    for (state->tile_row = 0; state->tile_row < state->n; state->tile_row += TILE)
        read_grids(state, g);
    return CALM_OK;
}

/* Loads the block's columns of the tile, transposed. */
static void load_tile(chunk_state *state, size_t start, size_t end)
{
    const size_t in = state->job->problem->in;
    for (size_t r = 0; r < TILE; r++) {
        const size_t row = (state->tile_row + r) * in;
        for (size_t j = start; j < end; j++)
            state->tile[j - start][r] = r < tile_rows(state) ? state->w[row + j] : 0;
    }
}

/* Does the same with job->single: the original weights plus the sums of the corrections by earlier blocks. */
static void load_single(chunk_state *state, size_t start, size_t end)
{
    const gptq_job *job = state->job;
    const size_t in = job->problem->in, n_rows = tile_rows(state), row = state->tile_row;
    const size_t *column = job->order + start;
    const float *w = job->problem->w + (state->first + row) * in, *sums = state->sums + row * in + start;
    /* A few rows at a time: rows are a power of two bytes apart, so more of them would evict each other from the
     * cache. */
    for (size_t some = 0; some < TILE; some += FEW_ROWS)
        for (size_t k = 0; k < end - start; k++)
            for (size_t r = some; r < some + FEW_ROWS; r++) {
                state->before[k][r] = r < n_rows ? (double)w[r * in + column[k]] : 0;
                state->tile[k][r] = state->before[k][r];
                if (r < n_rows)
                    state->tile[k][r] += (double)sums[r * in + k] * state->corner[k * (BLOCK + 1)];
            }
}

/* Returns the number of columns of a super-block, whose grids are computed together. */
static size_t super_columns(const gptq_job *job)
{
    return calm_scheme_family(&job->qjob->scheme)->super * job->problem->group;
}

/* Computes codes [TILE] and errors [TILE] of the tile's column j, in a block that begins at `start`. */
static void quantize_one(const chunk_state *state, size_t start, size_t j, uint8_t *code, double *e)
{
    const gptq_job *job = state->job;
    const calm_scheme *scheme = &job->qjob->scheme;
    const size_t at = tile_grid(state, job->order[j] / job->problem->group);
    const double *w = state->tile[j - start], pivot = state->u[(j - start) * (state->ldu + 1)];
    if (calm_scheme_is_plain(scheme))
        quantize_column(w, state->scale + at, state->zero + at, calm_code_min(scheme), calm_code_max(scheme), pivot,
                        code, e);
    else
        quantize_levels(scheme, w, state->scale + at, state->zero + at, state->min ? state->min + at : NULL, pivot,
                        code, e);
}

static void add_losses(const chunk_state *state, const double *e)
{
    double *loss = state->job->loss + state->first + state->tile_row;
    for (size_t r = 0; r < tile_rows(state); r++)
        loss[r] += e[r] * e[r];
}

/* Turns the errors of the tile's column k, those of the corrected weights times R_kk, into those of the original
 * weights. */
CALM_VECTORIZE
static void undo_correction(const chunk_state *state, size_t k, double *e)
{
    const double pivot = state->corner[k * (BLOCK + 1)];
    for (size_t r = 0; r < TILE; r++)
        e[r] = e[r] * pivot + state->before[k][r] - state->tile[k][r];
}

/* Quantizes columns first .. first + n - 1, n <= PANEL, of a block of columns start .. end - 1. */
static void quantize_panel(const chunk_state *state, size_t start, size_t end, size_t first, size_t n)
{
    const gptq_job *job = state->job;
    const size_t in = job->problem->in, ldu = state->ldu, behind = first + n - start;
    const double *u = state->u + (first - start) * ldu;
    uint8_t code[PANEL][TILE];
    double e[PANEL][TILE];
    for (size_t p = 0; p < n; p++) {
        quantize_one(state, start, first + p, code[p], e[p]);
        if (job->loss)
            add_losses(state, e[p]);
        if (job->single)
            undo_correction(state, first + p - start, e[p]);
        correct_columns(state->tile, first + p + 1 - start, behind, u + p * ldu, e[p]);
    }
    if (n == PANEL)
        correct_by_panel(state->tile, behind, end - start, u, ldu, e);
    for (size_t p = 0; n < PANEL && p < n; p++)
        correct_columns(state->tile, behind, end - start, u + p * ldu, e[p]);
    /* Codes are stored by column number; errors by position in the order, for the next product. */
    const size_t *column = job->order + first, n_rows = tile_rows(state);
    uint8_t *codes = job->qjob->codes + (state->first + state->tile_row) * in;
    const size_t errors = state->tile_row * BLOCK + first - start;
    for (size_t r = 0; r < n_rows; r++)
        for (size_t p = 0; p < n; p++) {
            codes[r * in + column[p]] = code[p][r];
            if (job->single)
                state->single_e[errors + r * BLOCK + p] = (float)e[p][r];
            else
                state->e[errors + r * BLOCK + p] = e[p][r];
        }
}

/* Quantizes columns start .. end - 1 of one tile; errors go to state->e or single_e. */
static calm_status quantize_tile(calm_ctx *ctx, chunk_state *state, size_t start, size_t end)
{
    const gptq_job *job = state->job;
    const bool enters = job->sequential && calm_scheme_rows(&job->qjob->scheme) == 1;
    const size_t width = super_columns(job);
    if (job->single)
        load_single(state, start, end);
    else
        load_tile(state, start, end);
    for (size_t j = start, n; j < end; j += n) {
        n = calm_size_min(end - j, PANEL);
        /* Columns are then from left to right.  A panel ends with its super-block, so that all weights of the next one
         * are corrected before enter_group reads them. */
        if (enters)
            n = calm_size_min(n, width - j % width);
        if (enters && j % width == 0)
            CALM_TRY(enter_group(ctx, state, j / job->problem->group, start, end));
        quantize_panel(state, start, end, j, n);
    }
    return CALM_OK;
}

/* Returns the first column after the block that begins at `start`. */
static size_t block_end(const gptq_job *job, size_t start)
{
    size_t in = job->problem->in, group = super_columns(job), end = start + BLOCK;
    if (job->sequential && group <= BLOCK)
        end = start + BLOCK / group * group;
    else if (job->sequential && end > (start / group + 1) * group)
        end = (start / group + 1) * group;
    return end < in ? end : in;
}

/* Returns the number of scales of a chunk of n rows, in whole tiles. */
static size_t count_grids(size_t n, size_t n_groups)
{
    return (n + TILE - 1) / TILE * n_groups * TILE;
}

static size_t chunk_bytes(const calm_job_shape *shape, size_t rows, bool single)
{
    const size_t n = calm_size_min(shape->out, rows), weights = n * shape->in, errors = n * BLOCK;
    return (single ? CALM_BYTES(float, weights) + CALM_BYTES(float, errors) + CALM_BYTES(double, BLOCK * BLOCK) +
                         CALM_BYTES(double[TILE], BLOCK) +
                         (calm_packed_fits(shape->operands, shape->in) ?
                          calm_packed_bytes(shape->operands, n, BLOCK) : 0)
                   : CALM_BYTES(double, weights) + CALM_BYTES(double, errors)) +
           (calm_scheme_has_mins(&(calm_scheme){.family = shape->family}) ? 3 : 2) *
               CALM_BYTES(double, count_grids(n, shape->n_groups)) +
           calm_problem_nearest_scratch_bytes(&(calm_job_shape){.out = shape->out, .in = shape->in,
                                                                .group = shape->group, .n_groups = shape->n_groups,
                                                                .n_threads = 1, .family = shape->family}) +
           CALM_BYTES(double[TILE], BLOCK);
}

static calm_status allocate_chunk(calm_ctx *ctx, chunk_state *state)
{
    const calm_problem *problem = state->job->problem;
    size_t n_grids = count_grids(state->n, problem->n_groups);
    if (state->job->single) {
        CALM_TRY(CALM_NEW(ctx, ctx->scratch, state->sums, state->n * problem->in));
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, state->single_e, state->n * BLOCK));
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, state->corner, BLOCK * BLOCK));
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, state->before, BLOCK));
        if (state->job->packed)
            CALM_TRY(calm_packed_new(ctx, false, state->n, BLOCK, &state->packed_e));
    } else {
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, state->w, state->n * problem->in));
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, state->e, state->n * BLOCK));
    }
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, state->scale, n_grids));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, state->zero, n_grids));
    if (state->job->qjob->mins)
        CALM_TRY(CALM_NEW(ctx, ctx->scratch, state->min, n_grids));
    const calm_job_shape shape = calm_job_shape_of(&problem->job->scheme, problem->out, problem->in);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, state->group_w, calm_shape_together(&shape)));
    return CALM_NEW_RAW(ctx, ctx->scratch, state->tile, BLOCK);
}

/* Loads the chunk's weights in the order of the columns. */
static void load_weights(chunk_state *state)
{
    const gptq_job *job = state->job;
    const size_t in = job->problem->in;
    for (size_t r = 0; r < state->n && !job->single; r++) {
        const float *w = job->problem->w + (state->first + r) * in;
        for (size_t j = 0; j < in; j++)
            state->w[r * in + j] = w[job->order[j]];
    }
}

/* Sets the factor of the block of columns start .. end - 1. */
static void enter_corner(chunk_state *state, size_t start, size_t end)
{
    const gptq_job *job = state->job;
    const size_t at = start * (job->problem->in + 1);
    state->u = job->single ? state->corner : job->u + at;
    state->ldu = job->single ? BLOCK : job->problem->in;
    /* From the last row up, because a column's entries need the reciprocal of its pivot, in a later row. */
    for (size_t i = end - start; job->single && i-- > 0;) {
        const float *r = job->single + at + i * job->problem->in;
        state->corner[i * BLOCK + i] = 1 / (double)r[i];
        for (size_t j = i + 1; j < end - start; j++)
            state->corner[i * BLOCK + j] = -(double)r[j] * state->corner[j * BLOCK + j];
    }
}

/* Corrects all later columns by the errors of the block, in one product. */
static calm_status correct_later(calm_ctx *ctx, chunk_state *state, size_t start, size_t end)
{
    const gptq_job *job = state->job;
    const size_t in = job->problem->in, at = start * in + end;
    if (end == in)
        return CALM_OK;
    if (job->packed) {
        calm_packed_store(&state->packed_e, 0, state->n, 0, end - start, state->single_e, BLOCK);
        return calm_packed_multiply(ctx, state->n, in - end, end - start, (calm_packed_part){&state->packed_e, 0, 0},
                                    (calm_packed_part){job->packed, end, start}, 1, state->sums + end, in);
    }
    if (job->single)
        return calm_multiply(ctx, CALM_PRODUCT_NN, state->n, in - end, end - start, state->single_e, BLOCK,
                             job->single + at, in, 1, state->sums + end, in);
    calm_dgemm_nn(state->n, in - end, end - start, -1, state->e, BLOCK, job->u + at, in, 1, state->w + end, in);
    return CALM_OK;
}

/* Task: quantizes a chunk of rows, or half a chunk. */
static calm_status gptq_chunk(calm_ctx *ctx, size_t index, void *user)
{
    const gptq_job *job = user;
    const calm_problem *problem = job->problem;
    const bool shared = job->sequential && calm_scheme_rows(&job->qjob->scheme) > 1;
    size_t in = problem->in;
    chunk_state state = {.job = job};
    state.n = calm_problem_chunk(problem, index / job->parts, &state.first) / job->parts;
    state.first += index % job->parts * state.n;
    CALM_TRY(allocate_chunk(ctx, &state));
    load_weights(&state);
    /* Static grids are already in the job; sequential ones are computed at the first column of their group. */
    for (state.tile_row = 0; !job->sequential && state.tile_row < state.n; state.tile_row += TILE)
        for (size_t g = 0; g < problem->n_groups; g++)
            read_grids(&state, g);
    for (size_t start = 0, end; start < in; start = end) {
        end = block_end(job, start);
        enter_corner(&state, start, end);
        if (shared)
            CALM_TRY(enter_block(ctx, &state, start));
        for (state.tile_row = 0; state.tile_row < state.n; state.tile_row += TILE)
            CALM_TRY(quantize_tile(ctx, &state, start, end));
        CALM_TRY(correct_later(ctx, &state, start, end));    /* the lazy update */
    }
    return CALM_OK;
}

/* Runs all rows in chunks, or in half chunks if some threads would have no work.  A half chunk is a multiple of the
 * rows that BLAS's kernels process at once, and its products are too large for BLAS's kernels for small matrices, so it
 * gives the same bytes as the whole chunk. */
static calm_status run_chunks(calm_ctx *ctx, gptq_job *job)
{
    const size_t n_chunks = calm_problem_chunks(job->problem), out = job->problem->out, in = job->problem->in;
    const bool whole = calm_scheme_rows(&job->qjob->scheme) == 1 && out % CALM_ROW_CHUNK == 0 && in % BLOCK == 0 &&
                       block_end(job, 0) == BLOCK;
    job->parts = whole && n_chunks < 2 * (size_t)ctx->n_threads ? 2 : 1;
    return calm_parallel_for(ctx, n_chunks * job->parts, gptq_chunk, job);
}

/* ---- the rounding ---- */

/* Computes the order of columns by falling power [I], and the factor of the inverse in this order. */
static calm_status prepare(calm_ctx *ctx, const calm_problem *problem, const double *power, double damp,
                           calm_qjob *qjob, gptq_job *job)
{
    size_t *order;
    const double *u;
    CALM_TRY(calm_inverse_order(ctx, problem->in, power, &order));
    CALM_TRY(calm_inverse_factor(ctx, problem, order, damp, &u, &qjob->damp));
    *job = (gptq_job){.problem = problem, .qjob = qjob, .order = order, .u = u};
    return CALM_OK;
}

static calm_part_memory memory_of(const calm_job_shape *shape, bool single)
{
    const size_t whole = calm_shape_workers(shape) * chunk_bytes(shape, CALM_ROW_CHUNK, single),
                 halves = shape->out % CALM_ROW_CHUNK ? 0 : 2 * calm_shape_chunks(shape),
                 half = calm_size_min(shape->n_threads, halves) * chunk_bytes(shape, CALM_ROW_CHUNK / 2, single),
                 factor = single ? calm_inverse_root_float_scratch_bytes(shape->operands, shape->in)
                                 : calm_inverse_factor_scratch_bytes(shape->in);
    return (calm_part_memory){calm_inverse_order_bytes(shape->in), calm_size_max(factor, calm_size_max(whole, half))};
}

calm_part_memory calm_descent_gptq_memory(const calm_job_shape *shape)
{
    return memory_of(shape, true);
}

calm_status calm_descent_gptq(calm_ctx *ctx, const calm_problem *problem, const double *power, double damp,
                              double *loss, calm_qjob *qjob)
{
    gptq_job job = {.problem = problem, .qjob = qjob, .loss = loss};
    size_t *order;
    calm_root_float root;
    CALM_TRY(calm_inverse_order(ctx, problem->in, power, &order));
    CALM_TRY(calm_inverse_root_float(ctx, problem, order, damp, &root, &qjob->damp));
    job.order = order;
    job.single = root.r;
    job.packed = root.packs ? &root.packed : NULL;
    if (loss)
        memset(loss, 0, problem->out * sizeof *loss);
    CALM_TRY(run_chunks(ctx, &job));
    /* R contains the square root of unit, so the loss contains unit. */
    for (size_t r = 0; loss && r < problem->out; r++)
        loss[r] /= root.unit;
    return CALM_OK;
}

static calm_status gptq(calm_ctx *ctx, calm_problem *problem, const void *opts, calm_qjob *qjob)
{
    const gptq_options *options = opts;
    gptq_job job;
    /* Before the grids, because a cleared weight must not widen its group's span. */
    clear_dead_columns(problem);
    /* The inverse, too, because grids may weight errors by it. */
    CALM_TRY(prepare(ctx, problem, options->order == ORDER_ACTIVATION ? problem->h_diag : NULL, options->damp, qjob,
                     &job));
    job.sequential = options->groups == GROUPS_SEQUENTIAL;
    if (!job.sequential)
        CALM_TRY(calm_problem_grids(ctx, problem, qjob));
    return run_chunks(ctx, &job);
}

static double shared_factor(const void *opts)
{
    const gptq_options *options = opts;
    return options->order == ORDER_ACTIVATION ? options->damp : 0;
}

static calm_part_memory memory(const calm_job_shape *shape, const void *opts)
{
    (void)opts;
    return memory_of(shape, false);
}

const calm_part calm_round_gptq = {
    .name = "gptq",
    .revision = 2,
    .summary = "error feedback through the inverse Hessian",
    .reference = "Frantar et al. 2022, arXiv 2210.17323",
    .kind = CALM_KIND_ROUND,
    .caps = CALM_NEEDS_GRAM | CALM_NEEDS_INVERSE | CALM_GRAM_INVERSE,
    .products = 0.5,
    .opts_size = sizeof(gptq_options),
    .opts = gptq_table,
    .check = check_options,
    .factor = shared_factor,
    .memory = memory,
    .run.round = gptq,
};
