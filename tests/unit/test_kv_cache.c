/* The 8-bit KV cache: rounding against every E4M3 value, peaks from several threads, scales of a checkpoint. */
#include "ptq/layers/kv_cache.h"
#include "tests/support/harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ptq/base/threads.h"

/* Lists all finite nonnegative values of E4M3 by its definition: 2^(e - 7) (1 + m / 8), and m 2^-9 for e 0. */
static size_t list_numbers(double out[127])
{
    size_t n = 0;
    for (int bits = 0; bits < 127; bits++) {
        const int e = bits >> 3, m = bits & 7;
        out[n++] = e ? ldexp(1 + m / 8.0, e - 7) : ldexp(m, -9);
    }
    return n;
}

/* Returns the nearest of them with x's sign; of two equally near ones that with the even mantissa, at an even index. */
static double nearest(const double numbers[127], double x)
{
    size_t best = 0;
    for (size_t i = 1; i < 127; i++) {
        const double was = fabs(fabs(x) - numbers[best]), is = fabs(fabs(x) - numbers[i]);
        if (is < was || (is == was && i % 2 == 0))
            best = i;
    }
    return copysign(numbers[best], x);
}

TEST(rounds_to_e4m3_of_its_scale)
{
    enum { N = 3, STRIDE = 301, WIDTH = 299 };
    static const float scales[] = {1, 0.25f, 0x1p-20f, 3.7f};
    double numbers[127];
    ck_assert_uint_eq(list_numbers(numbers), 127);
    for (size_t s = 0; s < sizeof scales / sizeof *scales; s++) {
        float x[N * STRIDE], was[N * STRIDE];
        for (size_t i = 0; i < N * STRIDE; i++)
            x[i] = was[i] = scales[s] * (float)(sin(0.37 * (double)i) * exp(0.021 * (double)(i % 400) - 1));
        x[0] = was[0] = 1e6f * scales[s];    /* beyond the ends */
        x[1] = was[1] = 0;
        calm_kv_round(scales[s], x, N, STRIDE, WIDTH);
        for (size_t t = 0; t < N; t++)
            for (size_t i = 0; i < STRIDE; i++) {
                const size_t at = t * STRIDE + i;
                const float expected = (float)nearest(numbers, (double)(was[at] / scales[s])) * scales[s];
                ck_assert_msg(x[at] == (i < WIDTH ? expected : was[at]), "%g of scale %g: %g, expected %g",
                              (double)was[at], (double)scales[s], (double)x[at], (double)expected);
            }
    }
}
END_OF_TEST

typedef struct watching {
    _Atomic float peak;
    float x[4000];
} watching;

static calm_status watch_rows(calm_ctx *worker, size_t first, size_t n, void *user)
{
    watching *w = user;
    (void)worker;
    calm_kv_watch(&w->peak, w->x + first * 5, n, 5, 4);
    return CALM_OK;
}

TEST(the_peak_is_the_largest_of_all_threads)
{
    static watching w;
    float most = 0;
    for (size_t i = 0; i < 4000; i++) {
        w.x[i] = (float)(sin((double)i) * (double)(i % 977));
        if (i % 5 < 4)    /* the fifth column is not cached */
            most = fmaxf(most, fabsf(w.x[i]));
        else
            w.x[i] = 1e9f;
    }
    for (int threads = 1; threads <= 4; threads++) {
        w.peak = 0;
        ctx->n_threads = threads;
        ck_ok(calm_parallel_rows(ctx, 800, watch_rows, &w));
        ck_assert(w.peak == most);
    }
    ck_assert(calm_kv_scale(most) == most / 448);
    ck_assert(calm_kv_scale(0) == 1);
}
END_OF_TEST

int main(void)
{
    return run_tests("kv_cache", (const TTest *[]){rounds_to_e4m3_of_its_scale, the_peak_is_the_largest_of_all_threads,
                                                   NULL});
}
