/* Rows of a softmax, byte for byte: fused instructions of a CPU round as the separate steps. */
#include <math.h>

#include "ptq/base/rng.h"
#include "ptq/tensor/vector.h"
#include "ptq/tensor/vector_impl.h"
#include "tests/support/harness.h"

#define LONGEST ((size_t)147)    /* several vectors of every width, and a remainder */

static bool same(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

static float of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The order of sums by definition: lane i mod LANES, then the lanes in sequence. */
static float float_sum(size_t n, const float *x)
{
    float lane[LANES] = {0}, sum = 0;
    for (size_t i = 0; i < n; i++)
        lane[i % LANES] += x[i];
    for (size_t j = 0; j < LANES; j++)
        sum += lane[j];
    return sum;
}

static double double_sum(size_t n, const float *x)
{
    double lane[LANES] = {0}, sum = 0;
    for (size_t i = 0; i < n; i++)
        lane[i % LANES] += (double)x[i];
    for (size_t j = 0; j < LANES; j++)
        sum += lane[j];
    return sum;
}

/* Values of every exponent and both signs, with infinity and NaN, and around the ends of the range. */
TEST(exponentials_are_those_of_one_number)
{
    static const float ends[] = {0, -87.3f, 88, 1, -1};
    float x[LONGEST], y[LONGEST];
    const uint64_t step = 10007;
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += step * LONGEST) {
        for (size_t i = 0; i < LONGEST; i++)
            x[i] = of_bits((uint32_t)(bits + i * step));
        for (size_t i = 0; i < LONGEST && bits == 0; i++)
            x[i] = ends[i % 5] * (1 + ((float)i - (float)LONGEST / 2) * 0x1p-23f);
        calm_vec_exp_sum(LONGEST, 0.5f, x, y);
        for (size_t i = 0; i < LONGEST; i++)
            ck_assert_msg(same(y[i], exp_one(x[i] - 0.5f)), "%a: %a", (double)x[i], (double)y[i]);
    }
}
END_OF_TEST

static void check_row(size_t n, const float *x, float scale)
{
    float y[LONGEST], want[LONGEST], most = x[0];
    for (size_t i = 1; i < n; i++)
        most = x[i] > most ? x[i] : most;
    ck_assert(same(calm_vec_max(n, x), most));
    for (size_t i = 0; i < n; i++)
        want[i] = exp_one(scale * (x[i] - most));
    for (size_t i = 0; i < LONGEST; i++)
        y[i] = i < n ? x[i] : -1;
    ck_assert(same(calm_vec_softmax_numerators(n, scale, y), float_sum(n, want)));
    for (size_t i = 0; i < LONGEST; i++)
        ck_assert(same(y[i], i < n ? want[i] : -1));
    const double total = calm_vec_exp_sum(n, most, x, y), expected = double_sum(n, y);
    ck_assert(memcmp(&total, &expected, sizeof total) == 0 || (isnan(total) && isnan(expected)));
}

/* Rows of every length, and with one value that is not finite. */
TEST(rows_and_their_sums)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY};
    for (size_t n = 1; n <= LONGEST; n++) {
        float x[LONGEST];
        for (size_t i = 0; i < n; i++)
            x[i] = (float)(30 * calm_rng_normal(3, n, i));
        check_row(n, x, 0.125f);
        check_row(n, x, 1.7f);
        for (size_t k = 0; k < 3; k++) {
            const size_t at = (n * 7 + k) % n;
            const float kept = x[at];
            x[at] = odd[k];
            check_row(n, x, 0.125f);
            x[at] = kept;
        }
        x[0] = NAN;
        check_row(n, x, 1);
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("softmax", (const TTest *[]){exponentials_are_those_of_one_number, rows_and_their_sums, NULL});
}
