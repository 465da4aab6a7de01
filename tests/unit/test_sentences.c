/* Sentences: one window per line or document, special tokens kept when a long one is cut, and refusals.  The
 * tokenizer has the letters a to e (ids 0 to 4), and [CLS] (5) before and [SEP] (6) twice after a text. */
#include "ptq/data/sentences.h"

#include "ptq/base/file.h"
#include "ptq/tokenizer/tokenizer.h"
#include "tests/support/harness.h"

static calm_tokenizer *open_tokenizer(const char *post)
{
    const char *path = test_format("%s/tokenizer.json", test_directory());
    const char *json = test_format(
        "{\"version\":\"1.0\",\"added_tokens\":[{\"id\":5,\"content\":\"[CLS]\",\"special\":true},"
        "{\"id\":6,\"content\":\"[SEP]\",\"special\":true}],\"normalizer\":null,"
        "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false},"
        "\"post_processor\":%s,\"decoder\":null,"
        "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"d\":3,\"e\":4},\"merges\":[]}}", post);
    calm_tokenizer *tokenizer;
    ck_ok(calm_write_file(ctx, path, json, strlen(json)));
    ck_ok(calm_tokenizer_open(ctx, path, &tokenizer));
    return tokenizer;
}

static calm_tokenizer *open_template(void)
{
    return open_tokenizer(
        "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"[CLS]\",\"type_id\":0}},"
        "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{\"SpecialToken\":{\"id\":\"[SEP]\",\"type_id\":0}},"
        "{\"SpecialToken\":{\"id\":\"[SEP]\",\"type_id\":0}}],\"pair\":[],"
        "\"special_tokens\":{\"[CLS]\":{\"id\":\"[CLS]\",\"ids\":[5],"
        "\"tokens\":[\"[CLS]\"]},\"[SEP]\":{\"id\":\"[SEP]\",\"ids\":[6],\"tokens\":[\"[SEP]\"]}}}");
}

static const char *text_file(const char *name, const char *text)
{
    const char *path = test_format("%s/%s", test_directory(), name);
    ck_ok(calm_write_file(ctx, path, text, strlen(text)));
    return path;
}

/* Returns the windows as "5 0 1 6 6|5 2 6 6". */
static const char *listed(const calm_windows *windows)
{
    const char *list = "";
    for (size_t w = 0; w < windows->n; w++)
        for (size_t i = windows->begin[w]; i < windows->begin[w + 1]; i++)
            list = test_format("%s%s%u", list, i > windows->begin[w] ? " " : w ? "|" : "", windows->ids[i]);
    return list;
}

/* Reads the first `samples` sentences, the last `n_spread` of them spread. */
static calm_status read_first(const calm_tokenizer *tokenizer, const char *path, size_t seqlen, size_t samples,
                              size_t n_spread, size_t vocab, calm_windows *out)
{
    const calm_windows_options options = {.seqlen = seqlen, .n_windows = samples, .seed = -1, .n_spread = n_spread,
                                          .vocab = vocab};
    return calm_sentences_read(ctx, tokenizer, path, &options, out);
}

static void check(const calm_tokenizer *tokenizer, const char *path, size_t seqlen, size_t samples,
                  const char *expected)
{
    calm_windows windows;
    ck_ok(read_first(tokenizer, path, seqlen, samples, 0, 7, &windows));
    ck_assert_str_eq(listed(&windows), expected);
    ck_assert(!windows.positions && !windows.types);
}

/* A prompt is part of each text: it is cut with it, and special tokens enclose both. */
TEST(prompt_before_each)
{
    calm_tokenizer *tokenizer = open_template();
    const char *path = text_file("x.txt", "a\nbcd\n");
    calm_windows_options options = {.seqlen = 7, .seed = -1, .vocab = 7, .prompt = "ed"};
    calm_windows windows;
    ck_ok(calm_sentences_read(ctx, tokenizer, path, &options, &windows));
    ck_assert_str_eq(listed(&windows), "5 4 3 0 6 6|5 4 3 1 2 6 6");
    options.prompt = "";
    ck_ok(calm_sentences_read(ctx, tokenizer, path, &options, &windows));
    ck_assert_str_eq(listed(&windows), "5 0 6 6|5 1 2 3 6 6");
    calm_tokenizer_close(tokenizer);
}
END_OF_TEST

/* The first sentences, then one from the middle of each equal part of the rest. */
TEST(the_last_are_spread)
{
    calm_tokenizer *tokenizer = open_template();
    const char *path = text_file("x.txt", "a\nb\nc\nd\ne\nab\ncd\nabc\nde\na\n");
    calm_windows windows;
    ck_ok(read_first(tokenizer, path, 16, 4, 2, 7, &windows));
    ck_assert_uint_eq(windows.n, 4);
    ck_assert_uint_eq(windows.longest, 5);
    /* 8 lines remain after the first 2: lines 2 + 2 and 2 + 6. */
    calm_windows first, fifth, ninth;
    ck_ok(read_first(tokenizer, text_file("f.txt", "a\nb\n"), 16, 0, 0, 7, &first));
    ck_ok(read_first(tokenizer, text_file("5.txt", "e\n"), 16, 0, 0, 7, &fifth));
    ck_ok(read_first(tokenizer, text_file("9.txt", "de\n"), 16, 0, 0, 7, &ninth));
    ck_assert_str_eq(listed(&windows),
                     test_format("%s|%s|%s", listed(&first), listed(&fifth), listed(&ninth)));
    /* If there are fewer than asked for, all. */
    ck_ok(read_first(tokenizer, text_file("f.txt", "a\nb\n"), 16, 3, 2, 7, &windows));
    ck_assert_str_eq(listed(&windows), listed(&first));
    calm_tokenizer_close(tokenizer);
}
END_OF_TEST

/* With a seed the sentences that calm_windows_choose() draws, in its order: different ones, the same for the same
 * seed, others for another seed; of fewer than asked for all, in another order. */
TEST(drawn_sentences)
{
    calm_tokenizer *tokenizer = open_template();
    static const char *const lines[] = {"a", "b", "c", "d", "e", "ab", "cd", "abc", "de", "ad"};
    const char *text = "", *seen[3];
    for (size_t i = 0; i < 10; i++)
        text = test_format("%s%s\n", text, lines[i]);
    const char *path = text_file("x.txt", text);
    calm_windows_options options = {.seqlen = 16, .n_windows = 6, .n_spread = 2, .vocab = 7};
    for (options.seed = 0; options.seed < 3; options.seed++) {
        calm_windows windows, one;
        size_t n, *chosen;
        const char *expected = "";
        ck_ok(calm_windows_choose(ctx, &options, 10, &n, &chosen));
        ck_assert_uint_eq(n, 6);
        for (size_t i = 0; i < n; i++) {
            ck_ok(read_first(tokenizer, text_file("1.txt", test_format("%s\n", lines[chosen[i]])), 16, 0, 0, 7, &one));
            expected = test_format("%s%s%s", expected, i ? "|" : "", listed(&one));
        }
        ck_ok(calm_sentences_read(ctx, tokenizer, path, &options, &windows));
        ck_assert_str_eq(listed(&windows), expected);
        seen[options.seed] = expected;
    }
    ck_assert_str_ne(seen[0], seen[1]);
    ck_assert_str_ne(seen[1], seen[2]);
    options.seed = 1;
    options.n_windows = 20;
    calm_windows all;
    ck_ok(calm_sentences_read(ctx, tokenizer, path, &options, &all));
    ck_assert_uint_eq(all.n, 10);
    calm_tokenizer_close(tokenizer);
}
END_OF_TEST

TEST(a_line_is_a_sentence)
{
    calm_tokenizer *tokenizer = open_template();
    const char *path = text_file("x.txt", "ab\n\n  \ncde\r\na\n");
    check(tokenizer, path, 16, 0, "5 0 1 6 6|5 2 3 4 6 6|5 0 6 6");
    check(tokenizer, path, 16, 2, "5 0 1 6 6|5 2 3 4 6 6");
    check(tokenizer, text_file("x.jsonl", "{\"text\": \"abcde\"}\n\n\"a\""), 16, 0, "5 0 1 2 3 4 6 6|5 0 6 6");
    calm_tokenizer_close(tokenizer);
}
END_OF_TEST

TEST(long_sentences_keep_their_special_tokens)
{
    calm_tokenizer *tokenizer = open_template(), *plain = open_tokenizer("null");
    const char *path = text_file("x.txt", "abcde\nabc\n[CLS]abcd\n");
    check(tokenizer, path, 6, 0, "5 0 1 2 6 6|5 0 1 2 6 6|5 5 0 1 6 6");
    check(tokenizer, path, 4, 0, "5 0 6 6|5 0 6 6|5 5 6 6");
    check(plain, path, 3, 0, "0 1 2|0 1 2|5 0 1");
    calm_tokenizer_close(tokenizer);
    calm_tokenizer_close(plain);
}
END_OF_TEST

/* More than any first guess at the number of sentences and ids. */
TEST(many_sentences)
{
    calm_tokenizer *tokenizer = open_template();
    const size_t n = 1000;
    calm_windows windows;
    char *text;
    ck_ok(CALM_NEW(ctx, ctx->out, text, 2 * n + 1));
    for (size_t i = 0; i < n; i++)
        memcpy(text + 2 * i, i % 3 ? "b\n" : "d\n", 2);
    ck_ok(read_first(tokenizer, text_file("x", text), 8, 0, 0, 0, &windows));
    ck_assert_uint_eq(windows.n, n);
    ck_assert_uint_eq(windows.longest, 4);
    for (size_t i = 0; i < n; i++) {
        ck_assert_uint_eq(windows.begin[i], 4 * i);
        ck_assert_uint_eq(windows.ids[4 * i + 1], i % 3 ? 1 : 3);
    }
    calm_tokenizer_close(tokenizer);
}
END_OF_TEST

static void refused(const calm_tokenizer *tokenizer, const char *name, const char *text, size_t seqlen, size_t vocab,
                    calm_status status, const char *words)
{
    calm_windows windows;
    ck_fails(read_first(tokenizer, text_file(name, text), seqlen, 0, 0, vocab, &windows), status, words);
}

TEST(what_is_refused)
{
    calm_tokenizer *tokenizer = open_template(), *plain = open_tokenizer("null");
    calm_windows windows;
    refused(tokenizer, "x", "a\nabcd\n", 3, 0, CALM_EARG, "line 1: sentences of 3 tokens have no room");
    refused(tokenizer, "x", "a\nb\n", 8, 6, CALM_EFORMAT, "line 1: token 2 has id 6, but the model's vocabulary has 6");
    refused(tokenizer, "x", "a\n\nab\xff\n", 8, 0, CALM_EFORMAT, "line 3: text: not UTF-8 at byte 2");
    refused(tokenizer, "x.jsonl", "\"a\"\n{\"text\": 5}\n", 8, 0, CALM_EFORMAT, "x.jsonl: line 2: expected a string");
    refused(tokenizer, "x.jsonl", "{\"text\"\n", 8, 0, CALM_EFORMAT, "x.jsonl: line 1: not valid JSON");
    refused(plain, "x.jsonl", "\"a\"\n\"\"\n", 8, 0, CALM_EFORMAT, "line 2: a sentence without a token");
    refused(tokenizer, "x", " \n\n", 8, 0, CALM_EARG, "no sentence in it");
    refused(tokenizer, "x", "", 8, 0, CALM_EARG, "no sentence in it");
    ck_fails(read_first(tokenizer, "/none/x", 8, 0, 0, 0, &windows), CALM_ENOTFOUND, "/none/x");
    calm_tokenizer_close(tokenizer);
    calm_tokenizer_close(plain);
}
END_OF_TEST

int main(void)
{
    return run_tests("sentences", (const TTest *[]){a_line_is_a_sentence, prompt_before_each,
                                                    the_last_are_spread, drawn_sentences,
                                                    long_sentences_keep_their_special_tokens,
                                                    many_sentences, what_is_refused, NULL});
}
