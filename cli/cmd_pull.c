/* calm pull: bring a model from the Hugging Face hub into its cache. */
#include <stddef.h>
#include <stdio.h>

#include "cli/command.h"
#include "cli/pull.h"
#include "cli/print.h"

typedef struct options {
    calm_common common;
    bool list, json;
} options;

static const calm_option table[] = {
    {.name = "list", .help = "show the short names and the repositories that they stand for",
     .offset = offsetof(options, list), .type = CALM_OPTION_BOOL},
    {.name = "json",
     .help = "print {repo, revision, commit, path, files: [{name, bytes, fetched}]}; with --list {models: [{name, "
             "repo, note}]}", .offset = offsetof(options, json), .type = CALM_OPTION_BOOL},
    CALM_COMMON_OPTIONS(options),
    {0},
};

static calm_status print_rows(calm_ctx *ctx, const options *o, calm_table *rows)
{
    calm_json *root, *list;
    if (!o->json)
        return calm_print_table(ctx, rows, stdout);
    CALM_TRY(calm_rows_json(ctx, rows, &list));
    root = calm_json_new_object();
    calm_json_set(root, "models", list);
    const calm_status status = calm_print_json(ctx, root);
    calm_json_free(root);
    return status;
}

static calm_status print_list(calm_ctx *ctx, const options *o)
{
    calm_alias *aliases;
    calm_table rows;
    size_t n;
    CALM_TRY(calm_aliases(ctx, &aliases, &n));
    calm_table_init(&rows);
    calm_table_column(&rows, "name", CALM_ALIGN_LEFT);
    calm_table_column(&rows, "repo", CALM_ALIGN_LEFT);
    calm_table_column(&rows, "note", CALM_ALIGN_LEFT);
    for (size_t i = 0; i < n; i++) {
        if (!aliases[i].repo)
            continue;
        calm_table_text(&rows, aliases[i].name);
        calm_table_text(&rows, aliases[i].repo);
        calm_table_text(&rows, aliases[i].note);
    }
    const calm_status status = print_rows(ctx, o, &rows);
    calm_table_clear(&rows);
    return status;
}

static calm_status print_snapshot(calm_ctx *ctx, const options *o, const calm_hub_snapshot *snapshot)
{
    if (!o->json) {
        printf("%s\n", snapshot->path);
        return CALM_OK;
    }
    calm_json *root = calm_json_new_object(), *files = calm_json_new_array();
    calm_json_set_string(root, "repo", snapshot->repo);
    calm_json_set_string(root, "revision", snapshot->revision);
    calm_json_set_string(root, "commit", snapshot->commit);
    calm_json_set_string(root, "path", snapshot->path);
    for (size_t i = 0; i < snapshot->n_files; i++) {
        calm_json *file = calm_json_new_object();
        calm_json_set_string(file, "name", snapshot->files[i].name);
        calm_json_set_int(file, "bytes", snapshot->files[i].bytes);
        calm_json_set_bool(file, "fetched", snapshot->files[i].fetched);
        calm_json_add(files, file);
    }
    calm_json_set(root, "files", files);
    const calm_status status = calm_print_json(ctx, root);
    calm_json_free(root);
    return status;
}

static calm_status run(calm_ctx *ctx, const void *opts, const char *const *args, size_t n_args)
{
    const options *o = opts;
    calm_hub_settings settings;
    calm_hub_snapshot snapshot;
    calm_hub_name name;
    calm_named_model named;
    const char *word;
    if (o->list)
        return print_list(ctx, o);
    if (n_args == 0)
        return calm_fail(ctx, CALM_EARG, "calm pull: expected a model; try: calm pull Qwen/Qwen3-0.6B");
    CALM_TRY(calm_model_hub_name(ctx, args[0], &word));
    if (!word) {
        CALM_TRY(calm_find_shown(ctx, args[0], o->common.quiet, &named));    /* says what is wrong with the name */
        return calm_fail(ctx, CALM_EARG, "calm pull: \"%s\" is a directory or the bundled model (%s); there is nothing "
                                         "to fetch", args[0], named.dir);
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
        "Fetches what calm needs of a model (safetensors weights, configuration, tokenizer) into the cache that "
        "huggingface_hub uses too, and prints the directory.  What is there is not fetched again; a broken transfer "
        "goes on where it stopped; size and checksum of every file are verified.  `--model ORG/NAME` of the other "
        "commands does the same for a model that is not there yet.",
    .examples = "  calm pull Qwen/Qwen3-0.6B\n"
                "  calm pull qwen3-0.6b                 the same by its short name\n"
                "  calm pull Qwen/Qwen3-0.6B@main --json\n"
                "  calm pull --list                     the short names\n\n"
                "Environment, as huggingface_hub has it: HF_TOKEN, HF_HOME,\n"
                "HF_HUB_CACHE, HF_HUB_OFFLINE=1 (the cache alone), HF_ENDPOINT.\n",
    .options = table,
    .opts_size = sizeof(options),
    .max_args = 1,
    .run = run,
};
