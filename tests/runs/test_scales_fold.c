/* Channel scales of schemes whose own scales cannot absorb a factor: norms absorb them, and o and down have none. */
#include "tests/support/run_rooms.h"
#include "tests/support/play.h"

#define SCALED                                                                                                         \
    "SELECT count(*) FROM candidate a JOIN candidate b ON a.job_id = b.job_id AND a.scheme = b.scheme"                 \
    " JOIN algorithm na ON na.id = a.algorithm_id JOIN algorithm nb ON nb.id = b.algorithm_id"                         \
    " JOIN job j ON j.id = a.job_id WHERE na.name = 'smoothquant' AND nb.name = 'rtn' AND a.failure IS NULL"           \
    " AND a.scheme = '%s' AND j.role %s ('o', 'down') AND a.blob %s b.blob"

/* Checks the number of jobs, of 2 blocks, whose smoothed candidate differs from rtn's: `norms` of the jobs after
 * norms, `rows` of the others. */
static void check_scaled(const play *run, const char *scheme, int64_t norms, int64_t rows)
{
    ck_assert_int_eq(play_sql(run, test_format(SCALED, scheme, "NOT IN", "<>")), norms);
    ck_assert_int_eq(play_sql(run, test_format(SCALED, scheme, "NOT IN", "=")), 4 - norms);
    ck_assert_int_eq(play_sql(run, test_format(SCALED, scheme, "IN", "<>")), rows);
    ck_assert_int_eq(play_sql(run, test_format(SCALED, scheme, "IN", "=")), 4 - rows);
}

/* A uniform run with such scales is written, and measured as planned. */
TEST(norms_take_them)
{
    const play run = play_new(NULL, "nvfp4a16", "rtn,smoothquant"), alone = play_elsewhere(&run, "alone");
    play_must_run(&run);
    check_scaled(&run, "nvfp4a16", 4, 0);
    play smooth = alone;
    play_pool(&smooth, NULL, "smoothquant");
    play_must_run(&smooth);
    ck_assert_int_eq(play_sql(&smooth, "SELECT count(*) FROM v_choices WHERE algorithm = 'smoothquant'"), 8);
}
END_OF_TEST

/* While o and down are computed the scheme of the linears before them is not yet chosen, so all schemes of a pool
 * must fold.  Candidates of such a pool are not used by a pool that would compute others. */
TEST(of_several_schemes_all_must_fold)
{
    play both = play_new(NULL, "w4a16_g16,nvfp4a16", "rtn,smoothquant"), one = play_elsewhere(&both, "one");
    play_must_run(&both);
    check_scaled(&both, "nvfp4a16", 4, 0);
    check_scaled(&both, "w4a16_g16", 4, 0);
    one.recipe.store = both.recipe.store;
    play_pool(&one, "w4a16_g16", "rtn,smoothquant");
    ck_assert_uint_eq(play_must_run(&one).cached, 12);    /* all but smoothquant's at o and down */
    ck_assert_int_eq(play_sql(&one, "SELECT count(*) FROM candidate k JOIN algorithm a ON a.id = k.algorithm_id"
                                    " JOIN job j ON j.id = k.job_id WHERE a.name = 'smoothquant'"
                                    " AND k.scheme = 'w4a16_g16' AND j.role IN ('o', 'down')"), 8);
}
END_OF_TEST

int main(void)
{
    return run_tests("scales_fold", (const TTest *[]){norms_take_them, of_several_schemes_all_must_fold, NULL});
}
