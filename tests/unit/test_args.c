/* Command lines: which options were given, and the line as a shell reads it again. */
#include "cli/command.h"

#include "tests/support/harness.h"

typedef struct options {
    calm_common common;
    const char *text;
    long long number;
    bool flag;
} options;

static const calm_option table[] = {
    {.name = "text", .help = "t", .offset = offsetof(options, text), .type = CALM_OPTION_STRING, .list = true, .key = 't'},
    {.name = "number", .help = "n", .offset = offsetof(options, number), .type = CALM_OPTION_INT, .fallback = "7"},
    {.name = "flag", .help = "f", .offset = offsetof(options, flag), .type = CALM_OPTION_BOOL},
    CALM_COMMON_OPTIONS(options),
    {0},
};

static const calm_command command = {.name = "demo", .summary = "s", .description = "d", .examples = "e", .arguments = "A",
                                     .options = table, .opts_size = sizeof(options), .max_args = 2};

static options parse(char **words, size_t n)
{
    options opts;
    const char **args;
    size_t n_args;
    char **argv = calloc(n + 1, sizeof *argv);
    ck_assert_ptr_nonnull(argv);
    memset(&opts, 0, sizeof opts);
    for (size_t i = 0; i < n; i++)
        argv[i] = test_format("%s", words[i]);
    ck_ok(calm_args_parse(ctx, &command, (int)n, argv, &opts, &args, &n_args));
    free(argv);
    return opts;
}

TEST(given_options_are_marked_by_their_position)
{
    const options none = parse((char *[]){"demo", "word"}, 2);
    for (size_t i = 0; i < calm_options_count(table); i++)
        ck_assert(!none.common.given[i]);
    /* also by one letter, by a unique beginning, and with the default's value */
    const options some = parse((char *[]){"demo", "-t", "a", "--num=7", "word", "-q"}, 6);
    ck_assert(some.common.given[0] && some.common.given[1] && !some.common.given[2] && !some.common.given[3]);
    ck_assert(some.common.given[4] && some.common.quiet);
}
END_OF_TEST

TEST(the_command_is_what_was_typed)
{
    ck_assert_str_eq(parse((char *[]){"demo", "word", "--flag", "-t", "a,b=c"}, 5).common.command,
                     "calm demo word --flag -t a,b=c");
    ck_assert_str_eq(parse((char *[]){"demo", "--text", "it's <= 1", "", "*"}, 5).common.command,
                     "calm demo --text 'it'\\''s <= 1' '' '*'");
}
END_OF_TEST

int main(void)
{
    return run_tests("args", (const TTest *[]){given_options_are_marked_by_their_position, the_command_is_what_was_typed,
                                               NULL});
}
