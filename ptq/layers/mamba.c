/* The scan of Mamba-2 in chunks of n tokens, so that nearly all of its work is in products of matrices.
 *
 * With G_i = decay_1 + .. + decay_i within the chunk and S the memory before it, for all tokens of the chunk
 *   y_i = exp(G_i) S^T C_i + sum_{j<=i} exp(G_i - G_j) (C_i . B_j) step_j x_j + D x_i
 *   S'  = exp(G_n) S + sum_j exp(G_n - G_j) step_j B_j x_j^T
 * Every exponent is <= 0, so nothing overflows; G is summed in double, because differences of long float sums would
 * lose slow decays.  C_i . B_j is one product for all heads of a group. */
#include "ptq/layers/mamba_impl.h"

#include <math.h>
#include <string.h>

#include "ptq/base/scope.h"
#include "ptq/base/threads.h"
#include "ptq/tensor/linalg.h"
#include "ptq/tensor/vector.h"

/* exp of this is 0 in float32; a finite number keeps differences of sums finite. */
#define LEAST_DECAY (-1000.0)

typedef struct scan_task {
    const calm_mamba_shape *shape;
    const calm_mamba_rows *rows;
    size_t chunk, n_chunks;
    float *products;    /* [n_groups, n_chunks, chunk, chunk]: C_i . B_j */
    float *out, *norms, *states, *memory;
} scan_task;

/* Buffers of a head for chunks of C tokens. */
typedef struct room {
    float *mixed;     /* [C, C]: products with decays and steps, masked */
    float *fading;    /* [C]: exp(G_i - G_j) step_j of a token i               */
    float *faded;     /* [C, state_dim]: exp(G_n - G_j) step_j B_j             */
    float *seen;      /* [C, head_dim]: S^T B, decayed */
    double *log;      /* [C]: G_i                                              */
    float *memory;    /* [state_dim, head_dim]: S                              */
} room;

/* One chunk of tokens of one head. */
typedef struct piece {
    const scan_task *task;
    const room *room;
    size_t head, begin, n;    /* head; first token, number of tokens */
} piece;

static calm_status room_new(calm_ctx *ctx, const scan_task *task, size_t head, room *r)
{
    const calm_mamba_shape *shape = task->shape;
    const size_t size = shape->state_dim * shape->head_dim;
    const size_t c = calm_size_min(task->rows->n_tokens, task->chunk);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, r->mixed, c * c));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, r->fading, c));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, r->faded, c * shape->state_dim));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, r->seen, c * shape->head_dim));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, r->log, c));
    r->memory = task->memory ? task->memory + head * size : NULL;
    return r->memory ? CALM_OK : CALM_NEW(ctx, ctx->scratch, r->memory, size);
}

size_t calm_mamba_head_bytes(const calm_mamba_shape *shape, size_t n_tokens, size_t chunk)
{
    const size_t c = calm_size_min(n_tokens, chunk);
    return CALM_BYTES(float, c * c) + CALM_BYTES(float, c) + CALM_BYTES(float, c * shape->state_dim)
           + CALM_BYTES(float, c * shape->head_dim) + CALM_BYTES(double, c)
           + CALM_BYTES(float, shape->state_dim * shape->head_dim);
}

/* ---- where a chunk's rows are ---- */

static size_t group_of(const piece *p)
{
    return p->head / (p->task->shape->n_heads / p->task->shape->n_groups);
}

/* Returns the rows of B, or of C, of the head's group. */
static const float *group_rows(const piece *p, const float *all)
{
    return all + p->begin * p->task->rows->stride + group_of(p) * p->task->shape->state_dim;
}

static const float *x_rows(const piece *p)
{
    return p->task->rows->x + p->begin * p->task->rows->stride + p->head * p->task->shape->head_dim;
}

static float *out_rows(const piece *p)
{
    return p->task->out + (p->begin * p->task->shape->n_heads + p->head) * p->task->shape->head_dim;
}

/* Returns the index of token i in step, decay and norms. */
static size_t gate_at(const piece *p, size_t i)
{
    return (p->begin + i) * p->task->shape->n_heads + p->head;
}

/* Returns the offset of the products of a chunk of a group. */
static size_t products_at(const scan_task *task, size_t group, size_t begin)
{
    return (group * task->n_chunks + begin / task->chunk) * task->chunk * task->chunk;
}

/* ---- a chunk ---- */

void calm_mamba_sum_decays(const calm_mamba_shape *shape, const calm_mamba_rows *rows, size_t head, size_t begin,
                           size_t n, double *log)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        const double g = (double)rows->decay[(begin + i) * shape->n_heads + head];
        sum += g < LEAST_DECAY ? LEAST_DECAY : g;
        log[i] = sum;
    }
}

/* Computes row i of `mixed`: exp(G_i - G_j) step_j times `products` [n], for tokens j < end.  In place is allowed. */
static void mix_row(const piece *p, const float *products, size_t i, size_t end)
{
    float *row = p->room->mixed + i * p->n, *fading = p->room->fading;
    for (size_t j = 0; j < end; j++)
        fading[j] = (float)(p->room->log[i] - p->room->log[j]);
    calm_vec_exp_sum(end, 0, fading, fading);
    for (size_t j = 0; j < end; j++)
        row[j] = products[j] * fading[j] * p->task->rows->step[gate_at(p, j)];
    /* A token does not read what later tokens write. */
    memset(row + end, 0, (p->n - end) * sizeof *row);
}

/* Computes y of the chunk. */
static void read_chunk(const piece *p)
{
    const calm_mamba_shape *shape = p->task->shape;
    const size_t d = shape->head_dim, width = shape->n_heads * d, stride = p->task->rows->stride;
    const float *products = p->task->products + products_at(p->task, group_of(p), p->begin);
    float *out = out_rows(p);
    calm_sgemm_nn(p->n, d, shape->state_dim, 1, group_rows(p, p->task->rows->c), stride, p->room->memory, d, 0, out,
                  width);
    for (size_t i = 0; i < p->n; i++) {
        calm_vec_scale(d, (float)exp(p->room->log[i]), out + i * width);
        mix_row(p, products + i * p->task->chunk, i, i + 1);
        p->room->mixed[i * p->n + i] += p->task->rows->skip[p->head];
    }
    calm_sgemm_nn(p->n, d, p->n, 1, p->room->mixed, p->n, x_rows(p), stride, 1, out, width);
}

/* Computes the norms of S after each token, from S before the chunk: |S~ + s B x^T|^2 = |S~|^2 + 2 s (S~^T B) . x + s^2
 * |B|^2 |x|^2. */
static void measure(const piece *p)
{
    const calm_mamba_shape *shape = p->task->shape;
    const size_t d = shape->head_dim, stride = p->task->rows->stride;
    const float *b = group_rows(p, p->task->rows->b), *x = x_rows(p);
    float *seen = p->room->seen;
    double square = calm_vec_dot(shape->state_dim * d, p->room->memory, p->room->memory);
    calm_sgemm_nn(p->n, d, shape->state_dim, 1, b, stride, p->room->memory, d, 0, seen, d);
    calm_sgemm_nt(p->n, p->n, shape->state_dim, 1, b, stride, b, stride, 0, p->room->mixed, p->n);
    for (size_t i = 0; i < p->n; i++) {
        calm_vec_scale(d, (float)exp(p->room->log[i]), seen + i * d);
        mix_row(p, p->room->mixed + i * p->n, i, i);
    }
    calm_sgemm_nn(p->n, d, p->n, 1, p->room->mixed, p->n, x, stride, 1, seen, d);
    for (size_t i = 0; i < p->n; i++) {
        const double g = p->room->log[i] - (i ? p->room->log[i - 1] : 0);
        const double step = (double)p->task->rows->step[gate_at(p, i)];
        const float *b_i = b + i * stride, *x_i = x + i * stride;
        square = square * exp(2 * g) + 2 * step * calm_vec_dot(d, seen + i * d, x_i)
                 + step * step * calm_vec_dot(shape->state_dim, b_i, b_i) * calm_vec_dot(d, x_i, x_i);
        p->task->norms[gate_at(p, i)] = (float)sqrt(square > 0 ? square : 0);
    }
}

/* Computes S after the chunk, in place. */
static void write_memory(const piece *p)
{
    const calm_mamba_shape *shape = p->task->shape;
    const room *r = p->room;
    const size_t d = shape->state_dim, stride = p->task->rows->stride;
    const float *b = group_rows(p, p->task->rows->b);
    for (size_t i = 0; i < p->n; i++) {
        const double fade = exp(r->log[p->n - 1] - r->log[i]);
        memcpy(r->faded + i * d, b + i * stride, d * sizeof *b);
        calm_vec_scale(d, (float)(fade * (double)p->task->rows->step[gate_at(p, i)]), r->faded + i * d);
    }
    calm_vec_scale(d * shape->head_dim, (float)exp(r->log[p->n - 1]), r->memory);
    calm_sgemm_tn(d, shape->head_dim, p->n, 1, r->faded, d, x_rows(p), stride, 1, r->memory, shape->head_dim);
}

/* ---- all chunks and heads ---- */

/* Computes the products of one chunk of one group. */
static void run_products(size_t index, void *user)
{
    const scan_task *task = user;
    const calm_mamba_rows *rows = task->rows;
    const size_t group = index / task->n_chunks, begin = index % task->n_chunks * task->chunk;
    const size_t n = calm_size_min(task->chunk, rows->n_tokens - begin), d = task->shape->state_dim;
    const size_t from = begin * rows->stride + group * d, to = products_at(task, group, begin);
    calm_sgemm_nt(n, n, d, 1, rows->c + from, rows->stride, rows->b + from, rows->stride, 0, task->products + to,
                  task->chunk);
}

/* Runs all tokens of one head. */
static calm_status run_head(calm_ctx *ctx, size_t head, void *user)
{
    const scan_task *task = user;
    const size_t n_state = task->shape->state_dim * task->shape->head_dim;
    room r;
    CALM_TRY(room_new(ctx, task, head, &r));
    for (size_t begin = 0; begin < task->rows->n_tokens; begin += task->chunk) {
        const piece p = {task, &r, head, begin, calm_size_min(task->chunk, task->rows->n_tokens - begin)};
        if (task->states)
            memcpy(task->states + (begin / task->chunk * task->shape->n_heads + head) * n_state, r.memory,
                   n_state * sizeof *r.memory);
        calm_mamba_sum_decays(task->shape, task->rows, head, begin, p.n, r.log);
        read_chunk(&p);
        if (task->norms)
            measure(&p);
        write_memory(&p);
    }
    return CALM_OK;
}

/* Returns the tokens of a chunk, at most those of the window, and the number of chunks. */
static size_t cut(size_t n_tokens, size_t chunk, size_t *n_chunks)
{
    const size_t c = calm_size_min(chunk, n_tokens);
    *n_chunks = c ? (n_tokens + c - 1) / c : 0;
    return c;
}

size_t calm_mamba_states(const calm_mamba_shape *shape, size_t n_tokens, size_t chunk)
{
    size_t n_chunks;
    cut(n_tokens, chunk, &n_chunks);
    return n_chunks * shape->n_heads * shape->state_dim * shape->head_dim;
}

size_t calm_mamba_scan_bytes(const calm_mamba_shape *shape, size_t n_tokens, size_t chunk)
{
    size_t n_chunks;
    const size_t c = cut(n_tokens, chunk, &n_chunks);
    return CALM_BYTES(float, shape->n_groups * n_chunks * c * c);
}

size_t calm_mamba_memory(const calm_mamba_shape *shape)
{
    return shape->n_heads * shape->state_dim * shape->head_dim;
}

calm_status calm_mamba_scan(calm_ctx *ctx, const calm_mamba_shape *shape, const calm_mamba_rows *rows, size_t chunk,
                            float *out, float *norms, float *states, float *memory)
{
    scan_task task = {.shape = shape, .rows = rows, .out = out, .norms = norms, .states = states, .memory = memory};
    CALM_SCOPED_SCRATCH(ctx);
    task.chunk = cut(rows->n_tokens, chunk, &task.n_chunks);
    const size_t n = shape->n_groups * task.n_chunks;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, task.products, n * task.chunk * task.chunk));
    calm_parallel_each(ctx, n, run_products, &task);
    return calm_parallel_for(ctx, shape->n_heads, run_head, &task);
}

/* ---- steps and norm, row by row ---- */

typedef struct rows_task {
    const calm_mamba_shape *shape;
    size_t n_heads, stride;
    const float *raw, *w, *bias;    /* steps: A_log, dt_bias; norm: its weight */
    calm_mamba_limits limits;
    float eps, *a, *b;              /* steps: step, decay; norm: z, y          */
} rows_task;

/* In double, since a decay acts to the power of thousands of tokens. */
static void step_rows(size_t first, size_t n, void *user)
{
    const rows_task *task = user;
    for (size_t t = first; t < first + n; t++)
        for (size_t head = 0; head < task->n_heads; head++) {
            const double x = (double)task->raw[t * task->stride + head] + (double)task->bias[head];
            /* log(1 + exp(x)) without overflow. */
            const double softplus = (x > 0 ? x : 0) + log1p(exp(-fabs(x)));
            const double step = fmin(fmax(softplus, (double)task->limits.least), (double)task->limits.most);
            task->a[t * task->n_heads + head] = (float)step;
            task->b[t * task->n_heads + head] = (float)(-exp((double)task->w[head]) * step);
        }
}

void calm_mamba_steps(calm_ctx *ctx, size_t n_tokens, size_t n_heads, const float *raw, size_t stride,
                      const float *a_log, const float *dt_bias, calm_mamba_limits limits, float *step,
                      float *decay)
{
    rows_task task = {.n_heads = n_heads, .stride = stride, .raw = raw, .w = a_log, .bias = dt_bias,
                      .limits = limits, .a = step, .b = decay};
    calm_parallel_each_rows(ctx, n_tokens, step_rows, &task);
}

/* Each group is normalised separately, with its own weights. */
static void norm_rows(size_t first, size_t n, void *user)
{
    const rows_task *task = user;
    const size_t width = task->shape->n_heads * task->shape->head_dim, group = width / task->shape->n_groups;
    for (size_t t = first; t < first + n; t++) {
        float *z = task->a + t * task->stride, *y = task->b + t * width;
        calm_vec_silu_mul(width, z, y);
        for (size_t at = 0; at < width; at += group)
            calm_vec_rmsnorm(group, z + at, task->w + at, task->eps, y + at);
    }
}

void calm_mamba_norm(calm_ctx *ctx, const calm_mamba_shape *shape, size_t n_tokens, const float *w, float eps,
                     float *z, size_t stride, float *y)
{
    rows_task task = {.shape = shape, .stride = stride, .w = w, .eps = eps, .a = z, .b = y};
    calm_parallel_each_rows(ctx, n_tokens, norm_rows, &task);
}
