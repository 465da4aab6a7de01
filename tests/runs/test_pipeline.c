/* Whole runs on a tiny model: what changes their bytes and what does not, what the store saves, what the guard
 * decides, and inputs that are refused by name. */
#include "tests/support/run_rooms.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ptq/base/file.h"
#include "ptq/base/threads.h"
#include "ptq/state/environment.h"
#include "tests/support/play.h"

static const fault none = {0};

static outcome must_run(const play *run)
{
    const outcome said = play_run(run, none);
    ck_assert_msg(said.status == CALM_OK, "%s", said.message);
    return said;
}

/* Returns the same run with another output. */
static play with_output(const play *run, const char *name)
{
    play other = *run;
    other.recipe.output = play_path(run, name);
    return other;
}

/* ---- bytes ---- */

static void check_same_bytes(const char *scheme, const char *algorithms)
{
    const play first = play_new(NULL, scheme, algorithms);
    must_run(&first);
    const char *expected = play_digest(first.recipe.output);
    static const int numbers[] = {1, 2, 4, 16};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const int threads = numbers[i];
        play again = with_output(&first, test_format("out%d", threads));
        again.recipe.store = play_path(&first, test_format("store%d.db", threads));
        again.threads = threads;
        ck_assert_uint_eq(must_run(&again).cached, 0);
        ck_assert_msg(strcmp(play_digest(again.recipe.output), expected) == 0, "%s: other bytes with %d threads",
                      scheme, threads);
    }
}

TEST(same_bytes_with_any_threads)
{
    check_same_bytes("w4a16_g16", "rtn,gptq,smoothquant,mkq,gptq-hls,mkq-full");
    check_same_bytes("w8a8", "rtn,smoothquant-gptq");
}
END_OF_TEST

TEST(same_bytes_from_the_store)
{
    const play first = play_new(NULL, "w4a16_g16", "rtn,gptq");
    must_run(&first);
    const play again = with_output(&first, "again");
    ck_assert_uint_eq(must_run(&again).cached, 16);
    ck_assert_str_eq(play_digest(again.recipe.output), play_digest(first.recipe.output));
    ck_assert_int_eq(play_sql(&first, "SELECT count(*) FROM candidate"), 16);
    ck_assert_int_eq(play_sql(&first, "SELECT count(*) FROM run WHERE status = 'finished'"), 2);
}
END_OF_TEST

/* Details of the divergence (quantiles, positions, tokens) agree with the final evaluation that they belong to.  If
 * a store of an earlier version lacks them the next run adds them, and measures nothing else again. */
TEST(where_the_result_differs)
{
    static const char *const equal[] = {
        "SELECT count(*) = 5 AND max(kl) = (SELECT kl FROM divergence_token WHERE rank = 1) FROM divergence_quantile",
        "SELECT sum(p.tokens) = e.tokens AND abs(sum(p.tokens * p.kl) / e.tokens - e.kl) < 1e-12 * e.kl"
        " FROM divergence_position p JOIN evaluation e ON e.id = p.evaluation_id",
        "SELECT evaluation_id IN (SELECT v.evaluation_id FROM run_evaluation v JOIN run r ON r.id = v.run_id"
        " WHERE v.role = 'test' AND v.subject = r.result) FROM divergence_token WHERE rank = 1",
        "SELECT count(*) = 50 AND min(length(text)) > 0 AND max(length(text_before)) > 8 FROM divergence_token",
        "SELECT count(*) = 0 FROM divergence_token a JOIN divergence_token b ON b.rank = a.rank + 1 WHERE b.kl > a.kl",
        "SELECT count(*) = 0 FROM activation_peak p LEFT JOIN token_context t ON t.window = p.window AND"
        " t.token = p.token WHERE t.text_before IS NULL OR (t.text_before = '') <> (p.token = 0)",
        "SELECT count(*) > 20 AND max(length(text_after)) > 4 FROM token_context"};
    const play first = play_new(NULL, "w4a16_g16", "rtn,gptq");
    must_run(&first);
    for (size_t i = 0; i < sizeof equal / sizeof *equal; i++)
        ck_assert_msg(play_sql(&first, equal[i]) == 1, "%s", equal[i]);
    const int64_t kept = play_sql(&first, "SELECT count(*) FROM evaluation");
    play_sql(&first, "DELETE FROM divergence_quantile");
    play_sql(&first, "DELETE FROM divergence_position");
    play_sql(&first, "DELETE FROM divergence_token");
    const play again = with_output(&first, "again");
    ck_assert_uint_eq(must_run(&again).cached, 16);
    for (size_t i = 0; i < sizeof equal / sizeof *equal; i++)
        ck_assert_msg(play_sql(&first, equal[i]) == 1, "%s", equal[i]);
    ck_assert_int_eq(play_sql(&first, "SELECT count(*) FROM evaluation"), kept);
}
END_OF_TEST

/* If the pool grows, only the candidates of the new algorithms are computed. */
TEST(pool_grows)
{
    const play first = play_new(NULL, "w4a16_g16", "rtn");
    must_run(&first);
    play more = with_output(&first, "more"), fresh = with_output(&first, "fresh");
    play_pool(&more, NULL, "gptq,rtn");
    ck_assert_uint_eq(must_run(&more).cached, 8);
    fresh.recipe = more.recipe;
    fresh.recipe.output = play_path(&first, "fresh");
    fresh.recipe.store = play_path(&first, "fresh.db");
    must_run(&fresh);
    ck_assert_str_eq(play_digest(more.recipe.output), play_digest(fresh.recipe.output));
}
END_OF_TEST

/* A unit with a single candidate is stored without scores.  A run that needs scores computes the whole candidate
 * again; one that does not uses the stored candidate. */
TEST(only_candidates_need_no_scores)
{
    play first = play_new(NULL, "w4a16_g16", "gptq");
    first.recipe.unscored = true;
    must_run(&first);
    ck_assert_int_eq(play_sql(&first, "SELECT count(*) FROM candidate WHERE score_rows IS NULL"), 8);
    ck_assert_int_eq(play_sql(&first, "SELECT count(*) FROM score"), 0);
    ck_assert_int_gt(play_sql(&first, "SELECT count(*) FROM activation"), 0);
    play again = with_output(&first, "again"), scored = with_output(&first, "scored");
    ck_assert_uint_eq(must_run(&again).cached, 8);
    scored.recipe.unscored = false;
    ck_assert_uint_eq(must_run(&scored).cached, 0);
    ck_assert_int_eq(play_sql(&first, "SELECT count(*) FROM candidate WHERE score_rows > 0"), 8);
    ck_assert_int_gt(play_sql(&first, "SELECT count(*) FROM score"), 0);
    /* The model card tells whether there are scores, the recipe what was asked for; the other files are equal. */
    ck_assert_str_eq(strstr(play_digest(scored.recipe.output), "config.json"),
                     strstr(play_digest(again.recipe.output), "config.json"));
    play more = with_output(&first, "more");
    play_pool(&more, NULL, "gptq,rtn");
    more.recipe.unscored = false;
    ck_assert_uint_eq(must_run(&more).cached, 8);
    again.recipe.output = play_path(&first, "last");
    ck_assert_uint_eq(must_run(&again).cached, 8);
    ck_assert_int_eq(play_sql(&first, "SELECT count(*) FROM candidate WHERE score_rows IS NULL"), 0);
}
END_OF_TEST

/* ---- the store ---- */

TEST(damaged_blob_is_computed_again)
{
    const play first = play_new(NULL, "w4a16_g16", "rtn,gptq");
    must_run(&first);
    calm_store *store;
    calm_value digest;
    ck_ok(calm_store_open(ctx, first.recipe.store, NULL, &store));
    ck_ok(calm_store_query_one(ctx, store, "SELECT blob FROM candidate ORDER BY id LIMIT 1", NULL, 0, &digest, 1));
    const char *path = test_format("%s/%.2s/%s", calm_store_blobs(store), digest.text, digest.text + 2);
    calm_store_close(store);
    FILE *blob = fopen(path, "r+b");
    ck_assert_ptr_nonnull(blob);
    fseek(blob, 200, SEEK_SET);
    const int byte = getc(blob);
    fseek(blob, 200, SEEK_SET);
    putc(byte ^ 16, blob);
    fclose(blob);
    const play again = with_output(&first, "again");
    const outcome said = must_run(&again);
    ck_assert_uint_eq(said.cached, 15);
    ck_assert_msg(strstr(said.log, "computed again"), "%s", said.log);
    ck_assert_str_eq(play_digest(again.recipe.output), play_digest(first.recipe.output));
    const play third = with_output(&first, "third");
    ck_assert_uint_eq(must_run(&third).cached, 16);
}
END_OF_TEST

TEST(store_of_a_newer_version)
{
    const play run = play_new(NULL, "w4a16_g16", "rtn");
    must_run(&run);
    const play again = with_output(&run, "again");
    play_sql(&run, "PRAGMA user_version = 99");
    const outcome said = play_run(&again, none);
    ck_assert_int_eq(said.status, CALM_EUNSUPPORTED);
    ck_assert_msg(strstr(said.message, "newer calm") && strstr(said.message, "99") && strstr(said.message, "calm.db"),
                  "%s", said.message);
    ck_assert_str_eq(play_list(&run, "again"), "");
    play_sql(&run, test_format("PRAGMA user_version = %d", calm_store_version()));
    ck_assert_uint_eq(must_run(&again).cached, 8);
}
END_OF_TEST

/* Starts a process that holds the store until it is killed. */
static pid_t start_holder(const play *run)
{
    const calm_store_how how = {.mode = CALM_STORE_WRITE, .command = "calm quantize --model other"};
    calm_store *store;
    int ready[2];
    char byte;
    ck_assert_int_eq(pipe(ready), 0);
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        if (calm_store_open(ctx, run->recipe.store, &how, &store) == CALM_OK && write(ready[1], "x", 1) == 1)
            sleep(300);
        _exit(1);
    }
    close(ready[1]);
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return child;
}

TEST(second_run_waits_for_the_first)
{
    const play run = play_new(NULL, "w4a16_g16", "rtn");
    outcome *shared;
    const pid_t holder = start_holder(&run), child = play_start(&run, none, &shared);
    const char *words = test_format("waiting for process %ld (calm quantize --model other)", (long)holder);
    for (int i = 0; i < 3000 && !strstr(shared->log, words); i++)
        usleep(10000);
    ck_assert_ptr_null(play_digest(run.recipe.output));
    kill(holder, SIGKILL);
    ck_assert_int_eq(waitpid(holder, NULL, 0), holder);
    const outcome said = play_wait(child, shared);
    ck_assert_msg(strstr(said.log, words), "%s", said.log);
    ck_assert_msg(said.status == CALM_OK, "%s", said.message);
    ck_assert_ptr_nonnull(play_digest(run.recipe.output));
}
END_OF_TEST

/* Of two runs at the same time one computes, and the other finds everything in the store. */
TEST(two_runs_on_one_store)
{
    const play a = play_new(NULL, "w4a16_g16", "rtn,gptq"), b = with_output(&a, "other");
    outcome *shared[2], said[2];
    pid_t child[2] = {play_start(&a, none, &shared[0]), play_start(&b, none, &shared[1])};
    for (int i = 0; i < 2; i++) {
        said[i] = play_wait(child[i], shared[i]);
        ck_assert_msg(said[i].status == CALM_OK, "%s", said[i].message);
    }
    ck_assert_uint_eq(said[0].cached + said[1].cached, 16);
    ck_assert_str_eq(play_digest(a.recipe.output), play_digest(b.recipe.output));
}
END_OF_TEST

/* ---- the result ---- */

TEST(one_algorithm_is_a_uniform_run)
{
    const play run = play_new(NULL, "w4a16_g16", "gptq");
    const outcome said = must_run(&run);
    ck_assert_str_eq(said.result, "gptq");
    ck_assert_msg(strstr(said.verdict, "a uniform run"), "%s", said.verdict);
}
END_OF_TEST

/* Returns a run whose hybrid is bad: 2-bit absmax is far worse than least squares, but the stored scores say the
 * opposite. */
static play misled(void)
{
    const play first = play_new(NULL, "w2a16_g16", "rtn,gptq-hls");
    const outcome said = must_run(&first);
    ck_assert_msg(strstr(said.verdict, "hybrid"), "%s", said.verdict);
    play_sql(&first,
             "UPDATE score SET value = 1e-9 WHERE candidate_id IN (SELECT c.id FROM candidate c JOIN algorithm a ON"
             " a.id = c.algorithm_id JOIN job j ON j.id = c.job_id WHERE a.name = 'rtn' AND j.role <> 'o')");
    return with_output(&first, "misled");
}

TEST(guard_prefers_a_better_uniform_run)
{
    const play run = misled();
    const outcome said = must_run(&run);
    ck_assert_uint_eq(said.cached, 16);
    ck_assert_msg(strcmp(said.result, "gptq-hls") == 0, "%s", said.verdict);
    ck_assert_msg(strstr(said.verdict, "uniform gptq-hls has the least KL: ") &&
                      strstr(said.verdict, "the result"),
                  "%s", said.verdict);
    play uniform = with_output(&run, "uniform");
    play_pool(&uniform, NULL, "gptq-hls");
    must_run(&uniform);
    char a[CALM_SHA256_HEX], b[CALM_SHA256_HEX];
    ck_ok(calm_sha256_file(ctx, test_format("%s/model.safetensors", run.recipe.output), a));
    ck_ok(calm_sha256_file(ctx, test_format("%s/model.safetensors", uniform.recipe.output), b));
    ck_assert_str_eq(a, b);
}
END_OF_TEST

TEST(keep_hybrid)
{
    play run = misled();
    run.recipe.keep_hybrid = true;
    const outcome said = must_run(&run);
    ck_assert_str_eq(said.result, "hybrid");
    ck_assert_msg(strstr(said.verdict, "uniform gptq-hls has the least KL") && strstr(said.verdict, "--keep-hybrid"),
                  "%s", said.verdict);
}
END_OF_TEST

/* A step that fails in a transaction leaves none open: what the caller stores next is there for others. */
TEST(a_failed_step_leaves_the_store_usable)
{
    const play run = play_new(NULL, "w4a16_g16", "rtn");
    const calm_store_how how = {.mode = CALM_STORE_WRITE};
    calm_store *store;
    play_must_run(&run);
    ck_ok(calm_store_open(ctx, run.recipe.store, &how, &store));
    ck_fails(calm_environment_put(ctx, store, 999), CALM_EARG, "FOREIGN");
    calm_recipe recipe = {.gates = (calm_gate[]){{.text = "kl<=1"}}, .n_gates = 1};
    const calm_result result = {.store = store, .run_id = 999, .recipe = &recipe, .gate_values = (double[]){0.5}};
    ck_fails(calm_gates_put(ctx, &result), CALM_EARG, "FOREIGN");
    const calm_trial trial = {.id = 1, .name = "rtn"};
    calm_run other = {.in.store = store, .result.run_id = 999};
    ck_fails(calm_trials_put(ctx, &other, &trial, 1, "guard"), CALM_EARG, "");
    ck_ok(calm_store_environment_put(ctx, store, 1, "test", "seen"));
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM environment WHERE name = 'test'"), 1);
    calm_store_close(store);
}
END_OF_TEST

/* ---- bad inputs ---- */

/* Checks that the run fails with these words and leaves no output. */
static void check_refused(const play *run, calm_status status, const char *words)
{
    const outcome said = play_run(run, none);
    ck_assert_msg(said.status == status && strstr(said.message, words), "expected %s with \"%s\"; found %s: %s",
                  calm_status_name(status), words, calm_status_name(said.status), said.message);
    ck_assert_str_eq(play_list(run, "out"), "");
}

TEST(not_a_number_in_a_weight)
{
    tiny_model spec = tiny_default;
    spec.nan_in = "model.layers.1.mlp.up_proj.weight";
    spec.nan_at = 77;
    const play run = play_new(&spec, "w4a16_g16", "rtn");
    check_refused(&run, CALM_ENUMERIC, "model.layers.1.mlp.up_proj.weight");
    check_refused(&run, CALM_ENUMERIC, "77");
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM run WHERE status = 'failed'"), 1);    /* tried twice */
}
END_OF_TEST

TEST(tensors_that_contradict_the_config)
{
    tiny_model missing = tiny_default, integers = tiny_default, transposed = tiny_default;
    missing.missing = "model.layers.0.self_attn.o_proj.weight";
    integers.as_integers = "model.layers.0.mlp.down_proj.weight";
    transposed.transposed = "model.layers.0.mlp.gate_proj.weight";
    const play a = play_new(&missing, "w4a16_g16", "rtn"), b = play_new(&integers, "w4a16_g16", "rtn");
    const play c = play_new(&transposed, "w4a16_g16", "rtn");
    check_refused(&a, CALM_ENOTFOUND, missing.missing);
    check_refused(&b, CALM_EFORMAT, integers.as_integers);
    check_refused(&c, CALM_EFORMAT, transposed.transposed);
}
END_OF_TEST

TEST(truncated_weights)
{
    const play run = play_new(NULL, "w4a16_g16", "rtn");
    const char *path = test_format("%s/model.safetensors", run.recipe.model.dir);
    ck_assert_int_eq(truncate(path, 50000), 0);
    check_refused(&run, CALM_EFORMAT, "model.safetensors");
    ck_assert_int_eq(truncate(path, 100), 0);    /* shorter than its header says */
    check_refused(&run, CALM_EFORMAT, "model.safetensors");
    ck_assert_int_eq(truncate(path, 3), 0);
    check_refused(&run, CALM_EFORMAT, "model.safetensors");
    ck_assert_int_eq(unlink(path), 0);
    check_refused(&run, CALM_ENOTFOUND, "model.safetensors");
}
END_OF_TEST

TEST(other_files_of_the_model)
{
    const play run = play_new(NULL, "w4a16_g16", "rtn");
    const char *config = test_format("%s/config.json", run.recipe.model.dir);
    const char unknown[] = "{\"architectures\": [\"GPT2LMHeadModel\"], \"model_type\": \"gpt2\"}";
    char *text;
    size_t n;
    ck_ok(calm_read_file(ctx, config, 1 << 20, &text, &n));
    ck_ok(calm_write_file(ctx, config, unknown, strlen(unknown)));
    check_refused(&run, CALM_EUNSUPPORTED, "GPT2LMHeadModel");
    check_refused(&run, CALM_EUNSUPPORTED, "the families llama ");    /* and the known ones */
    ck_ok(calm_write_file(ctx, config, text, n));
    const char *tokenizer = test_format("%s/tokenizer.json", run.recipe.model.dir);
    ck_assert_int_eq(unlink(tokenizer), 0);
    check_refused(&run, CALM_ENOTFOUND, "tokenizer.json");
    ck_assert_int_eq(unlink(config), 0);
    check_refused(&run, CALM_ENOTFOUND, "config.json");
}
END_OF_TEST

TEST(groups_that_do_not_divide)
{
    const play run = play_new(NULL, "w4a16_g32", "rtn");    /* down has 48 columns */
    check_refused(&run, CALM_EUNSUPPORTED, "mlp.down_proj has 48 input columns");
    check_refused(&run, CALM_EUNSUPPORTED, "w4a16_g16");
    ck_assert_str_eq(play_list(&run, "calm.db"), "");    /* before any work */
}
END_OF_TEST

TEST(quantized_already)
{
    const play first = play_new(NULL, "w4a16_g16", "rtn");
    must_run(&first);
    play again = with_output(&first, "twice");
    again.recipe.model.dir = test_format("%s", first.recipe.output);
    const outcome said = play_run(&again, none);
    ck_assert_int_eq(said.status, CALM_EUNSUPPORTED);
    ck_assert_msg(strstr(said.message, "quantized already"), "%s", said.message);
}
END_OF_TEST

int main(void)
{
    return run_tests("pipeline", (const TTest *[]){
        same_bytes_with_any_threads, same_bytes_from_the_store, where_the_result_differs, pool_grows,
        only_candidates_need_no_scores, damaged_blob_is_computed_again, store_of_a_newer_version,
        second_run_waits_for_the_first, two_runs_on_one_store, one_algorithm_is_a_uniform_run,
        guard_prefers_a_better_uniform_run, keep_hybrid, a_failed_step_leaves_the_store_usable,
        not_a_number_in_a_weight, tensors_that_contradict_the_config, truncated_weights, other_files_of_the_model,
        groups_that_do_not_divide, quantized_already, NULL});
}
