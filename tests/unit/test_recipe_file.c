/* Recipe files: every place is an option in both directions, command-line options have precedence, and faults are
 * reported with their place. */
#include "ptq/recipe/preset.h"
#include "ptq/recipe/shipped.h"

#include "ptq/base/file.h"
#include "ptq/lock/lock.h"
#include "ptq/recipe/resolve.h"
#include "ptq/tensor/bf16_product.h"
#include "tests/support/harness.h"

#include <stdio.h>

static calm_recipe_spec defaults(void)
{
    calm_recipe_spec spec;
    ck_ok(calm_spec_init(ctx, &spec));
    return spec;
}

/* Returns the options in one line, including those without a place in recipes. */
static const char *canonical(const calm_recipe_spec *spec)
{
    calm_text text;
    calm_text_init(&text);
    calm_options_canonical(calm_spec_table, spec, &text);
    const char *copy = test_format("%s", text.data);
    calm_text_clear(&text);
    return copy;
}

static const char *list_of(const calm_words *words)
{
    char *text = test_format("%s", "");
    for (size_t i = 0; i < words->n; i++)
        text = test_format("%s%s%s", text, i ? "," : "", words->of[i]);
    return text;
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

/* Reads the file into the spec; options that were given stay. */
static calm_recipe_spec read_into(calm_recipe_spec spec, const char *path)
{
    ck_ok(calm_recipe_file_apply(ctx, path, &spec));
    return spec;
}

TEST(every_place_becomes_its_option)
{
    const calm_recipe_spec o = read_into(defaults(), test_data("recipes/full.json"));
    ck_assert_str_eq(o.model, "org/model@main");
    ck_assert_str_eq(list_of(&o.calib), "a.txt");
    ck_assert_int_eq(o.samples, 7);
    ck_assert_int_eq(o.seqlen, 33);
    ck_assert_int_eq(o.seed, 5);
    ck_assert(o.no_special && o.encoder_stream && o.keep_hybrid && !o.no_eval);
    ck_assert_int_eq(o.prefix, CALM_PREFIX_FLOAT);
    ck_assert_int_eq(o.calib_dtype, 1);
    ck_assert(o.learn == 1 && o.learn_steps == 77 && o.learn_loss == CALM_LEARN_MINI);
    ck_assert_int_eq(o.preset, CALM_RECIPE_BEST);
    ck_assert_int_eq(o.kv_cache, 1);
    ck_assert_int_eq(o.score_samples, 3);
    ck_assert_int_eq(o.guard_samples, 0);
    ck_assert_str_eq(list_of(&o.schemes), "w3a16_g128,w8a16");
    ck_assert_int_eq(o.scale_dtype, 1);
    ck_assert_str_eq(list_of(&o.algorithms), "rtn,smooth(alpha=0.25)+absmax+gptq,"
                                             "absmax+gptq(order=activation,order=none,damp=0.050000000000000003)");
    ck_assert_int_eq(o.unit, CALM_UNIT_BLOCK);
    ck_assert_str_eq(o.metric, "cka");
    ck_assert_int_eq(o.rule, CALM_CHOICE_RULE_ARGMAX);
    ck_assert_uint_eq(o.budgets.n, 2);
    ck_near(o.budgets.of[0], 3.5, 0);
    ck_near(o.budgets.of[1], 4, 0);
    ck_assert_uint_eq(o.pins.n, 1);
    ck_assert_str_eq(o.pins.of[0].key, "*.1");
    ck_assert_str_eq(o.pins.of[0].value, "rtn w8a16");
    ck_assert_str_eq(list_of(&o.forbid), "rtn w3a16_g128");
    ck_assert_int_eq(o.probe_samples, 2);
    ck_assert_int_eq(o.expert_tokens, 9);
    ck_assert(o.blocks.given && o.blocks.first == 1 && o.blocks.last == 3);
    ck_assert_str_eq(list_of(&o.formats), "compressed-tensors");
    ck_assert_str_eq(o.eval_text, "b.txt");
    ck_assert_int_eq(o.eval_samples, 11);
    ck_assert_str_eq(list_of(&o.gates), "bits <= 4.5");
    ck_assert_str_eq(o.kernels, "Haswell");
    ck_assert_uint_eq(o.demanded.n_files, 1);
    ck_assert_str_eq(o.demanded.files[0], "model.safetensors");
    ck_assert_int_eq(o.demanded.sha256[0][0], '0');
    ck_assert_int_eq(o.demanded.calib_sha256[0], '1');
    ck_assert_int_eq(o.demanded.eval_sha256[0], '2');
    ck_assert_ptr_null(o.overrides);
}
END_OF_TEST

/* Every option of the full recipe differs from its default, so a place that is written but not read shows. */
TEST(options_written_and_read_again_are_the_same)
{
    const calm_recipe_spec first = read_into(defaults(), test_data("recipes/full.json"));
    calm_recipe_spec second = defaults();
    calm_json *document, *again;
    ck_ok(calm_spec_write(ctx, &first, &document));
    ck_ok(calm_document_check(ctx, "written", document));
    ck_ok(calm_spec_read(ctx, document, "written", &second));
    ck_assert_str_eq(canonical(&first), canonical(&second));
    ck_ok(calm_spec_write(ctx, &second, &again));
    ck_assert_str_eq(text_of(document), text_of(again));
    calm_json_free(document);
    calm_json_free(again);
}
END_OF_TEST

TEST(defaults_are_written_by_their_names)
{
    calm_recipe_spec spec = defaults(), back = defaults();
    calm_json *document;
    spec.model = "qwen";
    spec.no_eval = true;
    ck_ok(calm_spec_write(ctx, &spec, &document));
    ck_ok(calm_document_check(ctx, "written", document));
    const char *text = text_of(document);
    ck_assert_ptr_nonnull(strstr(text, "\"schemes\":[\"w4a16_g128\"]"));
    ck_assert_ptr_null(calm_json_get(calm_json_get(document, "calibration"), "seed"));
    ck_assert_int_eq(calm_json_typeof(calm_json_get(document, "evaluation")), CALM_JSON_BOOL);
    ck_ok(calm_spec_read(ctx, document, "written", &back));
    ck_assert(back.no_eval);
    ck_assert_int_eq(back.seed, -1);
    calm_json_free(document);
}
END_OF_TEST

TEST(what_was_given_counts_more_and_is_noted)
{
    static const char *const given[][2] = {{"calibration.samples", "99"}, {"bits", "8"}, {"model", "qwen"},
                                           {"tokens", "t.jsonl"}, {"gates", "kl < 3"}};
    calm_recipe_spec o = defaults();
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        ck_ok(calm_spec_set(ctx, &o, given[i][0], given[i][1]));
    o = read_into(o, test_data("recipes/full.json"));
    ck_assert_int_eq(o.samples, 99);
    ck_assert_uint_eq(o.schemes.n, 0);                  /* `bits` replaces schemes                            */
    ck_assert_str_eq(o.model, "qwen");
    ck_assert_uint_eq(o.demanded.n_files, 0);           /* digests of another model                           */
    ck_assert_uint_eq(o.calib.n, 0);                    /* tokens replace the text and its digest             */
    ck_assert_ptr_null(o.demanded.calib_sha256);
    ck_assert(o.no_special);                            /* for a text to evaluate, whatever calibrates        */
    ck_assert_str_eq(list_of(&o.gates), "kl < 3");      /* lists are replaced, not extended                   */
    ck_assert_int_eq(o.seqlen, 33);
    ck_assert_str_eq(o.overrides, "{\"model\":\"qwen\",\"bits\":8,\"tokens\":\"t.jsonl\",\"samples\":99,"
                                  "\"gate\":\"kl < 3\"}");
}
END_OF_TEST

TEST(a_text_to_evaluate_overrides_no_evaluation)
{
    const char *path = test_format("%s/r.json", test_directory());
    static const char text[] = "{\"calm_recipe\": 1, \"model\": \"qwen\", \"evaluation\": false}";
    ck_ok(calm_write_file(ctx, path, text, sizeof text - 1));
    ck_assert(read_into(defaults(), path).no_eval);
    calm_recipe_spec given = defaults();
    ck_ok(calm_spec_set(ctx, &given, "eval-samples", "3"));
    ck_assert(!read_into(given, path).no_eval);
}
END_OF_TEST

TEST(keys_of_a_spec)
{
    calm_recipe_spec spec = defaults();
    ck_fails(calm_spec_set(ctx, &spec, "choice.budgte", "3"), CALM_EARG, "did you mean \"choice.budget\"?");
    ck_fails(calm_spec_set(ctx, &spec, "calibration.samples", "many"), CALM_EARG,
             "expected a whole number, found \"many\"");
    ck_fails(calm_spec_set(ctx, &spec, "samples", "0"), CALM_EARG, "outside 1 ..");
    ck_fails(calm_spec_set(ctx, &spec, "choice.unit", "head"), CALM_EARG, "found \"head\"");
    ck_assert(!calm_spec_given(&spec, "samples") && !calm_spec_given(&spec, "no-such-option"));
    ck_ok(calm_spec_set(ctx, &spec, "samples", "5"));
    ck_assert(calm_spec_given(&spec, "samples"));
    ck_assert_str_eq(calm_spec_flag("choice.budget"), "budget");
    ck_assert_str_eq(calm_spec_flag("schemes"), "scheme");
    ck_assert_str_eq(calm_spec_flag("output"), "output");
    ck_assert_ptr_null(calm_spec_flag("choice"));
    ck_assert_uint_lt(calm_options_count(calm_spec_table), CALM_SPEC_OPTIONS);
    ck_assert_str_eq(calm_spec_table[calm_spec_shared()].name, "budget");
}
END_OF_TEST

/* Checks each line of FOLDER/pointers.txt: a file, and the place of its fault. */
static size_t check_folder(const char *folder, bool structure)
{
    char line[256], name[128], pointer[128];
    size_t n = 0;
    FILE *list = fopen(test_data(test_format("recipes/%s/pointers.txt", folder)), "r");
    ck_assert_ptr_nonnull(list);
    while (fgets(line, sizeof line, list)) {
        calm_faults faults;
        calm_json *recipe;
        pointer[0] = '\0';
        ck_assert_int_ge(sscanf(line, "%127s %127s", name, pointer), 1);
        const char *path = test_data(test_format("recipes/%s/%s", folder, name));
        ck_ok(calm_recipe_file_faults(ctx, path, &faults));
        ck_assert_msg(faults.n > 0, "%s: expected a fault at %s, found none", name, pointer);
        ck_assert_msg(strcmp(faults.of[0].pointer, pointer) == 0, "%s: expected %s, found %s: %s", name, pointer,
                      faults.of[0].pointer, faults.of[0].message);
        ck_assert_uint_gt(strlen(faults.of[0].message), 8);
        if (structure)
            ck_fails(calm_document_read(ctx, path, &recipe), CALM_EFORMAT, pointer[0] ? pointer : "the document");
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
        calm_faults faults;
        calm_json *recipe;
        char *path;
        ck_ok(calm_recipe_file_find(ctx, names[i], &path));
        ck_ok(calm_recipe_file_faults(ctx, path, &faults));
        ck_assert_msg(faults.n == 0, "%s: %s: %s", path, faults.of[0].pointer, faults.n ? faults.of[0].message : "");
        ck_ok(calm_document_read(ctx, path, &recipe));
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
    ck_fails(calm_document_read(ctx, path, &recipe), CALM_EFORMAT, "r.json");
    ck_assert_ptr_null(recipe);
    ck_ok(calm_write_file(ctx, path, "{\"calm_recipe\": 1, \"calm_recipe\": 1}", 36));
    ck_fails(calm_document_read(ctx, path, &recipe), CALM_EFORMAT, "r.json");
    char *large = test_format("%*s", (int)CALM_RECIPE_BYTES + 1, "");
    ck_ok(calm_write_file(ctx, path, large, CALM_RECIPE_BYTES + 1));
    ck_assert_int_ne(calm_document_read(ctx, path, &recipe), CALM_OK);
    calm_ctx_clear_failure(ctx);
}
END_OF_TEST

/* The default pool leaves out algorithms that reach no scheme or smooth where scales do not fold, unless nothing
 * else is left. */
TEST(a_pool_that_nobody_named_keeps_what_reaches)
{
    calm_recipe recipe = {0};
    const calm_words both = test_words("q4_k,w4a16_g32"), one = test_words("q4_k");
    calm_words names = test_words("rtn,smoothquant,mkq,actfit"), none = test_words("actfit"),
               smooth = test_words("smoothquant"), wrong = test_words("rnt");
    ck_ok(calm_recipe_schemes(ctx, &one, &recipe));
    ck_ok(calm_recipe_drop_unusable(ctx, &recipe, &none));
    ck_assert_str_eq(list_of(&none), "actfit");
    ck_fails(calm_recipe_algorithms(ctx, &none, &recipe), CALM_EUNSUPPORTED, "actfit cannot reach q4_k");
    ck_ok(calm_recipe_drop_unusable(ctx, &recipe, &smooth));
    ck_ok(calm_recipe_algorithms(ctx, &smooth, &recipe));    /* it may be asked for */
    ck_fails(calm_recipe_drop_unusable(ctx, &recipe, &wrong), CALM_EARG, "rnt");
    ck_ok(calm_recipe_drop_unusable(ctx, &recipe, &names));
    ck_assert_str_eq(list_of(&names), "rtn,mkq");
    ck_ok(calm_recipe_algorithms(ctx, &names, &recipe));
    names = test_words("rtn,smoothquant,mkq");
    ck_ok(calm_recipe_schemes(ctx, &both, &recipe));
    ck_ok(calm_recipe_drop_unusable(ctx, &recipe, &names));
    ck_assert_str_eq(list_of(&names), "rtn,smoothquant,mkq");
}
END_OF_TEST

/* `auto` depends on the CPU, so documents have its value, and resolve to the same elsewhere.  With kernels that the
 * recipe names it does not depend on the CPU. */
static void check_dtype(int dtype, const char *kernels)
{
    const bool fast = !kernels && calm_bf16_is_fast(CALM_OPERANDS_BF16X2);
    const calm_operands want = dtype < 3 ? (calm_operands)dtype : fast ? CALM_OPERANDS_BF16X2 : CALM_OPERANDS_F32;
    calm_recipe_spec spec = defaults();
    calm_recipe recipe = {0};
    calm_faults faults = {0};
    const char *text;
    spec.model = "qwen";
    spec.calib_dtype = dtype;
    spec.kernels = kernels;
    const calm_recipe_spec settled = calm_spec_with_dtype(&spec);
    ck_assert_int_eq(settled.calib_dtype, (int)want);
    ck_ok(calm_recipe_check(ctx, &spec, &recipe, &faults));
    ck_assert_int_eq(recipe.operands, want);
    ck_ok(calm_spec_text(ctx, &settled, &text));
    ck_assert_ptr_null(strstr(text, "\"dtype\":\"auto\""));
    ck_assert_int_eq(strstr(text, "\"dtype\":\"bf16\"") != NULL, want == CALM_OPERANDS_BF16);
    ck_assert_int_eq(strstr(text, "\"dtype\":\"bf16x2\"") != NULL, want == CALM_OPERANDS_BF16X2);
}

TEST(auto_dtype_is_settled)
{
    for (int dtype = 0; dtype <= 3; dtype++) {
        check_dtype(dtype, NULL);
        check_dtype(dtype, calm_linalg_kernels());
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("recipe_file",
                     (const TTest *[]){every_place_becomes_its_option, options_written_and_read_again_are_the_same,
                                       defaults_are_written_by_their_names, what_was_given_counts_more_and_is_noted,
                                       a_text_to_evaluate_overrides_no_evaluation, each_wrong_recipe_names_its_place,
                                       each_wrong_name_is_found_without_a_model, every_shipped_recipe_is_valid,
                                       a_name_finds_a_shipped_recipe, what_is_no_document_is_refused, keys_of_a_spec,
                                       a_pool_that_nobody_named_keeps_what_reaches, auto_dtype_is_settled,
                                       NULL});
}
