/* schema_valid: reads JSON files and prints a line each: "NAME valid", "NAME POINTER" with the place of the first
 * fault that calm finds in the recipe's structure, or "NAME unread" for a file that is no JSON. */
#include <stdio.h>
#include <string.h>

#include "ptq/recipe/document.h"

static void check(calm_ctx *ctx, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    calm_faults faults;
    calm_json *value;
    if (calm_json_read(ctx, path, CALM_RECIPE_BYTES, &value) != CALM_OK) {
        printf("%s unread\n", name);
        calm_ctx_clear_failure(ctx);
        return;
    }
    if (calm_document_faults(ctx, value, &faults) == CALM_OK)
        printf("%s %s\n", name,
               faults.n == 0 ? "valid" : faults.of[0].pointer[0] ? faults.of[0].pointer : "(document)");
    calm_json_free(value);
}

int main(int argc, char **argv)
{
    calm_arena out, scratch;
    calm_ctx ctx;
    calm_arena_init(&out);
    calm_arena_init(&scratch);
    calm_ctx_init(&ctx, &out, &scratch);
    for (int i = 1; i < argc; i++)
        check(&ctx, argv[i]);
    if (ctx.status != CALM_OK)
        fprintf(stderr, "%s\n", ctx.message);
    calm_arena_clear(&out);
    calm_arena_clear(&scratch);
    return ctx.status != CALM_OK;
}
