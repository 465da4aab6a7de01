/* Runs for a target engine: plans of a mixture under a budget are legal, calm select reproduces them, and a model of
 * which the engine takes no scheme is refused before any work.  The test states what is legal independently, as SQL
 * over choices. */
#include <stdio.h>

#include "ptq/io/safetensors.h"
#include "tests/support/play_select.h"

static const fault none = {0};

/* Returns a mixture whose widths kernels take: experts of [128, 128] and [128, 64]. */
static tiny_model mixture(void)
{
    tiny_model model = tiny_of("qwen3_moe");
    model.hidden = 128;
    model.inner = 128;
    model.n_heads = 4;
    model.n_kv = 2;
    model.head_dim = 32;
    model.n_experts = 4;
    model.expert_inner = 64;
    return model;
}

static play for_target(const play *first, const char *target, double *bits)
{
    play run = play_elsewhere(first, target);
    run.recipe.store = first->recipe.store;
    run.recipe.engine = calm_engine_find(target);
    run.recipe.engine_format = calm_engine_reads(run.recipe.engine, "compressed-tensors") ? "compressed-tensors" : NULL;
    run.recipe.engine_tie =
        calm_tie_stronger(calm_engine_tie(run.recipe.engine, run.recipe.engine_format), CALM_TIE_BLOCK);
    run.recipe.budgets = bits;
    run.recipe.n_budgets = 1;
    run.recipe.keep_hybrid = true;
    return run;
}

static int64_t newest(const play *run)
{
    return play_sql(run, "SELECT max(id) FROM run");
}

/* Returns the number that a statement gives over the choices of a run. */
static int64_t of_choices(const play *run, int64_t id, const char *what, const char *where)
{
    return play_sql(run, test_format("SELECT %s FROM v_choices WHERE run = %lld AND %s", what, (long long)id, where));
}

static void check_legal(const play *run, int64_t id, const char *target)
{
    static const char schemes_of_block[] =
        "SELECT max(n) FROM (SELECT count(DISTINCT scheme) n FROM v_choices WHERE run ="
        " %lld AND job LIKE 'experts.%%' GROUP BY block)";
    ck_assert_int_eq(play_sql(run, test_format(schemes_of_block, (long long)id)), 1);
    if (strcmp(target, "transformers") == 0)
        ck_assert_int_eq(of_choices(run, id, "count(DISTINCT scheme)", "job LIKE 'experts.%'"), 1);
    if (strcmp(target, "sglang") == 0)
        ck_assert_int_eq(of_choices(run, id, "count(*)", "scheme LIKE 'w3%'"), 0);
    ck_assert_int_eq(of_choices(run, id, "count(*)", "1"), 20);
    /* Linears that engines fuse are one job, so they have one choice. */
    ck_assert_int_eq(play_sql(run, "SELECT count(*) FROM job WHERE linears LIKE '%q_proj%k_proj%v_proj%'"), 2);
    ck_assert_int_eq(play_sql(run, "SELECT count(*) FROM job WHERE linears LIKE '%gate_proj%up_proj%'"), 8);
}

static const char *decided(const play *run, int64_t of)
{
    return play_text(run,
                     test_format("SELECT printf('%%d %%d %%s', job_id, candidate_id, reason) FROM choice WHERE run_id ="
                                 " %lld ORDER BY job_id",
                                 (long long)of));
}

static int64_t select_run(const play *run, int64_t of, const char *target, double budget)
{
    calm_reselect_options o = play_selecting(run, of);
    o.budget = budget;
    o.engine = target;
    return play_select(&o);
}

/* Checks that no file has an order of columns: gptq reorders columns while it rounds, but groups stay in place. */
static void check_no_order(const play *run)
{
    calm_safetensors *set;
    ck_ok(calm_safetensors_open(ctx, test_format("%s/model.safetensors", run->recipe.output), &set));
    ck_assert_uint_gt(calm_safetensors_count(set), 0);
    for (size_t i = 0; i < calm_safetensors_count(set); i++)
        ck_assert_ptr_null(strstr(calm_safetensors_at(set, i)->name, "g_idx"));
    calm_safetensors_close(set);
}

TEST(a_mixture_for_each_target)
{
    static const char *const targets[] = {"vllm", "sglang", "llamacpp", "mlx", "transformers", "any"};
    const tiny_model model = mixture();
    const play first = play_new(&model, "w3a16_g32,w4a16_g32,w8a16_g32", "gptq");
    double bits = 5.2, wide = 5.9;
    size_t n_held = 0;
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        const bool any = strcmp(targets[i], "any") == 0;
        play run = for_target(&first, targets[i], strcmp(targets[i], "sglang") == 0 ? &wide : &bits);
        const outcome said = play_must_run(&run);
        const int64_t id = newest(&run);
        check_legal(&run, id, targets[i]);
        check_no_order(&run);
        /* A target or, without one, the written format has the rule. */
        const char *asks = any ? "; the format written: " : test_format("; target %s: ", targets[i]);
        ck_assert_msg(strstr(said.verdict, asks) != NULL, "%s", said.verdict);
        n_held += strstr(said.verdict, "held back, predicted KL") != NULL;
        ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM candidate WHERE scheme LIKE 'w3%'"), 20);
        ck_assert_str_eq(decided(&run, select_run(&run, id, NULL, NAN)), decided(&run, id));
        ck_assert_str_eq(play_text(&run, test_format("SELECT json_extract(recipe, '$.target') FROM run WHERE id = %lld",
                                                     (long long)id)), test_format("%s\n", any ? "NULL" : targets[i]));
    }
    ck_assert_uint_gt(n_held, 0);
}
END_OF_TEST

/* A run without a target, selected for a target, has the choices of a run for that target, and vice versa. */
TEST(select_is_the_run)
{
    const tiny_model model = mixture();
    const play first = play_new(&model, "w3a16_g32,w4a16_g32,w8a16_g32", "rtn,gptq");
    double bits[] = {5.2, 5.5};
    play any = for_target(&first, "any", bits), tied = for_target(&first, "transformers", bits);
    any.recipe.n_budgets = 2;    /* with two budgets nothing is written, so nothing is refused */
    play_must_run(&any);
    const int64_t table = newest(&any);
    play_must_run(&tied);
    const int64_t constrained = newest(&any);
    ck_assert_str_eq(decided(&any, select_run(&any, table, "transformers", 5.2)), decided(&any, constrained));
    ck_assert_str_eq(decided(&any, select_run(&any, constrained, "any", NAN)),
                     decided(&any, select_run(&any, table, NULL, 5.2)));
    ck_assert_str_ne(decided(&any, select_run(&any, table, NULL, 5.2)), decided(&any, constrained));
}
END_OF_TEST

/* Odd widths: a Marlin kernel without padding takes no weight-only scheme of [., 96]; CUTLASS takes it in W8A8. */
TEST(a_dense_model_of_odd_widths)
{
    double bits = 6;
    tiny_model model = tiny_default;
    model.hidden = 128;
    model.inner = 96;
    model.n_heads = 4;
    model.n_kv = 2;
    model.head_dim = 32;
    const play first = play_new(&model, "w3a16_g32,w4a16_g32,w8a8", "rtn");
    play run = for_target(&first, "sglang", &bits);
    run.recipe.engine_tie = CALM_TIE_NONE;
    const outcome said = play_must_run(&run);
    const int64_t id = newest(&run);
    ck_assert_int_eq(of_choices(&run, id, "count(*)", "job = 'down' AND scheme <> 'w8a8'"), 0);
    ck_assert_int_gt(of_choices(&run, id, "count(*)", "scheme <> 'w8a8'"), 0);
    ck_assert_msg(strstr(said.verdict, "target sglang: ") != NULL, "%s", said.verdict);
    /* Uniform runs that the engine refuses are not measured. */
    ck_assert_int_eq(play_sql(&run,
                              "SELECT count(*) FROM run_evaluation r JOIN evaluation e ON e.id = r.evaluation_id WHERE"
                              " r.role = 'guard' AND (e.subject LIKE '%w3a16%' OR e.subject LIKE '%w4a16%')"),
                     0);
    ck_assert_int_gt(play_sql(&run, "SELECT count(*) FROM run_evaluation WHERE role = 'guard'"), 0);
    play alone = play_new(&model, "w4a16_g32", "rtn");
    alone.recipe.engine = calm_engine_find("sglang");
    const outcome refused = play_run(&alone, none);
    ck_assert_int_eq(refused.status, CALM_EARG);
    ck_assert_msg(strstr(refused.message,
                         "`target` sglang takes no w4a16_g32 for model.layers.0.down [128, 96]: it takes input "
                         "columns that 64 divides, not 96; `schemes` w8a8 would do")
                      != NULL,
                  "%s", refused.message);
    ck_assert_ptr_null(play_digest(alone.recipe.output));
}
END_OF_TEST

/* A scheme that no linear can have is not computed, and a pin to it is refused. */
TEST(schemes_that_are_left_out)
{
    double bits = 5;
    const tiny_model model = mixture();
    const play first = play_new(&model, "w3a16_g32,w4a16_g32,w8a16_g32", "rtn");
    play run = for_target(&first, "sglang", &bits);
    const outcome said = play_must_run(&run);
    ck_assert_msg(strstr(said.log,
                         "w3a16_g32 is left out: target sglang has no use for it anywhere; of model.layers.0.qkv "
                         "it takes weights of 4 or 8 bits, not 3")
                      != NULL,
                  "%s", said.log);
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM candidate WHERE scheme LIKE 'w3%'"), 0);
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM candidate"), 40);
    play pinned = for_target(&first, "sglang", &bits);
    calm_pin pin = {"*.qkv", {"rtn w3a16_g32", "rtn w3a16_g32"}, 0};
    pinned.recipe.pins = &pin;
    pinned.recipe.n_pins = 1;
    pinned.recipe.output = play_path(&first, "pinned");
    const outcome refused = play_run(&pinned, none);
    ck_assert_int_eq(refused.status, CALM_EARG);
    ck_assert_msg(strstr(refused.message, "`target` sglang takes no w3a16_g32") != NULL, "%s", refused.message);
    /* A pin keeps its entry if the entry's number changes. */
    double wide = 6;
    play moved = for_target(&first, "sglang", &wide);
    pin.candidate = (calm_word){"rtn w8a16_g32", "rtn w8a16_g32"};
    moved.recipe.pins = &pin;
    moved.recipe.n_pins = 1;
    moved.recipe.output = play_path(&first, "moved");
    play_must_run(&moved);
    ck_assert_int_eq(of_choices(&moved, newest(&moved), "count(*)", "job = 'qkv' AND scheme <> 'w8a16_g32'"), 0);
}
END_OF_TEST

/* Without a budget there is nothing to choose between schemes: the target only checks. */
TEST(one_scheme)
{
    const tiny_model model = mixture();
    const play first = play_new(&model, "w4a16_g32", "rtn,gptq");
    play plain = play_elsewhere(&first, "plain"), vllm = play_elsewhere(&first, "vllm");
    vllm.recipe.engine = calm_engine_find("vllm");
    vllm.recipe.engine_tie = CALM_TIE_BLOCK;
    play_must_run(&plain);
    const outcome said = play_must_run(&vllm);
    ck_assert_msg(strstr(said.verdict, "target vllm: nothing was held back") != NULL, "%s", said.verdict);
    ck_assert_str_eq(play_text(&vllm, "SELECT candidate_id FROM choice ORDER BY job_id"),
                     play_text(&plain, "SELECT candidate_id FROM choice ORDER BY job_id"));
    ck_assert_int_eq(play_sql(&plain, "SELECT recipe LIKE '%target%' FROM run"), 0);
}
END_OF_TEST

/* What calm check reports of vLLM's class of the family is refused before the run. */
TEST(a_class_that_passes_over_experts)
{
    tiny_model model = mixture();
    model.family = "gpt_oss";
    play run = play_new(&model, "w4a16_g32", "rtn");
    run.recipe.engine = calm_engine_find("vllm");
    const outcome refused = play_run(&run, none);
    ck_assert_int_eq(refused.status, CALM_EARG);
    ck_assert_msg(strstr(refused.message, "its class has no names for quantized experts") != NULL, "%s",
                  refused.message);
    ck_assert_ptr_null(play_digest(run.recipe.output));
}
END_OF_TEST

int main(void)
{
    return run_tests("pipeline_target", (const TTest *[]){a_mixture_for_each_target, select_is_the_run,
                                                          a_dense_model_of_odd_widths, schemes_that_are_left_out,
                                                          one_scheme, a_class_that_passes_over_experts, NULL});
}
