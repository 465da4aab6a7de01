/* GELU with erf: the bytes of glibc's erff, the values of erf in double, and no dependence on the place in a vector. */
#include "ptq/tensor/vector.h"

#include <float.h>
#include <gnu/libc-version.h>
#include <stdio.h>

#include "ptq/base/rng.h"
#include "tests/support/harness.h"

#define EPS 0x1p-24
#define COUNT ((size_t)700)    /* several parts of gelu.c, and a remainder */

static float of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Makes floats of every exponent and both signs, and around the points where the approximations change. */
static size_t numbers(size_t from, float *x)
{
    static const float ends[] = {0.84375f, 1.25f, 0x1.6db6dcp+1f, 6.0f};
    const uint64_t step = 65537, first = (uint64_t)from * COUNT * step;
    size_t n = 0;
    for (; n < COUNT && first + n * step <= UINT32_MAX; n++)
        x[n] = of_bits((uint32_t)(first + n * step));
    for (size_t e = 0; from < 2 && e < sizeof ends / sizeof *ends; e++)
        for (int i = -80; i <= 80; i++) {
            const float around = (float)(sqrt(2) * (double)ends[e]) * (1 + (float)i * FLT_EPSILON);
            x[(n + e * 161 + (size_t)(i + 80)) % COUNT] = from ? -around : around;
        }
    return n;
}

/* glibc 2.41 has another erff, which is correctly rounded. */
static bool libc_has_that_erff(void)
{
    int major = 0, minor = 0;
    return sscanf(gnu_get_libc_version(), "%d.%d", &major, &minor) == 2 && major == 2 && minor <= 40;
}

/* Tolerance: erff is within an ulp; x/sqrt 2 is within an eps, whose effect, with the derivative exp(-x^2/2), is
 * below one more; 1 + erf rounds by an eps of at most 2. */
TEST(bytes_of_erff_and_values_of_erf)
{
    float x[COUNT], y[COUNT];
    for (size_t from = 0, n; (n = numbers(from, x)); from++) {
        memcpy(y, x, n * sizeof *y);
        calm_vec_gelu(n, y);
        for (size_t i = 0; i < n; i++) {
            const double g = (double)x[i];
            const float expected = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678118654752f));
            if (isnan(expected)) {
                ck_assert(isnan(y[i]));
                continue;
            }
            ck_assert_msg(!libc_has_that_erff() || memcmp(&expected, &y[i], sizeof expected) == 0, "%a: %a, not %a", g,
                          (double)y[i], (double)expected);
            if (isfinite(g))
                ck_near(y[i], 0.5 * g * (1 + erf(g / sqrt(2))), 0.5 * fabs(g) * 4 * EPS + (double)FLT_TRUE_MIN);
        }
    }
}
END_OF_TEST

TEST(place_and_number_do_not_matter)
{
    float x[COUNT], one[COUNT], some[COUNT];
    for (size_t i = 0; i < COUNT; i++)
        one[i] = x[i] = (float)(3 * calm_rng_normal(11, 0, i));
    for (size_t i = 0; i < COUNT; i++)
        calm_vec_gelu(1, one + i);
    for (size_t n = 0; n <= COUNT; n += 23) {
        memcpy(some, x, sizeof some);
        calm_vec_gelu(n, some + COUNT - n);
        ck_assert(memcmp(some, x, (COUNT - n) * sizeof *x) == 0);
        ck_assert(n == 0 || memcmp(some + COUNT - n, one + COUNT - n, n * sizeof *x) == 0);
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("gelu",
                     (const TTest *[]){bytes_of_erff_and_values_of_erf, place_and_number_do_not_matter, NULL});
}
