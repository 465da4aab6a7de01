/* Gradients of the gated delta rule, its gates and the short convolution, against differences of the recurrence in
 * double.  (f(x + e) - f(x - e)) / 2 e is off by e^2 f''' / 6 and by 2^-53 f / e: with e = 1e-5 below 1e-9 of values
 * around 1.  The gradients are float32: sums of some hundred products of values around 1, each rounded by 2^-24,
 * through at most T steps that enlarge no error.  The tolerance, 200 * 2^-24 of the largest one, is ten times that. */
#include "ptq/layers/delta_back.h"

#include "ptq/base/rng.h"
#include "ptq/tensor/linalg.h"
#include "tests/support/harness.h"

#define EPS 0x1p-24
#define STEP 1e-5

/* All parameters of a window, one after the other, in double. */
typedef struct fixture {
    calm_delta_shape shape;
    size_t n_tokens, n_q, n_v, n_gates, n;    /* of q or k; of v; of decay or beta; in all */
    double *x, *dout;
} fixture;

static double *draws(size_t n, uint64_t stream)
{
    double *x;
    ck_ok(CALM_NEW_RAW(ctx, ctx->scratch, x, n));
    for (size_t i = 0; i < n; i++)
        x[i] = calm_rng_normal(9, stream, i);
    return x;
}

static void new_fixture(calm_delta_shape shape, size_t n_tokens, double speed, fixture *f)
{
    *f = (fixture){.shape = shape, .n_tokens = n_tokens, .n_q = n_tokens * shape.n_key_heads * shape.key_dim,
                   .n_v = n_tokens * shape.n_value_heads * shape.value_dim, .n_gates = n_tokens * shape.n_value_heads};
    f->n = 2 * f->n_q + f->n_v + 2 * f->n_gates;
    f->x = draws(f->n, 1);
    f->dout = draws(f->n_v, 2);
    double *decay = f->x + 2 * f->n_q + f->n_v;
    for (size_t i = 0; i < f->n_gates; i++) {
        decay[i] = -fabs(speed * decay[i]) - 1e-3;
        decay[f->n_gates + i] = 1 / (1 + exp(-decay[f->n_gates + i]));
    }
    /* rounded, since the float32 code reads floats */
    for (size_t i = 0; i < f->n; i++)
        f->x[i] = (double)(float)f->x[i];
    for (size_t i = 0; i < f->n_v; i++)
        f->dout[i] = (double)(float)f->dout[i];
}

static double length_of(const double *x, size_t d)
{
    double sum = 1e-6;
    for (size_t c = 0; c < d; c++)
        sum += x[c] * x[c];
    return sqrt(sum);
}

/* Returns the part of sum do . o that comes from one value head. */
static double loss_of_head(const fixture *f, size_t head)
{
    const size_t d_k = f->shape.key_dim, d_v = f->shape.value_dim, heads = f->shape.n_value_heads;
    const size_t key_head = head / (heads / f->shape.n_key_heads);
    const double *decay = f->x + 2 * f->n_q + f->n_v, *beta = decay + f->n_gates;
    double s[16 * 16] = {0}, loss = 0;
    for (size_t t = 0; t < f->n_tokens; t++) {
        const double *q = f->x + (t * f->shape.n_key_heads + key_head) * d_k, *k = q + f->n_q;
        const double *v = f->x + 2 * f->n_q + (t * heads + head) * d_v;
        const double q_length = length_of(q, d_k) * sqrt((double)d_k), k_length = length_of(k, d_k);
        for (size_t c = 0; c < d_v; c++) {
            double seen = 0, o = 0;
            for (size_t i = 0; i < d_k; i++) {
                s[i * d_v + c] *= exp(decay[t * heads + head]);
                seen += s[i * d_v + c] * k[i] / k_length;
            }
            for (size_t i = 0; i < d_k; i++) {
                s[i * d_v + c] += k[i] / k_length * beta[t * heads + head] * (v[c] - seen);
                o += s[i * d_v + c] * q[i] / q_length;
            }
            loss += o * f->dout[(t * heads + head) * d_v + c];
        }
    }
    return loss;
}

static double loss_of(const fixture *f)
{
    double loss = 0;
    for (size_t head = 0; head < f->shape.n_value_heads; head++)
        loss += loss_of_head(f, head);
    return loss;
}

static float *rounded(const double *x, size_t n)
{
    float *y;
    ck_ok(CALM_NEW_RAW(ctx, ctx->scratch, y, n));
    for (size_t i = 0; i < n; i++)
        y[i] = (float)x[i];
    return y;
}

/* Returns the gradients in the order of f->x; q, k and v are columns of one matrix, as the convolution writes them. */
static float *run_back(const fixture *f, size_t chunk)
{
    const size_t key = f->shape.n_key_heads * f->shape.key_dim, value = f->shape.n_value_heads * f->shape.value_dim;
    const size_t stride = 2 * key + value + 1;
    float *m, *dm, *states, *out, *grads, *x = rounded(f->x, f->n), *dout = rounded(f->dout, f->n_v);
    ck_ok(CALM_NEW(ctx, ctx->scratch, m, f->n_tokens * stride));
    ck_ok(CALM_NEW(ctx, ctx->scratch, dm, f->n_tokens * stride));
    ck_ok(CALM_NEW(ctx, ctx->scratch, grads, f->n));
    ck_ok(CALM_NEW(ctx, ctx->scratch, out, f->n_v));
    ck_ok(CALM_NEW_RAW(ctx, ctx->scratch, states, calm_delta_states(&f->shape, f->n_tokens, chunk)));
    for (size_t t = 0; t < f->n_tokens; t++) {
        memcpy(m + t * stride, x + t * key, key * sizeof *m);
        memcpy(m + t * stride + key, x + f->n_q + t * key, key * sizeof *m);
        memcpy(m + t * stride + 2 * key, x + 2 * f->n_q + t * value, value * sizeof *m);
    }
    const float *decay = x + 2 * f->n_q + f->n_v;
    float *ddecay = grads + 2 * f->n_q + f->n_v;
    const calm_delta_rows rows = {m, m + key, m + 2 * key, stride, f->n_tokens, decay, decay + f->n_gates};
    ck_ok(calm_delta_rule(ctx, &f->shape, &rows, chunk, out, NULL, states, NULL));
    ck_ok(calm_delta_rule_back(ctx, &f->shape, &rows, chunk, states, dout,
                               &(calm_delta_grads){dm, dm + key, dm + 2 * key, ddecay, ddecay + f->n_gates}));
    for (size_t t = 0; t < f->n_tokens; t++) {
        memcpy(grads + t * key, dm + t * stride, key * sizeof *m);
        memcpy(grads + f->n_q + t * key, dm + t * stride + key, key * sizeof *m);
        memcpy(grads + 2 * f->n_q + t * value, dm + t * stride + 2 * key, value * sizeof *m);
    }
    return grads;
}

static void check(calm_delta_shape shape, size_t n_tokens, double speed)
{
    static const size_t chunks[] = {1, 5, 16, 64};
    fixture f;
    double *slope, largest = 1;
    new_fixture(shape, n_tokens, speed, &f);
    ck_ok(CALM_NEW(ctx, ctx->scratch, slope, f.n));
    for (size_t i = 0; i < f.n; i++) {
        const double x = f.x[i];
        f.x[i] = x + STEP;
        slope[i] = loss_of(&f);
        f.x[i] = x - STEP;
        slope[i] = (slope[i] - loss_of(&f)) / (2 * STEP);
        f.x[i] = x;
        largest = fmax(largest, fabs(slope[i]));
    }
    for (size_t c = 0; c < 4; c++) {
        const float *grads = run_back(&f, chunks[c]);
        for (size_t i = 0; i < f.n; i++)
            ck_assert_msg(fabs((double)grads[i] - slope[i]) <= largest * (200 * EPS + 1e-8),
                          "chunk %zu, parameter %zu of %zu: %g, expected %g", chunks[c], i, f.n, (double)grads[i],
                          slope[i]);
    }
}

TEST(rule)
{
    check((calm_delta_shape){1, 1, 3, 2}, 1, 0.3);
    check((calm_delta_shape){1, 2, 4, 3}, 9, 0.3);
    check((calm_delta_shape){2, 4, 3, 5}, 23, 0.05);
    check((calm_delta_shape){2, 2, 5, 4}, 18, 3);
}
END_OF_TEST

TEST(threads_do_not_matter)
{
    fixture f;
    new_fixture((calm_delta_shape){5, 10, 8, 6}, 100, 0.1, &f);
    ctx->n_threads = 1;
    const float *one = run_back(&f, CALM_DELTA_CHUNK);
    ctx->n_threads = 3;
    const float *three = run_back(&f, CALM_DELTA_CHUNK);
    ck_assert_mem_eq(one, three, f.n * sizeof *one);
}
END_OF_TEST

TEST(memory)
{
    const calm_delta_shape shape = {2, 4, 16, 16};
    float *x, *states;
    ck_ok(CALM_NEW(ctx, ctx->out, x, 100 * 200));
    ck_ok(CALM_NEW(ctx, ctx->out, states, calm_delta_states(&shape, 100, 64)));
    const calm_delta_rows rows = {x, x, x, 200, 100, x, x};
    float *d[5];
    for (size_t i = 0; i < 5; i++)
        ck_ok(CALM_NEW(ctx, ctx->out, d[i], 100 * 200));
    ctx->n_threads = 1;
    ck_memory_of_workers(calm_delta_rule_back(ctx, &shape, &rows, 64, states, x,
                                              &(calm_delta_grads){d[0], d[1], d[2], d[3], d[4]}), 0,
                         calm_delta_rule_back_bytes(&shape, 100, 64), 5, 0);
}
END_OF_TEST

/* Returns the loss of g = -exp(a) softplus(x + b) and beta = sigmoid(y), in double. */
static double gate_loss(const double *p, const double *d, size_t n, size_t heads)
{
    double loss = 0;
    for (size_t i = 0; i < n; i++) {
        const double x = p[2 * heads + i] + p[heads + i % heads];
        loss -= d[i] * exp(p[i % heads]) * (x > 30 ? x : log1p(exp(x)));
        loss += d[n + i] / (1 + exp(-p[2 * heads + n + i]));
    }
    return loss;
}

TEST(gates)
{
    enum { HEADS = 3, TOKENS = 7, N = HEADS * TOKENS };
    double *p = draws(2 * HEADS + 2 * N, 1), *d = draws(2 * N, 2);
    for (size_t i = 0; i < 2 * HEADS + 2 * N; i++)
        p[i] = (double)(float)p[i];
    for (size_t i = 0; i < 2 * N; i++)
        d[i] = (double)(float)d[i];
    float *a = rounded(p, 2 * HEADS), *x = rounded(p + 2 * HEADS, 2 * N), *grads = rounded(d, 2 * N);
    float of_log[HEADS] = {0}, of_dt[HEADS] = {0};
    calm_delta_gates(ctx, TOKENS, HEADS, a, a + HEADS, x, x + N);
    calm_delta_gates_back(TOKENS, HEADS, a, x, x + N, grads, grads + N, of_log, of_dt);
    for (size_t i = 0; i < 2 * HEADS + 2 * N; i++) {
        const double at = p[i];
        p[i] = at + STEP;
        double slope = gate_loss(p, d, N, HEADS);
        p[i] = at - STEP;
        slope = (slope - gate_loss(p, d, N, HEADS)) / (2 * STEP);
        p[i] = at;
        const float found = i < HEADS ? of_log[i] : i < 2 * HEADS ? of_dt[i - HEADS] : grads[i - 2 * HEADS];
        /* The derivative is computed from the rounded g: 1 - exp(-softplus) of small values loses most. */
        ck_near((double)found, slope, (fabs(slope) + 10) * 100 * EPS);
    }
}
END_OF_TEST

static double convolution_loss(const double *p, const double *d, size_t channels, size_t width, size_t tokens)
{
    const double *w = p, *bias = w + channels * width, *x = bias + channels;
    double loss = 0;
    for (size_t t = 0; t < tokens; t++)
        for (size_t c = 0; c < channels; c++) {
            double sum = bias[c];
            for (size_t back = 0; back < width && back <= t; back++)
                sum += w[c * width + width - 1 - back] * x[(t - back) * channels + c];
            loss += sum * d[t * channels + c];
        }
    return loss;
}

TEST(convolution)
{
    enum { CHANNELS = 5, WIDTH = 4, TOKENS = 40, W = CHANNELS * WIDTH, ALL = W + CHANNELS + TOKENS * CHANNELS };
    double *p = draws(ALL, 1), *d = draws(TOKENS * CHANNELS, 2);
    for (size_t i = 0; i < ALL; i++)
        p[i] = (double)(float)p[i];
    float *x = rounded(p, ALL), *dy = rounded(d, TOKENS * CHANNELS), grads[ALL] = {0};
    const calm_convolution conv = {.n_channels = CHANNELS, .width = WIDTH, .w = x, .bias = x + W};
    ck_ok(calm_convolution_back(ctx, &conv, x + W + CHANNELS, CHANNELS, TOKENS, dy, grads, grads + W,
                                grads + W + CHANNELS));
    for (size_t i = 0; i < ALL; i++) {
        const double at = p[i];
        p[i] = at + STEP;
        double slope = convolution_loss(p, d, CHANNELS, WIDTH, TOKENS);
        p[i] = at - STEP;
        slope = (slope - convolution_loss(p, d, CHANNELS, WIDTH, TOKENS)) / (2 * STEP);
        p[i] = at;
        /* Sums of up to 40 products, and dy was rounded. */
        ck_near((double)grads[i], slope, 40 * 10 * EPS);
    }
}
END_OF_TEST

int main(void)
{
    calm_linalg_setup();
    return run_tests("delta_back",
                     (const TTest *[]){rule, threads_do_not_matter, memory, gates, convolution, NULL});
}
