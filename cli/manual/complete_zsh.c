/* Completion for zsh: calls _arguments for every command. */
#include <string.h>

#include "cli/manual/manual.h"

/* Appends a text for single quotes, with a backslash before characters that _arguments interprets. */
static void add_escaped(calm_text *out, const char *text)
{
    for (const char *at = text; *at; at++)
        calm_text_printf(out, *at == '\'' ? "'\\''" : strchr("[]:\\", *at) ? "\\%c" : "%c", *at);
}

/* Appends the action after a message.  zsh calls an action that begins with a space with only its own words. */
static void add_action(calm_text *out, const calm_manual_offer *offer)
{
    if (!offer->words.n) {
        calm_text_printf(out, offer->folders ? "_files -/" : offer->files ? "_files" : " ");
        return;
    }
    calm_text_printf(out, " _calm_offer %s", offer->folders ? "folders" : offer->files ? "files" : "words");
    for (size_t i = 0; i < offer->words.n; i++)
        calm_text_printf(out, " %s", offer->words.of[i]);
}

static calm_status add_option(calm_ctx *ctx, calm_text *out, const calm_option *option)
{
    calm_manual_offer offer;
    const bool value = option->type != CALM_OPTION_BOOL;
    if (option->key)    /* short and long form exclude each other */
        calm_text_printf(out, "        '(-%c --%s)'{-%c%s,--%s%s}'[", option->key, option->name, option->key,
                         value ? "+" : "", option->name, value ? "=" : "");
    else
        calm_text_printf(out, "        '--%s%s[", option->name, value ? "=" : "");
    add_escaped(out, option->help);
    calm_text_printf(out, "]");
    if (value) {
        calm_text_printf(out, ":");
        add_escaped(out, calm_command_metavar(option));
        calm_text_printf(out, ":");
        CALM_TRY(calm_manual_values(ctx, option, &offer));
        add_action(out, &offer);
    }
    calm_text_printf(out, "' \\\n");
    return CALM_OK;
}

static calm_status add_command(calm_ctx *ctx, calm_text *out, const calm_command *command)
{
    const calm_option *options[CALM_COMMAND_OPTIONS];
    const size_t n = calm_command_options(command, options);
    calm_manual_offer offer;
    calm_text_printf(out, "    %s) _arguments -S \\\n", command->name);
    for (size_t i = 0; i < n; i++)
        CALM_TRY(add_option(ctx, out, options[i]));
    calm_text_printf(out, "        '--help[print the most used options]' '--help-all[print all options]'");
    if (command->arguments) {
        CALM_TRY(calm_manual_arguments(ctx, command, &offer));
        calm_text_printf(out, " '*:argument:");
        add_action(out, &offer);
        calm_text_printf(out, "'");
    }
    calm_text_printf(out, " ;;\n");
    return CALM_OK;
}

calm_status calm_manual_zsh(calm_ctx *ctx, calm_text *out)
{
    size_t n;
    const calm_command *const *commands = calm_commands(&n);
    calm_text_printf(out, "#compdef calm\n# Written by calm_manual from the tables of options.\n"
                          "_calm_offer()    # words|files|folders WORD...\n{\n"
                          "    local way=$1\n    shift\n    compadd -- \"$@\"\n"
                          "    case $way in files) _files ;; folders) _files -/ ;; esac\n}\n\n"
                          "_calm()\n{\n    local curcontext=$curcontext state line\n    typeset -A opt_args\n"
                          "    if ((CURRENT == 2)); then\n        local -a commands=(\n");
    for (size_t i = 0; i < n; i++) {
        calm_text_printf(out, "            '%s:", commands[i]->name);
        add_escaped(out, commands[i]->summary);
        calm_text_printf(out, "'\n");
    }
    calm_text_printf(out, "        )\n        _describe -t commands 'calm command' commands\n        return\n    fi\n"
                          "    shift words\n    ((CURRENT--))\n    case ${words[1]} in\n");
    for (size_t i = 0; i < n; i++)
        CALM_TRY(add_command(ctx, out, commands[i]));
    calm_text_printf(out, "    esac\n}\n\n_calm \"$@\"\n");
    return CALM_OK;
}
