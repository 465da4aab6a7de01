/* The limit of a recipe. */
#include "ptq/run/memory_plan.h"

#include "ptq/base/memory.h"
#include "tests/support/harness.h"

TEST(limit_of_a_recipe)
{
    calm_recipe recipe = {.memory = "3GB"};
    size_t limit;
    ck_ok(calm_memory_plan_limit(ctx, &recipe, &limit));
    ck_assert_uint_eq(limit, 3000000000);
    recipe.memory = "3x";
    ck_fails(calm_memory_plan_limit(ctx, &recipe, &limit), CALM_EARG, "`memory` 3x");
    /* 70 % of what is free; other processes take and give while this one looks, so within what it sees before and
     * after, and a tenth for what happens between. */
    recipe.memory = NULL;
    const double before = (double)calm_memory_available();
    ck_ok(calm_memory_plan_limit(ctx, &recipe, &limit));
    const double after = (double)calm_memory_available();
    ck_assert_double_ge((double)limit, 0.63 * fmin(before, after));
    ck_assert_double_le((double)limit, 0.77 * fmax(before, after));
}
END_OF_TEST

int main(void)
{
    return run_tests("memory_plan", (const TTest *[]){limit_of_a_recipe, NULL});
}
