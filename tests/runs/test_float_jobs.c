/* Units with jobs that stay float: those jobs have no scores, measurements and choices. */
#include "ptq/stored/stored.h"
#include "tests/support/run_rooms.h"
#include "tests/support/play_select.h"

/* Checks that a unit's rows, scores and choices are of its quantized jobs only, and that a second run finds them. */
static void check_float_jobs(const tiny_model *spec, const char *kept, const char *job, const char *scheme, int units)
{
    play first = play_new(spec, scheme, "rtn,gptq");
    first.recipe.keep_float = (calm_words){.of = &kept, .n = kept != NULL};
    for (calm_unit unit = CALM_UNIT_SUBLAYER; unit <= CALM_UNIT_BLOCK; unit++) {
        const char *name = calm_unit_name(unit);
        play run = play_elsewhere(&first, name), again;
        run.recipe.selection.unit = unit;
        run.recipe.selection.point = calm_unit_point(unit);
        run.recipe.score_points = (1u << CALM_N_POINTS) - 1;
        again = run;
        play_must_run(&run);
        ck_assert_int_eq(play_sql(&run, "SELECT count(DISTINCT unit) FROM choice"),
                         unit == CALM_UNIT_BLOCK ? 2 : units);
        /* Experts with few tokens are rounded to nearest whatever the algorithm is. */
        ck_assert_int_eq(play_sql(&run, "SELECT max(n) FROM (SELECT count(DISTINCT k.algorithm_id) n FROM choice c JOIN"
                                        " candidate k ON k.id = c.candidate_id JOIN job j ON j.id = k.job_id"
                                        " WHERE j.name NOT LIKE '%.experts.%' GROUP BY c.unit)"), 1);
        ck_assert_int_eq(play_sql(&run, test_format("SELECT count(*) FROM v_scores WHERE job = '%s'", job)), 0);
        /* One value per block and algorithm, which each quantized job has. */
        ck_assert_int_eq(play_sql(&run, "SELECT count(DISTINCT s.value) FROM v_scores s WHERE s.unit = 'block' AND"
                                        " s.metric = 'rel_mae'"), 4);
        ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM v_scores WHERE unit = 'block' AND metric = 'rel_mae'"),
                         play_sql(&run, "SELECT count(*) FROM candidate"));
        again.recipe.output = play_path(&run, test_format("%s-again", name));
        again.threads = 3;
        ck_assert_int_eq((int64_t)play_must_run(&again).cached, play_sql(&run, "SELECT count(*) FROM candidate"));
        ck_assert_str_eq(play_digest(again.recipe.output), play_digest(run.recipe.output));
        const calm_reselect_options selecting = play_selecting(&run, 1);
        ck_assert_int_gt(play_select(&selecting), 1);
    }
}

TEST(jobs_that_stay_float_take_no_part)
{
    const tiny_model latent = tiny_of("deepseek_v3"), delta = tiny_of("qwen3_5");
    /* The units of a block are attention, the shared expert and the routed experts. */
    check_float_jobs(&latent, NULL, "kv_b", "w4a16_g8", 2 * (2 + (int)latent.n_experts));
    check_float_jobs(&delta, NULL, "delta_ba", "w4a16_g8", 4);
    check_float_jobs(NULL, "re:.*down_proj", "down", "w4a16_g16", 4);
}
END_OF_TEST

int main(void)
{
    return run_tests("float_jobs", (const TTest *[]){jobs_that_stay_float_take_no_part, NULL});
}
