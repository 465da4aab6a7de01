/* Knapsack: brute force on small instances, a plain table on real shapes, sizes of a mixture, failures. */
#include "ptq/plan/knapsack.h"

#include <stdio.h>

#include "ptq/base/rng_impl.h"
#include "ptq/base/threads.h"
#include "tests/support/harness.h"

enum { MAX_UNITS = 7, MAX_OPTIONS = 4 };

typedef struct instance {
    calm_knapsack_unit units[MAX_UNITS];
    calm_knapsack_option options[MAX_UNITS][MAX_OPTIONS];
    size_t n;
    uint64_t capacity;
} instance;

static uint64_t draw(uint64_t seed, uint64_t *index, uint64_t below)
{
    return calm_rng_u64(seed, 1, (*index)++) % below;
}

/* Properties of the instances.  Losses are multiples of a power of two, so that brute force in double is exact. */
typedef struct recipe {
    uint64_t costs, factor, losses;    /* cost: factor times below `costs`; loss: below `losses`, less half of them */
    double scale;
} recipe;

static const recipe recipes[] = {
    {5, 1, 4, 1},                          /* ties everywhere, costs of zero, equal options */
    {3, 12, 2, 0x1p-30},                   /* a common divisor                              */
    {1000, 1, 1 << 20, 0x1p-20},           /* nearly no ties                                */
    {2, 1, 3, 1},
    {1 << 30, 4096, 1 << 30, 0x1p-60},
    {50, 7, 1, 1},                         /* all losses equal: least cost decides          */
};

static void make(const recipe *r, uint64_t seed, instance *out)
{
    uint64_t index = 0, least = 0, most = 0;
    out->n = 1 + draw(seed, &index, MAX_UNITS);
    for (size_t u = 0; u < out->n; u++) {
        uint64_t low = UINT64_MAX, high = 0;
        out->units[u] = (calm_knapsack_unit){1 + draw(seed, &index, MAX_OPTIONS), out->options[u]};
        for (size_t j = 0; j < out->units[u].n; j++) {
            uint64_t cost = r->factor * draw(seed, &index, r->costs) + (u == 0 ? 5 : 0);
            out->options[u][j].cost = cost;
            out->options[u][j].loss = ((double)draw(seed, &index, r->losses) - (double)(r->losses / 2)) * r->scale;
            low = cost < low ? cost : low;
            high = cost > high ? cost : high;
        }
        least += low;
        most += high;
    }
    out->capacity = least + draw(seed, &index, most - least + 3);
}

/* Tries every choice in lexicographic order and keeps the first of the best by (loss, cost). */
static void brute_force(const instance *in, size_t *best, calm_knapsack_total *total)
{
    size_t choice[MAX_UNITS] = {0};
    bool found = false;
    for (;;) {
        uint64_t cost = 0;
        double loss = 0;
        for (size_t u = 0; u < in->n; u++) {
            cost += in->options[u][choice[u]].cost;
            loss += in->options[u][choice[u]].loss;
        }
        if (cost <= in->capacity
            && (!found || loss < total->loss || (loss == total->loss && cost < total->cost))) {
            found = true;
            memcpy(best, choice, sizeof choice);
            *total = (calm_knapsack_total){.cost = cost, .loss = loss};
        }
        size_t u = in->n;
        while (u > 0 && ++choice[u - 1] == in->units[u - 1].n)
            choice[--u] = 0;
        if (u == 0)
            return;
    }
}

TEST(small_instances_against_brute_force)
{
    size_t tight = 0;
    for (uint64_t seed = 0; seed < 24000; seed++) {
        instance in;
        size_t choice[MAX_UNITS], best[MAX_UNITS];
        calm_knapsack_total total, expected = {0};
        make(&recipes[seed % (sizeof recipes / sizeof *recipes)], seed, &in);
        brute_force(&in, best, &expected);
        ck_ok(calm_knapsack(ctx, in.units, in.n, in.capacity, choice, &total));
        ck_assert_msg(total.loss == expected.loss && total.cost == expected.cost,
                      "seed %d: %g in %d, expected %g in %d", (int)seed, total.loss, (int)total.cost, expected.loss,
                      (int)expected.cost);
        for (size_t u = 0; u < in.n; u++)
            ck_assert_msg(choice[u] == best[u], "seed %d: unit %d has %d, expected %d", (int)seed, (int)u,
                          (int)choice[u], (int)best[u]);
        tight += total.cost + 5 > in.capacity;
    }
    ck_assert_uint_gt(tight, 1000);
    ck_assert_uint_eq(ctx->scratch->used_bytes, 0);
}
END_OF_TEST

/* Losses of any double: the choice may be worse than the best by the rounding of n losses, n 2^-61 of the sum of
 * ranges (below n here), and by that of two sums in double, n^2 2^-53 of the largest loss. */
TEST(losses_that_are_no_multiples)
{
    for (uint64_t seed = 0; seed < 3000; seed++) {
        instance in;
        size_t choice[MAX_UNITS], best[MAX_UNITS];
        calm_knapsack_total total, expected = {0};
        make(&recipes[2], seed, &in);
        for (size_t u = 0; u < in.n; u++)
            for (size_t j = 0; j < in.units[u].n; j++)
                in.options[u][j].loss = exp(-20 * calm_rng_uniform(seed, 2, u * MAX_OPTIONS + j));
        brute_force(&in, best, &expected);
        ck_ok(calm_knapsack(ctx, in.units, in.n, in.capacity, choice, &total));
        ck_assert_uint_le(total.cost, in.capacity);
        ck_near(total.loss, expected.loss, 2 * MAX_UNITS * MAX_UNITS * 0x1p-53);
    }
}
END_OF_TEST

/* ---- real shapes ---- */

typedef struct shape {
    uint64_t out, in;
} shape;

/* Sets the bits of w2 g64, w3 g128, w4 g128, and w8 with a scale per row: codes and scales of 16 bits. */
static void bits_of(shape s, calm_knapsack_option options[4])
{
    const uint64_t weights = s.out * s.in;
    options[0].cost = 2 * weights + 16 * (weights / 64);
    options[1].cost = 3 * weights + 16 * (weights / 128);
    options[2].cost = 4 * weights + 16 * (weights / 128);
    options[3].cost = 8 * weights + 16 * s.out;
}

/* Draws losses that fall by factors of about 5, 4 and 20 from width to width, from a start that differs between
 * units. */
static void losses_of(uint64_t seed, uint64_t u, calm_knapsack_option options[4])
{
    static const double falls[] = {1, 5, 4, 20};
    double loss = exp(3 * calm_rng_normal(seed, 7, u) / 2);
    for (size_t j = 0; j < 4; j++) {
        loss /= falls[j] * (0.7 + 0.6 * calm_rng_uniform(seed, 8, 4 * u + j));
        options[j].loss = loss;
    }
}

static calm_knapsack_unit *model(uint64_t seed, const shape *shapes, size_t n_shapes, size_t n, uint64_t *weights)
{
    calm_knapsack_unit *units;
    calm_knapsack_option *options;
    ck_ok(CALM_NEW(ctx, ctx->out, units, n));
    ck_ok(CALM_NEW(ctx, ctx->out, options, 4 * n));
    *weights = 0;
    for (size_t u = 0; u < n; u++) {
        shape s = shapes[u % n_shapes];
        units[u] = (calm_knapsack_unit){4, options + 4 * u};
        bits_of(s, options + 4 * u);
        losses_of(seed, u, options + 4 * u);
        *weights += s.out * s.in;
    }
    return units;
}

/* Returns the bits of all weights at `width` bits each. */
static uint64_t budget(uint64_t weights, double width)
{
    return (uint64_t)((double)weights * width);
}

static const shape qwen3_8b[] = {{6144, 4096}, {4096, 4096}, {24576, 4096}, {4096, 12288}};

/* Returns the least loss at every cost up to the capacity in steps of `unit` bits: O(n C), in double. */
static double table_loss(const calm_knapsack_unit *units, size_t n, uint64_t capacity, uint64_t unit)
{
    size_t size = capacity / unit + 1;
    double *best, *next;
    ck_ok(CALM_NEW(ctx, ctx->scratch, best, size));
    ck_ok(CALM_NEW(ctx, ctx->scratch, next, size));
    for (size_t u = 0; u < n; u++) {
        for (size_t c = 0; c < size; c++)
            next[c] = INFINITY;
        for (size_t j = 0; j < units[u].n; j++) {
            size_t cost = units[u].options[j].cost / unit;
            ck_assert_uint_eq(cost * unit, units[u].options[j].cost);
            for (size_t c = cost; c < size; c++)
                next[c] = fmin(next[c], best[c - cost] + units[u].options[j].loss);
        }
        double *other = best;
        best = next;
        next = other;
    }
    double loss = best[size - 1];
    calm_arena_clear(ctx->scratch);
    return loss;
}

/* The 36 blocks of Qwen3-8B.  The table's bits are exact, its losses double: n^2 2^-53 of the sum of all. */
TEST(a_real_model_against_a_table)
{
    static const double widths[] = {2.3, 3.5};
    uint64_t weights;
    const size_t n = 144;
    size_t choice[144];
    const calm_knapsack_unit *units = model(1, qwen3_8b, 4, n, &weights);
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        uint64_t capacity = budget(weights, widths[i]);
        calm_knapsack_total total;
        double start = calm_seconds();
        ck_ok(calm_knapsack(ctx, units, n, capacity, choice, &total));
        if (getenv("CALM_TEST_TIMES"))
            printf("%zu units at %g bits: %.3f s, %zu states\n", n, widths[i], calm_seconds() - start, total.n_states);
        ck_assert_uint_le(total.cost, capacity);
        double expected = table_loss(units, n, capacity, 1 << 15);
        ck_near(total.loss, expected, (double)(n * n) * 0x1p-53 * expected);
    }
}
END_OF_TEST

/* Seven units in each of eighteen blocks, as if every linear were a unit. */
TEST(every_linear_a_unit)
{
    static const shape linears[] = {{4096, 4096},  {1024, 4096},  {1024, 4096}, {4096, 4096},
                                    {12288, 4096}, {12288, 4096}, {4096, 12288}};
    uint64_t weights;
    size_t choice[126];
    calm_knapsack_total total;
    const calm_knapsack_unit *units = model(2, linears, 7, 126, &weights);
    ck_ok(calm_knapsack(ctx, units, 126, budget(weights, 3.5), choice, &total));
    double expected = table_loss(units, 126, budget(weights, 3.5), 1 << 14);
    ck_near(total.loss, expected, 126.0 * 126 * 0x1p-53 * expected);
}
END_OF_TEST

/* 128 experts in each of 48 blocks, for which the whole frontier is too large.  With `alike` the experts of a block
 * have equal losses, so that most choices tie. */
static void mixture(bool alike)
{
    static const shape expert[] = {{1536, 2048}, {2048, 768}};
    uint64_t weights;
    size_t n = 48 * 128 * 2, *choice;
    const calm_knapsack_unit *units = model(3, expert, 2, n, &weights);
    ck_ok(CALM_NEW(ctx, ctx->out, choice, n));
    for (size_t u = 0; alike && u < n; u++)
        losses_of(3, u / 256 * 256 + u % 2, (calm_knapsack_option *)units[u].options);
    for (double width = 2.5; width < 8; width += 1) {
        uint64_t capacity = budget(weights, width);
        calm_knapsack_total total;
        double start = calm_seconds();
        ck_ok(calm_knapsack(ctx, units, n, capacity, choice, &total));
        if (getenv("CALM_TEST_TIMES"))
            printf("%zu units%s at %g bits: %.3f s, %zu states\n", n, alike ? " alike" : "", width,
                   calm_seconds() - start, total.n_states);
        ck_assert_uint_le(total.cost, capacity);
        ck_assert_uint_le(capacity - total.cost, 5 * 1536 * 2048);    /* no room for a whole step is left */
        ck_assert_uint_le(total.n_states, 10000000);
    }
}

TEST(a_mixture_stays_small)
{
    mixture(false);
}
END_OF_TEST

TEST(a_mixture_of_equal_experts)
{
    mixture(true);
}
END_OF_TEST

/* Equal experts: every choice of k of them ties, and the first ones must get the cheaper option. */
TEST(equal_units_go_by_number)
{
    static const calm_knapsack_option options[] = {{100, 3, 0}, {250, 1, 0}};
    calm_knapsack_unit units[4000];
    size_t choice[4000], n = sizeof units / sizeof *units, dear = n / 3;
    calm_knapsack_total total;
    for (size_t u = 0; u < n; u++)
        units[u] = (calm_knapsack_unit){2, options};
    ck_ok(calm_knapsack(ctx, units, n, 100 * n + 150 * dear + 149, choice, &total));
    ck_assert_uint_eq(total.cost, 100 * n + 150 * dear);
    ck_assert(total.loss == (double)(3 * n - 2 * dear));
    for (size_t u = 0; u < n; u++)
        ck_assert_uint_eq(choice[u], u >= n - dear);
}
END_OF_TEST

/* ---- ends ---- */

TEST(capacities_at_the_ends)
{
    static const calm_knapsack_option a[] = {{7, 1, 0}, {3, 2, 0}, {9, 1, 0}}, b[] = {{0, 5, 0}};
    const calm_knapsack_unit units[] = {{3, a}, {1, b}};
    size_t choice[2];
    calm_knapsack_total total;
    ck_ok(calm_knapsack(ctx, units, 2, UINT64_MAX, choice, &total));
    ck_assert_uint_eq(choice[0], 0);    /* not the dearer one with the same loss */
    ck_assert_uint_eq(total.cost, 7);
    ck_assert(total.loss == 6);
    ck_ok(calm_knapsack(ctx, units, 2, 3, choice, &total));
    ck_assert_uint_eq(choice[0], 1);
    ck_fails(calm_knapsack(ctx, units, 2, 2, choice, &total), CALM_EARG, "2 bits, but the smallest plan needs 3");
    ck_ok(calm_knapsack(ctx, units, 0, 0, choice, &total));
    ck_assert_uint_eq(total.cost, 0);
}
END_OF_TEST

TEST(what_is_refused)
{
    calm_knapsack_option a[] = {{1, 0, 0}, {2, 0, 0}}, b[] = {{1, 0, 0}};
    calm_knapsack_unit units[] = {{1, b}, {2, a}};
    size_t choice[2];
    calm_knapsack_total total;
    a[1].loss = NAN;
    ck_fails(calm_knapsack(ctx, units, 2, 9, choice, &total), CALM_ENUMERIC, "the loss of unit 1, option 1 is");
    a[1].loss = -INFINITY;
    ck_fails(calm_knapsack(ctx, units, 2, 9, choice, &total), CALM_ENUMERIC, "the loss of unit 1, option 1 is");
    a[0].loss = 1.7e308;
    a[1].loss = -1.7e308;
    ck_fails(calm_knapsack(ctx, units, 2, 9, choice, &total), CALM_ENUMERIC, "too far apart");
    a[1].loss = 0;
    a[1].cost = ((uint64_t)1 << 63) - 1;
    ck_fails(calm_knapsack(ctx, units, 2, 9, choice, &total), CALM_EARG, "up to unit 1 add up to 2^63");
    a[1].cost = UINT64_MAX;
    ck_fails(calm_knapsack(ctx, units, 2, 9, choice, &total), CALM_EARG, "up to unit 1 add up to 2^63");
    units[0].n = 0;
    ck_fails(calm_knapsack(ctx, units, 2, 9, choice, &total), CALM_EARG, "unit 0 has no options");
}
END_OF_TEST

/* A subset sum of 50-bit costs, for which no bound helps: memory is the limit. */
TEST(a_frontier_without_end)
{
    calm_knapsack_option options[60][2];
    calm_knapsack_unit units[60];
    size_t choice[60];
    uint64_t all = 0;
    calm_knapsack_total total;
    for (size_t u = 0; u < 60; u++) {
        uint64_t cost = calm_rng_u64(5, 1, u) >> 14;
        options[u][0] = (calm_knapsack_option){0};
        options[u][1] = (calm_knapsack_option){.cost = cost, .loss = -(double)cost};
        units[u] = (calm_knapsack_unit){2, options[u]};
        all += cost;
    }
    ck_fails(calm_knapsack(ctx, units, 60, all / 2, choice, &total), CALM_ENOMEM, "offer fewer options per unit");
    ck_assert_uint_eq(ctx->scratch->used_bytes, 0);
}
END_OF_TEST

int main(void)
{
    return run_tests("knapsack", (const TTest *[]){small_instances_against_brute_force, losses_that_are_no_multiples,
                                                   a_real_model_against_a_table, every_linear_a_unit,
                                                   a_mixture_stays_small, a_mixture_of_equal_experts,
                                                   equal_units_go_by_number, capacities_at_the_ends, what_is_refused,
                                                   a_frontier_without_end, NULL});
}
