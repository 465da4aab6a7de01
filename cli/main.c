/* calm: finds the command, runs it, and turns its status into an exit status.
 *
 *   0 done   1 failed   2 usage   3 verification mismatch */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "cli/command.h"
#include "cli/flags.h"
#include "cli/kernels.h"
#include "cli/peers.h"
#include "cli/print.h"
#include "cli/progress.h"
#include "cli/rank_options.h"
#include "cli/stack.h"
#include "ptq/base/file.h"
#include "ptq/base/memory.h"
#include "ptq/base/message.h"
#include "ptq/base/text.h"
#include "ptq/base/threads.h"

#define COMMANDS_MAX 64

static void print_help(void)
{
    size_t n;
    const calm_command *const *all = calm_commands(&n);
    const calm_ctx terminal = {.columns = calm_print_columns()};
    CALM_SCOPED_TEXT(list);
    CALM_SCOPED_TEXT(folded);
    calm_text_printf(&list, "calm %s - post-training quantization with the best algorithm chosen per layer\n\n"
                            "Usage: calm COMMAND [OPTION...]\n\nCommands:\n", CALM_VERSION);
    for (size_t i = 0; i < n; i++)
        calm_text_printf(&list, "  %-12s %s\n", all[i]->name, all[i]->summary);
    if (!list.failed)
        calm_table_fold(&terminal, list.data, &folded);
    printf("%s", folded.failed || !folded.data ? "" : folded.data);
    printf("\nExamples:\n"
           "  calm quantize --model qwen --bits 4      the bundled demo model, int4\n"
           "  calm COMMAND --help                      options and examples of a command\n"
           "  calm --version\n");
}

static calm_status unknown_command(calm_ctx *ctx, const char *word)
{
    size_t n;
    const calm_command *const *all = calm_commands(&n);
    const char *names[COMMANDS_MAX] = {NULL};
    char hint[CALM_HINT_MAX];
    for (size_t i = 0; i < n && i < COMMANDS_MAX; i++)
        names[i] = all[i]->name;
    if (word[0] == '-')
        return calm_fail(ctx, CALM_EARG, "expected a command before %s, as in: calm quantize --model qwen --bits 4; "
                                         "see calm --help", word);
    const char *instead = calm_peers_command(word), *near = calm_did_you_mean(hint, word, names, n);
    if (instead)
        return calm_fail(ctx, CALM_EARG, "unknown command \"%s\"; did you mean %s?", word, instead);
    if (calm_path_exists(word))
        return calm_fail(ctx, CALM_EARG, "expected a command before %s, as in: calm quantize --model %s", word, word);
    return calm_fail(ctx, CALM_EARG, "unknown command \"%s\"%s", word, near[0] ? near : "; see calm --help");
}

static calm_status end_output(calm_ctx *ctx)
{
    return fflush(stdout) == 0 ? CALM_OK : calm_fail_errno(ctx, errno, "standard output: cannot write");
}

static calm_status run(calm_ctx *ctx, const calm_command *command, int argc, char **argv)
{
    void *opts;
    CALM_TRY(calm_alloc(ctx, ctx->out, &opts, 1, command->opts_size, "options"));
    CALM_TRY(calm_ranks_check(ctx, command));
    CALM_TRY(calm_args_parse(ctx, command, argc, argv, opts));
    const calm_common *common = opts;
    ctx->n_threads = common->threads > 0 ? (int)common->threads : calm_n_cores();
    ctx->columns = calm_print_columns();
    calm_progress_notes(ctx, common->quiet || !calm_ranks_print());
    CALM_TRY(command->run(ctx, opts));
    return end_output(ctx);
}

static calm_status print_version(calm_ctx *ctx)
{
    if (calm_kernels_pin(ctx, NULL) == CALM_ENOMEM)    /* this command computes nothing */
        calm_ctx_clear_failure(ctx);
    CALM_TRY(ctx->status);
    printf("calm %s\n", calm_version());
    calm_kernels_print(stdout);
    return end_output(ctx);
}

static calm_status run_named(calm_ctx *ctx, int argc, char **argv)
{
    size_t n;
    const calm_command *const *all = calm_commands(&n);
    for (size_t i = 0; i < n; i++)
        if (strcmp(all[i]->name, argv[0]) == 0)
            return run(ctx, all[i], argc, argv);
    return unknown_command(ctx, argv[0]);
}

/* "help COMMAND" means "COMMAND --help"; "help" alone prints the list of commands. */
static calm_status dispatch(calm_ctx *ctx, int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "help") == 0)
        return run_named(ctx, 2, (char *[]){argv[2], "--help", NULL});
    if (argc < 2 || calm_text_listed("--help|-h|help", '|', argv[1])) {
        print_help();
        return argc < 2 ? calm_fail(ctx, CALM_EARG, "expected a command") : end_output(ctx);
    }
    if (calm_text_listed("--version|-V|version", '|', argv[1]))
        return print_version(ctx);
    return run_named(ctx, argc - 1, argv + 1);
}

static int program(int argc, char **argv)
{
    calm_ctx *ctx;
    calm_memory_setup();
    calm_status status = calm_start(&ctx);
    if (status == CALM_OK)
        status = dispatch(ctx, argc, argv);
    if (status != CALM_OK)
        calm_ranks_announce_failure(ctx);
    if (status != CALM_OK && calm_ranks_print()) {
        const char *message = calm_error_text(ctx);
        calm_flags_print(stderr, strncmp(message, "calm ", 5) == 0 ? "" : "calm: ", message);
    }
    /* After printing: a launcher kills the other ranks once a rank has ended with a failure. */
    if (ctx)
        calm_ranks_leave(ctx);
    calm_stop(&ctx);
    return calm_exit_status(status);
}

int main(int argc, char **argv)
{
    signal(SIGXFSZ, SIG_IGN);    /* then a limit on the size of files makes write fail, with a message */
    return calm_with_stack(program, argc, argv);
}
