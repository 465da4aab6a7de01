/* `choice.size` and `choice.bits_per_weight`: files within the wanted size, embedding and head chosen with the jobs,
 * and what is refused. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "ptq/io/safetensors.h"
#include "ptq/quant/levels.h"
#include "ptq/choose/choose.h"
#include "ptq/state/outer_rows.h"
#include "tests/support/run_rooms.h"
#include "ptq/base/sha256.h"
#include "ptq/stored/stored.h"
#include "tests/support/play_select.h"

static double no_limit[] = {INFINITY};

/* Makes a run whose output in a format must not exceed `bytes`. */
static play sized_of(const tiny_model *model, const char *format, const char *schemes, size_t bytes)
{
    const calm_words names = test_words(format);
    play run = play_new(model, "w4a16_g32", "rtn");
    play_pool(&run, schemes, "rtn");
    ck_ok(calm_formats_parse(ctx, &names, &run.recipe.formats));
    run.recipe.engine_tie = calm_formats_tie(&run.recipe.formats);    /* as calm resolves a recipe */
    run.recipe.budgets = no_limit;
    run.recipe.n_budgets = 1;
    run.recipe.probe_windows = 1;
    run.recipe.eval_path = NULL;
    run.recipe.file_bytes = bytes;
    run.recipe.file_asked = "`choice.size` SIZE";
    run.recipe.force = true;
    return run;
}

static play sized(const char *format, const char *schemes, bool tied, size_t bytes)
{
    tiny_model model = tiny_default;
    model.inner = 64;
    model.tied = tied;
    return sized_of(&model, format, schemes, bytes);
}

/* Returns the bytes of all weight files that a run wrote. */
static size_t written(const play *run)
{
    static const char *const names[] = {"model.gguf", "model.safetensors", "model-00001-of-00002.safetensors",
                                        "model-00002-of-00002.safetensors"};
    size_t total = 0;
    struct stat info;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (stat(test_format("%s/%s", run->recipe.output, names[i]), &info) == 0)
            total += (size_t)info.st_size;
    return total;
}

/* Reads the least and the largest size from the refusal, which comes before any work. */
static void read_reach(const play *run, size_t reach[2])
{
    const outcome said = play_run(run, (fault){0});
    const char *at = strstr(said.message, "take from ");
    ck_assert_int_eq(said.status, CALM_EARG);
    ck_assert_msg(at && sscanf(at, "take from %zu to %zu bytes", &reach[0], &reach[1]) == 2, "%s", said.message);
    ck_assert_str_eq(play_list(run, "calm.db"), "");
}

static void check_sizes(play run)
{
    size_t reach[2], files[3];
    read_reach(&run, reach);
    const size_t sizes[3] = {reach[0], (reach[0] + reach[1]) / 2, reach[1]};
    for (size_t i = 0; i < 3; i++) {
        run.recipe.file_bytes = sizes[i];
        play_must_run(&run);
        files[i] = written(&run);
        ck_assert_msg(files[i] && files[i] <= sizes[i], "%zu bytes of %zu", files[i], sizes[i]);
        /* The estimate assumes the longest offsets in headers; jobs and tables change the size in coarse steps. */
        ck_assert_msg(sizes[i] - files[i] <= (i == 1 ? (reach[1] - reach[0]) / 4 : 400), "%zu bytes of %zu", files[i],
                      sizes[i]);
    }
    run.recipe.file_bytes = reach[0] - 1;
    ck_assert_int_eq(play_run(&run, (fault){0}).status, CALM_EARG);
    run.recipe.file_bytes = reach[1] + 1;
    ck_assert_int_eq(play_run(&run, (fault){0}).status, CALM_EARG);
}

TEST(gguf)
{
    check_sizes(sized("gguf", "w4a16_g32,q5_0,w8a16_g32", true, 1000));
}
END_OF_TEST

TEST(mlx)
{
    check_sizes(sized("mlx", "w2a16_g32,w4a16_g32,w8a16_g32", true, 1000));
}
END_OF_TEST

TEST(compressed_tensors)
{
    check_sizes(sized("compressed-tensors", "w2a16_g32,w4a16_g32,w8a16", false, 1000));
    play shards = sized("compressed-tensors", "w3a16_g32,w4a16_g32,w8a16", false, 1000);
    size_t reach[2];
    read_reach(&shards, reach);
    shards.recipe.formats.options.max_shard_bytes = reach[1] * 3 / 5;
    shards.recipe.file_bytes = reach[1];
    play_must_run(&shards);
    ck_assert(written(&shards) > reach[1] * 9 / 10 && written(&shards) <= reach[1]);
}
END_OF_TEST

/* Experts of a block have one scheme, and share tensors in some formats. */
TEST(mixtures)
{
    static const char *const formats[] = {"gguf", "mlx", "compressed-tensors"};
    tiny_model model = tiny_wide("qwen3_moe");
    model.bias = false;
    for (size_t i = 0; i < 3; i++) {
        play run = sized_of(&model, formats[i], "w4a16_g32,w8a16_g32", 1000);
        size_t reach[2];
        read_reach(&run, reach);
        run.recipe.file_bytes = (reach[0] + reach[1]) / 2;
        play_must_run(&run);
        ck_assert_msg(written(&run) && written(&run) <= run.recipe.file_bytes, "%s: %zu of %zu", formats[i],
                      written(&run), run.recipe.file_bytes);
        ck_assert_uint_gt(written(&run), run.recipe.file_bytes - (reach[1] - reach[0]) / 2);
    }
}
END_OF_TEST

/* The embedding is chosen with the jobs, measured by itself, and read from the store by calm assemble. */
TEST(tables_take_part)
{
    play run = sized("gguf", "w4a16_g32,w8a16_g32", true, 1000);
    size_t reach[2];
    read_reach(&run, reach);
    run.recipe.file_bytes = (reach[0] + 3 * reach[1]) / 4;
    play_must_run(&run);
    ck_assert_int_gt(play_sql(&run, "SELECT count(*) FROM evaluation WHERE subject LIKE 'embedding and head %' AND"
                                    " kl > 0"), 2);
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM run WHERE json_extract(recipe, '$.embed_scheme') ="
                                    " json_extract(recipe, '$.head_scheme') AND"
                                    " json_extract(recipe, '$.size') > 0"), 1);
    /* A scheme that is asked for stays, and nothing is measured. */
    play asked = sized("gguf", "w4a16_g32,w8a16_g32", true, 1000);
    ck_ok(calm_formats_parse_outer(ctx, "q5_1", NULL, &asked.recipe.formats.options));
    read_reach(&asked, reach);
    asked.recipe.file_bytes = (reach[0] + reach[1]) / 2;
    play_must_run(&asked);
    ck_assert_uint_le(written(&asked), asked.recipe.file_bytes);
    ck_assert_int_eq(play_sql(&asked, "SELECT count(*) FROM evaluation WHERE subject LIKE 'embedding%'"), 0);
}
END_OF_TEST

/* calm assemble writes the same file and calm select chooses the same.  Selecting for another size gives a run whose
 * file is within it, with the tables of the first run. */
static void select_and_assemble(bool split_v, const char *algorithm)
{
    static const char schemes[] = "w4a16_g32,q5_0,w8a16_g32";
    play run = sized("gguf", schemes, true, 1000);
    play_pool(&run, schemes, algorithm);
    run.recipe.calib_name = run.recipe.calib_path;    /* calm assemble reads the text again for the fit */
    size_t reach[2];
    run.recipe.split_v = split_v;
    read_reach(&run, reach);
    run.recipe.file_bytes = (reach[0] + 2 * reach[1]) / 3;
    run.recipe.keep_candidates = true;    /* another size needs other candidates */
    play_must_run(&run);
    /* Two blocks of four or five jobs. */
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM choice WHERE run_id = 1"), split_v ? 10 : 8);
    calm_assembly assembly;
    calm_assemble_options how = {.store = run.recipe.store, .run = 1, .output = play_path(&run, "again"),
                                 .model = run.recipe.model.dir};
    ck_ok(calm_reassemble(ctx, &how, &assembly));
    ck_assert_uint_eq(assembly.result.n_trials,
                      (size_t)play_sql(&run, "SELECT count(*) FROM run_evaluation WHERE role = 'guard'"));
    calm_assembly_close(&assembly);
    char digest[2][CALM_SHA256_HEX];
    ck_ok(calm_sha256_file(ctx, test_format("%s/model.gguf", run.recipe.output), digest[0]));
    ck_ok(calm_sha256_file(ctx, test_format("%s/model.gguf", how.output), digest[1]));
    ck_assert_str_eq(digest[0], digest[1]);
    calm_reselect_options o = play_selecting(&run, 1);
    calm_reselected selected;
    ck_ok(calm_reselect(ctx, &o, &selected));
    ck_assert_uint_eq(selected.n_changed, 0);
    calm_reselected_clear(&selected);
    o.file_bytes = written(&run) - 1;
    ck_ok(calm_reselect(ctx, &o, &selected));
    ck_assert_uint_gt(selected.n_changed, 0);
    how.run = selected.run;
    how.output = play_path(&run, "smaller");
    calm_reselected_clear(&selected);
    ck_ok(calm_reassemble(ctx, &how, &assembly));
    calm_assembly_close(&assembly);
    struct stat info;
    ck_assert_int_eq(stat(test_format("%s/model.gguf", how.output), &info), 0);
    ck_assert_msg((size_t)info.st_size <= o.file_bytes, "%lld of %zu", (long long)info.st_size, o.file_bytes);
    o.file_bytes = 5000;
    ck_fails(calm_reselect(ctx, &o, &selected), CALM_EARG, "`choice.size` 5000B: files of the given schemes take from");
    calm_reselected_clear(&selected);
    /* A damaged store: a size that is read as 0, or the cast of a negative one, would be no limit at all. */
    o.file_bytes = 0;
    const char *recipe = play_text(&run, "SELECT recipe FROM run WHERE id = 1");
    static const struct {
        const char *key, *value, *message;
    } damaged[] = {
        {"size", "-1", "\"size\" of its recipe: expected 1000 to 1000000000000000 bytes, found -1"},
        {"size", "0", "\"size\" of its recipe: expected 1000 to 1000000000000000 bytes, found 0"},
        {"size", "'5MB'", "\"size\" of its recipe: expected a whole number, found a string"},
        {"size", "5000.5", "\"size\" of its recipe: expected a whole number, found a number"},
        {"size", "NULL", "\"size\" of its recipe: expected a whole number, found null"},
        {"file_bits", "-1", "\"file_bits\" of its recipe: expected a number above 0 and up to 32, found -1"},
        {"file_bits", "1e300", "\"file_bits\" of its recipe: expected a number above 0 and up to 32, found 1e+300"},
        {"file_bits", "'x'", "\"file_bits\" of its recipe: expected a number, found a string"}};
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        play_sql(&run, test_format("UPDATE run SET recipe = json_set(json_remove(recipe, '$.size'), '$.%s', %s)"
                                   " WHERE id = 1", damaged[i].key, damaged[i].value));
        ck_fails(calm_reselect(ctx, &o, &selected), CALM_EFORMAT, damaged[i].message);
        calm_reselected_clear(&selected);
    }
    play_sql(&run, test_format("UPDATE run SET recipe = '%s' WHERE id = 1", recipe));
    o.file_bytes = 5000;
    play_sql(&run, "UPDATE model SET path = '/nowhere'");
    ck_fails(calm_reselect(ctx, &o, &selected), CALM_ENOTFOUND, "/nowhere");
    calm_reselected_clear(&selected);
}

TEST(selected_and_assembled) { select_and_assemble(false, "rtn"); }
END_OF_TEST

/* With v as a separate job. */
TEST(v_apart) { select_and_assemble(true, "rtn"); }
END_OF_TEST

/* With a table fitted to the head's inputs, which calm assemble collects again. */
TEST(a_fitted_table) { select_and_assemble(false, "gptq"); }
END_OF_TEST

/* Bits per weight count tensors, without headers and tokenizer. */
TEST(bits_per_weight)
{
    play run = sized("mlx", "w2a16_g32,w4a16_g32,w8a16_g32", true, 0);
    calm_safetensors *set;
    double bytes = 0;
    run.recipe.file_bits = 7;
    run.recipe.file_asked = "`choice.bits_per_weight` 7";
    play_must_run(&run);
    ck_ok(calm_safetensors_open(ctx, run.recipe.output, &set));
    for (size_t i = 0; i < calm_safetensors_count(set); i++)
        bytes += (double)calm_safetensors_at(set, i)->bytes;
    calm_safetensors_close(set);
    const double weights = (double)play_sql(&run, "SELECT n_params FROM model");
    ck_assert_msg(8 * bytes <= 7 * weights && 8 * bytes > 5 * weights, "%g bits per weight", 8 * bytes / weights);
    run.recipe.file_bits = 1;
    const outcome said = play_run(&run, (fault){0});
    ck_assert_msg(said.status == CALM_EARG && strstr(said.message, " bits per weight"), "%s", said.message);
}
END_OF_TEST

TEST(refused)
{
    play run = sized("imatrix", "w4a16_g32,w8a16_g32", true, 5000);
    const outcome said = play_run(&run, (fault){0});
    ck_assert_int_eq(said.status, CALM_EUNSUPPORTED);
    ck_assert_msg(strstr(said.message, "`formats` imatrix: has no weights"), "%s", said.message);
}
END_OF_TEST

/* The estimated size of a single scheme is that of the written file, up to the digits of offsets. */
TEST(foreseen)
{
    static const char *const formats[] = {"gguf", "mlx", "gptq", "compressed-tensors"};
    for (size_t i = 0; i < 4; i++) {
        play run = sized(formats[i], "w4a16_g32", true, 0);
        calm_run *opened;
        size_t bytes;
        double bits;
        run.recipe.n_budgets = 0;
        run.recipe.file_asked = NULL;
        play_must_run(&run);
        const size_t file = written(&run);
        ck_ok(calm_run_open(ctx, &run.recipe, &opened));
        ck_ok(calm_run_file_of_scheme(ctx, opened, 0, &bytes, &bits));
        ck_assert_msg(bytes >= file && bytes - file < 400, "%s: %zu bytes, estimated %zu", formats[i], file, bytes);
        calm_run_close(&opened);
    }
}
END_OF_TEST

/* A rounded table has the values of the file, in float16. */
TEST(rounded)
{
    enum { V = 40, D = 64 };
    float values[V * D];
    uint16_t out[V * D];
    calm_scheme scheme;
    calm_qlinear rows;
    ctx->n_threads = 1;
    for (size_t i = 0; i < V * D; i++)
        values[i] = (float)(i * 37 % 101) / 50 - 1;
    const calm_tensor table = {.name = "embed.weight", .dtype = CALM_F32, .n_dims = 2, .shape = {V, D},
                               .data = (const uint8_t *)values, .bytes = sizeof values, .n_elements = V * D};
    ck_ok(calm_scheme_parse(ctx, "w4a16_g32", &scheme));
    ck_ok(calm_outer_rows_round(ctx, NULL, &table, &scheme, out));
    ck_ok(calm_outer_rows(NULL, ctx, &table, &scheme, 0, V, &rows));
    for (size_t i = 0; i < V * D; i++) {
        const float exact = ((float)rows.codes[i] - 8) * rows.scales[i / 32];
        ck_assert_uint_eq(out[i], calm_f32_to_f16(exact));
    }
    values[5] = NAN;
    ck_fails(calm_outer_rows_round(ctx, NULL, &table, &scheme, out), CALM_ENUMERIC, "embed.weight");
}
END_OF_TEST

int main(void)
{
    return run_tests("file_size", (const TTest *[]){gguf, mlx, compressed_tensors, mixtures, tables_take_part,
                                                    selected_and_assembled, v_apart, a_fitted_table, bits_per_weight,
                                                    refused, foreseen, rounded, NULL});
}
