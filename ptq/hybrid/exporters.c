/* The registry of exporters, and what all of them share: temporary directory, companions. */
#include "ptq/hybrid/export.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CALM_EXPORT(name) extern const calm_exporter calm_export_##name;
#include "ptq/hybrid/export.def"
#undef CALM_EXPORT

const calm_exporter *const *calm_exporters(size_t *n)
{
    static const calm_exporter *const all[] = {
#define CALM_EXPORT(name) &calm_export_##name,
#include "ptq/hybrid/export.def"
#undef CALM_EXPORT
    };
    *n = sizeof all / sizeof *all;
    return all;
}

/* Remove the slashes at the end: the temporary name goes beside the target. */
static calm_status clean_target(calm_ctx *ctx, const char *target, char **out)
{
    size_t length = strlen(target);
    while (length > 1 && target[length - 1] == '/')
        length--;
    if (length == 0)
        return calm_fail(ctx, CALM_EARG, "the output directory's name is empty");
    return calm_strf(ctx, ctx->out, out, "%.*s", (int)length, target);
}

calm_status calm_export_target(calm_ctx *ctx, const char *target, bool force)
{
    char *clean, *config;
    CALM_TRY(clean_target(ctx, target, &clean));
    if (!calm_path_exists(clean))
        return CALM_OK;
    if (!force)
        return calm_fail(ctx, CALM_EEXIST, "%s: exists already; give another --output, or --force to replace it", clean);
    CALM_TRY(calm_path_join(ctx, ctx->scratch, &config, clean, "config.json"));
    if (!calm_path_exists(config) && rmdir(clean) != 0)
        return calm_fail(ctx, CALM_EARG, "%s: exists and holds no config.json, so it is no checkpoint; --force does not "
                                         "replace it", clean);
    return CALM_OK;
}

calm_status calm_export_begin(calm_ctx *ctx, const char *target, char **temporary)
{
    char *clean;
    CALM_TRY(clean_target(ctx, target, &clean));
    CALM_TRY(calm_strf(ctx, ctx->out, temporary, "%s.tmp.%ld", clean, (long)getpid()));
    CALM_TRY(calm_remove_tree(ctx, *temporary));
    return calm_make_directories(ctx, *temporary);
}

calm_status calm_export_commit(calm_ctx *ctx, const char *temporary, const char *target)
{
    char *clean, *old, *parent, *slash;
    CALM_TRY(clean_target(ctx, target, &clean));
    CALM_TRY(calm_sync_directory(ctx, temporary));
    CALM_TRY(calm_strf(ctx, ctx->scratch, &old, "%s.old.%ld", clean, (long)getpid()));
    const bool replaces = calm_path_exists(clean);
    if (replaces && rename(clean, old) != 0)
        return calm_fail_errno(ctx, errno, "%s: cannot move it aside", clean);
    if (rename(temporary, clean) != 0) {
        const int reason = errno;
        if (replaces && rename(old, clean) != 0)
            return calm_fail_errno(ctx, reason, "%s: cannot rename to it; the old one is %s", clean, old);
        return calm_fail_errno(ctx, reason, "%s: cannot rename to it", clean);
    }
    CALM_TRY(calm_strf(ctx, ctx->scratch, &parent, "%s", clean));
    slash = strrchr(parent, '/');
    if (slash)
        slash[slash == parent] = '\0';
    CALM_TRY(calm_sync_directory(ctx, slash ? parent : "."));
    return replaces ? calm_remove_tree(ctx, old) : CALM_OK;
}

calm_status calm_export_copy_companions(calm_ctx *ctx, const calm_model *model, const char *dir)
{
    static const char *const files[] = {
        "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
        "merges.txt", "tokenizer.model", "chat_template.jinja", "chat_template.json", "generation_config.json",
        "LICENSE",
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char *from, *to;
        CALM_TRY(calm_path_join(ctx, ctx->scratch, &from, calm_model_dir(model), files[i]));
        CALM_TRY(calm_path_join(ctx, ctx->scratch, &to, dir, files[i]));
        if (calm_path_exists(from))
            CALM_TRY(calm_copy_file(ctx, from, to));
    }
    return CALM_OK;
}
