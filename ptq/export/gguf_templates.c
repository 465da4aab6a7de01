/* Chat templates as keys of a GGUF file. */
#include "ptq/export/gguf_templates.h"

#include <ctype.h>
#include <string.h>

#include "ptq/base/file.h"
#include "ptq/base/scope.h"
#include "ptq/export/companions.h"

#define FILE_MAX ((size_t)16 * 1024 * 1024)
#define DEFAULT "default"
#define SUFFIX ".jinja"

/* The named templates that were added. */
typedef struct named {
    calm_gguf_keys *keys;
    calm_words names;
} named;

/* A template of a name; of two that are written alike the first stays. */
static calm_status add_named(calm_ctx *ctx, named *to, const char *name, size_t n, const char *text)
{
    char *clean, *key;
    CALM_TRY(calm_strf(ctx, ctx->scratch, &clean, "%.*s", (int)n, name));
    for (char *at = clean; *at; at++)
        *at = isalnum((unsigned char)*at) ? *at : '_';
    for (size_t i = 0; i < to->names.n; i++)
        if (strcmp(to->names.of[i], clean) == 0)
            return CALM_OK;
    if (!*clean || strcmp(clean, DEFAULT) == 0)
        return CALM_OK;
    CALM_TRY(calm_strf(ctx, ctx->scratch, &key, "tokenizer.chat_template.%s", clean));
    calm_gguf_add_string(to->keys, key, text);
    return calm_words_add(ctx, &to->names, clean);
}

/* Of an array of {"name", "template"} the default one, and all others as keys. */
static calm_status add_list(calm_ctx *ctx, named *to, const calm_json *list, const char **text)
{
    for (size_t i = 0; i < calm_json_size(list); i++) {
        const calm_json *one = calm_json_at(list, i);
        const char *name = calm_json_string(calm_json_get(one, "name"), ""),
                   *found = calm_json_string(calm_json_get(one, "template"), NULL);
        if (found && strcmp(name, DEFAULT) == 0)
            *text = found;
        else if (found)
            CALM_TRY(add_named(ctx, to, name, strlen(name), found));
    }
    return CALM_OK;
}

/* The templates of the folder; one that is called default is it where there is no other. */
static calm_status add_folder(calm_ctx *ctx, named *to, const char *dir, const char **text)
{
    calm_words files = {0};
    CALM_TRY(calm_export_list_templates(ctx, dir, &files));
    for (size_t i = 0; i < files.n; i++) {
        const char *name = calm_path_name(files.of[i]);
        const size_t n = strlen(name) - strlen(SUFFIX);
        char *path, *found;
        size_t length;
        CALM_TRY(calm_path_beside(ctx, ctx->scratch, &path, dir, files.of[i]));
        CALM_TRY(calm_read_file(ctx, path, FILE_MAX, &found, &length));
        if (!*text && n == strlen(DEFAULT) && strncmp(name, DEFAULT, n) == 0)
            *text = found;
        else
            CALM_TRY(add_named(ctx, to, name, n, found));
    }
    return CALM_OK;
}

/* The default template of chat_template.json or chat_template.jinja in place of *text. */
static calm_status read_files(calm_ctx *ctx, named *to, const char *dir, calm_json **json, const char **text)
{
    char *path, *file;
    size_t n;
    CALM_TRY(calm_path_beside(ctx, ctx->scratch, &path, dir, "chat_template.json"));
    if (calm_path_exists(path)) {
        CALM_TRY(calm_json_read(ctx, path, FILE_MAX, json));
        const calm_json *entry = calm_json_get(*json, "chat_template");
        *text = calm_json_string(entry, *text);
        if (calm_json_typeof(entry) == CALM_JSON_ARRAY)
            CALM_TRY(add_list(ctx, to, entry, text));
    }
    CALM_TRY(calm_path_beside(ctx, ctx->scratch, &path, dir, "chat_template.jinja"));
    if (calm_path_exists(path)) {
        CALM_TRY(calm_read_file(ctx, path, FILE_MAX, &file, &n));
        *text = file;
    }
    return CALM_OK;
}

calm_status calm_gguf_add_templates(calm_ctx *ctx, const char *dir, const calm_json *settings, calm_gguf_keys *keys)
{
    const calm_json *entry = calm_json_get(settings, "chat_template");
    const char *text = calm_json_string(entry, NULL);
    named to = {.keys = keys};
    CALM_SCOPED_JSON(json);
    if (calm_json_typeof(entry) == CALM_JSON_ARRAY)
        CALM_TRY(add_list(ctx, &to, entry, &text));
    CALM_TRY(read_files(ctx, &to, dir, &json, &text));
    CALM_TRY(add_folder(ctx, &to, dir, &text));
    if (to.names.n)
        calm_gguf_add_array(keys, "tokenizer.chat_templates", CALM_GGUF_STRING, to.names.n);
    for (size_t i = 0; i < to.names.n; i++)
        calm_gguf_element_string(keys, to.names.of[i], strlen(to.names.of[i]));
    if (text)
        calm_gguf_add_string(keys, "tokenizer.chat_template", text);
    return CALM_OK;
}
