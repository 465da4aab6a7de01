/* The gated delta rule in chunks of n tokens, so that nearly all of its work is in products of matrices.
 *
 * With G_i = g_1 + .. + g_i within the chunk and S the memory before it, the recurrence for all tokens of the chunk is
 *   u_i + sum_{j<i} beta_i exp(G_i - G_j) (k_i . k_j) u_j = beta_i (v_i - exp(G_i) S^T k_i)
 *   o_i = exp(G_i) S^T q_i + sum_{j<=i} exp(G_i - G_j) (q_i . k_j) u_j
 *   S'  = exp(G_n) S + sum_j exp(G_n - G_j) k_j u_j^T
 * a triangular system for u, solved forwards.  Every exponent is <= 0, so nothing overflows; G is summed in double,
 * because differences of long float sums would lose slow decays. */
#include "ptq/layers/delta_impl.h"

#include <math.h>
#include <string.h>

#include "ptq/base/threads.h"
#include "ptq/tensor/linalg.h"
#include "ptq/tensor/vector.h"

/* Rows of the triangular system between two products: from about here on a BLAS call pays off. */
#define SOLVE_ROWS ((size_t)16)

/* Added to the sum of squares of q and k, in all families. */
#define LENGTH_EPS 1e-6

/* exp of this is 0 in float32; a finite number keeps differences of sums finite. */
#define LEAST_DECAY (-1000.0)

typedef struct delta_task {
    const calm_delta_shape *shape;
    const calm_delta_rows *rows;
    size_t chunk;
    float *out, *norms, *states, *memory;
} delta_task;

/* ---- buffers ---- */

calm_status calm_delta_room_new(calm_ctx *ctx, const calm_delta_shape *shape, size_t c, float *memory,
                                calm_delta_buffers *r)
{
    const size_t group = shape->n_value_heads / shape->n_key_heads;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, r->kq, 2 * c * shape->key_dim));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, r->products, 2 * c * c));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, r->mixed, 2 * c * c));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, r->fading, c * c));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, r->seen, 2 * c * shape->value_dim));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, r->faded, c * shape->key_dim));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, r->log, c));
    r->memory = memory;
    return memory ? CALM_OK : CALM_NEW(ctx, ctx->scratch, r->memory, group * shape->key_dim * shape->value_dim);
}

size_t calm_delta_room_bytes(const calm_delta_shape *shape, size_t c)
{
    const size_t group = shape->n_value_heads / shape->n_key_heads;
    return CALM_BYTES(float, 2 * c * shape->key_dim) + 2 * CALM_BYTES(float, 2 * c * c) + CALM_BYTES(float, c * c)
           + CALM_BYTES(float, 2 * c * shape->value_dim) + CALM_BYTES(float, c * shape->key_dim)
           + CALM_BYTES(double, c) + CALM_BYTES(float, group * shape->key_dim * shape->value_dim);
}

size_t calm_delta_rule_bytes(const calm_delta_shape *shape, size_t n_tokens, size_t chunk)
{
    return calm_delta_room_bytes(shape, calm_size_min(n_tokens, chunk));
}

/* ---- a chunk ---- */

double calm_delta_length(size_t d, const float *x)
{
    return sqrt(calm_vec_dot(d, x, x) + LENGTH_EPS);
}

/* Normalises rows x [n, stride] of one head to length `length`, into out [n, d]. */
static void normalise(const float *x, size_t stride, size_t n, size_t d, double length, float *out)
{
    for (size_t i = 0; i < n; i++) {
        memcpy(out + i * d, x + i * stride, d * sizeof *out);
        calm_vec_scale(d, (float)(length / calm_delta_length(d, x + i * stride)), out + i * d);
    }
}

void calm_delta_chunk_begin(const calm_delta_shape *shape, const calm_delta_rows *rows, size_t key_head, size_t begin,
                            size_t n, const calm_delta_buffers *r)
{
    const size_t d = shape->key_dim, at = begin * rows->stride + key_head * d;
    normalise(rows->k + at, rows->stride, n, d, 1, r->kq);
    normalise(rows->q + at, rows->stride, n, d, 1 / sqrt((double)d), r->kq + n * d);
    calm_sgemm_nt(2 * n, n, d, 1, r->kq, d, r->kq, d, 0, r->products, n);
}

const float *calm_delta_value_row(const calm_delta_piece *p, size_t i)
{
    return p->rows->v + (p->begin + i) * p->rows->stride + p->head * p->shape->value_dim;
}

/* Returns o of token i of the piece. */
static float *out_row(const calm_delta_piece *p, float *out, size_t i)
{
    return out + ((p->begin + i) * p->shape->n_value_heads + p->head) * p->shape->value_dim;
}

size_t calm_delta_gate_at(const calm_delta_piece *p, size_t i)
{
    return (p->begin + i) * p->shape->n_value_heads + p->head;
}

/* Computes G, in double. */
static void sum_decays(const calm_delta_piece *p)
{
    double sum = 0;
    for (size_t i = 0; i < p->n; i++) {
        const double g = (double)p->rows->decay[calm_delta_gate_at(p, i)];
        sum += g < LEAST_DECAY ? LEAST_DECAY : g;
        p->room->log[i] = sum;
    }
}

/* Computes row i of both halves of `mixed`. */
static void mix_row(const calm_delta_piece *p, size_t i)
{
    const calm_delta_buffers *r = p->room;
    float *system = r->mixed + i * p->n, *reads = r->mixed + (p->n + i) * p->n, *fading = r->fading + i * p->n;
    for (size_t j = 0; j <= i; j++)
        fading[j] = (float)(r->log[i] - r->log[j]);
    calm_vec_exp_sum(i + 1, 0, fading, fading);
    memcpy(system, r->products + i * p->n, i * sizeof *system);
    memcpy(reads, r->products + (p->n + i) * p->n, (i + 1) * sizeof *reads);
    calm_vec_mul(i, fading, system);
    calm_vec_scale(i, p->rows->beta[calm_delta_gate_at(p, i)], system);
    calm_vec_mul(i + 1, fading, reads);
    /* A token does not read what later tokens write. */
    memset(reads + i + 1, 0, (p->n - i - 1) * sizeof *reads);
}

void calm_delta_mix(const calm_delta_piece *p)
{
    sum_decays(p);
    for (size_t i = 0; i < p->n; i++)
        mix_row(p, i);
}

void calm_delta_right_side(const calm_delta_piece *p, float *u)
{
    const size_t d = p->shape->value_dim;
    for (size_t i = 0; i < p->n; i++) {
        calm_vec_scale(d, -(float)exp(p->room->log[i]), u + i * d);
        calm_vec_add(d, calm_delta_value_row(p, i), u + i * d);
        calm_vec_scale(d, p->rows->beta[calm_delta_gate_at(p, i)], u + i * d);
    }
}

/* Solves the triangular system, whose diagonal is 1: blocks of rows by a product, rows in a block one by one. */
void calm_delta_solve(const calm_delta_piece *p, float *u)
{
    const size_t d = p->shape->value_dim, n = p->n;
    const float *system = p->room->mixed;
    for (size_t first = 0; first < n; first += SOLVE_ROWS) {
        const size_t end = calm_size_min(first + SOLVE_ROWS, n);
        if (first)
            calm_sgemm_nn(end - first, d, first, -1, system + first * n, n, u, d, 1, u + first * d, d);
        for (size_t i = first + 1; i < end; i++)
            for (size_t j = first; j < i; j++)
                calm_vec_axpy(d, -system[i * n + j], u + j * d, u + i * d);
    }
}

/* Reads the old memory: S^T k into the first half of `seen`, which becomes u; the decayed S^T q into `out`. */
static void read_memory(const calm_delta_piece *p, float *out)
{
    const size_t d = p->shape->value_dim;
    float *seen = p->room->seen;
    calm_sgemm_nn(2 * p->n, d, p->shape->key_dim, 1, p->room->kq, p->shape->key_dim, p->memory, d, 0, seen, d);
    for (size_t i = 0; i < p->n; i++) {
        memcpy(out_row(p, out, i), seen + (p->n + i) * d, d * sizeof *seen);
        calm_vec_scale(d, (float)exp(p->room->log[i]), out_row(p, out, i));
    }
}

void calm_delta_fade_keys(const calm_delta_piece *p)
{
    const calm_delta_buffers *r = p->room;
    const size_t d = p->shape->key_dim;
    memcpy(r->faded, r->kq, p->n * d * sizeof *r->faded);
    for (size_t i = 0; i < p->n; i++)
        calm_vec_scale(d, (float)exp(r->log[p->n - 1] - r->log[i]), r->faded + i * d);
}

/* Computes S after the chunk, in place. */
static void write_memory(const calm_delta_piece *p)
{
    const calm_delta_shape *shape = p->shape;
    const calm_delta_buffers *r = p->room;
    calm_delta_fade_keys(p);
    calm_vec_scale(shape->key_dim * shape->value_dim, (float)exp(r->log[p->n - 1]), p->memory);
    calm_sgemm_tn(shape->key_dim, shape->value_dim, p->n, 1, r->faded, shape->key_dim, r->seen, shape->value_dim, 1,
                  p->memory, shape->value_dim);
}

/* Computes the norms of S after each token from `square`, the squared norm before the chunk: |S~ + k u^T|^2 = |S~|^2 +
 * 2 (S~^T k) . u + |k|^2 |u|^2, where S~^T k = v - u / beta. */
static void measure(const calm_delta_piece *p, double square, float *norms)
{
    const size_t d_k = p->shape->key_dim, d = p->shape->value_dim;
    for (size_t i = 0; i < p->n; i++) {
        const double g = p->room->log[i] - (i ? p->room->log[i - 1] : 0);
        const double beta = (double)p->rows->beta[calm_delta_gate_at(p, i)];
        const float *k = p->room->kq + i * d_k, *u = p->room->seen + i * d;
        const double written = calm_vec_dot(d, u, u);
        square *= exp(2 * g);
        /* With beta 0 nothing is written, and u is 0. */
        if (beta > 0)
            square += 2 * (calm_vec_dot(d, calm_delta_value_row(p, i), u) - written / beta)
                      + calm_vec_dot(d_k, k, k) * written;
        norms[calm_delta_gate_at(p, i)] = (float)sqrt(square > 0 ? square : 0);
    }
}

/* Runs a chunk of one value head, and leaves its memory for the next chunk. */
static void run_piece(const delta_task *task, const calm_delta_piece *p)
{
    const calm_delta_shape *shape = p->shape;
    const size_t d = shape->value_dim, size = shape->key_dim * d, n = p->n;
    float *u = p->room->seen;
    if (task->states)
        memcpy(task->states + calm_delta_state_at(p, task->chunk), p->memory, size * sizeof *p->memory);
    calm_delta_mix(p);
    read_memory(p, task->out);
    calm_delta_right_side(p, u);
    calm_delta_solve(p, u);
    calm_sgemm_nn(n, d, n, 1, p->room->mixed + n * n, n, u, d, 1, out_row(p, task->out, 0), shape->n_value_heads * d);
    if (task->norms)
        measure(p, calm_vec_dot(size, p->memory, p->memory), task->norms);
    write_memory(p);
}

/* Runs all tokens of one key head and of the value heads that it serves, which share the products of its keys. */
static calm_status run_key_head(calm_ctx *ctx, size_t index, void *user)
{
    const delta_task *task = user;
    const calm_delta_shape *shape = task->shape;
    const calm_delta_rows *rows = task->rows;
    const size_t group = shape->n_value_heads / shape->n_key_heads, size = shape->key_dim * shape->value_dim;
    calm_delta_buffers r;
    CALM_TRY(calm_delta_room_new(ctx, shape, calm_size_min(rows->n_tokens, task->chunk),
                                 task->memory ? task->memory + index * group * size : NULL, &r));
    for (size_t begin = 0; begin < rows->n_tokens; begin += task->chunk) {
        const size_t n = calm_size_min(task->chunk, rows->n_tokens - begin);
        calm_delta_chunk_begin(shape, rows, index, begin, n, &r);
        for (size_t i = 0; i < group; i++)
            run_piece(task, &(calm_delta_piece){shape, rows, &r, begin, n, index * group + i, r.memory + i * size});
    }
    return CALM_OK;
}

size_t calm_delta_state_at(const calm_delta_piece *p, size_t chunk)
{
    const size_t n_chunks = (p->rows->n_tokens + chunk - 1) / chunk;
    return (p->head * n_chunks + p->begin / chunk) * p->shape->key_dim * p->shape->value_dim;
}

size_t calm_delta_states(const calm_delta_shape *shape, size_t n_tokens, size_t chunk)
{
    return shape->n_value_heads * ((n_tokens + chunk - 1) / chunk) * shape->key_dim * shape->value_dim;
}

size_t calm_delta_memory(const calm_delta_shape *shape)
{
    return shape->n_value_heads * shape->key_dim * shape->value_dim;
}

calm_status calm_delta_rule(calm_ctx *ctx, const calm_delta_shape *shape, const calm_delta_rows *rows, size_t chunk,
                            float *out, float *norms, float *states, float *memory)
{
    delta_task task = {shape, rows, chunk, out, norms, states, memory};
    return calm_parallel_for(ctx, shape->n_key_heads, run_key_head, &task);
}

/* ---- gates and norm, row by row ---- */

typedef struct rows_task {
    size_t n_heads, width;
    const float *w, *bias; /* gates: A_log, dt_bias; norm: its weight */
    float eps, *a, *b;     /* gates: decay, beta; norm: o, z          */
} rows_task;

/* In double, since a decay acts to the power of thousands of tokens. */
static void gate_rows(size_t first, size_t n, void *user)
{
    const rows_task *task = user;
    for (size_t i = first * task->n_heads; i < (first + n) * task->n_heads; i++) {
        const size_t head = i % task->n_heads;
        const double x = (double)task->a[i] + (double)task->bias[head];
        /* log(1 + exp(x)) without overflow. */
        const double softplus = (x > 0 ? x : 0) + log1p(exp(-fabs(x)));
        task->a[i] = (float)(-exp((double)task->w[head]) * softplus);
        task->b[i] = (float)(1 / (1 + exp(-(double)task->b[i])));
    }
}

void calm_delta_gates(calm_ctx *ctx, size_t n_tokens, size_t n_heads, const float *a_log, const float *dt_bias,
                      float *decay, float *beta)
{
    rows_task task = {.n_heads = n_heads, .w = a_log, .bias = dt_bias, .a = decay, .b = beta};
    calm_parallel_each_rows(ctx, n_tokens, gate_rows, &task);
}

/* All heads share the weights. */
static void norm_rows(size_t first, size_t n, void *user)
{
    const rows_task *task = user;
    for (size_t i = first * task->n_heads; i < (first + n) * task->n_heads; i++) {
        float *o = task->a + i * task->width;
        calm_vec_rmsnorm(task->width, o, task->w, task->eps, o);
        calm_vec_silu_mul(task->width, task->b + i * task->width, o);
    }
}

void calm_delta_norm(calm_ctx *ctx, const calm_delta_shape *shape, size_t n_tokens, const float *w, float eps,
                     float *o, float *z)
{
    rows_task task = {
        .n_heads = shape->n_value_heads, .width = shape->value_dim, .w = w, .eps = eps, .a = o, .b = z};
    calm_parallel_each_rows(ctx, n_tokens, norm_rows, &task);
}
