/* Parses command lines by option tables; the only file that includes argp.h. */
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/command.h"
#include "cli/help.h"
#include "cli/peers.h"
#include "cli/print.h"
#include "ptq/base/scope.h"
#include "ptq/quant/mix.h"

#define FIRST_KEY 1000    /* option i without a letter has key FIRST_KEY + i */

/* Options of every command that print and end the process. */
enum { KEY_HELP = '?', KEY_HELP_SHORT = 'h', KEY_HELP_ALL = 900, KEY_USAGE };

/* An option of the command line: one of the command's own, or one of the spec. */
typedef struct flag {
    const calm_option *option;
    void *into;       /* the struct that holds its field            */
    bool *given;      /* set when the option is given; NULL: unused */
} flag;

/* Input of argp's callback. */
typedef struct parse {
    calm_ctx *ctx;
    const calm_command *command;
    char *owner;      /* "calm quantize" */
    flag *flags;      /* [n_flags] */
    size_t n_flags;
    calm_words *args;
    const char *extra;    /* the first excess word */
    bool has_model;       /* --model was given     */
} parse;

/* Lists the command's options with the structs that they fill, and sets the structs to their defaults. */
static calm_status list_flags(calm_ctx *ctx, const calm_command *command, void *opts, parse *p)
{
    calm_recipe_spec *spec = (calm_recipe_spec *)((char *)opts + command->spec_at);
    const calm_option *options[CALM_COMMAND_OPTIONS];
    const size_t n_own = calm_options_count(command->options);
    p->n_flags = calm_command_options(command, options);
    CALM_TRY(CALM_NEW(ctx, ctx->out, p->flags, p->n_flags));
    if (command->spec != CALM_SPEC_NONE)
        CALM_TRY(calm_spec_init(ctx, spec));
    CALM_TRY(calm_options_init(ctx, command->options, opts));
    for (size_t i = 0; i < p->n_flags; i++)
        p->flags[i] = i < n_own ? (flag){options[i], opts, NULL}
                                : (flag){options[i], spec, &spec->given[options[i] - calm_spec_table]};
    return CALM_OK;
}

static const flag *by_key(const parse *p, int key)
{
    for (size_t i = 0; i < p->n_flags; i++)
        if (key == FIRST_KEY + (int)i || (p->flags[i].option->key && key == p->flags[i].option->key))
            return &p->flags[i];
    return NULL;
}

/* Prints help or usage and ends the process; if printing fails, the parser fails. */
static error_t print_and_leave(parse *p, int key, struct argp_state *state)
{
    if (key == KEY_USAGE)
        argp_state_help(state, stdout, ARGP_HELP_USAGE | ARGP_HELP_EXIT_OK);
    if (calm_help_print(p->ctx, p->command, key == KEY_HELP_ALL) == CALM_OK && fflush(stdout) == 0)
        exit(0);
    calm_fail(p->ctx, CALM_EIO, "standard output: cannot write");
    return 0;
}

static error_t parse_one(int key, char *value, struct argp_state *state)
{
    parse *p = state->input;
    const flag *found = by_key(p, key);
    if (found) {
        if (found->given)
            *found->given = true;
        p->has_model = p->has_model || strcmp(found->option->name, "model") == 0;
        calm_option_set_one(p->ctx, found->option, found->into, p->owner, value ? value : "true", false);
        return 0;
    }
    if (key == KEY_HELP || key == KEY_HELP_SHORT || key == KEY_HELP_ALL || key == KEY_USAGE)
        return print_and_leave(p, key, state);
    if (key != ARGP_KEY_ARG)
        return ARGP_ERR_UNKNOWN;
    if (p->args->n < p->command->max_args)
        p->args->of[p->args->n++] = value;
    else if (!p->extra)
        p->extra = value;
    return 0;
}

/* Makes argp's table from the command's. */
static calm_status make_options(calm_ctx *ctx, const parse *p, struct argp_option **out)
{
    static const struct argp_option builtin[] = {{.name = "help", .key = KEY_HELP},
                                                 {.key = KEY_HELP_SHORT},
                                                 {.name = "help-all", .key = KEY_HELP_ALL},
                                                 {.name = "usage", .key = KEY_USAGE}};
    CALM_TRY(CALM_NEW(ctx, ctx->out, *out, p->n_flags + sizeof builtin / sizeof *builtin + 1));
    for (size_t i = 0; i < p->n_flags; i++) {
        const calm_option *option = p->flags[i].option;
        struct argp_option *to = &(*out)[i];
        to->name = option->name;
        to->key = option->key ? option->key : FIRST_KEY + (int)i;
        to->arg = option->type == CALM_OPTION_BOOL ? NULL : calm_command_metavar(option);
    }
    memcpy(*out + p->n_flags, builtin, sizeof builtin);
    return CALM_OK;
}

/* Finds unknown long options before getopt, which would only say "unrecognized option", and names the nearest. */
static calm_status check_names(calm_ctx *ctx, const parse *p, int argc, char **argv)
{
    static const char *const builtin[] = {"help", "help-all", "usage"};
    const size_t n_builtin = sizeof builtin / sizeof *builtin, n = p->n_flags + n_builtin;
    const char **names;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, names, n));
    for (size_t i = 0; i < p->n_flags; i++)
        names[i] = p->flags[i].option->name;
    memcpy(names + p->n_flags, builtin, sizeof builtin);
    CALM_TRY(calm_peers_replace(ctx, p->owner, names, n, argc, argv));
    for (int a = 1; a < argc && strcmp(argv[a], "--") != 0; a++) {
        if (strncmp(argv[a], "--", 2) != 0)
            continue;
        char word[64];
        snprintf(word, sizeof word, "%.*s", (int)strcspn(argv[a] + 2, "="), argv[a] + 2);
        bool known = false;
        for (size_t i = 0; i < n && !known; i++)
            known = strncmp(names[i], word, strlen(word)) == 0;    /* getopt allows unique prefixes, and checks them */
        if (known)
            continue;
        const char *near = calm_nearest(word, names, n), *value = strchr(argv[a], '=');
        if (strcmp(word, "model") == 0 && p->command->max_args)    /* the command takes the model as a word */
            return calm_fail(ctx, CALM_EARG, "%s: there is no --model: the model is the first word; did you mean %s "
                             "%.200s?", p->owner, p->owner, value ? value + 1 : a + 1 < argc ? argv[a + 1] : "MODEL");
        return calm_fail(ctx, CALM_EARG, "%s: unknown option --%s%s%s%s", p->owner, word,
                         near ? "; did you mean --" : "; see --help", near ? near : "", near ? "?" : "");
    }
    return CALM_OK;
}

/* Returns the option, --output or -o, whose value is the next word; NULL: the word is no such option. */
static const calm_option *takes_next(const parse *p, const char *word)
{
    for (size_t i = 0; i < p->n_flags; i++) {
        const calm_option *option = p->flags[i].option;
        const bool is_long = strncmp(word, "--", 2) == 0 && strcmp(word + 2, option->name) == 0;
        const bool is_short = option->key && word[0] == '-' && word[1] == option->key && !word[2];
        if (option->type != CALM_OPTION_BOOL && (is_long || is_short))
            return option;
    }
    return NULL;
}

/* Refuses a last option without its value, for which getopt would print two lines. */
static calm_status check_last(calm_ctx *ctx, const parse *p, int argc, char **argv)
{
    int a = 1;
    while (a < argc - 1 && strcmp(argv[a], "--") != 0)
        a += takes_next(p, argv[a]) ? 2 : 1;
    const calm_option *last = a == argc - 1 ? takes_next(p, argv[a]) : NULL;
    return last ? calm_fail(ctx, CALM_EARG, "%s: %s has no value; expected %s %s", p->owner, argv[a], argv[a],
                            calm_command_metavar(last)) : CALM_OK;
}

static bool takes(const parse *p, const char *name)
{
    bool found = false;
    for (size_t i = 0; i < p->n_flags; i++)
        found = found || strcmp(p->flags[i].option->name, name) == 0;
    return found;
}

/* Returns the option whose value an excess word probably is: a type, as for llama-quantize, or the model if the
 * command takes it only as an option.  NULL: none. */
static const char *option_of_word(const parse *p)
{
    if (calm_mix_called(p->extra) && takes(p, "gguf-type"))
        return "gguf-type";
    return p->command->max_args == 0 && !p->has_model && takes(p, "model") ? "model" : NULL;
}

/* Refuses an excess word. */
static calm_status refuse_extra(calm_ctx *ctx, const parse *p)
{
    const char *option = p->extra ? option_of_word(p) : NULL;
    if (!p->extra)
        return CALM_OK;
    if (option)
        return calm_fail(ctx, CALM_EARG, "%s: unexpected word \"%s\"; did you mean --%s %s?", p->owner, p->extra,
                         option, p->extra);
    return calm_fail(ctx, CALM_EARG, "%s: unexpected word \"%s\"; see %s --help", p->owner, p->extra, p->owner);
}

/* Checks names of schemes before anything else. */
static calm_status check_schemes(calm_ctx *ctx, const calm_command *command, const void *opts)
{
    const calm_recipe_spec *spec = (const calm_recipe_spec *)((const char *)opts + command->spec_at);
    calm_scheme scheme;
    for (size_t i = 0; command->spec != CALM_SPEC_NONE && i < spec->schemes.n; i++)
        CALM_TRY(calm_scheme_parse(ctx, spec->schemes.of[i], &scheme));
    return CALM_OK;
}

/* Writes the command line with shell quotes. */
static calm_status quote_words(calm_ctx *ctx, int argc, char *const *argv, const char **out)
{
    CALM_SCOPED_TEXT(text);
    calm_text_printf(&text, "calm");
    for (int i = 0; i < argc; i++) {
        calm_text_printf(&text, " ");
        calm_print_word(&text, argv[i]);
    }
    return calm_text_take(ctx, ctx->out, &text, out, NULL);
}

calm_status calm_args_parse(calm_ctx *ctx, const calm_command *command, int argc, char **argv, void *opts)
{
    struct argp_option *options;
    calm_common *common = opts;
    parse p = {.ctx = ctx, .command = command, .args = &common->args};
    CALM_TRY(calm_strf(ctx, ctx->out, &p.owner, "calm %s", command->name));
    CALM_TRY(list_flags(ctx, command, opts, &p));
    CALM_TRY(CALM_NEW(ctx, ctx->out, common->args.of, command->max_args + 1));
    CALM_TRY(quote_words(ctx, argc, argv, &common->command));
    CALM_TRY(make_options(ctx, &p, &options));
    CALM_TRY(check_names(ctx, &p, argc, argv));
    CALM_TRY(check_last(ctx, &p, argc, argv));
    const struct argp argp = {.options = options, .parser = parse_one, .args_doc = command->arguments};
    argv[0] = p.owner;
    argp_err_exit_status = 2;
    if (argp_parse(&argp, argc, argv, ARGP_NO_HELP, NULL, &p) != 0 && ctx->status == CALM_OK)
        return calm_fail(ctx, CALM_EARG, "%s: cannot parse the command line", p.owner);
    CALM_TRY(ctx->status);
    CALM_TRY(refuse_extra(ctx, &p));
    CALM_TRY(check_schemes(ctx, command, opts));
    if (common->args.n < command->min_args)
        return calm_fail(ctx, CALM_EARG, "%s: expected %s; see %s --help", p.owner, command->arguments, p.owner);
    return ctx->status;
}
