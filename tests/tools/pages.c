/* pages: makes the parts of docs/ that repeat tables of the program.
 *
 *   commands   docs/commands.md   options of every command (cli/cmd_*.c, ptq/recipe/spec.c)
 *   keys       docs/recipes.md    keys of a recipe (ptq/recipe/document_shape.c)
 *   rules      docs/check.md      rules of calm check (ptq/check/rules.def)
 *   metrics    docs/method.md     scores of an output (cka/cka.h)
 *   algorithms docs/method.md     named chains (algorithms/presets.def)
 *   python     python/calm_ptq/_quantize.pyi   keywords of quantize (ptq/recipe/spec.c)
 *   keywords   python/calm_ptq/_keywords.py    their names in messages
 *
 * Without --update it compares the page with the table and reports the first line that differs. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "algorithms/algorithm.h"
#include "cka/cka.h"
#include "cli/command.h"
#include "ptq/check/check_rules.h"
#include "ptq/recipe/document_shape.h"
#include "ptq/recipe/spec.h"
#include "tests/tools/page.h"
#include "tests/tools/tool.h"

typedef struct arguments {
    calm_common common;
    const char *page, *docs;
    bool update;
} arguments;

static const calm_option table[] = {
    {"page", "which table: commands, keys, rules, metrics, algorithms, python, keywords", offsetof(arguments, page),
     CALM_OPTION_STRING, .metavar = "NAME"},
    {"docs", "file of the page", offsetof(arguments, docs), CALM_OPTION_STRING, .metavar = "FILE"},
    {"update", "write the part of the page anew", offsetof(arguments, update), CALM_OPTION_BOOL, .metavar = NULL},
    {0}};

/* ---- commands ---- */

typedef arguments options;    /* the name that cli/command.h's macros use */
static const calm_option common[] = {CALM_OPT_COMMON, {0}};

/* Is an option the same in every command?  The page lists it once. */
static bool is_common(const calm_option *option)
{
    const calm_option *same = calm_option_find(common, option->name);
    return same && strcmp(same->help, option->help) == 0;
}

static void add_option(calm_text *out, const calm_option *option)
{
    const char *fallback = calm_command_default(option);
    calm_text_printf(out, "| `--%s", option->name);
    if (option->type != CALM_OPTION_BOOL) {
        calm_text_printf(out, " ");
        page_cell(out, option->metavar ? option->metavar : "VALUE");
    }
    calm_text_printf(out, "`");
    if (option->key)
        calm_text_printf(out, ", `-%c`", option->key);
    calm_text_printf(out, " | ");
    page_cell(out, option->help);
    if (*fallback)
        calm_text_printf(out, " (default %s)", fallback);
    calm_text_printf(out, " |\n");
}

/* Appends a table of those options that are not common; nothing if there are none. */
static void add_options(calm_text *out, const calm_option *rows, size_t n)
{
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        if (is_common(&rows[i]) && rows != common)
            continue;
        calm_text_printf(out, any ? "" : "| option | meaning |\n|---|---|\n");
        any = true;
        add_option(out, &rows[i]);
    }
    calm_text_printf(out, any ? "\n" : "");
}

/* Appends the usage of a command: one line per line of its arguments. */
static void add_usage(calm_text *out, const calm_command *command)
{
    const char *words = command->arguments ? command->arguments : "";
    calm_text_printf(out, "```\n");
    for (size_t n; ; words += n + 1) {
        n = strcspn(words, "\n");
        calm_text_printf(out, "calm %s%s%.*s [OPTION...]\n", command->name, n ? " " : "", (int)n, words);
        if (!words[n])
            break;
    }
    calm_text_printf(out, "%s%s```\n\n", command->examples ? "\n" : "", command->examples ? command->examples : "");
}

static void add_command(calm_text *out, const calm_command *command)
{
    calm_text_printf(out, "## %s\n\n", command->name);
    page_cell(out, command->description ? command->description : command->summary);
    calm_text_printf(out, "\n\n");
    add_usage(out, command);
    add_options(out, command->options, calm_options_count(command->options));
    if (command->spec != CALM_SPEC_NONE)
        calm_text_printf(out, "The options of a run that concern %s apply too.\n\n",
                         command->spec == CALM_SPEC_ALL ? "[candidates](#candidates) and the [result](#result)"
                                                        : "[candidates](#candidates)");
}

static calm_status write_commands(calm_ctx *ctx, calm_text *out)
{
    (void)ctx;
    calm_text_printf(out, "## Every command\n\n");
    add_options(out, common, calm_options_count(common));
    size_t n;
    const calm_command *const *commands = calm_commands(&n);
    for (size_t i = 0; i < n; i++)
        add_command(out, commands[i]);
    calm_text_printf(out, "## Candidates\n\n"
                          "Options of `quantize`, `recipe init`, `ablate` and `bench cluster` (without "
                          "`--tokens`).\n\n");
    add_options(out, calm_spec_table, calm_spec_shared());
    calm_text_printf(out, "## Result\n\nOptions of `quantize` and `recipe init`.\n\n");
    add_options(out, calm_spec_table + calm_spec_shared(), calm_options_count(calm_spec_table) - calm_spec_shared());
    return CALM_OK;
}

/* ---- keys of a recipe ---- */

static calm_status write_keys(calm_ctx *ctx, calm_text *out)
{
    size_t n;
    const calm_document_row *rows = calm_document_rows(&n);
    (void)ctx;
    calm_text_printf(out, "| key | flag | meaning |\n|---|---|---|\n");
    for (size_t i = 0; i < n; i++) {
        const calm_option *option = calm_document_option(&rows[i]);
        calm_text_printf(out, "| `%s` | ", rows[i].place);
        if (option)
            calm_text_printf(out, "`--%s` ", option->name);
        calm_text_printf(out, "| ");
        page_cell(out, rows[i].help ? rows[i].help : option->help);
        calm_text_printf(out, " |\n");
    }
    return CALM_OK;
}

/* ---- rules of the check ---- */

/* Headings above rules, by the beginning of their names. */
static const struct {
    const char *begins, *heading;
} sections[] = {
    {"ST", "Files of safetensors"}, {"MD", "The model"}, {"CT", "compressed-tensors"},
    {"TE", "Tensors of quantized modules"}, {"FU", "What engines fuse"}, {"GQ", "GPTQ"},
    {"AW", "AWQ"}, {"MX", "MLX"}, {"GG", "GGUF"},
    {"KV", "The KV cache"}, {"VA", "Values"}, {"TG", "What one engine takes"},
};

static const char *heading_of(const char *id)
{
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        if (strncmp(sections[i].begins, id, 2) == 0)
            return sections[i].heading;
    return NULL;
}

static calm_status write_rules(calm_ctx *ctx, calm_text *out)
{
    size_t n;
    const calm_check_rule_info *rules = calm_check_rules(&n);
    for (size_t i = 0; i < n; i++) {
        char engines[64];
        const char *heading = heading_of(rules[i].id);
        if (!heading)
            return calm_fail(ctx, CALM_EFORMAT, "rule %s: no heading begins with these letters", rules[i].id);
        if (i == 0 || strncmp(rules[i].id, rules[i - 1].id, 2) != 0)
            calm_text_printf(out,
                             "%s### %s\n\n| rule | severity | engines | what is wrong | what engines do | what to do "
                             "|\n|---|---|---|---|---|---|\n",
                             i == 0 ? "" : "\n", heading);
        calm_text_printf(out, "| %s | %s | %s%s | ", rules[i].id, calm_severity_name(rules[i].severity),
                         calm_check_engines(rules[i].engines, engines), rules[i].asked ? ", asked" : "");
        page_cell(out, rules[i].title);
        calm_text_printf(out, " | ");
        page_cell(out, rules[i].behaviour);
        calm_text_printf(out, " | ");
        page_cell(out, rules[i].remedy);
        calm_text_printf(out, " |\n");
    }
    return CALM_OK;
}

/* ---- scores and algorithms ---- */

static calm_status write_metrics(calm_ctx *ctx, calm_text *out)
{
    static const char *const rows[][2] = {
#define ROW(field, name, help) {name, help},
        CALM_METRIC_LIST(ROW)
#undef ROW
    };
    (void)ctx;
    calm_text_printf(out, "| score | loss |\n|---|---|\n");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        calm_text_printf(out, "| `%s` | ", rows[i][0]);
        page_cell(out, rows[i][1]);
        calm_text_printf(out, " |\n");
    }
    return CALM_OK;
}

static calm_status write_algorithms(calm_ctx *ctx, calm_text *out)
{
    size_t n;
    const calm_preset *presets = calm_presets(&n);
    (void)ctx;
    calm_text_printf(out, "| name | chain | what it is | paper |\n|---|---|---|---|\n");
    for (size_t i = 0; i < n; i++)
        calm_text_printf(out, "| `%s` | `%s` | %s | %s |\n", presets[i].name, presets[i].chain, presets[i].summary,
                         presets[i].reference);
    return CALM_OK;
}

/* ---- keywords of Python ---- */

/* Appends "Literal['a', 'b']" for "a|b". */
static void add_literal(calm_text *out, const char *values)
{
    calm_text_printf(out, "Literal[");
    for (const char *at = values; *at; at += strcspn(at, "|"), at += *at == '|')
        calm_text_printf(out, "%s\"%.*s\"", at == values ? "" : ", ", (int)strcspn(at, "|"), at);
    calm_text_printf(out, "]");
}

static void add_type(calm_text *out, const calm_option *option)
{
    static const char *const types[] = {
        [CALM_OPTION_BOOL] = "bool",      [CALM_OPTION_INT] = "int",       [CALM_OPTION_DOUBLE] = "float",
        [CALM_OPTION_STRING] = "_Path",   [CALM_OPTION_WORDS] = "_Words",  [CALM_OPTION_FILES] = "_Paths",
        [CALM_OPTION_PAIRS] = "Mapping[str, str]", [CALM_OPTION_NUMBERS] = "_Numbers",
        [CALM_OPTION_RANGE] = "Union[int, str]"};
    if (option->type == CALM_OPTION_ENUM)
        add_literal(out, option->values);
    else
        calm_text_printf(out, "%s", types[option->type]);
}

/* Appends a name with underscores. */
static void add_keyword(calm_text *out, const char *name)
{
    for (const char *at = name; *at; at++)
        calm_text_printf(out, "%c", *at == '-' ? '_' : *at);
}

/* Is an option a positional argument of quantize? */
static bool is_placed(const calm_option *option)
{
    return strcmp(option->name, "model") == 0 || strcmp(option->name, "output") == 0;
}

/* Appends a keyword for the docstring: its help and the program's default. */
static void add_meaning(calm_text *out, const calm_option *option)
{
    const char *fallback = calm_command_default(option);
    calm_text_printf(out, "    ");
    add_keyword(out, option->name);
    calm_text_printf(out, "\n        ");
    for (const char *at = option->help; *at; at++)    /* escape characters that end or change a docstring */
        calm_text_printf(out, *at == '\\' || *at == '"' ? "\\%c" : "%c", *at);
    calm_text_printf(out, *fallback ? " (default %s)\n" : "\n", fallback);
}

static calm_status write_python(calm_ctx *ctx, calm_text *out)
{
    (void)ctx;
    calm_text_printf(out, "def quantize(\n    model: Optional[_Path] = ...,\n    output: Optional[_Path] = ...,\n"
                          "    *,\n    recipe: Optional[_Path] = ...,\n    lock: Optional[_Path] = ...,\n"
                          "    threads: int = ...,\n"
                          "    progress: Shown = ...,\n");
    for (const calm_option *option = calm_spec_table; option->name; option++) {
        if (is_placed(option))
            continue;
        calm_text_printf(out, "    ");
        add_keyword(out, option->name);
        calm_text_printf(out, ": Optional[");
        add_type(out, option);
        calm_text_printf(out, "] = ...,\n");
    }
    calm_text_printf(out, ") -> Outcome:\n    \"\"\"Quantize a checkpoint.\n\n"
                          "    model, output\n        directory or known name; directory to write\n"
                          "    recipe\n        a recipe file, or the name of a shipped recipe; other arguments replace "
                          "its values\n"
                          "    lock\n        file for the digests of inputs and outputs\n"
                          "    progress\n        True: a bar; or a function of stage, done and total\n");
    for (const calm_option *option = calm_spec_table; option->name; option++)
        if (!is_placed(option))
            add_meaning(out, option);
    calm_text_printf(out, "    \"\"\"\n# ");
    return CALM_OK;
}

/* Is `name` Python's keyword for the option? */
static bool is_keyword(const char *name, const char *option)
{
    size_t i = 0;
    while (option[i] && name[i] == (option[i] == '-' ? '_' : option[i]))
        i++;
    return !option[i] && !name[i];
}

/* Lists keywords whose names differ from the name in messages: its place in a recipe, else its flag. */
static calm_status write_keywords(calm_ctx *ctx, calm_text *out)
{
    (void)ctx;
    calm_text_printf(out, "KEYWORDS = {\n");
    for (const calm_option *option = calm_spec_table; option->name; option++) {
        const char *const names[] = {option->place, option->name};
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            if (!names[i] || is_keyword(names[i], option->name))
                continue;
            calm_text_printf(out, "    \"%s\": \"", names[i]);
            add_keyword(out, option->name);
            calm_text_printf(out, "\",\n");
        }
    }
    calm_text_printf(out, "}\n# ");
    return CALM_OK;
}

/* ---- pages ---- */

static const struct {
    const char *name;
    calm_status (*write)(calm_ctx *ctx, calm_text *out);
} pages[] = {{"commands", write_commands}, {"keys", write_keys}, {"rules", write_rules},
             {"metrics", write_metrics}, {"algorithms", write_algorithms}, {"python", write_python},
             {"keywords", write_keywords}};

static calm_status work(calm_ctx *ctx, void *opts)
{
    const arguments *args = opts;
    const size_t n = sizeof pages / sizeof *pages;
    size_t i = 0;
    char *remedy;
    calm_text text;
    while (i < n && (!args->page || strcmp(pages[i].name, args->page) != 0))
        i++;
    if (i == n || !args->docs)
        return calm_fail(ctx, CALM_EARG, "--page and --docs FILE are missing or not known; --help explains");
    CALM_TRY(calm_strf(ctx, ctx->out, &remedy, "pages --page %s --docs %s --update", args->page, args->docs));
    calm_text_init(&text);
    calm_status status = pages[i].write(ctx, &text);
    if (status == CALM_OK)
        status = calm_text_check(ctx, &text);
    if (status == CALM_OK)
        status = page_settle_part(ctx, args->docs, args->page, text.data, args->update, remedy);
    calm_text_clear(&text);
    return status;
}

int main(int argc, char **argv)
{
    arguments args;
    const tool it = {"pages", "--page NAME --docs FILE", "Checks a page of docs/ against a table of the program.",
                     table,   &args,                     work};
    return tool_main(&it, argc, argv);
}
