/* Runs of a mix of schemes: each matrix gets the scheme of its role, candidates are shared with uniform runs, and a
 * stored run is selected from and assembled like any other. */
#include <string.h>

#include "ptq/stored/stored.h"
#include "tests/support/play_select.h"

/* Makes a run of two blocks.  Their rows are multiples of 32 but not of 256: q6_k is stored as q8_0, q4_k as q5_0. */
static play mixed(const char *scheme, const char *algorithms)
{
    static const calm_exporter *gguf;
    tiny_model model = tiny_default;
    model.inner = 64;
    play run = play_new(&model, scheme, algorithms);
    ck_ok(calm_exporter_find(ctx, "gguf", &gguf));
    run.recipe.formats.exporters = &gguf;
    run.recipe.formats.n = 1;
    run.recipe.force = true;
    run.recipe.calib_name = run.recipe.calib_path;    /* calm assemble reads the text again for the head */
    return run;
}

/* Returns the role and scheme of every candidate that a run chose. */
static const char *chosen(const play *run, int64_t of)
{
    return play_text(run, test_format("SELECT printf('%%d %%s %%s', block, job, scheme) FROM v_choices"
                                      " WHERE run = %lld", (long long)of));
}

/* Returns how often a text contains another. */
static size_t times_in(const char *text, const char *part)
{
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, part)); at++)
        n++;
    return n;
}

TEST(every_matrix_has_its_own)
{
    const play run = mixed("gguf_q4_k_m", "rtn,gptq");
    const outcome said = play_must_run(&run);
    const calm_assemble_options again = {.store = run.recipe.store, .run = 1, .output = play_path(&run, "again"),
                                         .command = "calm test"};
    const calm_reselect_options o = play_selecting(&run, 1);
    calm_assembly assembly;
    /* Of two blocks the mix gives the last one more bits. */
    ck_assert_str_eq(chosen(&run, 1), "0 qk q4_k\n0 v q4_k\n0 o q4_k\n0 gate_up q4_k\n0 down q4_k\n"
                                      "1 qk q4_k\n1 v q6_k\n1 o q4_k\n1 gate_up q4_k\n1 down q6_k\n");
    ck_assert_uint_eq(times_in(said.log, "does not divide"), 1);
    ck_assert_uint_eq(times_in(said.log, "q4_k as q5_0, q6_k as q8_0"), 1);
    ck_assert_uint_eq(times_in(said.log, " as q8_0"), 1);
    ck_ok(calm_reassemble(ctx, &again, &assembly));
    calm_assembly_close(&assembly);
    ck_assert_str_eq(play_digest(again.output), play_digest(run.recipe.output));
    ck_assert_int_eq(play_select(&o), 2);
    ck_assert_str_eq(chosen(&run, 2), chosen(&run, 1));
    ck_assert_int_eq(play_sql(&run, "SELECT abs(a.bits_per_weight - b.bits_per_weight) < 1e-9 OR a.result <> 'hybrid'"
                                    " FROM run a, run b WHERE a.id = 1 AND b.id = 2"), 1);
}
END_OF_TEST

/* The log names the fallback type of a table, also if no linear has one. */
TEST(tables_fall_back_aloud)
{
    play plain = mixed("w4a16_g32", "rtn"), asked = plain;
    const outcome said = play_must_run(&plain);
    ck_assert_uint_eq(times_in(said.log, "does not divide"), 1);
    ck_assert_ptr_nonnull(strstr(said.log, "embedding: 256 does not divide its 32 inputs; stored there and in others "
                                           "like it: q6_k as q8_0"));
    calm_scheme q2_k;
    ck_ok(calm_scheme_parse(ctx, "q2_k", &q2_k));
    asked.recipe.formats.options.head = &q2_k;
    const outcome again = play_must_run(&asked);
    ck_assert_uint_eq(times_in(again.log, "does not divide"), 1);
    ck_assert_ptr_nonnull(strstr(again.log, "q2_k as q4_0"));
}
END_OF_TEST

/* Routed experts are MXFP4, all other matrices have 8 bits. */
TEST(experts_of_mxfp4_moe)
{
    static const calm_exporter *gguf;
    tiny_model model = tiny_wide("qwen3_moe");
    model.bias = false;
    play run = play_new(&model, "gguf_mxfp4_moe", "rtn");
    ck_ok(calm_exporter_find(ctx, "gguf", &gguf));
    run.recipe.formats.exporters = &gguf;
    run.recipe.formats.n = 1;
    play_must_run(&run);
    ck_assert_str_eq(play_text(&run, "SELECT group_concat(DISTINCT (CASE WHEN job LIKE 'experts.%' THEN 'experts ' ELSE"
                                     " 'others ' END) || scheme) FROM v_choices"),
                     "others w8a16_g32_f16s,experts mxfp4a16\n");
}
END_OF_TEST

/* One store has the jobs of both layouts; a matrix with the same scheme in a mix and a uniform run has one
 * candidate. */
TEST(candidates_are_shared)
{
    const play run = mixed("gguf_q4_k_m", "gptq");
    play uniform = run;
    play_must_run(&run);
    play_pool(&uniform, "q4_k", "gptq");
    uniform.recipe.output = play_path(&run, "uniform");
    const outcome said = play_must_run(&uniform);
    /* o and gate_up of both blocks, down of the first. */
    ck_assert_uint_eq(said.cached, 5);
    ck_assert_str_eq(chosen(&uniform, 2), "0 qkv q4_k\n0 o q4_k\n0 gate_up q4_k\n0 down q4_k\n"
                                          "1 qkv q4_k\n1 o q4_k\n1 gate_up q4_k\n1 down q4_k\n");
    ck_assert_uint_eq(play_must_run(&run).cached, 10);
    const calm_reselect_options o = play_selecting(&run, 1), of_uniform = play_selecting(&uniform, 2);
    play_select(&o);
    play_select(&of_uniform);
}
END_OF_TEST

/* q, k and v have the same inputs and are quantized row by row, so one job or two give the same codes. */
TEST(halves_are_the_whole)
{
    const play split = mixed("gguf_iq4_nl", "gptq");
    play uniform = split;
    play_must_run(&split);
    play_pool(&uniform, "iq4_nl", "gptq");
    uniform.recipe.output = play_path(&split, "uniform");
    play_must_run(&uniform);
    ck_assert_int_eq(play_sql(&split, "SELECT count(DISTINCT e.kl) FROM evaluation e JOIN run_evaluation r ON"
                                      " r.evaluation_id = e.id WHERE r.role = 'test' AND r.subject <> 'float'"), 1);
    ck_assert_int_eq(play_sql(&split, "SELECT count(*) FROM run_evaluation WHERE role = 'test' AND subject <> 'float'"),
                     2);
}
END_OF_TEST

int main(void)
{
    return run_tests("mixes", (const TTest *[]){every_matrix_has_its_own, tables_fall_back_aloud,
                                                experts_of_mxfp4_moe, candidates_are_shared,
                                                halves_are_the_whole,
                                                NULL});
}
