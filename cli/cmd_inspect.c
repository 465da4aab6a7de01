/* calm inspect: shows a store, a model directory or a GGUF file. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "cli/command.h"
#include "cli/inspect/inspect.h"
#include "cli/pull.h"
#include "ptq/base/file.h"
#include "ptq/io/folder.h"
#include "ptq/io/gguf.h"

#define DEFAULT_STORE "calm-out/calm.db"

typedef struct options {
    calm_common common;
    calm_model_how how;
    const char *store, *unit, *metric;
    bool json, csv, ascii;
} options;

static const calm_option table[] = {
    CALM_OPT("store", store, STRING, "store to show (default: " DEFAULT_STORE ", if the first word is a WHAT)",
             .metavar = "FILE", .basic = true),
    CALM_OPT("unit", unit, STRING, "show only this unit, by its full name or from the block on: 0.qkv (why, "
             "candidates, scores, choices, blocks)", .metavar = "UNIT", .basic = true),
    CALM_OPT("metric", metric, STRING, "layers, diff: the score to show (default: the score of the run's rule)",
             .metavar = "NAME"),
    CALM_OPT("json", json, BOOL, "print {\"SECTION\": [{column: value}]} with the columns of the tables; numbers "
             "have all digits, empty cells are null; most WHATs have one section, of the same name "
             "(docs/inspect.md)",
             .basic = true),
    CALM_OPT("csv", csv, BOOL, "print RFC 4180; for several sections the name, the rows and an empty line each",
             .basic = true),
    CALM_OPT("ascii", ascii, BOOL, "print the cells of layers in ASCII, as in locales without UTF-8"),
    CALM_OPT_HOW,
    CALM_OPT_COMMON,
    {0},
};

/* First bytes of files that calm inspect reads.  Checked first, since SQLite's error does not name a store. */
#define DATABASE_MAGIC "SQLite format 3"

/* ---- what the terminal can show ---- */

/* Does the locale's name end in UTF-8?  It comes from the environment, not from setlocale, which falls back to "C" if
 * the locale's data is not installed, although the terminal shows UTF-8. */
static bool locale_is_utf8(void)
{
    static const char *const variables[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    const char *name = NULL;
    for (size_t i = 0; i < sizeof variables / sizeof *variables && !(name && *name); i++)
        name = getenv(variables[i]);
    const char *dot = name ? strchr(name, '.') : NULL;
    return dot && (strncasecmp(dot, ".utf-8", 6) == 0 || strncasecmp(dot, ".utf8", 5) == 0);
}

static bool terminal_wants_colour(void)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(STDOUT_FILENO) == 1 && !(no && *no) && term && strcmp(term, "dumb") != 0;
}

/* ---- words: paths, models, WHATs ---- */

static bool is_view(const char *word)
{
    size_t n;
    const char *const *names = calm_inspect_views(&n);
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], word) == 0)
            return true;
    return false;
}

/* Fails with a suggestion if a word is near a WHAT and no alias of a model: then it is a misspelt WHAT.  CALM_EARG. */
static calm_status check_misspelt(calm_ctx *ctx, const char *word)
{
    size_t n;
    bool alias;
    const char *const *names = calm_inspect_views(&n);
    const char *near = calm_nearest(word, names, n);
    CALM_TRY(calm_aliases_have(ctx, word, &alias));
    return near && !alias ? calm_inspect_unknown(ctx, DEFAULT_STORE, word, names, n) : CALM_OK;
}

static calm_status inspect_file(calm_ctx *ctx, const char *path, const calm_inspect_query *query)
{
    if (!calm_file_begins(path, DATABASE_MAGIC))
        return calm_fail(ctx, CALM_EFORMAT, "%s: neither a store nor a model directory nor a GGUF file", path);
    return calm_inspect_store(ctx, path, query);
}

static calm_status inspect_named_store(calm_ctx *ctx, const char *path, bool given, const calm_inspect_query *query)
{
    if (!given && !calm_path_exists(path))
        return calm_fail(ctx, CALM_ENOTFOUND, "%s: no such store; name one: calm inspect STORE WHAT, or --store FILE",
                         path);
    return calm_inspect_store(ctx, path, query);
}

static calm_status inspect_model(calm_ctx *ctx, const char *word, bool quiet, const calm_inspect_query *query)
{
    calm_named_model model;
    char *config, *store;
    if (!calm_path_exists(word)) {
        const char *hub_name;
        CALM_TRY(calm_model_hub_name(ctx, word, &hub_name));
        if (calm_is_path(word) || (!hub_name && (strchr(word, '/') || strchr(word, '.'))))
            return calm_fail(ctx, CALM_ENOTFOUND, "%s: no such file or directory; expected a store, the directory of a "
                                                  "model or a GGUF file", word);
        if (!hub_name)
            CALM_TRY(check_misspelt(ctx, word));
    }
    CALM_TRY(calm_find_shown(ctx, word, quiet, &model));
    CALM_TRY(calm_path_join(ctx, ctx->out, &config, model.dir, "config.json"));
    CALM_TRY(calm_path_join(ctx, ctx->out, &store, model.dir, "calm.db"));
    if (!calm_path_exists(config) && calm_path_exists(store))
        return calm_fail(ctx, CALM_ENOTFOUND, "%s: a folder without config.json; did you mean the store %s?", model.dir,
                         store);
    CALM_TRY(calm_folder_require_model(ctx, model.dir));
    return calm_inspect_model(ctx, model.dir, model.note, query);
}

static calm_status run(calm_ctx *ctx, const void *opts)
{
    const options *o = opts;
    const calm_words *args = &o->common.args;
    const bool store = o->store || (args->n ? !calm_path_exists(args->of[0]) && is_view(args->of[0])
                                            : calm_path_exists(DEFAULT_STORE));
    const size_t first = store ? 0 : 1;    /* WHAT */
    if (!args->n && !store)
        return calm_fail(ctx, CALM_EARG, "calm inspect: there is no " DEFAULT_STORE " here; give a store, a model "
                                         "directory or a GGUF file (see calm inspect --help)");
    if (o->json && o->csv)
        return calm_fail(ctx, CALM_EARG, "calm inspect: --json and --csv exclude each other; give one");
    const calm_inspect_query query = {.what = args->n > first ? args->of[first] : NULL,
                                      .args = args->of + (args->n > first ? first + 1 : args->n),
                                      .n_args = args->n > first ? args->n - first - 1 : 0,
                                      .form = o->json  ? CALM_INSPECT_JSON
                                              : o->csv ? CALM_INSPECT_CSV
                                                       : CALM_INSPECT_TEXT,
                                      .how = o->how,
                                      .unit = o->unit,
                                      .metric = o->metric,
                                      .colour = terminal_wants_colour(),
                                      .ascii = o->ascii || !locale_is_utf8()};
    if (store)
        return inspect_named_store(ctx, o->store ? o->store : DEFAULT_STORE, o->store != NULL, &query);
    if (calm_is_file(args->of[0]) && calm_file_begins(args->of[0], CALM_GGUF_MAGIC))
        return calm_inspect_model(ctx, args->of[0], NULL, &query);
    if (calm_path_exists(args->of[0]) && !calm_is_directory(args->of[0]))
        return inspect_file(ctx, args->of[0], &query);
    return inspect_model(ctx, args->of[0], o->common.quiet, &query);
}

const calm_command calm_cmd_inspect = {
    .name = "inspect",
    .summary = "show the contents of a store, a model directory or a GGUF file",
    .arguments = "[STORE|MODEL] [WHAT [RUN...]]",
    .description =
        "Shows the contents of a store (calm.db), of a model (a directory or a known name) or of a GGUF file.",
    .examples = "  calm inspect                         what " DEFAULT_STORE " holds\n"
                "  calm inspect runs                    runs of " DEFAULT_STORE "\n"
                "  calm inspect calm.db                 models, calibrations and runs\n"
                "  calm inspect calm.db layers          each unit's candidates as a row of cells\n"
                "  calm inspect why --unit 0.qkv        why calm chose this candidate for the unit\n"
                "  calm inspect diff 2 3                what differs between two runs\n"
                "  calm inspect sql 'SELECT * FROM v_runs' --csv\n"
                "  calm inspect qwen                    the bundled demo model\n"
                "  calm inspect ./qwen-w4 linears       the scheme of each linear\n"
                "  calm inspect model.gguf linears      the type of each linear\n\n"
                "WHAT, for a store:\n"
                "  summary      what is in it (the default)\n"
                "  runs         one row per run\n"
                "  show         everything about one run\n"
                "  layers       one row per unit, one cell per candidate of the pool\n"
                "  blocks       one row per job of the run's model, with its choice\n"
                "  candidates   one row per job and candidate, best first\n"
                "  scores       one row per candidate and metric; every metric is a loss\n"
                "  choices      one row per job: algorithm, scores, activation maximum, reason\n"
                "  why          the rule that decided on --unit UNIT, and why it rejected the others\n"
                "  activations  largest values, emergence, their tokens; one row per hook point\n"
                "  evaluations  perplexity, KL and top-1 agreement\n"
                "  rate         bytes against KL of runs on the same windows; front: no run is better and smaller\n"
                "  ablation     what calm ablate measured, least KL first\n"
                "  diff         what differs between two runs: diff RUN RUN\n"
                "  sql          the rows of one SELECT: sql 'SELECT ...'\n"
                "WHAT, for a model:\n"
                "  summary      architecture, sizes, parameters, bits per weight (the default)\n"
                "  blocks       one row per job\n"
                "  linears      one row per linear, with its scheme, or its type in a GGUF file\n\n"
                "Tables leave out empty columns; JSON and CSV have all columns.  RUN is a number;\n"
                "without RUN, summary, runs and ablation show all runs, the others the newest.  If\n"
                "the first word names a file or directory, calm reads that; else the word is WHAT.\n"
                "With --store all words are WHAT and RUN.  The command only reads the store and\n"
                "works while a run writes to it.\n",
    .max_args = 4,
    CALM_COMMAND_PARTS,
};
