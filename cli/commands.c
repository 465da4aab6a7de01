/* Lists the commands and the options of each. */
#include <string.h>

#include "cli/command.h"

#define CALM_COMMAND(name) extern const calm_command calm_cmd_##name;
#include "cli/commands.def"
#undef CALM_COMMAND

const calm_command *const *calm_commands(size_t *n)
{
    static const calm_command *const all[] = {
#define CALM_COMMAND(name) &calm_cmd_##name,
#include "cli/commands.def"
#undef CALM_COMMAND
    };
    *n = sizeof all / sizeof *all;
    return all;
}

size_t calm_command_options(const calm_command *command, const calm_option **out)
{
    const size_t n_own = calm_options_count(command->options);
    const size_t n_spec = command->spec == CALM_SPEC_ALL      ? calm_options_count(calm_spec_table)
                          : command->spec == CALM_SPEC_SHARED ? calm_spec_shared()
                                                              : 0;
    size_t n = 0;
    for (size_t i = 0; i < n_own; i++)
        out[n++] = &command->options[i];
    for (size_t i = 0; i < n_spec; i++)
        if (!calm_option_find(command->options, calm_spec_table[i].name))
            out[n++] = &calm_spec_table[i];
    return n;
}

const char *calm_command_metavar(const calm_option *option)
{
    return option->metavar ? option->metavar : "VALUE";
}

const char *calm_command_default(const calm_option *option)
{
    return option->fallback && strcmp(option->fallback, "-1") != 0 ? option->fallback : "";
}

/* ---- groups ---- */

/* Groups of a run's options by purpose, the most used options first in each. */
static const struct {
    const char *heading, *names;
} groups[] = {
    {"Loops that calm bench times:", "hidden|inner|heads|kv-heads|head-dim|repeats|input"},
    {"Ranks of calm bench cluster:", "ranks|bandwidth|latency|ranks-per-node|cores-per-node|rate|seconds"},
    {"Most used:", "model|bits|scheme|preset|budget|size|bits-per-weight|output|format|force|recipe|dry-run"},
    {"Algorithms, and what is chosen:",
     "algorithms|unit|rule|metric|shortlist|effort|act-budget|pin|forbid|keep-hybrid|split-v|prefix|probe-samples|"
     "sensitivity|expert-tokens"},
    {"More quality for more time:", "learn|learn-steps|learn-loss|rotate|rotate-seed"},
    {"Calibration:",
     "calib|tokens|imatrix|samples|seqlen|seed|weight|calib-dtype|score-samples|guard-samples|no-special|stream"},
    {"Evaluation and conditions:", "eval-text|eval-samples|no-eval|exact-float|gate|lock|locked"},
    {"Numbers and files of the result:",
     "target|adapter|accept-key|blocks|keep-float|ignore|group-fallback|scale-dtype|act-rule|"
     "max-shard-size|kv-cache|gguf-type|embed-scheme|head-scheme|gguf-pre|gguf-float"},
    {"Machine, store and messages:", "store|keep-candidates|report|memory|threads|kernels|json|quiet"},
};

#define N_GROUPS (sizeof groups / sizeof *groups)

size_t calm_command_group(const calm_command *command, const calm_option *option)
{
    if (command->spec == CALM_SPEC_NONE)
        return 0;
    for (size_t g = 0; g < N_GROUPS; g++)
        if (calm_option_value_index(groups[g].names, option->name) >= 0)
            return g + 1;
    return 0;
}

const char *calm_command_heading(size_t group)
{
    return group && group <= N_GROUPS ? groups[group - 1].heading : NULL;
}

/* The index of an option in its group. */
static int rank(const calm_option *option, size_t group)
{
    return group ? calm_option_value_index(groups[group - 1].names, option->name) : 0;
}

void calm_command_sort(const calm_command *command, const calm_option **options, size_t n)
{
    /* Insertion sort is stable, and n is below a hundred. */
    for (size_t i = 1; i < n; i++) {
        const calm_option *moved = options[i];
        const size_t group = calm_command_group(command, moved);
        size_t at = i;
        for (; at > 0; at--) {
            const size_t other = calm_command_group(command, options[at - 1]);
            if (other < group || (other == group && rank(options[at - 1], group) <= rank(moved, group)))
                break;
            options[at] = options[at - 1];
        }
        options[at] = moved;
    }
}
