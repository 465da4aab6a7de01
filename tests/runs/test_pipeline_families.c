/* Whole runs on every family: mixtures whose experts have too few tokens, fused matrices, norms stored less one,
 * encoders; runs over some blocks; runs killed and resumed. */
#include <stdio.h>

#include "ptq/base/text.h"
#include "ptq/arch/kind.h"
#include "tests/support/run_rooms.h"
#include "ptq/base/file.h"
#include "tests/support/play.h"

#define LEAST_TOKENS 50    /* some experts of the tiny mixture get more of the 128 tokens, some fewer */
#define TOKENS       128

static const fault none = {0};

/* Returns a tiny model of the family whose widths are multiples of the group of 16. */
static tiny_model family_model(const char *family)
{
    tiny_model spec = tiny_of(family);
    spec.expert_inner = 32;
    spec.shared_inner = 48;
    return spec;
}

static play new_play(const char *family, const char *scheme, const char *algorithms)
{
    const tiny_model spec = family_model(family);
    play run = play_new(&spec, scheme, algorithms);
    run.recipe.least_tokens = LEAST_TOKENS;
    if (strncmp(family, "bert", 4) == 0) {    /* no next token to predict */
        run.recipe.guard_windows = 0;
        run.recipe.eval_path = NULL;
    }
    return run;
}

/* ---- every family ---- */

/* Returns the number of jobs, without those that stay float by their kind. */
static int64_t count_jobs(const play *run)
{
    calm_model *model;
    int64_t n = 0;
    ck_ok(calm_model_open(ctx, run->recipe.model.dir, &model));
    for (size_t j = 0; j < calm_model_layout(model)->n_jobs; j++)
        n += !calm_model_layout(model)->jobs[j].traits->stays_float;
    calm_model_close(model);
    return n;
}

static void check_quantized(const play *run)
{
    calm_model *model;
    ck_ok(calm_model_open(ctx, run->recipe.output, &model));
    ck_assert(calm_model_is_quantized(model));
    calm_model_close(model);
}

/* Every job has a choice, and the output does not depend on the number of threads or on what the store already has. */
TEST(every_family_from_end_to_end)
{
    for (size_t f = 0; tiny_families[f]; f++) {
        play first = new_play(tiny_families[f], "w4a16_g16", "rtn,gptq,smoothquant");
        first.threads = 1;
        first.recipe.guard_windows = first.recipe.guard_windows > 0;
        first.recipe.eval_path = NULL;
        play_must_run(&first);
        check_quantized(&first);
        ck_assert_int_eq(play_sql(&first, "SELECT count(*) FROM choice"), count_jobs(&first));
        ck_assert_int_eq(play_sql(&first, "SELECT count(*) FROM candidate WHERE failure IS NULL"),
                         3 * count_jobs(&first));
        play again = play_elsewhere(&first, "again");
        again.threads = 3;
        ck_assert_uint_eq(play_must_run(&again).cached, 0);
        ck_assert_msg(strcmp(play_digest(first.recipe.output), play_digest(again.recipe.output)) == 0,
                      "%s: other bytes with 3 threads", tiny_families[f]);
        if (f % 3)    /* the store does not know families */
            continue;
        again.recipe.output = play_path(&first, "third");
        ck_assert_int_eq((int64_t)play_must_run(&again).cached, 3 * count_jobs(&first));
        ck_assert_str_eq(play_digest(first.recipe.output), play_digest(again.recipe.output));
    }
}
END_OF_TEST

/* Gemma 3n and Gemma 4 with blocks that read the keys and values of other blocks, and with several streams, which
 * are carried with the hidden states: also in files, after quantized blocks, and in lockstep with float blocks.
 * With 8 bits the outputs change as little as in the test below; with the keys of another block, or float keys next
 * to quantized queries, they would change by their own magnitude. */
static void check_carried(const char *family)
{
    static const char scores[] = "SELECT count(*) FROM v_scores WHERE metric = 'rel_mse'";
    static const calm_knobs spilled = {.spill = true, .candidates_at_once = 1, .experts_at_once = 1};
    static const calm_prefix prefixes[] = {CALM_PREFIX_FLOAT, CALM_PREFIX_QUANTIZED, CALM_PREFIX_ASYMMETRIC};
    for (size_t i = 0; i < 3; i++) {
        tiny_model spec = family_model(family);
        spec.n_blocks = 4;
        play first = play_new(&spec, "w8a8", "rtn,gptq,smoothquant");
        first.recipe.prefix = prefixes[i];
        first.recipe.guard_windows = 0;
        first.recipe.eval_path = NULL;
        first.recipe.score_points |= 1u << CALM_POINT_SUBLAYER | 1u << CALM_POINT_BLOCK | 1u << CALM_POINT_DELTA;
        first.threads = 1;
        play_must_run(&first);
        check_quantized(&first);
        ck_assert_int_eq(play_sql(&first, "SELECT count(*) FROM candidate WHERE failure IS NULL"),
                         3 * count_jobs(&first));
        ck_assert_int_gt(play_sql(&first, scores), 0);
        ck_assert_int_eq(play_sql(&first, test_format("%s AND value > 0.01", scores)), 0);
        play again = play_elsewhere(&first, "again");
        again.threads = 3;
        again.recipe.knobs = &spilled;
        ck_assert_uint_eq(play_must_run(&again).cached, 0);
        ck_assert_str_eq(play_digest(first.recipe.output), play_digest(again.recipe.output));
    }
}

TEST(carried_rows_from_end_to_end)
{
    check_carried("gemma3n");
    check_carried("gemma4");
}
END_OF_TEST

/* 8-bit weights change by at most 1/255 of the row's largest weight, 2 % of their magnitude, so logits of magnitude
 * 6 change by 0.2 after two blocks, a divergence of 0.2^2 / 2; a matrix in the wrong place costs more than 1.  An
 * output, also of an expert times its router weight, is off by 2 % and its square by 4e-4, and by a few times that
 * after several linears and a gate; without the router weight, 1/2 for two experts, it would be off by 1. */
TEST(eight_bits_are_the_model)
{
    for (size_t f = 0; tiny_families[f]; f++) {
        if (strncmp(tiny_families[f], "bert", 4) == 0)
            continue;
        play run = new_play(tiny_families[f], "w8a16", "rtn");
        run.threads = 1;
        run.recipe.guard_windows = 0;
        run.recipe.score_points |= 1u << CALM_POINT_SUBLAYER;
        play_must_run(&run);
        for (calm_unit unit = CALM_UNIT_JOB; unit <= CALM_UNIT_SUBLAYER; unit++) {
            const char *scores = test_format("SELECT count(*) FROM v_scores WHERE metric = 'rel_mse' AND unit = '%s'",
                                             calm_unit_name(unit));
            ck_assert_int_gt(play_sql(&run, scores), 0);
            ck_assert_int_eq(play_sql(&run, test_format("%s AND value > 0.01", scores)), 0);
        }
        const int64_t billionths =
            play_sql(&run, "SELECT cast(1e9 * e.kl AS INTEGER) FROM run_evaluation v JOIN evaluation e"
                           " ON e.id = v.evaluation_id WHERE v.role = 'test' AND v.subject = 'rtn'");
        /* These families multiply the experts' outputs by 1.5, so logits are larger and the divergence is 1.5^2
         * times. */
        const bool scaled = calm_text_listed("glm4_moe deepseek_v2 deepseek_v3 glm4_moe_lite", ' ', tiny_families[f]);
        const int64_t most = scaled ? 45000000 : 20000000;
        ck_assert_msg(billionths > 0 && billionths < most, "%s: KL %lld billionths", tiny_families[f],
                      (long long)billionths);
    }
}
END_OF_TEST

/* ---- experts ---- */

static void check_counts(const play *run)
{
    for (int block = 0; block < 2; block++)
        for (int down = 0; down < 2; down++)
            ck_assert_int_eq(
                play_sql(run, test_format("SELECT sum(tokens) FROM v_experts WHERE run = 1 AND block = %d AND job LIKE"
                                          " 'experts.%%.%s'",
                                          block, down ? "down" : "gate_up")),
                2 * TOKENS);
    ck_assert_int_eq(play_sql(run, "SELECT count(*) FROM v_experts WHERE run = 1"), 2 * 5 * 2);
}

/* Experts with too few tokens are rounded without data, and the store says so. */
TEST(experts_with_too_few_tokens)
{
    static const char few[] =
        "SELECT count(*) FROM candidate k JOIN algorithm a ON a.id = k.algorithm_id JOIN expert e ON"
        " e.job_id = k.job_id WHERE a.name = '%s' AND e.tokens %s %d";
    play run = new_play("qwen3_moe", "w4a16_g16", "gptq,rtn,smoothquant");
    play_must_run(&run);
    check_counts(&run);
    ck_assert_int_gt(play_sql(&run, test_format(few, "rtn for gptq", "<", LEAST_TOKENS)), 0);
    ck_assert_int_eq(play_sql(&run, test_format(few, "rtn for gptq", ">=", LEAST_TOKENS)), 0);
    ck_assert_int_gt(play_sql(&run, test_format(few, "gptq", ">=", LEAST_TOKENS)), 0);
    ck_assert_int_eq(play_sql(&run, test_format(few, "gptq", "<", LEAST_TOKENS)), 0);
    ck_assert_int_eq(play_sql(&run, test_format(few, "smoothquant", "<", LEAST_TOKENS)), 0);
    ck_assert_int_gt(play_sql(&run, test_format(few, "rtn", "<", LEAST_TOKENS)), 0);    /* rtn needs no tokens */
    /* "rtn for ..." has the codes and the chain of rtn. */
    ck_assert_int_eq(
        play_sql(&run, "SELECT count(*) FROM candidate k JOIN algorithm a ON a.id = k.algorithm_id JOIN candidate r"
                       " ON r.job_id = k.job_id JOIN algorithm b ON b.id = r.algorithm_id WHERE b.name = 'rtn' AND"
                       " a.name LIKE 'rtn for %' AND (k.blob <> r.blob OR a.chain <> b.chain)"),
        0);
    /* Another threshold gives experts other candidates, and other jobs the same. */
    play more = run;
    more.recipe.output = play_path(&run, "more");
    more.recipe.least_tokens = 1;
    ck_assert_int_eq((int64_t)play_must_run(&more).cached, 3 * (count_jobs(&run) - 2 * 5 * 2));
    ck_assert_int_eq(
        play_sql(&run, "SELECT count(*) FROM v_experts WHERE run = 2 AND tokens > 0 AND algorithm LIKE '% for %'"), 0);
}
END_OF_TEST

/* Two tokens reach at most four of five experts. */
TEST(experts_that_saw_nothing)
{
    play run = new_play("qwen2_moe", "w4a16_g16", "gptq");
    run.recipe.calib_windows = 1;
    run.recipe.seqlen = 2;
    run.recipe.least_tokens = 1;
    play_must_run(&run);
    check_quantized(&run);
    const int64_t idle = play_sql(&run, "SELECT count(*) FROM v_experts WHERE tokens = 0");
    ck_assert_int_ge(idle, 2 * 2);
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM v_experts WHERE tokens = 0 AND algorithm = 'rtn for gptq' AND"
                                    " coalesce(score_rows, 0) = 0"), idle);
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM v_experts WHERE tokens > 0 AND algorithm <> 'gptq'"), 0);
}
END_OF_TEST

TEST(mixture_killed_and_started_again)
{
    play first = new_play("qwen2_moe", "w4a16_g16", "rtn,gptq");
    first.threads = 1;
    first.recipe.guard_windows = 1;
    first.recipe.eval_path = NULL;
    const outcome said = play_must_run(&first);
    const char *expected = play_digest(first.recipe.output);
    check_counts(&first);
    size_t used = 0;
    for (int i = 1; i < 8; i++) {
        play run = play_elsewhere(&first, test_format("killed%d", i));
        ck_assert(play_run(&run, (fault){.at = said.calls * i / 8}).killed);
        const int64_t stored = play_sql(&run, "SELECT count(*) FROM candidate");
        run.recipe.force = true;
        const outcome resumed = play_must_run(&run);
        ck_assert_int_eq((int64_t)resumed.cached, stored);
        ck_assert_str_eq(play_digest(run.recipe.output), expected);
        check_counts(&run);
        used += stored > 0;
    }
    ck_assert_uint_ge(used, 4);
}
END_OF_TEST

/* ---- some blocks only ---- */

static bool of_block(const char *name, const char *block)
{
    return strstr(name, block) != NULL;
}

/* Checks that tensors outside of the block are unchanged, and that the block's linears are quantized. */
static void check_only(const play *run, const char *block)
{
    calm_safetensors *from, *to;
    size_t changed = 0, same = 0;
    ck_ok(calm_safetensors_open(ctx, run->recipe.model.dir, &from));
    ck_ok(calm_safetensors_open(ctx, run->recipe.output, &to));
    for (size_t i = 0; i < calm_safetensors_count(from); i++) {
        const calm_tensor *a = calm_safetensors_at(from, i), *b = calm_safetensors_find(to, a->name);
        const bool equal = b && a->dtype == b->dtype && a->bytes == b->bytes && memcmp(a->data, b->data, a->bytes) == 0;
        ck_assert_msg(equal || of_block(a->name, block), "%s was changed", a->name);
        changed += !equal;
        same += equal;
    }
    for (size_t i = 0; i < calm_safetensors_count(to); i++) {
        const calm_tensor *b = calm_safetensors_at(to, i);
        ck_assert_msg(calm_safetensors_find(from, b->name) || of_block(b->name, block), "%s is new", b->name);
    }
    ck_assert_uint_gt(changed, 3);
    ck_assert_uint_gt(same, 3);
    calm_safetensors_close(from);
    calm_safetensors_close(to);
}

TEST(one_block_alone)
{
    static const char *const families[] = {"qwen3", "qwen3_moe", "gemma2", "phi3", "bert"};
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        play run = new_play(families[f], "w4a16_g16", "rtn,smoothquant");
        run.threads = 1;
        run.recipe.guard_windows = 0;
        run.recipe.eval_path = NULL;
        run.recipe.first_block = run.recipe.last_block = 1;
        play_must_run(&run);
        check_quantized(&run);
        check_only(&run, strcmp(families[f], "bert") == 0 ? "encoder.layer.1." : "layers.1.");
        ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM choice"), count_jobs(&run) / 2);
        ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM block WHERE number <> 1"), 0);
        /* A later run over all blocks uses the candidates of block 1, since both runs have a float prefix. */
        play whole = run;
        whole.recipe.output = play_path(&run, "whole");
        whole.recipe.first_block = 0;
        whole.recipe.last_block = -1;
        ck_assert_int_eq((int64_t)play_must_run(&whole).cached, count_jobs(&run));
        ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM block"), 2);
    }
}
END_OF_TEST

TEST(blocks_that_are_not_there)
{
    static const long long ranges[][2] = {{0, 2}, {2, 2}, {1, 0}};
    play run = new_play("qwen3", "w4a16_g16", "rtn");
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        run.recipe.first_block = ranges[i][0];
        run.recipe.last_block = ranges[i][1];
        const outcome said = play_run(&run, none);
        ck_assert_int_eq(said.status, CALM_EARG);
        ck_assert_msg(strstr(said.message, "the model has blocks 0 to 1"), "%s", said.message);
        ck_assert_str_eq(play_list(&run, "calm.db"), "");
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("pipeline_families", (const TTest *[]){
        every_family_from_end_to_end, carried_rows_from_end_to_end, eight_bits_are_the_model,
        experts_with_too_few_tokens, experts_that_saw_nothing, mixture_killed_and_started_again, one_block_alone,
        blocks_that_are_not_there, NULL});
}
