/* Manual pages, with the macros of man(7). */
#include <stdio.h>
#include <string.h>

#include "cli/manual/manual.h"

/* Appends a text: `words` in backquotes become bold; no line begins with a macro. */
static void add_text(calm_text *out, const char *text)
{
    bool bold = false, begins = true;
    for (const char *at = text; *at; at++) {
        if (begins && (*at == '.' || *at == '\''))
            calm_text_printf(out, "\\&");
        begins = *at == '\n';
        if (*at == '`')
            calm_text_printf(out, (bold = !bold) ? "\\fB" : "\\fR");
        else if (*at == '-')
            calm_text_printf(out, "\\-");
        else if (*at == '\\')
            calm_text_printf(out, "\\e");
        else if (strncmp(at, ".  ", 3) == 0) {    /* roff needs the end of a sentence at the end of a line */
            calm_text_printf(out, ".\n");
            at += 2;
            begins = true;
        } else
            calm_text_append(out, at, 1);
    }
    calm_text_printf(out, bold ? "\\fR" : "");
}

/* Appends the title and the sections before the options. */
static void add_head(calm_text *out, const char *name, const char *summary, const char *date)
{
    calm_text_printf(out, ".\\\" Written by calm_manual from the tables of options.\n.TH ");
    for (const char *at = name; *at; at++)
        calm_text_printf(out, "%c", *at >= 'a' && *at <= 'z' ? *at - 'a' + 'A' : *at);
    calm_text_printf(out, " 1 %s \"calm %s\" \"calm manual\"\n.SH NAME\n", date, CALM_VERSION);
    add_text(out, name);
    calm_text_printf(out, " \\- ");
    add_text(out, summary);
    calm_text_printf(out, "\n.SH SYNOPSIS\n");
}

/* Appends the exit statuses, which are the same for all commands. */
static void add_exit_status(calm_text *out)
{
    calm_text_printf(out, ".SH EXIT STATUS\n"
                          ".TP\n.B 0\ndone\n.TP\n.B 1\nit could not be done; standard error says why\n"
                          ".TP\n.B 2\nwrong words on the command line, or in a recipe\n"
                          ".TP\n.B 3\nsomething is not as a lock says, or a gate does not hold\n");
}

static void add_option(calm_text *out, const calm_option *option)
{
    const char *fallback = calm_command_default(option);
    calm_text_printf(out, ".TP\n");
    if (option->key)
        calm_text_printf(out, "\\fB\\-%c\\fR, ", option->key);
    calm_text_printf(out, "\\fB\\-\\-");
    add_text(out, option->name);
    calm_text_printf(out, "\\fR");
    if (option->type != CALM_OPTION_BOOL) {
        calm_text_printf(out, "=\\fI");
        add_text(out, calm_command_metavar(option));
        calm_text_printf(out, "\\fR");
    }
    calm_text_printf(out, "\n");
    add_text(out, option->help);
    if (*fallback) {
        calm_text_printf(out, " (default ");
        add_text(out, fallback);
        calm_text_printf(out, ")");
    }
    calm_text_printf(out, "\n");
}

static void add_options(calm_text *out, const calm_command *command)
{
    static const calm_option help = {.name = "help", .help = "print the options that people use most, and examples",
                                     .key = '?'};
    static const calm_option help_all = {.name = "help-all", .help = "print all options"};
    const calm_option *options[CALM_COMMAND_OPTIONS];
    const size_t n = calm_command_options(command, options);
    size_t group = 0;
    calm_command_sort(command, options, n);
    calm_text_printf(out, ".SH OPTIONS\n");
    for (size_t i = 0; i < n; i++) {
        const size_t next = calm_command_group(command, options[i]);
        if (next != group) {
            calm_text_printf(out, ".SS ");
            const char *heading = calm_command_heading(next);
            calm_text_printf(out, "%.*s\n", (int)strcspn(heading, ":"), heading);
        }
        group = next;
        add_option(out, options[i]);
    }
    add_option(out, &help);
    add_option(out, &help_all);
}

void calm_manual_command(calm_text *out, const calm_command *command, const char *date)
{
    char name[64];
    const char *words = command->arguments ? command->arguments : "";
    snprintf(name, sizeof name, "calm-%s", command->name);
    add_head(out, name, command->summary, date);
    for (size_t n; ; words += n + 1) {    /* a line for each line of the arguments */
        n = strcspn(words, "\n");
        calm_text_printf(out, "%s\\fBcalm %s\\fR ", words == command->arguments || !command->arguments ? "" : ".br\n",
                         command->name);
        calm_text_printf(out, "%.*s%s[\\fIOPTION\\fR...]\n", (int)n, words, n ? " " : "");
        if (!words[n])
            break;
    }
    calm_text_printf(out, ".SH DESCRIPTION\n");
    add_text(out, command->description ? command->description : command->summary);
    calm_text_printf(out, "\n");
    add_options(out, command);
    if (command->examples) {
        calm_text_printf(out, ".SH EXAMPLES\n.nf\n");
        add_text(out, command->examples);
        calm_text_printf(out, "%s.fi\n", calm_text_ends_with(command->examples, "\n") ? "" : "\n");
    }
    add_exit_status(out);
    calm_text_printf(out, ".SH SEE ALSO\n.BR calm (1)\n");
}

void calm_manual_program(calm_text *out, const char *date)
{
    static const char *const variables[][2] = {
        {"CALM_HOME", "folder that holds recipes/, instead of the installed one or the source tree"},
        {"OPENBLAS_CORETYPE", "family of OpenBLAS's kernels, where neither recipe nor lock nor --kernels names one"},
        {"HF_HOME, HF_HUB_CACHE, HF_TOKEN, HF_ENDPOINT, HF_HUB_OFFLINE",
         "as the Hugging Face hub's own tools read them"},
        {"NO_COLOR, TERM", "colours are left out where NO_COLOR is set or TERM is dumb"},
    };
    size_t n;
    const calm_command *const *commands = calm_commands(&n);
    add_head(out, "calm", "post-training quantization of language models, the best algorithm chosen per layer", date);
    calm_text_printf(out, "\\fBcalm\\fR \\fICOMMAND\\fR [\\fIOPTION\\fR...]\n.SH DESCRIPTION\n"
                          "calm takes a checkpoint of Hugging Face and writes a smaller one that transformers, vLLM, "
                          "SGLang, llama.cpp or MLX load.\nSeveral algorithms run on every layer, each is scored on "
                          "calibration text, and the best is taken; the evidence is in a SQLite file, from which an "
                          "interrupted run continues.\n.SH COMMANDS\n"
                          "Each has its own page, \\fBcalm\\-\\fICOMMAND\\fR(1).\n");
    for (size_t i = 0; i < n; i++) {
        calm_text_printf(out, ".TP\n.B %s\n", commands[i]->name);
        add_text(out, commands[i]->summary);
        calm_text_printf(out, "\n");
    }
    calm_text_printf(out, ".SH EXAMPLES\n.nf\n  calm quantize \\-\\-model qwen \\-\\-bits 4\n"
                          "  calm inspect why 1 \\-\\-unit 0.down\n.fi\n.SH ENVIRONMENT\n");
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        calm_text_printf(out, ".TP\n.B %s\n", variables[i][0]);
        add_text(out, variables[i][1]);
        calm_text_printf(out, "\n");
    }
    calm_text_printf(out, ".SH FILES\n.TP\n.I calm\\-out/calm.db\n"
                          "the store: candidates, scores and choices of all runs\n");
    add_exit_status(out);
    calm_text_printf(out, ".SH SEE ALSO\n");
    for (size_t i = 0; i < n; i++)
        calm_text_printf(out, ".BR calm\\-%s (1)%s\n", commands[i]->name, i + 1 < n ? "," : "");
}
