/* Tables of levels, and rounding to the nearest level.
 *
 * For a small float the nearest level is computed: adding and subtracting 1.5 times the power of two whose last
 * mantissa bit in double is the level's rounds half to even at that bit. */
#include "ptq/quant/levels.h"

#include <math.h>
#include <string.h>

#include "ptq/base/simd.h"

/* ---- tables ---- */

#define E2M1 0.5f, 1, 1.5f, 2, 3, 4, 6

/* Eight mantissas of one exponent; u is the value of the last bit. */
#define UP(u) 8 * (u), 9 * (u), 10 * (u), 11 * (u), 12 * (u), 13 * (u), 14 * (u), 15 * (u)
#define DOWN(u) -15 * (u), -14 * (u), -13 * (u), -12 * (u), -11 * (u), -10 * (u), -9 * (u), -8 * (u)

static const float e2m1[] = {-6, -4, -3, -2, -1.5f, -1, -0.5f, 0, E2M1};

/* The code of all ones, 480, would follow 448, but is NaN. */
static const float e4m3[] = {
    -14 * 32, -13 * 32, -12 * 32, -11 * 32, -10 * 32, -9 * 32, -8 * 32,
    DOWN(0x1p4f), DOWN(0x1p3f), DOWN(0x1p2f), DOWN(0x1p1f), DOWN(0x1p0f), DOWN(0x1p-1f), DOWN(0x1p-2f), DOWN(0x1p-3f),
    DOWN(0x1p-4f), DOWN(0x1p-5f), DOWN(0x1p-6f), DOWN(0x1p-7f), DOWN(0x1p-8f), DOWN(0x1p-9f),
    -0x7p-9f, -0x6p-9f, -0x5p-9f, -0x4p-9f, -0x3p-9f, -0x2p-9f, -0x1p-9f, 0,
    0x1p-9f, 0x2p-9f, 0x3p-9f, 0x4p-9f, 0x5p-9f, 0x6p-9f, 0x7p-9f,
    UP(0x1p-9f), UP(0x1p-8f), UP(0x1p-7f), UP(0x1p-6f), UP(0x1p-5f), UP(0x1p-4f), UP(0x1p-3f), UP(0x1p-2f),
    UP(0x1p-1f), UP(0x1p0f), UP(0x1p1f), UP(0x1p2f), UP(0x1p3f), UP(0x1p4f),
    8 * 32, 9 * 32, 10 * 32, 11 * 32, 12 * 32, 13 * 32, 14 * 32,
};

/* llama.cpp's kvalues_iq4nl. */
static const float iq4_nl[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

#define SIZE(table) (sizeof(table) / sizeof *(table))

const calm_levels calm_levels_e2m1 = {SIZE(e2m1), e2m1, 1, 1};
const calm_levels calm_levels_e4m3 = {SIZE(e4m3), e4m3, 3, 0x1p-6};
const calm_levels calm_levels_iq4_nl = {SIZE(iq4_nl), iq4_nl, 0, 0};

_Static_assert(SIZE(e2m1) == 15 && SIZE(e4m3) == 253, "both signs of every magnitude, one zero");

/* ---- rounding ---- */

CALM_VECTORIZE
static void nearest_float(double least, double shift, double most, double *x, size_t n)
{
    for (size_t j = 0; j < n; j++) {
        double a = x[j], power;
        uint64_t bits;
        a = a < -most ? -most : a;
        a = a > most ? most : a;
        memcpy(&bits, &a, sizeof bits);
        bits &= 0x7ff0000000000000u;
        memcpy(&power, &bits, sizeof power);
        power = (power < least ? least : power) * shift;
        x[j] = (a + power) - power;
    }
}

/* Rounds to a table: each level in turn replaces the result if the value is at or above the midpoint below it. */
CALM_VECTORIZE
static void nearest_in_table(const float *value, size_t n_levels, double *x, size_t n)
{
    for (size_t j = 0; j < n; j++) {
        double best = value[0];
        for (size_t k = 1; k < n_levels; k++)
            best = x[j] >= ((double)value[k - 1] + (double)value[k]) / 2 ? value[k] : best;
        x[j] = best;
    }
}

void calm_levels_nearest(const calm_levels *levels, double *x, size_t n)
{
    if (levels->least > 0)
        nearest_float(levels->least, ldexp(1.5, 52 - levels->mantissa), levels->value[levels->n - 1], x, n);
    else
        nearest_in_table(levels->value, levels->n, x, n);
}

/* ---- codes ---- */

uint8_t calm_levels_code(const calm_levels *levels, double level)
{
    if (!(levels->least > 0)) {
        size_t code = levels->n - 1;
        while (code > 0 && levels->value[code] > level)
            code--;
        return (uint8_t)code;
    }
    /* Scaled such that its smallest normal value is float32's, the small float has the upper bits of the float32's
     * exponent and mantissa. */
    const float scaled = (float)(fabs(level) * (0x1p-126 / levels->least));
    const int middle = (int)levels->n / 2;
    uint32_t bits;
    memcpy(&bits, &scaled, sizeof bits);
    const int magnitude = (int)(bits >> (23 - levels->mantissa));
    return (uint8_t)(level < 0 ? middle - magnitude : middle + magnitude);
}

/* Returns the sign bit, behind the bits of the magnitude. */
static int sign_bit(const calm_levels *levels)
{
    return levels->n > 128 ? 128 : 8;
}

uint8_t calm_levels_bits(const calm_levels *levels, uint8_t code)
{
    const int middle = (int)levels->n / 2;
    return (uint8_t)(code < middle ? sign_bit(levels) + middle - code : code - middle);
}

uint8_t calm_levels_of_bits(const calm_levels *levels, uint8_t bits)
{
    const int middle = (int)levels->n / 2, sign = sign_bit(levels), magnitude = bits & (sign - 1);
    return (uint8_t)(bits & sign ? middle - magnitude : middle + magnitude);
}
