/* Finds recipe files by path, or by the name of a shipped recipe. */
#include "ptq/recipe/shipped.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ptq/base/file.h"
#include "ptq/base/text.h"
#include "ptq/recipe/model_names.h"

/* Returns the length of a shipped recipe's name; 0: the file is no recipe. */
static size_t shipped_length(const char *file)
{
    const bool other = calm_text_ends_with(file, ".schema.json") || calm_text_ends_with(file, ".lock.json");
    return file[0] != '.' && !other && calm_text_ends_with(file, ".json") ? strlen(file) - strlen(".json") : 0;
}

calm_status calm_recipe_file_shipped(calm_ctx *ctx, const char ***names, size_t *n)
{
    char *folder;
    calm_words found = {0};
    calm_status status = CALM_OK;
    CALM_TRY(calm_recipes_path(ctx, "", &folder));
    DIR *dir = opendir(folder);
    if (!dir)
        return calm_fail_errno(ctx, errno, "%s: cannot read the directory", folder);
    for (struct dirent *entry; status == CALM_OK && (entry = readdir(dir));) {
        const size_t length = shipped_length(entry->d_name);
        entry->d_name[length] = '\0';
        if (length)
            status = calm_words_add(ctx, &found, entry->d_name);
    }
    closedir(dir);
    *names = found.of;
    *n = found.n;
    if (found.n)
        qsort(found.of, found.n, sizeof *found.of, calm_words_compare);
    return status;
}

calm_status calm_recipe_file_find(calm_ctx *ctx, const char *word, char **path)
{
    const char **names;
    size_t n;
    CALM_TRY(calm_strf(ctx, ctx->out, path, "%s", word));
    if (calm_path_exists(word) && !calm_is_directory(word))
        return CALM_OK;
    CALM_TRY(calm_recipe_file_shipped(ctx, &names, &n));
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], word) == 0) {
            CALM_TRY(calm_strf(ctx, ctx->scratch, path, "%s.json", word));
            return calm_recipes_path(ctx, *path, path);
        }
    const char *near = calm_nearest(word, names, n);
    CALM_TRY(calm_path_refuse_directory(ctx, word));
    if (access(word, F_OK) != 0 && errno == EACCES)
        return calm_fail_errno(ctx, errno, "%s: cannot open", word);
    return calm_fail(ctx, CALM_ENOTFOUND, "recipe \"%s\": no such file, and no shipped recipe has this name%s%s%s",
                     word, near ? "; did you mean " : " (calm recipe list)", near ? near : "", near ? "?" : "");
}

calm_status calm_recipe_file_apply(calm_ctx *ctx, const char *word, calm_recipe_spec *spec)
{
    CALM_SCOPED_JSON(document);
    char *path;
    CALM_TRY(calm_recipe_file_find(ctx, word, &path));
    CALM_TRY(calm_document_read(ctx, path, &document));
    return calm_spec_read(ctx, document, path, spec);
}
