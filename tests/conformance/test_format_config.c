/* config.json of GPTQ, AWQ and MLX: the name of every linear, in the checkpoint and in engines that fuse linears,
 * resolves to its scheme by the readers' rules, and every other module stays float. */
#include <stdio.h>

#include "ptq/export/export.h"
#include "ptq/export/safetensors_export.h"
#include "ptq/text/regex.h"
#include "ptq/arch/arch.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_plan.h"
#include "tests/support/wrapped_model.h"

/* A module's scheme as a reader resolves it; 0 bits: float. */
typedef struct verdict {
    int64_t bits, group;
    bool symmetric;
} verdict;

typedef verdict resolve_fn(const calm_json *config, const char *module);

/* The compiled patterns of the current configuration, in its order. */
static calm_regex *patterns[256];

static void forget_patterns(void)
{
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns && patterns[i]; i++) {
        calm_regex_free(patterns[i]);
        patterns[i] = NULL;
    }
}

/* The rule of GPTQModel's dynamic_get and vLLM's get_dynamic_override: the first key that matches from the start. */
static verdict resolve_gptq(const calm_json *config, const char *module)
{
    const calm_json *entry = calm_json_get(config, "quantization_config"), *values;
    const char *key;
    verdict out = {calm_json_int(calm_json_get(entry, "bits"), 0), calm_json_int(calm_json_get(entry, "group_size"), 0),
                   calm_json_bool(calm_json_get(entry, "sym"), false)};
    if (strcmp(module, "lm_head") == 0)
        return (verdict){0};    /* "lm_head": false */
    size_t i = 0;
    for (void *iter = NULL; calm_json_next(calm_json_get(entry, "dynamic"), &iter, &key, &values); i++) {
        bool hit;
        ck_assert_uint_lt(i, sizeof patterns / sizeof *patterns);
        ck_assert(key[1] == ':' && (key[0] == '+' || key[0] == '-'));
        if (!patterns[i])
            ck_ok(calm_regex_new(ctx, "dynamic", key + 2, strlen(key + 2), &patterns[i]));
        ck_ok(calm_regex_matches_prefix(ctx, patterns[i], module, &hit));
        if (!hit)
            continue;
        if (key[0] == '-')
            return (verdict){0};
        return (verdict){calm_json_int(calm_json_get(values, "bits"), 0),
                         calm_json_int(calm_json_get(values, "group_size"), 0),
                         calm_json_bool(calm_json_get(values, "sym"), false)};
    }
    return out;
}

/* The rule of AutoAWQ, transformers and SGLang: an entry that is part of the module's name. */
static verdict resolve_awq(const calm_json *config, const char *module)
{
    const calm_json *entry = calm_json_get(config, "quantization_config"),
                    *floats = calm_json_get(entry, "modules_to_not_convert");
    for (size_t i = 0; i < calm_json_size(floats); i++)
        if (strstr(module, calm_json_string(calm_json_at(floats, i), "?")))
            return (verdict){0};
    return (verdict){calm_json_int(calm_json_get(entry, "bits"), 0),
                     calm_json_int(calm_json_get(entry, "group_size"), 0), true};
}

/* The rule of mlx-lm's class_predicate: a module has the values of its own entry or else the common ones.  The
 * experts of a block are the module switch_mlp. */
static verdict resolve_mlx(const calm_json *config, const char *module)
{
    const char *experts = strstr(module, ".experts.");
    if (experts)
        module = test_format("%.*s.switch_mlp%s", (int)(experts - module), module,
                             strchr(experts + strlen(".experts."), '.'));
    const calm_json *entry = calm_json_get(config, "quantization"), *own = calm_json_get(entry, module);
    if (own && calm_json_typeof(own) != CALM_JSON_OBJECT)
        return (verdict){0};
    own = own ? own : entry;
    return (verdict){calm_json_int(calm_json_get(own, "bits"), 0), calm_json_int(calm_json_get(own, "group_size"), 0),
                     true};
}

static void check_module(resolve_fn *resolve, const calm_json *config, const char *module, const calm_plan_job *job,
                         bool channels)
{
    const verdict found = resolve(config, module);
    const calm_scheme *scheme = job && job->quantized ? &job->scheme : NULL;
    ck_assert_msg(found.bits == (scheme ? scheme->bits : 0), "%s: %d bits, expected %d", module, (int)found.bits,
                  scheme ? scheme->bits : 0);
    if (!scheme)
        return;
    if (scheme->group || channels)
        ck_assert_msg(found.group == (scheme->group ? (int64_t)scheme->group : -1), "%s: groups of %d", module,
                      (int)found.group);
    else
        ck_assert(found.group == 128 || found.group == 64 || found.group == 32);
    ck_assert_msg(resolve != resolve_gptq || found.symmetric == scheme->symmetric, "%s: sym", module);
}

/* Returns "a.b.qkv_proj" for "a.b.q_proj". */
static const char *fused_name(const char *module, const char *word)
{
    return test_format("%.*s.%s", (int)(strrchr(module, '.') - module), module, word);
}

static void check_all(resolve_fn *resolve, const calm_json *config, const tiny_plan *p)
{
    const calm_layout *layout = calm_model_layout(p->model);
    const calm_safetensors *set = calm_model_tensors(p->model);
    const bool channels = resolve != resolve_mlx, engine = channels && !calm_model_config(p->model)->arch->encoder;
    for (size_t j = 0; j < layout->n_jobs; j++) {
        const calm_job_ref *job = &layout->jobs[j];
        for (size_t i = job->first; i < job->first + job->n; i++)
            check_module(resolve, config, layout->linears[i].module, &p->plan.jobs[j], channels);
        if (engine && job->n > 1 && job->expert == CALM_NO_EXPERT && job->kind == CALM_JOB_QKV)
            check_module(resolve, config, fused_name(layout->linears[job->first].module, "qkv_proj"), &p->plan.jobs[j],
                         channels);
        if (engine && job->n > 1 && job->expert == CALM_NO_EXPERT && job->kind == CALM_JOB_GATE_UP)
            check_module(resolve, config, fused_name(layout->linears[job->first].module, "gate_up_proj"),
                         &p->plan.jobs[j], channels);
    }
    for (size_t i = 0; i < calm_safetensors_count(set); i++) {    /* routers, heads, and MLX's embeddings */
        const calm_tensor *tensor = calm_safetensors_at(set, i);
        const size_t n = strlen(tensor->name);
        bool linear = tensor->n_dims != 2 || n < 7 || strcmp(tensor->name + n - 7, ".weight") != 0 ||
                      (channels && strstr(tensor->name, "embed"));
        const char *module = test_format("%.*s", (int)n - 7, tensor->name);
        for (size_t l = 0; l < layout->n_linears && !linear; l++)
            linear = strcmp(layout->linears[l].module, module) == 0;
        if (!linear)
            check_module(resolve, config, module, NULL, channels);
    }
    if (!calm_model_config(p->model)->arch->encoder)
        check_module(resolve, config, "lm_head", NULL, channels);
}

static void check_format(const char *format, resolve_fn *resolve, const char *const *schemes, size_t n)
{
    for (size_t f = 0; tiny_families[f]; f++) {
        tiny_model spec = tiny_wide(tiny_families[f]);
        const calm_exporter *exporter;
        const char *dir = test_directory();
        tiny_plan p;
        calm_json *config;
        spec.n_blocks = 12;    /* block numbers with one and two digits */
        spec.tied = f % 2;
        tiny_plan_open(&p, tiny_model_write(&spec));
        tiny_plan_quantize_family(&p, schemes, n);
        const calm_export_input input = {.model = p.model, .plan = &p.plan};
        ck_ok(calm_exporter_find(ctx, format, &exporter));
        /* gpt_oss has biases of experts, which MLX lacks. */
        if (strcmp(format, "mlx") == 0 && strcmp(tiny_families[f], "gpt_oss") == 0) {
            ck_fails(exporter->check(ctx, &input), CALM_EUNSUPPORTED, "experts with biases");
            calm_model_close(p.model);
            continue;
        }
        ck_ok(exporter->check(ctx, &input));
        ck_ok(calm_exporter_write(ctx, exporter, &input, dir));
        ck_ok(calm_json_read(ctx, test_format("%s/config.json", dir), 1 << 24, &config));
        check_all(resolve, config, &p);
        forget_patterns();
        calm_json_free(config);
        calm_model_close(p.model);
    }
}

TEST(gptq)
{
    static const char *const one[] = {"w4a16_g32"}, *const many[] = {"w4a16_g32", "float", "w8a16", "w3a16_g32_asym",
                                                                     "float"};
    check_format("gptq", resolve_gptq, one, 1);
    check_format("gptq", resolve_gptq, many, 5);
}
END_OF_TEST

/* A quantized head of a wrapper, under every name that readers have for it. */
TEST(head_of_a_wrapper)
{
    tiny_model spec = tiny_wide("mistral");
    const char *const scheme = "w4a16_g32";
    const calm_exporter *exporter;
    calm_outer_plan outer = {0};
    calm_model *inner;
    tiny_plan p;
    spec.tied = false;
    spec.vocab = 64;    /* rows of the head fill words */
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &inner));
    tiny_plan_open(&p, wrap_model(inner, "model.", "language_model.model.", "language_model.lm_head", NULL, 0,
                                  test_format("{\"architectures\": [\"Mistral3ForConditionalGeneration\"], "
                                              "\"vision_config\": {}, \"text_config\": %s}",
                                              config_text(calm_model_dir(inner)))));
    tiny_plan_quantize_all(&p, &scheme, 1, TINY_UNSCALED);
    ck_ok(calm_scheme_parse(ctx, "w8a16_g32", &outer.scheme[CALM_OUTER_HEAD]));
    const calm_export_input input = {.model = p.model, .plan = &p.plan, .outer = &outer};
    ck_ok(calm_exporter_find(ctx, "gptq", &exporter));
    calm_json *entry = calm_json_new_object(), *config = CALM_OBJECT(CALM_KV("quantization_config", entry));
    ck_ok(exporter->form->entry(ctx, &input, entry));
    ck_assert(calm_json_bool(calm_json_get(entry, "lm_head"), false));
    ck_assert_int_eq(resolve_gptq(config, "language_model.lm_head").bits, 8);
    ck_assert_ptr_nonnull(calm_json_get(calm_json_get(entry, "dynamic"), "+:(language_model\\.)?lm_head$"));
    forget_patterns();
    calm_json_free(config);
    calm_model_close(inner);
    calm_model_close(p.model);
}
END_OF_TEST

TEST(awq)
{
    static const char *const one[] = {"w4a16"}, *const many[] = {"w4a16_g32", "float", "w4a16_g32_asym"};
    check_format("awq", resolve_awq, one, 1);
    check_format("awq", resolve_awq, many, 3);
}
END_OF_TEST

TEST(mlx)
{
    static const char *const one[] = {"w4a16_g32"}, *const many[] = {"w4a16_g32", "float", "w8a16", "w3a16_g32_asym",
                                                                     "float"};
    check_format("mlx", resolve_mlx, one, 1);
    check_format("mlx", resolve_mlx, many, 5);
}
END_OF_TEST

/* The entry has the members that readers need, and quantize_config.json repeats it. */
TEST(members)
{
    static const struct {
        const char *format, *scheme, *key, *member, *text;
    } rows[] = {
        {"gptq", "w4a16_g32", "quantization_config", "checkpoint_format", "\"gptq\""},
        {"gptq", "w4a16_g32", "quantization_config", "dynamic", NULL},
        {"gptq", "w4a16_g32", "quantization_config", "desc_act", "false"},
        {"gptq", "w4a16_g32", "quantization_config", "lm_head", "false"},
        {"gptq", "w4a16_g32", "quantization_config", "pack_dtype", "\"int32\""},
        {"gptq", "w4a16_g32", "quantization_config", "meta", "{\"quantizer\":[\"calm:" CALM_VERSION "\"]}"},
        {"gptq", "w4a16_g32_asym", "quantization_config", "checkpoint_format", "\"gptq_v2\""},
        {"gptq", "w4a16_g32_asym", "quantization_config", "sym", "false"},
        {"gptq", "w8a16", "quantization_config", "group_size", "-1"},
        {"awq", "w4a16_g32", "quantization_config", "version", "\"gemm\""},
        {"awq", "w4a16_g32", "quantization_config", "zero_point", "true"},
        {"awq", "w4a16_g32", "quantization_config", "modules_to_not_convert", "[\"lm_head\"]"},
        {"awq", "w4a16", "quantization_config", "group_size", "-1"},
        {"mlx", "w4a16_g32", "quantization", "mode", "\"affine\""},
        {"mlx", "w4a16_g32", "quantization_config", "model.embed_tokens", "false"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const tiny_model spec = tiny_wide("qwen3");
        const calm_exporter *exporter;
        const char *dir = test_directory();
        tiny_plan p;
        calm_json *config;
        calm_text text;
        tiny_plan_open(&p, tiny_model_write(&spec));
        tiny_plan_quantize_all(&p, &rows[i].scheme, 1, TINY_UNSCALED);
        const calm_export_input input = {.model = p.model, .plan = &p.plan};
        ck_ok(calm_exporter_find(ctx, rows[i].format, &exporter));
        ck_ok(calm_exporter_write(ctx, exporter, &input, dir));
        ck_ok(calm_json_read(ctx, test_format("%s/config.json", dir), 1 << 20, &config));
        const calm_json *value = calm_json_get(calm_json_get(config, rows[i].key), rows[i].member);
        calm_text_init(&text);
        if (rows[i].text) {
            ck_assert_msg(value != NULL, "%s: no %s", rows[i].format, rows[i].member);
            ck_ok(calm_json_write(ctx, value, 0, &text));
            ck_assert_str_eq(text.data, rows[i].text);
        } else {
            ck_assert_msg(value == NULL, "%s: %s", rows[i].format, rows[i].member);
        }
        calm_text_clear(&text);
        calm_json_free(config);
        calm_model_close(p.model);
    }
}
END_OF_TEST

TEST(quantize_config_is_the_entry)
{
    static const char *const schemes[] = {"w4a16_g32", "w8a16", "float"};
    const tiny_model spec = tiny_wide("qwen3");
    const calm_exporter *exporter;
    const char *dir = test_directory();
    tiny_plan p;
    calm_json *config, *file;
    calm_text a, b;
    tiny_plan_open(&p, tiny_model_write(&spec));
    tiny_plan_quantize_all(&p, schemes, 3, TINY_UNSCALED);
    const calm_export_input input = {.model = p.model, .plan = &p.plan};
    ck_ok(calm_exporter_find(ctx, "gptq", &exporter));
    ck_ok(calm_exporter_write(ctx, exporter, &input, dir));
    ck_ok(calm_json_read(ctx, test_format("%s/config.json", dir), 1 << 20, &config));
    ck_ok(calm_json_read(ctx, test_format("%s/quantize_config.json", dir), 1 << 20, &file));
    calm_text_init(&a);
    calm_text_init(&b);
    ck_ok(calm_json_write(ctx, calm_json_get(config, "quantization_config"), 0, &a));
    ck_ok(calm_json_write(ctx, file, 0, &b));
    ck_assert_str_eq(a.data, b.data);
    calm_text_clear(&a);
    calm_text_clear(&b);
    calm_json_free(config);
    calm_json_free(file);
    calm_model_close(p.model);
}
END_OF_TEST

int main(void)
{
    return run_tests("format_config", (const TTest *[]){gptq, head_of_a_wrapper, awq, mlx, members,
                                                        quantize_config_is_the_entry, NULL});
}
