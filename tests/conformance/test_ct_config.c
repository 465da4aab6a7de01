/* The quantization entry of compressed-tensors in config.json: every linear is in exactly one group or ignored,
 * resolved as readers resolve names; and which plans the exporter refuses or warns about. */
#include "ptq/export/ct_config.h"

#include <stdio.h>

#include "ptq/text/regex.h"
#include "ptq/arch/kind.h"
#include "ptq/arch/arch.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_plan.h"
#include "tests/support/wrapped_model.h"
#include "tests/support/write_tensors.h"

extern const calm_exporter calm_export_compressed_tensors;

static const calm_export_options options = {.asymmetric = true};

/* ---- "quantization_config" as compressed-tensors resolves it ---- */

static bool hits(const calm_json *targets, const char *module)
{
    bool hit = false;
    for (size_t i = 0; i < calm_json_size(targets); i++) {
        const char *target = calm_json_string(calm_json_at(targets, i), "");
        calm_regex *regex;
        bool found;
        if (strncmp(target, "re:", 3) != 0) {
            ck_assert_str_ne(target, "Linear");
            hit |= strcmp(target, module) == 0;
            continue;
        }
        ck_ok(calm_regex_new(ctx, "target", target + 3, strlen(target + 3), &regex));
        ck_ok(calm_regex_matches_prefix(ctx, regex, module, &found));
        calm_regex_free(regex);
        hit |= found;
    }
    return hit;
}

/* Returns the number of groups that match a module; *group = the last of them. */
static size_t count_groups(const calm_json *entry, const char *module, const calm_json **group)
{
    const calm_json *groups = calm_json_get(entry, "config_groups"), *value;
    const char *key;
    void *iter = NULL;
    size_t n = 0;
    while (calm_json_next(groups, &iter, &key, &value))
        if (hits(calm_json_get(value, "targets"), module)) {
            *group = value;
            n++;
        }
    return n;
}

/* Checks that a module stays float: it is ignored, and no group matches it. */
static void check_float(const calm_json *entry, const char *module)
{
    const calm_json *group;
    ck_assert_msg(count_groups(entry, module, &group) == 0, "%s is float, but a target has it", module);
    ck_assert_msg(hits(calm_json_get(entry, "ignore"), module), "%s is float, but not ignored", module);
}

static void check_quantized(const calm_json *entry, const char *module, const calm_scheme *scheme)
{
    const calm_json *group = NULL;
    ck_assert_msg(count_groups(entry, module, &group) == 1, "%s is in %zu groups", module,
                  count_groups(entry, module, &group));
    ck_assert_msg(!hits(calm_json_get(entry, "ignore"), module), "%s is quantized and ignored", module);
    const calm_json *weights = calm_json_get(group, "weights"), *inputs = calm_json_get(group, "input_activations");
    ck_assert_int_eq(calm_json_int(calm_json_get(weights, "num_bits"), 0), scheme->bits);
    ck_assert_int_eq(calm_json_int(calm_json_get(weights, "group_size"), 0), (int64_t)scheme->group);
    ck_assert_int_eq(calm_json_int(calm_json_get(inputs, "num_bits"), 0), scheme->act_bits);
    ck_assert(calm_json_bool(calm_json_get(inputs, "symmetric"), true) == !scheme->act_asymmetric);
}

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* Every linear of the checkpoint is in exactly one group or ignored; no group matches another matrix. */
static void check_modules(const tiny_plan *p, const calm_json *entry)
{
    const calm_safetensors *set = calm_model_tensors(p->model);
    const calm_layout *layout = calm_model_layout(p->model);
    size_t n_linears = 0;
    for (size_t i = 0; i < calm_safetensors_count(set); i++) {
        const calm_tensor *tensor = calm_safetensors_at(set, i);
        if (tensor->n_dims != 2 || !ends_with(tensor->name, ".weight"))
            continue;
        const char *module = test_format("%.*s", (int)(strlen(tensor->name) - strlen(".weight")), tensor->name);
        const calm_plan_job *job = NULL;
        for (size_t j = 0; j < layout->n_jobs; j++)
            for (size_t l = layout->jobs[j].first; l < layout->jobs[j].first + layout->jobs[j].n; l++)
                if (strcmp(layout->linears[l].module, module) == 0)
                    job = &p->plan.jobs[j];
        n_linears += job != NULL;
        const calm_json *group;
        if (job && job->quantized)
            check_quantized(entry, module, &job->scheme);
        else if (ends_with(module, "embed_tokens") || ends_with(module, "embeddings") ||
                 ends_with(module, "embed_tokens_per_layer"))
            ck_assert_uint_eq(count_groups(entry, module, &group), 0);
        else
            check_float(entry, module);
    }
    ck_assert_uint_eq(n_linears, layout->n_linears);
}

/* Returns vLLM's name of a linear: "model.layers.0.mlp.experts.0.w1" for
 * "model.layers.0.block_sparse_moe.experts.0.w1"; NULL if vLLM renames no parent of it. */
static const char *engine_name(const calm_names *names, const char *module)
{
    const char *parent = names->parent ? test_format(".%s.", names->parent) : NULL;
    const char *at = parent ? strstr(module, parent) : NULL;
    return at ? test_format("%.*s.%s.%s", (int)(at - module), module, names->engine_parent, at + strlen(parent)) : NULL;
}

/* Checks linears under vLLM's name of their parent: with the scheme of the checkpoint's name, or float in families
 * for which vLLM does not rename the lists of the entry. */
static void check_engine_names(const tiny_plan *p, const calm_json *entry)
{
    const calm_layout *layout = calm_model_layout(p->model);
    const calm_names *names = calm_model_config(p->model)->arch->names;
    size_t n = 0;
    for (size_t j = 0; j < layout->n_jobs; j++)
        for (size_t l = layout->jobs[j].first; l < layout->jobs[j].first + layout->jobs[j].n; l++) {
            const char *name = engine_name(names, layout->linears[l].module);
            n += name != NULL;
            if (name && p->plan.jobs[j].quantized)
                check_quantized(entry, name, &p->plan.jobs[j].scheme);
            else if (name && names->parent_listed)
                check_float(entry, name);
        }
    ck_assert((n > 0) == (names->parent != NULL));
}

/* Checks names that are not in the file: the head, which readers have also if the file lacks it, and the fused
 * linears (q, k, v and gate, up) of engines. */
static void check_other_names(const tiny_plan *p, const calm_json *entry)
{
    const calm_layout *layout = calm_model_layout(p->model);
    const calm_config *config = calm_model_config(p->model);
    if (!config->arch->encoder)
        check_float(entry, "lm_head");
    else if (ends_with(calm_model_class(p->model), "ForMaskedLM"))
        check_float(entry, "cls.predictions.decoder");
    for (size_t j = 0; j < layout->n_jobs && !config->arch->encoder; j++) {
        const calm_job_ref *job = &layout->jobs[j];
        const char *first = layout->linears[job->first].module;
        /* A job of one matrix is a module with its own name: `up` alone, or gate and up fused in the checkpoint. */
        const bool fused = job->kind == CALM_JOB_QKV || (job->kind == CALM_JOB_GATE_UP && job->n > 1);
        /* Experts whose matrices have special names are known by those alone. */
        if (!fused || !p->plan.jobs[j].quantized || (job->expert >= 0 && config->arch->names->moe.words))
            continue;
        const char *name = test_format("%.*s.%s", (int)(strrchr(first, '.') - first), first,
                                       job->kind == CALM_JOB_QKV ? "qkv_proj" : "gate_up_proj");
        check_quantized(entry, name, &p->plan.jobs[j].scheme);
    }
}

static void check_families(const char *const *families)
{
    static const char *const schemes[] = {"w4a16_g32", "float", "w8a8", "w8a16", "float"};
    for (size_t f = 0; families[f]; f++)
        for (size_t n = 1; n <= 5; n += 2) {
            tiny_model spec = tiny_wide(families[f]);
            tiny_plan p;
            calm_json *entry;
            spec.tied = n != 3;
            spec.n_blocks = 12;    /* block numbers with one and two digits */
            tiny_plan_open(&p, tiny_model_write(&spec));
            tiny_plan_quantize_family(&p, schemes, n);
            const calm_export_input input = {.model = p.model, .plan = &p.plan, .options = &options};
            entry = calm_json_new_object();
            ck_ok(calm_ct_config(ctx, &input, entry));
            check_modules(&p, entry);
            check_other_names(&p, entry);
            check_engine_names(&p, entry);
            calm_json_free(entry);
            calm_model_close(p.model);
        }
}

TEST(every_linear_is_matched_once_or_ignored)
{
    check_families(tiny_families);
    check_families(tiny_encoders);
}
END_OF_TEST

static calm_json *entry_of(const calm_model *model, const char *scheme, const char *head)
{
    calm_outer_plan outer = {0};
    calm_json *entry = calm_json_new_object();
    tiny_plan p;
    tiny_plan_open(&p, calm_model_dir(model));
    tiny_plan_quantize_all(&p, &scheme, 1, TINY_GENERAL);
    if (head)
        ck_ok(calm_scheme_parse(ctx, head, &outer.scheme[CALM_OUTER_HEAD]));
    const calm_export_input input = {.model = p.model, .plan = &p.plan, .options = &options, .outer = &outer};
    ck_ok(calm_ct_config(ctx, &input, entry));
    calm_model_close(p.model);
    return entry;
}

/* Some readers have a prefix before the head of a wrapper and some have none, whatever name the file has. */
TEST(head_of_a_wrapper)
{
    static const char *const heads[] = {"lm_head", "language_model.lm_head"}, *const families[] = {"qwen3", "mistral"},
                      *const prefixes[] = {"model.language_model.", "language_model.model."},
                      *const classes[] = {"Qwen3VLForConditionalGeneration", "Mistral3ForConditionalGeneration"};
    for (int i = 0; i < 2; i++) {
        tiny_model spec = tiny_wide(families[i]);
        calm_model *inner, *outer;
        spec.tied = false;
        ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &inner));
        const char *config = test_format("{\"architectures\": [\"%s\"], \"vision_config\": {}, \"text_config\": %s}",
                                         classes[i], config_text(calm_model_dir(inner)));
        const char *dir = wrap_model(inner, "model.", prefixes[i], heads[i], NULL, 0, config);
        ck_ok(calm_model_open(ctx, dir, &outer));
        calm_json *quantized = entry_of(outer, "w4a16_g32", "w8a16"), *plain = entry_of(outer, "w4a16_g32", NULL);
        for (int j = 0; j < 2; j++) {
            const calm_json *group = NULL;
            ck_assert_uint_eq(count_groups(quantized, heads[j], &group), 1);
            ck_assert_int_eq(calm_json_int(calm_json_get(calm_json_get(group, "weights"), "num_bits"), 0), 8);
            ck_assert(!hits(calm_json_get(quantized, "ignore"), heads[j]));
            check_float(plain, heads[j]);
        }
        calm_json_free(quantized);
        calm_json_free(plain);
        calm_model_close(inner);
        calm_model_close(outer);
    }
}
END_OF_TEST

/* Returns the number of transforms that match a module. */
static size_t count_transforms(const calm_json *entry, const char *module)
{
    const calm_json *groups = calm_json_get(calm_json_get(entry, "transform_config"), "config_groups"), *value;
    const char *key;
    size_t n = 0;
    for (void *iter = NULL; calm_json_next(groups, &iter, &key, &value);)
        n += hits(calm_json_get(calm_json_at(calm_json_get(value, "apply"), 0), "targets"), module);
    return n;
}

/* Checks that a transform is for the linears of its job in the text model; of a wrapper for no vision module either. */
static void check_transforms(const char *dir, bool every)
{
    static const char *const scheme = "w4a16_g32";
    static const char *const others[] = {"lm_head", "visual.blocks.0.mlp.down_proj",
                                         "model.visual.blocks.1.mlp.up_proj",
                                         "vision_tower.vision_model.encoder.layers.0.self_attn.q_proj",
                                         "vision_tower.transformer.layers.0.self_attn.o_proj"};
    tiny_plan p;
    tiny_plan_open(&p, dir);
    tiny_plan_quantize_all(&p, &scheme, 1, TINY_GENERAL);
    ck_ok(calm_model_use_hadamard(ctx, p.model, every));
    const calm_export_input input = {.model = p.model, .plan = &p.plan, .options = &options};
    calm_json *entry = calm_json_new_object();
    ck_ok(calm_ct_config(ctx, &input, entry));
    const calm_layout *layout = calm_model_layout(p.model);
    for (size_t i = 0; i < layout->n_linears; i++) {
        const calm_linear_ref *linear = &layout->linears[i];
        const bool wanted = every || linear->role == CALM_ROLE_DOWN;
        ck_assert_msg(count_transforms(entry, linear->module) == wanted, "%s", linear->module);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others && calm_model_is_wrapped(p.model); i++)
        ck_assert_msg(count_transforms(entry, others[i]) == 0, "%s", others[i]);
    calm_json_free(entry);
    calm_model_close(p.model);
}

TEST(transforms_of_linears)
{
    static const char *const families[] = {"llama", "gemma3", "phi3", "starcoder2", "gemma4", "embeddinggemma"};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        for (int every = 0; every < 2; every++) {
            const tiny_model spec = tiny_wide(families[i]);
            check_transforms(tiny_model_write(&spec), every);
        }
    /* Qwen2.5-VL's vision part has modules "mlp.down_proj" too. */
    for (int every = 0; every < 2; every++) {
        const tiny_model spec = tiny_wide("qwen2");
        calm_model *inner;
        ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &inner));
        const char *config = test_format("{\"architectures\": [\"Qwen2_5_VLForConditionalGeneration\"], "
                                         "\"vision_config\": {}, \"text_config\": %s}",
                                         config_text(calm_model_dir(inner)));
        check_transforms(wrap_model(inner, "model.", "model.language_model.", "lm_head", NULL, 0, config), every);
        calm_model_close(inner);
    }
}
END_OF_TEST

/* The head of DistilBERT has no parent module. */
TEST(head_without_a_parent)
{
    static const float zeros[64 * 64];
    tiny_model spec = tiny_wide("distilbert");
    calm_model *inner, *outer;
    const calm_tensor more[] = {float_tensor("vocab_projector.weight", zeros, spec.vocab, spec.hidden, 0),
                                float_tensor("vocab_projector.bias", zeros, spec.vocab, 0, 0)};
    ck_assert_uint_le(spec.vocab * spec.hidden, sizeof zeros / sizeof *zeros);
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &inner));
    const char *config = config_text(calm_model_dir(inner)), *class = strstr(config, "DistilBertModel");
    config = test_format("%.*sDistilBertForMaskedLM%s", (int)(class - config), config,
                         class + strlen("DistilBertModel"));
    const char *dir = wrap_model(inner, "distilbert.", "distilbert.", "", more, 2, config);
    ck_ok(calm_model_open(ctx, dir, &outer));
    calm_json *entry = entry_of(outer, "w4a16_g32", NULL);
    check_float(entry, "vocab_projector");
    calm_json_free(entry);
    calm_model_close(inner);
    calm_model_close(outer);
}
END_OF_TEST

/* Engines read all experts of a block as one tensor, so their schemes must agree. */
TEST(experts_of_different_schemes)
{
    static const char *const changes[] = {"w8a16", "float"}, *const scheme = "w4a16_g32";
    for (size_t i = 0; i < 2; i++) {
        tiny_model spec = tiny_wide("qwen2_moe");
        tiny_plan p;
        tiny_plan_open(&p, tiny_model_write(&spec));
        tiny_plan_quantize_all(&p, &scheme, 1, TINY_GENERAL);
        const calm_export_input input = {.model = p.model, .plan = &p.plan, .options = &options};
        const size_t last = p.plan.n_jobs - 1;    /* experts.4.down of the last block */
        ck_ok(calm_export_compressed_tensors.check(ctx, &input));
        tiny_plan_quantize(&p, last, changes[i], TINY_UNSCALED);
        ck_fails(calm_export_compressed_tensors.check(ctx, &input), CALM_EUNSUPPORTED,
                 test_format("model.layers.1.experts.4.down is %s, but model.layers.1.experts.0.gate_up is w4a16_g32",
                             changes[i]));
        calm_model_close(p.model);
    }
}
END_OF_TEST

/* The group of the routed experts comes first, also where earlier blocks and shared experts are quantized:
 * transformers 5.23 takes the first group whose targets contain "experts". */
TEST(experts_come_first)
{
    static const char *const families[] = {"deepseek_v3", "glm4_moe", "ernie4_5_moe", "qwen3_moe"};
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        const tiny_model spec = tiny_wide(families[f]);
        calm_json *entry = calm_json_new_object();
        const calm_json *group;
        const char *name;
        void *iter = NULL;
        tiny_plan p;
        tiny_plan_open(&p, tiny_model_write(&spec));
        const calm_layout *layout = calm_model_layout(p.model);
        for (size_t j = 0; j < p.plan.n_jobs; j++)
            tiny_plan_quantize(&p, j, layout->jobs[j].traits->stays_float ? "float"
                                      : layout->jobs[j].expert >= 0       ? "w8a16" : "w8a8", TINY_UNSCALED);
        const calm_export_input input = {.model = p.model, .plan = &p.plan, .options = &options};
        ck_ok(calm_ct_config(ctx, &input, entry));
        ck_assert(calm_json_next(calm_json_get(entry, "config_groups"), &iter, &name, &group));
        ck_assert_str_eq(calm_json_string(calm_json_get(group, "format"), ""), "pack-quantized");
        check_modules(&p, entry);
        calm_json_free(entry);
        calm_model_close(p.model);
    }
}
END_OF_TEST

static void keep_lines(void *user, calm_log_level level, const char *line)
{
    char *said = user;
    (void)level;
    snprintf(said + strlen(said), 2000 - strlen(said), "%s\n", line);
}

/* Experts in a form that some readers lack are written with a warning; other linears in that form give none. */
TEST(warned_of_experts)
{
    static const struct {
        const char *family, *scheme;
        bool warned;
    } rows[] = {{"qwen3_moe", "w4a16_g32", false}, {"qwen3_moe", "w8a8", true}, {"qwen3_moe", "w4a16_g32_asym", true},
                {"qwen3", "w8a8", false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const tiny_model spec = tiny_wide(rows[i].family);
        char said[2000] = "";
        tiny_plan p;
        tiny_plan_open(&p, tiny_model_write(&spec));
        tiny_plan_quantize_all(&p, &rows[i].scheme, 1, TINY_GENERAL);
        const calm_export_input input = {.model = p.model, .plan = &p.plan, .options = &options};
        ctx->log = keep_lines, ctx->log_user = said;
        ck_ok(calm_export_compressed_tensors.check(ctx, &input));
        ctx->log = NULL;
        ck_assert_msg((strstr(said, "packed experts alone") != NULL) == rows[i].warned, "%s, %s: %s", rows[i].family,
                      rows[i].scheme, said);
        calm_model_close(p.model);
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("ct_config", (const TTest *[]){every_linear_is_matched_once_or_ignored, head_of_a_wrapper,
                                                    transforms_of_linears,
                                                    head_without_a_parent, experts_of_different_schemes,
                                                    experts_come_first,
                                                    warned_of_experts, NULL});
}
