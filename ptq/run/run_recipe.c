/* The recipe of a run as its row in the store has it. */
#include <string.h>

#include "ptq/run/run_impl.h"

/* A member of `json` from its text; NULL: none. */
static calm_status add_member(calm_ctx *ctx, calm_json *json, const char *key, const char *text)
{
    calm_json *value;
    if (!text)
        return CALM_OK;
    CALM_TRY(calm_json_parse(ctx, key, text, strlen(text), &value));
    calm_json_set(json, key, value);
    return CALM_OK;
}

calm_status calm_run_recipe_text(calm_ctx *ctx, const calm_recipe *recipe, bool all, calm_text *out)
{
    CALM_SCOPED_JSON(json);
    json = calm_recipe_json(recipe);
    if (all) {
        CALM_TRY(add_member(ctx, json, "overrides", recipe->overrides));
        CALM_TRY(add_member(ctx, json, "document", recipe->document));
    }
    return calm_json_write(ctx, json, 0, out);
}

calm_status calm_run_keep_recipe(calm_ctx *ctx, const calm_run *p)
{
    CALM_SCOPED_TEXT(recipe);
    CALM_TRY(calm_run_recipe_text(ctx, p->in.recipe, true, &recipe));
    return calm_store_run_recipe(ctx, p->in.store, p->result.run_id, recipe.data);
}
