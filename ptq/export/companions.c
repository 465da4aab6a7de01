/* Lists the companions of a checkpoint and copies them. */
#include "ptq/export/companions.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ptq/base/file.h"
#include "ptq/base/scope.h"
#include "ptq/base/text.h"
#include "ptq/io/json.h"

#define JSON_MAX ((size_t)16 * 1024 * 1024)
#define CODE_MAX ((size_t)16 * 1024 * 1024)
#define MOST_FILES 512    /* modules and templates */

/* ---- files inside the directory ---- */

/* Is `path`, with links resolved, a file below `dir`? */
static bool is_below(const char *path, const char *dir)
{
    char resolved[PATH_MAX];
    const char *real = realpath(dir, resolved);
    const size_t n = real ? strlen(real) : 0;
    return real && strncmp(path, real, n) == 0 && path[n] == '/';
}

/* Is NAME in the model's directory a regular file there, or a link to a blob of the hub's cache? */
static calm_status is_inside(calm_ctx *ctx, const char *place, const char *name, bool *out)
{
    char *path, *folder, *blobs, real[PATH_MAX];
    struct stat info;
    *out = false;
    CALM_TRY(calm_path_beside(ctx, ctx->scratch, &path, place, name));
    CALM_TRY(calm_path_beside(ctx, ctx->scratch, &folder, place, "."));
    CALM_TRY(calm_path_beside(ctx, ctx->scratch, &blobs, place, "../../blobs"));
    if (!realpath(path, real) || stat(real, &info) != 0 || !S_ISREG(info.st_mode))
        return CALM_OK;
    char up[PATH_MAX], resolved[PATH_MAX];
    const char *above = realpath(folder, up) ? strrchr(up, '/') : NULL;
    /* CACHE/models--OWNER--NAME/snapshots/REVISION/FILE -> ../../blobs/HASH */
    const bool snapshot = above && above - up >= 10 && strncmp(above - 10, "/snapshots", 10) == 0
                          && realpath(blobs, resolved);
    *out = is_below(real, folder) || (snapshot && is_below(real, blobs));
    return CALM_OK;
}

/* ---- Python modules ---- */

/* A list that grows while it is read. */
typedef struct code {
    const char *place;
    calm_words *files, *missing;
} code;

/* Characters of a module's name, with dots between packages. */
static bool is_module(const char *text, size_t n)
{
    bool fits = n > 0 && n < NAME_MAX && text[0] != '.' && text[n - 1] != '.';
    for (size_t i = 0; i < n && fits; i++)
        fits = isalnum((unsigned char)text[i]) || text[i] == '_' || (text[i] == '.' && text[i - 1] != '.');
    return fits;
}

/* Adds the module `text` [n] of the folder `parent` ("" or "sub/"): its file, or the __init__.py of a package. */
static calm_status add_module(calm_ctx *ctx, code *to, const char *parent, const char *text, size_t n, bool *found)
{
    *found = false;
    for (int i = 0; i < 2 && !*found && is_module(text, n); i++) {
        char *name;
        CALM_TRY(i ? calm_strf(ctx, ctx->scratch, &name, "%s%.*s/__init__.py", parent, (int)n, text)
                   : calm_strf(ctx, ctx->scratch, &name, "%s%.*s.py", parent, (int)n, text));
        for (char *at = name + strlen(parent); at < name + strlen(parent) + n; at++)
            *at = *at == '.' ? '/' : *at;
        CALM_TRY(is_inside(ctx, to->place, name, found));
        if (*found && !calm_words_have(to->files, name) && to->files->n < MOST_FILES)
            CALM_TRY(calm_words_add(ctx, to->files, name));
    }
    return CALM_OK;
}

/* Adds the module of a reference in auto_map, "modeling_demo.DemoForCausalLM".  Ignores
 * "owner/name--modeling_demo.Class", which the loading code fetches from another repository. */
static calm_status add_reference(calm_ctx *ctx, code *to, const char *reference)
{
    const char *dot = reference ? strrchr(reference, '.') : NULL;
    bool found;
    if (!reference || strstr(reference, "--"))
        return CALM_OK;
    CALM_TRY(add_module(ctx, to, "", reference, dot ? (size_t)(dot - reference) : strlen(reference), &found));
    return found || !to->missing || calm_words_have(to->missing, reference) ? CALM_OK
                                                                      : calm_words_add(ctx, to->missing, reference);
}

/* Adds the modules of an auto_map's values: a reference, or for tokenizers a list of two, one of which may be null. */
static calm_status add_references(calm_ctx *ctx, code *to, const calm_json *value)
{
    CALM_TRY(add_reference(ctx, to, calm_json_string(value, NULL)));
    for (size_t i = 0; i < calm_json_size(value) && calm_json_typeof(value) == CALM_JSON_ARRAY; i++)
        CALM_TRY(add_reference(ctx, to, calm_json_string(calm_json_at(value, i), NULL)));
    return CALM_OK;
}

/* Adds the modules that a JSON file of the model names. */
static calm_status add_named(calm_ctx *ctx, code *to, const char *from)
{
    CALM_SCOPED_JSON(root);
    const calm_json *value;
    const char *key;
    char *path;
    CALM_TRY(calm_path_beside(ctx, ctx->scratch, &path, to->place, from));
    if (!calm_path_exists(path))
        return CALM_OK;
    CALM_TRY(calm_json_read(ctx, path, JSON_MAX, &root));
    const calm_json *map = calm_json_get(root, "auto_map"), *pipelines = calm_json_get(root, "custom_pipelines");
    CALM_TRY(add_references(ctx, to, map));    /* older tokenizers: a list in the place of the object */
    for (void *iter = NULL; calm_json_next(map, &iter, &key, &value);)
        CALM_TRY(add_references(ctx, to, value));
    for (void *iter = NULL; calm_json_next(pipelines, &iter, &key, &value);)
        CALM_TRY(add_references(ctx, to, calm_json_get(value, "impl")));
    return CALM_OK;
}

/* ---- imported modules ---- */

static const char *skip_spaces(const char *at)
{
    return at + strspn(at, " \t\\\r");
}

/* Adds the modules of an import; `at` follows "from .": "name.of import x" or " import a, b as c, (d, e)". */
static calm_status add_import(calm_ctx *ctx, code *to, const char *parent, const char *at)
{
    const size_t n = strcspn(at, " \t\r\n\\");
    bool found;
    if (n)
        return add_module(ctx, to, parent, at, n, &found);
    at = skip_spaces(at);
    if (strncmp(at, "import", 6) != 0)
        return CALM_OK;
    at = skip_spaces(at + 6);
    const bool open = *at == '(';
    /* Names up to the end of the line or of the parentheses; a name after "as" is not a module and is not found. */
    for (at += open; *at && *at != ')' && (open || *at != '\n');) {
        const size_t word = strspn(at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
        if (word)
            CALM_TRY(add_module(ctx, to, parent, at, word, &found));
        at += word ? word : 1;
    }
    return CALM_OK;
}

/* Adds the modules in the same folder that a Python file imports. */
static calm_status add_imports(calm_ctx *ctx, code *to, const char *file)
{
    char *path, *text, *parent;
    size_t n;
    const char *slash = strrchr(file, '/');
    CALM_TRY(calm_path_beside(ctx, ctx->scratch, &path, to->place, file));
    CALM_TRY(calm_strf(ctx, ctx->scratch, &parent, "%.*s", slash ? (int)(slash - file + 1) : 0, file));
    CALM_TRY(calm_read_file(ctx, path, CODE_MAX, &text, &n));
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        const char *at = skip_spaces(line);
        if (strncmp(at, "from", 4) != 0 || (at[4] != ' ' && at[4] != '\t'))
            continue;
        at = skip_spaces(at + 4);
        if (*at == '.')
            CALM_TRY(add_import(ctx, to, parent, at + 1));
    }
    return CALM_OK;
}

static calm_status add_code(calm_ctx *ctx, const char *place, calm_words *out, calm_words *missing)
{
    const size_t first = out->n;
    code to = {place, out, missing};
    if (!calm_is_file(place))    /* a GGUF file has no config.json */
        CALM_TRY(add_named(ctx, &to, "config.json"));
    CALM_TRY(add_named(ctx, &to, "tokenizer_config.json"));
    for (size_t i = first; i < out->n; i++)    /* it grows */
        CALM_TRY(add_imports(ctx, &to, out->of[i]));
    return CALM_OK;
}

/* ---- chat templates ---- */

/* For scandir: NAME.jinja. */
static int is_template(const struct dirent *entry)
{
    return entry->d_name[0] != '.' && calm_text_ends_with(entry->d_name, CALM_TEMPLATES_SUFFIX);
}

calm_status calm_export_list_templates(calm_ctx *ctx, const char *model_dir, calm_words *out)
{
    struct dirent **entries = NULL;
    char *folder, *name;
    bool inside = false;
    CALM_TRY(calm_path_beside(ctx, ctx->scratch, &folder, model_dir, CALM_TEMPLATES_DIR));
    const int found = calm_is_directory(folder) ? scandir(folder, &entries, is_template, alphasort) : 0;
    calm_status status = found < 0 ? calm_fail_errno(ctx, errno, "%s: cannot read the directory", folder) : CALM_OK;
    for (int i = 0; i < found; i++) {
        if (status == CALM_OK && i < MOST_FILES)
            status = calm_strf(ctx, ctx->scratch, &name, CALM_TEMPLATES_DIR "/%s", entries[i]->d_name);
        if (status == CALM_OK && i < MOST_FILES)
            status = is_inside(ctx, model_dir, name, &inside);
        if (status == CALM_OK && i < MOST_FILES && inside)
            status = calm_words_add(ctx, out, name);
        free(entries[i]);
    }
    free(entries);
    return status;
}

/* ---- sentence-transformers ---- */

/* Adds the files of the folders that modules.json lists, which compute a sentence's embedding. */
static calm_status add_modules(calm_ctx *ctx, const char *model_dir, calm_words *out)
{
    static const char *const files[] = {"config.json", "model.safetensors", "pytorch_model.bin"};
    CALM_SCOPED_JSON(list);
    char *path, *name;
    bool inside;
    CALM_TRY(calm_path_beside(ctx, ctx->scratch, &path, model_dir, "modules.json"));
    if (!calm_path_exists(path))
        return CALM_OK;
    CALM_TRY(calm_json_read(ctx, path, JSON_MAX, &list));
    for (size_t i = 0; i < calm_json_size(list) && out->n < MOST_FILES; i++) {
        const char *folder = calm_json_string(calm_json_get(calm_json_at(list, i), "path"), "");
        for (size_t f = 0; *folder && f < sizeof files / sizeof *files; f++) {
            CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%s/%s", folder, files[f]));
            CALM_TRY(is_inside(ctx, model_dir, name, &inside));
            if (inside && !strstr(folder, "..") && !calm_words_have(out, name))
                CALM_TRY(calm_words_add(ctx, out, name));
        }
    }
    return CALM_OK;
}

/* ---- the list and the copy ---- */

calm_status calm_export_list_companions(calm_ctx *ctx, const char *model_dir, calm_words *out, calm_words *missing)
{
    static const char *const files[] = {
        "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
        "merges.txt", "tokenizer.model", "chat_template.jinja", "chat_template.json", "generation_config.json",
        "LICENSE", "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json",
    };
    *out = (calm_words){0};
    CALM_SCOPED_OUT(ctx, ctx->scratch);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char *path;
        CALM_TRY(calm_path_beside(ctx, ctx->scratch, &path, model_dir, files[i]));
        if (calm_path_exists(path))
            CALM_TRY(calm_words_add(ctx, out, files[i]));
    }
    CALM_TRY(calm_export_list_templates(ctx, model_dir, out));
    CALM_TRY(add_modules(ctx, model_dir, out));
    return add_code(ctx, model_dir, out, missing);
}

calm_status calm_export_copy_companions(calm_ctx *ctx, const char *model_dir, const char *dir)
{
    calm_words files;
    CALM_TRY(calm_export_list_companions(ctx, model_dir, &files, NULL));
    for (size_t i = 0; i < files.n; i++) {
        char *from, *to;
        CALM_TRY(calm_path_beside(ctx, ctx->scratch, &from, model_dir, files.of[i]));
        CALM_TRY(calm_path_join(ctx, ctx->scratch, &to, dir, files.of[i]));
        CALM_TRY(calm_make_parent(ctx, to));
        CALM_TRY(calm_copy_file(ctx, from, to));
    }
    return CALM_OK;
}
