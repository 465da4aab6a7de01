/* calm push: sends a quantized model to the Hugging Face hub. */
#include <stddef.h>
#include <stdio.h>

#include "cli/command.h"
#include "cli/print.h"
#include "cli/progress.h"
#include "ptq/base/file.h"
#include "ptq/hub/push.h"
#include "ptq/recipe/model_names.h"

typedef struct options {
    calm_common common;
    bool hidden, force, dry_run, json;
} options;

static const calm_option table[] = {
    CALM_OPT("private", hidden, BOOL, "make a new repository private"),
    CALM_OPT("force", force, BOOL, "also add a commit to a repository that has files", .key = 'f'),
    CALM_OPT("dry-run", dry_run, BOOL, "list the files that calm would send, without asking the hub"),
    CALM_OPT("json", json, BOOL, "print {repo, url, commit, created, sent_bytes, files: [{name, bytes, large}]}"),
    CALM_OPT_COMMON,
    {0},
};

static calm_json *files_json(const calm_push_result *r)
{
    calm_json *list = calm_json_new_array();
    for (size_t i = 0; i < r->n_files; i++)
        if (!r->files[i].ignored)
            calm_json_add(list, CALM_OBJECT(CALM_KV("name", r->files[i].name), CALM_KV("bytes", r->files[i].bytes),
                                            CALM_KV("large", r->files[i].large)));
    return list;
}

static calm_status print_json(calm_ctx *ctx, const char *repo, const calm_push_result *r)
{
    return calm_print_json(ctx, CALM_OBJECT(CALM_KV("repo", repo), CALM_KV("url", *r->url ? r->url : NULL),
                                            CALM_KV("commit", *r->commit ? r->commit : NULL),
                                            CALM_KV("created", r->created), CALM_KV("sent_bytes", r->sent_bytes),
                                            CALM_KV("files", files_json(r))));
}

static calm_status print_files(calm_ctx *ctx, const calm_push_result *r)
{
    CALM_SCOPED_TABLE(rows);
    calm_table_columns(&rows, "file|#bytes");
    for (size_t i = 0; i < r->n_files; i++)
        CALM_CELLS(&rows, CALM_TEXT(r->files[i].name), CALM_INT((int64_t)r->files[i].bytes));
    return calm_print_table(ctx, &rows, stdout);
}

static calm_status push_shown(calm_ctx *ctx, const options *o, const calm_hub_name *name, const char *dir,
                              calm_push_result *out)
{
    const calm_push_options how = {.dir = dir, .hidden = o->hidden, .force = o->force};
    calm_hub_settings settings;
    calm_progress progress;
    CALM_TRY(calm_hub_settings_read(ctx, &settings));
    calm_progress_begin(ctx, &progress, o->common.quiet);
    calm_progress_add(&progress, "push", "bytes");
    calm_hub_push(ctx, &settings, name, &how, calm_progress_tick, &progress, out);
    return calm_progress_end(ctx, &progress);
}

static calm_status run(calm_ctx *ctx, const void *opts)
{
    const options *o = opts;
    calm_push_result result = {.url = "", .commit = ""};
    calm_hub_name name;
    if (o->common.args.n != 2)
        return calm_fail(ctx, CALM_EARG, "calm push: expected a directory and a repository; try: "
                         "calm push calm-out/qwen-w4a16_g128 ORG/NAME");
    const char *dir = o->common.args.of[0], *repo = o->common.args.of[1];
    if (calm_is_directory(repo) && calm_hub_is_name(dir) && !calm_is_directory(dir))
        return calm_fail(ctx, CALM_EARG, "calm push: expected the directory first; did you mean calm push %s %s?", repo,
                         dir);
    CALM_TRY(calm_recipe_refuse_address(ctx, repo));
    CALM_TRY(calm_hub_name_parse(ctx, repo, &name));
    if (!o->dry_run)
        CALM_TRY(push_shown(ctx, o, &name, dir, &result));
    else
        CALM_TRY(calm_hub_push_files(ctx, dir, &result.files, &result.n_files));
    if (o->json)
        return print_json(ctx, name.repo, &result);
    if (o->dry_run)
        return print_files(ctx, &result);
    printf("%s\n", result.url);
    return CALM_OK;
}

const calm_command calm_cmd_push = {
    .name = "push",
    .summary = "send a quantized model to the Hugging Face hub",
    .arguments = "DIR ORG/NAME[@BRANCH]",
    .description =
        "Makes the repository if there is none, sends the large files that the hub's storage lacks, and adds all "
        "files as one commit.  Until then the repository does not change; the same command continues a push that "
        "broke off.  The hub checks the card's front matter first.  The token, with the right to write, is HF_TOKEN "
        "or the one that `hf auth login` has stored.",
    .examples = "  calm push calm-out/qwen-w4a16_g128 me/qwen-w4 --dry-run\n"
                "  calm push calm-out/qwen-w4a16_g128 me/qwen-w4 --private\n",
    .max_args = 2,
    CALM_COMMAND_PARTS,
};
