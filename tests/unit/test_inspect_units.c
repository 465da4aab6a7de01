/* Units of a stored run: names, columns of the pool, and the rule applied again. */
#include "cli/inspect/inspect_units.h"

#include "ptq/io/json.h"
#include "tests/support/harness.h"
#include "tests/support/inspect_sample.h"

/* Reads run `run` of the sample. */
static calm_inspect_units read_run(int64_t run)
{
    calm_inspect_units units;
    const char *path = inspect_sample();
    calm_store *store;
    ck_ok(calm_store_open(ctx, path, NULL, &store));
    ck_ok(calm_inspect_units_read(ctx, store, run, NULL, &units));
    calm_store_close(store);
    return units;
}

TEST(columns_are_in_the_order_of_the_recipe)
{
    calm_inspect_units units = read_run(1);
    ck_assert_uint_eq(units.stored.pool.n_entries, 3);
    ck_assert_str_eq(units.stored.pool.entries[0].name, "rtn");    /* the last that was stored */
    ck_assert_str_eq(units.stored.pool.entries[1].name, "gptq");
    ck_assert_str_eq(units.stored.pool.entries[2].name, "gptq-hls");
    ck_assert(!units.budget);
    ck_assert_uint_eq(units.stored.pool.n_units, 4);
    ck_assert_uint_eq(units.chosen[0], 1);
    ck_assert_uint_eq(units.chosen[3], CALM_INSPECT_NONE);
    ck_assert(units.stored.choices[3].decided && units.stored.choices[3].candidate == 0);
    units = read_run(3);
    ck_assert(units.budget);
    ck_assert_str_eq(units.stored.pool.entries[0].name, "gptq w4a16_g128");
    ck_assert_str_eq(units.stored.pool.entries[1].name, "gptq w3a16_g128");
}
END_OF_TEST

TEST(units_without_choices_are_named_as_the_layout_names_them)
{
    const calm_inspect_units units = read_run(4);
    ck_assert_uint_eq(units.stored.pool.n_units, 4);
    ck_assert_str_eq(calm_pool_unit(&units.stored.pool, 0), "model.layers.0.attention");
    ck_assert_str_eq(calm_pool_unit(&units.stored.pool, 3), "model.layers.1.mlp");
    ck_assert(units.seen[0] && !units.seen[1]);
    /* "rtn for gptq" is in gptq's place. */
    ck_assert_uint_eq(units.stored.pool.n_entries, 2);
    ck_assert_str_eq(units.stored.pool.entries[1].name, "gptq");
    ck_assert_str_eq(units.stored.cells[1].algorithm, "rtn for gptq");
    ck_assert(calm_inspect_cell(&units, 0, 1)->metric == 2e-4);
}
END_OF_TEST

TEST(a_unit_has_several_names)
{
    const calm_inspect_units units = read_run(4);
    size_t u;
    ck_ok(calm_inspect_unit_find(ctx, &units.stored.pool, 4, "model.layers.1.attention", &u));
    ck_assert_uint_eq(u, 2);
    ck_ok(calm_inspect_unit_find(ctx, &units.stored.pool, 4, "1.mlp", &u));
    ck_assert_uint_eq(u, 3);
    ck_ok(calm_inspect_unit_find(ctx, &units.stored.pool, 4, "model.layers.0.down", &u));
    ck_assert_uint_eq(u, 1);
    ck_ok(calm_inspect_unit_find(ctx, &units.stored.pool, 4, "0.down", &u));
    ck_assert_uint_eq(u, 1);
    ck_fails(calm_inspect_unit_find(ctx, &units.stored.pool, 4, "0.dwon", &u), CALM_ENOTFOUND,
             "did you mean \"0.down\"?");
    ck_fails(calm_inspect_unit_find(ctx, &units.stored.pool, 4, "qqqqqqqqqqq", &u), CALM_ENOTFOUND,
             "it has model.layers.0.attention");
    const calm_pool none = {0};
    ck_fails(calm_inspect_unit_find(ctx, &none, 9, "x", &u), CALM_ENOTFOUND, "run 9 has no unit \"x\"");
}
END_OF_TEST

TEST(the_rule_takes_what_it_took)
{
    const calm_inspect_units units = read_run(1);
    size_t column;
    const char *reason;
    ck_ok(calm_inspect_choose(ctx, &units, 0, &column, &reason));
    ck_assert_uint_eq(column, 1);
    ck_assert_str_eq(reason, units.stored.choices[0].reason);
    ck_ok(calm_inspect_choose(ctx, &units, 1, &column, &reason));
    ck_assert_uint_eq(column, 2);
    ck_ok(calm_inspect_choose(ctx, &units, 3, &column, &reason));
    ck_assert_str_eq(reason, "the only candidate");
    const calm_inspect_units second = read_run(2);
    ck_ok(calm_inspect_choose(ctx, &second, 0, &column, &reason));
    ck_assert_str_eq(reason, "least rel_mse of 2");
    ck_ok(calm_inspect_choose(ctx, &second, 3, &column, &reason));
    ck_assert_uint_eq(column, CALM_INSPECT_NONE);
    ck_assert_str_eq(reason, "it has no candidate");
    /* A budget decides between schemes, and the rule within one. */
    const calm_inspect_units third = read_run(3);
    ck_ok(calm_inspect_choose(ctx, &third, 0, &column, &reason));
    ck_assert_uint_eq(column, 1);
    calm_inspect_units other = units;
    other.rule = "default";
    other.rule_known = false;
    ck_ok(calm_inspect_choose(ctx, &other, 0, &column, &reason));
    ck_assert_uint_eq(column, CALM_INSPECT_NONE);
    ck_assert_str_eq(reason, "this program has no rule \"default\" of \"cka_token\"");
}
END_OF_TEST

TEST(times_the_least)
{
    ck_assert(calm_inspect_times("cka_token", 3e-4, 1e-4) - 3 < 1e-12);
    ck_assert(calm_inspect_times("cka_token", 0, 0) == 1);
    ck_assert(isinf(calm_inspect_times("cka_token", 1e-9, 0)));
    ck_assert(calm_inspect_times("cka_debiased", -1, -2) == 1.5);
    ck_near(calm_inspect_times("log_rel_mse", -6, -7), exp(1), 1e-15);
    ck_assert(isnan(calm_inspect_times("cka", NAN, 1)) && isnan(calm_inspect_times("cka", 1, NAN)));
}
END_OF_TEST

TEST(too_many_columns_are_refused)
{
    const char *path;
    calm_store *store = inspect_sample_open(&path);
    calm_inspect_units units;
    for (int i = 0; i < 1000; i++) {
        const calm_store_candidate candidate = {.key = test_format("x%d", i), .job_id = 1, .calibration_id = 1,
                                                .algorithm = test_format("a%d", i), .chain = test_format("x%d", i),
                                                .scheme = "w4a16_g128",
                                                .failure = "none", .bits_per_weight = NAN, .damp = NAN};
        int64_t id;
        ck_ok(calm_store_candidate_put(ctx, store, &candidate, &id));
        ck_ok(calm_store_run_candidate(ctx, store, 1, id));
    }
    ck_fails(calm_inspect_units_read(ctx, store, 1, NULL, &units), CALM_EFORMAT,
             "more than 1000 algorithms and schemes");
    calm_store_close(store);
}
END_OF_TEST

int main(void)
{
    return run_tests("inspect_units",
                     (const TTest *[]){columns_are_in_the_order_of_the_recipe,
                                       units_without_choices_are_named_as_the_layout_names_them,
                                       a_unit_has_several_names, the_rule_takes_what_it_took, times_the_least,
                                       too_many_columns_are_refused, NULL});
}
