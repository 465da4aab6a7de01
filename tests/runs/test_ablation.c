/* Ablations of a tiny model: the figures do not depend on the number of threads, are read from the store again, and
 * agree with the stored scores; entries that fail; output directories that are refused. */
#include "cli/ablation_report.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ptq/base/file.h"
#include "ptq/ablation/ablation_impl.h"
#include "ptq/base/output.h"
#include "tests/support/play.h"

static const long long two_seeds[] = {1, 2};
static calm_arena kept;    /* memory of the results of a test's ablations */

static play new_play(const char *scheme, const char *algorithms)
{
    play run = play_new(NULL, scheme, algorithms);
    run.recipe.output = NULL;
    run.recipe.want_cka_linear = true;    /* as calm ablate sets it */
    run.recipe.score_points = (1u << CALM_N_POINTS) - 1;
    run.recipe.eval_windows = 3;
    return run;
}

/* Runs the ablation in this process, since nothing forks afterwards. */
static calm_ablation ablate_by(const play *run, const calm_ablation_plan *asked)
{
    calm_ablation_plan plan = *asked;
    calm_ablation out;
    plan.options.command = "calm test";
    ctx->n_threads = run->threads;
    ck_ok(calm_ablation_check(ctx, &run->recipe));
    ck_ok(calm_ablate(ctx, &run->recipe, &plan, &kept, &out));
    return out;
}

static calm_ablation ablate(const play *run, size_t n_seeds)
{
    return ablate_by(run, &(calm_ablation_plan){.seeds = two_seeds, .n_seeds = n_seeds, .probes = true});
}

static const calm_ablation_row *row_named(const calm_ablation *of, const char *name)
{
    for (size_t i = 0; i < of->n_rows; i++)
        if (strcmp(of->rows[i].name, name) == 0)
            return &of->rows[i];
    ck_abort_msg("no row \"%s\"", name);
}

static size_t count(const calm_ablation *of, const char *kind)
{
    size_t n = 0;
    for (size_t i = 0; i < of->n_rows; i++)
        n += strcmp(of->rows[i].kind, kind) == 0;
    return n;
}

/* Returns ablation.json without the lines that contain a time or the store's path. */
static const char *without_times(const play *run, const calm_ablation *of, const char *name)
{
    const calm_ablation_set set = {&run->recipe, of, 1, 1.5};
    const char *dir = play_path(run, name), *all = "";
    char *text;
    size_t n;
    ck_ok(calm_ablation_report_write(ctx, &set, dir));
    ck_ok(calm_read_file(ctx, test_format("%s/ablation.json", dir), 1 << 24, &text, &n));
    for (char *rest, *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        if (!strstr(line, "seconds\"") && !strstr(line, "\"store\""))
            all = test_format("%s%s\n", all, line);
    ck_assert_msg(strstr(all, "\"job cka_token token\""), "%s", all);
    return all;
}

/* ---- figures ---- */

TEST(same_figures_with_any_threads)
{
    play run = new_play("w4a4_g16", "rtn,gptq,smoothquant");
    const char *expected = NULL;
    for (run.threads = 1; run.threads <= 4; run.threads *= 2) {
        run.recipe.store = play_path(&run, test_format("store%d.db", run.threads));
        const calm_ablation of = ablate(&run, 1);
        const char *found = without_times(&run, &of, test_format("out%d", run.threads));
        if (expected)
            ck_assert_msg(strcmp(found, expected) == 0, "other figures with %d threads", run.threads);
        expected = found;
    }
}
END_OF_TEST

TEST(same_figures_from_the_store)
{
    const play run = new_play("w4a16_g16", "rtn,gptq");
    const calm_ablation first = ablate(&run, 2);
    const int64_t candidates = play_sql(&run, "SELECT count(*) FROM candidate"),
                  evaluations = play_sql(&run, "SELECT count(*) FROM evaluation"),
                  rows = play_sql(&run, "SELECT count(*) FROM ablation");
    const calm_ablation again = ablate(&run, 2);
    ck_assert_str_eq(without_times(&run, &again, "two"), without_times(&run, &first, "one"));
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM candidate"), candidates);
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM evaluation"), evaluations);
    /* Each ablation made three runs, for the first windows and two seeds, and each run has its rows. */
    ck_assert_int_eq(rows, (int64_t)first.n_rows);
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM ablation"), 2 * rows);
    ck_assert_int_eq(play_sql(&run, "SELECT count(DISTINCT run_id) FROM ablation"), 6);
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM run WHERE status = 'finished'"), 6);
}
END_OF_TEST

/* Returns the number of units whose least score in the store belongs to another algorithm than `best`. */
static int64_t least_differs(const play *run, const char *group, const char *unit, const char *metric, const char *best)
{
    return play_sql(run, test_format("SELECT count(*) FROM (SELECT a.name AS name, min(s.value) FROM run_candidate rc"
                                     " JOIN candidate k ON k.id = rc.candidate_id JOIN score s ON s.candidate_id = k.id"
                                     " JOIN algorithm a ON a.id = k.algorithm_id JOIN job j ON j.id = k.job_id"
                                     " WHERE rc.run_id = 1 AND s.unit = '%s' AND s.metric = '%s' GROUP BY %s)"
                                     " WHERE name <> '%s'", unit, metric, group, best));
}

TEST(rows_are_what_the_scores_say)
{
    const play run = new_play("w3a16_g16", "rtn,gptq,smoothquant");
    const calm_ablation of = ablate(&run, 0);
    static const struct {
        const char *name, *group, *unit, *metric;
    } rows[] = {
        {"job cka argmax", "j.id", "job", "cka"},
        {"job cka_linear argmax", "j.id", "job", "cka_linear"},
        {"sublayer rel_mse argmax", "j.block_id, j.sublayer", "sublayer", "rel_mse"},
        {"block delta_cosine argmax", "j.block_id", "block", "delta_cosine"},
        {"sublayer probe_kl argmax", "j.block_id, j.sublayer", "sublayer", "probe_kl"},
    };
    ck_assert_ptr_nonnull(of.best);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        ck_assert_int_eq(row_named(&of, rows[i].name)->differs,
                         least_differs(&run, rows[i].group, rows[i].unit, rows[i].metric, of.best));
    /* 8 metrics at 4 points and cka_linear of jobs, by 2 rules; one oracle per unit; three entries; five draws. */
    ck_assert_uint_eq(count(&of, "hybrid"), 2 * (8 * 4 + 1));
    ck_assert_uint_eq(count(&of, "oracle"), 3);
    ck_assert_uint_eq(count(&of, "uniform"), 3);
    ck_assert_uint_eq(count(&of, "random"), 5);
    ck_assert_int_eq(row_named(&of, "job cka token")->units, 8);
    ck_assert_int_eq(row_named(&of, "sublayer cka token")->units, 4);
    ck_assert_int_eq(row_named(&of, "block cka token")->units, 2);
}
END_OF_TEST

TEST(differences_are_to_the_best_uniform_run)
{
    const play run = new_play("w4a16_g16", "rtn,gptq");
    const calm_ablation of = ablate(&run, 0);
    const calm_ablation_row *best = row_named(&of, of.best);
    ck_assert(best->delta == 0 && best->se == 0 && best->differs == 0);
    for (size_t i = 0; i < of.n_rows; i++) {
        const calm_ablation_row *row = &of.rows[i];
        if (strcmp(row->kind, "uniform") == 0)
            ck_assert(row->loss >= best->loss);
        if (i)
            ck_assert(row->loss >= of.rows[i - 1].loss);
        /* Windows have equal lengths, so the mean of differences is the difference of means, up to rounding: 1e-16
         * relative to KLs of at most 1. */
        ck_near(row->delta, row->loss - best->loss, 1e-12);
        ck_assert_msg((row->plan == best->plan) == (row->differs == 0), "%s", row->name);
        ck_assert(row->bits == best->bits);
    }
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM v_ablation WHERE run = 1"), (int64_t)of.n_rows);
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM ablation a JOIN evaluation e ON e.id = a.evaluation_id"
                                    " WHERE (a.kind = 'uniform') <> (a.unit IS NULL)"), 0);
}
END_OF_TEST

/* With two entries each unit's order either agrees or is reversed, so the mean correlation follows from the share of
 * units that agree. */
TEST(correlations_of_two_entries)
{
    const play run = new_play("w4a16_g16", "rtn,gptq");
    const calm_ablation of = ablate(&run, 0);
    ck_assert_uint_eq(of.n_correlations, 8 * 4 + 1);
    for (size_t i = 0; i < of.n_correlations; i++) {
        const calm_ablation_correlation *row = &of.correlations[i];
        ck_assert_uint_eq(row->units, strcmp(row->unit, "job") == 0 ? 8 : strcmp(row->unit, "sublayer") == 0 ? 4 : 2);
        ck_near(row->rho, 2 * row->hits - 1, 1e-12);    /* sums of at most 8 values of magnitude 1 */
    }
    ck_assert_uint_gt(of.n_hooks, 0);
    /* One of the 4 windows of 32 tokens is held out for scores; there are 8 jobs. */
    ck_assert_int_eq(of.scored_rows, 32 * 8);
}
END_OF_TEST

TEST(noise_over_seeds)
{
    const play run = new_play("w4a16_g16", "rtn,gptq");
    const calm_ablation of = ablate(&run, 2);
    const calm_ablation_row *seeds = of.rows + of.n_rows - of.n_seed_rows;
    ck_assert_uint_eq(of.n_seed_rows, 2 * 3);
    ck_assert_uint_eq(of.n_noise, 3);
    for (size_t i = 0; i < 3; i++) {
        const double a = seeds[i].loss, b = seeds[3 + i].loss;
        ck_assert_int_eq(seeds[i].seed, 1);
        ck_assert_int_eq(seeds[3 + i].seed, 2);
        ck_assert_str_eq(of.noise[i].name, seeds[i].name);
        /* Two values have the mean (a + b) / 2 and the deviation |a - b| / sqrt(2); they are below 1, so rounding is
         * below 1e-14. */
        ck_near(of.noise[i].mean, (a + b) / 2, 1e-14);
        ck_near(of.noise[i].sd, fabs(a - b) / sqrt(2), 1e-14);
        ck_near(of.noise[i].delta_mean, (seeds[i].delta + seeds[3 + i].delta) / 2, 1e-14);
    }
    /* rtn does not depend on the calibration, gptq does. */
    ck_assert(of.noise[0].sd == 0);
    ck_assert(of.noise[1].sd > 0);
}
END_OF_TEST

/* ---- failures ---- */

/* actfit needs 8 rows per input, more than 4 windows of 32 tokens: it has no plan, is never drawn, and comes last. */
TEST(entries_that_fail)
{
    const play run = new_play("w4a4_g16", "rtn,actfit,gptq");
    const calm_ablation of = ablate(&run, 0);
    const calm_ablation_row *last = &of.rows[of.n_rows - 1];
    ck_assert_str_eq(last->name, "actfit");
    ck_assert_ptr_nonnull(last->failure);
    ck_assert(isnan(last->loss) && isnan(last->delta) && last->differs < 0 && last->plan < 0);
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM v_ablation WHERE failure IS NOT NULL AND kl IS NULL"), 1);
    for (size_t i = 0; i + 1 < of.n_rows; i++)
        ck_assert_msg(!isnan(of.rows[i].loss) && !of.rows[i].failure, "%s", of.rows[i].name);
}
END_OF_TEST

/* Each factor of the shortlist has a row for the first windows and for each seed.  The recipe's factor gives the
 * recipe's hybrid, the largest factor the plan of log_rel_mse alone.  A brief table has only these rows and the
 * uniform runs. */
TEST(factors_of_the_shortlist)
{
    static const double factors[] = {CALM_SHORTLIST_DEFAULT, CALM_SHORTLIST_MAX};
    calm_ablation_plan plan = {.seeds = two_seeds, .n_seeds = 1, .shortlists = factors, .n_shortlists = 2};
    play run = new_play("w4a4_g16", "rtn,gptq,smoothquant");
    const calm_ablation all = ablate_by(&run, &plan);
    const calm_ablation_row *own = row_named(&all, "job cka_token token"),
                            *same = row_named(&all, test_format("job cka_token token %.15g", factors[0])),
                            *wide = row_named(&all, "job cka_token token 1000000"),
                            *error = row_named(&all, "job log_rel_mse argmax");
    ck_assert_str_eq(wide->kind, "hybrid");
    ck_assert_int_eq(same->plan, own->plan);
    ck_assert_int_eq(wide->plan, error->plan);
    ck_assert_int_eq(count(&all, "seed"), 3 + 3);
    plan.brief = true;
    run.recipe.score_points = 1u << CALM_POINT_JOB;
    const calm_ablation brief = ablate_by(&run, &plan);
    ck_assert_uint_eq(brief.n_rows, 2 * (3 + 3));
    ck_assert(row_named(&brief, "job cka_token token 1000000")->loss == wide->loss);
    ck_assert_int_eq(count(&brief, "uniform"), 3);
    ck_assert_int_eq(count(&brief, "hybrid"), 3);
}
END_OF_TEST

/* The learned form of the recipe's hybrid has a row next to the plain one, for the first windows and for each seed,
 * and a lower loss; a second table reads it from the store. */
TEST(the_learned_hybrid)
{
    const calm_ablation_plan plan = {.seeds = two_seeds, .n_seeds = 1, .brief = true};
    play run = new_play("w2a16_g16", "rtn,gptq");
    run.recipe.score_points = 1u << CALM_POINT_JOB;
    run.recipe.calib_windows = 16;
    run.recipe.learn = CALM_LEARN_BLOCKS;
    run.recipe.learn_steps = 50;
    ck_ok(calm_learner_parse(ctx, "learn(steps=50,tokens=1)", &run.recipe.learner));
    const calm_ablation first = ablate_by(&run, &plan), again = ablate_by(&run, &plan);
    const calm_ablation_row *plain = row_named(&first, "job cka_token token"),
                            *learned = row_named(&first, "job cka_token token, learned");
    ck_assert_str_eq(learned->kind, "hybrid");
    ck_assert(learned->loss < plain->loss && learned->differs == learned->units && learned->seconds > 0);
    ck_assert_uint_eq(first.n_rows, 2 * (2 + 2));
    ck_assert(row_named(&again, learned->name)->loss == learned->loss);
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM v_ablation WHERE subject LIKE '%, learned'"), 4);
    /* 8-bit weights have nothing to learn. */
    play eight = run;
    eight.recipe.store = play_path(&run, "eight.db");
    play_pool(&eight, "w8a16_g16", "rtn,gptq");
    const calm_ablation none = ablate_by(&eight, &plan);
    const calm_ablation_row *same = row_named(&none, "job cka_token token, not learned");
    ck_assert_int_eq(same->plan, row_named(&none, "job cka_token token")->plan);
}
END_OF_TEST

TEST(draws)
{
    const play run = new_play("w4a16_g16", "rtn,gptq,smoothquant");
    calm_run *p;
    size_t *choice, *same, drawn[3] = {0, 0, 0}, n_jobs;
    ck_ok(calm_run_open(ctx, &run.recipe, &p));
    n_jobs = calm_model_layout(p->in.model)->n_jobs;
    for (size_t job = 0; job < n_jobs; job++)
        calm_candidate_at(&p->in, job, 1)->failure = job ? "of the test" : NULL;
    for (long long seed = 0; seed < 200; seed++) {
        ck_ok(calm_ablation_draw(ctx, p, seed, &choice));
        ck_ok(calm_ablation_draw(ctx, p, seed, &same));
        for (size_t job = 0; job < n_jobs; job++) {
            ck_assert_uint_eq(choice[job], same[job]);
            ck_assert(job == 0 || choice[job] != 1);
            drawn[choice[job]]++;
        }
    }
    /* Job 0 has three entries and the other 7 have two, so the first entry is expected in 1/3 of 200 draws and 1/2
     * of 1400, within 6 standard deviations, each sqrt(200 * 2/9 + 1400 / 4) = 19.9. */
    ck_near((double)drawn[0], 200.0 / 3 + 700, 6 * 19.9);
    ck_near((double)drawn[2], 200.0 / 3 + 700, 6 * 19.9);
    ck_near((double)drawn[1], 200.0 / 3, 6 * 6.7);
    for (size_t entry = 0; entry < 3; entry++)
        calm_candidate_at(&p->in, 3, entry)->failure = "of the test";
    ck_fails(calm_ablation_draw(ctx, p, 0, &choice), CALM_ENUMERIC, "every candidate failed");
    calm_run_close(&p);
}
END_OF_TEST

/* ---- output ---- */

TEST(output_directories)
{
    const play run = new_play("w4a16_g16", "rtn");
    const calm_ablation of = {.scheme = "w4a16_g16"};
    const calm_ablation_set set = {&run.recipe, &of, 1, 0};
    const char *dir = play_path(&run, "out"), *other = play_path(&run, "other"), *empty = play_path(&run, "empty");
    ck_ok(calm_output_folder(ctx, dir, false, NULL));
    ck_ok(calm_ablation_report_write(ctx, &set, dir));
    for (const char *const *name = (const char *const[]){"md", "csv", "json", NULL}; *name; name++)
        ck_assert(calm_path_exists(test_format("%s/ablation.%s", dir, *name)));
    ck_fails(calm_output_folder(ctx, dir, false, NULL), CALM_EEXIST, "`force`");
    ck_ok(calm_output_folder(ctx, dir, true, NULL));
    ck_assert_int_eq(mkdir(other, 0777), 0);
    ck_ok(calm_write_file(ctx, test_format("%s/thesis.tex", other), "x", 1));
    ck_fails(calm_output_folder(ctx, other, true, NULL), CALM_EARG, "thesis.tex, which calm did not write");
    ck_assert(calm_path_exists(test_format("%s/thesis.tex", other)));
    ck_assert_int_eq(mkdir(empty, 0777), 0);
    ck_fails(calm_output_folder(ctx, empty, false, NULL), CALM_EEXIST, "`force`");
    ck_ok(calm_output_folder(ctx, empty, true, NULL));
    ck_ok(calm_ablation_report_write(ctx, &set, empty));
    ck_assert_str_eq(play_list(&run, ".tmp"), "");
}
END_OF_TEST

/* Whichever call fails, the directory holds the whole old output or the whole new one. */
TEST(a_full_disk_leaves_the_old_output)
{
    const play run = new_play("w4a16_g16", "rtn");
    const calm_ablation of = {.scheme = "w4a16_g16"};
    const calm_ablation_set old = {&run.recipe, &of, 1, 1}, new = {&run.recipe, &of, 1, 2};
    const char *dir = play_path(&run, "out");
    long failed = 0, calls;
    ck_ok(calm_ablation_report_write(ctx, &new, play_path(&run, "new")));
    const char *digest = play_digest(play_path(&run, "new"));
    ck_ok(calm_ablation_report_write(ctx, &old, dir));
    const char *before = play_digest(dir);
    ck_assert_str_ne(before, digest);
    for (calm_status status = CALM_EIO; status != CALM_OK;) {
        fault_plan((fault){.at = failed + 1, .error = ENOSPC, .stays = true});
        status = calm_ablation_report_write(ctx, &new, dir);
        calls = fault_calls();
        fault_plan((fault){0});
        calm_ctx_clear_failure(ctx);
        const char *found = play_digest(dir);
        ck_assert_msg(strcmp(found, status == CALM_OK ? digest : before) == 0 || strcmp(found, digest) == 0,
                      "call %ld: half an output", failed + 1);
        failed += status != CALM_OK;
        ck_assert_int_le(failed, calls);
    }
    ck_assert_int_gt(failed, 5);    /* three files are opened, written and flushed */
    ck_assert_str_eq(play_digest(dir), digest);
}
END_OF_TEST

int main(void)
{
    return run_tests("ablation",
                     (const TTest *[]){same_figures_with_any_threads, same_figures_from_the_store,
                                       rows_are_what_the_scores_say, differences_are_to_the_best_uniform_run,
                                       correlations_of_two_entries, noise_over_seeds, entries_that_fail,
                                       factors_of_the_shortlist, the_learned_hybrid, draws, output_directories,
                                       a_full_disk_leaves_the_old_output, NULL});
}
