/* Recipes: lists of algorithms, and the JSON form. */
#include "cli/recipe.h"

#include <string.h>

/* Length of the first item of a list whose separators within parentheses do not count. */
static size_t item_length(const char *list)
{
    size_t i = 0;
    int depth = 0;
    for (; list[i] && !(list[i] == ',' && depth == 0); i++)
        depth += (list[i] == '(') - (list[i] == ')');
    return i;
}

calm_status calm_recipe_algorithms(calm_ctx *ctx, const char *list, calm_recipe *recipe)
{
    recipe->n_algorithms = 0;
    CALM_TRY(CALM_NEW(ctx, ctx->out, recipe->algorithms, strlen(list) + 1));
    for (const char *at = list; *at;) {
        const size_t length = item_length(at);
        char *text;
        calm_algorithm **slot = &recipe->algorithms[recipe->n_algorithms];
        CALM_TRY(calm_strf(ctx, ctx->out, &text, "%.*s", (int)length, at));
        CALM_TRY(calm_algorithm_parse(ctx, text, slot));
        for (size_t i = 0; i < recipe->n_algorithms; i++)
            if (strcmp(calm_algorithm_canonical(recipe->algorithms[i]), calm_algorithm_canonical(*slot)) == 0)
                return calm_fail(ctx, CALM_EARG, "--algorithms: \"%s\" and \"%s\" are the same chain",
                                 calm_algorithm_name(recipe->algorithms[i]), text);
        recipe->n_algorithms++;
        at += length + (at[length] == ',');
    }
    if (recipe->n_algorithms == 0)
        return calm_fail(ctx, CALM_EARG, "--algorithms: expected at least one name; see calm algorithms");
    return CALM_OK;
}

unsigned calm_recipe_caps(const calm_recipe *recipe)
{
    unsigned caps = 0;
    for (size_t a = 0; a < recipe->n_algorithms; a++)
        caps |= calm_algorithm_caps(recipe->algorithms[a]);
    return caps;
}

size_t calm_recipe_least_tokens(const calm_recipe *recipe)
{
    if (recipe->least_tokens > 0)
        return (size_t)recipe->least_tokens;
    return 4 * (recipe->scheme.group ? recipe->scheme.group : 128);
}

calm_json *calm_recipe_json(const calm_recipe *recipe)
{
    char scheme[CALM_SCHEME_NAME_MAX];
    calm_json *root = calm_json_new_object(), *algorithms = calm_json_new_array(),
              *calibration = calm_json_new_object();
    calm_json *choice = calm_json_new_object(), *evaluation = calm_json_new_object();
    calm_scheme_name(&recipe->scheme, scheme);
    calm_json_set_string(root, "model", recipe->model.name);
    calm_json_set_string(root, "scheme", scheme);
    for (size_t i = 0; i < recipe->n_algorithms; i++) {
        calm_json *entry = calm_json_new_object();
        calm_json_set_string(entry, "name", calm_algorithm_name(recipe->algorithms[i]));
        calm_json_set_string(entry, "chain", calm_algorithm_canonical(recipe->algorithms[i]));
        calm_json_add(algorithms, entry);
    }
    calm_json_set(root, "algorithms", algorithms);
    calm_json_set_string(calibration, "text", recipe->calib_name);
    calm_json_set_int(calibration, "samples", recipe->samples);
    calm_json_set_int(calibration, "seqlen", recipe->seqlen);
    calm_json_set_int(calibration, "seed", recipe->seed);
    calm_json_set_bool(calibration, "special", recipe->special);
    calm_json_set(root, "calibration", calibration);
    calm_json_set_string(choice, "unit", "job");
    calm_json_set_string(choice, "rule", calm_rule_name(recipe->rule));
    calm_json_set_string(choice, "metric", calm_metric_name(recipe->metric));
    calm_json_set_int(choice, "score_windows", recipe->score_windows);
    calm_json_set_int(choice, "guard_windows", recipe->guard_windows);
    calm_json_set_bool(choice, "keep_hybrid", recipe->keep_hybrid);
    calm_json_set(root, "choice", choice);
    calm_json_set_int(choice, "expert_tokens", (int64_t)calm_recipe_least_tokens(recipe));
    if (recipe->last_block >= 0) {
        calm_json *blocks = calm_json_new_array();
        calm_json_add_int(blocks, recipe->first_block);
        calm_json_add_int(blocks, recipe->last_block);
        calm_json_set(root, "blocks", blocks);
    }
    calm_json_set_string(root, "format", "compressed_tensors");
    calm_json_set_string(evaluation, "text", recipe->eval_path ? recipe->eval_name : NULL);
    calm_json_set_int(evaluation, "samples", recipe->eval_windows);
    calm_json_set(root, "evaluation", evaluation);
    return root;
}
