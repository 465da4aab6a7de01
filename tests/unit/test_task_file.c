/* Task files: tokens of choices as lm-evaluation-harness makes them, and refusals.  The tokenizer is byte-level with
 * the letters a to e (0 to 4), "ab" (8), the space (7), the bytes of U+00E9 (9 10) and U+00A0 (11 12), and [CLS]
 * (5). */
#include "ptq/data/task_file.h"

#include "ptq/base/file.h"
#include "tests/support/harness.h"

#define CLS 5

static calm_tokenizer *open_tokenizer(void)
{
    const char *path = test_format("%s/tokenizer.json", test_directory());
    const char *json =
        "{\"version\":\"1.0\",\"added_tokens\":[{\"id\":5,\"content\":\"[CLS]\",\"special\":true}],\"normalizer\":null,"
        "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false},"
        "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":["
        "{\"SpecialToken\":{\"id\":\"[CLS]\",\"type_id\":0}},"
        "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[],\"special_tokens\":{\"[CLS]\":{\"id\":\"[CLS]\","
        "\"ids\":[5],\"tokens\":[\"[CLS]\"]}}},\"decoder\":null,"
        "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"d\":3,\"e\":4,\"\xc4\xa0\":7,\"ab\":8,"
        "\"\xc3\x83\":9,\"\xc2\xa9\":10,\"\xc3\x82\":11,\"\xc5\x82\":12},\"merges\":[\"a b\"]}}";
    calm_tokenizer *tokenizer;
    ck_ok(calm_write_file(ctx, path, json, strlen(json)));
    ck_ok(calm_tokenizer_open(ctx, path, &tokenizer));
    return tokenizer;
}

static const char *task_file(const char *text, size_t n)
{
    const char *path = test_format("%s/tasks.jsonl", test_directory());
    ck_ok(calm_write_file(ctx, path, text, n));
    return path;
}

/* Returns all choices as "line: ids own length | ...", with an answer after each task. */
static const char *listed(const char *text, const calm_task_options *options)
{
    calm_tokenizer *tokenizer = open_tokenizer();
    calm_task_reader reader;
    const char *list = "";
    ck_ok(calm_task_reader_open(ctx, tokenizer, task_file(text, strlen(text)), options, &reader));
    for (;;) {
        calm_task task;
        bool found;
        ck_ok(calm_task_reader_next(ctx, &reader, &task, &found));
        if (!found)
            break;
        list = test_format("%s%zu:", list, task.line);
        for (size_t c = 0; c < task.n; c++) {
            const calm_task_choice *choice = &task.choices[c];
            for (size_t i = 0; i < choice->n; i++)
                list = test_format("%s%s%u", list, i == choice->n - choice->own ? "|" : " ", choice->ids[i]);
            list = test_format("%s (%zu)", list, choice->length);
        }
        list = test_format("%s =%zu\n", list, task.answer);
    }
    calm_task_reader_close(&reader);
    calm_tokenizer_close(tokenizer);
    return list;
}

static const calm_task_options plain = {.max_length = 100, .vocab = 13, .prefix = CLS};

TEST(choices_come_after_the_context)
{
    ck_assert_str_eq(listed("{\"context\": \"c\", \"choices\": [\"d\", \"de\"], \"answer\": 1}\n\n"
                            "{\"answer\": 0, \"id\": 17, \"choices\": [\" e\"], \"context\": \"dd\"}", &plain),
                     "1: 2|3 (1) 2|3 4 (2) =1\n3: 3 3|7 4 (2) =0\n");
}
END_OF_TEST

/* The length is that of the choice as written in the file. */
TEST(white_space_moves_to_the_choice)
{
    ck_assert_str_eq(listed("{\"context\": \"c  \", \"choices\": [\"d\"], \"answer\": 0}", &plain),
                     "1: 2|7 7 3 (1) =0\n");
    ck_assert_str_eq(listed("{\"context\": \"c\\u00a0\", \"choices\": [\"\\u00e9\"], \"answer\": 0}", &plain),
                     "1: 2|11 12 9 10 (1) =0\n");
}
END_OF_TEST

/* "cabd" has the tokens c ab d, "ca" has c a: the choice has one token, and the context keeps its own. */
TEST(a_token_across_the_border)
{
    ck_assert_str_eq(listed("{\"context\": \"ca\", \"choices\": [\"bd\"], \"answer\": 0}", &plain),
                     "1: 2 0|3 (2) =0\n");
}
END_OF_TEST

TEST(an_empty_context)
{
    ck_assert_str_eq(listed("{\"context\": \"\", \"choices\": [\"a\", \"[CLS]ab\"], \"answer\": 0}", &plain),
                     "1: 5|0 (1) 5|8 (7) =0\n");
    ck_assert_str_eq(listed("{\"context\": \" \", \"choices\": [\"a\"], \"answer\": 0}", &plain), "1: 5|7 0 (1) =0\n");
}
END_OF_TEST

TEST(special_tokens)
{
    calm_task_options options = plain;
    options.special = true;
    ck_assert_str_eq(listed("{\"context\": \"c\", \"choices\": [\"d\"], \"answer\": 0}\n"
                            "{\"context\": \"\", \"choices\": [\"d\"], \"answer\": 0}", &options),
                     "1: 5 2|3 (1) =0\n2: 5|3 (1) =0\n");
}
END_OF_TEST

TEST(long_ones_are_cut_from_the_left)
{
    calm_task_options options = plain;
    options.max_length = 3;    /* and one that is predicted */
    ck_assert_str_eq(listed("{\"context\": \"cdcdcd\", \"choices\": [\"ee\", \"eee\"], \"answer\": 0}", &options),
                     "1: 2 3|4 4 (2) 3|4 4 4 (3) =0\n");
}
END_OF_TEST

TEST(the_first_samples)
{
    calm_task_options options = plain;
    options.samples = 1;
    ck_assert_str_eq(listed("{\"context\": \"c\", \"choices\": [\"d\"], \"answer\": 0}\nnot read", &options),
                     "1: 2|3 (1) =0\n");
}
END_OF_TEST

/* ---- refusals ---- */

/* The line comes after a good line and a blank one. */
static void check_refused(const char *line, size_t n, const calm_task_options *options, calm_status expected,
                          const char *message)
{
    static const char good[] = "{\"context\": \"c\", \"choices\": [\"d\"], \"answer\": 0}\n\n";
    const size_t n_good = sizeof good - 1;
    calm_tokenizer *tokenizer = open_tokenizer();
    calm_task_reader reader;
    calm_task task;
    bool found;
    char *text;
    ck_ok(CALM_NEW(ctx, ctx->out, text, n_good + n));
    memcpy(text, good, n_good);
    memcpy(text + n_good, line, n);
    ck_ok(calm_task_reader_open(ctx, tokenizer, task_file(text, n_good + n), options, &reader));
    ck_ok(calm_task_reader_next(ctx, &reader, &task, &found));
    ck_assert(found);
    ck_fails(calm_task_reader_next(ctx, &reader, &task, &found), expected,
             test_format("tasks.jsonl: line 3%s", message));
    calm_task_reader_close(&reader);
    calm_tokenizer_close(tokenizer);
}

TEST(bad_lines)
{
    static const struct { const char *line, *message;
    } cases[] = {
        {"{\"context\": ", ": "},
        {"{\"context\": \"\xff\", \"choices\": [\"a\"], \"answer\": 0}", ": "},
        {"[1]", ": expected an object with \"context\", \"choices\" and \"answer\", found an array"},
        {"{\"choices\": [\"a\"], \"answer\": 0}", ": \"context\": expected a string, found nothing"},
        {"{\"context\": 5, \"choices\": [\"a\"], \"answer\": 0}",
         ": \"context\": expected a string, found a whole number"},
        {"{\"context\": \"c\", \"answer\": 0}", ": \"choices\": expected an array of 1 to 256 strings, found nothing"},
        {"{\"context\": \"c\", \"choices\": [], \"answer\": 0}",
         ": \"choices\": expected an array of 1 to 256 strings, found"},
        {"{\"context\": \"c\", \"choices\": \"a\", \"answer\": 0}", ": \"choices\": expected an array"},
        {"{\"context\": \"c\", \"choices\": [\"a\", 1], \"answer\": 0}",
         ": choices[1]: expected a string that is not empty, found "
         "a whole number"},
        {"{\"context\": \"c\", \"choices\": [\"\"], \"answer\": 0}",
         ": choices[0]: expected a string that is not empty, found an "
         "empty one"},
        {"{\"context\": \"c\", \"choices\": [\"a\"]}", ": "},
        {"{\"context\": \"c\", \"choices\": [\"a\"], \"answer\": 1}", ": "},
        {"{\"context\": \"c\", \"choices\": [\"a\"], \"answer\": -1}", ": "},
        {"{\"context\": \"c\", \"choices\": [\"a\"], \"answer\": \"0\"}", ": "},
        {"{\"context\": \"ca\", \"choices\": [\"b\"], \"answer\": 0}",
         ": choices[0]: expected at least 1 token beyond those of "
         "the context, found none"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_refused(cases[i].line, strlen(cases[i].line), &plain, CALM_EFORMAT, cases[i].message);
}
END_OF_TEST

TEST(what_the_model_cannot_read)
{
    calm_task_options options = plain;
    const char *two = "{\"context\": \"c\", \"choices\": [\"d\", \"ee\"], \"answer\": 0}";
    const char *empty = "{\"context\": \"\", \"choices\": [\"d\"], \"answer\": 0}";
    options.max_length = 1;
    check_refused(two, strlen(two), &options, CALM_EFORMAT, ": choices[1]: expected at most 1 tokens");
    options = plain;
    options.vocab = 4;
    check_refused(two, strlen(two), &options, CALM_EFORMAT, ": token 1 has id 4, but the model's vocabulary has 4");
    options = plain;
    options.prefix = -1;
    check_refused(empty, strlen(empty), &options, CALM_EFORMAT, ": \"context\" is empty");
}
END_OF_TEST

TEST(too_much)
{
    calm_task_reader reader;
    calm_task task;
    bool found;
    char *long_line;
    ck_ok(CALM_NEW(ctx, ctx->out, long_line, CALM_TASK_LINE_MAX + 1));
    memset(long_line, 'a', CALM_TASK_LINE_MAX + 1);
    check_refused(long_line, CALM_TASK_LINE_MAX + 1, &plain, CALM_EFORMAT,
                  ": expected at most 1048576 bytes, found 1048577");
    const char *many = "{\"context\": \"c\", \"answer\": 0, \"choices\": [\"a\"";
    for (size_t i = 0; i < CALM_TASK_CHOICES_MAX; i++)
        many = test_format("%s,\"a\"", many);
    many = test_format("%s]}", many);
    check_refused(many, strlen(many), &plain, CALM_EFORMAT,
                  ": \"choices\": expected an array of 1 to 256 strings, found an "
                  "array of 257");
    calm_tokenizer *tokenizer = open_tokenizer();
    ck_ok(calm_task_reader_open(ctx, tokenizer, task_file(many, strlen(many)), &plain, &reader));
    reader.n = CALM_TASKS_MAX;    /* as after this many lines */
    ck_fails(calm_task_reader_next(ctx, &reader, &task, &found), CALM_EARG, "line 1: expected at most 1048576 tasks");
    calm_task_reader_close(&reader);
    ck_ok(calm_task_reader_open(ctx, tokenizer, task_file("\n \n", 3), &plain, &reader));
    ck_fails(calm_task_reader_next(ctx, &reader, &task, &found), CALM_EARG, "tasks.jsonl: no task in it");
    calm_task_reader_close(&reader);
    ck_fails(calm_task_reader_open(ctx, tokenizer, "/nowhere.jsonl", &plain, &reader), CALM_ENOTFOUND,
             "/nowhere.jsonl");
    calm_task_reader_close(&reader);
    calm_tokenizer_close(tokenizer);
}
END_OF_TEST

int main(void)
{
    return run_tests("task_file", (const TTest *[]){choices_come_after_the_context, white_space_moves_to_the_choice,
                                                    a_token_across_the_border, an_empty_context, special_tokens,
                                                    long_ones_are_cut_from_the_left, the_first_samples, bad_lines,
                                                    what_the_model_cannot_read, too_much, NULL});
}
