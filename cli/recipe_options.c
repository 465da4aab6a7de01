/* Options become a recipe. */
#include "cli/recipe_options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/memory_plan.h"
#include "ptq/base/file.h"
#include "ptq/model/arch.h"

/* Competes by default: docs/method.md section 4. */
#define POOL_WEIGHTS "rtn,gptq,smoothquant,mkq,gptq-hls,mkq-full"
#define POOL_ACTIVATIONS "rtn,gptq,smoothquant,mkq,gptq-hls,mkq-full,smoothquant-gptq"
#define POOL_ACTIVATIONS_4 POOL_ACTIVATIONS ",actfit,smoothquant-actfit"

#define CONFIG_MAX ((size_t)16 * 1024 * 1024)

const char *calm_recipe_scheme_of_bits(long long bits)
{
    static const char *const by_bits[9] = {[2] = "w2a16_g64", [3] = "w3a16_g128", [4] = "w4a16_g128", [8] = "w8a16"};
    return bits >= 0 && bits <= 8 ? by_bits[bits] : NULL;
}

static calm_status resolve_schemes(calm_ctx *ctx, const calm_recipe_options *o, const char *schemes, calm_recipe *recipe)
{
    if (!schemes)
        schemes = o->scheme ? o->scheme : calm_recipe_scheme_of_bits(o->bits);
    if (!schemes)
        return calm_fail(ctx, CALM_EARG, "--bits %lld: expected 2, 3, 4 or 8 (see --scheme for other formats)",
                         o->bits);
    CALM_TRY(calm_recipe_schemes(ctx, schemes, recipe));
    bool acts = false;
    for (size_t i = 0; i < recipe->n_schemes; i++) {
        calm_scheme *scheme = &recipe->schemes[i];
        scheme->scale_dtype = o->scale_dtype == 1 ? CALM_F16 : scheme->scale_dtype;
        if (scheme->act_bits && o->act_rule == CALM_ACT_RULE_VLLM)    /* else as the scheme's name says */
            scheme->act_rule = CALM_ACT_RULE_VLLM;
        acts |= scheme->act_bits > 0;
    }
    if (o->act_rule == CALM_ACT_RULE_VLLM && !acts)
        return calm_fail(ctx, CALM_EARG, "--act-rule vllm is about quantized activations, which the scheme leaves float; "
                                         "try: --scheme w8a8");
    return CALM_OK;
}

static bool quantizes_activations(const calm_recipe *recipe)
{
    bool any = false;
    for (size_t i = 0; i < recipe->n_schemes; i++)
        any |= recipe->schemes[i].act_bits > 0;
    return any;
}

const char *calm_recipe_default_pool(const calm_recipe *recipe)
{
    bool any4 = false;
    for (size_t i = 0; i < recipe->n_schemes; i++)
        any4 |= recipe->schemes[i].act_bits == 4;
    return any4 ? POOL_ACTIVATIONS_4 : quantizes_activations(recipe) ? POOL_ACTIVATIONS : POOL_WEIGHTS;
}

/* Inputs of an encoder's linears lie between LayerNorms and GELUs, far from symmetric: there the range of activations that
 * the name leaves open is the asymmetric one (docs/method.md section 1). */
static calm_status resolve_range(calm_ctx *ctx, calm_recipe *recipe)
{
    char *path, *note, name[CALM_SCHEME_NAME_MAX], asked[CALM_SCHEME_NAME_MAX];
    calm_json *json;
    calm_config config;
    if (!quantizes_activations(recipe))
        return CALM_OK;
    CALM_TRY(calm_path_join(ctx, ctx->scratch, &path, recipe->model.dir, "config.json"));
    CALM_TRY(calm_json_read(ctx, path, CONFIG_MAX, &json));
    const calm_status status = calm_config_read(ctx, path, json, &config);
    calm_json_free(json);
    if (status != CALM_OK || !config.arch->encoder)
        return status;
    for (size_t i = 0; i < recipe->n_schemes; i++) {
        if (!recipe->schemes[i].act_bits || recipe->range_said[i])
            continue;
        calm_scheme_name(&recipe->schemes[i], asked);
        recipe->schemes[i].act_asymmetric = true;
        calm_scheme_name(&recipe->schemes[i], name);
        CALM_TRY(calm_strf(ctx, ctx->out, &note, "an encoder: --scheme %s stands for %s, activations with a zero point; "
                                                 "%s_symact is the one without", asked, name, asked));
        recipe->scheme_note = note;
    }
    return CALM_OK;
}

/* A text of the user, or a bundled one under a name that does not depend on where calm lies. */
static calm_status resolve_text(calm_ctx *ctx, const char *given, const char *bundled, const char **path,
                                const char **name)
{
    char *text;
    if (given) {
        *path = *name = given;
        return CALM_OK;
    }
    CALM_TRY(calm_strf(ctx, ctx->out, &text, "text/%s", bundled));
    CALM_TRY(calm_recipes_path(ctx, text, &text));
    *path = text;
    CALM_TRY(calm_strf(ctx, ctx->out, &text, CALM_BUNDLED "%s", bundled));
    *name = text;
    return CALM_OK;
}

calm_status calm_recipe_blocks(calm_ctx *ctx, const calm_recipe_options *o, calm_recipe *recipe)
{
    char *end;
    if (!o->blocks)
        return CALM_OK;
    recipe->first_block = recipe->last_block = strtoll(o->blocks, &end, 10);
    if (end != o->blocks && *end == '-')
        recipe->last_block = strtoll(end + 1, &end, 10);
    if (*end || end == o->blocks || o->blocks[0] == '-' || recipe->last_block < recipe->first_block ||
        recipe->last_block > 1 << 20)
        return calm_fail(ctx, CALM_EARG, "--blocks %s: expected the number of a block, or FIRST-LAST: --blocks 0-3", o->blocks);
    return CALM_OK;
}

calm_status calm_recipe_calibration(calm_ctx *ctx, const calm_recipe_options *o, calm_recipe *recipe)
{
    if (o->tokens && (o->calib || o->special))
        return calm_fail(ctx, CALM_EARG, "--tokens takes the place of --calib and --special");
    recipe->samples = o->samples;
    recipe->seqlen = o->seqlen;
    recipe->seed = o->seed;
    recipe->guard_windows = o->guard_samples;
    recipe->special = o->special;
    recipe->stream = o->stream;
    recipe->tokens = o->tokens != NULL;
    return resolve_text(ctx, o->tokens ? o->tokens : o->calib, "wikitext2-valid.txt", &recipe->calib_path,
                        &recipe->calib_name);
}

calm_status calm_recipe_resolve(calm_ctx *ctx, const calm_recipe_options *o, const char *schemes,
                                const char *algorithms, bool quiet, calm_recipe *out)
{
    size_t limit;
    if (o->memory)
        CALM_TRY(calm_memory_plan_parse(ctx, o->memory, &limit));    /* before the model is looked for */
    *out = (calm_recipe){.score_windows = o->score_samples,
                         .probe_windows = o->probe_samples,
                         .prefix = (calm_prefix)o->prefix,
                         .points = 1u << CALM_POINT_JOB,
                         .eval_windows = o->eval_samples,
                         .store = o->store,
                         .least_tokens = o->expert_tokens,
                         .memory = o->memory,
                         .last_block = -1};
    CALM_TRY(calm_recipe_blocks(ctx, o, out));
    CALM_TRY(resolve_schemes(ctx, o, schemes, out));
    CALM_TRY(calm_recipe_calibration(ctx, o, out));
    CALM_TRY(calm_resolve_model(ctx, o->model, quiet, &out->model));
    CALM_TRY(resolve_range(ctx, out));
    if (!algorithms)
        algorithms = o->algorithms ? o->algorithms : calm_recipe_default_pool(out);
    return calm_recipe_algorithms(ctx, algorithms, out);
}

calm_status calm_recipe_evaluate(calm_ctx *ctx, const calm_recipe_options *o, calm_recipe *recipe)
{
    return resolve_text(ctx, o->eval_text, "wikitext2-test.txt", &recipe->eval_path, &recipe->eval_name);
}

calm_status calm_recipe_select(calm_ctx *ctx, calm_unit unit, calm_rule rule, const char *metric, calm_recipe *recipe)
{
    calm_selection *selection = &recipe->selection;
    *selection = (calm_selection){.unit = unit, .rule = rule};
    if (!metric)
        metric = rule == CALM_RULE_ARGMAX ? "cka" : "cka_token";
    CALM_TRY(calm_score_need(ctx, unit, metric, &selection->point, &selection->score));
    recipe->linear |= selection->score == CALM_SCORE_CKA_LINEAR;
    recipe->points |= 1u << selection->point | 1u << calm_unit_point(unit);
    if (selection->score == CALM_SCORE_CKA_LINEAR && quantizes_activations(recipe))
        return calm_fail(ctx, CALM_EARG, "--metric cka_linear is of float inputs; this scheme quantizes them");
    if (selection->score == CALM_SCORE_CKA_LINEAR && !(calm_recipe_caps(recipe) & CALM_NEEDS_GRAM))
        return calm_fail(ctx, CALM_EARG, "--metric cka_linear needs the inputs' Gram matrix, which none of these "
                                         "algorithms collects; add gptq");
    if (selection->score == CALM_SCORE_PROBE_KL && recipe->prefix == CALM_PREFIX_QUANTIZED)
        return calm_fail(ctx, CALM_EARG, "--metric probe_kl measures units one by one in the float model; it has no "
                                         "--prefix quantized");
    return CALM_OK;
}
