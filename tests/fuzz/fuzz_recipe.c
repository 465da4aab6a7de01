/* Recipes: what the schema takes can be applied or is refused with a reason, and what was applied is written as a recipe. */
#include <stdlib.h>
#include <string.h>

#include "cli/recipe_file.h"
#include "ptq/io/json_schema.h"
#include "tests/fuzz/fuzz.h"

static void check_faults(const calm_json_fault *faults, size_t n)
{
    if (n > CALM_SCHEMA_FAULTS)
        abort();
    for (size_t i = 0; i < n; i++)
        if (!faults[i].message[0] || (faults[i].pointer[0] && faults[i].pointer[0] != '/'))
            abort();
}

int calm_fuzz_one(const uint8_t *data, size_t size)
{
    calm_ctx *ctx = fuzz_context();
    static calm_json *schema;
    calm_json *recipe, *written;
    calm_json_fault *faults;
    calm_quantize_options opts;
    size_t n;
    if (!schema && calm_recipe_schema_read(ctx, &schema) != CALM_OK)
        abort();
    if (calm_json_parse(ctx, "fuzz", (const char *)data, size, &recipe) != CALM_OK)
        return 0;
    if (calm_json_schema_faults(ctx, schema, recipe, &faults, &n) != CALM_OK)
        abort();
    check_faults(faults, n);
    memset(&opts, 0, sizeof opts);
    if (calm_options_init(ctx, calm_quantize_table, &opts) != CALM_OK)
        abort();
    if (n == 0 && calm_recipe_file_apply(ctx, recipe, "fuzz", NULL, &opts, NULL) == CALM_OK) {
        if (calm_recipe_file_json(ctx, &opts, &written) != CALM_OK ||
            calm_json_schema_faults(ctx, schema, written, &faults, &n) != CALM_OK || n)
            abort();
        calm_json_free(written);
    } else if (n == 0 && !ctx->message[0]) {
        abort();
    }
    calm_json_free(recipe);
    return 0;
}
