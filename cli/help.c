/* Prints the help of a command from its option table. */
#include "cli/help.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/print.h"
#include "ptq/base/scope.h"

#define WIDTH_MAX 79
#define WIDTH_MIN 41
#define COLUMN 25    /* first column of the options' texts */

static size_t help_width(void)
{
    const size_t columns = calm_terminal_columns(STDOUT_FILENO);
    return columns > WIDTH_MAX ? WIDTH_MAX : columns <= WIDTH_MIN ? WIDTH_MIN : columns - 1;
}

/* Appends n bytes of text, broken at spaces into lines of `width` columns: the first line begins at column `at`, the
 * others at `indent`.  Spaces within a line stay. */
static void add_wrapped(calm_text *out, const char *text, size_t n, size_t at, size_t indent, size_t width)
{
    for (size_t i = 0; i < n;) {
        const size_t spaces = strspn(text + i, " ");
        const size_t word = strcspn(text + i + spaces, " \n");
        if (i + spaces >= n)
            break;
        if (at > indent && at + spaces + word > width) {
            calm_text_printf(out, "\n%*s%.*s", (int)indent, "", (int)word, text + i + spaces);
            at = indent + word;
        } else {
            calm_text_printf(out, "%.*s", (int)(spaces + word), text + i);
            at += spaces + word;
        }
        i += spaces + word;
    }
    calm_text_printf(out, "\n");
}

/* Appends every line of a text of n bytes. */
static void add_lines(calm_text *out, const char *text, size_t n, size_t indent, size_t width)
{
    for (size_t at = 0, line; at < n; at += line + 1) {
        line = strcspn(text + at, "\n");
        add_wrapped(out, text + at, line, 0, indent, width);
    }
}

static size_t count_lines(const calm_text *text)
{
    size_t n = 0;
    for (size_t i = 0; i < text->length; i++)
        n += text->data[i] == '\n';
    return n;
}

/* Appends "Usage: calm select [OPTION...] RUN", with a line for each line of the arguments. */
static void add_usage(calm_text *out, const calm_command *command, size_t width)
{
    const char *words = command->arguments ? command->arguments : "";
    for (const char *before = "Usage:";; before = "  or: ") {
        const size_t n = strcspn(words, "\n");
        char line[512];
        snprintf(line, sizeof line, "%s calm %s [OPTION...]%s%.*s", before, command->name, n ? " " : "", (int)n, words);
        add_wrapped(out, line, strlen(line), 0, 12, width);
        if (!words[n])
            return;
        words += n + 1;
    }
}

/* "  -t, --target=any|vllm|...": a list of values wider than the screen breaks after a value. */
static void add_head(calm_text *out, const char *head, size_t width)
{
    const size_t indent = 8;
    size_t at = 0;
    for (size_t n; *head; head += n) {
        n = strcspn(head, "|");
        n += head[n] == '|';
        if (at && at + n > width) {
            calm_text_printf(out, "\n%*s", (int)indent, "");
            at = indent;
        }
        calm_text_printf(out, "%.*s", (int)n, head);
        at += n;
    }
}

static void add_option(calm_text *out, const calm_option *option, size_t width)
{
    const char *fallback = calm_command_default(option);
    const bool value = option->type != CALM_OPTION_BOOL;
    char head[256], text[1024];
    const char letter[] = {option->key ? '-' : ' ', option->key ? option->key : ' ', option->key ? ',' : ' ', 0};
    snprintf(head, sizeof head, "  %s --%s%s%s", letter, option->name, value ? "=" : "",
             value ? calm_command_metavar(option) : "");
    snprintf(text, sizeof text, "%s%s%s%s", option->help, fallback[0] ? " (default " : "", fallback,
             fallback[0] ? ")" : "");
    const size_t length = strlen(head);
    const bool fits = length + 2 <= COLUMN;
    add_head(out, head, width);
    calm_text_printf(out, "%s%*s", fits ? "" : "\n", fits ? (int)(COLUMN - length) : COLUMN, "");
    add_wrapped(out, text, strlen(text), COLUMN, COLUMN, width);
}

/* Appends the options: with `all` every option under headings, else those marked `basic`. */
static void add_options(calm_text *out, const calm_command *command, bool all, size_t width)
{
    static const calm_option help = {.name = "help", .help = "print this help", .key = '?'},
                             help_all = {.name = "help-all", .help = "print all options"};
    const calm_option *options[CALM_COMMAND_OPTIONS];
    const size_t n = calm_command_options(command, options);
    size_t group = 0;
    calm_command_sort(command, options, n);
    for (size_t i = 0; i < n; i++) {
        const size_t next = calm_command_group(command, options[i]);
        if (!all && !options[i]->basic)
            continue;
        if (all && next != group)
            calm_text_printf(out, "%s %s\n", i ? "\n" : "", calm_command_heading(next));
        group = next;
        add_option(out, options[i], width);
    }
    if (all && group)
        calm_text_printf(out, "\n");
    add_option(out, &help, width);
    add_option(out, &help_all, width);
}

/* Appends the examples.  Unless `all`, paragraphs after the first empty line appear only if the screen has room. */
static void add_examples(calm_text *out, const char *text, bool all, size_t width)
{
    const char *before = "\nExamples:\n";
    for (size_t n; *text; text += n) {
        const char *end = strstr(text, "\n\n");
        n = end ? (size_t)(end + 2 - text) : strlen(text);
        CALM_SCOPED_TEXT(paragraph);
        add_lines(&paragraph, text, end ? n - 1 : n, 4, width);
        if (!all && before[1] == 0 && count_lines(out) + 1 + count_lines(&paragraph) > CALM_HELP_LINES)
            return;
        calm_text_printf(out, "%s%s", before, paragraph.data ? paragraph.data : "");
        before = "\n";
    }
}

static void write_help(calm_text *out, const calm_command *command, bool all, size_t width)
{
    const char *about = all && command->description ? command->description : command->summary;
    add_usage(out, command, width);
    add_lines(out, about, strlen(about), 0, width);
    calm_text_printf(out, "\n");
    add_options(out, command, all, width);
    add_examples(out, command->examples, all, width);
}

calm_status calm_help_print(calm_ctx *ctx, const calm_command *command, bool all)
{
    const size_t width = help_width();
    CALM_SCOPED_TEXT(text);
    write_help(&text, command, true, width);
    CALM_TRY(calm_text_check(ctx, &text));
    if (!all && count_lines(&text) > CALM_HELP_LINES) {
        calm_text_clear(&text);
        write_help(&text, command, false, width);
    }
    return calm_print_text(ctx, &text);
}
