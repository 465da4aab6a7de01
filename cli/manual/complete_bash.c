/* Completion for bash: one case per command and option; it works without the package bash-completion. */
#include "cli/manual/manual.h"

static void add_words(calm_text *out, const calm_words *words)
{
    for (size_t i = 0; i < words->n; i++)
        calm_text_printf(out, "%s%s", i ? " " : "", words->of[i]);
}

/* Appends `_calm_offer WAY 'words'`: WAY is words, files or folders. */
static void add_offer(calm_text *out, const calm_manual_offer *offer)
{
    calm_text_printf(out, "_calm_offer %s '", offer->folders ? "folders" : offer->files ? "files" : "words");
    add_words(out, &offer->words);
    calm_text_printf(out, "'");
}

static calm_status add_command(calm_ctx *ctx, calm_text *out, const calm_command *command)
{
    const calm_option *options[CALM_COMMAND_OPTIONS];
    const size_t n = calm_command_options(command, options);
    calm_manual_offer offer;
    calm_text_printf(out, "    %s)\n        case $prev in\n", command->name);
    for (size_t i = 0; i < n; i++) {
        if (options[i]->type == CALM_OPTION_BOOL)
            continue;
        CALM_TRY(calm_manual_values(ctx, options[i], &offer));
        calm_text_printf(out, "        --%s", options[i]->name);
        if (options[i]->key)
            calm_text_printf(out, " | -%c", options[i]->key);
        calm_text_printf(out, ") ");
        add_offer(out, &offer);
        calm_text_printf(out, "; return ;;\n");
    }
    calm_text_printf(out, "        esac\n        if [[ $cur == -* ]]; then _calm_offer words '");
    for (size_t i = 0; i < n; i++)
        calm_text_printf(out, "--%s ", options[i]->name);
    calm_text_printf(out, "--help --help-all'; return; fi\n        ");
    CALM_TRY(calm_manual_arguments(ctx, command, &offer));
    add_offer(out, &offer);
    calm_text_printf(out, " ;;\n");
    return CALM_OK;
}

calm_status calm_manual_bash(calm_ctx *ctx, calm_text *out)
{
    size_t n;
    const calm_command *const *commands = calm_commands(&n);
    calm_text_printf(out,
                     "# bash completion for calm; written by calm_manual from the tables of options.\n"
                     "_calm_offer()    # words|files|folders 'words'\n{\n"
                     "    mapfile -t COMPREPLY < <(compgen -W \"$2\" -- \"$cur\")\n"
                     "    case $1 in\n"
                     "    files) mapfile -t -O \"${#COMPREPLY[@]}\" COMPREPLY < <(compgen -f -- \"$cur\") ;;\n"
                     "    folders) mapfile -t -O \"${#COMPREPLY[@]}\" COMPREPLY < <(compgen -d -- \"$cur\") ;;\n"
                     "    *) return ;;\n    esac\n"
                     "    compopt -o filenames 2>/dev/null\n}\n\n"
                     "_calm()\n{\n"
                     "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
                     "    COMPREPLY=()\n"
                     "    # --option=value comes as three words\n"
                     "    if [[ $cur == = ]]; then cur=\n"
                     "    elif [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
                     "    if ((COMP_CWORD == 1)); then _calm_offer words '");
    for (size_t i = 0; i < n; i++)
        calm_text_printf(out, "%s ", commands[i]->name);
    calm_text_printf(out, "--help --version'; return; fi\n    case ${COMP_WORDS[1]} in\n");
    for (size_t i = 0; i < n; i++)
        CALM_TRY(add_command(ctx, out, commands[i]));
    calm_text_printf(out, "    esac\n}\ncomplete -F _calm calm\n");
    return CALM_OK;
}
