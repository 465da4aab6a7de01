/* Backward pass of Mamba-2's scan, chunk by chunk from the last one, by the formulas of mamba.c.
 *
 * With F_ij = exp(G_i - G_j), P_ij = C_i . B_j, M_ij = F_ij P_ij s_j for j <= i, s the steps, and S' the memory after
 * the chunk:
 *   dM  = dy x^T, j <= i                             dP_ij = dM_ij F_ij s_j
 *   dx_j = sum_i M_ij dy_i + D dy_j + k_j s_j dS'^T B_j           k_j = exp(G_n - G_j)
 *   dB  = dP^T C + (k s x) dS'^T                     dC  = dP B + (exp(G) dy) S^T
 *   ds_j = sum_i dM_ij F_ij P_ij + k_j B_j . dS' x_j
 *   dS  = exp(G_n) dS' + C^T (exp(G) dy)
 * and S, M and k add to the gradient of G.  S before each chunk was kept; the rest is recomputed.  B and C belong to
 * groups: their gradients are sums over the heads of one, in order. */
#include "ptq/layers/mamba_back.h"

#include <math.h>
#include <string.h>

#include "ptq/base/scope.h"
#include "ptq/base/threads.h"
#include "ptq/layers/mamba_impl.h"
#include "ptq/layers/norm_back.h"
#include "ptq/tensor/linalg.h"
#include "ptq/tensor/vector.h"
#include "ptq/tensor/vector_back.h"

/* One chunk of all heads. */
typedef struct back_task {
    const calm_mamba_shape *shape;
    const calm_mamba_rows *rows;
    const calm_mamba_grads *grads;
    const float *states, *dout;    /* S before the chunk: [n_heads, state_dim, head_dim] */
    size_t begin, n, most;         /* first token, number of tokens; number in the longest chunk */
    float *products;               /* [n_groups, n, n]: P                                */
    float *dstates;                /* [n_heads, state_dim, head_dim]: dS', becomes dS    */
    float *db, *dc;                /* [n_heads, n, state_dim]                            */
} back_task;

/* Buffers of a head for chunks of C tokens. */
typedef struct room {
    float *fading;    /* [C, C]: F                                                    */
    float *dmixed;    /* [C, C]: dM, which becomes dP                                 */
    float *mixed;     /* [C, C]: M                                                    */
    float *seen;      /* [C, d]: S^T C, then dS'^T B, then k s x                      */
    float *faded;     /* [C, d]: exp(G) dy                                            */
    double *log;      /* [C]: G                                                       */
    double *dlog;     /* [C]                                                          */
    double *dstep;    /* [C]                                                          */
} room;

static calm_status room_new(calm_ctx *ctx, size_t c, size_t d, room *r)
{
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, r->fading, c * c));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, r->dmixed, c * c));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, r->mixed, c * c));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, r->seen, c * d));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, r->faded, c * d));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, r->log, c));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, r->dlog, c));
    return CALM_NEW(ctx, ctx->scratch, r->dstep, c);
}

size_t calm_mamba_head_back_bytes(const calm_mamba_shape *shape, size_t n_tokens, size_t chunk)
{
    const size_t c = calm_size_min(n_tokens, chunk);
    return 3 * CALM_BYTES(float, c * c) + 2 * CALM_BYTES(float, c * shape->head_dim) + 3 * CALM_BYTES(double, c);
}

size_t calm_mamba_scan_back_bytes(const calm_mamba_shape *shape, size_t n_tokens, size_t chunk)
{
    const size_t c = calm_size_min(n_tokens, chunk);
    return CALM_BYTES(float, shape->n_groups * c * c)
           + CALM_BYTES(float, shape->n_heads * shape->state_dim * shape->head_dim)
           + 2 * CALM_BYTES(float, shape->n_heads * c * shape->state_dim);
}

/* ---- a chunk of a head ---- */

/* Offsets of a head's rows in a chunk. */
typedef struct place {
    size_t x, group, out;    /* in rows of x; of B and C; of out */
    size_t state;            /* in states                          */
} place;

static place place_of(const back_task *task, size_t head)
{
    const calm_mamba_shape *shape = task->shape;
    const size_t d = shape->head_dim, group = head / (shape->n_heads / shape->n_groups);
    const size_t row = task->begin * task->rows->stride;
    return (place){row + head * d, row + group * shape->state_dim,
                   (task->begin * shape->n_heads + head) * d, head * shape->state_dim * d};
}

/* Returns the index of token i in step and decay. */
static size_t gate_at(const back_task *task, size_t head, size_t i)
{
    return (task->begin + i) * task->shape->n_heads + head;
}

/* Computes F and M, turns dM into dP, and starts the gradients of the steps and of G. */
static void mixed_back(const back_task *task, size_t head, const room *r)
{
    const size_t n = task->n, group = head / (task->shape->n_heads / task->shape->n_groups);
    for (size_t i = 0; i < n; i++) {
        const float *products = task->products + (group * n + i) * n;
        float *fading = r->fading + i * n, *mixed = r->mixed + i * n, *dmixed = r->dmixed + i * n;
        for (size_t j = 0; j <= i; j++)
            fading[j] = (float)(r->log[i] - r->log[j]);
        calm_vec_exp_sum(i + 1, 0, fading, fading);
        for (size_t j = 0; j <= i; j++) {
            const float step = task->rows->step[gate_at(task, head, j)];
            mixed[j] = products[j] * fading[j] * step;
            const double back = (double)dmixed[j] * (double)mixed[j];
            r->dlog[i] += back;
            r->dlog[j] -= back;
            r->dstep[j] += (double)dmixed[j] * (double)fading[j] * (double)products[j];
            dmixed[j] *= fading[j] * step;
        }
        /* A token does not read what later tokens write. */
        memset(mixed + i + 1, 0, (n - i - 1) * sizeof *mixed);
        memset(dmixed + i + 1, 0, (n - i - 1) * sizeof *dmixed);
    }
}

/* Backward of S' = exp(G_n) S + sum_j k_j s_j B_j x_j^T: adds to dx and dB of the head, and turns dS' into its part of
 * dS. */
static void memory_back(const back_task *task, size_t head, const place *at, const room *r)
{
    const calm_mamba_rows *rows = task->rows;
    const size_t n = task->n, d = task->shape->head_dim, d_state = task->shape->state_dim, stride = rows->stride;
    float *dstate = task->dstates + at->state, *dx = task->grads->x + at->x;
    const double last = exp(r->log[n - 1]);
    calm_sgemm_nn(n, d, d_state, 1, rows->b + at->group, stride, dstate, d, 0, r->seen, d);
    for (size_t j = 0; j < n; j++) {
        const double step = (double)rows->step[gate_at(task, head, j)], fade = exp(r->log[n - 1] - r->log[j]);
        const float *x = rows->x + at->x + j * stride;
        float *seen = r->seen + j * d;
        const double dot = fade * calm_vec_dot(d, seen, x);
        r->dstep[j] += dot;
        r->dlog[n - 1] += step * dot;
        r->dlog[j] -= step * dot;
        calm_vec_axpy(d, (float)(step * fade), seen, dx + j * stride);
        memcpy(seen, x, d * sizeof *seen);
        calm_vec_scale(d, (float)(step * fade), seen);
    }
    calm_sgemm_nt(n, d_state, d, 1, r->seen, d, dstate, d, 1, task->db + head * n * d_state, d_state);
    r->dlog[n - 1] += last * calm_vec_dot(d_state * d, task->states + at->state, dstate);
    calm_vec_scale(d_state * d, (float)last, dstate);
}

/* Writes the gradients of decays and steps; since G_i is decay_1 + .. + decay_i, a decay's gradient sums those of later
 * G. */
static void write_gates(const back_task *task, size_t head, const room *r)
{
    double sum = 0;
    for (size_t i = task->n; i-- > 0;) {
        sum += r->dlog[i];
        task->grads->decay[gate_at(task, head, i)] = (float)sum;
        task->grads->step[gate_at(task, head, i)] = (float)r->dstep[i];
    }
}

/* Backward of a chunk of one head. */
static calm_status back_head(calm_ctx *ctx, size_t head, void *user)
{
    const back_task *task = user;
    const calm_mamba_rows *rows = task->rows;
    const size_t n = task->n, d = task->shape->head_dim, d_state = task->shape->state_dim, stride = rows->stride;
    const size_t width = task->shape->n_heads * d;
    const place at = place_of(task, head);
    const float *dout = task->dout + at.out, *x = rows->x + at.x, *state = task->states + at.state;
    float *dx = task->grads->x + at.x, *db = task->db + head * n * d_state, *dc = task->dc + head * n * d_state;
    double skip = 0;
    room r;
    CALM_TRY(room_new(ctx, n, d, &r));
    calm_mamba_sum_decays(task->shape, rows, head, task->begin, n, r.log);
    calm_sgemm_nt(n, n, d, 1, dout, width, x, stride, 0, r.dmixed, n);
    for (size_t i = 0; i < n; i++)
        skip += (double)r.dmixed[i * n + i];
    mixed_back(task, head, &r);
    calm_sgemm_tn(n, d, n, 1, r.mixed, n, dout, width, 0, dx, stride);
    calm_sgemm_tn(n, d_state, n, 1, r.dmixed, n, rows->c + at.group, stride, 0, db, d_state);
    calm_sgemm_nn(n, d_state, n, 1, r.dmixed, n, rows->b + at.group, stride, 0, dc, d_state);
    calm_sgemm_nn(n, d, d_state, 1, rows->c + at.group, stride, state, d, 0, r.seen, d);
    for (size_t i = 0; i < n; i++) {
        calm_vec_axpy(d, rows->skip[head], dout + i * width, dx + i * stride);
        memcpy(r.faded + i * d, dout + i * width, d * sizeof *dout);
        calm_vec_scale(d, (float)exp(r.log[i]), r.faded + i * d);
        r.dlog[i] += calm_vec_dot(d, r.faded + i * d, r.seen + i * d);
    }
    calm_sgemm_nt(n, d_state, d, 1, r.faded, d, state, d, 1, dc, d_state);
    memory_back(task, head, &at, &r);
    calm_sgemm_tn(d_state, d, n, 1, rows->c + at.group, stride, r.faded, d, 1, task->dstates + at.state, d);
    write_gates(task, head, &r);
    if (task->grads->skip)
        task->grads->skip[head] += (float)skip;
    return CALM_OK;
}

/* ---- all chunks and heads ---- */

/* Computes P of a group. */
static void run_products(size_t group, void *user)
{
    const back_task *task = user;
    const calm_mamba_rows *rows = task->rows;
    const size_t n = task->n, d = task->shape->state_dim, from = task->begin * rows->stride + group * d;
    calm_sgemm_nt(n, n, d, 1, rows->c + from, rows->stride, rows->b + from, rows->stride, 0,
                  task->products + group * n * n, n);
}

/* Computes dB and dC of a group: sums over its heads, in order. */
static void sum_heads(size_t group, void *user)
{
    const back_task *task = user;
    const size_t n = task->n, d = task->shape->state_dim, heads = task->shape->n_heads / task->shape->n_groups;
    const size_t stride = task->rows->stride, to = task->begin * stride + group * d;
    for (size_t t = 0; t < n; t++) {
        float *db = task->grads->b + to + t * stride, *dc = task->grads->c + to + t * stride;
        memset(db, 0, d * sizeof *db);
        memset(dc, 0, d * sizeof *dc);
        for (size_t head = group * heads; head < (group + 1) * heads; head++) {
            calm_vec_add(d, task->db + (head * n + t) * d, db);
            calm_vec_add(d, task->dc + (head * n + t) * d, dc);
        }
    }
}

calm_status calm_mamba_scan_back(calm_ctx *ctx, const calm_mamba_shape *shape, const calm_mamba_rows *rows,
                                 size_t chunk, const float *states, const float *dout, const calm_mamba_grads *grads)
{
    const size_t c = calm_size_min(rows->n_tokens, chunk), n_state = shape->state_dim * shape->head_dim;
    const size_t n_chunks = c ? (rows->n_tokens + c - 1) / c : 0;
    back_task task = {.shape = shape, .rows = rows, .grads = grads, .dout = dout};
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, task.products, shape->n_groups * c * c));
    /* Nothing reads the memory after the last token. */
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, task.dstates, shape->n_heads * n_state));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, task.db, shape->n_heads * c * shape->state_dim));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, task.dc, shape->n_heads * c * shape->state_dim));
    for (size_t k = n_chunks; k-- > 0;) {
        task.begin = k * c;
        task.n = calm_size_min(c, rows->n_tokens - task.begin);
        task.states = states + k * shape->n_heads * n_state;
        calm_parallel_each(ctx, shape->n_groups, run_products, &task);
        CALM_TRY(calm_parallel_for(ctx, shape->n_heads, back_head, &task));
        calm_parallel_each(ctx, shape->n_groups, sum_heads, &task);
    }
    return CALM_OK;
}

/* ---- steps ---- */

void calm_mamba_steps_back(size_t n_tokens, size_t n_heads, const float *raw, size_t stride, const float *a_log,
                           const float *dt_bias, calm_mamba_limits limits, const float *dstep, const float *ddecay,
                           float *draw, float *da_log, float *ddt)
{
    for (size_t head = 0; head < n_heads; head++) {
        const double rate = exp((double)a_log[head]);
        double of_log = 0, of_dt = 0;
        for (size_t t = 0; t < n_tokens; t++) {
            const double x = (double)raw[t * stride + head] + (double)dt_bias[head];
            const double softplus = (x > 0 ? x : 0) + log1p(exp(-fabs(x)));
            const double step = fmin(fmax(softplus, (double)limits.least), (double)limits.most);
            const double dd = (double)ddecay[t * n_heads + head];
            /* softplus' = sigmoid = 1 - exp(-softplus). */
            const double slope = step < softplus || step > softplus ? 0 : -expm1(-softplus);
            const double back = ((double)dstep[t * n_heads + head] - rate * dd) * slope;
            of_log -= dd * rate * step;
            of_dt += back;
            draw[t * stride + head] = (float)back;
        }
        if (da_log)
            da_log[head] += (float)of_log;
        if (ddt)
            ddt[head] += (float)of_dt;
    }
}

/* ---- norm ---- */

typedef struct gate_task {
    const float *y, *z;
    size_t width, stride;
    float *gated, *dgated, *dz;    /* [n, width] y silu(z), and its gradient, which becomes that of y */
} gate_task;

static void gate_rows(size_t first, size_t n, void *user)
{
    const gate_task *task = user;
    for (size_t t = first; t < first + n; t++) {
        float *gated = task->gated + t * task->width;
        memcpy(gated, task->z + t * task->stride, task->width * sizeof *gated);
        calm_vec_silu(task->width, gated);
        calm_vec_mul(task->width, task->y + t * task->width, gated);
    }
}

/* Computes dz = d y silu'(z), and multiplies d by silu(z) in place. */
static calm_status gate_rows_back(calm_ctx *ctx, size_t first, size_t n, void *user)
{
    const gate_task *task = user;
    const size_t width = task->width;
    float *silu;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, silu, width));
    for (size_t t = first; t < first + n; t++) {
        const float *z = task->z + t * task->stride;
        float *d = task->dgated + t * width, *dz = task->dz + t * task->stride;
        memcpy(dz, task->y + t * width, width * sizeof *dz);
        calm_vec_mul(width, d, dz);
        calm_vec_silu_back(width, z, dz);
        memcpy(silu, z, width * sizeof *silu);
        calm_vec_silu(width, silu);
        calm_vec_mul(width, silu, d);
    }
    return CALM_OK;
}

calm_status calm_mamba_norm_back(calm_ctx *ctx, const calm_mamba_shape *shape, size_t n_tokens, const calm_norm *norm,
                                 const float *y, const float *z, size_t stride, float *dy, float *dw, float *dz)
{
    const size_t width = shape->n_heads * shape->head_dim, group = width / shape->n_groups;
    gate_task task = {.y = y, .z = z, .width = width, .stride = stride, .dgated = dy, .dz = dz};
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, task.gated, n_tokens * width));
    calm_parallel_each_rows(ctx, n_tokens, gate_rows, &task);
    for (size_t at = 0; at < width; at += group) {
        calm_norm part = *norm;
        part.w = norm->w + at;
        part.width = group;
        CALM_TRY(calm_norm_back(ctx, &part, (calm_norm_rows_of){n_tokens, 1, width}, task.gated + at, dy + at,
                                dw ? dw + at : NULL, NULL, dy + at));
    }
    return calm_parallel_rows(ctx, n_tokens, gate_rows_back, &task);
}

size_t calm_mamba_norm_back_bytes(const calm_mamba_shape *shape, size_t n_tokens, size_t n_threads)
{
    const size_t width = shape->n_heads * shape->head_dim;
    return CALM_BYTES(float, n_tokens * width)
           + calm_size_max(calm_norm_back_scratch_bytes(width / shape->n_groups, n_tokens),
                           n_threads * CALM_BYTES(float, width));
}
