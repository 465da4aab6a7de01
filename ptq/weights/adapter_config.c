/* adapter_config.json.  Reference: peft's LoraConfig and tuners/lora/layer.py, releases up to 0.19. */
#include "ptq/weights/adapter_config.h"

#include <math.h>
#include <string.h>

#include "ptq/arch/arch.h"
#include "ptq/base/file.h"
#include "ptq/base/scope.h"
#include "ptq/base/text.h"
#include "ptq/text/regex.h"
#include "ptq/weights/adapter.h"

/* Bounds for the untrusted file and its numbers. */
#define CONFIG_MAX ((size_t)16 * 1024 * 1024)
#define RANK_MAX ((int64_t)1 << 20)

/* Keys that are read here, or that only concern training and the choice of modules, which the tensors show.  No family
 * here stores linears transposed (fan_in_fan_out), and PEFT corrects that key. */
static const char known[] =
    "peft_type r lora_alpha use_rslora rank_pattern alpha_pattern init_lora_weights base_model_name_or_path lora_bias "
    "fan_in_fan_out bias target_modules modules_to_save task_type inference_mode auto_mapping revision lora_dropout "
    "layers_to_transform layers_pattern exclude_modules megatron_config megatron_core eva_config peft_version "
    "runtime_config qalora_group_size ensure_weight_tying loftq_config corda_config";

/* Settings of other methods, and the methods' names. */
static const struct {
    const char *key, *method;
} others[] = {{"use_dora", "DoRA"}, {"use_qalora", "QALoRA"}, {"use_bdlora", "BD-LoRA"},
              {"layer_replication", "replicated layers"}, {"target_parameters", "LoRA of parameters"},
              {"trainable_token_indices", "trainable tokens"}, {"alora_invocation_tokens", "activated LoRA"},
              {"arrow_config", "Arrow"}, {"lora_parameters", "an adapter of mlx-lm (mlx_lm.fuse merges it)"}};

/* Is it a value at which a setting does nothing? */
static bool is_off(const calm_json *value)
{
    const calm_json_type type = calm_json_typeof(value);
    return type == CALM_JSON_NULL || (type == CALM_JSON_BOOL && !calm_json_bool(value, true)) ||
           ((type == CALM_JSON_ARRAY || type == CALM_JSON_OBJECT) && calm_json_size(value) == 0);
}

/* Fails for another method than plain LoRA. */
static calm_status refuse(calm_ctx *ctx, const calm_adapter_config *config, const char *method)
{
    return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: %s: calm only merges plain LoRA; merge the adapter with the library "
                     "that made it (peft: merge_and_unload) and give the merged model", config->path, method);
}

/* Checks a setting that is not off: it is read, harmless, of another method, or accepted. */
static calm_status check_key(calm_ctx *ctx, const calm_adapter_config *config, const char *key,
                             const calm_words *accepted)
{
    const bool taken = calm_text_listed(known, ' ', key) || calm_words_have(accepted, key);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(others[i].key, key) == 0)
            return refuse(ctx, config, others[i].method);
    return taken ? CALM_OK
                 : calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"%s\" is not a setting that calm knows; if it changes "
                             "nothing in what is merged: `accept_keys` %s", config->path, key, key);
}

/* Refuses initialisations that also change the base: the adapter alone then does not hold the difference. */
static calm_status check_start(calm_ctx *ctx, const calm_adapter_config *config)
{
    const char *start = calm_json_string(calm_json_get(config->json, "init_lora_weights"), "true");
    char *method;
    if (calm_text_listed("true gaussian eva orthogonal", ' ', start))
        return CALM_OK;
    CALM_TRY(calm_strf(ctx, ctx->scratch, &method, "\"init_lora_weights\": \"%.40s\" begins from other weights than "
                       "the base's", start));
    return refuse(ctx, config, method);
}

/* Checks the kind first: otherwise settings of other kinds would be called unknown. */
static calm_status check(calm_ctx *ctx, calm_adapter_config *config, const calm_words *accepted)
{
    const calm_json *root = config->json, *value;
    const char *type = calm_json_string(calm_json_get(root, "peft_type"), NULL), *key;
    CALM_TRY(calm_json_expect(ctx, root, CALM_JSON_OBJECT, "%s", config->path));
    /* Adapters of mlx-lm have no peft_type; the message for this key names their tool. */
    for (void *iter = NULL; !type && calm_json_next(root, &iter, &key, &value);)
        if (strcmp(key, "lora_parameters") == 0)
            CALM_TRY(check_key(ctx, config, key, NULL));
    if (!type || strcmp(type, "LORA") != 0) {
        char *method;
        CALM_TRY(calm_strf(ctx, ctx->scratch, &method, "\"peft_type\": %.40s", type ? type : "none"));
        return refuse(ctx, config, method);
    }
    for (void *iter = NULL; calm_json_next(root, &iter, &key, &value);)
        if (!is_off(value))
            CALM_TRY(check_key(ctx, config, key, accepted));
    CALM_TRY(check_start(ctx, config));
    CALM_TRY(calm_json_need_int(ctx, config->path, root, "r", NULL, 1, RANK_MAX, &config->rank));
    CALM_TRY(calm_json_need_number(ctx, config->path, root, "lora_alpha", &(double){8}, -1e9, 1e9, &config->alpha));
    return calm_json_need_bool(ctx, config->path, root, "use_rslora", &(bool){false}, &config->rank_root);
}

calm_status calm_adapter_config_read(calm_ctx *ctx, const char *dir, const calm_words *accepted,
                                     calm_adapter_config *out)
{
    char *path;
    *out = (calm_adapter_config){0};
    CALM_TRY(calm_path_join(ctx, ctx->out, &path, dir, CALM_ADAPTER_CONFIG));
    out->path = path;
    if (calm_is_file(dir))
        return calm_fail(ctx, CALM_EARG, "%s: a file; expected the directory of a LoRA adapter", dir);
    if (!calm_is_directory(dir))
        return calm_fail(ctx, CALM_ENOTFOUND, "%s: no such directory; expected that of a LoRA adapter, with "
                                              CALM_ADAPTER_CONFIG, dir);
    if (!calm_path_exists(path))
        return calm_fail(ctx, CALM_ENOTFOUND, "%s: no " CALM_ADAPTER_CONFIG " here; expected the directory of a LoRA "
                                              "adapter", dir);
    CALM_TRY(calm_json_read(ctx, path, CONFIG_MAX, &out->json));
    return check(ctx, out, accepted);
}

void calm_adapter_config_close(calm_adapter_config *config)
{
    calm_json_free(config->json);
    config->json = NULL;
}

/* ---- patterns ---- */

/* Does the key match the module's name, or the end of it after a dot, like PEFT's get_pattern_key? */
static calm_status matches(calm_ctx *ctx, const char *path, const char *key, const char *module, bool *found)
{
    CALM_SCOPED_REGEX(regex);
    char *pattern;
    /* The steps are limited, since the file is untrusted. */
    CALM_TRY(calm_strf(ctx, ctx->scratch, &pattern, "^(.*\\.)?(%s)$", key));
    CALM_TRY(calm_regex_new(ctx, path, pattern, strlen(pattern), &regex));
    calm_regex_limit(regex, CALM_NAME_STEPS);
    return calm_regex_matches_prefix(ctx, regex, module, found);
}

/* Finds the number of the first pattern that matches; *out does not change where none does. */
static calm_status find_pattern(calm_ctx *ctx, const calm_adapter_config *config, const char *member,
                                const char *module, double *out)
{
    const calm_json *value;
    const char *key;
    for (void *iter = NULL; calm_json_next(calm_json_get(config->json, member), &iter, &key, &value);) {
        bool found = false;
        CALM_TRY(matches(ctx, config->path, key, module, &found));
        const double number = calm_json_number(value, NAN);
        /* The negated comparison also refuses NaN, which a value of another type becomes. */
        if (found && !(fabs(number) <= 1e9))
            return calm_fail(ctx, CALM_EFORMAT, "%s: \"%s\": \"%.200s\": expected a number", config->path, member, key);
        if (found) {
            *out = number;
            return CALM_OK;
        }
    }
    return CALM_OK;
}

calm_status calm_adapter_config_module(calm_ctx *ctx, const calm_adapter_config *config, const char *module,
                                       size_t *rank, float *scale)
{
    /* The scale divides by the module's rank, which may differ from the adapter's. */
    double r = (double)config->rank, alpha = config->alpha;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(find_pattern(ctx, config, "rank_pattern", module, &r));
    CALM_TRY(find_pattern(ctx, config, "alpha_pattern", module, &alpha));
    if (!(r >= 1 && r <= (double)RANK_MAX && floor(r) == r))
        return calm_fail(ctx, CALM_EFORMAT, "%s: rank %g of %.200s: expected a whole number from 1", config->path, r,
                         module);
    *rank = (size_t)r;
    /* Rank-stabilised LoRA (use_rslora) divides by the root of the rank. */
    *scale = (float)(alpha / (config->rank_root ? sqrt(r) : r));
    return CALM_OK;
}
