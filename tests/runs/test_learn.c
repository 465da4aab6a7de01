/* Runs that learn blocks or tune the whole model, on tiny models: what changes their bytes, what the store saves,
 * that the written checkpoint is what was measured, and what is refused. */
#include <stdio.h>

#include "ptq/plan/assemble.h"
#include "ptq/stored/stored.h"
#include "tests/support/run_rooms.h"
#include "tests/support/play_select.h"

static const fault none = {0};

/* Makes a run that learns blocks.  It has no guard, which would decide by chance on three windows of a random model. */
static play learning(const tiny_model *spec, const char *scheme, const char *algorithms)
{
    play run = play_new(spec, scheme, algorithms);
    run.threads = 1;    /* two threads would wait for each other in every step */
    run.recipe.calib_windows = 12;
    run.recipe.guard_windows = 0;
    run.recipe.learn = CALM_LEARN_BLOCKS;
    run.recipe.learn_steps = 50;
    ck_ok(calm_learner_parse(ctx, "learn(steps=50,tokens=1)", &run.recipe.learner));
    return run;
}

/* Makes a run that tunes the model, alone or after learning blocks. */
static play tuning(const tiny_model *spec, const char *scheme, const char *algorithms, bool blocks)
{
    play run = learning(spec, scheme, algorithms);
    run.recipe.learn = blocks ? CALM_LEARN_BOTH : CALM_LEARN_KL;
    run.recipe.learner = blocks ? run.recipe.learner : NULL;
    run.recipe.calib_windows = 20;
    run.recipe.score_windows = 4;
    run.recipe.tune_steps = 32;
    run.recipe.tune_rate = 3e-3;
    return run;
}

static const char *weights_of(const play *run, const char *output)
{
    const char *all = play_digest(play_path(run, output)), *at = all ? strstr(all, "model.safetensors ") : NULL;
    if (all && !at)
        at = strstr(all, "model.gguf ");
    ck_assert_msg(at, "no weights in %s", output);
    return test_format("%.*s", (int)strcspn(at, "\n"), at);
}

/* Returns a model whose rows are whole super-blocks. */
static tiny_model of_super_blocks(void)
{
    tiny_model spec = tiny_default;
    spec.hidden = 256;
    spec.inner = 256;
    spec.head_dim = 64;
    return spec;
}

/* Makes the run write GGUF. */
static play to_gguf(play run)
{
    static const calm_exporter *gguf;
    ck_ok(calm_exporter_find(ctx, "gguf", &gguf));
    run.recipe.formats.exporters = &gguf;
    run.recipe.formats.n = 1;
    return run;
}

static const char *learned_rows(const play *run)
{
    return play_text(run, "SELECT learner || run || ' ' || block || ' ' || loss_before || ' ' || loss_after"
                          " || ' ' || changed || ' ' || coalesce(kept, '') FROM v_learned");
}

/* ---- bytes ---- */

TEST(threads_change_no_byte)
{
    const play first = learning(NULL, "w3a16_g16", "rtn,gptq");
    const outcome said = play_must_run(&first);
    ck_assert_msg(strstr(said.result, ", learned"), "%s (%s)", said.result, said.verdict);
    ck_assert_int_eq(play_sql(&first, "SELECT count(*) FROM learned WHERE kept IS NULL"), 2);
    ck_assert_int_gt(play_sql(&first, "SELECT min(changed) FROM learned"), 0);
    for (int threads = 2; threads <= 4; threads += 2) {
        play again = play_elsewhere(&first, test_format("threads%d", threads));
        again.threads = threads;
        play_must_run(&again);
        ck_assert_str_eq(weights_of(&first, "out"), weights_of(&again, test_format("threads%d", threads)));
        ck_assert_str_eq(learned_rows(&again), learned_rows(&first));
    }
}
END_OF_TEST

/* Windows that are long enough are separate steps; shorter ones are joined to a step. */
TEST(short_windows_are_put_together)
{
    const play alone = learning(NULL, "w3a16_g16", "rtn");
    play_must_run(&alone);
    const int window = play_sql(&alone, "SELECT max(window_tokens) FROM calibration");
    play as_long = play_elsewhere(&alone, "as-long"), together = play_elsewhere(&alone, "together");
    ck_ok(calm_learner_parse(ctx, test_format("learn(steps=50,tokens=%d)", window), &as_long.recipe.learner));
    play_must_run(&as_long);
    ck_assert_str_eq(weights_of(&as_long, "as-long"), weights_of(&alone, "out"));
    ck_ok(calm_learner_parse(ctx, test_format("learn(steps=50,tokens=%d)", 2 * window + 1), &together.recipe.learner));
    play_must_run(&together);
    ck_assert_str_ne(weights_of(&together, "together"), weights_of(&alone, "out"));
    ck_assert_int_eq(play_sql(&together, "SELECT count(*) FROM learned WHERE kept IS NULL AND"
                                         " loss_after < loss_before"), 2);
    play again = play_elsewhere(&together, "again");
    again.threads = 3;
    play_must_run(&again);
    ck_assert_str_eq(weights_of(&together, "together"), weights_of(&again, "again"));
}
END_OF_TEST

TEST(threads_change_no_byte_of_tuning)
{
    const tiny_model mixture = tiny_of("qwen3_moe");
    const play runs[] = {tuning(NULL, "w2a16_g16", "rtn", false), tuning(&mixture, "w4a4_g8", "rtn", true)};
    for (int i = 0; i < 2; i++) {
        const play *first = &runs[i];
        const outcome said = play_must_run(first);
        ck_assert_msg(i || strstr(said.result, ", tuned"), "%s (%s)", said.result, said.log);
        for (int threads = 2; threads <= 4; threads += 2) {
            play again = play_elsewhere(first, test_format("again%d", threads));
            again.threads = threads;
            play_must_run(&again);
            ck_assert_str_eq(weights_of(first, "out"), weights_of(&again, test_format("again%d", threads)));
            ck_assert_str_eq(learned_rows(&again), learned_rows(first));
        }
    }
}
END_OF_TEST

/* A run killed while it learns continues with the learned blocks of the store, to the same bytes. */
TEST(killed_it_goes_on)
{
    const play whole = learning(NULL, "w3a16_g16", "gptq");
    const outcome said = play_must_run(&whole);
    int with_a_block = 0;
    for (long part = 5; part < 10; part++) {
        const char *name = test_format("killed%ld", part);
        const play run = play_elsewhere(&whole, name);
        const outcome killed = play_run(&run, (fault){.at = said.calls * part / 10});
        ck_assert(killed.killed);
        with_a_block += play_sql(&run, "SELECT count(*) FROM learned") == 1;
        ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM learned WHERE id NOT IN (SELECT learned_id FROM"
                                        " run_learned)"), 0);
        play_must_run(&run);
        ck_assert_str_eq(weights_of(&run, name), weights_of(&whole, "out"));
        ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM learned"), 2);
    }
    ck_assert_int_gt(with_a_block, 0);
}
END_OF_TEST

/* The rows of tuning are stored all at once; blocks that were learned before are kept. */
TEST(killed_it_tunes_again)
{
    const play whole = tuning(NULL, "w3a16_g16", "gptq", true);
    const outcome said = play_must_run(&whole);
    ck_assert_int_eq(play_sql(&whole, "SELECT count(*) FROM run_learned"), 4);
    int before = 0;
    for (long part = 11; part < 20; part += 2) {
        const char *name = test_format("killed%ld", part);
        const play run = play_elsewhere(&whole, name);
        const outcome killed = play_run(&run, (fault){.at = said.calls * part / 20});
        ck_assert(killed.killed);
        const long long tuned = play_sql(&run, "SELECT count(*) FROM learned WHERE learner LIKE 'kl@%'");
        ck_assert(tuned == 0 || tuned == 2);
        before += !tuned && play_sql(&run, "SELECT count(*) FROM learned") == 2;
        play_must_run(&run);
        ck_assert_str_eq(weights_of(&run, name), weights_of(&whole, "out"));
        ck_assert_str_eq(learned_rows(&run), learned_rows(&whole));
    }
    ck_assert_int_gt(before, 0);
    /* A repeated run reads the store. */
    play run = whole;
    const char *stamps = play_text(&run, "SELECT id || created_at || seconds FROM learned");
    run.recipe.output = play_path(&run, "again");
    play_must_run(&run);
    ck_assert_str_eq(weights_of(&run, "again"), weights_of(&whole, "out"));
    ck_assert_str_eq(play_text(&run, "SELECT id || created_at || seconds FROM learned"), stamps);
}
END_OF_TEST

/* A repeated run reads the store; one with another number of steps does not; a damaged blob is learned again. */
TEST(the_store_has_it)
{
    play run = learning(NULL, "w3a16_g16", "gptq");
    play_must_run(&run);
    const char *first = weights_of(&run, "out");
    const char *stamps = play_text(&run, "SELECT id || created_at || seconds FROM learned");
    run.recipe.output = play_path(&run, "again");
    play_must_run(&run);
    ck_assert_str_eq(weights_of(&run, "again"), first);
    ck_assert_str_eq(play_text(&run, "SELECT id || created_at || seconds FROM learned"), stamps);
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM run_learned WHERE run_id = 2"), 2);
    play_sql(&run, "UPDATE learned SET blob = replace(blob, substr(blob, 1, 1), 'x') WHERE id = 2");
    run.recipe.output = play_path(&run, "third");
    const outcome said = play_must_run(&run);
    ck_assert_msg(strstr(said.log, "computed again") && !strstr(said.log, "block 0 learned") &&
                      strstr(said.log, "block 1 learned"), "%s", said.log);
    ck_assert_str_eq(weights_of(&run, "third"), first);
    run.recipe.learn_steps = 60;
    ck_ok(calm_learner_parse(ctx, "learn(steps=60,tokens=1)", &run.recipe.learner));
    run.recipe.output = play_path(&run, "longer");
    play_must_run(&run);
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM learned"), 4);
    ck_assert_str_ne(weights_of(&run, "longer"), first);
}
END_OF_TEST

/* ---- the written checkpoint is what was measured ---- */

/* Checks that the loss of the checkpoint, read back, equals that of the plan assembled in memory. */
static void check_plan(play run, const char *family, const char *scheme)
{
    const calm_run_options options = {.command = "calm test"};
    calm_run *p;
    calm_measure measure;
    run.recipe.formats.options.asymmetric = true;
    ck_ok(calm_run_quantize(ctx, &run.recipe, &options, &p));
    const calm_learned_facts *all[] = {&p->result.learned, &p->result.tuned};
    const bool wanted[] = {run.recipe.learner != NULL, run.recipe.tune_steps > 0};
    for (int i = 0; i < 2; i++) {
        /* After learned blocks of a random model no step may be left that helps other windows. */
        const bool may_stay = i && wanted[0];
        ck_assert_msg(all[i]->n == (wanted[i] ? 2u : 0u) && (may_stay || all[i]->kept == 0),
                      "%s %s: %zu blocks, %zu as they were", family, scheme, all[i]->n, all[i]->kept);
        ck_assert(!wanted[i] || may_stay || all[i]->after < all[i]->before);
    }
    calm_plan_override override = {p->in.model, &p->result.plan};
    const calm_subject subject = {.model = p->in.model, .override = calm_plan_apply, .user = &override};
    ck_ok(calm_run_measure(ctx, p, NULL, &subject, 1, &measure, &p->eval, NULL, NULL));
    ck_assert_msg(calm_measure_loss(&measure) == calm_measure_loss(&p->result.eval_result),
                  "%s %s: %.17g, written %.17g", family, scheme, calm_measure_loss(&measure),
                  calm_measure_loss(&p->result.eval_result));
    calm_run_close(&p);
}

static void check_written(const char *family, const char *scheme, const char *algorithms)
{
    const tiny_model spec = tiny_wide(family);
    check_plan(learning(&spec, scheme, algorithms), family, scheme);
}

static void check_tuned(const char *family, const char *scheme, const char *algorithms, bool blocks)
{
    const tiny_model spec = tiny_wide(family);
    check_plan(tuning(&spec, scheme, algorithms, blocks), family, scheme);
}

TEST(tuned_models_are_written_as_measured)
{
    check_tuned("qwen3", "w3a16_g32_asym", "rtn", false);
    check_tuned("qwen2", "w3a8_g32", "smoothquant", true);
    check_tuned("gemma3", "w3a16_g32", "gptq-hls", true);
    check_tuned("olmo2", "w3a16_g32", "rtn", false);
    check_tuned("phi3", "w2a8_g32", "smoothquant", false);    /* its 3 bits leave nothing general to tune */
    check_tuned("qwen2_moe", "w3a16_g32", "rtn", true);
    check_tuned("bert", "w3a16_g32", "rtn", false);
    check_tuned("bert", "w4a4_g32", "smoothquant", true);
}
END_OF_TEST

TEST(decoders_are_written_as_measured)
{
    check_written("qwen3", "w3a16_g32_asym", "rtn");
    check_written("llama", "w2a16_g32", "gptq");
    check_written("qwen2", "w3a8_g32", "smoothquant");    /* biases; input scales in norms, v, up */
    check_written("gemma3", "w3a16_g32", "gptq-hls");     /* norms stored less one, four a block     */
    check_written("olmo2", "w3a16_g32", "rtn");           /* norms after the sublayers               */
    check_written("phi3", "w4a4_g32", "smoothquant-gptq");    /* fused linears                       */
}
END_OF_TEST

/* Float schemes: levels are not whole numbers, and scales are powers of two or small floats. */
TEST(small_floats_are_written_as_measured)
{
    check_written("llama", "mxfp4a16", "rtn");
    check_written("qwen3", "nvfp4a16", "gptq");
    check_written("qwen3", "nvfp4", "rtn");
    check_tuned("qwen3", "mxfp4a16", "rtn", true);
}
END_OF_TEST

/* Types of GGUF: with minima, with their own levels, with scales in super-blocks, several types in a block. */
TEST(gguf_files_are_written_as_measured)
{
    static const char *const schemes[] = {"q4_k", "q3_k", "q2_k", "iq4_xs", "gguf_q4_k_m", "q4_1", "iq4_nl"};
    const tiny_model spec = of_super_blocks();
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++)
        check_plan(to_gguf(i ? learning(&spec, schemes[i], "rtn") : tuning(&spec, schemes[i], "rtn", true)), "qwen3",
                   schemes[i]);
}
END_OF_TEST

/* Mixtures: experts have codes, scales and gradients, as do the shared expert and its gate; the router stays. */
TEST(mixtures_are_written_as_measured)
{
    check_written("qwen3_moe", "w3a16_g32", "rtn");
    check_written("qwen3_moe", "w2a16_g32", "gptq");
    check_written("qwen2_moe", "w3a16_g32_asym", "rtn");
    check_written("qwen2_moe", "w4a4_g32", "smoothquant");
}
END_OF_TEST

/* Sinks, convolution taps, decays and router biases stay.  kv_b of latent attention and a and b of a delta net stay
 * float; kv_b takes the input scale of o. */
TEST(other_mixers_are_written_as_measured)
{
    check_written("deepseek_v2", "w3a16_g32", "rtn");
    check_written("deepseek_v3", "w4a4_g32", "smoothquant");
    check_written("glm4_moe_lite", "w3a8_g32", "smoothquant");
    check_written("qwen3_5", "w3a16_g32_asym", "gptq");
    check_written("qwen3_5_moe", "w4a4_g32", "smoothquant");
    check_written("qwen3_next", "w3a16_g32", "rtn");
    check_written("lfm2_moe", "w3a16_g32", "rtn");
    check_written("gpt_oss", "w3a16_g32", "rtn");
    check_written("granite_hybrid", "w3a16_g32", "gptq");
    check_written("nemotron_h", "w3a8_g32", "smoothquant");
    check_written("gemma4", "w3a16_g32", "gptq");
    check_written("gemma4_moe", "w4a4_g32", "smoothquant");
    check_written("nemotron_latent", "w3a16_g32", "rtn");
    check_tuned("gemma4", "w3a16_g32", "rtn", true);
    check_tuned("deepseek_v3", "w3a8_g32", "smoothquant", true);
    check_tuned("qwen3_next", "w3a16_g32", "rtn", true);
    check_tuned("gpt_oss", "w3a16_g32", "rtn", false);
}
END_OF_TEST

/* Linears that the user keeps float lie between learned ones: up takes the input scale of down. */
TEST(around_float_linears)
{
    const tiny_model spec = tiny_wide("qwen3");
    const char *kept[] = {"re:.*up_proj", "re:.*[01].self_attn.q_proj"};
    for (int i = 0; i < 2; i++) {
        play run = learning(&spec, "w3a8_g32", "smoothquant");
        run.recipe.keep_float = (calm_words){.of = &kept[i], .n = 1};
        check_plan(run, "qwen3", kept[i]);
    }
}
END_OF_TEST

/* A family whose blocks have a float linear: the same with threads, from the store, and assembled. */
static void check_again(const char *family, const char *scheme, const char *algorithms)
{
    const tiny_model spec = tiny_wide(family);
    const play first = tuning(&spec, scheme, algorithms, true);
    const outcome said = play_must_run(&first);
    ck_assert_int_eq(play_sql(&first, "SELECT count(*) FROM learned WHERE learner NOT LIKE 'kl@%' AND kept IS NULL"
                                      " AND loss_after < loss_before"), 2);
    for (int threads = 2; threads <= 3; threads++) {
        play again = play_elsewhere(&first, test_format("threads%d", threads));
        again.threads = threads;
        play_must_run(&again);
        ck_assert_str_eq(weights_of(&first, "out"), weights_of(&again, test_format("threads%d", threads)));
        ck_assert_str_eq(learned_rows(&again), learned_rows(&first));
    }
    play stored = first;
    const char *stamps = play_text(&first, "SELECT id || created_at || seconds FROM learned");
    stored.recipe.output = play_path(&first, "stored");
    play_must_run(&stored);
    ck_assert_str_eq(weights_of(&first, "stored"), weights_of(&first, "out"));
    ck_assert_str_eq(play_text(&first, "SELECT id || created_at || seconds FROM learned"), stamps);
    calm_assembly assembly;
    const calm_assemble_options o = {.store = first.recipe.store, .run = 1, .output = play_path(&first, "assembled"),
                                     .command = "calm test"};
    ck_ok(calm_reassemble(ctx, &o, &assembly));
    ck_assert_str_eq(assembly.result.name, said.result);
    calm_assembly_close(&assembly);
    ck_assert_str_eq(weights_of(&first, "assembled"), weights_of(&first, "out"));
}

TEST(other_mixers_again)
{
    check_again("deepseek_v3", "w3a8_g32", "smoothquant");
    check_again("qwen3_5_moe", "w3a16_g32", "rtn");
}
END_OF_TEST

TEST(encoders_are_written_as_measured)
{
    check_written("bert", "w3a16_g32", "rtn");
    check_written("bert", "w4a4_g32", "smoothquant");
    check_written("mpnet", "w3a16_g32", "rtn");    /* attention biases by distance */
}
END_OF_TEST

/* ---- other commands ---- */

TEST(assembled_it_is_the_same)
{
    const play run = learning(NULL, "w3a16_g16", "rtn,gptq");
    play_must_run(&run);
    calm_assembly assembly;
    calm_assemble_options o = {.store = run.recipe.store, .run = 1, .output = play_path(&run, "again"),
                               .command = "calm test"};
    ck_ok(calm_reassemble(ctx, &o, &assembly));
    calm_assembly_close(&assembly);
    ck_assert_str_eq(weights_of(&run, "again"), weights_of(&run, "out"));
    /* The plain choices can still be assembled. */
    o.hybrid = true;
    o.output = play_path(&run, "plain");
    ck_ok(calm_reassemble(ctx, &o, &assembly));
    calm_assembly_close(&assembly);
    ck_assert_str_ne(weights_of(&run, "plain"), weights_of(&run, "out"));
    /* A selection chooses from the plain candidates. */
    const calm_reselect_options selecting = play_selecting(&run, 1);
    ck_assert_int_eq(play_select(&selecting), 2);
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM run_learned WHERE run_id = 2"), 0);
    /* A missing blob is named. */
    play_sql(&run, "UPDATE learned SET blob_bytes = blob_bytes + 1 WHERE id = 1");
    o = (calm_assemble_options){.store = run.recipe.store, .run = 1, .output = play_path(&run, "third"),
                                .command = "calm test"};
    ck_fails(calm_reassemble(ctx, &o, &assembly), CALM_ENOTFOUND, "the norms of learned block 0");
    calm_assembly_close(&assembly);
    play_sql(&run, "DELETE FROM learned_candidate WHERE candidate_id = (SELECT max(candidate_id) FROM"
                   " learned_candidate)");
    ck_fails(calm_reassemble(ctx, &o, &assembly), CALM_EFORMAT, "misses a job");
    calm_assembly_close(&assembly);
}
END_OF_TEST

/* If a run has both learned and tuned rows, those of its result are assembled. */
TEST(assembled_it_is_tuned)
{
    for (int blocks = 0; blocks < 2; blocks++) {
        const tiny_model spec = tiny_wide("qwen3");
        const play run = tuning(&spec, "w2a16_g32", "rtn", blocks);
        const outcome said = play_must_run(&run);
        ck_assert_msg(strstr(said.result, blocks ? ", learned, tuned" : ", tuned"), "%s", said.result);
        calm_assembly assembly;
        const calm_assemble_options o = {.store = run.recipe.store, .run = 1, .output = play_path(&run, "again"),
                                         .command = "calm test"};
        ck_ok(calm_reassemble(ctx, &o, &assembly));
        ck_assert_str_eq(assembly.result.name, said.result);
        calm_assembly_close(&assembly);
        ck_assert_str_eq(weights_of(&run, "again"), weights_of(&run, "out"));
    }
}
END_OF_TEST

/* ---- what is refused, and what continues ---- */

/* Steps that are too large are shortened until they lower the loss; if none does, the start is kept. */
TEST(large_steps_are_taken_back)
{
    play run = tuning(NULL, "w3a16_g16", "rtn", false);
    run.recipe.tune_rate = .1;
    const outcome first = play_must_run(&run);
    ck_assert_msg(strstr(first.log, "step 16: the loss rose") && strstr(first.result, ", tuned"), "%s", first.log);
    run = tuning(NULL, "w4a16_g16", "rtn", false);
    run.recipe.tune_rate = 3;
    const outcome said = play_must_run(&run);
    ck_assert_str_eq(said.result, "rtn");
    ck_assert_msg(strstr(said.log, "tuning: the result stays as it was: no step lowered the divergence"), "%s",
                  said.log);
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM learned WHERE kept IS NOT NULL"), 2);
    const play plain = play_elsewhere(&run, "plain");
    play without = plain;
    without.recipe.learn = CALM_LEARN_NONE;
    without.recipe.tune_steps = 0;
    play_must_run(&without);
    ck_assert_str_eq(weights_of(&run, "out"), weights_of(&without, "plain"));
}
END_OF_TEST

/* Encoders: a step has several sentences, and 1 - cosine falls on the held-out ones. */
TEST(encoders_are_tuned_on_their_embeddings)
{
    const tiny_model spec = tiny_wide("bert");
    const play run = tuning(&spec, "w3a16_g32", "rtn", false);
    play again = play_elsewhere(&run, "again");
    const outcome said = play_must_run(&run);
    ck_assert_msg(strstr(said.result, ", tuned"), "%s", said.result);
    ck_assert_msg(strstr(said.log, "of 32: 1 - cosine "), "%s", said.log);
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM learned WHERE learner LIKE 'kl@%' AND kept IS NULL"), 2);
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM learned WHERE loss_after < .95 * loss_before"), 2);
    again.threads = 3;
    play_must_run(&again);
    ck_assert_str_eq(weights_of(&again, "again"), weights_of(&run, "out"));
}
END_OF_TEST

/* Options that need gradients are refused for families without them. */
TEST(kinds_without_gradients_are_refused)
{
    const tiny_model spec = tiny_of("gemma3n");
    play runs[] = {learning(&spec, "w3a16_g8", "rtn"), tuning(&spec, "w3a16_g8", "rtn", false),
                   play_new(&spec, "w3a16_g8", "gptq"), play_new(&spec, "w3a16_g8,w4a16_g8", "rtn")};
    static const char *const options[] = {"`learn` needs", "`learn` needs", "`calibration.weight` gradient needs",
                                          "`choice.sensitivity` gradient needs"};
    runs[2].recipe.weight = CALM_WEIGHT_GRADIENT;
    runs[3].recipe.sensitivity = CALM_SENSITIVITY_GRADIENT;
    for (int k = 0; k < 4; k++) {
        const outcome said = play_run(&runs[k], none);
        ck_assert_int_eq(said.status, CALM_EUNSUPPORTED);
        ck_assert_msg(strstr(said.message, options[k]) && strstr(said.message, "gemma3n's parallel residual streams"),
                      "%s", said.message);
    }
}
END_OF_TEST

TEST(windows_are_counted)
{
    play run = learning(NULL, "w3a16_g16", "rtn");
    run.recipe.calib_windows = 10;    /* 2 held out */
    outcome said = play_must_run(&run);
    ck_assert_msg(strstr(said.log, "8 calibration windows besides those that are held out: below 32"), "%s", said.log);
    run.recipe.calib_windows = 9;
    run.recipe.output = play_path(&run, "few");
    said = play_run(&run, none);
    ck_assert_int_eq(said.status, CALM_EARG);
    ck_assert_msg(strstr(said.message, "7 calibration windows besides those that are held out, expected at least 8"),
                  "%s", said.message);
}
END_OF_TEST

TEST(eight_bits_stay_as_they_are)
{
    const play run = learning(NULL, "w8a8", "rtn");
    const outcome said = play_must_run(&run);
    ck_assert_msg(strstr(said.log, "8 bits leave nothing to learn; the result stays as it is"), "%s", said.log);
    ck_assert_str_eq(said.result, "rtn");
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM learned"), 0);
}
END_OF_TEST

/* The guard compares the learned result with the plain one, and takes it if it is better by more than its error. */
TEST(the_guard_judges)
{
    play run = learning(NULL, "w2a16_g16", "rtn");
    run.recipe.guard_windows = 8;
    const outcome said = play_must_run(&run);
    const bool better = strstr(said.result, ", learned");
    ck_assert_msg(strstr(said.verdict, better ? "learned, it is better: -" : "learned, it is no better, so it stays"),
                  "%s: %s", said.result, said.verdict);
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM run_evaluation WHERE role = 'guard' AND subject ="
                                    " 'rtn, learned'"), 1);
    /* The rule takes the simpler plan within one error; that difference is stored. */
    ck_assert_int_eq(play_sql(&run, "SELECT delta_kl < -delta_se FROM run_evaluation WHERE role = 'guard' AND"
                                    " subject = 'rtn, learned'"), better);
}
END_OF_TEST

static void check_memory(const play *run)
{
    const outcome said = play_must_run(run);
    ck_assert_uint_gt(said.held.learn, 0);
#ifndef CALM_SANITIZED    /* sanitizers pad allocations */
    const size_t expected = said.memory.learn - said.memory.reserved;
    ck_assert_msg(said.held.learn <= expected, "held %zu of %zu", said.held.learn, expected);
#endif
    play spilled = play_elsewhere(run, "spilled");
    const calm_knobs knobs = {.spill = true, .candidates_at_once = 1, .experts_at_once = 1};
    spilled.recipe.knobs = &knobs;
    play_must_run(&spilled);
    ck_assert_str_eq(weights_of(&spilled, "spilled"), weights_of(run, "out"));
}

/* Arenas stay within the estimate while blocks are learned and the model is tuned; rows in a file change no byte. */
TEST(memory_is_as_planned)
{
    static const char *const families[] = {"qwen3", "qwen2_moe", "bert", "deepseek_v3", "qwen3_5_moe", "gpt_oss"};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        const tiny_model spec = tiny_wide(families[i]);
        play blocks = learning(&spec, "w4a4_g32", "smoothquant-gptq"),
             model = tuning(&spec, "w4a4_g32", "smoothquant-gptq", false);
        blocks.threads = model.threads = 2;
        model.recipe.tune_steps = 8;    /* later steps need no more memory */
        check_memory(&blocks);
        check_memory(&model);
    }
    const tiny_model spec = of_super_blocks();
    const play blocks = to_gguf(learning(&spec, "q4_k", "rtn"));
    check_memory(&blocks);
}
END_OF_TEST

int main(void)
{
    return run_tests("learn", (const TTest *[]){threads_change_no_byte, short_windows_are_put_together,
                                                threads_change_no_byte_of_tuning,
                                                killed_it_goes_on, killed_it_tunes_again, the_store_has_it,
                                                tuned_models_are_written_as_measured, decoders_are_written_as_measured,
                                                small_floats_are_written_as_measured,
                                                gguf_files_are_written_as_measured,
                                                mixtures_are_written_as_measured,
                                                other_mixers_are_written_as_measured, around_float_linears,
                                                other_mixers_again, encoders_are_written_as_measured,
                                                assembled_it_is_the_same, assembled_it_is_tuned,
                                                large_steps_are_taken_back, encoders_are_tuned_on_their_embeddings,
                                                kinds_without_gradients_are_refused, windows_are_counted,
                                                eight_bits_stay_as_they_are,
                                                the_guard_judges, memory_is_as_planned, NULL});
}
