/* Recipe files: every place is its option in both directions, the command line counts more, and wrong ones name the place. */
#include "cli/recipe_file.h"

#include "cli/recipe_check.h"
#include "ptq/base/file.h"
#include "tests/support/harness.h"

#include <stdio.h>

static calm_quantize_options defaults(void)
{
    calm_quantize_options opts;
    memset(&opts, 0, sizeof opts);
    ck_ok(calm_options_init(ctx, calm_quantize_table, &opts));
    return opts;
}

/* The options in one line, those that a recipe has no place for too. */
static const char *canonical(const calm_quantize_options *opts)
{
    calm_text text;
    calm_text_init(&text);
    calm_options_canonical(calm_quantize_table, opts, &text);
    const char *copy = test_format("%s", text.data);
    calm_text_clear(&text);
    return copy;
}

static const char *text_of(const calm_json *json)
{
    calm_text text;
    calm_text_init(&text);
    ck_ok(calm_json_write(ctx, json, 0, &text));
    const char *copy = test_format("%s", text.data);
    calm_text_clear(&text);
    return copy;
}

static calm_quantize_options applied(const char *path, const bool *given, calm_quantize_options opts, calm_json *overrides)
{
    calm_json *recipe;
    ck_ok(calm_recipe_file_read(ctx, path, &recipe));
    ck_ok(calm_recipe_file_apply(ctx, recipe, path, given, &opts, overrides));
    calm_json_free(recipe);
    return opts;
}

static size_t index_of(const char *option)
{
    for (size_t i = 0; calm_quantize_table[i].name; i++)
        if (strcmp(calm_quantize_table[i].name, option) == 0)
            return i;
    ck_abort_msg("no option %s", option);
    return 0;
}

TEST(every_place_becomes_its_option)
{
    const calm_quantize_options o = applied(test_data("recipes/full.json"), NULL, defaults(), NULL);
    ck_assert_str_eq(o.recipe.model, "org/model@main");
    ck_assert_str_eq(o.recipe.calib, "a.txt");
    ck_assert_int_eq(o.recipe.samples, 7);
    ck_assert_int_eq(o.recipe.seqlen, 33);
    ck_assert_int_eq(o.recipe.seed, 5);
    ck_assert(o.recipe.special && o.recipe.stream && o.keep_hybrid && !o.no_eval);
    ck_assert_int_eq(o.recipe.prefix, CALM_PREFIX_FLOAT);
    ck_assert_int_eq(o.recipe.score_samples, 3);
    ck_assert_int_eq(o.recipe.guard_samples, 0);
    ck_assert_str_eq(o.recipe.scheme, "w3a16_g128,w8a16");
    ck_assert_int_eq(o.recipe.scale_dtype, 1);
    ck_assert_str_eq(o.recipe.algorithms, "rtn,smooth(alpha=0.25)+absmax+gptq,"
                                          "absmax+gptq(order=activation,order=none,damp=0.050000000000000003)");
    ck_assert_int_eq(o.unit, CALM_UNIT_BLOCK);
    ck_assert_str_eq(o.metric, "cka");
    ck_assert_int_eq(o.rule, CALM_RULE_ARGMAX);
    ck_assert_str_eq(o.budget, "3.5,4");
    ck_assert_str_eq(o.pins, "*.1=rtn w8a16");
    ck_assert_str_eq(o.forbid, "rtn w3a16_g128");
    ck_assert_int_eq(o.recipe.probe_samples, 2);
    ck_assert_int_eq(o.recipe.expert_tokens, 9);
    ck_assert_str_eq(o.recipe.blocks, "1-3");
    ck_assert_str_eq(o.formats, "compressed-tensors");
    ck_assert_str_eq(o.recipe.eval_text, "b.txt");
    ck_assert_int_eq(o.recipe.eval_samples, 11);
    ck_assert_str_eq(o.gates, "bits <= 4.5");
    ck_assert_str_eq(o.kernels, "Haswell");
    ck_assert_uint_eq(o.demanded.n_files, 1);
    ck_assert_str_eq(o.demanded.files[0], "model.safetensors");
    ck_assert_int_eq(o.demanded.sha256[0][0], '0');
    ck_assert_int_eq(o.demanded.calib_sha256[0], '1');
    ck_assert_int_eq(o.demanded.eval_sha256[0], '2');
}
END_OF_TEST

/* Every option of the full recipe differs from its default, so a place that is written and not read shows. */
TEST(options_written_and_read_again_are_the_same)
{
    const calm_quantize_options first = applied(test_data("recipes/full.json"), NULL, defaults(), NULL);
    calm_quantize_options second = defaults();
    calm_json *document, *again;
    ck_ok(calm_recipe_file_json(ctx, &first, &document));
    ck_ok(calm_recipe_file_check(ctx, "written", document));
    ck_ok(calm_recipe_file_apply(ctx, document, "written", NULL, &second, NULL));
    ck_assert_str_eq(canonical(&first), canonical(&second));
    ck_ok(calm_recipe_file_json(ctx, &second, &again));
    ck_assert_str_eq(text_of(document), text_of(again));
    calm_json_free(document);
    calm_json_free(again);
}
END_OF_TEST

TEST(defaults_are_written_by_their_names)
{
    calm_quantize_options opts = defaults(), back = defaults();
    calm_json *document;
    opts.recipe.model = "qwen";
    opts.no_eval = true;
    ck_ok(calm_recipe_file_json(ctx, &opts, &document));
    ck_ok(calm_recipe_file_check(ctx, "written", document));
    const char *text = text_of(document);
    ck_assert_ptr_nonnull(strstr(text, "\"schemes\":[\"w4a16_g128\"]"));
    ck_assert_ptr_null(calm_json_get(calm_json_get(document, "calibration"), "seed"));
    ck_assert_int_eq(calm_json_typeof(calm_json_get(document, "evaluation")), CALM_JSON_BOOL);
    ck_ok(calm_recipe_file_apply(ctx, document, "written", NULL, &back, NULL));
    ck_assert(back.no_eval);
    ck_assert_int_eq(back.recipe.seed, -1);
    calm_json_free(document);
}
END_OF_TEST

TEST(the_command_line_counts_more_and_is_noted)
{
    bool given[64] = {false};
    calm_quantize_options opts = defaults();
    calm_json *overrides = calm_json_new_object();
    opts.recipe.samples = 99;
    opts.recipe.bits = 8;
    opts.recipe.model = "qwen";
    opts.recipe.tokens = "t.jsonl";
    opts.gates = "kl < 3";
    given[index_of("samples")] = given[index_of("bits")] = given[index_of("model")] = given[index_of("tokens")] =
        given[index_of("gate")] = true;
    opts = applied(test_data("recipes/full.json"), given, opts, overrides);
    ck_assert_int_eq(opts.recipe.samples, 99);
    ck_assert_ptr_null(opts.recipe.scheme);                /* --bits is in the place of schemes                */
    ck_assert_str_eq(opts.recipe.model, "qwen");
    ck_assert_uint_eq(opts.demanded.n_files, 0);           /* digests of another model                         */
    ck_assert_ptr_null(opts.recipe.calib);                 /* --tokens takes the text's place, and its digest's */
    ck_assert_ptr_null(opts.demanded.calib_sha256);
    ck_assert(!opts.recipe.special);
    ck_assert_str_eq(opts.gates, "kl < 3");                /* lists are replaced, not added to                 */
    ck_assert_int_eq(opts.recipe.seqlen, 33);
    ck_assert_str_eq(text_of(overrides), "{\"model\":\"qwen\",\"bits\":8,\"tokens\":\"t.jsonl\",\"samples\":99,"
                                         "\"gate\":\"kl < 3\"}");
    calm_json_free(overrides);
}
END_OF_TEST

TEST(a_text_to_evaluate_overrides_no_evaluation)
{
    bool given[64] = {false};
    const char *path = test_format("%s/r.json", test_directory());
    static const char text[] = "{\"calm_recipe\": 1, \"model\": \"qwen\", \"evaluation\": false}";
    ck_ok(calm_write_file(ctx, path, text, sizeof text - 1));
    ck_assert(applied(path, given, defaults(), NULL).no_eval);
    given[index_of("eval-samples")] = true;
    ck_assert(!applied(path, given, defaults(), NULL).no_eval);
}
END_OF_TEST

/* Each line of FOLDER/pointers.txt: a file, and where its fault is. */
static size_t check_folder(const char *folder, bool structure)
{
    char line[256], name[128], pointer[128];
    size_t n = 0;
    FILE *list = fopen(test_data(test_format("recipes/%s/pointers.txt", folder)), "r");
    ck_assert_ptr_nonnull(list);
    while (fgets(line, sizeof line, list)) {
        calm_json_fault *faults;
        calm_json *recipe;
        size_t n_faults;
        pointer[0] = '\0';
        ck_assert_int_ge(sscanf(line, "%127s %127s", name, pointer), 1);
        const char *path = test_data(test_format("recipes/%s/%s", folder, name));
        ck_ok(calm_recipe_check_file(ctx, path, &faults, &n_faults));
        ck_assert_msg(n_faults > 0, "%s: expected a fault at %s, found none", name, pointer);
        ck_assert_msg(strcmp(faults[0].pointer, pointer) == 0, "%s: expected %s, found %s: %s", name, pointer,
                      faults[0].pointer, faults[0].message);
        ck_assert_uint_gt(strlen(faults[0].message), 8);
        if (structure)
            ck_fails(calm_recipe_file_read(ctx, path, &recipe), CALM_EFORMAT, pointer[0] ? pointer : "the document");
        n++;
    }
    fclose(list);
    return n;
}

TEST(each_wrong_recipe_names_its_place)
{
    ck_assert_uint_ge(check_folder("bad", true), 50);
}
END_OF_TEST

TEST(each_wrong_name_is_found_without_a_model)
{
    ck_assert_uint_ge(check_folder("names", false), 20);
}
END_OF_TEST

TEST(every_shipped_recipe_is_valid)
{
    const char **names;
    size_t n;
    ck_ok(calm_recipe_file_shipped(ctx, &names, &n));
    ck_assert_uint_ge(n, 7);
    for (size_t i = 0; i < n; i++) {
        calm_json_fault *faults;
        calm_json *recipe;
        char *path;
        size_t n_faults;
        ck_ok(calm_recipe_file_find(ctx, names[i], &path));
        ck_ok(calm_recipe_check_file(ctx, path, &faults, &n_faults));
        ck_assert_msg(n_faults == 0, "%s: %s: %s", path, faults[0].pointer, n_faults ? faults[0].message : "");
        ck_ok(calm_recipe_file_read(ctx, path, &recipe));
        ck_assert_str_eq(calm_json_string(calm_json_get(recipe, "name"), ""), names[i]);
        ck_assert_ptr_nonnull(calm_json_string(calm_json_get(recipe, "description"), NULL));
        calm_json_free(recipe);
    }
}
END_OF_TEST

TEST(a_name_finds_a_shipped_recipe)
{
    char *path;
    ck_ok(calm_recipe_file_find(ctx, "qwen-w4", &path));
    ck_assert_ptr_nonnull(strstr(path, "/recipes/qwen-w4.json"));
    ck_fails(calm_recipe_file_find(ctx, "qwen-w5", &path), CALM_ENOTFOUND, "did you mean qwen-w4?");
    ck_fails(calm_recipe_file_find(ctx, "/no/such/file.json", &path), CALM_ENOTFOUND, "/no/such/file.json");
}
END_OF_TEST

TEST(what_is_no_document_is_refused)
{
    calm_json *recipe;
    const char *path = test_format("%s/r.json", test_directory());
    ck_ok(calm_write_file(ctx, path, "{\"calm_recipe\": 1,", 18));
    ck_fails(calm_recipe_file_read(ctx, path, &recipe), CALM_EFORMAT, "r.json");
    ck_assert_ptr_null(recipe);
    ck_ok(calm_write_file(ctx, path, "{\"calm_recipe\": 1, \"calm_recipe\": 1}", 36));
    ck_fails(calm_recipe_file_read(ctx, path, &recipe), CALM_EFORMAT, "r.json");
    char *large = test_format("%*s", (int)CALM_RECIPE_BYTES + 1, "");
    ck_ok(calm_write_file(ctx, path, large, CALM_RECIPE_BYTES + 1));
    ck_assert_int_ne(calm_recipe_file_read(ctx, path, &recipe), CALM_OK);
    calm_ctx_forgive(ctx);
}
END_OF_TEST

int main(void)
{
    return run_tests("recipe_file",
                     (const TTest *[]){every_place_becomes_its_option, options_written_and_read_again_are_the_same,
                                       defaults_are_written_by_their_names, the_command_line_counts_more_and_is_noted,
                                       a_text_to_evaluate_overrides_no_evaluation, each_wrong_recipe_names_its_place,
                                       each_wrong_name_is_found_without_a_model, every_shipped_recipe_is_valid,
                                       a_name_finds_a_shipped_recipe, what_is_no_document_is_refused, NULL});
}
