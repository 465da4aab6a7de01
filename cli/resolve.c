/* Names on the command line. */
#include "cli/resolve.h"

#include <stdlib.h>
#include <string.h>

#include "ptq/base/file.h"
#include "ptq/base/text.h"
#include "ptq/io/json.h"

const char *calm_home(void)
{
    const char *home = getenv("CALM_HOME");
    return home && home[0] ? home : CALM_SOURCE_DIR;
}

const char *calm_program(void)
{
    const char *command = getenv("CALM_COMMAND");
    return command && command[0] ? command : "calm";
}

calm_status calm_recipes_path(calm_ctx *ctx, const char *name, char **out)
{
    return calm_strf(ctx, ctx->out, out, "%s/recipes/%s", calm_home(), name);
}

/* {"qwen": {"path": "models/qwen-demo", "note": "..."}} */
static calm_status find_alias(calm_ctx *ctx, const calm_json *aliases, const char *where, const char *name,
                              calm_named_model *out)
{
    const calm_json *entry = calm_json_get(aliases, name);
    const char *path, *note;
    char *copy;
    if (!entry)
        return CALM_OK;
    CALM_TRY(calm_json_need_string(ctx, where, entry, "path", NULL, &path));
    CALM_TRY(calm_json_need_string(ctx, where, entry, "note", "", &note));
    CALM_TRY(calm_recipes_path(ctx, path, &out->dir));
    CALM_TRY(calm_strf(ctx, ctx->out, &copy, "%s", note));
    out->note = copy[0] ? copy : NULL;
    return CALM_OK;
}

static calm_status unknown(calm_ctx *ctx, const calm_json *aliases, const char *name)
{
    calm_text known;
    const char *key;
    const calm_json *value;
    calm_text_init(&known);
    for (void *iter = NULL; calm_json_next(aliases, &iter, &key, &value);)
        calm_text_printf(&known, "%s%s", known.length ? ", " : "", key);
    calm_status status =
        calm_fail(ctx, CALM_ENOTFOUND, "model \"%s\": no such directory, and no such name; known names: %s", name,
                  known.data ? known.data : "none");
    calm_text_clear(&known);
    return status;
}

calm_status calm_resolve_model(calm_ctx *ctx, const char *name, calm_named_model *out)
{
    char *where;
    calm_json *aliases;
    *out = (calm_named_model){.name = name};
    if (strchr(name, '/'))
        return calm_strf(ctx, ctx->out, &out->dir, "%s", name);
    CALM_TRY(calm_recipes_path(ctx, "models/aliases.json", &where));
    CALM_TRY(calm_json_read(ctx, where, 1 << 20, &aliases));
    calm_status status = find_alias(ctx, aliases, where, name, out);
    if (status == CALM_OK && !out->dir)
        status =
            calm_is_directory(name) ? calm_strf(ctx, ctx->out, &out->dir, "%s", name) : unknown(ctx, aliases, name);
    calm_json_free(aliases);
    return status;
}
