/* Backward pass of the gated delta rule, chunk by chunk from the last one, by the formulas of delta.c.
 *
 * With W_ij = exp(G_i - G_j), L_ij = beta_i W_ij (k_i . k_j), A_ij = W_ij (q_i . k_j) and S' the memory after the
 * chunk:
 *   du  = A^T do + (exp(G_n - G) k) dS'          r = (1 + L)^-T du, the gradient of the right side
 *   dA  = do u^T, j <= i                         dL = -r u^T, j < i
 *   dv  = beta r                                 dS = exp(G_n) dS' + (exp(G) q)^T do - (beta exp(G) k)^T r
 * and S, A, L and the decayed keys add to the gradients of q, k, beta and G.  S before each chunk was kept; the rest is
 * recomputed. */
#include "ptq/layers/delta_back.h"

#include <math.h>
#include <string.h>

#include "ptq/base/scope.h"
#include "ptq/base/threads.h"
#include "ptq/layers/delta_impl.h"
#include "ptq/tensor/linalg.h"
#include "ptq/tensor/vector.h"

typedef struct back_task {
    const calm_delta_shape *shape;
    const calm_delta_rows *rows;
    size_t chunk;
    const float *states, *dout;
    const calm_delta_grads *grads;
} back_task;

/* Buffers of a key head in addition to a calm_delta_buffers, whose `memory` holds dS. */
typedef struct back_room {
    calm_delta_buffers forward;
    float *u;         /* [C, d_v]                                                        */
    float *dseen;     /* [2 C, d_v]: gradient of S^T k, with du and r in between; of S^T q: do */
    float *dpairs;    /* [2 C, C]: dL and dA, then of k . k and q . k                     */
    float *dkq;       /* [2 C, d_k]: of the normalised k, then q */
    float *dfaded;    /* [C, d_k]                                                         */
    double *dlog;     /* [C]: gradient of G */
    double *dbeta;    /* [C]                                                              */
} back_room;

/* ---- buffers ---- */

/* Allocates the buffers of one worker. */
static calm_status new_room(calm_ctx *ctx, const calm_delta_shape *shape, size_t c, back_room *r)
{
    CALM_TRY(calm_delta_room_new(ctx, shape, c, NULL, &r->forward));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, r->u, c * shape->value_dim));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, r->dseen, 2 * c * shape->value_dim));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, r->dpairs, 2 * c * c));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, r->dkq, 2 * c * shape->key_dim));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, r->dfaded, c * shape->key_dim));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, r->dlog, c));
    return CALM_NEW_RAW(ctx, ctx->scratch, r->dbeta, c);
}

size_t calm_delta_rule_back_bytes(const calm_delta_shape *shape, size_t n_tokens, size_t chunk)
{
    const size_t c = calm_size_min(n_tokens, chunk);
    return calm_delta_room_bytes(shape, c) + CALM_BYTES(float, c * shape->value_dim)
           + CALM_BYTES(float, 2 * c * shape->value_dim) + CALM_BYTES(float, 2 * c * c)
           + CALM_BYTES(float, 2 * c * shape->key_dim) + CALM_BYTES(float, c * shape->key_dim)
           + 2 * CALM_BYTES(double, c);
}

/* ---- one chunk of one value head ---- */

/* Recomputes u, and S^T k and S^T q in `seen`. */
static void forward_again(const calm_delta_piece *p, const back_room *r, const float *state)
{
    const size_t d = p->shape->value_dim, d_k = p->shape->key_dim;
    calm_delta_mix(p);
    calm_sgemm_nn(2 * p->n, d, d_k, 1, r->forward.kq, d_k, state, d, 0, r->forward.seen, d);
    memcpy(r->u, r->forward.seen, p->n * d * sizeof *r->u);
    calm_delta_right_side(p, r->u);
    calm_delta_solve(p, r->u);
}

/* Backward of S' = exp(G_n) S + faded^T u: starts du, and turns dS' into its part of dS. */
static void memory_back(const calm_delta_piece *p, const back_room *r, const float *state, float *du)
{
    const size_t d = p->shape->value_dim, d_k = p->shape->key_dim, n = p->n;
    const double last = exp(r->forward.log[n - 1]);
    float *dstate = p->memory;
    calm_delta_fade_keys(p);
    calm_sgemm_nn(n, d, d_k, 1, r->forward.faded, d_k, dstate, d, 0, du, d);
    calm_sgemm_nt(n, d_k, d, 1, r->u, d, dstate, d, 0, r->dfaded, d_k);
    r->dlog[n - 1] += last * calm_vec_dot(d_k * d, state, dstate);
    for (size_t i = 0; i < n; i++) {
        const double dot = calm_vec_dot(d_k, r->dfaded + i * d_k, r->forward.faded + i * d_k);
        r->dlog[n - 1] += dot;
        r->dlog[i] -= dot;
        calm_vec_axpy(d_k, (float)exp(r->forward.log[n - 1] - r->forward.log[i]), r->dfaded + i * d_k,
                      r->dkq + i * d_k);
    }
    calm_vec_scale(d_k * d, (float)last, dstate);
}

/* Turns du into the gradient of the right side: solves the transposed system, from the last row. */
static void solve_back(const calm_delta_piece *p, float *du)
{
    const size_t d = p->shape->value_dim;
    for (size_t i = p->n; i-- > 1;)
        for (size_t j = 0; j < i; j++)
            calm_vec_axpy(d, -p->room->mixed[i * p->n + j], du + i * d, du + j * d);
}

/* Backward of the right side beta (v - exp(G) S^T k), r [n, d_v]: dv, dbeta, and in place the gradient of S^T k. */
static void right_side_back(const calm_delta_piece *p, const back_room *r, float *right, float *dv, size_t stride)
{
    const size_t d = p->shape->value_dim;
    for (size_t i = 0; i < p->n; i++) {
        const double beta = (double)p->rows->beta[calm_delta_gate_at(p, i)], fade = exp(r->forward.log[i]);
        const double with_seen = fade * calm_vec_dot(d, right + i * d, r->forward.seen + i * d);
        r->dbeta[i] += calm_vec_dot(d, right + i * d, calm_delta_value_row(p, i)) - with_seen;
        r->dlog[i] -= beta * with_seen;
        memcpy(dv + i * stride, right + i * d, d * sizeof *dv);
        calm_vec_scale(d, (float)beta, dv + i * stride);
        calm_vec_scale(d, (float)(-beta * fade), right + i * d);
    }
}

/* Turns dL and dA into the gradients of the products k . k and q . k, in place. */
static void pairs_back(const calm_delta_piece *p, const back_room *r)
{
    const size_t n = p->n;
    for (size_t i = 0; i < n; i++) {
        const float beta = p->rows->beta[calm_delta_gate_at(p, i)], *fading = r->forward.fading + i * n;
        float *dsystem = r->dpairs + i * n, *dreads = r->dpairs + (n + i) * n;
        for (size_t j = 0; j <= i; j++) {
            const double reads = (double)dreads[j] * (double)r->forward.mixed[(n + i) * n + j];
            const double system = j < i ? (double)dsystem[j] * (double)r->forward.mixed[i * n + j] : 0;
            r->dlog[i] += reads + system;
            r->dlog[j] -= reads + system;
            if (j < i)
                r->dbeta[i] += (double)dsystem[j] * (double)fading[j] * (double)r->forward.products[i * n + j];
        }
        calm_vec_mul(i, fading, dsystem);
        calm_vec_scale(i, beta, dsystem);
        calm_vec_mul(i + 1, fading, dreads);
        /* Zeros of the forward pass have no gradient. */
        memset(dsystem + i, 0, (n - i) * sizeof *dsystem);
        memset(dreads + i + 1, 0, (n - i - 1) * sizeof *dreads);
    }
}

/* Copies do of the piece to the second half of dseen, contiguously. */
static float *gather_dout(const calm_delta_piece *p, const back_room *r, const float *dout)
{
    const size_t d = p->shape->value_dim;
    float *to = r->dseen + p->n * d;
    for (size_t i = 0; i < p->n; i++)
        memcpy(to + i * d, dout + calm_delta_gate_at(p, i) * d, d * sizeof *to);
    return to;
}

/* Writes dbeta and ddecay; since G_i is g_1 + .. + g_i, the gradient of g_i sums those of later G. */
static void write_gates(const calm_delta_piece *p, const back_room *r, const calm_delta_grads *grads)
{
    double sum = 0;
    for (size_t i = p->n; i-- > 0;) {
        sum += r->dlog[i];
        grads->decay[calm_delta_gate_at(p, i)] = (float)sum;
        grads->beta[calm_delta_gate_at(p, i)] = (float)r->dbeta[i];
    }
}

/* Backward of a chunk of one value head: p->memory is dS after it, and becomes dS before it. */
static void piece_back(const back_task *task, const calm_delta_piece *p, const back_room *r)
{
    const size_t d = p->shape->value_dim, d_k = p->shape->key_dim, n = p->n, stride = p->rows->stride;
    const float *state = task->states + calm_delta_state_at(p, task->chunk);
    float *du = r->dseen, *dout = gather_dout(p, r, task->dout);
    memset(r->dlog, 0, n * sizeof *r->dlog);
    memset(r->dbeta, 0, n * sizeof *r->dbeta);
    forward_again(p, r, state);
    memory_back(p, r, state, du);
    calm_sgemm_tn(n, d, n, 1, r->forward.mixed + n * n, n, dout, d, 1, du, d);
    calm_sgemm_nt(n, n, d, 1, dout, d, r->u, d, 0, r->dpairs + n * n, n);
    for (size_t i = 0; i < n; i++) {
        const double fade = exp(r->forward.log[i]);
        r->dlog[i] += fade * calm_vec_dot(d, dout + i * d, r->forward.seen + (n + i) * d);
        calm_vec_scale(d, (float)fade, dout + i * d);
    }
    solve_back(p, du);
    calm_sgemm_nt(n, n, d, -1, du, d, r->u, d, 0, r->dpairs, n);
    right_side_back(p, r, du, task->grads->v + p->begin * stride + p->head * d, stride);
    /* Both halves at once: gradients of S^T k and S^T q. */
    calm_sgemm_nt(2 * n, d_k, d, 1, r->dseen, d, state, d, 1, r->dkq, d_k);
    calm_sgemm_tn(d_k, d, 2 * n, 1, r->forward.kq, d_k, r->dseen, d, 1, p->memory, d);
    pairs_back(p, r);
    calm_sgemm_nn(2 * n, d_k, n, 1, r->dpairs, n, r->forward.kq, d_k, 1, r->dkq, d_k);
    calm_sgemm_tn(n, d_k, 2 * n, 1, r->dpairs, n, r->forward.kq, d_k, 1, r->dkq, d_k);
    write_gates(p, r, task->grads);
}

/* ---- a key head ---- */

/* Computes from the gradient dx^ of x^ = length x / |x|: dx = length / |x| (dx^ - e (e . dx^)), e = x / |x|. */
static void normalise_back(const float *x, size_t stride, size_t n, size_t d, double length, float *dunit, float *dx)
{
    for (size_t i = 0; i < n; i++) {
        const double size = calm_delta_length(d, x + i * stride);
        float *to = dx + i * stride;
        memcpy(to, dunit + i * d, d * sizeof *to);
        calm_vec_axpy(d, (float)(-calm_vec_dot(d, x + i * stride, dunit + i * d) / (size * size)), x + i * stride, to);
        calm_vec_scale(d, (float)(length / size), to);
    }
}

/* Backward of a key head from the last chunk on; dq and dk are sums over its value heads, in order. */
static calm_status back_key_head(calm_ctx *ctx, size_t index, void *user)
{
    const back_task *task = user;
    const calm_delta_shape *shape = task->shape;
    const calm_delta_rows *rows = task->rows;
    const size_t group = shape->n_value_heads / shape->n_key_heads, d = shape->key_dim;
    const size_t n_chunks = (rows->n_tokens + task->chunk - 1) / task->chunk;
    back_room r;
    CALM_TRY(new_room(ctx, shape, calm_size_min(rows->n_tokens, task->chunk), &r));
    for (size_t chunk = n_chunks; chunk-- > 0;) {
        const size_t begin = chunk * task->chunk, n = calm_size_min(task->chunk, rows->n_tokens - begin);
        const size_t at = begin * rows->stride + index * d;
        calm_delta_chunk_begin(shape, rows, index, begin, n, &r.forward);
        memset(r.dkq, 0, 2 * n * d * sizeof *r.dkq);
        for (size_t i = 0; i < group; i++)
            piece_back(task,
                       &(calm_delta_piece){shape, rows, &r.forward, begin, n, index * group + i,
                                           r.forward.memory + i * d * shape->value_dim}, &r);
        normalise_back(rows->k + at, rows->stride, n, d, 1, r.dkq, task->grads->k + at);
        normalise_back(rows->q + at, rows->stride, n, d, 1 / sqrt((double)d), r.dkq + n * d, task->grads->q + at);
    }
    return CALM_OK;
}

calm_status calm_delta_rule_back(calm_ctx *ctx, const calm_delta_shape *shape, const calm_delta_rows *rows,
                                 size_t chunk, const float *states, const float *dout, const calm_delta_grads *grads)
{
    back_task task = {shape, rows, chunk, states, dout, grads};
    return calm_parallel_for(ctx, shape->n_key_heads, back_key_head, &task);
}

/* ---- gates ---- */

void calm_delta_gates_back(size_t n_tokens, size_t n_heads, const float *a_log, const float *decay, const float *beta,
                           float *ddecay, float *dbeta, float *da_log, float *ddt)
{
    for (size_t head = 0; head < n_heads; head++) {
        const double rate = exp((double)a_log[head]);
        double of_log = 0, of_dt = 0;
        for (size_t i = head; i < n_tokens * n_heads; i += n_heads) {
            const double g = (double)decay[i], b = (double)beta[i];
            of_log += (double)ddecay[i] * g;
            /* softplus' = sigmoid = 1 - exp(-softplus), and softplus = -g / rate. */
            ddecay[i] = (float)((double)ddecay[i] * rate * expm1(g / rate));
            of_dt += (double)ddecay[i];
            dbeta[i] = (float)((double)dbeta[i] * b * (1 - b));
        }
        if (da_log)
            da_log[head] += (float)of_log;
        if (ddt)
            ddt[head] += (float)of_dt;
    }
}

/* ---- convolution ---- */

typedef struct convolve_task {
    const calm_convolution *conv;
    const float *taps, *x, *dy;    /* taps [width, n_channels] */
    size_t stride, n_tokens;
    float *dtaps, *dx;
} convolve_task;

/* Computes dx of some tokens from the dy of those tokens and of later ones. */
static void tokens_back(size_t first, size_t n, void *user)
{
    const convolve_task *task = user;
    const size_t width = task->conv->width, channels = task->conv->n_channels;
    for (size_t t = first; t < first + n; t++) {
        float *dx = task->dx + t * task->stride;
        memset(dx, 0, channels * sizeof *dx);
        for (size_t later = 0; later < width && t + later < task->n_tokens; later++)
            calm_vec_mul_add(channels, task->dy + (t + later) * channels, task->taps + (width - 1 - later) * channels,
                             dx);
    }
}

/* Computes the gradient of one tap of all channels, over all tokens in order. */
static void tap_back(size_t j, void *user)
{
    const convolve_task *task = user;
    const size_t channels = task->conv->n_channels, before = task->conv->width - 1 - j;
    float *dtap = task->dtaps + j * channels;
    for (size_t t = before; t < task->n_tokens; t++)
        calm_vec_mul_add(channels, task->dy + t * channels, task->x + (t - before) * task->stride, dtap);
}

calm_status calm_convolution_back(calm_ctx *ctx, const calm_convolution *conv, const float *x, size_t stride,
                                  size_t n_tokens, const float *dy, float *dw, float *dbias, float *dx)
{
    const size_t channels = conv->n_channels, width = conv->width;
    CALM_SCOPED_SCRATCH(ctx);
    float *taps, *dtaps;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, taps, width * channels));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, dtaps, width * channels));
    for (size_t c = 0; c < channels; c++)
        for (size_t j = 0; j < width; j++)
            taps[j * channels + c] = conv->w[c * width + j];
    convolve_task task = {conv, taps, x, dy, stride, n_tokens, dtaps, dx};
    if (dx)
        calm_parallel_each_rows(ctx, n_tokens, tokens_back, &task);
    if (dw)
        calm_parallel_each(ctx, width, tap_back, &task);
    for (size_t c = 0; dw && c < channels; c++)
        for (size_t j = 0; j < width; j++)
            dw[c * width + j] += dtaps[j * channels + c];
    for (size_t t = 0; dbias && t < n_tokens; t++)
        calm_vec_add(channels, dy + t * channels, dbias);
    return CALM_OK;
}
