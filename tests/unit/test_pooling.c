/* Sentence embeddings as modules.json describes them: what is read, what is refused, values, weights of rows. */
#include "ptq/model/pooling.h"

#include <math.h>

#include "ptq/base/file.h"
#include "ptq/io/safetensors.h"
#include "tests/support/harness.h"

enum { HIDDEN = 4, TOKENS = 3 };

static const char *dir;
static const calm_pooling *read;
static calm_config config;

static void put(const char *name, const char *text)
{
    const char *path = test_format("%s/%s", dir, name);
    ck_ok(calm_make_parent(ctx, path));
    ck_ok(calm_write_file(ctx, path, text, strlen(text)));
}

/* Writes linear.weight [out, in] = 1, 2, 3, ... times 0.1 and linear.bias [out] = 1. */
static void put_dense(const char *folder, size_t out, size_t in, bool bias, const char *function)
{
    const calm_tensor tensors[2] = {{.name = "linear.bias", .dtype = CALM_F32, .n_dims = 1, .shape = {out}},
                                    {.name = "linear.weight", .dtype = CALM_F32, .n_dims = 2, .shape = {out, in}}};
    float values[64], ones[64];
    calm_safetensors_writer writer;
    for (size_t i = 0; i < 64; i++)
        values[i] = 0.1f * (float)(i + 1), ones[i] = 1;
    put(test_format("%s/config.json", folder),
        test_format("{\"in_features\": %zu, \"out_features\": %zu, \"bias\": %s, \"activation_function\": \"%s\"}", in,
                    out, bias ? "true" : "false", function));
    ck_ok(calm_safetensors_begin(ctx, &writer, test_format("%s/%s/model.safetensors", dir, folder),
                                 tensors + (bias ? 0 : 1), bias ? 2 : 1));
    if (bias)
        ck_ok(calm_safetensors_put(ctx, &writer, ones, out * sizeof *ones));
    ck_ok(calm_safetensors_put(ctx, &writer, values, out * in * sizeof *values));
    ck_ok(calm_safetensors_end(ctx, &writer));
}

#define MODULE(type, path) "{\"type\": \"sentence_transformers.models." type "\", \"path\": \"" path "\"}"
#define FIRST              MODULE("Transformer", "") ", " MODULE("Pooling", "1_Pooling")
#define IDENTITY           "torch.nn.modules.linear.Identity"

static void begin(const char *modules, const char *pooling)
{
    dir = test_directory();
    config = (calm_config){.hidden = HIDDEN};
    put("modules.json", modules);
    put("1_Pooling/config.json", pooling);
}

static const float rows[TOKENS * HIDDEN] = {1, 2, 3, 4, -1, 0, 1, 2, 6, 1, 5, -3};

/* Returns the embedding of the rows. */
static const double *run(void)
{
    static double room[64];
    calm_pooling pooling;
    ck_ok(calm_pooling_read(ctx, dir, &config, &read));
    config.pooling = read;
    ck_ok(calm_pooling_load(ctx, &config, &pooling));
    ck_assert_uint_le(calm_pooling_room(&pooling), 64);
    return calm_pooling_run(&pooling, rows, TOKENS, room);
}

static void check(const char *pooling, double a, double b, double c, double d)
{
    const double expected[HIDDEN] = {a, b, c, d};
    begin("[" FIRST "]", pooling);
    const double *found = run();
    ck_assert_uint_eq(calm_pooling_width(&config), HIDDEN);
    for (size_t i = 0; i < HIDDEN; i++)
        ck_assert_msg(fabs(found[i] - expected[i]) < 1e-12, "%s: %zu: %g, expected %g", pooling, i, found[i],
                      expected[i]);
}

TEST(ways_of_pooling)
{
    const double root = sqrt(3);
    check("{\"pooling_mode_mean_tokens\": true}", 2, 1, 3, 1);
    check("{}", 2, 1, 3, 1);
    check("{\"pooling_mode\": \"mean\", \"embedding_dimension\": 4}", 2, 1, 3, 1);
    check("{\"pooling_mode_cls_token\": true, \"pooling_mode_mean_tokens\": false}", 1, 2, 3, 4);
    check("{\"pooling_mode\": [\"cls\"]}", 1, 2, 3, 4);
    check("{\"pooling_mode_lasttoken\": true, \"word_embedding_dimension\": 4}", 6, 1, 5, -3);
    check("{\"pooling_mode_mean_sqrt_len_tokens\": true}", 6 / root, 3 / root, 9 / root, 3 / root);
    /* (1 x1 + 2 x2 + 3 x3) / 6 */
    check("{\"pooling_mode_weightedmean_tokens\": true}", 17 / 6.0, 5 / 6.0, 20 / 6.0, -1 / 6.0);
}
END_OF_TEST

TEST(layers_behind_it)
{
    begin("[" FIRST ", " MODULE("Dense", "2_Dense") ", " MODULE("Dense", "3_Dense") ", "
          MODULE("Normalize", "4_Normalize") "]", "{}");
    put_dense("2_Dense", 2, 4, true, "torch.nn.modules.activation.Tanh");
    put_dense("3_Dense", 3, 2, false, IDENTITY);
    const double *found = run();
    /* The mean is (2, 1, 3, 1). */
    const double a = tanh(1 + 0.2 + 0.2 + 0.9 + 0.4), b = tanh(1 + 1 + 0.6 + 2.1 + 0.8);
    const double y[3] = {0.1 * a + 0.2 * b, 0.3 * a + 0.4 * b, 0.5 * a + 0.6 * b};
    const double length = sqrt(y[0] * y[0] + y[1] * y[1] + y[2] * y[2]);
    ck_assert_uint_eq(calm_pooling_width(&config), 3);
    for (size_t i = 0; i < 3; i++)
        ck_assert(fabs(found[i] - y[i] / length) < 1e-7);    /* weights are float32 */
    ck_assert_uint_eq(calm_pooling_load_bytes(&config),
                      CALM_BYTES(float, 8) + CALM_BYTES(float, 2) + CALM_BYTES(float, 6));
}
END_OF_TEST

TEST(one_layer_alone)
{
    begin("[" FIRST ", " MODULE("Dense", "2_Dense") ", " MODULE("Dense", "3_Dense") ", "
          MODULE("Normalize", "4_Normalize") "]", "{}");
    put_dense("2_Dense", 2, 4, true, IDENTITY);
    put_dense("3_Dense", 3, 2, false, IDENTITY);
    ck_ok(calm_pooling_read(ctx, dir, &config, &read));
    calm_pooling_step first = read->steps[0], last = read->steps[2];
    ck_ok(calm_pooling_load_step(ctx, &first));
    ck_assert(first.w && first.b && !read->steps[1].w);
    ck_assert_uint_eq(calm_pooling_step_bytes(&first), CALM_BYTES(float, 8) + CALM_BYTES(float, 2));
    /* Weights in memory are not read again, and a division has none. */
    const float *kept = first.w;
    ck_ok(calm_pooling_load_step(ctx, &first));
    ck_ok(calm_pooling_load_step(ctx, &last));
    ck_assert(first.w == kept && !last.w && calm_pooling_step_bytes(&last) == 0);
}
END_OF_TEST

/* The default prompt of a model, by name; a name without a text has no effect. */
TEST(prompts)
{
    static const char file[] = "config_sentence_transformers.json";
    static const struct {
        const char *text, *prompt;
    } good[] = {{"{\"prompts\": {\"query\": \"q: \"}, \"default_prompt_name\": null}", NULL},
                {"{\"prompts\": {\"query\": \"q: \", \"own\": \"o: \"}, \"default_prompt_name\": \"own\"}", "o: "},
                {"{\"prompts\": {\"own\": \"\"}, \"default_prompt_name\": \"own\"}", NULL},
                {"{\"prompts\": {\"own\": null}, \"default_prompt_name\": \"own\"}", NULL},
                {"{\"default_prompt_name\": \"document\"}", NULL},
                {"{}", NULL}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        begin("[" FIRST "]", "{}");
        put(file, good[i].text);
        run();
        const char *found = calm_pooling_prompt(&config);
        ck_assert_msg(good[i].prompt ? found && strcmp(found, good[i].prompt) == 0 : !found, "%zu: %s", i,
                      found ? found : "none");
    }
    begin("[" FIRST "]", "{\"include_prompt\": false}");
    put(file, good[0].text);
    run();
    ck_assert_ptr_null(calm_pooling_prompt(&config));
    put(file, good[1].text);
    ck_fails(calm_pooling_read(ctx, dir, &config, &read), CALM_EUNSUPPORTED, "with \"include_prompt\" false in");
    put(file, "{\"prompts\": {\"query\": \"q: \"}, \"default_prompt_name\": \"own\"}");
    ck_fails(calm_pooling_read(ctx, dir, &config, &read), CALM_EFORMAT,
             "\"default_prompt_name\": found \"own\", expected a key of \"prompts\"");
}
END_OF_TEST

TEST(without_modules)
{
    dir = test_directory();
    config = (calm_config){.hidden = HIDDEN};
    ck_assert(fabs(run()[2] - 3) < 1e-12);
    ck_assert_ptr_null(read);
    ck_assert_uint_eq(calm_pooling_load_bytes(&config), 0);
    /* A reranker's list has no module that pools. */
    put("modules.json", "[" MODULE("Transformer", "") "]");
    ck_assert(fabs(run()[2] - 3) < 1e-12);
    ck_assert_ptr_null(read);
}
END_OF_TEST

static void refuse(calm_status status, const char *message)
{
    ck_fails(calm_pooling_read(ctx, dir, &config, &read), status, message);
}

TEST(other_ways_are_refused)
{
    static const struct {
        const char *config, *message;
        calm_status status;
    } bad[] = {
        {"{\"pooling_mode_max_tokens\": true}", "1_Pooling/config.json: \"pooling_mode\": found \"max\", expected cls",
         CALM_EUNSUPPORTED},
        {"{\"pooling_mode_other_tokens\": true}", "\"pooling_mode_other_tokens\": this way of pooling is not known",
         CALM_EUNSUPPORTED},
        {"{\"pooling_mode_cls_token\": true, \"pooling_mode_mean_tokens\": true}",
         "\"pooling_mode_cls_token\" and \"pooling_mode_mean_tokens\": found both true, expected one",
         CALM_EUNSUPPORTED},
        {"{\"pooling_mode\": \"median\"}", "\"pooling_mode\": found \"median\", expected cls", CALM_EUNSUPPORTED},
        {"{\"pooling_mode\": [\"cls\", \"mean\"]}", "found 2 ways of pooling, expected one", CALM_EUNSUPPORTED},
        {"{\"pooling_mode\": []}", "found 0 ways of pooling, expected one", CALM_EUNSUPPORTED},
        {"{\"pooling_mode\": 3}", "found \"\"", CALM_EUNSUPPORTED},
        {"{\"word_embedding_dimension\": 5}", "\"word_embedding_dimension\": found 5, expected the model's 4",
         CALM_EFORMAT},
        {"[]", "1_Pooling/config.json", CALM_EFORMAT},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        begin("[" FIRST "]", bad[i].config);
        refuse(bad[i].status, bad[i].message);
    }
}
END_OF_TEST

TEST(other_modules_are_refused)
{
    begin("[" FIRST ", " MODULE("LSTM", "2_LSTM") "]", "{}");
    refuse(CALM_EUNSUPPORTED,
           "\"type\": found \"sentence_transformers.models.LSTM\", expected Transformer, then Pooling");
    begin("[" MODULE("Dense", "0_Dense") ", " FIRST "]", "{}");
    refuse(CALM_EUNSUPPORTED, "Dense\" before Pooling");
    begin("[" FIRST ", " MODULE("Pooling", "1_Pooling") "]", "{}");
    refuse(CALM_EUNSUPPORTED, "found \"sentence_transformers.models.Pooling\"");
    begin("[" FIRST ", " MODULE("Dense", "../2_Dense") "]", "{}");
    refuse(CALM_EFORMAT, "\"path\": found \"../2_Dense\", expected a folder of the model");
    begin("{}", "{}");
    refuse(CALM_EFORMAT, "modules.json");
    begin("[" FIRST ", 3]", "{}");
    refuse(CALM_EFORMAT, "a module");
}
END_OF_TEST

TEST(layers_that_do_not_fit)
{
    const char *modules = "[" FIRST ", " MODULE("Dense", "2_Dense") "]";
    begin(modules, "{}");
    refuse(CALM_ENOTFOUND, "2_Dense/config.json");
    put_dense("2_Dense", 2, 5, false, IDENTITY);
    refuse(CALM_EFORMAT, "2_Dense/config.json: \"in_features\": found 5, expected 4, the width before it");
    put_dense("2_Dense", 2, 4, false, "torch.nn.modules.activation.GELU");
    refuse(CALM_EUNSUPPORTED, "\"activation_function\": found \"torch.nn.modules.activation.GELU\", expected Identity");
    put_dense("2_Dense", 2, 4, false, "my.code.Tanh");
    refuse(CALM_EUNSUPPORTED, "\"activation_function\": found \"my.code.Tanh\"");
    put_dense("2_Dense", 2, 4, false, IDENTITY);
    put("2_Dense/config.json", "{\"in_features\": 4, \"out_features\": 3, \"bias\": false}");
    refuse(CALM_EFORMAT, "linear.weight");
    put("2_Dense/config.json", "{\"in_features\": 4, \"out_features\": 2}");
    refuse(CALM_ENOTFOUND, "linear.bias");
    put("2_Dense/config.json", "{\"in_features\": 4, \"out_features\": 2, \"bias\": false, \"use_residual\": true}");
    refuse(CALM_EUNSUPPORTED, "\"use_residual\": found true, expected false");
    put("2_Dense/config.json",
        "{\"in_features\": 4, \"out_features\": 2, \"bias\": false, \"module_input_name\": \"token_embeddings\"}");
    refuse(CALM_EUNSUPPORTED, "\"module_input_name\": found \"token_embeddings\", expected \"sentence_embedding\"");
    put("2_Dense/config.json", "{\"in_features\": 4, \"out_features\": 2, \"bias\": false}");
    ck_ok(calm_pooling_read(ctx, dir, &config, &read));
    ck_assert_int_eq(read->steps[0].function, CALM_DENSE_TANH);    /* the default */
    char *modules_of_many = "[" FIRST;
    for (int i = 0; i < 9; i++)
        modules_of_many = (char *)(uintptr_t)test_format("%s, " MODULE("Normalize", ""), modules_of_many);
    begin(test_format("%s]", modules_of_many), "{}");
    refuse(CALM_EUNSUPPORTED, "expected at most 8 modules after Pooling");
}
END_OF_TEST

int main(void)
{
    return run_tests("pooling", (const TTest *[]){ways_of_pooling, layers_behind_it, one_layer_alone,
                                                  prompts, without_modules,
                                                  other_ways_are_refused, other_modules_are_refused,
                                                  layers_that_do_not_fit, NULL});
}
