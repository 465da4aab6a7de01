/* calm inspect: what is in a store or in a model directory. */
#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/command.h"
#include "cli/inspect.h"
#include "cli/resolve.h"
#include "ptq/base/file.h"

typedef struct options {
    calm_common common;
    bool json;
} options;

static const calm_option table[] = {
    {.name = "json",
     .help = "print {\"WHAT\": [{column: value}]} with the columns of the table; numbers read back the same, "
             "empty cells are null.  A store's summary has the members store, models, calibrations, runs",
     .offset = offsetof(options, json),
     .type = CALM_OPTION_BOOL},
    CALM_COMMON_OPTIONS(options),
    {0},
};

calm_status calm_inspect_unknown(calm_ctx *ctx, const char *owner, const char *what, const char *const *names, size_t n)
{
    calm_text known;
    const char *near = calm_nearest(what, names, n);
    calm_text_init(&known);
    for (size_t i = 0; i < n; i++)
        calm_text_printf(&known, "%s%s", i ? ", " : "", names[i]);
    calm_status status = calm_fail(ctx, CALM_EARG, "%s: cannot show \"%s\"%s%s%s; known: %s", owner, what,
                                   near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "",
                                   known.data ? known.data : "");
    calm_text_clear(&known);
    return status;
}

calm_status calm_inspect_print(calm_ctx *ctx, calm_text *text)
{
    if (ctx->status == CALM_OK && calm_text_check(ctx, text) == CALM_OK && text->length &&
        fwrite(text->data, 1, text->length, stdout) != text->length)
        calm_fail_errno(ctx, errno, "standard output: cannot write");
    calm_text_clear(text);
    return ctx->status;
}

static calm_status parse_run(calm_ctx *ctx, const char *word, int64_t *run)
{
    char *end;
    errno = 0;
    const long long value = strtoll(word, &end, 10);
    if (!isdigit((unsigned char)word[0]) || *end || errno || value < 1)
        return calm_fail(ctx, CALM_EARG, "calm inspect: RUN \"%s\": expected a number from 1", word);
    *run = value;
    return CALM_OK;
}

/* Does the file begin like a database?  Files of another kind get a better error than SQLite's. */
static bool looks_like_database(const char *path)
{
    static const char magic[] = "SQLite format 3";
    char head[sizeof magic] = {0};
    FILE *stream = fopen(path, "rb");
    const size_t n = stream ? fread(head, 1, sizeof head, stream) : 0;
    if (stream)
        fclose(stream);
    return n == sizeof head && memcmp(head, magic, sizeof magic) == 0;
}

static calm_status inspect_directory(calm_ctx *ctx, const char *dir, const char *note, const calm_inspect_query *query)
{
    char *config, *store;
    CALM_TRY(calm_path_join(ctx, ctx->out, &config, dir, "config.json"));
    CALM_TRY(calm_path_join(ctx, ctx->out, &store, dir, "calm.db"));
    if (!calm_path_exists(config))
        return calm_fail(ctx, CALM_ENOTFOUND, "%s: neither a store nor a model directory: no config.json in it%s%s",
                         dir, calm_path_exists(store) ? "; did you mean " : "", calm_path_exists(store) ? store : "");
    return calm_inspect_model(ctx, dir, note, query);
}

static calm_status run(calm_ctx *ctx, const void *opts, const char *const *args, size_t n_args)
{
    const options *o = opts;
    const char *path = args[0];
    calm_named_model model;
    calm_inspect_query query = {.what = n_args > 1 ? args[1] : NULL, .json = o->json};
    if (n_args > 2)
        CALM_TRY(parse_run(ctx, args[2], &query.run));
    if (calm_path_exists(path) && !calm_is_directory(path)) {
        if (!looks_like_database(path))
            return calm_fail(ctx, CALM_EFORMAT, "%s: neither a store nor a model directory", path);
        return calm_inspect_store(ctx, path, &query);
    }
    if (!calm_path_exists(path)) {
        const char *hub_name;
        CALM_TRY(calm_resolve_hub_name(ctx, path, &hub_name));
        if (calm_is_path(path) || (!hub_name && (strchr(path, '/') || strchr(path, '.'))))
            return calm_fail(ctx, CALM_ENOTFOUND, "%s: no such store or model directory", path);
    }
    CALM_TRY(calm_resolve_model(ctx, path, o->common.quiet, &model));
    return inspect_directory(ctx, model.dir, model.note, &query);
}

const calm_command calm_cmd_inspect = {
    .name = "inspect",
    .summary = "show what is in a store or in a model directory",
    .arguments = "PATH [WHAT] [RUN]",
    .description = "Shows what is in a store (calm.db) or in a model directory (or a model's name).",
    .examples = "  calm inspect calm.db                 models, calibrations and runs\n"
                "  calm inspect calm.db choices         the plan of the newest run\n"
                "  calm inspect calm.db candidates 3    what run 3 compared\n"
                "  calm inspect calm.db evaluations --json\n"
                "  calm inspect qwen                    the bundled demo model\n"
                "  calm inspect ./qwen-w4 linears       the scheme of each linear\n\n"
                "WHAT, for a store:\n"
                "  summary      what is in it (the default)\n"
                "  runs         one row per run\n"
                "  blocks       one row per job of the run's model, with what was chosen\n"
                "  candidates   one row per job and candidate, best first\n"
                "  scores       one row per candidate and metric; every metric is a loss\n"
                "  choices      one row per job: algorithm, scores, activation maximum, reason\n"
                "  activations  one row per hook point\n"
                "  evaluations  perplexity, KL and top-1 agreement\n"
                "  ablation     what calm ablate measured, least KL first\n"
                "WHAT, for a model:\n"
                "  summary      architecture, sizes, parameters, bits per weight (the default)\n"
                "  blocks       one row per job\n"
                "  linears      one row per linear, with its scheme\n\n"
                "Columns that hold nothing are left out of tables, never of JSON.\n"
                "RUN is a number; without it summary, runs and ablation show all, the others\n"
                "the newest.  A store is only read: nothing is locked, and a run may be\n"
                "writing to it.\n",
    .options = table,
    .opts_size = sizeof(options),
    .min_args = 1,
    .max_args = 3,
    .run = run,
};
