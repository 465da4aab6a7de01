/* break_checkpoint: makes a checkpoint with exactly one fault from a correct one. */
#include <stdio.h>
#include <string.h>

#include "tests/tools/break_faults.h"
#include "tests/tools/tool.h"

typedef struct arguments {
    const char *from, *output, *fault;
    bool list;
} arguments;

static const calm_option table[] = {
    {"from", "the good directory (of a GGUF file: model.gguf in it)", offsetof(arguments, from), CALM_OPTION_STRING,
     .metavar = "DIR"},
    {"output", "directory that is to be made; it must not be there", offsetof(arguments, output), CALM_OPTION_STRING,
     .metavar = "DIR"},
    {"fault", "one of --list", offsetof(arguments, fault), CALM_OPTION_STRING, .metavar = "NAME"},
    {"list", "name the faults, the rule that finds each, and what each is made from", offsetof(arguments, list),
     CALM_OPTION_BOOL, .fallback = "false"},
    {0}};

static calm_status run(calm_ctx *ctx, void *user)
{
    const arguments *args = user;
    for (const break_fault *at = break_faults; at->name; at++) {
        if (args->list)
            printf("%-32s %s  %s\n", at->name, at->rule, at->good);
        else if (args->fault && strcmp(at->name, args->fault) == 0 && args->from && args->output)
            return break_checkpoint(ctx, args->from, args->output, at);
    }
    return args->list ? CALM_OK : calm_fail(ctx, CALM_EARG, "--from, --output and a --fault of --list are needed");
}

int main(int argc, char **argv)
{
    arguments args;
    return tool_main(&(tool){"break_checkpoint", "--from DIR --fault NAME --output DIR",
                             "Makes a checkpoint with one fault from a good one.", table, &args, run},
                     argc, argv);
}
