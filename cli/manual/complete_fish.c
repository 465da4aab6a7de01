/* Completion for fish: one line per option of every command. */
#include "cli/manual/manual.h"

/* Appends -a 'words' and the flag that offers paths. */
static void add_offer(calm_text *out, const calm_manual_offer *offer)
{
    calm_text_printf(out, offer->files ? " -F" : " -f");
    if (!offer->words.n && !offer->folders)
        return;
    calm_text_printf(out, " -a '");
    for (size_t i = 0; i < offer->words.n; i++)
        calm_text_printf(out, "%s%s", i ? " " : "", offer->words.of[i]);
    calm_text_printf(out, "%s'", offer->folders ? " (__fish_complete_directories)" : "");
}

static calm_status add_command(calm_ctx *ctx, calm_text *out, const calm_command *command)
{
    const calm_option *options[CALM_COMMAND_OPTIONS];
    const size_t n = calm_command_options(command, options);
    calm_manual_offer offer;
    calm_text_printf(out, "complete -c calm -n __calm_no_command -f -a %s -d ", command->name);
    calm_manual_quote(out, command->summary, true);
    calm_text_printf(out, "\n");
    for (size_t i = 0; i < n; i++) {
        calm_text_printf(out, "complete -c calm -n '__calm_command %s' -l %s", command->name, options[i]->name);
        if (options[i]->key)
            calm_text_printf(out, " -s %c", options[i]->key);
        if (options[i]->type != CALM_OPTION_BOOL) {
            CALM_TRY(calm_manual_values(ctx, options[i], &offer));
            calm_text_printf(out, " -r");
            add_offer(out, &offer);
        }
        calm_text_printf(out, " -d ");
        calm_manual_quote(out, options[i]->help, true);
        calm_text_printf(out, "\n");
    }
    CALM_TRY(calm_manual_arguments(ctx, command, &offer));
    calm_text_printf(out, "complete -c calm -n '__calm_command %s'", command->name);
    add_offer(out, &offer);
    calm_text_printf(out, "\n");
    return CALM_OK;
}

calm_status calm_manual_fish(calm_ctx *ctx, calm_text *out)
{
    size_t n;
    const calm_command *const *commands = calm_commands(&n);
    calm_text_printf(out, "# fish completion for calm; written by calm_manual from the tables of options.\n"
                          "function __calm_command\n    set -l words (commandline -opc)\n"
                          "    test (count $words) -ge 2; and test $words[2] = $argv[1]\nend\n\n"
                          "function __calm_no_command\n    test (count (commandline -opc)) -eq 1\nend\n\n"
                          "complete -c calm -n __calm_no_command -f -l version "
                          "-d 'version, and which kernels compute'\n"
                          "complete -c calm -f -l help -d 'print the most used options and examples'\n"
                          "complete -c calm -n 'not __calm_no_command' -f -l help-all -d 'print all options'\n");
    for (size_t i = 0; i < n; i++)
        CALM_TRY(add_command(ctx, out, commands[i]));
    return CALM_OK;
}
