/* Resolves learning from the result, and checks it against other options. */
#include "ptq/arch/arch.h"
#include "ptq/arch/kind.h"
#include "ptq/base/file.h"
#include "ptq/io/folder.h"
#include "ptq/model/model.h"
#include "ptq/recipe/preset.h"
#include "ptq/recipe/recipe_impl.h"

#define CONFIG_MAX ((size_t)16 * 1024 * 1024)

static calm_model_kind kind_of(const calm_config *config)
{
    calm_model_kind kind = {.encoder = config->arch->encoder, .mixture = calm_config_is_mixture(config),
                            .back = calm_kinds_have_back(config)};
    for (size_t b = 0; b < config->n_blocks; b++)
        kind.caches |= calm_kv_has(config, b);
    return kind;
}

calm_status calm_recipe_find_kind(calm_ctx *ctx, const calm_recipe *recipe, calm_model_kind *out)
{
    char *path;
    CALM_SCOPED_JSON(json);
    CALM_SCOPED_MODEL(model);
    calm_config config;
    calm_model_how how = recipe->how;
    how.glance = true;
    *out = (calm_model_kind){.caches = true, .back = true, .unknown = !recipe->model.dir};
    if (!recipe->model.dir)
        return CALM_OK;
    if (calm_is_file(recipe->model.dir)) {
        CALM_TRY(calm_model_open_floats(ctx, recipe->model.dir, &how, &model));
        *out = kind_of(calm_model_config(model));
        return CALM_OK;
    }
    CALM_TRY(calm_folder_require_model(ctx, recipe->model.dir));
    CALM_TRY(calm_path_join(ctx, ctx->scratch, &path, recipe->model.dir, "config.json"));
    CALM_TRY(calm_json_read(ctx, path, CONFIG_MAX, &json));
    CALM_TRY(calm_config_read_accepting(ctx, path, json, &recipe->how.accept_keys, &config));
    *out = kind_of(&config);
    return CALM_OK;
}

/* Without learned blocks, tuning needs large steps from codes that were fitted block by block.  Large steps would undo
 * learned blocks, but not in encoders, whose blocks are learned for another loss
 * (docs/evidence/learned_encoder.csv). */
#define TUNE_STEPS 128
#define TUNE_RATE 2e-3
#define TUNE_STEPS_AFTER 64
#define TUNE_RATE_AFTER 3e-4
#define TUNE_STEPS_ENCODER 256
#define TUNE_RATE_ENCODER 3e-3

/* Resolves the loss of tuning, of which only encoders have several. */
static calm_status resolve_loss(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe)
{
    calm_model_kind kind;
    recipe->learn_loss = (calm_learn_loss)spec->learn_loss;
    if (!recipe->learn_loss)
        return CALM_OK;
    if (recipe->learn != CALM_LEARN_KL && recipe->learn != CALM_LEARN_BOTH)
        return calm_fail(ctx, CALM_EARG, "`learn_loss` mini needs `learn` kl or both; found %s",
                         calm_recipe_learn_name(recipe->learn));
    CALM_TRY(calm_recipe_find_kind(ctx, recipe, &kind));
    return kind.encoder || kind.unknown ? CALM_OK
                                        : calm_fail(ctx, CALM_EARG, "`learn_loss` mini is only for encoders; `learn` "
                                                    "tunes %s, a decoder, by its predictions (output)",
                                                    recipe->model.name);
}

calm_status calm_recipe_resolve_learn(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe)
{
    char *text;
    recipe->learn = (calm_learn)spec->learn;
    if (!spec->learn && (spec->effort == CALM_EFFORT_HIGH || spec->preset == CALM_RECIPE_BEST))
        recipe->learn = CALM_LEARN_BOTH;
    CALM_TRY(resolve_loss(ctx, spec, recipe));
    if (!recipe->learn)
        return CALM_OK;
    if (recipe->n_budgets > 1)
        return calm_fail(ctx, CALM_EARG, "`learn` %s needs one result, but several values of `choice.budget` give "
                         "none", calm_recipe_learn_name(recipe->learn));
    for (size_t i = 0; i < recipe->n_schemes; i++) {
        const char *name = CALM_SCHEME_NAME(&recipe->schemes[i]);
        if (recipe->schemes[i].act_order)
            return calm_fail(ctx, CALM_EARG, "`learn` %s needs groups of neighbouring columns, which %s of "
                             "`schemes` does not have; leave out one of the two",
                             calm_recipe_learn_name(recipe->learn), name);
    }
    const bool blocks = recipe->learn != CALM_LEARN_KL;
    if (recipe->learn != CALM_LEARN_BLOCKS) {
        calm_model_kind kind;
        CALM_TRY(calm_recipe_find_kind(ctx, recipe, &kind));
        recipe->tune_steps = kind.encoder ? TUNE_STEPS_ENCODER : blocks ? TUNE_STEPS_AFTER : TUNE_STEPS;
        recipe->tune_rate = kind.encoder ? TUNE_RATE_ENCODER : blocks ? TUNE_RATE_AFTER : TUNE_RATE;
    }
    if (!blocks)
        return CALM_OK;
    recipe->learn_steps = spec->learn_steps;
    CALM_TRY(calm_strf(ctx, ctx->scratch, &text, "learn(steps=%lld)", spec->learn_steps));
    return calm_learner_parse(ctx, text, &recipe->learner);
}
