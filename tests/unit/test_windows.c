/* Windows of tokens, with the bundled tokenizer: cutting, choosing, and texts that cannot be read. */
#include "ptq/data/windows.h"

#include <stdio.h>

#include "ptq/base/file.h"
#include "ptq/tokenizer/tokenizer.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

static calm_tokenizer *open_tokenizer(void)
{
    calm_tokenizer *tokenizer;
    ck_ok(calm_tokenizer_open(ctx, CALM_SOURCE_DIR "/recipes/models/qwen-demo/tokenizer.json", &tokenizer));
    return tokenizer;
}

static const char *text_file(const char *name, const char *text, size_t n)
{
    const char *path = test_format("%s/%s", test_directory(), name);
    ck_ok(calm_write_file(ctx, path, text, n));
    return path;
}

/* Returns a text of many words with no two equal lines. */
static const char *long_text(void)
{
    char *text = test_format("%s", "");
    for (int i = 0; i < 60; i++)
        text = test_format("%sLine %d of the text says %d times nothing at all.\n", text, i, i * i);
    return text;
}

static calm_windows read_windows(const calm_tokenizer *tokenizer, const char *path, size_t seqlen, size_t samples,
                                 long long seed)
{
    const calm_windows_options options = {.seqlen = seqlen, .n_windows = samples, .seed = seed};
    calm_windows windows;
    ck_ok(calm_windows_read(ctx, tokenizer, path, &options, &windows));
    return windows;
}

static void refused(const calm_tokenizer *tokenizer, const char *path, size_t seqlen, size_t vocab, calm_status status,
                    const char *words)
{
    const calm_windows_options options = {.seqlen = seqlen, .seed = -1, .vocab = vocab};
    calm_windows windows;
    ck_fails(calm_windows_read(ctx, tokenizer, path, &options, &windows), status, words);
}

TEST(a_text_is_one_stream)
{
    calm_tokenizer *tokenizer = open_tokenizer();
    const char *text = long_text();
    uint32_t *ids;
    size_t n;
    ck_ok(calm_tokenizer_encode(ctx, tokenizer, text, strlen(text), false, &ids, &n));
    calm_windows w = read_windows(tokenizer, text_file("a.txt", text, strlen(text)), 16, 0, -1);
    ck_assert_uint_eq(w.n_tokens, n);
    ck_assert_uint_eq(w.n, n / 16);
    ck_assert_uint_eq(w.n_available, n / 16);
    ck_assert_uint_eq(w.longest, 16);
    for (size_t i = 0; i <= w.n; i++)
        ck_assert_uint_eq(w.begin[i], 16 * i);
    ck_assert(memcmp(w.ids, ids, w.begin[w.n] * sizeof *ids) == 0);
    calm_tokenizer_close(tokenizer);
}
END_OF_TEST

TEST(lines_never_share_a_window)
{
    static const char lines[] = "{\"text\": \"one two three four five six seven eight nine ten\"}\n\n"
                                "\"a b c\"\n   \n{\"text\": \"x\", \"other\": 1}\n\"eins zwei drei\"";
    static const char *const documents[] = {"one two three four five six seven eight nine ten", "a b c", "x",
                                            "eins zwei drei"};
    calm_tokenizer *tokenizer = open_tokenizer();
    calm_windows w = read_windows(tokenizer, text_file("a.jsonl", lines, sizeof lines - 1), 4, 0, -1);
    size_t window = 0, total = 0;
    for (size_t d = 0; d < 4; d++) {
        uint32_t *ids;
        size_t n;
        ck_ok(calm_tokenizer_encode(ctx, tokenizer, documents[d], strlen(documents[d]), false, &ids, &n));
        total += n;
        for (size_t at = 0; at < n; at += 4) {
            const size_t length = n - at < 4 ? n - at : 4;
            if (length < 2)
                continue;    /* one token predicts nothing */
            ck_assert_uint_lt(window, w.n);
            ck_assert_uint_eq(w.begin[window + 1] - w.begin[window], length);
            ck_assert(memcmp(w.ids + w.begin[window], ids + at, length * sizeof *ids) == 0);
            window++;
        }
    }
    ck_assert_uint_eq(window, w.n);
    ck_assert_uint_eq(w.n_tokens, total);
    calm_tokenizer_close(tokenizer);
}
END_OF_TEST

/* The first windows of the text, then one from the middle of each equal part of the rest. */
TEST(the_last_windows_are_spread)
{
    calm_tokenizer *tokenizer = open_tokenizer();
    const char *text = long_text(), *path = text_file("a.txt", text, strlen(text));
    const calm_windows all = read_windows(tokenizer, path, 8, 0, -1);
    const calm_windows_options options = {.seqlen = 8, .n_windows = 12, .seed = -1, .n_spread = 4};
    calm_windows w;
    ck_ok(calm_windows_read(ctx, tokenizer, path, &options, &w));
    ck_assert_uint_eq(w.n, 12);
    const size_t part = (all.n - 8) / 4;
    ck_assert_uint_ge(part, 4);
    for (size_t i = 0; i < 12; i++) {
        const size_t from = i < 8 ? i : 8 + (2 * (i - 8) + 1) * (all.n - 8) / 8;
        ck_assert(memcmp(w.ids + 8 * i, all.ids + 8 * from, 8 * sizeof *w.ids) == 0);
    }
    for (size_t n = 1; n < 40; n++)
        for (size_t spread = 0; spread <= n + 2; spread++)
            for (size_t available = n; available < 3 * n; available++) {
                const calm_windows_options how = {.n_windows = n, .seed = -1, .n_spread = spread};
                size_t *at, chosen;
                ck_ok(calm_windows_choose(ctx, &how, available, &chosen, &at));
                ck_assert_uint_eq(chosen, n);
                for (size_t i = 0; i < n; i++) {
                    ck_assert_uint_lt(at[i], available);
                    ck_assert(i == 0 || at[i] > at[i - 1]);
                    ck_assert(at[i] == i || i + spread >= n);
                    ck_assert(available > n || at[i] == i);
                }
            }
    /* Drawn windows are already anywhere in the text. */
    calm_windows_options drawn = options;
    drawn.seed = 7;
    ck_ok(calm_windows_read(ctx, tokenizer, path, &drawn, &w));
    ck_assert_str_eq(w.sha256, read_windows(tokenizer, path, 8, 12, 7).sha256);
    calm_tokenizer_close(tokenizer);
}
END_OF_TEST

/* Additional windows of an undecided guard: those of fewer doublings stay, none is taken twice, and each doubling is
 * spread. */
TEST(spread_windows_are_doubled)
{
    static const long long seeds[] = {-1, 7};
    for (size_t i = 0; i < 2; i++)
        for (size_t available = 1; available < 100; available += 7) {
            calm_windows_options how = {.n_windows = 12, .seed = seeds[i], .n_spread = 4};
            size_t *at, *fewer, n, n_fewer;
            ck_ok(calm_windows_choose(ctx, &how, available, &n_fewer, &fewer));
            for (how.doublings = 1; how.doublings < 4; how.doublings++) {
                ck_ok(calm_windows_choose(ctx, &how, available, &n, &at));
                const size_t wanted = 8 + ((size_t)4 << how.doublings);
                ck_assert_uint_eq(n, wanted < available ? wanted : available);
                ck_assert(memcmp(at, fewer, n_fewer * sizeof *at) == 0);
                for (size_t a = 0; a < n; a++)
                    for (size_t b = 0; b < a; b++)
                        ck_assert_uint_ne(at[a], at[b]);
                fewer = at;
                n_fewer = n;
            }
        }
    /* Of 108, 8 are the first and 4 in the middle of 25 each; then where those meet, then in between: neighbours
     * would often be of one article. */
    const calm_windows_options how = {.n_windows = 12, .seed = -1, .n_spread = 4, .doublings = 2};
    size_t *at, n;
    ck_ok(calm_windows_choose(ctx, &how, 108, &n, &at));
    static const size_t expected[] = {20, 45, 70, 95, 8, 33, 58, 83, 14, 27, 39, 52, 64, 77, 89, 102};
    ck_assert_uint_eq(n, 24);
    for (size_t i = 8; i < n; i++)
        ck_assert_uint_eq(at[i], expected[i - 8]);
}
END_OF_TEST

TEST(seeds)
{
    calm_tokenizer *tokenizer = open_tokenizer();
    const char *text = long_text(), *path = text_file("a.txt", text, strlen(text));
    calm_windows all = read_windows(tokenizer, path, 8, 0, -1), first = read_windows(tokenizer, path, 8, 5, -1);
    calm_windows five = read_windows(tokenizer, path, 8, 5, 7), again = read_windows(tokenizer, path, 8, 5, 7);
    calm_windows nine = read_windows(tokenizer, path, 8, 9, 7), other = read_windows(tokenizer, path, 8, 5, 8);
    ck_assert_uint_ge(all.n, 40);
    ck_assert_uint_eq(five.n, 5);
    ck_assert_uint_eq(five.n_available, all.n);
    ck_assert(memcmp(first.ids, all.ids, 5 * 8 * sizeof *all.ids) == 0);
    ck_assert_str_eq(five.sha256, again.sha256);
    ck_assert(memcmp(five.ids, again.ids, 5 * 8 * sizeof *all.ids) == 0);
    ck_assert(memcmp(five.ids, nine.ids, 5 * 8 * sizeof *all.ids) == 0);    /* more samples: the same ones first */
    ck_assert_str_ne(five.sha256, other.sha256);
    ck_assert_str_ne(five.sha256, first.sha256);
    /* Drawn without replacement from the text's windows. */
    calm_windows every = read_windows(tokenizer, path, 8, 0, 7);
    ck_assert_uint_eq(every.n, all.n);
    for (size_t i = 0; i < all.n; i++) {
        size_t there = 0, found = 0;
        for (size_t j = 0; j < all.n; j++) {
            there += memcmp(all.ids + 8 * j, all.ids + 8 * i, 8 * sizeof *all.ids) == 0;
            found += memcmp(every.ids + 8 * j, all.ids + 8 * i, 8 * sizeof *all.ids) == 0;
        }
        ck_assert_uint_eq(found, there);
    }
    calm_tokenizer_close(tokenizer);
}
END_OF_TEST

/* ---- windows that begin as the tokenizer's template begins a text ---- */

/* Writes a tokenizer with a template that puts <|endoftext|> before and after a text; returns the token's id. */
static calm_tokenizer *open_with_template(uint32_t *begin)
{
    const char *path = test_format("%s/template.json", test_directory());
    calm_tokenizer *tokenizer;
    *begin = (uint32_t)tiny_tokenizer_write(path, -1);
    ck_ok(calm_tokenizer_open(ctx, path, &tokenizer));
    ck_assert_str_eq(calm_tokenizer_token(tokenizer, *begin), "<|endoftext|>");
    return tokenizer;
}

static calm_windows read_begun(const calm_tokenizer *tokenizer, const char *path, size_t seqlen, bool special)
{
    const calm_windows_options options = {.seqlen = seqlen, .seed = -1, .special = special};
    calm_windows windows;
    ck_ok(calm_windows_read(ctx, tokenizer, path, &options, &windows));
    return windows;
}

TEST(every_window_begins_as_the_template_does)
{
    uint32_t begin, *ids;
    calm_tokenizer *tokenizer = open_with_template(&begin), *plain = open_tokenizer();
    const char *text = long_text(), *path = text_file("a.txt", text, strlen(text));
    size_t n;
    ck_ok(calm_tokenizer_encode(ctx, plain, text, strlen(text), false, &ids, &n));
    const calm_windows w = read_begun(tokenizer, path, 16, true), old = read_begun(tokenizer, path, 16, false);
    ck_assert_uint_eq(w.n_tokens, n);       /* of the text */
    ck_assert_uint_eq(w.n, n / 15);
    ck_assert_uint_eq(w.longest, 16);
    for (size_t i = 0; i < w.n; i++) {
        ck_assert_uint_eq(w.begin[i], 16 * i);
        ck_assert_uint_eq(w.ids[16 * i], begin);
        ck_assert_mem_eq(w.ids + 16 * i + 1, ids + 15 * i, 15 * sizeof *ids);    /* nothing of the text is left out */
    }
    /* Without the token a window has one more of the text; a tokenizer without a template makes no difference. */
    ck_assert_uint_eq(old.n, n / 16);
    ck_assert_mem_eq(old.ids, ids, 16 * old.n * sizeof *ids);
    ck_assert_str_ne(w.sha256, old.sha256);
    ck_assert_str_eq(read_begun(plain, path, 16, true).sha256, old.sha256);
    calm_tokenizer_close(tokenizer);
    calm_tokenizer_close(plain);
}
END_OF_TEST

/* Documents of 7, 1 and 3 tokens in windows of 4: of 3, 3, 1; 1; 3 tokens of the text. */
TEST(documents_begin_as_the_template_does)
{
    static const char lines[] = "\"a b c d e f g\"\n\"a\"\n\"a b c\"\n";
    static const size_t lengths[] = {4, 4, 2, 2, 4};
    uint32_t begin;
    calm_tokenizer *tokenizer = open_with_template(&begin);
    const calm_windows w = read_begun(tokenizer, text_file("a.jsonl", lines, sizeof lines - 1), 4, true);
    ck_assert_uint_eq(w.n_tokens, 11);
    ck_assert_uint_eq(w.n, 5);
    for (size_t i = 0; i < w.n; i++) {
        ck_assert_uint_eq(w.begin[i + 1] - w.begin[i], lengths[i]);
        ck_assert_uint_eq(w.ids[w.begin[i]], begin);
    }
    calm_tokenizer_close(tokenizer);
}
END_OF_TEST

TEST(beginnings_that_cannot_be_used)
{
    uint32_t begin;
    calm_tokenizer *tokenizer = open_with_template(&begin), *broken;
    const char *unknown = test_format("%s/unknown.json", test_directory());
    calm_windows_options options = {.seqlen = 8, .seed = -1, .special = true};
    calm_windows windows;
    const char *six = text_file("six.txt", "a b c d e f", 11), *enough = text_file("seven.txt", "a b c d e f g", 13);
    ck_fails(calm_windows_read(ctx, tokenizer, six, &options, &windows), CALM_EARG,
             "six.txt: 6 tokens, expected at least 7 for a window of 8 with what the tokenizer's template begins with");
    ck_ok(calm_windows_read(ctx, tokenizer, enough, &options, &windows));
    ck_assert_uint_eq(windows.n, 1);
    options.vocab = begin;    /* the model has no such token */
    ck_fails(calm_windows_read(ctx, tokenizer, enough, &options, &windows), CALM_EFORMAT,
             test_format("the tokenizer's template begins with id %u (\"<|endoftext|>\"), but the model's vocabulary "
                         "has %u", begin, begin));
    options.vocab = begin + 1;
    ck_ok(calm_windows_read(ctx, tokenizer, enough, &options, &windows));
    options.seqlen = 1;
    ck_fails(calm_windows_read(ctx, tokenizer, enough, &options, &windows), CALM_EARG, "windows of 1 tokens");
    calm_tokenizer_close(tokenizer);
    /* No token of the tokenizer has that id. */
    tiny_tokenizer_write(unknown, 99999999);
    ck_fails(calm_tokenizer_open(ctx, unknown, &broken), CALM_EFORMAT,
             "\"B\": ids[0] is not the id of a token");
}
END_OF_TEST

TEST(texts_that_cannot_be_used)
{
    calm_tokenizer *tokenizer = open_tokenizer();
    refused(tokenizer, text_file("empty.txt", "", 0), 8, 0, CALM_EARG, "empty.txt: the text is empty");
    refused(tokenizer, text_file("blank.txt", " \n\t\r\n", 5), 8, 0, CALM_EARG, "the text is empty");
    refused(tokenizer, text_file("empty.jsonl", "\n\n", 2), 8, 0, CALM_EARG, "the text is empty");
    refused(tokenizer, text_file("short.txt", "a b c", 5), 8, 0, CALM_EARG,
            "short.txt: 3 tokens, expected at least one window of 8");
    refused(tokenizer, text_file("one.txt", "a b c", 5), 1, 0, CALM_EARG, "windows of 1 tokens");
    refused(tokenizer, "/none/such.txt", 8, 0, CALM_ENOTFOUND, "/none/such.txt");
    refused(tokenizer, test_directory(), 8, 0, CALM_EARG, "");
    refused(tokenizer, text_file("utf8.txt", "a b\xff c d e f g h i j", 21), 2, 0, CALM_EFORMAT, "utf8.txt: ");
    refused(tokenizer, text_file("utf8.txt", "a b\xff c d e f g h i j", 21), 2, 0, CALM_EFORMAT, "3");
    refused(tokenizer, text_file("a.jsonl", "\"fine here\"\n{\"text\": \"x\"\n", 25), 2, 0, CALM_EFORMAT,
            "a.jsonl: line 2");
    refused(tokenizer, text_file("a.jsonl", "\"fine here\"\n\n{\"txt\": \"x\"}\n", 26), 2, 0, CALM_EFORMAT,
            "line 3: expected a string or an object with \"text\"");
    refused(tokenizer, text_file("a.jsonl", "17\n", 3), 2, 0, CALM_EFORMAT, "line 1: expected a string");
    calm_tokenizer_close(tokenizer);
}
END_OF_TEST

TEST(ids_outside_the_vocabulary)
{
    calm_tokenizer *tokenizer = open_tokenizer();
    uint32_t *ids, least = 0;
    size_t n, at = 0;
    const char *text = "plain words here and there";
    ck_ok(calm_tokenizer_encode(ctx, tokenizer, text, strlen(text), false, &ids, &n));
    for (size_t i = 0; i < n; i++)
        least = ids[i] > least ? ids[i] : least;
    while (ids[at] < least)
        at++;
    const char *path = text_file("a.txt", text, strlen(text));
    refused(tokenizer, path, 2, least, CALM_EFORMAT,
            test_format("token %zu has id %u, but the model's vocabulary has %u", at, least, least));
    const calm_windows_options options = {.seqlen = 2, .seed = -1, .vocab = least + 1};
    calm_windows windows;
    ck_ok(calm_windows_read(ctx, tokenizer, path, &options, &windows));
    calm_tokenizer_close(tokenizer);
}
END_OF_TEST

TEST(slices_have_their_own_digest)
{
    calm_tokenizer *tokenizer = open_tokenizer();
    const char *text = long_text(), *path = text_file("a.txt", text, strlen(text));
    calm_windows all = read_windows(tokenizer, path, 8, 0, -1), first = read_windows(tokenizer, path, 8, 6, -1), slice,
                 tail;
    ck_ok(calm_windows_slice(ctx, &all, 0, 6, &slice));
    ck_assert_str_eq(slice.sha256, first.sha256);
    ck_assert_str_ne(slice.sha256, all.sha256);
    ck_ok(calm_windows_slice(ctx, &all, 6, 3, &tail));
    ck_assert_uint_eq(tail.n, 3);
    ck_assert_uint_eq(tail.longest, 8);
    ck_assert_ptr_eq(tail.ids, all.ids + 48);
    ck_assert_uint_eq(tail.begin[0], 0);
    ck_assert_uint_eq(tail.begin[3], 24);
    ck_assert_str_ne(tail.sha256, slice.sha256);
    calm_tokenizer_close(tokenizer);
}
END_OF_TEST

TEST(texts_are_joined_in_turn)
{
    static const uint8_t expected[] = {0, 1, 2, 0, 2, 2};
    size_t first[] = {3, 4}, second[] = {9}, third[] = {2, 5, 6};
    const calm_windows texts[] = {tiny_windows(first, 2), tiny_windows(second, 1), tiny_windows(third, 3)};
    size_t turn[3] = {0};
    calm_windows all, tail;
    ck_ok(calm_windows_join(ctx, texts, 3, &all));
    ck_assert(all.n == 6 && all.n_texts == 3 && all.longest == 9 && all.begin[6] == 29);
    for (size_t w = 0; w < 6; w++) {
        const calm_windows *of = &texts[expected[w]];
        const size_t i = turn[expected[w]]++, n = of->begin[i + 1] - of->begin[i];
        ck_assert_uint_eq(all.text[w], expected[w]);
        ck_assert_uint_eq(all.begin[w + 1] - all.begin[w], n);
        ck_assert(memcmp(all.ids + all.begin[w], of->ids + of->begin[i], n * sizeof *of->ids) == 0);
    }
    ck_assert_uint_eq(calm_windows_text_tokens(&all, 0), 7);
    ck_assert_uint_eq(calm_windows_text_tokens(&all, 2), 13);
    ck_assert_uint_eq(calm_windows_text_tokens(&texts[0], 0), 7);    /* one text: all */
    ck_ok(calm_windows_slice(ctx, &all, 3, 3, &tail));
    ck_assert(tail.n_texts == 3 && tail.text[0] == 0 && tail.text[1] == 2);
    ck_assert_uint_eq(calm_windows_text_tokens(&tail, 1), 0);
}
END_OF_TEST

/* Seven windows in batches of three with a short last one, for as many parts as batches or more. */
TEST(parts_end_with_batches)
{
    static const size_t expected[4][2] = {{0, 0}, {0, 3}, {3, 3}, {6, 1}};
    size_t each[7] = {2, 9, 2, 2, 2, 2, 2}, first;
    const calm_windows all = tiny_windows(each, 7);
    calm_windows part;
    for (size_t r = 0; r < 4; r++) {
        ck_ok(calm_windows_part(ctx, &all, 3, r, 4, &part, &first));
        ck_assert(first == expected[r][0] && part.n == expected[r][1]);
        ck_assert(calm_windows_before(7, 3, r, 4) == first && calm_windows_before(7, 0, r, 4) == 0);
        ck_assert_uint_eq(part.longest, 9);    /* also of parts without the longest */
        ck_assert(part.ids == all.ids + all.begin[first]);
    }
    for (size_t r = 0, at = 0; r < 2; r++, at += part.n) {
        ck_ok(calm_windows_part(ctx, &all, 1, r, 2, &part, &first));
        ck_assert(first == at && part.n == 3 + r);
    }
}
END_OF_TEST

/* 3 + 2 tokens are five; nothing goes past the end; a window that is long enough is alone. */
TEST(short_windows_are_put_together)
{
    size_t each[5] = {3, 2, 9, 2, 2};
    const calm_windows all = tiny_windows(each, 5);
    ck_assert_uint_eq(calm_windows_range_end(&all, 0, 5, 5), 2);
    ck_assert_uint_eq(calm_windows_range_end(&all, 0, 5, 6), 3);
    ck_assert_uint_eq(calm_windows_range_end(&all, 2, 5, 5), 3);
    ck_assert_uint_eq(calm_windows_range_end(&all, 3, 5, 5), 5);
    ck_assert_uint_eq(calm_windows_range_end(&all, 3, 4, 5), 4);
    ck_assert_uint_eq(calm_windows_range_end(&all, 1, 5, 1), 2);
}
END_OF_TEST

/* Beginnings of the first windows, with positions and types; a shorter window stays whole. */
TEST(cut_windows)
{
    uint32_t ids[] = {1, 2, 3, 4, 5, 6, 7, 8, 9}, positions[] = {0, 1, 5, 0, 1, 0, 2, 4, 6};
    uint8_t types[] = {0, 1, 1, 0, 1, 0, 0, 1, 1};
    size_t begin[] = {0, 3, 5, 9};
    const calm_windows from = {.ids = ids, .begin = begin, .n = 3, .longest = 4, .positions = positions, .types = types,
                               .n_available = 7};
    calm_windows cut, whole;
    ck_ok(calm_windows_cut(ctx, &from, 2, 2, &cut));
    ck_assert_uint_eq(cut.n, 2);
    ck_assert_uint_eq(cut.longest, 2);
    ck_assert_uint_eq(cut.n_available, 7);
    ck_assert_uint_eq(cut.begin[1], 2);
    ck_assert_uint_eq(cut.begin[2], 4);
    ck_assert(memcmp(cut.ids, (uint32_t[]){1, 2, 4, 5}, 4 * sizeof *ids) == 0);
    ck_assert(memcmp(cut.positions, (uint32_t[]){0, 1, 0, 1}, 4 * sizeof *ids) == 0);
    ck_assert(memcmp(cut.types, (uint8_t[]){0, 1, 0, 1}, 4) == 0);
    ck_ok(calm_windows_cut(ctx, &from, 3, SIZE_MAX, &whole));
    ck_assert(memcmp(whole.begin, begin, sizeof begin) == 0 && memcmp(whole.ids, ids, sizeof ids) == 0);
    ck_assert_str_ne(whole.sha256, cut.sha256);
}
END_OF_TEST

static void keep_line(void *user, calm_log_level level, const char *line)
{
    ck_assert_int_eq(level, CALM_LOG_WARNING);
    snprintf(user, 200, "%s", line);
}

TEST(windows_beyond_the_positions)
{
    char said[200] = "";
    const calm_windows w = {.n = 1, .longest = 9};
    ctx->log = keep_line, ctx->log_user = said;
    calm_windows_warn_positions(ctx, &w, 9, "m", "calibration");
    ck_assert_str_eq(said, "");
    calm_windows_warn_positions(ctx, &w, 8, "m", "calibration");
    ctx->log = NULL;
    ck_assert_str_eq(said, "calibration: windows of 9 tokens are longer than the 8 positions of m "
                           "(max_position_embeddings)");
}
END_OF_TEST

int main(void)
{
    return run_tests("windows", (const TTest *[]){a_text_is_one_stream, lines_never_share_a_window,
                                                  the_last_windows_are_spread, spread_windows_are_doubled, seeds,
                                                  every_window_begins_as_the_template_does,
                                                  documents_begin_as_the_template_does, beginnings_that_cannot_be_used,
                                                  texts_that_cannot_be_used, ids_outside_the_vocabulary,
                                                  slices_have_their_own_digest, texts_are_joined_in_turn,
                                                  parts_end_with_batches,
                                                  short_windows_are_put_together, cut_windows,
                                                  windows_beyond_the_positions, NULL});
}
