/* The short causal convolution against its sum in double: each output is rounded once per tap and once for the bias. */
#include "ptq/layers/convolution.h"

#include "ptq/base/rng.h"
#include "ptq/tensor/vector.h"
#include "tests/support/harness.h"

#define EPS 0x1p-24

static float *draws(size_t n, uint64_t stream)
{
    float *x;
    ck_ok(CALM_NEW_RAW(ctx, ctx->scratch, x, n));
    for (size_t i = 0; i < n; i++)
        x[i] = (float)calm_rng_normal(3, stream, i);
    return x;
}

/* x has two columns that do not belong to the convolution. */
static void check(size_t n_tokens, size_t n_channels, size_t width, bool biased)
{
    const float *x = draws(n_tokens * (n_channels + 2), 1), *w = draws(n_channels * width, 2);
    const calm_convolution conv = {.n_channels = n_channels, .width = width, .w = w,
                                   .bias = biased ? draws(n_channels, 3) : NULL};
    float *out = draws(n_tokens * n_channels, 4);
    ck_ok(calm_convolution_run(ctx, &conv, x, n_channels + 2, n_tokens, out));
    for (size_t t = 0; t < n_tokens; t++) {
        for (size_t c = 0; c < n_channels; c++) {
            double sum = biased ? (double)conv.bias[c] : 0, most = fabs(sum);
            for (size_t back = 0; back < width && back <= t; back++) {
                const double term = (double)w[c * width + width - 1 - back]
                                    * (double)x[(t - back) * (n_channels + 2) + c];
                sum += term;
                most += fabs(term);
            }
            ck_near((double)out[t * n_channels + c], sum, (double)(width + 1) * EPS * most);
        }
    }
}

TEST(sums)
{
    check(1, 5, 4, false);
    check(3, 5, 4, true);
    check(70, 33, 3, false);
    check(70, 8, 1, true);
    check(40, 8, 50, true);
}
END_OF_TEST

/* A window in parts, shorter and longer than the taps, has the bits of the whole. */
TEST(cut_windows)
{
    static const size_t parts[] = {1, 1, 2, 7, 3, 1, 15};
    enum { CHANNELS = 6, STRIDE = 8, WIDTH = 4, TOKENS = 30 };
    const float *x = draws(TOKENS * STRIDE, 1), *w = draws(CHANNELS * WIDTH, 2);
    float *whole = draws(TOKENS * CHANNELS, 3), *cut = draws(TOKENS * CHANNELS, 4), *tail;
    calm_convolution conv = {.n_channels = CHANNELS, .width = WIDTH, .w = w};
    ck_ok(calm_convolution_run(ctx, &conv, x, STRIDE, TOKENS, whole));
    ck_ok(CALM_NEW(ctx, ctx->scratch, tail, calm_convolution_tail(CHANNELS, WIDTH)));
    conv.tail = tail;
    for (size_t i = 0, t = 0; i < sizeof parts / sizeof *parts; t += parts[i++])
        ck_ok(calm_convolution_run(ctx, &conv, x + t * STRIDE, STRIDE, parts[i], cut + t * CHANNELS));
    ck_assert_mem_eq(cut, whole, TOKENS * CHANNELS * sizeof *cut);
}
END_OF_TEST

static void twice(size_t n, float *x)
{
    calm_vec_scale(n, 2, x);
}

TEST(activation_and_threads)
{
    const float *x = draws(200 * 16, 1), *w = draws(16 * 4, 2);
    calm_convolution conv = {.n_channels = 16, .width = 4, .w = w};
    float *out = draws(200 * 16, 3), *doubled = draws(200 * 16, 3);
    ck_ok(calm_convolution_run(ctx, &conv, x, 16, 200, out));
    conv.activate = twice;
    ctx->n_threads = 3;
    ck_ok(calm_convolution_run(ctx, &conv, x, 16, 200, doubled));
    ctx->n_threads = 1;
    for (size_t i = 0; i < 200 * 16; i++)
        ck_assert(doubled[i] == 2 * out[i]);
}
END_OF_TEST

TEST(memory)
{
    const float *x = draws(10 * 16, 1), *w = draws(16 * 4, 2);
    const calm_convolution conv = {.n_channels = 16, .width = 4, .w = w};
    float *out = draws(10 * 16, 3);
    ck_memory(calm_convolution_run(ctx, &conv, x, 16, 10, out), 0, calm_convolution_bytes(16, 4));
    ck_allocations(ctx->scratch, 1, calm_convolution_run(ctx, &conv, x, 16, 10, out));
}
END_OF_TEST

int main(void)
{
    return run_tests("convolution", (const TTest *[]){sums, cut_windows, activation_and_threads, memory, NULL});
}
