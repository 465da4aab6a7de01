/* schema_valid: read JSON files and print a line each, "NAME valid" or "NAME POINTER" with the pointer of the first fault
 * that the schema of recipes finds; "NAME unread" for what is no JSON. */
#include <stdio.h>
#include <string.h>

#include "cli/recipe_file.h"
#include "ptq/io/json_schema.h"

static void check(calm_ctx *ctx, const calm_json *schema, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    calm_json_fault *faults;
    calm_json *value;
    size_t n;
    if (calm_json_read(ctx, path, CALM_RECIPE_BYTES, &value) != CALM_OK) {
        printf("%s unread\n", name);
        calm_ctx_forgive(ctx);
        return;
    }
    if (calm_json_schema_faults(ctx, schema, value, &faults, &n) == CALM_OK)
        printf("%s %s\n", name, n == 0 ? "valid" : faults[0].pointer[0] ? faults[0].pointer : "(document)");
    calm_json_free(value);
}

int main(int argc, char **argv)
{
    calm_arena out, scratch;
    calm_ctx ctx;
    calm_json *schema;
    calm_arena_init(&out);
    calm_arena_init(&scratch);
    calm_ctx_init(&ctx, &out, &scratch);
    const calm_status status = calm_recipe_schema_read(&ctx, &schema);
    if (status != CALM_OK)
        fprintf(stderr, "%s\n", ctx.message);
    for (int i = 1; status == CALM_OK && i < argc; i++)
        check(&ctx, schema, argv[i]);
    calm_json_free(status == CALM_OK ? schema : NULL);
    calm_arena_clear(&out);
    calm_arena_clear(&scratch);
    return status != CALM_OK;
}
