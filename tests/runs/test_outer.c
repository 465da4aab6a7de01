/* Embedding and head: quantized in the written file as asked or by the format's default, and read back. */
#include <math.h>
#include <string.h>

#include "ptq/base/rng.h"
#include "ptq/calib/head_stats.h"
#include "ptq/io/ggml_type.h"
#include "ptq/io/gguf.h"
#include "ptq/state/inputs.h"
#include "ptq/state/outer_rows.h"
#include "tests/support/run_rooms.h"
#include "tests/support/play.h"

static play written(const char *formats, const char *scheme, bool tied)
{
    const calm_words names = test_words(formats);
    tiny_model model = tiny_default;
    model.inner = 64;
    model.tied = tied;
    play run = play_new(&model, scheme, "rtn");
    ck_ok(calm_formats_parse(ctx, &names, &run.recipe.formats));
    run.recipe.force = true;
    return run;
}

static void ask(play *run, const char *embed, const char *head)
{
    ck_ok(calm_formats_parse_outer(ctx, embed, head, &run->recipe.formats.options));
}

/* Returns the type of a tensor in the file that a run wrote, or "none". */
static const char *type_in(const play *run, const char *tensor)
{
    const char *type = "none";
    calm_gguf *file;
    ck_ok(calm_gguf_open(ctx, test_format("%s/model.gguf", run->recipe.output), &file));
    const calm_gguf_tensor *found = calm_gguf_find_tensor(file, tensor);
    if (found)
        type = calm_ggml_find(found->type)->name;
    calm_gguf_close(file);
    return type;
}

/* Rows have 32 columns: q6_k is stored as Q8_0, q4_k as Q5_0. */
TEST(as_llama_quantize)
{
    const play tied = written("gguf", "gguf_q4_k_m", true), untied = written("gguf", "gguf_q4_k_m", false);
    play_must_run(&tied);
    ck_assert_str_eq(type_in(&tied, "token_embd.weight"), "Q8_0");
    ck_assert_str_eq(type_in(&tied, "output.weight"), "none");
    play_must_run(&untied);
    ck_assert_str_eq(type_in(&untied, "token_embd.weight"), "Q5_0");
    ck_assert_str_eq(type_in(&untied, "output.weight"), "Q8_0");
    const play whole = written("gguf", "w4a16_g32", false);
    play_must_run(&whole);
    ck_assert_str_eq(type_in(&whole, "token_embd.weight"), "Q4_0");
    ck_assert_str_eq(type_in(&whole, "output.weight"), "Q8_0");
}
END_OF_TEST

TEST(as_asked)
{
    play run = written("gguf", "w4a16_g32", false);
    ask(&run, "iq4_nl", "float");
    play_must_run(&run);
    ck_assert_str_eq(type_in(&run, "token_embd.weight"), "IQ4_NL");
    ck_assert_str_eq(type_in(&run, "output.weight"), "BF16");
    ck_assert_int_eq(play_sql(&run, "SELECT json_extract(recipe, '$.embed_scheme') = 'iq4_nl' AND"
                                    " json_extract(recipe, '$.head_scheme') = 'float' FROM run WHERE id = 1"), 1);
    /* A tied table can be set by either option. */
    play tied = written("gguf", "w4a16_g32", true);
    ask(&tied, NULL, "q5_1");
    play_must_run(&tied);
    ck_assert_str_eq(type_in(&tied, "token_embd.weight"), "Q5_1");
    /* If a block stays float there is no default. */
    play part = written("gguf", "w4a16_g32", true);
    part.recipe.last_block = 0;
    play_must_run(&part);
    ck_assert_str_eq(type_in(&part, "token_embd.weight"), "BF16");
}
END_OF_TEST

/* The evaluation reads the written file, so its figures include the quantized table. */
TEST(it_is_measured)
{
    play run = written("gguf", "w8a16_g32", true);
    ask(&run, "float", NULL);
    play_must_run(&run);
    play low = run;
    low.recipe.output = play_path(&run, "low");
    ask(&low, "iq4_nl", NULL);
    play_must_run(&low);
    ck_assert_int_eq(play_sql(&run, "SELECT (SELECT min(e.kl) FROM run_evaluation r JOIN evaluation e ON e.id ="
                                    " r.evaluation_id WHERE r.run_id = 2 AND r.role = 'test' AND r.subject <> 'float')"
                                    " > 4 * (SELECT max(e.kl) FROM run_evaluation r JOIN evaluation e ON e.id ="
                                    " r.evaluation_id WHERE r.run_id = 1 AND r.role = 'test' AND r.subject <>"
                                    " 'float')"), 1);
}
END_OF_TEST

/* A head that the target engine cannot load is refused before any work, with the name of the option. */
TEST(a_head_for_a_target)
{
    play run = written("compressed-tensors", "w4a16_g32", false);
    run.recipe.engine = calm_engine_find("vllm");
    run.recipe.engine_format = "compressed-tensors";
    ask(&run, NULL, "fp8_blocka16");
    const outcome said = play_run(&run, (fault){0});
    ck_assert_int_eq(said.status, CALM_EARG);
    ck_assert_msg(strstr(said.message, "`target` vllm takes no fp8_blocka16 for the head"), "%s", said.message);
    ck_assert_msg(strstr(said.message, "`export.head_scheme` w8a16"), "%s", said.message);
    ask(&run, NULL, "w8a16_g32");
    play_must_run(&run);
    run.recipe.engine = NULL;
    ask(&run, NULL, "fp8_blocka16");
    play_must_run(&run);
}
END_OF_TEST

/* Returns the squared error of the head's outputs: the sum over rows of e' G e, where e is a row's error and G the
 * Gram matrix of the head's inputs. */
static double head_error(const play *run, const char *output, const double *gram)
{
    calm_model *model, *from;
    const calm_tensor *table, *floats;
    float *read, *exact;
    double sum = 0;
    ck_ok(calm_model_open(ctx, test_format("%s/model.gguf", output), &model));
    ck_ok(calm_model_open(ctx, run->recipe.model.dir, &from));
    ck_ok(calm_model_table(ctx, model, true, &table));
    ck_ok(calm_model_table(ctx, from, true, &floats));
    const size_t in = floats->shape[1], n = floats->n_elements;
    ck_ok(CALM_NEW(ctx, ctx->out, read, n));
    ck_ok(CALM_NEW(ctx, ctx->out, exact, n));
    ck_ok(calm_tensor_to_f32(ctx, table, read));
    ck_ok(calm_tensor_to_f32(ctx, floats, exact));
    for (size_t r = 0; r < n; r += in)
        for (size_t i = 0; i < in; i++)
            for (size_t j = 0; j < in; j++)
                sum += (double)(read[r + i] - exact[r + i]) * gram[i * in + j] * (double)(read[r + j] - exact[r + j]);
    calm_model_close(model);
    calm_model_close(from);
    return sum;
}

/* If the pool has algorithms that use data, the head is fitted to its inputs; the store names the algorithm. */
TEST(a_head_is_fitted)
{
    play plain = written("gguf", "w4a16_g32", false), fitted = plain;
    double *gram, error[2];
    calm_run *opened;
    size_t rows;
    ask(&plain, "q5_0", "q4_1");
    ask(&fitted, "q5_0", "q4_1");
    play_must_run(&plain);
    fitted.recipe.output = play_path(&plain, "fitted");
    play_pool(&fitted, "w4a16_g32", "gptq");
    play_must_run(&fitted);
    ck_ok(calm_run_open(ctx, &fitted.recipe, &opened));
    ck_ok(calm_head_stats_collect(ctx, opened->in.model, &opened->in.calib, &gram, &rows));
    calm_run_close(&opened);
    error[0] = head_error(&plain, plain.recipe.output, gram);
    error[1] = head_error(&plain, fitted.recipe.output, gram);
    ck_assert_msg(error[1] < .8 * error[0], "fitted %g, least squares %g", error[1], error[0]);
    ck_assert_int_eq(play_sql(&plain, "SELECT count(*) FROM run WHERE json_extract(recipe, '$.head_algorithm') ="
                                      " 'mkq-full'"), 1);
    ck_assert_int_eq(play_sql(&plain, "SELECT count(*) FROM run WHERE json_extract(recipe, '$.head_algorithm') ="
                                      " 'rtn'"), 1);
    /* A head that stays float has no algorithm. */
    play none = written("compressed-tensors", "w4a16_g32", false);
    play_pool(&none, "w4a16_g32", "gptq");
    ck_assert(calm_recipe_head_algorithm(&none.recipe) == NULL);
    ck_assert_str_eq(calm_recipe_head_algorithm(&fitted.recipe), "mkq-full");
}
END_OF_TEST

static void check_refused(const play *run, calm_status status, const char *message)
{
    const outcome said = play_run(run, (fault){0});
    ck_assert_int_eq(said.status, status);
    ck_assert_msg(strstr(said.message, message) != NULL, "%s", said.message);
    ck_assert_str_eq(play_list(run, "calm.db"), "");    /* before any work */
}

TEST(refused_by_name)
{
    play run = written("gguf", "w4a16_g32", true);
    ask(&run, "q4_1", "q5_1");
    check_refused(&run, CALM_EARG, "`export.embed_scheme` q4_1 and `export.head_scheme` q5_1: the model has one table");
    ask(&run, "w8a8", NULL);
    check_refused(&run, CALM_EARG, "`export.embed_scheme` w8a8: tables take weight-only schemes");
    ask(&run, "fp8a16", NULL);
    check_refused(&run, CALM_EARG, "fp8a16: `formats` gguf does not hold it");
    ask(&run, "nvfp4a16", NULL);
    check_refused(&run, CALM_EUNSUPPORTED, "model.embed_tokens.weight is nvfp4a16: llama.cpp takes no global scale");
    ask(&run, "w4a16_g8", NULL);
    check_refused(&run, CALM_EUNSUPPORTED, "model.embed_tokens.weight is w4a16_g8");
    play other = written("gptq", "w4a16_g32", true);
    ask(&other, NULL, "w8a16_g32");
    check_refused(&other, CALM_EARG, "`export.head_scheme` w8a16_g32: `formats` gptq is written with a float");
    ck_fails(calm_formats_parse_outer(ctx, "q9", NULL, &other.recipe.formats.options), CALM_EARG, "q9");
}
END_OF_TEST

/* Rows have the least squared error of a search: less than with scales by the largest weight, and the same for any
 * piece of the table. */
TEST(rows)
{
    enum { V = 40, D = 64 };
    static const char *const schemes[] = {"w4a16_g32", "w8a16_g32", "q5_1", "iq4_nl", "w2a16_g16"};
    float values[V * D], w[V * D];
    ctx->n_threads = 1;    /* play.c gives the reason */
    for (size_t i = 0; i < V * D; i++)
        values[i] = (float)calm_rng_normal(1, 2, i);
    const calm_tensor table = {.name = "embed.weight", .dtype = CALM_F32, .n_dims = 2, .shape = {V, D},
                               .data = (const uint8_t *)values, .bytes = sizeof w, .n_elements = V * D};
    for (size_t s = 0; s < sizeof schemes / sizeof *schemes; s++) {
        calm_scheme scheme;
        calm_qlinear whole, part;
        calm_algorithm *rtn;
        calm_qjob qjob;
        double error = 0, simple = 0;
        ck_ok(calm_scheme_parse(ctx, schemes[s], &scheme));
        ck_ok(calm_outer_rows(NULL, ctx, &table, &scheme, 0, V, &whole));
        ck_ok(calm_outer_rows(NULL, ctx, &table, &scheme, 7, 5, &part));
        ck_assert(memcmp(part.codes, whole.codes + 7 * D, 5 * D) == 0);
        ck_assert(memcmp(part.scales, whole.scales + 7 * whole.n_groups, 5 * whole.n_groups * sizeof(float)) == 0);
        const calm_linear linear = {.name = "embed", .out = V, .in = D, .w = values};
        const calm_stats none = {.rows = 0};
        const calm_job job = {.name = "embed", .linears = &linear, .n_linears = 1, .stats = &none, .scheme = scheme};
        ck_ok(calm_algorithm_parse(ctx, "rtn", &rtn));
        ck_ok(calm_algorithm_run(ctx, rtn, &job, &qjob));
        calm_qjob_dequantize(&qjob, w);
        for (size_t i = 0; i < V * D; i++)
            simple += pow((double)w[i] - (double)values[i], 2);
        qjob.codes = (uint8_t *)(uintptr_t)whole.codes;
        qjob.scales = whole.scales;
        qjob.mins = whole.mins;
        calm_qjob_dequantize(&qjob, w);
        for (size_t i = 0; i < V * D; i++)
            error += pow((double)w[i] - (double)values[i], 2);
        ck_assert_msg(error < simple, "%s: %g, rtn %g", schemes[s], error, simple);
        /* An algorithm without data quantizes every table; one with data only the head that it was fitted to. */
        calm_outer_fit plain = {.algorithm = "rtn"}, fitted = {.algorithm = "mkq-full", .head = "head.weight"};
        ck_ok(calm_algorithm_run(ctx, rtn, &job, &qjob));
        ck_ok(calm_outer_rows(&plain, ctx, &table, &scheme, 0, V, &part));
        ck_assert(memcmp(part.codes, qjob.codes, V * D) == 0);
        ck_ok(calm_outer_rows(&fitted, ctx, &table, &scheme, 0, V, &part));
        ck_assert(memcmp(part.codes, whole.codes, V * D) == 0);
    }
    values[9] = NAN;
    calm_scheme scheme;
    calm_qlinear out;
    ck_ok(calm_scheme_parse(ctx, "w8a16_g32", &scheme));
    ck_fails(calm_outer_rows(NULL, ctx, &table, &scheme, 0, V, &out), CALM_ENUMERIC, "embed.weight");
}
END_OF_TEST

/* Compares the table of the written checkpoint, as a reader gets it, with the quantized rows. */
static void check_read_back(const play *run, bool head, const char *scheme_name)
{
    calm_model *model, *from;
    const calm_tensor *table, *floats;
    calm_scheme scheme;
    calm_qlinear of;
    ck_ok(calm_model_open(ctx, run->recipe.output, &model));
    ck_ok(calm_model_open(ctx, run->recipe.model.dir, &from));
    ck_ok(calm_model_table(ctx, model, head, &table));
    ck_ok(calm_model_table(ctx, from, head, &floats));
    ck_ok(calm_scheme_parse(ctx, scheme_name, &scheme));
    calm_outer_fit by = {.algorithm = calm_recipe_head_algorithm(&run->recipe)};
    ck_ok(calm_outer_rows(&by, ctx, floats, &scheme, 0, floats->shape[0], &of));
    const size_t in = floats->shape[1], n = floats->n_elements;
    float *read, *expected, *part;
    ck_ok(CALM_NEW(ctx, ctx->out, read, n));
    ck_ok(CALM_NEW(ctx, ctx->out, expected, n));
    ck_ok(CALM_NEW(ctx, ctx->out, part, 32 * in));
    const calm_qjob qjob = {.out = of.out, .in = in, .n_groups = of.n_groups, .group = of.group,
                            .scheme = scheme, .codes = (uint8_t *)(uintptr_t)of.codes, .scales = of.scales};
    calm_qjob_dequantize(&qjob, expected);
    ck_ok(calm_tensor_to_f32(ctx, table, read));
    ck_ok(calm_tensor_part_to_f32(ctx, table, 5 * in, 3 * in, part));
    for (size_t i = 0; i < n; i++)    /* by value, as -0 == 0 */
        ck_assert_msg(read[i] == expected[i], "%zu: %g, expected %g", i, (double)read[i], (double)expected[i]);
    ck_assert(memcmp(part, read + 5 * in, 3 * in * sizeof *part) == 0);
    /* A part that begins and ends with whole words. */
    ck_ok(calm_tensor_part_to_f32(ctx, table, 64 * in, 32 * in, part));
    ck_assert(memcmp(part, read + 64 * in, 32 * in * sizeof *part) == 0);
    calm_model_close(model);
    calm_model_close(from);
}

TEST(mlx_reads_its_own)
{
    const play tied = written("mlx", "w4a16_g32", true);
    play_must_run(&tied);
    check_read_back(&tied, false, "w4a16_g32");
    play untied = written("mlx", "w4a16_g32", false);
    ask(&untied, "w8a16_g32", NULL);
    play_must_run(&untied);
    check_read_back(&untied, false, "w8a16_g32");
    check_read_back(&untied, true, "w4a16_g32");
    play floats = written("mlx", "w4a16_g32", true);
    ask(&floats, "float", NULL);
    play_must_run(&floats);
    /* The figures are those of the written model. */
    ck_assert_int_eq(play_sql(&tied, "SELECT count(DISTINCT e.kl) FROM run_evaluation r JOIN evaluation e ON e.id ="
                                     " r.evaluation_id WHERE r.subject = 'rtn'"), 2);
    play other = written("mlx", "w4a16_g32", true);
    ask(&other, "iq4_nl", NULL);
    check_refused(&other, CALM_EARG, "`formats` mlx does not hold it");
    ask(&other, "w4a16_g16", NULL);
    check_refused(&other, CALM_EUNSUPPORTED, "the format has groups of 32, 64 and 128");
}
END_OF_TEST

static play with_head(const char *format, const char *head)
{
    play run = written(format, "w4a16_g32", false);
    ask(&run, NULL, head);
    return run;
}

/* Returns a member of config.json's quantization_config, valid until the next call. */
static calm_json *config;
static const calm_json *config_of(const play *run, const char *key)
{
    calm_json_free(config);
    ck_ok(calm_json_read(ctx, test_format("%s/config.json", run->recipe.output), 1 << 20, &config));
    return calm_json_get(calm_json_get(config, "quantization_config"), key);
}

/* compressed-tensors: lm_head is a target of the group with its scheme, or of a separate group, and not ignored. */
TEST(a_head_in_compressed_tensors)
{
    static const char *const schemes[] = {"w8a16_g32", "w4a16_g32", "w3a16_g32", "fp8a16", "mxfp4a16"};
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        const play run = with_head("compressed-tensors", schemes[i]);
        play_must_run(&run);
        const calm_json *groups = config_of(&run, "config_groups");
        const size_t own = i != 1;
        ck_assert_uint_eq(calm_json_size(groups), 1 + own);
        const calm_json *targets = calm_json_get(calm_json_get(groups, own ? "group_01" : "group_00"), "targets");
        const size_t last = calm_json_size(targets) - 1;
        ck_assert_str_eq(calm_json_string(calm_json_at(targets, last), ""), "lm_head");
        ck_assert_uint_eq(calm_json_size(config_of(&run, "ignore")), 0);
        if (i < 3)    /* float schemes have other levels */
            check_read_back(&run, true, schemes[i]);
    }
    const play none = written("compressed-tensors", "w4a16_g32", false);
    play_must_run(&none);
    ck_assert_uint_eq(calm_json_size(config_of(&none, "ignore")), 1);
    play other = with_head("compressed-tensors", "nvfp4a16");
    check_refused(&other, CALM_EUNSUPPORTED, "lm_head.weight is nvfp4a16");
    ask(&other, NULL, "w4a16_g24");
    check_refused(&other, CALM_EUNSUPPORTED, "its groups do not divide 32 columns");
    ask(&other, "w4a16_g32", NULL);
    check_refused(&other, CALM_EARG, "is written with a float embedding");
    play tied = written("compressed-tensors", "w4a16_g32", true);
    ask(&tied, NULL, "w8a16_g32");
    check_refused(&tied, CALM_EARG, "a float embedding, which is this model's head");
}
END_OF_TEST

/* GPTQ: "lm_head" is true, with a rule if its scheme is not that of the linears. */
TEST(a_head_in_gptq)
{
    static const char *const schemes[] = {"w8a16_g32", "w4a16_g32", "w4a16_g32_asym"};
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        const play run = with_head("gptq", schemes[i]);
        play_must_run(&run);
        ck_assert(calm_json_bool(config_of(&run, "lm_head"), false));
        ck_assert_uint_eq(calm_json_size(calm_json_get(config_of(&run, "dynamic"), "+:lm_head$")), i == 1 ? 0 : 3);
        ck_assert_str_eq(calm_json_string(config_of(&run, "checkpoint_format"), ""), i == 2 ? "gptq_v2" : "gptq");
        if (i < 2)
            check_read_back(&run, true, schemes[i]);
    }
    const play none = written("gptq", "w4a16_g32", false);
    play_must_run(&none);
    ck_assert(!calm_json_bool(config_of(&none, "lm_head"), true));
    play other = with_head("gptq", "w4a16_g24");
    check_refused(&other, CALM_EUNSUPPORTED, "its groups do not divide 32 columns");
    ask(&other, NULL, "fp8a16");
    check_refused(&other, CALM_EARG, "`formats` gptq does not hold it");
}
END_OF_TEST

int main(void)
{
    const int status = run_tests("outer", (const TTest *[]){
        as_llama_quantize, as_asked, it_is_measured, a_head_is_fitted, refused_by_name, rows, mlx_reads_its_own,
        a_head_in_compressed_tensors, a_head_in_gptq, a_head_for_a_target, NULL});
    calm_json_free(config);
    return status;
}
