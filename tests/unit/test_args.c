/* Command lines: which options were given, and the line quoted for a shell. */
#include "cli/command.h"

#include "tests/support/harness.h"

typedef struct options {
    calm_common common;
    calm_recipe_spec spec;
    const char *text;
    long long number;
    bool flag;
} options;

static const calm_option table[] = {
    {.name = "text", .help = "t", .offset = offsetof(options, text), .type = CALM_OPTION_STRING, .key = 't'},
    {.name = "number", .help = "n", .offset = offsetof(options, number), .type = CALM_OPTION_INT, .fallback = "7"},
    {.name = "flag", .help = "f", .offset = offsetof(options, flag), .type = CALM_OPTION_BOOL},
    CALM_OPT_COMMON,
    {0},
};

static const calm_command command = {.name = "demo",
                                     .summary = "s",
                                     .description = "d",
                                     .examples = "e",
                                     .arguments = "A",
                                     .options = table,
                                     .opts_size = sizeof(options),
                                     .spec = CALM_SPEC_SHARED,
                                     .spec_at = offsetof(options, spec),
                                     .max_args = 2};

static options parse(char **words, size_t n)
{
    options opts;
    char **argv = calloc(n + 1, sizeof *argv);
    ck_assert_ptr_nonnull(argv);
    memset(&opts, 0, sizeof opts);
    for (size_t i = 0; i < n; i++)
        argv[i] = test_format("%s", words[i]);
    ck_ok(calm_args_parse(ctx, &command, (int)n, argv, &opts));
    free(argv);
    return opts;
}

TEST(options_of_a_recipe_are_marked_as_given)
{
    const options none = parse((char *[]){"demo", "word"}, 2);
    for (size_t i = 0; i < calm_options_count(calm_spec_table); i++)
        ck_assert(!none.spec.given[i]);
    ck_assert_int_eq(none.spec.samples, 128);
    ck_assert_int_eq(none.number, 7);
    /* By one letter, by a unique prefix, and with the default's value. */
    const options some = parse((char *[]){"demo", "-t", "a", "--num=8", "-m", "qwen", "--seql=512", "word", "-q"}, 9);
    ck_assert(calm_spec_given(&some.spec, "model") && calm_spec_given(&some.spec, "seqlen"));
    ck_assert(!calm_spec_given(&some.spec, "samples"));
    ck_assert_str_eq(some.spec.model, "qwen");
    ck_assert_int_eq(some.number, 8);
    ck_assert(some.common.quiet);
}
END_OF_TEST

/* A command's own option takes precedence over the recipe's option of that name; recipe options that the command
 * does not share are unknown. */
TEST(a_command_has_its_own_and_some_of_the_recipes_options)
{
    static const calm_option own[] = {
        {.name = "samples", .help = "s", .offset = offsetof(options, number), .type = CALM_OPTION_INT, .fallback = "3"},
        CALM_OPT_COMMON,
        {0},
    };
    calm_command other = command;
    options opts;
    char *words[] = {test_format("demo"), test_format("--samples=9"), NULL};
    char *wrong[] = {test_format("demo"), test_format("--budget=3"), NULL};
    other.options = own;
    memset(&opts, 0, sizeof opts);
    ck_ok(calm_args_parse(ctx, &other, 2, words, &opts));
    ck_assert_int_eq(opts.number, 9);
    ck_assert_int_eq(opts.spec.samples, 128);
    ck_assert(!calm_spec_given(&opts.spec, "samples"));
    ck_fails(calm_args_parse(ctx, &other, 2, wrong, &opts), CALM_EARG, "unknown option --budget");
    other.spec = CALM_SPEC_ALL;
    wrong[0] = test_format("demo");
    ck_ok(calm_args_parse(ctx, &other, 2, wrong, &opts));
    ck_assert_uint_eq(opts.spec.budgets.n, 1);
}
END_OF_TEST

/* Help and manual show options in groups: each option has one, and the first group is what every run needs. */
TEST(every_option_of_a_run_has_a_group)
{
    const calm_option *shown[CALM_COMMAND_OPTIONS];
    const calm_command *quantize = NULL;
    size_t n_commands;
    const calm_command *const *all = calm_commands(&n_commands);
    for (size_t i = 0; i < n_commands; i++)
        if (strcmp(all[i]->name, "quantize") == 0)
            quantize = all[i];
    ck_assert_ptr_nonnull(quantize);
    const size_t n = calm_command_options(quantize, shown);
    ck_assert_uint_eq(n, calm_options_count(quantize->options) + calm_options_count(calm_spec_table));
    calm_command_sort(quantize, shown, n);
    ck_assert_str_eq(shown[0]->name, "model");
    for (size_t i = 0; i < n; i++) {
        const size_t group = calm_command_group(quantize, shown[i]);
        if (!calm_command_heading(group))
            ck_abort_msg("--%s has no group in cli/commands.c", shown[i]->name);
        ck_assert_uint_ge(group, i ? calm_command_group(quantize, shown[i - 1]) : 1);
    }
    /* Options of the command that belong to no group come first. */
    ck_assert_uint_eq(calm_command_group(&command, &table[0]), 0);
    ck_assert_ptr_null(calm_command_heading(0));
}
END_OF_TEST

TEST(the_command_is_what_was_typed)
{
    ck_assert_str_eq(parse((char *[]){"demo", "word", "--flag", "-t", "a,b=c"}, 5).common.command,
                     "calm demo word --flag -t a,b=c");
    ck_assert_str_eq(parse((char *[]){"demo", "word", "--flag", "other"}, 4).common.args.of[1], "other");
    ck_assert_str_eq(parse((char *[]){"demo", "--text", "it's <= 1", "", "*"}, 5).common.command,
                     "calm demo --text 'it'\\''s <= 1' '' '*'");
}
END_OF_TEST

int main(void)
{
    return run_tests("args", (const TTest *[]){options_of_a_recipe_are_marked_as_given, the_command_is_what_was_typed,
                                               a_command_has_its_own_and_some_of_the_recipes_options,
                                               every_option_of_a_run_has_a_group, NULL});
}
