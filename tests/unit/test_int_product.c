/* Integer products: every instruction set and number of threads against sums in 64 bits, byte for byte. */
#include "ptq/tensor/int_product.h"

#include <math.h>
#include <stdlib.h>

#include "ptq/base/rng.h"
#include "tests/support/harness.h"
#include "tests/support/int_sets.h"

typedef struct int_case {
    calm_int_source source;
    calm_int_weight weight;
    calm_int_rows rows;
    size_t groups;    /* of the source */
    float *bias;
} int_case;

static uint64_t draw(uint64_t stream, size_t i, uint64_t below)
{
    return (uint64_t)(calm_rng_uniform(11, stream, i) * (double)below);
}

static void *aligned(size_t bytes)
{
    char *memory;
    ck_ok(CALM_NEW(ctx, ctx->out, memory, bytes + 64));
    return memory + (64 - (uintptr_t)memory % 64) % 64;
}

/* Makes a weight and rows of random codes; `zeros`: each group and each row has a zero point. */
static int_case new_case(size_t m, size_t n, size_t k, int bits, size_t group, bool zeros)
{
    int_case c = {.source = {n, k, bits, group, NULL, NULL, NULL, bits == 4 ? 7 : 128}};
    uint8_t *codes, *of_groups;
    float *scales;
    c.groups = group && group < k ? (k + group - 1) / group : 1;
    ck_ok(CALM_NEW(ctx, ctx->out, codes, n * k));
    ck_ok(CALM_NEW(ctx, ctx->out, of_groups, n * c.groups));
    ck_ok(CALM_NEW(ctx, ctx->out, scales, n * c.groups));
    ck_ok(CALM_NEW(ctx, ctx->out, c.bias, n));
    for (size_t i = 0; i < n * k; i++)
        codes[i] = (uint8_t)draw(1, i, 1u << bits);
    for (size_t i = 0; i < n * c.groups; i++) {
        of_groups[i] = (uint8_t)draw(2, i, 1u << bits);
        scales[i] = (float)calm_rng_uniform(11, 3, i) - 0.25f;
    }
    for (size_t i = 0; i < n; i++)
        c.bias[i] = (float)calm_rng_uniform(11, 4, i) * 100;
    c.source.codes = codes;
    c.source.scales = scales;
    c.source.zeros = zeros ? of_groups : NULL;
    ck_assert(calm_int_packs(&c.source));
    calm_int_pack(&c.source, aligned(calm_int_weight_bytes(&c.source)), &c.weight);
    calm_int_rows_init(&c.weight, m, aligned(calm_int_rows_bytes(&c.weight, m)), &c.rows);
    for (size_t t = 0; t < m; t++) {
        for (size_t i = 0; i < k; i++)
            c.rows.codes[t * c.rows.stride + i] = (int8_t)((int)draw(5, t * k + i, 256) - 128);
        c.rows.scales[t] = (float)calm_rng_uniform(11, 6, t);
        c.rows.zeros[t] = zeros ? (int)draw(7, t, 256) - 128 : 0;
        calm_int_rows_finish(&c.weight, &c.rows, t);
    }
    return c;
}

/* Returns element (t, o) by its definition: exact sums of groups, then float operations in the header's order. */
static float by_definition(const int_case *c, size_t t, size_t o, bool bias)
{
    const size_t k = c->source.in, group = c->weight.group;
    float total = 0;
    for (size_t first = 0; first < k; first += group) {
        const size_t cell = o * c->groups + (c->groups > 1 ? first / group : 0);
        const int zero = c->source.zeros ? c->source.zeros[cell] : c->source.zero;
        int64_t sum = 0;
        for (size_t i = first; i < calm_size_min(first + group, k); i++)
            sum += (c->rows.codes[t * c->rows.stride + i] - c->rows.zeros[t]) * (c->source.codes[o * k + i] - zero);
        ck_assert(sum == (int32_t)sum);
        total += (float)sum * c->source.scales[cell];
    }
    total *= c->rows.scales[t];
    return bias ? total + c->bias[o] : total;
}

/* Every instruction set of this CPU, on one thread and on several, gives the definition's values. */
static void check(const int_case *c, bool bias)
{
    const size_t m = c->rows.n, n = c->source.out;
    float *want, *y;
    ck_ok(CALM_NEW(ctx, ctx->out, want, m * n));
    ck_ok(CALM_NEW(ctx, ctx->out, y, m * n));
    for (size_t i = 0; i < m * n; i++)
        want[i] = by_definition(c, i / n, i % n, bias);
    for (int set = 0; set < CALM_N_INT_SETS; set++)
        for (ctx->n_threads = 1; ctx->n_threads <= 3 && has_int_set(set); ctx->n_threads += 2) {
            memset(y, 0xff, m * n * sizeof *y);
            calm_int_product(ctx, (calm_int_set)set, &c->weight, &c->rows, bias ? c->bias : NULL, y);
            for (size_t i = 0; i < m * n; i++)
                ck_assert_msg(memcmp(&y[i], &want[i], sizeof *y) == 0, "%s, %d threads, %zu x %zu x %zu: [%zu, %zu] "
                              "is %a, not %a", calm_int_set_names[set], ctx->n_threads, m, n, c->source.in, i / n,
                              i % n, (double)y[i], (double)want[i]);
        }
}

/* Rows, outputs and columns that tiles and panels divide or not; all groups; with and without zero points. */
TEST(edges)
{
    static const size_t shapes[][3] = {{1, 1, 1},   {1, 16, 8},  {2, 17, 9},  {3, 15, 31},  {4, 128, 64},
                                       {5, 33, 40}, {7, 50, 65}, {8, 32, 96}, {13, 145, 77}, {70, 129, 136},
                                       {9, 40, 64}, {16, 16, 96}, {33, 65, 128}, {150, 49, 192}, {30, 49, 64}};
    static const size_t groups[] = {0, 8, 32, 64, 128};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (size_t g = 0; g < sizeof groups / sizeof *groups; g++)
            for (int bits = 4; bits <= 8; bits += 4) {
                const int_case plain = new_case(shapes[s][0], shapes[s][1], shapes[s][2], bits, groups[g], false);
                const int_case zeros = new_case(shapes[s][0], shapes[s][1], shapes[s][2], bits, groups[g], true);
                check(&plain, true);
                check(&zeros, false);
            }
}
END_OF_TEST

/* More rows and columns than a piece has. */
TEST(pieces)
{
    const int_case many = new_case(520, 40, 600, 8, 0, false), wide = new_case(3, 600, 2100, 4, 128, true);
    check(&many, false);
    check(&wide, true);
    /* Columns that tiles take in several steps, with rows that they share. */
    for (int bits = 4; bits <= 8; bits += 4) {
        const int_case one = new_case(299, 50, 1632, bits, 0, true), each = new_case(139, 50, 1600, bits, 640, true);
        check(&one, true);
        check(&each, false);
    }
}
END_OF_TEST

/* The largest terms, of either sign, in sums of the largest length and longer ones: none overflows int32
 * (by_definition()). */
TEST(extremes)
{
    static const size_t columns[] = {CALM_INT_COLUMNS, ((size_t)1 << 17) + 5};
    for (size_t i = 0; i < 2; i++)
        for (int sign = 0; sign < 2; sign++) {
            int_case c = new_case(2, 3, columns[i], 8, 0, true);
            memset((uint8_t *)(uintptr_t)c.source.codes, sign ? 255 : 0, 3 * columns[i]);
            memset((uint8_t *)(uintptr_t)c.source.zeros, sign ? 0 : 255, 3);
            calm_int_pack(&c.source, (void *)(uintptr_t)c.weight.codes, &c.weight);
            for (size_t t = 0; t < 2; t++) {
                memset(c.rows.codes + t * c.rows.stride, t ? 127 : -128, columns[i]);
                c.rows.zeros[t] = t ? -128 : 127;
                calm_int_rows_finish(&c.weight, &c.rows, t);
            }
            check(&c, false);
        }
}
END_OF_TEST

/* Scales of 0 give 0; scales that are not finite affect only what they scale. */
TEST(odd_scales)
{
    int_case c = new_case(4, 20, 64, 4, 32, false);
    float *scales = (float *)(uintptr_t)c.source.scales, y[80];
    scales[0] = scales[1] = 0;
    scales[2] = NAN;
    scales[4] = INFINITY;
    calm_int_pack(&c.source, (void *)(uintptr_t)c.weight.codes, &c.weight);
    c.rows.scales[1] = 0;
    c.rows.scales[2] = NAN;
    for (int set = 0; set < CALM_N_INT_SETS; set++) {
        if (!has_int_set(set))
            continue;
        calm_int_product(ctx, (calm_int_set)set, &c.weight, &c.rows, NULL, y);
        for (size_t t = 0; t < 4; t++)
            for (size_t o = 0; o < 20; o++) {
                const float value = y[t * 20 + o];
                if (t == 2 || o == 1)
                    ck_assert_float_nan(value);
                else if (o == 2)
                    ck_assert(!isfinite(value));
                else if (t == 1 || o == 0)
                    ck_assert(value == 0);
                else
                    ck_assert(isfinite(value));
            }
    }
}
END_OF_TEST

/* What cannot be packed: other widths, groups that are not multiples of 8, or whose sums exceed int32. */
TEST(refused)
{
    ck_assert(!calm_int_packs(&(calm_int_source){.out = 8, .in = 64, .bits = 3, .group = 32}));
    ck_assert(!calm_int_packs(&(calm_int_source){.out = 8, .in = 64, .bits = 4, .group = 20}));
    ck_assert(!calm_int_packs(&(calm_int_source){.out = 8, .in = 1 << 17, .bits = 8, .group = 1 << 16}));
    ck_assert(!calm_int_packs(&(calm_int_source){.out = 0, .in = 64, .bits = 8}));
    ck_assert(calm_int_packs(&(calm_int_source){.out = 8, .in = 20, .bits = 4, .group = 20}));
    ck_assert(calm_int_packs(&(calm_int_source){.out = 8, .in = 1 << 17, .bits = 8, .group = 1 << 17}));
}
END_OF_TEST

/* Empty products are no error. */
TEST(empty)
{
    const int_case c = new_case(0, 4, 16, 8, 0, false);
    calm_int_product(ctx, CALM_INT_PLAIN, &c.weight, &c.rows, NULL, NULL);
}
END_OF_TEST

/* The environment variable names an instruction set; an unknown name is an error. */
TEST(chosen)
{
    calm_int_set set;
    ck_assert_int_eq(setenv(CALM_INT_VARIABLE, "plain", 1), 0);
    ck_ok(calm_int_choose(ctx, &set));
    ck_assert_int_eq(set, CALM_INT_PLAIN);
    for (int other = CALM_INT_AVX2; other < CALM_N_INT_SETS; other++) {
        const bool there = has_int_set(other);
        ck_assert_int_eq(setenv(CALM_INT_VARIABLE, calm_int_set_names[other], 1), 0);
        if (there) {
            ck_ok(calm_int_choose(ctx, &set));
            ck_assert_int_eq(set, other);
        } else {
            ck_fails(calm_int_choose(ctx, &set), CALM_EUNSUPPORTED, calm_int_set_names[other]);
        }
    }
    ck_assert_int_eq(setenv(CALM_INT_VARIABLE, "sse9", 1), 0);
    ck_fails(calm_int_choose(ctx, &set), CALM_EARG, "CALM_SIMD=sse9: expected plain, avx2, avxvnni, avx512 or amx");
    ck_assert_int_eq(unsetenv(CALM_INT_VARIABLE), 0);
    ck_ok(calm_int_choose(ctx, &set));
    ck_assert(has_int_set((int)set));
}
END_OF_TEST

int main(void)
{
    return run_tests("int_product",
                     (const TTest *[]){edges, pieces, extremes, odd_scales, refused, empty, chosen, NULL});
}
