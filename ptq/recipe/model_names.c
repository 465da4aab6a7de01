/* Names of models. */
#include "ptq/recipe/model_names.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ptq/hub/hub.h"
#include "ptq/base/file.h"
#include "ptq/base/text.h"
#include "ptq/io/folder.h"
#include "ptq/io/json.h"
#include "ptq/weights/adapter.h"

/* ---- the folder recipes/ ---- */

/* Finds the file that contains this code, program or shared library, into path [size]; "": unknown. */
static void own_file(char *path, size_t size)
{
    Dl_info info;
    struct link_map *map = NULL;
    path[0] = '\0';
    if (dladdr1((void *)own_file, &info, (void **)&map, RTLD_DL_LINKMAP) && map && map->l_name[0] == '/') {
        snprintf(path, size, "%s", map->l_name);    /* empty for the program itself */
        return;
    }
    const ssize_t n = readlink("/proc/self/exe", path, size - 1);
    path[n > 0 ? n : 0] = '\0';
}

/* Returns share/calm next to the folder of that file (bin/, lib/ or lib/ARCHITECTURE/), in ctx->out; NULL: none. */
static calm_status installed_home(calm_ctx *ctx, char **out)
{
    char file[PATH_MAX];
    *out = NULL;
    own_file(file, sizeof file);
    for (int up = 0; up < 3; up++) {
        char *slash = strrchr(file, '/');
        if (!slash)
            return CALM_OK;
        *slash = '\0';
        if (up == 0)    /* the file's folder itself */
            continue;
        CALM_TRY(calm_strf(ctx, ctx->out, out, "%s/share/calm", file));
        if (calm_path_has(*out, "recipes"))
            return CALM_OK;
        *out = NULL;
    }
    return CALM_OK;
}

/* Finds the folder with recipes/: $CALM_HOME, else next to the installed program or library, else where calm was built,
 * else below its installation prefix. */
static calm_status find_home(calm_ctx *ctx, const char **out)
{
    char *installed;
    *out = getenv("CALM_HOME");
    if (*out && (*out)[0] && !calm_is_directory(*out))
        return calm_fail(ctx, CALM_ENOTFOUND, "%s: no such directory, and CALM_HOME names it; expected the folder that "
                                              "has calm's recipes/: set it to that, or unset it", *out);
    if (*out && (*out)[0])
        return CALM_OK;
    CALM_TRY(installed_home(ctx, &installed));
    *out = installed ? installed : CALM_DATA_DIR;
#ifdef CALM_SOURCE_DIR
    if (!installed && access(CALM_SOURCE_DIR "/recipes", R_OK) == 0)
        *out = CALM_SOURCE_DIR;
#endif
    return CALM_OK;
}

calm_status calm_recipes_path(calm_ctx *ctx, const char *name, calm_string_out out)
{
    const char *home;
    CALM_TRY(find_home(ctx, &home));
    return calm_strf(ctx, ctx->out, out, "%s/recipes/%s", home, name);
}

/* ---- aliases ---- */

/* Copies a member to ctx->out; *out is unchanged if it is absent. */
static calm_status take_text(calm_ctx *ctx, const char *where, const calm_json *entry, const char *key,
                             const char **out)
{
    const char *text;
    CALM_TRY(calm_json_need_string(ctx, where, entry, key, "", &text));
    return text[0] ? calm_strf(ctx, ctx->out, out, "%s", text) : CALM_OK;
}

/* {"qwen": {"path": "models/qwen-demo", "note": "..."}, "minilm": {"repo": "ORG/NAME"}} */
static calm_status take_aliases(calm_ctx *ctx, const char *where, const calm_json *root, calm_alias **out, size_t *n)
{
    const char *name;
    const calm_json *entry;
    *n = 0;
    CALM_TRY(CALM_NEW(ctx, ctx->out, *out, calm_json_size(root)));
    for (void *iter = NULL; calm_json_next(root, &iter, &name, &entry);) {
        calm_alias *alias = &(*out)[(*n)++];
        CALM_TRY(calm_strf(ctx, ctx->out, &alias->name, "%s", name));
        CALM_TRY(take_text(ctx, where, entry, "path", &alias->path));
        CALM_TRY(take_text(ctx, where, entry, "repo", &alias->repo));
        CALM_TRY(take_text(ctx, where, entry, "note", &alias->note));
        if (!alias->path == !alias->repo)
            return calm_fail(ctx, CALM_EFORMAT, "%s: %s: expected either \"path\" or \"repo\"", where, name);
    }
    return CALM_OK;
}

calm_status calm_aliases(calm_ctx *ctx, calm_alias **out, size_t *n)
{
    char *where;
    CALM_SCOPED_JSON(root);
    CALM_TRY(calm_recipes_path(ctx, "models/aliases.json", &where));
    CALM_TRY(calm_json_read(ctx, where, 1 << 20, &root));
    return take_aliases(ctx, where, root, out, n);
}

calm_status calm_aliases_have(calm_ctx *ctx, const char *word, bool *out)
{
    calm_alias *aliases;
    size_t n;
    *out = false;
    CALM_TRY(calm_aliases(ctx, &aliases, &n));
    for (size_t i = 0; i < n; i++)
        *out |= strcmp(aliases[i].name, word) == 0;
    return CALM_OK;
}

/* Returns the alias before the @ of `word`, or NULL. */
static const calm_alias *find_alias(const calm_alias *aliases, size_t n, const char *word)
{
    const size_t length = strcspn(word, "@");
    for (size_t i = 0; i < n; i++)
        if (strncmp(aliases[i].name, word, length) == 0 && aliases[i].name[length] == '\0' &&
            (aliases[i].repo || word[length] == '\0'))    /* bundled models have no revisions */
            return &aliases[i];
    return NULL;
}

/* Fails with the nearest name, if there is one, and the names of bundled models. */
static calm_status unknown(calm_ctx *ctx, const calm_alias *aliases, size_t n, const char *name)
{
    const char **names, *near;
    CALM_SCOPED_TEXT(bundled);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, names, n));
    for (size_t i = 0; i < n; i++) {
        names[i] = aliases[i].name;
        if (aliases[i].path)
            calm_text_printf(&bundled, "%s%s", bundled.length ? ", " : "", aliases[i].name);
    }
    near = calm_nearest(name, names, n);
    return calm_fail(ctx, CALM_ENOTFOUND,
                     "model \"%s\": no such directory, and no such name%s%s%s; known names: %s (bundled), ORG/NAME on "
                     "the hub, and what \"calm pull --list\" shows",
                     name, near ? " (did you mean \"" : "", near ? near : "", near ? "\"?)" : "",
                     bundled.data ? bundled.data : "none");
}

/* ---- the hub ---- */

bool calm_is_path(const char *word)
{
    return word[0] == '/' || strncmp(word, "./", 2) == 0 || strncmp(word, "../", 3) == 0 ||
           calm_text_ends_with(word, ".gguf") || calm_path_exists(word);
}

static bool is_hub_model(const char *word)
{
    return !calm_is_path(word) && calm_hub_is_name(word);
}

calm_status calm_model_repo(calm_ctx *ctx, const char *word, char **out)
{
    static const char begin[] = "models--", parts[] = "--", end[] = "/snapshots/";
    const char *org = strstr(word, begin), *name = org ? strstr(org + strlen(begin), parts) : NULL;
    const char *rest = name ? strstr(name, end) : NULL;
    *out = NULL;
    if (is_hub_model(word))
        return calm_strf(ctx, ctx->scratch, out, "%.*s", (int)strcspn(word, "@"), word);
    if (!rest || (org > word && org[-1] != '/'))
        return CALM_OK;
    org += strlen(begin);
    CALM_TRY(calm_strf(ctx, ctx->scratch, out, "%.*s/%.*s", (int)(name - org), org,
                       (int)(rest - name - (ptrdiff_t)strlen(parts)), name + strlen(parts)));
    if (!calm_hub_is_name(*out))
        *out = NULL;
    return CALM_OK;
}

static calm_status hub_name(calm_ctx *ctx, const calm_alias *alias, const char *word, const char **out)
{
    return calm_strf(ctx, ctx->out, out, "%s%s", alias->repo, word + strcspn(word, "@"));
}

calm_status calm_model_hub_name(calm_ctx *ctx, const char *word, const char **out)
{
    calm_alias *aliases;
    size_t n;
    *out = calm_hub_is_name(word) ? word : NULL;
    if (*out)
        return CALM_OK;
    CALM_TRY(calm_aliases(ctx, &aliases, &n));
    const calm_alias *alias = find_alias(aliases, n, word);
    return alias && alias->repo ? hub_name(ctx, alias, word, out) : CALM_OK;
}

/* Finds a model in the cache, or downloads it into the cache. */
static calm_status from_hub(calm_ctx *ctx, const char *word, calm_tick_fn *tick, void *user, calm_named_model *out)
{
    calm_hub_settings settings;
    calm_hub_name name;
    calm_hub_snapshot snapshot;
    CALM_TRY(calm_hub_settings_read(ctx, &settings));
    CALM_TRY(calm_hub_name_parse(ctx, word, &name));
    CALM_TRY(calm_hub_find(ctx, &settings, &name, &snapshot));
    if (settings.offline)
        CALM_TRY(calm_hub_check_offline(ctx, &settings, &snapshot));
    else if (!snapshot.usable || snapshot.missing) {
        calm_log(ctx, CALM_LOG_INFO, "%s@%s: asking %s", name.repo, name.revision, settings.endpoint);
        CALM_TRY(calm_hub_pull(ctx, &settings, &name, tick, user, &snapshot));
    }
    if (snapshot.missing)
        CALM_TRY(calm_strf(ctx, ctx->out, &out->note, "%s: the cache has no %s, and HF_HUB_OFFLINE is set", name.repo,
                           snapshot.missing));
    return calm_strf(ctx, ctx->out, &out->dir, "%s", snapshot.path);
}

/* As from_hub, but the word may have been meant as a path, so the failure mentions that too. */
static calm_status path_or_hub(calm_ctx *ctx, const char *word, calm_tick_fn *tick, void *user, calm_named_model *out)
{
    char message[CALM_MESSAGE_MAX];
    const calm_status status = from_hub(ctx, word, tick, user, out);
    if (status != CALM_ENOTFOUND && status != CALM_EIO)
        return status;
    memcpy(message, ctx->message, sizeof message);
    calm_ctx_clear_failure(ctx);
    return calm_fail(ctx, status, "%s (nor is there a directory %s)", message, word);
}

calm_status calm_recipe_refuse_address(calm_ctx *ctx, const char *word)
{
    const char *host = strstr(word, "://"), *name = host ? strchr(host + 3, '/') : NULL;
    if (!host || calm_path_exists(word))
        return CALM_OK;
    const size_t org = name ? strcspn(name + 1, "/") : 0;
    const size_t both = name && name[1 + org] ? org + 1 + strcspn(name + org + 2, "/?#") : 0;
    return calm_fail(ctx, CALM_EARG, "model \"%s\": an address; expected the model's name, %.*s", word,
                     both ? (int)both : (int)strlen("ORG/NAME"), both ? name + 1 : "ORG/NAME");
}

static calm_status find_model(calm_ctx *ctx, const char *name, calm_tick_fn *tick, void *user, calm_named_model *out)
{
    calm_alias *aliases;
    size_t n;
    const char *repo;
    *out = (calm_named_model){.name = name};
    /* With a slash: a path or ORG/NAME, never an alias.  An existing directory wins over the hub. */
    if (strchr(name, '/')) {
        CALM_TRY(calm_recipe_refuse_address(ctx, name));
        if (is_hub_model(name))
            return path_or_hub(ctx, name, tick, user, out);
        return calm_strf(ctx, ctx->out, &out->dir, "%s", name);
    }
    CALM_TRY(calm_aliases(ctx, &aliases, &n));
    const calm_alias *alias = find_alias(aliases, n, name);
    /* An alias wins over a directory of that name in the working folder, so that a name means one model everywhere. */
    if (!alias)
        return calm_is_path(name) ? calm_strf(ctx, ctx->out, &out->dir, "%s", name) : unknown(ctx, aliases, n, name);
    if (alias->repo) {
        CALM_TRY(hub_name(ctx, alias, name, &repo));
        return from_hub(ctx, repo, tick, user, out);
    }
    out->note = alias->note;
    CALM_TRY(calm_recipes_path(ctx, alias->path, &out->dir));
    if (!calm_is_directory(out->dir))
        return calm_fail(ctx, CALM_ENOTFOUND, "model \"%s\": this bundled model is not installed, there is no "
                                              "directory %s (Debian: the package calm-demo-model)", name, out->dir);
    return CALM_OK;
}

calm_status calm_model_find(calm_ctx *ctx, const char *name, calm_tick_fn *tick, void *user, calm_named_model *out)
{
    CALM_TRY(find_model(ctx, name, tick, user, out));
    if (!out->dir)
        return CALM_OK;
    CALM_TRY(calm_folder_require(ctx, out->dir));
    CALM_TRY(calm_folder_gguf(ctx, &out->dir));
    return calm_adapter_is_no_model(ctx, out->dir);
}
