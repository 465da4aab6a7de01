/* The factor of the choice rule's shortlist (`choice.shortlist`): used by a run, stored with it, and changed by calm
 * select. */
#include "tests/support/play_select.h"

/* Returns the candidate and the reason of every job of a run. */
static const char *decided(const play *run, int64_t of)
{
    return play_text(run, test_format("SELECT job_id || ' ' || candidate_id || ' ' || reason FROM choice"
                                      " WHERE run_id = %lld ORDER BY job_id", (long long)of));
}

/* Returns the number of jobs whose chosen candidate does not have the least log_rel_mse. */
static int64_t not_least_error(const play *run, int64_t of)
{
    return play_sql(run, test_format(
        "SELECT count(*) FROM choice c JOIN candidate k ON k.id = c.candidate_id JOIN score s ON s.candidate_id = k.id"
        " AND s.unit = 'job' AND s.metric = 'log_rel_mse' WHERE c.run_id = %lld AND s.value > (SELECT min(t.value)"
        " FROM candidate l JOIN score t ON t.candidate_id = l.id AND t.unit = 'job' AND t.metric = 'log_rel_mse'"
        " WHERE l.job_id = c.job_id)", (long long)of));
}

static const char *factor_of(const play *run, int64_t of, const char *member)
{
    return play_text(run, test_format("SELECT coalesce(json_extract(recipe, '$.%s.shortlist'), 'none') || ';' FROM run"
                                      " WHERE id = %lld", member, (long long)of));
}

/* Another factor computes nothing; it is stored with the selection and holds for selections of it. */
TEST(another_shortlist)
{
    play run = play_new(NULL, "w4a4_g16", "rtn,gptq,smoothquant,mkq");
    run.recipe.selection.shortlist = 1;
    play_must_run(&run);
    ck_assert_str_eq(factor_of(&run, 1, "choice"), "1.0;\n");
    const int64_t candidates = play_sql(&run, "SELECT count(*) FROM candidate");
    calm_reselect_options o = play_selecting(&run, 1);
    o.shortlist = CALM_SHORTLIST_MAX;
    const int64_t wide = play_select(&o);
    ck_assert_int_eq(not_least_error(&run, wide), 0);
    ck_assert_str_eq(factor_of(&run, wide, "select"), "1000000.0;\n");
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM choice WHERE run_id = 2 AND reason LIKE"
                                    " 'least log_rel_mse of 4 within 1e+06 of the least cka_token%'"), 8);
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM candidate"), candidates);
    /* A selection of a selection without options is the same. */
    const calm_reselect_options again = play_selecting(&run, wide);
    ck_assert_str_eq(decided(&run, play_select(&again)), decided(&run, wide));
    o = play_selecting(&run, wide);
    o.shortlist = 1;
    ck_assert_str_eq(decided(&run, play_select(&o)), decided(&run, 1));
    /* A run without the key in its recipe had 1.05, as has a run whose recipe has an invalid value. */
    play_sql(&run, "UPDATE run SET recipe = json_remove(recipe, '$.choice.shortlist') WHERE id = 1");
    o = play_selecting(&run, 1);
    const int64_t before = play_select(&o);
    ck_assert_str_eq(factor_of(&run, before, "select"), "1.05;\n");
    play_sql(&run, "UPDATE run SET recipe = json_set(recipe, '$.choice.shortlist', 0.5) WHERE id = 1");
    ck_assert_str_eq(factor_of(&run, play_select(&o), "select"), "1.05;\n");
    /* The rule argmax has no shortlist and refuses one; a selection of such a run does too. */
    o.shortlist = 2;
    o.rule = CALM_CHOICE_RULE_ARGMAX;
    play_select_fails(&o, CALM_EARG,
                      "`choice.shortlist` 2: the rule argmax takes the least score and has no shortlist");
    o.shortlist = 0;
    const int64_t argmax = play_select(&o);
    ck_assert_str_eq(factor_of(&run, argmax, "select"), "none;\n");
    o = play_selecting(&run, argmax);
    o.shortlist = 2;
    play_select_fails(&o, CALM_EARG, "the rule argmax of the run takes the least score");
}
END_OF_TEST

int main(void)
{
    return run_tests("shortlist", (const TTest *[]){another_shortlist, NULL});
}
