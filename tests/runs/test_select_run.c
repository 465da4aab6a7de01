/* calm select and calm assemble on the stores of runs: without options they reproduce the run's choices, reasons and
 * bytes.  calm select needs only the store. */
#include <stdio.h>

#include "ptq/stored/stored.h"
#include "ptq/base/file.h"
#include "ptq/export/export.h"
#include "tests/support/play_select.h"

#define ALL_POINTS ((1u << CALM_N_POINTS) - 1)

static play with_unit(const play *run, calm_unit unit, const char *name)
{
    play other = play_elsewhere(run, name);
    other.recipe.selection.unit = unit;
    other.recipe.selection.point = calm_unit_point(unit);
    other.recipe.score_points = ALL_POINTS;
    return other;
}

/* Returns all decisions of a run, one job per line. */
static const char *decided(const play *run, int64_t of)
{
    return play_text(run,
                     test_format("SELECT printf('%%d %%d %%s|%%s|%%s|%%d', job_id, candidate_id, unit, reason,"
                                 " coalesce(advice, '-'), disagrees) FROM choice WHERE run_id = %lld ORDER BY job_id",
                                 (long long)of));
}

/* ---- the same again ---- */

static void check_reproduced(const play *run)
{
    play_must_run(run);
    const calm_reselect_options o = play_selecting(run, 1);
    const int64_t anew = play_select(&o);
    ck_assert_int_eq(anew, 2);
    ck_assert_msg(decided(run, 1)[0] != 0, "no choices");
    ck_assert_str_eq(decided(run, anew), decided(run, 1));
    ck_assert_str_eq(play_text(run, "SELECT printf('%s %s %s %s', status, unit, rule, metric) FROM run WHERE id = 2"),
                     play_text(run, "SELECT printf('%s %s %s %s', status, unit, rule, metric) FROM run WHERE id = 1"));
    ck_assert_int_eq(play_sql(run, "SELECT count(*) FROM run_candidate WHERE run_id = 1"),
                     play_sql(run, "SELECT count(*) FROM run_candidate WHERE run_id = 2"));
    /* A second selection is found and not stored twice; a selection of the selection is the same again. */
    ck_assert_int_eq(play_select(&o), anew);
    const calm_reselect_options of_anew = play_selecting(run, anew);
    ck_assert_str_eq(decided(run, play_select(&of_anew)), decided(run, 1));
}

TEST(every_unit_comes_out_again)
{
    const play first = play_new(NULL, "w3a16_g16", "rtn,gptq,gptq-hls");
    const play sublayer = with_unit(&first, CALM_UNIT_SUBLAYER, "sublayer");
    const play block = with_unit(&first, CALM_UNIT_BLOCK, "block");
    play argmax = with_unit(&first, CALM_UNIT_BLOCK, "argmax");
    argmax.recipe.selection = (calm_selection){.unit = CALM_UNIT_BLOCK, .rule = CALM_CHOICE_RULE_ARGMAX,
                                               .point = CALM_POINT_DELTA, .score = CALM_METRIC_CKA};
    check_reproduced(&first);
    check_reproduced(&sublayer);
    check_reproduced(&block);
    check_reproduced(&argmax);
}
END_OF_TEST

TEST(activations_and_advice_come_out_again)
{
    const play first = play_new(NULL, "w4a4_g16", "rtn,smoothquant,gptq");
    play light = play_elsewhere(&first, "light");
    light.recipe.skip_smoothing = true;
    check_reproduced(&first);
    ck_assert_int_eq(play_sql(&first, "SELECT count(*) FROM choice WHERE run_id = 2 AND advice = 'plain'"), 8);
    check_reproduced(&light);    /* smoothquant was skipped, and counts in the reasons */
    ck_assert_int_gt(play_sql(&light, "SELECT count(*) FROM choice WHERE run_id = 2 AND reason LIKE '%of 3%'"), 0);
}
END_OF_TEST

TEST(a_mixture_comes_out_again)
{
    const tiny_model mixture = tiny_of("qwen3_moe");
    const play first = play_new(&mixture, "w4a16_g8", "rtn,gptq");
    play sublayer = with_unit(&first, CALM_UNIT_SUBLAYER, "sublayer"), block = with_unit(&first, CALM_UNIT_BLOCK,
                                                                                         "block");
    play starved = play_elsewhere(&first, "starved");
    starved.recipe.least_tokens = 1000;    /* "rtn for gptq" everywhere */
    check_reproduced(&first);
    check_reproduced(&sublayer);
    check_reproduced(&block);
    check_reproduced(&starved);
    ck_assert_int_gt(play_sql(&sublayer, "SELECT count(*) FROM choice WHERE run_id = 2 AND unit LIKE '%.experts.3'"),
                     0);
    ck_assert_int_gt(play_sql(&starved, "SELECT count(*) FROM candidate k JOIN algorithm a ON a.id = k.algorithm_id"
                                        " WHERE a.name = 'rtn for gptq'"), 0);
}
END_OF_TEST

/* A shared expert is a unit in addition to the numbered ones. */
TEST(a_shared_expert_comes_out_again)
{
    tiny_model mixture = tiny_of("qwen2_moe");
    const play first = play_new(&mixture, "w4a16_g8", "rtn,gptq"), sublayer = with_unit(&first, CALM_UNIT_SUBLAYER,
                                                                                        "sublayer");
    check_reproduced(&sublayer);
    ck_assert_int_gt(play_sql(&sublayer,
                              "SELECT count(*) FROM choice WHERE run_id = 2 AND unit LIKE '%.shared_expert'"), 0);
}
END_OF_TEST

TEST(a_budget_comes_out_again)
{
    double bits = 4.2;
    play run = play_new(NULL, "w2a16_g16,w3a16_g16,w4a16_g16", "rtn,gptq-hls");
    run.recipe.budgets = &bits;
    run.recipe.n_budgets = 1;
    check_reproduced(&run);
    play sublayer = with_unit(&run, CALM_UNIT_SUBLAYER, "sublayer");
    check_reproduced(&sublayer);
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM choice WHERE run_id = 2 AND reason LIKE 'predicted KL %'"),
                     8);
    ck_assert_int_eq(play_sql(&run, "SELECT abs(a.bits_per_weight - b.bits_per_weight) < 1e-9 OR a.result <> 'hybrid'"
                                    " FROM run a, run b WHERE a.id = 1 AND b.id = 2"), 1);
    play gradients = play_elsewhere(&run, "gradients");
    gradients.recipe.sensitivity = CALM_SENSITIVITY_GRADIENT;
    check_reproduced(&gradients);
    ck_assert_int_eq(play_sql(&gradients, "SELECT count(*) FROM choice WHERE run_id = 2 AND reason LIKE"
                                          " 'predicted KL (gradients) %'"), 8);
}
END_OF_TEST

/* ---- other choices ---- */

TEST(another_budget_and_wishes)
{
    double bits = 4.2;
    play run = play_new(NULL, "w2a16_g16,w3a16_g16,w4a16_g16", "rtn,gptq-hls");
    run.recipe.budgets = &bits;
    run.recipe.n_budgets = 1;
    play_must_run(&run);
    calm_reselect_options o = play_selecting(&run, 1);
    o.budget = 3.75;
    o.forbid = test_words("rtn");
    o.pins = test_pairs("model.layers.0.*=gptq-hls w3a16_g16,model.layers.0.o=gptq-hls w4a16_g16");
    const int64_t anew = play_select(&o);
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM v_choices WHERE run = 2 AND algorithm = 'rtn'"), 0);
    ck_assert_int_eq(play_sql(&run,
                              "SELECT count(*) FROM v_choices WHERE run = 2 AND block = 0 AND reason = 'pinned'"), 4);
    ck_assert_str_eq(play_text(&run, "SELECT scheme FROM v_choices WHERE run = 2 AND block = 0"),
                     "w3a16_g16\nw4a16_g16\nw3a16_g16\nw3a16_g16\n");
    ck_assert_int_eq(play_sql(&run, "SELECT bits_per_weight <= 3.75 FROM run WHERE id = 2"), 1);
    ck_assert_str_eq(
        play_text(&run, "SELECT json_remove(recipe -> 'select', '$.shortlist') FROM run WHERE id = 2"),
        "{\"run\":1,\"unit\":\"job\",\"rule\":\"token\",\"metric\":\"cka_token\",\"budget\":3.75,"
        "\"forbid\":[\"rtn\"],\"pin\":[{\"unit\":\"model.layers.0.*\",\"candidate\":\"gptq-hls w3a16_g16\"},"
        "{\"unit\":\"model.layers.0.o\",\"candidate\":\"gptq-hls w4a16_g16\"}]}\n");
    ck_assert_int_eq(play_sql(&run, "SELECT (SELECT json_remove(recipe, '$.select') FROM run WHERE id = 2) ="
                                    " (SELECT recipe FROM run WHERE id = 1)"), 1);
    /* The wishes of a selection hold for selections of it. */
    calm_reselect_options further = play_selecting(&run, anew);
    further.pins = test_pairs("model.layers.0.qkv=gptq-hls w2a16_g16");
    ck_assert_int_eq(play_select(&further), 3);
    ck_assert_str_eq(play_text(&run, "SELECT scheme FROM v_choices WHERE run = 3 AND block = 0"),
                     "w2a16_g16\nw4a16_g16\nw3a16_g16\nw3a16_g16\n");
}
END_OF_TEST

static void listen(void *user, calm_log_level level, const char *line)
{
    if (level == CALM_LOG_WARNING)
        snprintf(user, CALM_MESSAGE_MAX, "%s", line);
}

/* If a unit has no probe, losses are guessed from scores, with a warning. */
TEST(a_budget_without_probes)
{
    double bits = 4.2;
    char said[CALM_MESSAGE_MAX] = "";
    play run = play_new(NULL, "w2a16_g16,w3a16_g16,w4a16_g16", "gptq-hls");
    run.recipe.budgets = &bits;
    run.recipe.n_budgets = 1;
    play_must_run(&run);
    calm_reselect_options o = play_selecting(&run, 1);
    ctx->log = listen;
    ctx->log_user = said;
    play_select(&o);
    ck_assert_str_eq(said, "");
    play_sql(
        &run,
        "DELETE FROM score WHERE metric = 'probe_kl' AND candidate_id IN (SELECT id FROM candidate WHERE job_id < 4)");
    ck_assert_int_eq(play_select(&o), 3);    /* the same wishes, but another plan */
    ck_assert_msg(strstr(said, "3 of 8 units have no probe in the store") && strstr(said, "cka_token times its share"),
                  "%s", said);
    ck_assert_int_eq(
        play_sql(&run, "SELECT count(*) FROM choice WHERE run_id = 3 AND reason LIKE 'score by share of weights %'"),
        8);
    ck_assert_int_eq(play_sql(&run, "SELECT bits_per_weight <= 4.2 FROM run WHERE id = 3"), 1);
}
END_OF_TEST

/* Scores after quantized blocks depend on the choices of those blocks: other choices give a warning. */
TEST(a_quantized_prefix_is_warned_of)
{
    char said[CALM_MESSAGE_MAX] = "";
    play run = play_new(NULL, "w2a16_g16", "rtn,gptq-hls");
    run.recipe.prefix = CALM_PREFIX_QUANTIZED;
    play_must_run(&run);
    calm_reselect_options o = play_selecting(&run, 1);
    ctx->log = listen;
    ctx->log_user = said;
    play_select(&o);
    ck_assert_str_eq(decided(&run, 2), decided(&run, 1));
    ck_assert_str_eq(said, "");
    o.pins = test_pairs("*=rtn");
    play_select(&o);
    ck_assert_msg(strstr(said, "run 1 scored each block behind the choices of those before it"), "%s", said);
}
END_OF_TEST

TEST(another_unit_and_metric)
{
    const play first = play_new(NULL, "w3a16_g16", "rtn,gptq"), run = with_unit(&first, CALM_UNIT_BLOCK, "block");
    play_must_run(&run);
    calm_reselect_options o = play_selecting(&run, 1);
    o.unit = CALM_UNIT_SUBLAYER;
    o.metric = "rel_mse";
    o.rule = CALM_CHOICE_RULE_ARGMAX;
    play_select(&o);
    /* Each choice has the least rel_mse of its sublayer. */
    ck_assert_int_eq(
        play_sql(&run, "SELECT count(*) FROM choice c JOIN candidate k ON k.id = c.candidate_id JOIN score s"
                       " ON s.candidate_id = k.id AND s.unit = 'sublayer' AND s.metric = 'rel_mse' WHERE c.run_id = 2"
                       " AND s.value = (SELECT min(t.value) FROM candidate l JOIN score t ON t.candidate_id = l.id AND"
                       " t.unit = 'sublayer' AND t.metric = 'rel_mse' WHERE l.job_id = c.job_id)"),
        8);
    ck_assert_int_eq(play_sql(&run, "SELECT count(DISTINCT unit) FROM choice WHERE run_id = 2"), 4);
}
END_OF_TEST

/* ---- refusals, which change nothing ---- */

/* Returns the rows of the tables that a selection could change, as text. */
static const char *all_rows(const play *run)
{
    static const char *const selects[] = {
        "SELECT quote(status) || quote(recipe) || quote(reason) || quote(ended_at) FROM run ORDER BY id",
        "SELECT run_id || ' ' || job_id || quote(candidate_id) || quote(reason) FROM choice ORDER BY run_id, job_id",
        "SELECT run_id || ' ' || candidate_id FROM run_candidate ORDER BY run_id, candidate_id",
        "SELECT key || quote(blob) || quote(failure) FROM candidate ORDER BY id",
        "SELECT candidate_id || unit || metric || quote(value) FROM score ORDER BY candidate_id, unit, metric",
        "SELECT run_id || quote(path) || quote(sha256) FROM artifact ORDER BY run_id, path"};
    const char *text = "";
    for (size_t i = 0; i < sizeof selects / sizeof *selects; i++)
        text = test_format("%s\n%s", text, play_text(run, selects[i]));
    return text;
}

TEST(selections_that_are_refused)
{
    const play run = play_new(NULL, "w3a16_g16", "rtn,gptq");
    play_must_run(&run);
    play_sql(&run, "INSERT INTO run (key, model_id, status, reason) SELECT 'x', id, 'failed', 'no memory' FROM model");
    play_sql(&run, "INSERT INTO run (key, model_id, status, recipe) SELECT 'y', id, 'finished', '[1]' FROM model");
    const char *before = all_rows(&run);
    calm_reselect_options o = play_selecting(&run, 4);
    play_select_fails(&o, CALM_ENOTFOUND, "no run 4; the newest is 3");
    o = play_selecting(&run, 2);
    o.rule = CALM_CHOICE_RULE_TOKEN;
    o.metric = "cka_token";
    play_select_fails(&o, CALM_ENOTFOUND, "run 2 (failed: no memory) has no candidates");
    o.run = 3;
    play_select_fails(&o, CALM_EFORMAT, "recipe of run 3: expected an object");
    o = play_selecting(&run, 1);
    o.metric = "cka_tokem";
    play_select_fails(&o, CALM_EARG, "`choice.metric` cka_tokem: a job has no such score; did you mean cka_token?");
    o.metric = "probe_kl";
    play_select_fails(
        &o, CALM_EARG,
        "has no probe_kl of a job in the store; calm quantize with `choice.unit` job `choice.metric` probe_kl "
        "measures it");
    o.metric = NULL;
    o.unit = CALM_UNIT_BLOCK;
    play_select_fails(&o, CALM_EARG, "model.layers.0: rtn has no cka_token of a block in the store");
    o = play_selecting(&run, 1);
    o.pins = test_pairs("model.layers.0.qkw=gptq");
    play_select_fails(&o, CALM_EARG, "did you mean \"model.layers.0.qkv\"?");
    o.pins = (calm_pairs){0};
    o.forbid = test_words("rtm");
    play_select_fails(&o, CALM_EARG, "did you mean \"rtn\"?");
    o.forbid = (calm_words){0};
    o.budget = 3;
    play_select_fails(&o, CALM_EARG,
                      "`choice.budget` 3: the given schemes take from 4.0000 to 4.0000 bits per weight");
    ck_assert_str_eq(all_rows(&run), before);
    o = play_selecting(&run, 1);
    o.dry_run = true;
    ck_assert_int_eq(play_select(&o), 0);
    ck_assert_str_eq(all_rows(&run), before);
}
END_OF_TEST

/* A run killed among its candidates cannot be selected from; one that failed later can. */
TEST(runs_without_an_end)
{
    const play run = play_new(NULL, "w3a16_g16", "rtn,gptq");
    play_must_run(&run);
    const calm_reselect_options o = play_selecting(&run, 1);
    play_sql(&run, "UPDATE run SET status = 'failed'");
    ck_assert_int_eq(play_select(&o), 2);
    play_sql(&run, "UPDATE run SET status = 'interrupted' WHERE id = 1");
    play_sql(
        &run,
        "DELETE FROM run_candidate WHERE run_id = 1 AND candidate_id IN (SELECT id FROM candidate WHERE job_id > 6)");
    play_select_fails(&o, CALM_ENOTFOUND, "run 1 (interrupted) stopped 4 candidates before it had all");
    play_sql(&run, "UPDATE run SET recipe = json_set(recipe, '$.blocks', json('[0,0]')) WHERE id = 1");
    play_sql(
        &run,
        "DELETE FROM run_candidate WHERE run_id = 1 AND candidate_id IN (SELECT id FROM candidate WHERE job_id > 4)");
    ck_assert_int_eq(play_select(&o), 3);    /* a run over the first block */
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM choice WHERE run_id = 3"), 4);
}
END_OF_TEST

/* Pins of the run's recipe hold, exact names before patterns; pins of the selection override them. */
TEST(pins_of_the_recipe)
{
    const play run = play_new(NULL, "w3a16_g16", "rtn,gptq");
    play_must_run(&run);
    play_sql(
        &run,
        "UPDATE run SET recipe = json_set(recipe, '$.choice.pins', json('{\"1.down\":\"gptq\",\"*.down\":\"rtn\"}'))");
    calm_reselect_options o = play_selecting(&run, 1);
    static const char pinned[] =
        "SELECT job || block || ' ' || algorithm || ' ' || reason FROM v_choices WHERE run = %d AND reason"
        " LIKE 'pinned%%' ORDER BY 1";
    play_select(&o);
    ck_assert_str_eq(play_text(&run, test_format(pinned, 2)),
                     "down0 rtn pinned by the recipe\ndown1 gptq pinned by the recipe\n");
    o.pins = test_pairs("0.down=gptq");
    play_select(&o);
    ck_assert_str_eq(play_text(&run, test_format(pinned, 3)), "down0 gptq pinned\ndown1 gptq pinned by the recipe\n");
    ck_assert_str_eq(play_text(&run, "SELECT json_array_length(recipe, '$.select.pin') FROM run WHERE id = 3"), "1\n");
}
END_OF_TEST

/* Rows that no run of calm writes are refused. */
TEST(rows_that_contradict)
{
    const play run = play_new(NULL, "w3a16_g16", "rtn,gptq");
    play_must_run(&run);
    const calm_reselect_options o = play_selecting(&run, 1);
    play_sql(&run, "UPDATE candidate SET scheme = 'w9' WHERE id = 1");
    play_select_fails(&o, CALM_EFORMAT, "\"w9\" is no scheme");
    play_sql(&run, "UPDATE candidate SET scheme = 'w3a16_g16' WHERE id = 1");
    play_sql(&run, "UPDATE job SET out_features = -1 WHERE id = 1");
    play_select_fails(&o, CALM_EFORMAT, "job 1 is not one of calm's");
    play_sql(&run, "UPDATE job SET out_features = 64 WHERE id = 1");
    play_sql(&run,
             "UPDATE choice SET candidate_id = (SELECT k.id FROM candidate k WHERE k.job_id <> choice.job_id LIMIT 1)");
    play_select_fails(&o, CALM_EFORMAT, "did not compete there");
    play_sql(&run, "DELETE FROM choice");
    play_sql(&run, "INSERT INTO model (digest, name, architecture) VALUES ('other', 'other', 'x')");
    play_sql(&run, "UPDATE run SET model_id = 2");
    play_select_fails(&o, CALM_EFORMAT, "candidate 1 is of another model");
    play_sql(&run, "UPDATE run SET model_id = 1");
    ck_assert_int_eq(play_select(&o), 2);
}
END_OF_TEST

/* ---- assembling ---- */

static calm_status assemble(const calm_assemble_options *o)
{
    calm_assembly assembly;
    const calm_status status = calm_reassemble(ctx, o, &assembly);
    calm_assembly_close(&assembly);
    return status;
}

static calm_assemble_options writing(const play *run, int64_t of, const char *name)
{
    return (calm_assemble_options){.store = run->recipe.store, .run = of, .output = play_path(run, name),
                                   .command = "calm test"};
}

/* Checks that assembling a run reproduces its directory: weights, config, recipe and card. */
static void check_assembled(const play *run, const char *name)
{
    const calm_assemble_options o = writing(run, 1, name);
    play_must_run(run);
    ck_ok(assemble(&o));
    ck_assert_str_eq(play_digest(o.output), play_digest(run->recipe.output));
    ck_assert_int_eq(play_sql(run, "SELECT count(*) FROM (SELECT sha256 FROM artifact GROUP BY run_id, sha256 HAVING"
                                   " count(*) = 2)"), play_sql(run, "SELECT count(*) FROM artifact") / 2);
}

TEST(the_same_directory)
{
    static const char *const kinds[][2] = {{"w4a16_g16", "rtn,gptq,gptq-hls,mkq-full"}, {"w4a4_g16",
                                                                                         "rtn,smoothquant,gptq"},
                                           {"w3a16_g16", "rtn"}};
    for (size_t i = 0; i < 3; i++) {
        play run = play_new(NULL, kinds[i][0], kinds[i][1]);
        run.recipe.skip_smoothing = i == 1;
        run.recipe.last_block = i == 2 ? 0 : -1;    /* the other block stays float */
        check_assembled(&run, "again");
    }
}
END_OF_TEST

TEST(the_same_directory_of_a_mixture_and_an_encoder)
{
    const tiny_model mixture = tiny_of("qwen3_moe"), encoder = tiny_of("bert");
    const play of_mixture = play_new(&mixture, "w4a16_g8", "rtn,gptq");
    check_assembled(&of_mixture, "again");
    play of_encoder = play_new(&encoder, "w8a8", "rtn,gptq");
    of_encoder.recipe.encoder_stream = true;
    check_assembled(&of_encoder, "again");
}
END_OF_TEST

TEST(the_same_directory_of_a_budget)
{
    double bits = 4.2;
    play run = play_new(NULL, "w2a16_g16,w3a16_g16,w4a16_g16", "rtn,gptq-hls");
    run.recipe.budgets = &bits;
    run.recipe.n_budgets = 1;
    check_assembled(&run, "again");
}
END_OF_TEST

/* If a uniform run was the result it is assembled, and the choices if asked for. */
TEST(a_uniform_result)
{
    play run = play_new(NULL, "w3a16_g16", "rtn,gptq");
    play keep = play_elsewhere(&run, "rtn");
    run.recipe.keep_hybrid = run.recipe.keep_candidates = true;
    play_must_run(&run);
    play_pool(&keep, NULL, "rtn");
    play_must_run(&keep);
    play_sql(&run, "UPDATE run SET result = 'rtn', reason = 'as the test says'");
    calm_assemble_options o = writing(&run, 1, "uniform"), hybrid = writing(&run, 1, "hybrid");
    hybrid.hybrid = true;
    ck_ok(assemble(&o));
    ck_ok(assemble(&hybrid));
    const char *weights[4];
    const char *const dirs[4] = {o.output, keep.recipe.output, hybrid.output, run.recipe.output};
    for (size_t i = 0; i < 4; i++) {
        char digest[CALM_SHA256_HEX];
        ck_ok(calm_sha256_file(ctx, test_format("%s/model.safetensors", dirs[i]), digest));
        weights[i] = test_format("%s", digest);
    }
    ck_assert_str_eq(weights[0], weights[1]);
    ck_assert_str_eq(weights[2], weights[3]);
    ck_assert_str_ne(weights[0], weights[2]);
}
END_OF_TEST

/* A uniform width under a budget: each unit's entry of that width. */
TEST(a_width_as_the_result)
{
    double bits = 4.5;
    play run = play_new(NULL, "w3a16_g16,w4a16_g16", "rtn,gptq"), one = play_elsewhere(&run, "one");
    run.recipe.budgets = &bits;
    run.recipe.n_budgets = 1;
    run.recipe.keep_candidates = true;
    play_pool(&one, "w3a16_g16", "rtn,gptq");
    one.recipe.keep_hybrid = true;
    play_must_run(&run);
    play_must_run(&one);
    play_sql(&run, "UPDATE run SET result = 'all w3a16_g16'");
    const calm_assemble_options o = writing(&run, 1, "width");
    char digest[2][CALM_SHA256_HEX];
    ck_ok(assemble(&o));
    ck_ok(calm_sha256_file(ctx, test_format("%s/model.safetensors", o.output), digest[0]));
    ck_ok(calm_sha256_file(ctx, test_format("%s/model.safetensors", one.recipe.output), digest[1]));
    ck_assert_str_eq(digest[0], digest[1]);
}
END_OF_TEST

/* A selection is assembled, and equals the output of a run with the same wish. */
TEST(a_selection_is_assembled)
{
    const play run = play_new(NULL, "w3a16_g16", "rtn,gptq"), gone = run;
    play keep = play_elsewhere(&run, "rtn");
    play_pool(&keep, NULL, "rtn");
    play_must_run(&run);
    play_must_run(&keep);
    const char *moved = play_path(&run, "elsewhere");
    ck_assert_int_eq(rename(run.recipe.model.dir, moved), 0);
    calm_reselect_options wish = play_selecting(&gone, 1);
    wish.forbid = test_words("gptq");
    ck_assert_int_eq(play_select(&wish), 2);    /* the model is gone */
    calm_assemble_options o = writing(&run, 2, "selection");
    ck_fails(assemble(&o), CALM_ENOTFOUND, "the float model of run 2 is not there; say where it is: `model` DIR");
    o.model = moved;
    ck_ok(assemble(&o));
    ck_assert_int_eq(rename(moved, run.recipe.model.dir), 0);
    char digest[2][CALM_SHA256_HEX];
    ck_ok(calm_sha256_file(ctx, test_format("%s/model.safetensors", o.output), digest[0]));
    ck_ok(calm_sha256_file(ctx, test_format("%s/model.safetensors", keep.recipe.output), digest[1]));
    ck_assert_str_eq(digest[0], digest[1]);
    ck_assert_int_eq(play_sql(&run, "SELECT bytes_after FROM run WHERE id = 2"),
                     play_sql(&keep, "SELECT bytes_after FROM run WHERE id = 1"));
}
END_OF_TEST

/* Checks that the assembly is refused and writes nothing. */
static void refuse_assembly(const play *run, const calm_assemble_options *o, calm_status status, const char *message)
{
    ck_fails(assemble(o), status, message);
    ck_assert_str_eq(play_list(run, "none"), "");
}

TEST(assemblies_that_are_refused)
{
    const play run = play_new(NULL, "w3a16_g16", "rtn,gptq");
    tiny_model other = tiny_default;
    play_must_run(&run);
    calm_assemble_options o = writing(&run, 7, "none");
    refuse_assembly(&run, &o, CALM_ENOTFOUND, "no run 7");
    o = writing(&run, 1, "out");
    ck_fails(assemble(&o), CALM_EEXIST, "out");
    o = writing(&run, 1, "none");
    other.seed++;
    other.vocab = 4096;
    o.model = tiny_model_write(&other);
    refuse_assembly(&run, &o, CALM_EMISMATCH, "not the model of run 1: its digest is ");
    o.model = run.recipe.output;
    refuse_assembly(&run, &o, CALM_EUNSUPPORTED, "is quantized already");
    o.model = NULL;
    play_sql(&run, "UPDATE run SET result = 'gptx'");
    refuse_assembly(&run, &o, CALM_EFORMAT, "the result of run 1, \"gptx\", is none of its candidates");
    play_sql(&run, "UPDATE run SET result = NULL, status = 'interrupted'");
    refuse_assembly(&run, &o, CALM_EARG, "run 1 (interrupted) has no result");
    play_sql(&run, "DELETE FROM choice WHERE job_id = 3");
    o.hybrid = true;
    refuse_assembly(&run, &o, CALM_EARG, "run 1 chose nothing for model.layers.0.gate_up; calm select 1");
}
END_OF_TEST

/* Returns the path of the blob that the run chose for its first job. */
static const char *first_blob(const play *run)
{
    const char *line = play_text(run, "SELECT k.blob FROM choice c JOIN candidate k ON k.id = c.candidate_id"
                                      " WHERE c.run_id = 1 AND c.job_id = 1");
    return test_format("%s.blobs/%.2s/%.62s", run->recipe.store, line, line + 2);
}

TEST(blobs_that_are_damaged)
{
    const play run = play_new(NULL, "w3a16_g16", "rtn,gptq");
    char *bytes;
    size_t n;
    play_must_run(&run);
    calm_assemble_options o = writing(&run, 1, "none");
    o.hybrid = true;    /* first_blob() is one of the choices */
    const char *path = first_blob(&run);
    ck_ok(calm_read_file(ctx, path, 1 << 24, &bytes, &n));
    ck_ok(calm_remove_tree(ctx, path));
    refuse_assembly(&run, &o, CALM_ENOTFOUND, "and cannot be computed again");
    bytes[n / 2] ^= 1;
    ck_ok(calm_write_file(ctx, path, bytes, n));
    refuse_assembly(&run, &o, CALM_EFORMAT, "computes it again");
    ck_fails(assemble(&o), CALM_EFORMAT, test_format("model.layers.0.qkv: "));
    /* A valid blob of another job. */
    const char *other = play_text(
        &run, "SELECT blob || blob_bytes FROM candidate WHERE job_id = 4 AND blob IS NOT NULL LIMIT 1");
    play_sql(&run, test_format("UPDATE candidate SET blob = '%.64s', blob_bytes = %s WHERE job_id = 1", other,
                               other + 64));
    refuse_assembly(&run, &o, CALM_EFORMAT, "model.layers.0.qkv");
    play_sql(&run, "UPDATE candidate SET blob = '../../etc/passwd' WHERE job_id = 1");
    refuse_assembly(&run, &o, CALM_EFORMAT, "where a digest is expected");
}
END_OF_TEST

int main(void)
{
    return run_tests("select_run", (const TTest *[]){
        every_unit_comes_out_again, activations_and_advice_come_out_again, a_mixture_comes_out_again,
        a_shared_expert_comes_out_again, a_budget_comes_out_again, another_budget_and_wishes, a_budget_without_probes,
        a_quantized_prefix_is_warned_of, another_unit_and_metric,
        selections_that_are_refused, runs_without_an_end, pins_of_the_recipe, rows_that_contradict,
        the_same_directory,
        the_same_directory_of_a_mixture_and_an_encoder, the_same_directory_of_a_budget, a_uniform_result,
        a_width_as_the_result, a_selection_is_assembled, assemblies_that_are_refused, blobs_that_are_damaged, NULL});
}
