/* Norms over rows: each kind's formula, with its weights, in place and not. */
#include "ptq/layers/norm.h"

#include "ptq/base/rng.h"
#include "tests/support/harness.h"

enum { ROWS = 3, WIDTH = 21 };

static void fill(float *x, size_t n, double mean, uint64_t stream)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(mean + calm_rng_normal(11, stream, i));
}

/* Computes a norm by its kind, in double. */
static double slow(const calm_norm *norm, const float *row, size_t i)
{
    double mean = 0, square = 0, variance = 0;
    for (size_t k = 0; k < WIDTH; k++)
        mean += (double)row[k] / WIDTH, square += (double)row[k] * (double)row[k] / WIDTH;
    for (size_t k = 0; k < WIDTH; k++)
        variance += ((double)row[k] - mean) * ((double)row[k] - mean) / WIDTH;
    if (norm->kind == CALM_NORM_LAYER)
        return ((double)row[i] - mean) / sqrt(variance + (double)norm->eps) * (double)norm->w[i]
               + (norm->b ? (double)norm->b[i] : 0);
    return (double)row[i] / sqrt(square + (double)norm->eps) * (double)norm->w[i];
}

/* Values up to 10 with at most 8 roundings each: 1e-5 is twice 8 x 2^-24 x 10, and a thousandth of what another
 * formula, or a missing eps of 0.3, would change. */
TEST(formulas)
{
    static const calm_norm_kind kinds[] = {CALM_NORM_RMS, CALM_NORM_RMS_PLUS_ONE, CALM_NORM_LAYER, CALM_NORM_LAYER};
    for (size_t k = 0; k < 4; k++) {
        float x[ROWS * WIDTH], y[ROWS * WIDTH], w[WIDTH], b[WIDTH];
        fill(x, ROWS * WIDTH, 0.5, 1);
        fill(w, WIDTH, 1, 2);
        fill(b, WIDTH, 0, 3);
        const calm_norm norm = {kinds[k], 0.3f, WIDTH, w, k < 3 ? b : NULL};
        calm_norm_rows(&norm, x, ROWS, y);
        for (size_t i = 0; i < ROWS * WIDTH; i++)
            ck_near(y[i], slow(&norm, x + i / WIDTH * WIDTH, i % WIDTH), 1e-5);
        calm_norm_rows(&norm, x, ROWS, x);
        ck_assert(memcmp(x, y, sizeof x) == 0);
    }
}
END_OF_TEST

TEST(no_norm)
{
    float x[ROWS * WIDTH], y[ROWS * WIDTH];
    const calm_norm none = {.kind = CALM_NORM_LAYER, .width = WIDTH};
    fill(x, ROWS * WIDTH, 0, 1);
    calm_norm_rows(&none, x, ROWS, y);
    ck_assert(memcmp(x, y, sizeof x) == 0);
    calm_norm_rows(&none, x, ROWS, x);
    ck_assert(memcmp(x, y, sizeof x) == 0);
}
END_OF_TEST

int main(void)
{
    return run_tests("norm", (const TTest *[]){formulas, no_norm, NULL});
}
