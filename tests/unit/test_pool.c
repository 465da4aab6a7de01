/* Pools: units, sums, failures of units, and the advice of the activation rule. */
#include "ptq/plan/pool.h"

#include "tests/support/harness.h"

enum { N_JOBS = 3, N_ENTRIES = 2 };

typedef struct bench {
    calm_pool_entry entries[N_ENTRIES];
    calm_pool_job jobs[N_JOBS];
    calm_pool_cell cells[N_JOBS * N_ENTRIES];
    calm_pool pool;
} bench;

/* Makes jobs a and b one unit and c another; entry 1 smooths and quantizes activations. */
static void make(bench *b)
{
    memset(b, 0, sizeof *b);
    for (size_t i = 0; i < N_ENTRIES; i++) {
        b->entries[i] = (calm_pool_entry){.name = i ? "smooth" : "rtn", .smooths = i == 1};
        ck_ok(calm_scheme_parse(ctx, i ? "w8a8" : "w4a16_g128", &b->entries[i].scheme));
    }
    for (size_t j = 0; j < N_JOBS; j++) {
        b->jobs[j] = (calm_pool_job){.name = "job", .unit = test_format("unit %zu", j / 2), .role = "qkv",
                                     .out = 10 * (j + 1), .in = 256, .crest = j ? 7 : 5};
        for (size_t i = 0; i < N_ENTRIES; i++)
            b->cells[j * N_ENTRIES + i].id = 1;
    }
    b->pool = (calm_pool){.entries = b->entries, .n_entries = N_ENTRIES, .jobs = b->jobs, .n_jobs = N_JOBS,
                          .cells = b->cells, .unit = CALM_UNIT_SUBLAYER};
    ck_ok(calm_pool_index(ctx, &b->pool));
}

TEST(units_are_neighbours_of_one_name)
{
    bench b;
    make(&b);
    ck_assert_uint_eq(b.pool.n_units, 2);
    ck_assert_uint_eq(b.pool.unit_begin[1], 2);
    ck_assert_uint_eq(b.pool.unit_begin[2], 3);
    ck_assert_str_eq(calm_pool_unit(&b.pool, 1), "unit 1");
    ck_near(calm_pool_weights(&b.pool, 0, 2), 256 * 30, 0);
    /* 4 bits and a scale of 16 per 128 weights. */
    ck_near(calm_pool_bits(&b.pool, 2, 3, &b.entries[0].scheme), 256 * 30 * 4.125, 0);
    ck_assert(!calm_pool_is_expert(&b.pool, 1));
    b.jobs[2].expert = true;
    ck_assert(calm_pool_is_expert(&b.pool, 1));
    b.pool.unit = CALM_UNIT_BLOCK;
    ck_assert(!calm_pool_is_expert(&b.pool, 1));
}
END_OF_TEST

TEST(a_unit_fails_with_one_of_its_jobs)
{
    bench b;
    make(&b);
    ck_assert_ptr_null(calm_pool_failure(&b.pool, 0, 1));
    b.cells[1 * N_ENTRIES + 1].failure = "died";
    ck_assert_str_eq(calm_pool_failure(&b.pool, 0, 1), "died");
    ck_assert_ptr_null(calm_pool_failure(&b.pool, 0, 0));
    b.cells[0].id = 0;
    ck_assert_str_eq(calm_pool_failure(&b.pool, 0, 0), CALM_NOT_TRIED);
    b.pool.pending = true;    /* a candidate that is still to be computed has not failed */
    ck_assert_ptr_null(calm_pool_failure(&b.pool, 0, 0));
    ck_assert_ptr_null(calm_pool_failure(&b.pool, 0, 1));
}
END_OF_TEST

TEST(the_activation_rule)
{
    bench b;
    bool disagrees;
    make(&b);
    ck_assert_str_eq(calm_pool_advice(&b.pool, 0, 1, &disagrees), "plain");
    ck_assert(disagrees);
    ck_assert_str_eq(calm_pool_advice(&b.pool, 1, 1, &disagrees), "smooth");
    ck_assert(!disagrees);
    ck_assert_ptr_null(calm_pool_advice(&b.pool, 1, 0, &disagrees));    /* only weights are quantized */
    b.jobs[1].crest = NAN;
    ck_assert_ptr_null(calm_pool_advice(&b.pool, 1, 1, &disagrees));
    b.jobs[1].crest = 7;
    b.entries[1].smooths = false;    /* no competing entry smooths */
    ck_assert_ptr_null(calm_pool_advice(&b.pool, 1, 1, &disagrees));
}
END_OF_TEST

int main(void)
{
    return run_tests("pool", (const TTest *[]){units_are_neighbours_of_one_name, a_unit_fails_with_one_of_its_jobs,
                                               the_activation_rule, NULL});
}
