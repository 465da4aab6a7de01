/* Numbers in a stored recipe that are none: calm select and calm assemble refuse them.  One that counted as absent
 * would be no budget at all, or another rotation. */
#include "ptq/stored/stored.h"
#include "tests/support/play_select.h"

typedef struct damage {
    const char *key, *value, *message;
} damage;

/* Tries with each damaged value in the recipe of run 1, and restores the recipe. */
static void refused(const play *run, const damage *damaged, size_t n, calm_status (*try)(const play *run))
{
    const char *recipe = play_text(run, "SELECT recipe FROM run WHERE id = 1");
    for (size_t i = 0; i < n; i++) {
        play_sql(run, test_format("UPDATE run SET recipe = json_set(recipe, '$.%s', %s) WHERE id = 1", damaged[i].key,
                                  damaged[i].value));
        ck_fails(try(run), CALM_EFORMAT, damaged[i].message);
        play_sql(run, test_format("UPDATE run SET recipe = '%s' WHERE id = 1", recipe));
    }
}

static calm_status select_from(const play *run)
{
    calm_reselect_options o = play_selecting(run, 1);
    calm_reselected selected;
    o.dry_run = true;
    const calm_status status = calm_reselect(ctx, &o, &selected);
    calm_reselected_clear(&selected);
    return status;
}

static calm_status assemble(const play *run)
{
    calm_assembly assembly;
    const calm_assemble_options how = {.store = run->recipe.store, .run = 1, .output = play_path(run, "again"),
                                       .model = run->recipe.model.dir, .force = true, .command = "test"};
    const calm_status status = calm_reassemble(ctx, &how, &assembly);
    calm_assembly_close(&assembly);
    return status;
}

/* A budget that the user says replaces the stored one, which is not read. */
TEST(budgets)
{
    static const damage damaged[] = {
        {"act_budget", "'7'", "\"act_budget\" of its recipe: expected a number, found a string"},
        {"act_budget", "NULL", "\"act_budget\" of its recipe: expected a number, found null"},
        {"act_budget", "-1", "\"act_budget\" of its recipe: expected a number above 0 and up to 16, found -1"},
        {"act_budget", "17", "\"act_budget\" of its recipe: expected a number above 0 and up to 16, found 17"},
        {"select", "json('{\"act_budget\": [7]}')", "\"act_budget\" of its recipe: expected a number, found an array"},
        {"budget", "4.5", "\"budget\" of its recipe: expected an array, found a number"},
        {"budget", "json('[\"4.5\"]')", "\"budget\" of its recipe: expected a number, found a string"},
        {"budget", "json('[0]')", "\"budget\" of its recipe: expected a number above 0 and up to 32, found 0"},
        {"select", "json('{\"budget\": true}')", "\"budget\" of its recipe: expected a number, found true or false"}};
    play run = play_new(NULL, "w4a8_g16,w4a16_g16", "rtn");
    double budget[] = {INFINITY};
    run.recipe.budgets = budget;
    run.recipe.n_budgets = 1;
    run.recipe.act_budget = 12;
    play_must_run(&run);
    ck_ok(select_from(&run));
    refused(&run, damaged, sizeof damaged / sizeof *damaged, select_from);
    /* calm assemble lists the trials, which depend on the budgets of the run itself. */
    const damage own[] = {damaged[0], damaged[2], damaged[5], damaged[6]};
    ck_ok(assemble(&run));
    refused(&run, own, sizeof own / sizeof *own, assemble);
    calm_reselect_options o = play_selecting(&run, 1);
    calm_reselected selected;
    o.dry_run = true;
    o.act_budget = 12;
    play_sql(&run, "UPDATE run SET recipe = json_set(recipe, '$.act_budget', '7') WHERE id = 1");
    ck_ok(calm_reselect(ctx, &o, &selected));
    calm_reselected_clear(&selected);
}
END_OF_TEST

TEST(seed_of_the_rotation)
{
    static const damage damaged[] = {
        {"rotate_seed", "'5'", "\"rotate_seed\" of its recipe: expected a whole number, found a string"},
        {"rotate_seed", "5.5", "\"rotate_seed\" of its recipe: expected a whole number, found a number"}};
    play run = play_new(NULL, "w4a16_g16", "rtn");
    run.recipe.rotate = CALM_ROTATE_R1R2;
    run.recipe.rotate_seed = 5;
    play_must_run(&run);
    ck_ok(assemble(&run));
    refused(&run, damaged, sizeof damaged / sizeof *damaged, assemble);
}
END_OF_TEST

int main(void)
{
    return run_tests("stored_numbers", (const TTest *[]){budgets, seed_of_the_rotation, NULL});
}
