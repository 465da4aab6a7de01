/* make_store: makes a store of any size, for measurements (synth_store.h; docs/store.md has the figures). */
#include <stddef.h>
#include <stdio.h>
#include <sys/stat.h>

#include "tests/tools/synth_store.h"
#include "tests/tools/tool.h"

typedef struct arguments {
    const char *output;
    synth_store size;
} arguments;

static const calm_option table[] = {
    {"output", "store that is to be made; it must not be there", offsetof(arguments, output), CALM_OPTION_STRING,
     .metavar = "FILE"},
    {"runs", "runs", offsetof(arguments, size.runs), CALM_OPTION_INT, "100", 1, 1e4, .metavar = "R"},
    {"jobs", "jobs of each model", offsetof(arguments, size.jobs), CALM_OPTION_INT, "400", 1, 1e5, .metavar = "J"},
    {"candidates", "candidates of each job and run", offsetof(arguments, size.candidates), CALM_OPTION_INT, "20", 1,
     SYNTH_STORE_MAX_CANDIDATES, .metavar = "C"},
    {"scores", "scores of each candidate", offsetof(arguments, size.scores), CALM_OPTION_INT, "10", 1,
     SYNTH_STORE_MAX_SCORES, .metavar = "S"},
    {"models", "models that the runs take turns on", offsetof(arguments, size.models), CALM_OPTION_INT, "4", 1, 1000,
     .metavar = "M"},
    {"experts", "experts of each block; 0: dense", offsetof(arguments, size.experts), CALM_OPTION_INT, "0", 0, 1000,
     .metavar = "E"},
    {"seed", "of all values", offsetof(arguments, size.seed), CALM_OPTION_INT, "0", 0, 1e15, .metavar = "S"},
    {0}};

static calm_status make(calm_ctx *ctx, void *opts)
{
    const arguments *args = opts;
    struct stat info;
    if (!args->output)
        return calm_fail(ctx, CALM_EARG, "--output FILE is missing; --help explains");
    CALM_TRY(synth_store_make(ctx, args->output, &args->size));
    if (stat(args->output, &info) != 0)
        return calm_fail(ctx, CALM_EIO, "%s: cannot read its size", args->output);
    printf("%s: %lld runs, %lld candidates, %.1f MB\n", args->output, args->size.runs,
           args->size.runs * args->size.jobs * args->size.candidates, (double)info.st_size / 1e6);
    return CALM_OK;
}

int main(int argc, char **argv)
{
    arguments args;
    const tool it = {"make_store", "--output FILE", "Makes a store with made-up rows in every table.",
                     table,        &args,           make};
    return tool_main(&it, argc, argv);
}
