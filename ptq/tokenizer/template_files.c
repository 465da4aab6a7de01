/* Chat templates and special tokens in the files of a model. */
#include "ptq/tokenizer/template_files.h"

#include <string.h>

#include "ptq/base/array.h"
#include "ptq/base/file.h"

#define FILE_MAX ((size_t)16 * 1024 * 1024)
#define DEFAULT "default"

static calm_status add_named(calm_ctx *ctx, calm_template_files *to, const char *name, size_t n, const char *text)
{
    CALM_TRY(CALM_GROW(ctx, ctx->scratch, to->named, to->n, &to->capacity, to->n + 1));
    to->named[to->n].text = text;
    return calm_strf(ctx, ctx->scratch, &to->named[to->n++].name, "%.*s", (int)n, name);
}

/* Adds the templates of an array of {"name", "template"}; the one called "default" becomes the default. */
static calm_status add_list(calm_ctx *ctx, calm_template_files *to, const calm_json *list)
{
    for (size_t i = 0; i < calm_json_size(list); i++) {
        const calm_json *one = calm_json_at(list, i);
        const char *name = calm_json_string(calm_json_get(one, "name"), ""),
                   *found = calm_json_string(calm_json_get(one, "template"), NULL);
        if (found && strcmp(name, DEFAULT) == 0)
            to->text = found;
        else if (found)
            CALM_TRY(add_named(ctx, to, name, strlen(name), found));
    }
    return CALM_OK;
}

static calm_status add_entry(calm_ctx *ctx, calm_template_files *to, const calm_json *entry)
{
    to->text = calm_json_string(entry, to->text);
    return calm_json_typeof(entry) == CALM_JSON_ARRAY ? add_list(ctx, to, entry) : CALM_OK;
}

/* Adds the templates of files NAME.jinja. */
static calm_status add_files(calm_ctx *ctx, calm_template_files *to, const char *dir, const calm_words *files)
{
    for (size_t i = 0; i < files->n; i++) {
        const char *name = calm_path_name(files->of[i]);
        const size_t n = strlen(name) - strlen(CALM_TEMPLATES_SUFFIX);
        char *path, *found;
        size_t length;
        CALM_TRY(calm_path_beside(ctx, ctx->scratch, &path, dir, files->of[i]));
        CALM_TRY(calm_read_file(ctx, path, FILE_MAX, &found, &length));
        if (!to->text && n == strlen(DEFAULT) && strncmp(name, DEFAULT, n) == 0)
            to->text = found;
        else
            CALM_TRY(add_named(ctx, to, name, n, found));
    }
    return CALM_OK;
}

calm_status calm_template_files_read(calm_ctx *ctx, const char *dir, const calm_json *settings, const calm_words *files,
                                     calm_template_files *out)
{
    char *path, *file;
    size_t n;
    *out = (calm_template_files){0};
    CALM_TRY(add_entry(ctx, out, calm_json_get(settings, "chat_template")));
    CALM_TRY(calm_path_beside(ctx, ctx->scratch, &path, dir, "chat_template.json"));
    if (calm_path_exists(path)) {
        CALM_TRY(calm_json_read(ctx, path, FILE_MAX, &out->json));
        CALM_TRY(add_entry(ctx, out, calm_json_get(out->json, "chat_template")));
    }
    CALM_TRY(calm_path_beside(ctx, ctx->scratch, &path, dir, "chat_template.jinja"));
    if (calm_path_exists(path)) {
        CALM_TRY(calm_read_file(ctx, path, FILE_MAX, &file, &n));
        out->text = file;
    }
    return add_files(ctx, out, dir, files);
}

void calm_template_files_close(calm_template_files *files)
{
    calm_json_free(files->json);
    files->json = NULL;
}

const char *calm_settings_token(const calm_json *settings, const char *key)
{
    const calm_json *token = calm_json_get(settings, key);
    return calm_json_string(calm_json_typeof(token) == CALM_JSON_OBJECT ? calm_json_get(token, "content") : token,
                            NULL);
}
