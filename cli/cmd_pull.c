/* calm pull: fetches a model from the Hugging Face hub into its cache. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "cli/command.h"
#include "cli/pull.h"
#include "cli/print.h"
#include "ptq/base/file.h"

typedef struct options {
    calm_common common;
    bool list, json;
} options;

static const calm_option table[] = {
    CALM_OPT("list", list, BOOL, "show the short names and their repositories"),
    CALM_OPT("json", json, BOOL, "print {repo, revision, commit, path, files: [{name, bytes, fetched}]}; with --list "
             "{models: [{name, repo, note}]}"),
    CALM_OPT_COMMON,
    {0},
};

/* The table shows the first word of a note, "gated" of "gated: accept its conditions"; the lines below the table
 * explain it, once for all models. */
static calm_status print_list(calm_ctx *ctx, const options *o)
{
    calm_alias *aliases;
    CALM_SCOPED_TABLE(rows);
    CALM_SCOPED_TEXT(below);
    char *brief;
    size_t n;
    CALM_TRY(calm_aliases(ctx, &aliases, &n));
    calm_table_columns(&rows, "name|repo|note");
    for (size_t i = 0; i < n; i++) {
        const char *note = aliases[i].note;
        if (!aliases[i].repo)
            continue;
        if (note && !o->json && strchr(note, ':')) {
            if (!calm_text_listed(below.data, '\n', note))
                calm_text_printf(&below, "%s\n", note);
            CALM_TRY(calm_strf(ctx, ctx->scratch, &brief, "%.*s", (int)strcspn(note, ":"), note));
            note = brief;
        }
        CALM_CELLS(&rows, CALM_TEXT(aliases[i].name), CALM_TEXT(aliases[i].repo), CALM_TEXT(note));
    }
    if (o->json)
        return calm_print_json(ctx, CALM_OBJECT(CALM_KV("models", calm_rows_json(ctx, &rows))));
    CALM_TRY(calm_print_table(ctx, &rows, stdout));
    return calm_print_folded(ctx, &below);
}

static calm_status print_snapshot(calm_ctx *ctx, const options *o, const calm_hub_snapshot *snapshot)
{
    if (!o->json) {
        printf("%s\n", snapshot->path);
        return CALM_OK;
    }
    calm_json *files = calm_json_new_array();
    for (size_t i = 0; i < snapshot->n_files; i++)
        calm_json_add(files, CALM_OBJECT(CALM_KV("name", snapshot->files[i].name),
                                         CALM_KV("bytes", snapshot->files[i].bytes),
                                         CALM_KV("fetched", snapshot->files[i].fetched)));
    return calm_print_json(ctx, CALM_OBJECT(CALM_KV("repo", snapshot->repo), CALM_KV("revision", snapshot->revision),
                                            CALM_KV("commit", snapshot->commit), CALM_KV("path", snapshot->path),
                                            CALM_KV("files", files)));
}

static calm_status run(calm_ctx *ctx, const void *opts)
{
    const options *o = opts;
    calm_hub_settings settings;
    calm_hub_snapshot snapshot;
    calm_hub_name name;
    calm_named_model named;
    const char *model, *word;
    if (o->list)
        return print_list(ctx, o);
    if (!o->common.args.n)
        return calm_fail(ctx, CALM_EARG, "calm pull: expected a model; try: calm pull Qwen/Qwen3-0.6B");
    model = o->common.args.of[0];
    CALM_TRY(calm_model_hub_name(ctx, model, &word));
    if (!word) {
        if (strchr(model, '/') && !strstr(model, "://") && !calm_path_exists(model))
            return calm_fail(ctx, CALM_EARG, "calm pull: \"%s\" is no model's name; expected ORG/NAME[@REVISION]",
                             model);
        CALM_TRY(calm_find_shown(ctx, model, o->common.quiet, &named));    /* it fails for an unknown name */
        return calm_fail(ctx, CALM_EARG, "calm pull: \"%s\" is on this machine already (%s); there is nothing to "
                                         "fetch", model, named.dir);
    }
    CALM_TRY(calm_hub_settings_read(ctx, &settings));
    CALM_TRY(calm_hub_name_parse(ctx, word, &name));
    CALM_TRY(calm_pull_shown(ctx, &settings, &name, o->common.quiet, &snapshot));
    return print_snapshot(ctx, o, &snapshot);
}

const calm_command calm_cmd_pull = {
    .name = "pull",
    .summary = "fetch a model from the Hugging Face hub into its cache",
    .arguments = "ORG/NAME[@REVISION]",
    .description =
        "Fetches the files that calm needs of a model (safetensors weights, configuration, tokenizer) into the "
        "cache of huggingface_hub, and prints the directory.  It skips files that the cache has, "
        "continues a broken transfer, and verifies size and checksum of every file.  `--model ORG/NAME` of the "
        "other commands does the same.",
    .examples = "  calm pull Qwen/Qwen3-0.6B\n"
                "  calm pull qwen3-0.6b                 the same by its short name\n"
                "  calm pull Qwen/Qwen3-0.6B@main --json\n"
                "  calm pull --list                     the short names\n\n"
                "Environment variables, as in huggingface_hub: HF_TOKEN, HF_HOME,\n"
                "HF_HUB_CACHE, HF_HUB_OFFLINE=1 (only the cache), HF_ENDPOINT.\n",
    .max_args = 1,
    CALM_COMMAND_PARTS,
};
