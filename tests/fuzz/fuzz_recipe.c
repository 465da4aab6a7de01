/* Recipes: an accepted table becomes a spec or is refused with a reason, and the spec is written as a recipe. */
#include <stdlib.h>
#include <string.h>

#include "ptq/recipe/document.h"
#include "tests/fuzz/fuzz.h"

static void check_faults(const calm_document_fault *faults, size_t n)
{
    if (n > CALM_DOCUMENT_FAULTS)
        abort();
    for (size_t i = 0; i < n; i++)
        if (!faults[i].message[0] || (faults[i].pointer[0] && faults[i].pointer[0] != '/'))
            abort();
}

int calm_fuzz_one(const uint8_t *data, size_t size)
{
    calm_ctx *ctx = fuzz_context();
    calm_json *recipe, *written;
    calm_faults faults;
    calm_recipe_spec spec;
    if (calm_json_parse(ctx, "fuzz", (const char *)data, size, &recipe) != CALM_OK)
        return 0;
    if (calm_document_faults(ctx, recipe, &faults) != CALM_OK)
        abort();
    check_faults(faults.of, faults.n);
    if (calm_spec_init(ctx, &spec) != CALM_OK)
        abort();
    if (faults.n == 0 && calm_spec_read(ctx, recipe, "fuzz", &spec) == CALM_OK) {
        if (calm_spec_write(ctx, &spec, &written) != CALM_OK ||
            calm_document_faults(ctx, written, &faults) != CALM_OK || faults.n)
            abort();
        calm_json_free(written);
    } else if (faults.n == 0 && !ctx->message[0]) {
        abort();
    }
    calm_json_free(recipe);
    return 0;
}
