/* Tensors that a checkpoint holds and config.json switches off: a warning for each kind. */
#include "ptq/model/model_unread.h"

#include <stdio.h>
#include <string.h>

#include "ptq/base/file.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"
#include "tests/support/write_tensors.h"

#define SAID 4000

static void keep_line(void *user, calm_log_level level, const char *line)
{
    char *said = user;
    ck_assert_int_eq(level, CALM_LOG_WARNING);
    snprintf(said + strlen(said), SAID - strlen(said), "%s\n", line);
}

/* Returns the warnings of opening the directory. */
static const char *said_of(const char *dir, const calm_model_how *how)
{
    static char said[SAID];
    calm_model *model;
    said[0] = '\0';
    ctx->log = keep_line, ctx->log_user = said;
    ck_ok(calm_model_open_as(ctx, dir, how, &model));
    ctx->log = NULL;
    calm_model_close(model);
    return said;
}

static size_t n_lines(const char *text)
{
    size_t n = 0;
    for (; *text; text++)
        n += *text == '\n';
    return n;
}

static const calm_model_how plain;

/* Writes a model with biases, and then a config.json without them or with `switches`. */
static const char *switched_off(const char *family, const char *switches)
{
    tiny_model spec = tiny_of(family);
    spec.bias = true;
    const char *dir = tiny_model_write(&spec);
    spec.bias = false;
    spec.extra = switches;
    tiny_model_write_config(&spec, dir);
    return dir;
}

TEST(biases_that_are_off)
{
    const char *dir = switched_off("llama", "\"attention_bias\": false");
    const char *said = said_of(dir, &plain);
    /* q, k, v and o, gate, up and down: seven kinds in two blocks. */
    ck_assert_msg(n_lines(said) == 7, "%s", said);
    ck_assert_msg(strstr(said, test_format("tensor model.layers.0.self_attn.q_proj.bias (and 1 of other numbers) is in "
                                           "%s/model.safetensors and not used: config.json says \"attention_bias\" "
                                           "false\n", dir)), "%s", said);
    ck_assert_msg(strstr(said, test_format("tensor model.layers.0.mlp.down_proj.bias (and 1 of other numbers) is in "
                                           "%s/model.safetensors and not used: config.json does not say \"mlp_bias\""
                                           "\n", dir)), "%s", said);
    ck_assert_str_eq(said_of(dir, &(calm_model_how){.glance = true}), "");
}
END_OF_TEST

TEST(nothing_is_said_of_what_is_read)
{
    for (size_t f = 0; tiny_families[f]; f++) {
        tiny_model spec = tiny_of(tiny_families[f]);
        spec.bias = true;
        ck_assert_str_eq(said_of(tiny_model_write(&spec), &plain), "");
    }
}
END_OF_TEST

/* Writes a checkpoint of the same tensors and one more, of `n` values. */
static const char *with_tensor(const char *family, const char *name, float value, size_t n)
{
    const tiny_model spec = tiny_of(family);
    const char *from = tiny_model_write(&spec), *dir = test_directory();
    calm_safetensors *set;
    calm_tensor *tensors;
    float *values;
    ck_ok(calm_safetensors_open(ctx, from, &set));
    const size_t count = calm_safetensors_count(set);
    ck_ok(CALM_NEW(ctx, ctx->out, tensors, count + 1));
    ck_ok(CALM_NEW(ctx, ctx->out, values, n));
    for (size_t i = 0; i < n; i++)
        values[i] = i + 1 == n ? value : 0;
    for (size_t i = 0; i < count; i++)
        tensors[i] = *calm_safetensors_at(set, i);
    tensors[count] = float_tensor(name, values, n, 0, 0);
    write_tensors(dir, tensors, count + 1);
    tiny_model_write_config(&spec, dir);
    calm_safetensors_close(set);
    return dir;
}

TEST(one_more_tensor)
{
    static const struct {
        const char *family, *name;
        float value;
        const char *expected;    /* NULL: nothing */
    } cases[] = {
        {"llama", "model.layers.1.self_attn.q_norm.weight", 0, "the model (llama) has no such tensor"},
        {"llama", "model.layers.1.self_attn.sinks", 1, "the model (llama) has no such tensor"},
        {"llama", "model.norm.bias", 1, "the model (llama) has no such tensor"},
        {"llama", "lm_head.bias", 1, "the model (llama) has no such tensor"},
        {"cohere2", "model.layers.1.self_attn.q_norm.weight", 1, "config.json does not say \"use_qk_norm\""},
        {"qwen3", "model.layers.0.self_attn.o_proj.bias", 1, "config.json does not say \"attention_bias\""},
        /* Old tools for GPTQ wrote such tensors. */
        {"llama", "model.layers.0.self_attn.q_proj.bias", 0, NULL},
        {"llama", "model.layers.0.self_attn.k_scale", 1, NULL},
        {"llama", "model.layers.0.self_attn.rotary_emb.inv_freq", 1, NULL},
        {"llama", "model.layers.2.self_attn.q_proj.bias", 1, NULL},
        {"llama", "visual.blocks.0.bias", 1, NULL},
        {"llama", "mtp.norm.weight", 1, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *said = said_of(with_tensor(cases[i].family, cases[i].name, cases[i].value, 8), &plain);
        if (!cases[i].expected)
            ck_assert_msg(!*said, "%s: %s", cases[i].name, said);
        else
            ck_assert_msg(n_lines(said) == 1 && strstr(said, cases[i].name) && strstr(said, cases[i].expected),
                          "%s: %s", cases[i].name, said);
    }
}
END_OF_TEST

/* compressed-tensors also stores the Hadamard matrix of an input, which config.json determines; without an entry for
 * this input, it is one tensor more. */
TEST(matrices_of_transforms)
{
    static const char matrix[] = "model.layers.0.mlp.down_proj.R4_input.weight";
    for (int i = 0; i < 2; i++) {
        const char *dir = with_tensor("llama", matrix, 1, 64);
        tiny_model spec = tiny_of("llama");
        spec.extra = test_format(
            "\"quantization_config\": {\"quant_method\": \"compressed-tensors\", \"quantization_status\": "
            "\"compressed\", \"format\": \"pack-quantized\", \"config_groups\": {\"g\": {\"targets\": [\"none\"], "
            "\"weights\": {\"num_bits\": 4}}}, \"transform_config\": {\"config_groups\": {\"R4\": {\"type\": "
            "\"hadamard\", \"head_dim\": 8, \"apply\": [{\"location\": \"input\", \"targets\": [\"re:.*%s$\"]}]}}}}",
            i ? "up_projection" : "down_proj");
        tiny_model_write_config(&spec, dir);
        const char *said = said_of(dir, &plain);
        ck_assert_msg(i ? strstr(said, matrix) != NULL : !*said, "%s", said);
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("model_unread", (const TTest *[]){biases_that_are_off, nothing_is_said_of_what_is_read,
                                                       one_more_tensor, matrices_of_transforms, NULL});
}
