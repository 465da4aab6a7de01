/* A guard that cannot decide between the hybrid and a uniform run, within a standard error, on its first windows: it
 * measures more windows.
 *
 * Which plan is better depends on the tiny model, so the test changes the stored losses of the first windows: there
 * uniform rtn is worse than the hybrid by less than an error.  On the windows that are then measured it is far
 * worse, since it has 2-bit absmax grids where the hybrid has fitted ones. */
#include "tests/support/play.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ptq/base/file.h"
#include "ptq/stored/stored.h"

/* Sets the stored losses of a uniform run to the hybrid's plus `first` in window 0 and `second` in the others.  A
 * loss is the sum of KL for decoders and 1 - cosine for encoders. */
static void claim(const play *run, const char *subject, double first, double second)
{
    for (int window = 0; window < 3; window++) {
        const double more = window ? second : first;
        play_sql(run, test_format("UPDATE evaluation_window SET (kl, cosine) = (SELECT h.kl + %g, h.cosine - %g FROM"
                                  " evaluation_window h JOIN run_evaluation v ON v.evaluation_id = h.evaluation_id"
                                  " WHERE v.role = 'guard' AND v.subject = 'hybrid' AND v.run_id = 2 AND"
                                  " h.number = %d) WHERE number = %d AND evaluation_id = (SELECT evaluation_id FROM"
                                  " run_evaluation WHERE run_id = 2 AND role = 'guard' AND subject = '%s')", more,
                                  more, window, window, subject));
    }
    play_sql(run, test_format("UPDATE evaluation SET (kl, cosine) = (SELECT sum(kl) / sum(tokens), avg(cosine) FROM"
                              " evaluation_window WHERE evaluation_id = evaluation.id) WHERE id = (SELECT evaluation_id"
                              " FROM run_evaluation WHERE run_id = 2 AND role = 'guard' AND subject = '%s')", subject));
}

/* Returns the same run with another output; everything it needs is in the store. */
static play again_as(const play *run, const char *name)
{
    play other = *run;
    other.recipe.output = play_path(run, name);
    return other;
}

/* Makes a run whose hybrid has rtn in one kind of job only, and uniform rtn worse by less than an error; all other
 * uniform runs are the same (`all`) or far worse. */
static play tied_with(play first, bool all)
{
    play_must_run(&first);
    play_sql(&first, "UPDATE score SET value = 1e-9 WHERE candidate_id IN (SELECT c.id FROM candidate c JOIN algorithm"
                     " a ON a.id = c.algorithm_id JOIN job j ON j.id = c.job_id WHERE a.name = 'rtn' AND"
                     " j.role = 'o')");
    const play second = again_as(&first, "second");
    play_must_run(&second);
    claim(&second, "rtn", 0.3, -0.1);
    for (size_t i = 0; i < first.recipe.n_pool; i++)
        if (strcmp(first.recipe.pool[i].name, "rtn") != 0)
            claim(&second, first.recipe.pool[i].name, all ? 0.3 : 9, all ? -0.1 : 9);
    return again_as(&first, "tied");
}

static play tied(play first)
{
    return tied_with(first, false);
}

static play of_text(const char *algorithms)
{
    return play_new(NULL, "w2a16_g16", algorithms);
}

static void expect_verdict(const outcome *said, const char *result, const char *words)
{
    ck_assert_msg(strcmp(said->result, result) == 0 && strstr(said->verdict, words), "%s: %s", said->result,
                  said->verdict);
}

TEST(a_tie_is_measured_on)
{
    const play run = tied(of_text("rtn,gptq-hls"));
    const outcome said = play_must_run(&run);
    expect_verdict(&said, "hybrid", "next is uniform rtn: +");
    expect_verdict(&said, "hybrid", "(6 windows, 3 more than the first 3, which could not decide)");
    /* Evaluations on all windows are stored in addition to those on the first windows, for the two tied plans only;
     * the third plan was already out. */
    ck_assert_str_eq(play_text(&run, "SELECT v.subject || ' ' || e.n_windows || ' ' || (SELECT count(*) FROM"
                                     " evaluation_window w WHERE w.evaluation_id = e.id) FROM run_evaluation v JOIN"
                                     " evaluation e ON e.id = v.evaluation_id WHERE v.role = 'guard_more' AND v.run_id"
                                     " = 3 ORDER BY v.subject"), "hybrid 6 6\nrtn 6 6\n");
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM run_evaluation WHERE role = 'guard' AND run_id = 3"), 3);
    ck_assert_int_eq(play_sql(&run, "SELECT delta_kl > delta_se AND delta_se > 0 FROM run_evaluation WHERE role ="
                                    " 'guard_more' AND subject = 'rtn'"), 1);
    /* Means are over all windows, including the changed ones. */
    ck_assert_int_eq(play_sql(&run, "SELECT abs(e.kl - (SELECT sum(w.kl) / sum(w.tokens) FROM evaluation_window w WHERE"
                                    " w.evaluation_id = e.id)) < 1e-12 FROM run_evaluation v JOIN evaluation e ON e.id"
                                    " = v.evaluation_id WHERE v.role = 'guard_more' AND v.subject = 'rtn'"), 1);
    /* A repeated run measures nothing and gives the same verdict. */
    const int64_t measured = play_sql(&run, "SELECT count(*) FROM evaluation");
    const play same = again_as(&run, "same");
    const outcome twice = play_must_run(&same);
    ck_assert_str_eq(twice.verdict, said.verdict);
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM evaluation"), measured);
    ck_assert_str_eq(play_digest(same.recipe.output), play_digest(run.recipe.output));
    /* A model card written from the store has the same figures. */
    const calm_assemble_options how = {.store = run.recipe.store, .run = 3, .output = play_path(&run, "assembled"),
                                       .command = "calm test"};
    calm_assembly assembly;
    ck_ok(calm_reassemble(ctx, &how, &assembly));
    for (size_t i = 0; i < assembly.result.n_trials; i++) {
        const calm_trial *trial = &assembly.result.trials[i];
        const bool compared = strcmp(trial->name, "gptq-hls") != 0;
        ck_assert_uint_eq(trial->more.windows, compared ? 6 : 0);
        ck_assert(trial->id && (!compared || isfinite(calm_measure_loss(&trial->more.measure))));
    }
    calm_assembly_close(&assembly);
}
END_OF_TEST

/* Codes that the store has dropped are computed again, block by block, for the additional windows
 * (guard_recompute.c).  The figures are those of a store that keeps codes. */
TEST(ties_of_dropped_codes)
{
    tiny_model spec = tiny_default;
    spec.n_blocks = 3;
    spec.hidden = 64;
    spec.inner = 1536;    /* large enough that rows take less than codes */
    play first = play_new(&spec, "w2a16_g16", "rtn,gptq,gptq-hls");
    first.recipe.force = true;          /* both runs of a store write to the same output */
    first.recipe.keep_hybrid = true;    /* so that all uniform runs lose */
    play keeps = play_elsewhere(&first, "keeps");
    keeps.recipe.keep_candidates = true;
    play run = tied_with(first, true), kept = tied_with(keeps, true);
    run.recipe.keep_hybrid = kept.recipe.keep_hybrid = false;
    const outcome said = play_must_run(&run), expected = play_must_run(&kept);
    ck_assert_msg(strstr(said.log, "computed again") && !strstr(expected.log, "computed again"), "%s", said.log);
    ck_assert_str_eq(said.verdict, expected.verdict);
    ck_assert_int_ge(play_sql(&run, "SELECT count(*) FROM run_evaluation WHERE role = 'guard_more'"), 4);
    const char *more = "SELECT v.subject || ' ' || e.n_windows || ' ' || (SELECT group_concat(nll || ' ' || kl) FROM"
                       " (SELECT * FROM evaluation_window WHERE evaluation_id = e.id ORDER BY number)) FROM"
                       " run_evaluation v JOIN evaluation e ON e.id = v.evaluation_id WHERE v.role = 'guard_more'"
                       " ORDER BY v.subject";
    ck_assert_str_eq(play_text(&run, more), play_text(&kept, more));
    ck_assert_str_eq(play_list(&run, ".guard"), "");
}
END_OF_TEST

/* The text has no further windows, so the simpler plan is taken, and the verdict says so. */
TEST(without_more_windows_the_simpler_is_taken)
{
    play run = of_text("rtn,gptq-hls");
    char text[1024] = "";
    for (size_t i = 0; i < 7; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "\"A line says as much as it has: %zu.\"\n", i);
    run.recipe.calib_path = play_path(&run, "seven.jsonl");
    ck_ok(calm_write_file(ctx, run.recipe.calib_path, text, strlen(text)));
    run = tied(run);
    const outcome said = play_must_run(&run);
    expect_verdict(&said, "rtn", "is the simpler plan and within one paired standard error of the hybrid: +");
    expect_verdict(&said, "rtn", "(3 windows)");
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM run_evaluation WHERE role = 'guard_more'"), 0);
}
END_OF_TEST

/* No more windows are measured if the hybrid is kept anyway, or nothing is compared. */
TEST(no_more_than_the_decision_needs)
{
    play run = tied(of_text("rtn,gptq-hls"));
    run.recipe.keep_hybrid = true;
    const outcome kept = play_must_run(&run);
    expect_verdict(&kept, "hybrid", "within one paired standard error");
    expect_verdict(&kept, "hybrid", "(3 windows); the hybrid is kept");
    play none = again_as(&run, "none");
    none.recipe.keep_hybrid = false;
    none.recipe.guard_windows = 0;
    const outcome unguarded = play_must_run(&none);
    expect_verdict(&unguarded, "hybrid", "no windows were left for the guard");
    /* A simpler plan with less loss needs no further windows. */
    claim(&run, "rtn", 0.1, -0.3);
    play better = again_as(&run, "better");
    better.recipe.keep_hybrid = false;
    const outcome said = play_must_run(&better);
    expect_verdict(&said, "rtn", "has the least KL");
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM run_evaluation WHERE role = 'guard_more'"), 0);
}
END_OF_TEST

/* Restores the store's database from a copy; blobs stay. */
static void put_back(const play *run, const char *kept)
{
    unlink(test_format("%s-wal", run->recipe.store));
    unlink(test_format("%s-shm", run->recipe.store));
    unlink(run->recipe.store);
    ck_ok(calm_copy_file(ctx, kept, run->recipe.store));
}

static const char *compared(const play *run)
{
    return play_text(run, "SELECT v.role || ' ' || v.subject || ' ' || e.key || ' ' || e.n_windows || ' ' || e.kl ||"
                          " ' ' || coalesce(v.delta_kl, '') || ' ' || coalesce(v.delta_se, '') FROM run_evaluation v"
                          " JOIN evaluation e ON e.id = v.evaluation_id WHERE v.role LIKE 'guard%' AND v.run_id ="
                          " (SELECT max(id) FROM run) ORDER BY 1");
}

/* Killed around the guard's calls, a run uses the plans that were measured on the additional windows and ends the
 * same. */
TEST(killed_between_added_windows)
{
    enum { STEP = 4, PLANS = 2, ADDED = 3 };
    play run = of_text("rtn,gptq-hls");
    long seen[PLANS + 1] = {0};
    run.recipe.keep_candidates = true;    /* so that the copied rows keep their blobs */
    run = tied(run);
    run.recipe.force = true;
    const char *kept = play_path(&run, "kept.db"), *count = "SELECT count(*) FROM evaluation";
    ck_ok(calm_copy_file(ctx, run.recipe.store, kept));
    const int64_t before = play_sql(&run, count);
    const outcome whole = play_must_run(&run);
    const char *expected = play_digest(run.recipe.output), *figures = compared(&run);
    /* Both plans and the float model are measured at once. */
    ck_assert_uint_eq(whole.guarded, (PLANS + 1) * ADDED);
    /* Candidates exist and little is written before the guard; what follows the guard makes half of the calls. */
    for (long at = whole.calls / 4; at < whole.calls / 2; at += STEP) {
        put_back(&run, kept);
        ck_assert(play_run(&run, (fault){.at = at}).killed);
        const size_t put = (size_t)(play_sql(&run, count) - before), measured = put < PLANS ? put : PLANS;
        const outcome said = play_must_run(&run);
        /* If both plans are measured the float model is not needed. */
        ck_assert_msg(said.guarded == (measured < PLANS ? PLANS + 1 - measured : 0) * ADDED,
                      "call %ld: %zu of %d plans were measured, and then %zu windows", at, measured, PLANS,
                      said.guarded);
        ck_assert_msg(strcmp(play_digest(run.recipe.output), expected) == 0, "call %ld: other bytes", at);
        ck_assert_str_eq(said.verdict, whole.verdict);
        ck_assert_str_eq(compared(&run), figures);
        seen[measured]++;
    }
    for (size_t i = 0; i <= PLANS; i++)
        ck_assert_int_gt(seen[i], 0);
}
END_OF_TEST

/* Sentences: cosines of both parts are joined; rank correlations, which need pairs across the parts, are not. */
TEST(an_encoder_measures_on)
{
    const tiny_model bert = tiny_of("bert");
    const play run = tied(play_new(&bert, "w2a16_g16", "rtn,gptq-hls"));
    const outcome said = play_must_run(&run);
    ck_assert_msg(strstr(said.verdict, "1 - cosine"), "%s", said.verdict);
    ck_assert_msg(strstr(said.verdict, "more than the first 3, which could not decide)"), "%s", said.verdict);
    ck_assert_str_eq(play_text(&run, "SELECT v.subject || ' ' || (e.n_windows > 3) || ' ' || (SELECT count(*) ="
                                     " e.n_windows FROM evaluation_window w WHERE w.evaluation_id = e.id) || ' ' ||"
                                     " (e.spearman IS NULL) FROM run_evaluation v JOIN evaluation e ON e.id ="
                                     " v.evaluation_id WHERE v.role = 'guard_more' AND v.run_id = 3 ORDER BY"
                                     " v.subject"), "hybrid 1 1 1\nrtn 1 1 1\n");
    /* Every sentence has the same weight, and the comparison is of these means. */
    ck_assert_int_eq(play_sql(&run, "SELECT max(abs(e.cosine - (SELECT avg(w.cosine) FROM evaluation_window w WHERE"
                                    " w.evaluation_id = e.id))) < 1e-12 FROM run_evaluation v JOIN evaluation e ON e.id"
                                    " = v.evaluation_id WHERE v.role = 'guard_more'"), 1);
    ck_assert_int_eq(play_sql(&run, "SELECT abs(r.delta_one_minus_cosine - (h.cosine - e.cosine)) < 1e-12 FROM"
                                    " run_evaluation r JOIN evaluation e ON e.id = r.evaluation_id JOIN run_evaluation"
                                    " v USING (run_id, role) JOIN evaluation h ON h.id = v.evaluation_id WHERE role ="
                                    " 'guard_more' AND r.subject = 'rtn' AND v.subject = 'hybrid'"), 1);
    const play same = again_as(&run, "same");
    const outcome twice = play_must_run(&same);
    ck_assert_str_eq(twice.verdict, said.verdict);
    ck_assert_uint_eq(twice.guarded, 0);
    ck_assert_str_eq(play_digest(same.recipe.output), play_digest(run.recipe.output));
}
END_OF_TEST

/* If all units of a width chose one algorithm, the guard compares that plan once, under the algorithm's name, and
 * calm assemble finds it. */
TEST(a_plan_is_compared_once)
{
    double bits = 4.5;
    play run = play_new(NULL, "w3a16_g16,w4a16_g16", "gptq"), again = play_elsewhere(&run, "again");
    calm_assembly assembly;
    const calm_assemble_options o = {.store = run.recipe.store, .run = 1, .output = again.recipe.output,
                                     .model = run.recipe.model.dir};
    run.recipe.budgets = &bits;
    run.recipe.n_budgets = 1;
    run.recipe.keep_hybrid = true;
    play_must_run(&run);
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM run_evaluation WHERE role = 'guard'"), 2);
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM run_evaluation WHERE role = 'guard' AND subject ="
                                    " 'gptq w3a16_g16' AND delta_kl IS NOT NULL"), 1);
    ck_ok(calm_reassemble(ctx, &o, &assembly));
    ck_assert_uint_eq(assembly.result.n_trials, 2);
    ck_assert_str_eq(assembly.result.trials[1].name, "gptq w3a16_g16");
    calm_assembly_close(&assembly);
}
END_OF_TEST

int main(void)
{
    return run_tests("guard_more", (const TTest *[]){a_tie_is_measured_on, ties_of_dropped_codes,
                                                     without_more_windows_the_simpler_is_taken,
                                                     no_more_than_the_decision_needs, an_encoder_measures_on,
                                                     killed_between_added_windows, a_plan_is_compared_once, NULL});
}
