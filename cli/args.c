/* Command lines from option tables; the one user of argp.h. */
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/command.h"
#include "cli/print.h"
#include "ptq/base/scope.h"

#define FIRST_KEY 1000    /* option i without a letter has key FIRST_KEY + i */

/* An option of the command line: one of the command's own, or one of the spec. */
typedef struct flag {
    const calm_option *option;
    void *into;       /* the struct of its field                 */
    bool *given;      /* set when it is; NULL: of no interest    */
} flag;

/* What argp's callback needs. */
typedef struct parse {
    calm_ctx *ctx;
    const calm_command *command;
    char *owner;      /* "calm quantize" */
    flag *flags;      /* [n_flags] */
    size_t n_flags;
    calm_words *args;
} parse;

/* The command's options with the structs that they fill, both set to their defaults. */
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

static error_t parse_one(int key, char *value, struct argp_state *state)
{
    parse *p = state->input;
    const flag *found = by_key(p, key);
    if (found) {
        if (found->given)
            *found->given = true;
        calm_option_set_one(p->ctx, found->option, found->into, p->owner, value ? value : "true", false);
        return 0;
    }
    if (key != ARGP_KEY_ARG)
        return ARGP_ERR_UNKNOWN;
    if (p->args->n == p->command->max_args)
        calm_fail(p->ctx, CALM_EARG, "%s: unexpected word \"%s\"; see %s --help", p->owner, value, p->owner);
    else
        p->args->of[p->args->n++] = value;
    return 0;
}

/* argp's own table, from ours, with a heading for each group of options. */
static calm_status make_options(calm_ctx *ctx, const parse *p, struct argp_option **out)
{
    size_t n_groups = 0;
    while (calm_command_heading(n_groups + 1))
        n_groups++;
    CALM_TRY(CALM_NEW(ctx, ctx->out, *out, p->n_flags + n_groups + 1));
    for (size_t i = 0; i < p->n_flags; i++) {
        const calm_option *option = p->flags[i].option;
        struct argp_option *to = &(*out)[i];
        const char *fallback = calm_command_default(option);
        to->name = option->name;
        to->key = option->key ? option->key : FIRST_KEY + (int)i;
        to->arg = option->type == CALM_OPTION_BOOL ? NULL : option->metavar ? option->metavar : "VALUE";
        to->group = (int)calm_command_group(p->command, option);
        CALM_TRY(calm_strf(ctx, ctx->out, &to->doc, "%s%s%s%s", option->help, fallback[0] ? " (default " : "", fallback,
                           fallback[0] ? ")" : ""));
    }
    for (size_t group = 1, n = p->n_flags; group <= n_groups; group++)
        for (size_t i = 0; i < p->n_flags; i++)
            if (calm_command_group(p->command, p->flags[i].option) == group) {
                (*out)[n++] = (struct argp_option){.doc = calm_command_heading(group), .group = (int)group};
                break;
            }
    return CALM_OK;
}

/* getopt would say no more than "unrecognized option": find unknown long options first and name the nearest. */
static calm_status check_names(calm_ctx *ctx, const parse *p, int argc, char **argv)
{
    static const char *const builtin[] = {"help", "usage"};
    const size_t n = p->n_flags, n_builtin = sizeof builtin / sizeof *builtin;
    const char **names;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, names, n + n_builtin));
    for (size_t i = 0; i < n; i++)
        names[i] = p->flags[i].option->name;
    memcpy(names + n, builtin, sizeof builtin);
    for (int a = 1; a < argc && strcmp(argv[a], "--") != 0; a++) {
        if (strncmp(argv[a], "--", 2) != 0)
            continue;
        char word[64];
        snprintf(word, sizeof word, "%.*s", (int)strcspn(argv[a] + 2, "="), argv[a] + 2);
        bool known = false;
        for (size_t i = 0; i < n + n_builtin && !known; i++)
            known = strncmp(names[i], word, strlen(word)) == 0;    /* unique beginnings are allowed, getopt checks */
        if (known)
            continue;
        const char *near = calm_nearest(word, names, n + n_builtin);
        return calm_fail(ctx, CALM_EARG, "%s: unknown option --%s%s%s%s", p->owner, word,
                         near ? "; did you mean --" : "; see --help", near ? near : "", near ? "?" : "");
    }
    return CALM_OK;
}

/* The command line as a shell would read it again. */
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

/* Help as wide as the terminal, where that is narrower than argp's 79 columns. */
static void fit_help(void)
{
    char format[32];
    const size_t columns = calm_terminal_columns(STDOUT_FILENO);
    snprintf(format, sizeof format, "rmargin=%zu", columns > 42 ? columns - 1 : 41);    /* 12 for texts at least */
    if (columns < 80)
        setenv("ARGP_HELP_FMT", format, 0);
}

calm_status calm_args_parse(calm_ctx *ctx, const calm_command *command, int argc, char **argv, void *opts)
{
    struct argp_option *options;
    char *doc;
    calm_common *common = opts;
    parse p = {.ctx = ctx, .command = command, .args = &common->args};
    CALM_TRY(calm_strf(ctx, ctx->out, &p.owner, "calm %s", command->name));
    CALM_TRY(list_flags(ctx, command, opts, &p));
    CALM_TRY(CALM_NEW(ctx, ctx->out, common->args.of, command->max_args + 1));
    CALM_TRY(quote_words(ctx, argc, argv, &common->command));
    CALM_TRY(make_options(ctx, &p, &options));
    CALM_TRY(check_names(ctx, &p, argc, argv));
    CALM_TRY(calm_strf(ctx, ctx->out, &doc, "%s\vExamples:\n%s", command->description, command->examples));
    const struct argp argp = {options, parse_one, command->arguments, doc, NULL, NULL, NULL};
    argv[0] = p.owner;
    argp_err_exit_status = 2;
    fit_help();
    if (argp_parse(&argp, argc, argv, 0, NULL, &p) != 0 && ctx->status == CALM_OK)
        return calm_fail(ctx, CALM_EARG, "%s: cannot parse the command line", p.owner);
    if (ctx->status == CALM_OK && common->args.n < command->min_args)
        return calm_fail(ctx, CALM_EARG, "%s: expected %s; see %s --help", p.owner, command->arguments, p.owner);
    return ctx->status;
}
