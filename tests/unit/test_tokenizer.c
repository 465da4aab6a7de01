/* Small tokenizers written by the tests: merging against a slow version, splits, added tokens, templates, decoding;
 * missing memory, many threads and large files.  test_tokenizer_errors.c has files that are refused. */
#include "ptq/tokenizer/tokenizer.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "ptq/base/file.h"
#include "ptq/base/rng_impl.h"
#include "ptq/base/sha256.h"
#include "ptq/base/threads.h"
#include "tests/support/harness.h"

#define BYTE_LEVEL "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}"
#define ADDED(id, content, flags) "{\"id\":" #id ",\"content\":\"" content "\"" flags "}"

/* Members of a tokenizer.json; NULL: null. */
typedef struct parts {
    const char *normalizer, *pre, *vocab, *merges, *model, *added, *post, *decoder;
} parts;

static const char *or_null(const char *json)
{
    return json ? json : "null";
}

static calm_tokenizer *opened(parts p)
{
    const char *path = test_format("%s/tokenizer.json", test_directory());
    const char *json = test_format(
        "{\"version\":\"1.0\",\"added_tokens\":[%s],\"normalizer\":%s,\"pre_tokenizer\":%s,\"post_processor\":%s,"
        "\"decoder\":%s,\"model\":{\"type\":\"BPE\",\"vocab\":{%s},\"merges\":[%s]%s}}",
        p.added ? p.added : "", or_null(p.normalizer), or_null(p.pre), or_null(p.post), or_null(p.decoder), p.vocab,
        p.merges ? p.merges : "", p.model ? p.model : "");
    calm_tokenizer *tok;
    ck_ok(calm_write_file(ctx, path, json, strlen(json)));
    ck_ok(calm_tokenizer_open(ctx, path, &tok));
    return tok;
}

/* Returns the ids of the text as "1 2 3". */
static const char *encoded(const calm_tokenizer *tok, const char *text, bool special)
{
    uint32_t *ids;
    size_t n;
    const char *list = "";
    ck_ok(calm_tokenizer_encode(ctx, tok, text, strlen(text), special, &ids, &n));
    for (size_t i = 0; i < n; i++)
        list = test_format("%s%s%" PRIu32, list, i ? " " : "", ids[i]);
    return list;
}

/* Checks the ids of a text with the tokenizer of these parts. */
static void check(parts p, const char *text, const char *expected)
{
    calm_tokenizer *tok = opened(p);
    ck_assert_str_eq(encoded(tok, text, false), expected);
    calm_tokenizer_close(tok);
}

#define LETTERS "\"a\":0,\"b\":1,\"c\":2,\"ab\":3,\"bc\":4,\"abc\":5"

TEST(the_lowest_rank_merges_first)
{
    check((parts){.vocab = LETTERS, .merges = "\"a b\",\"b c\",\"ab c\""}, "abcab", "5 3");
    check((parts){.vocab = LETTERS, .merges = "[\"b\",\"c\"],[\"a\",\"b\"],[\"ab\",\"c\"]"}, "abcab", "0 4 3");
    check((parts){.vocab = LETTERS, .merges = "\"a b\",\"b c\",\"a bc\",\"ab c\""}, "abc", "5");
    check((parts){.vocab = LETTERS, .merges = ""}, "abc", "0 1 2");
    /* Of equal ranks the leftmost merges; a merge listed twice has its later rank. */
    check((parts){.vocab = "\"a\":0,\"aa\":1", .merges = "\"a a\""}, "aaaaa", "1 1 0");
    check((parts){.vocab = LETTERS, .merges = "\"a b\",\"b c\",\"a b\""}, "abc", "0 4");
    check((parts){.vocab = LETTERS, .merges = "\"a b\""}, "", "");
}
END_OF_TEST

TEST(files_of_2019_have_no_type)
{
    const char *path = test_format("%s/tokenizer.json", test_directory());
    const char *json = "{\"model\":{\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":\"\","
                       "\"end_of_word_suffix\":\"\",\"fuse_unk\":false,\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},"
                       "\"merges\":[\"a b\"]}}";
    calm_tokenizer *tok;
    ck_ok(calm_write_file(ctx, path, json, strlen(json)));
    ck_ok(calm_tokenizer_open(ctx, path, &tok));
    ck_assert_str_eq(encoded(tok, "aab", false), "0 2");
    calm_tokenizer_close(tok);
}
END_OF_TEST

TEST(a_whole_piece_may_be_taken_before_merging)
{
    check((parts){.vocab = LETTERS, .merges = "\"b c\"", .model = ",\"ignore_merges\":true"}, "abc", "5");
    check((parts){.vocab = LETTERS, .merges = "\"b c\"", .model = ",\"ignore_merges\":false"}, "abc", "0 4");
}
END_OF_TEST

TEST(unknown_characters)
{
    const char *vocab = "\"a\":0,\"b\":1,\"?\":2,\"ab\":3";
    check((parts){.vocab = vocab, .merges = "\"a b\""}, "axb\xE4\xB8\xAD", "3");
    check((parts){.vocab = vocab, .model = ",\"unk_token\":\"?\""}, "axx\xE4\xB8\xAD" "b", "0 2 2 2 1");
    check((parts){.vocab = vocab, .model = ",\"unk_token\":\"?\",\"fuse_unk\":true"},
          "axx\xE4\xB8\xAD"
          "bx",
          "0 2 1 2");
}
END_OF_TEST

/* The definition, word for word: find the lowest rank that applies anywhere, merge its leftmost place, repeat. */
static const char *merged_slowly(const char *text, char merges[][2][64], size_t n_merges, const char *const *tokens,
                                 size_t n_tokens)
{
    static char symbols[64][64];
    size_t n = strlen(text);
    for (size_t i = 0; i < n; i++)
        snprintf(symbols[i], sizeof symbols[i], "%c", text[i]);
    for (size_t rank = 0; rank < n_merges; rank++)
        for (size_t i = 0; i + 1 < n; i++)
            if (strcmp(symbols[i], merges[rank][0]) == 0 && strcmp(symbols[i + 1], merges[rank][1]) == 0) {
                strcat(symbols[i], symbols[i + 1]);
                memmove(symbols[i + 1], symbols[i + 2], (n - i - 2) * sizeof *symbols);
                n--;
                rank = SIZE_MAX;    /* from the first rank again */
                break;
            }
    const char *list = "";
    for (size_t i = 0; i < n; i++)
        for (size_t id = 0; id < n_tokens; id++)
            if (strcmp(symbols[i], tokens[id]) == 0)
                list = test_format("%s%s%zu", list, i ? " " : "", id);
    return list;
}

TEST(merging_agrees_with_its_definition)
{
    enum { N_MERGES = 40, ROUNDS = 20 };
    static char merges[N_MERGES][2][64];
    for (uint64_t round = 0; round < ROUNDS; round++) {
        const char *tokens[3 + N_MERGES] = {"a", "b", "c"};
        size_t n_tokens = 3, n_merges = 0;
        const char *vocab = "\"a\":0,\"b\":1,\"c\":2", *list = "";
        for (uint64_t draw = 0; n_merges < N_MERGES; draw++) {
            const char *left = tokens[calm_rng_u64(1, round, 2 * draw) % n_tokens];
            const char *right = tokens[calm_rng_u64(1, round, 2 * draw + 1) % n_tokens];
            const char *both = test_format("%s%s", left, right);
            bool known = strlen(both) > 8;
            for (size_t i = 0; i < n_tokens; i++)
                known |= strcmp(tokens[i], both) == 0;
            if (known)
                continue;
            strcpy(merges[n_merges][0], left);
            strcpy(merges[n_merges][1], right);
            list = test_format("%s%s\"%s %s\"", list, n_merges++ ? "," : "", left, right);
            vocab = test_format("%s,\"%s\":%zu", vocab, both, n_tokens);
            tokens[n_tokens++] = both;
        }
        calm_tokenizer *tok = opened((parts){.vocab = vocab, .merges = list});
        for (uint64_t k = 0; k < 50; k++) {
            char text[49];
            size_t n = 1 + calm_rng_u64(2, round, k) % 48;
            for (size_t i = 0; i < n; i++)
                text[i] = (char)('a' + calm_rng_u64(3 + k, round, i) % 3);
            text[n] = '\0';
            ck_assert_str_eq(encoded(tok, text, false), merged_slowly(text, merges, n_merges, tokens, n_tokens));
        }
        calm_tokenizer_close(tok);
    }
}
END_OF_TEST

/* Every possible piece is a token, so the ids show the pieces. */
#define PIECES "\"a\":0,\"-\":1,\"b\":2,\"a-\":3,\"-b\":4,\"--\":5,\"a--b\":6"

static void check_split(const char *split, const char *text, const char *expected)
{
    check((parts){.pre = test_format("{\"type\":\"Split\",%s}", split),
                  .vocab = PIECES,
                  .model = ",\"ignore_merges\":true"},
          text, expected);
}

TEST(split_behaviors)
{
    check_split("\"pattern\":{\"String\":\"-\"},\"behavior\":\"Isolated\",\"invert\":false", "a--b", "0 1 1 2");
    check_split("\"pattern\":{\"Regex\":\"-\"},\"behavior\":\"Removed\"", "a--b", "0 2");
    check_split("\"pattern\":{\"Regex\":\"-\"},\"behavior\":\"Removed\",\"invert\":true", "a--b", "1 1");
    check_split("\"pattern\":{\"Regex\":\"-\"},\"behavior\":\"MergedWithPrevious\"", "a--b", "3 1 2");
    check_split("\"pattern\":{\"Regex\":\"-\"},\"behavior\":\"MergedWithPrevious\"", "-b", "1 2");
    check_split("\"pattern\":{\"Regex\":\"-\"},\"behavior\":\"MergedWithNext\"", "a--b", "0 1 4");
    check_split("\"pattern\":{\"Regex\":\"-\"},\"behavior\":\"MergedWithNext\"", "-b-", "4 1");
    check_split("\"pattern\":{\"Regex\":\"-\"},\"behavior\":\"Contiguous\"", "a--b", "0 5 2");
    check_split("\"pattern\":{\"Regex\":\"x\"},\"behavior\":\"Isolated\"", "a--b", "6");
    check_split("\"pattern\":{\"String\":\".\"},\"behavior\":\"Isolated\"", "a--b", "6");
    /* An empty match is a place to split, but not right after a match. */
    check_split("\"pattern\":{\"Regex\":\"(?=-b)\"},\"behavior\":\"Isolated\"", "a--b", "3 4");
    check_split("\"pattern\":{\"Regex\":\"a|\"},\"behavior\":\"Isolated\"", "a--b", "0 1 1 2");
}
END_OF_TEST

TEST(digits)
{
    const char *vocab = "\"x\":0,\"1\":1,\"2\":2,\"12\":3,\"x12\":4";
    check((parts){.pre = "{\"type\":\"Digits\",\"individual_digits\":true}", .vocab = vocab,
                  .model = ",\"ignore_merges\":true"}, "x12x", "0 1 2 0");
    check((parts){.pre = "{\"type\":\"Digits\",\"individual_digits\":false}", .vocab = vocab,
                  .model = ",\"ignore_merges\":true"}, "x12x", "0 3 0");
}
END_OF_TEST

TEST(byte_level_with_prefix)
{
    const char *vocab = "\"a\":0,\"\xC4\xA0\":1,\"\xC4\xA0"
                        "a\":2,\"\xC4\x8A\":3,\"\xC3\xA2\":4,\"\xC4\xA4\":5,\"\xC2\xAC\":6";
    const char *merges = "\"\xC4\xA0 a\"";
    const char *pre = "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true}";
    check((parts){.pre = pre, .vocab = vocab, .merges = merges}, "a", "2");
    check((parts){.pre = pre, .vocab = vocab, .merges = merges}, " a", "2");
    check((parts){.pre = pre, .vocab = vocab, .merges = merges}, "  a", "1 2");
    check((parts){.pre = pre, .vocab = vocab, .merges = merges}, "\na", "1 3 0");
    check((parts){.pre = pre, .vocab = vocab, .merges = merges}, "\xE2\x82\xAC", "1 4 5 6");
    check((parts){.pre = pre, .vocab = vocab, .merges = merges}, "", "");
    /* Each piece between added tokens has a prefix, an empty one has none. */
    check((parts){.pre = pre, .vocab = vocab, .merges = merges, .added = ADDED(9, "<x>", "")}, "a<x>a<x><x>",
          "2 9 2 9 9");
}
END_OF_TEST

TEST(nfc_comes_before_the_pieces)
{
    const char *vocab = "\"\xC3\xA9\":0,\"e\":1,\"<\":2";
    check((parts){.normalizer = "{\"type\":\"NFC\"}", .vocab = vocab}, "e\xCC\x81", "0");
    check((parts){.normalizer = "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"}]}", .vocab = vocab},
          "e\xCC\x81", "0");
    check((parts){.vocab = vocab}, "e\xCC\x81", "1");
    /* A token that is not normalized is found in the original text, a normalized one in the normalized text. */
    const char *raw = ADDED(5, "e\xCC\x81", ",\"normalized\":false"),
               *normal = ADDED(5, "e\xCC\x81", ",\"normalized\":true");
    check((parts){.normalizer = "{\"type\":\"NFC\"}", .vocab = vocab, .added = raw}, "e\xCC\x81\xC3\xA9", "5 0");
    check((parts){.normalizer = "{\"type\":\"NFC\"}", .vocab = vocab, .added = normal}, "e\xCC\x81\xC3\xA9", "5 5");
}
END_OF_TEST

TEST(added_tokens_are_cut_out)
{
    const char *vocab = "\"a\":0,\" \":1,\"<\":2";
    check((parts){.vocab = vocab, .added = ADDED(7, "<|x|>", ",\"special\":true")}, "a<|x|>a<|x|<|x|>", "0 7 0 2 7");
    /* The leftmost one, then the longest. */
    check((parts){.vocab = vocab, .added = ADDED(7, "aa", "") "," ADDED(8, "aaa", "") "," ADDED(9, "<a", "")},
          "aaaa<aaa", "8 0 9 7");
    check((parts){.vocab = vocab, .added = ADDED(7, "<x>", ",\"lstrip\":true")}, "a  <x>  a", "0 7 1 1 0");
    check((parts){.vocab = vocab, .added = ADDED(7, "<x>", ",\"rstrip\":true")}, "a  <x>\t\xE3\x80\x80 a", "0 1 1 7 0");
    check((parts){.vocab = vocab, .added = ADDED(7, "<x>", ",\"rstrip\":true,\"lstrip\":true")}, " <x> \n <x> a",
          "7 7 0");
    check((parts){.vocab = vocab, .added = ADDED(7, "<x>", ",\"single_word\":true")}, "a<x>a <x> a<x> <x>",
          "0 2 0 1 7 1 0 2 1 7");
    check((parts){.vocab = vocab, .added = ADDED(7, "<x>", ",\"single_word\":true")}, "\xC3\xA9<x>-<x>\xCC\x81", "2 2");
    /* White space that a token absorbed may also be another token. */
    check((parts){.vocab = vocab, .added = ADDED(7, "<x>", ",\"rstrip\":true") "," ADDED(8, "  ", "")}, "<x>  a",
          "7 8 0");
    check((parts){.vocab = vocab, .added = ADDED(7, "<x>", ",\"rstrip\":true") "," ADDED(8, "  ", ",\"lstrip\":true")},
          "<x>  a", "7 0");
    check((parts){.vocab = vocab, .added = ADDED(7, "\\n", ",\"rstrip\":true,\"lstrip\":true")}, "\n\n\na \n \n",
          "7 0 7");
    /* A token in the vocabulary keeps its id; an empty one is never found. */
    check((parts){.vocab = vocab, .added = ADDED(2, "<", "") "," ADDED(7, "", "")}, "a<a", "0 2 0");
}
END_OF_TEST

/* Expected ids and texts are those of the tokenizers library, 0.23. */
TEST(added_tokens_listed_again)
{
    const char *vocab = "\"a\":0,\" \":1,\"<\":2";
    const char *last = ADDED(3, "<x>", ",\"lstrip\":true"), *plain = ADDED(3, "<x>", "");
    check((parts){.vocab = vocab, .added = test_format("%s,%s", plain, plain)}, "a <x> a", "0 1 3 1 0");
    /* Of two that differ the last counts. */
    check((parts){.vocab = vocab, .added = test_format("%s,%s", plain, last)}, "a <x> a", "0 3 1 0");
    check((parts){.vocab = vocab, .added = test_format("%s,%s", last, plain)}, "a <x> a", "0 1 3 1 0");
    /* It stays special: it is left out of the decoded text. */
    char *text;
    size_t n;
    calm_tokenizer *tok = opened((parts){
        .vocab = vocab, .added = ADDED(3, "<x>", ",\"special\":true") "," ADDED(3, "<x>", ",\"rstrip\":true")});
    ck_assert_str_eq(encoded(tok, "a <x> a", false), "0 1 3 0");
    ck_ok(calm_tokenizer_decode(ctx, tok, (const uint32_t[]){0, 1, 3, 0}, 4, false, &text, &n));
    ck_assert_str_eq(text, "a   a");
    calm_tokenizer_close(tok);
    /* The first id counts, and those after it are numbered anew. */
    check((parts){.vocab = vocab, .added = ADDED(3, "<x>", "") "," ADDED(4, "<x>", "") "," ADDED(5, "<y>", "")},
          "a<x><y>", "0 3 4");
    /* An impossible id is replaced: by the model's, or by the next one. */
    check((parts){.vocab = vocab, .added = ADDED(1, "a", "")}, "a <", "0 1 2");
    check((parts){.vocab = vocab, .added = ADDED(1, "<x>", "") "," ADDED(3, "<y>", "")}, "<x><y>a", "3 4 0");
    check((parts){.vocab = vocab, .added = ADDED(3, "<x>", "") "," ADDED(3, "<y>", "")}, "<x><y>a", "3 4 0");
}
END_OF_TEST

#define TEMPLATE(before, after)                                                                                \
    "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"" before "\",\"type_id\":0}},"          \
    "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{\"SpecialToken\":{\"id\":\"" after "\",\"type_id\":0}}],"            \
    "\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[7]},\"</s>\":{\"id\":\"</s>\",\"ids\":[8,9]}}}"

TEST(templates_surround_the_text)
{
    const char *added =
        ADDED(7, "<s>", ",\"special\":true") "," ADDED(8, "</s>", ",\"special\":true") "," ADDED(9, "<e>", "");
    calm_tokenizer *tok = opened((parts){.vocab = LETTERS, .added = added, .post = TEMPLATE("<s>", "</s>")});
    ck_assert_str_eq(encoded(tok, "ab", true), "7 0 1 8 9");
    ck_assert_str_eq(encoded(tok, "ab", false), "0 1");
    ck_assert_str_eq(encoded(tok, "", true), "7 8 9");
    ck_assert_uint_eq(calm_tokenizer_size(tok), 10);
    calm_tokenizer_close(tok);
    /* In a sequence the next template encloses the one before. */
    tok = opened((parts){.vocab = LETTERS,
                         .added = added,
                         .post = "{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"}," TEMPLATE(
                             "<s>", "</s>") "," TEMPLATE("</s>", "<s>") "]}"});
    ck_assert_str_eq(encoded(tok, "a", true), "8 9 7 0 8 9 7");
    calm_tokenizer_close(tok);
}
END_OF_TEST

static void check_decoded(const calm_tokenizer *tok, const uint32_t *ids, size_t n, bool special, const char *expected)
{
    char *text;
    size_t n_bytes;
    ck_ok(calm_tokenizer_decode(ctx, tok, ids, n, special, &text, &n_bytes));
    ck_assert_str_eq(text, expected);
    ck_assert_uint_eq(n_bytes, strlen(expected));
}

TEST(ids_become_text_again)
{
    const char *vocab = "\"a\":0,\"\xC4\xA0\":1,\"\xC3\xA2\xC4\xA4\":2,\"\xC2\xAC\":3,\"\xE4\xB8\xAD\":4";
    const char *added = ADDED(7, "<s>", ",\"special\":true") "," ADDED(9, "\xE4\xB8\xAD \xC3\xA9", "");
    calm_tokenizer *tok = opened((parts){.vocab = vocab, .added = added, .pre = BYTE_LEVEL, .decoder = BYTE_LEVEL});
    check_decoded(tok, (uint32_t[]){0, 1, 2, 3, 0}, 5, true, "a \xE2\x82\xAC" "a");
    check_decoded(tok, (uint32_t[]){2, 0, 3}, 3, true, "\xEF\xBF\xBD" "a\xEF\xBF\xBD");
    check_decoded(tok, (uint32_t[]){7, 0, 7}, 3, true, "<s>a<s>");
    check_decoded(tok, (uint32_t[]){7, 0, 7, 9}, 4, false, "a\xE4\xB8\xAD \xC3\xA9");
    check_decoded(tok, (uint32_t[]){4}, 1, true, "\xE4\xB8\xAD");    /* outside of the alphabet: copied */
    check_decoded(tok, NULL, 0, true, "");
    char *text;
    size_t n;
    ck_fails(calm_tokenizer_decode(ctx, tok, (uint32_t[]){0, 5}, 2, true, &text, &n), CALM_EARG,
             "tokenizer.json: no token has id 5 (number 1");
    ck_fails(calm_tokenizer_decode(ctx, tok, (uint32_t[]){UINT32_MAX}, 1, true, &text, &n), CALM_EARG, "4294967295");
    ck_assert_ptr_null(text);
    calm_tokenizer_close(tok);
    /* Without a decoder the library puts spaces between tokens. */
    tok = opened((parts){.vocab = LETTERS});
    check_decoded(tok, (uint32_t[]){3, 2}, 2, true, "ab c");
    calm_tokenizer_close(tok);
}
END_OF_TEST

/* A normalized token is decoded as its normalized text; only the written text is skipped as special. */
TEST(a_normalized_token_becomes_its_normalized_text)
{
    const char *vocab = "\"a\":0";
    const char *added = ADDED(7, "e\xCC\x81", ",\"normalized\":true,\"special\":true") "," ADDED(
        8, "x", ",\"normalized\":true,\"special\":true");
    calm_tokenizer *tok = opened((parts){.vocab = vocab, .normalizer = "{\"type\":\"NFC\"}", .added = added,
                                         .decoder = "{\"type\":\"Fuse\"}"});
    check_decoded(tok, (uint32_t[]){0, 7, 8}, 3, true, "a\xC3\xA9x");
    check_decoded(tok, (uint32_t[]){0, 7, 8}, 3, false, "a\xC3\xA9");
    calm_tokenizer_close(tok);
}
END_OF_TEST

TEST(tokens_for_people)
{
    const char *vocab = "\"a\":0,\"\xC4\xA0"
                        "a\":1,\"\xC4\x8A\xC4\x89\":2,\"\xC3\xA2\xC4\xA4\":3,\"\xC3\xA2\xC4\xA4\xC2\xAC\":4,"
                        "\"\xC4\x80\":5,\"\xC3\xA2\xC4\xA2\xC4\xAD\":6";
    calm_tokenizer *tok = opened((parts){.vocab = vocab, .added = ADDED(9, "<\xC4\xA0>", ""), .pre = BYTE_LEVEL});
    static const char *const expected[] = {"a", " a", "\\n\\t", "\\xE2\\x82", "\xE2\x82\xAC", "\\x00", "\\u{200B}",
                                           "", "", "<\xC4\xA0>", ""};
    for (uint32_t id = 0; id < sizeof expected / sizeof *expected; id++)
        ck_assert_str_eq(calm_tokenizer_token(tok, id), expected[id]);
    ck_assert_str_eq(calm_tokenizer_token(tok, UINT32_MAX), "");
    calm_tokenizer_close(tok);
}
END_OF_TEST

static calm_tokenizer *bundled(void)
{
    calm_tokenizer *tok;
    ck_ok(calm_tokenizer_open(ctx, CALM_SOURCE_DIR "/recipes/models/qwen-demo/tokenizer.json", &tok));
    return tok;
}

/* 400,738 ids; the digest of their little-endian int32 form comes from the tokenizers library. */
TEST(bundled_tokenizer_on_wikitext)
{
    calm_tokenizer *tok;
    calm_mapping text;
    uint32_t *ids;
    size_t n;
    char digest[CALM_SHA256_HEX];
    ck_ok(calm_tokenizer_open(ctx, CALM_SOURCE_DIR "/recipes/models/qwen-demo/tokenizer.json", &tok));
    ck_ok(calm_map_file(ctx, CALM_SOURCE_DIR "/recipes/text/wikitext2-test.txt", &text));
    ck_ok(calm_tokenizer_encode(ctx, tok, (const char *)text.data, text.bytes, false, &ids, &n));
    ck_assert_uint_eq(n, 400738);
    ck_ok(calm_sha256_bytes(ctx, ids, n * sizeof *ids, digest));
    ck_assert_str_eq(digest, "79085fdf5003c49f9cead4e8623750191304602723d2553ed5e8b41d139be566");
    calm_unmap_file(&text);
    calm_tokenizer_close(tok);
}
END_OF_TEST

TEST(text_that_is_not_utf8_is_refused)
{
    calm_tokenizer *tok = bundled();
    uint32_t *ids;
    size_t n;
    ck_fails(calm_tokenizer_encode(ctx, tok, "good \xC3(", 7, true, &ids, &n), CALM_EFORMAT,
             "not UTF-8 at byte 5 (0xC3)");
    ck_assert_ptr_null(ids);
    ck_fails(calm_tokenizer_encode(ctx, tok, "", SIZE_MAX, true, &ids, &n), CALM_EARG, "expected less than");
    ck_ok(calm_tokenizer_encode(ctx, tok, "a\0b", 3, true, &ids, &n));
    ck_assert_uint_eq(n, 3);
    ck_ok(calm_tokenizer_encode(ctx, tok, NULL, 0, true, &ids, &n));
    ck_assert_uint_eq(n, 0);
    ck_assert_ptr_nonnull(ids);
    calm_tokenizer_close(tok);
}
END_OF_TEST

TEST(no_memory_is_an_error)
{
    static const char text[] = "The quick e\xCC\x81 fox <|im_end|> jumps over 12345 lazy dogs.";
    calm_tokenizer *tok = bundled();
    uint32_t *ids;
    char *back;
    size_t n, n_bytes, n_failed[2] = {0};
    bool failed = true;
    for (long k = 1; failed; k++) {
        calm_arena *arenas[] = {ctx->out, ctx->scratch};
        failed = false;
        for (size_t i = 0; i < 2; i++) {
            arenas[i]->fail_in = k;
            calm_status status = calm_tokenizer_encode(ctx, tok, text, sizeof text - 1, true, &ids, &n);
            if (status == CALM_OK)
                status = calm_tokenizer_decode(ctx, tok, ids, n, true, &back, &n_bytes);
            ck_assert(status == CALM_OK || status == CALM_ENOMEM);
            failed |= status != CALM_OK;
            n_failed[i] += status != CALM_OK;
            arenas[i]->fail_in = 0;
            calm_ctx_clear_failure(ctx);
        }
        ck_assert_int_lt(k, 100);
    }
    ck_assert(n_failed[0] > 0 && n_failed[1] > 0);
    calm_tokenizer_close(tok);
    ck_assert_uint_eq(ctx->scratch->used_bytes, 0);
    ctx->scratch->fail_in = 1;
    ck_fails(calm_tokenizer_open(ctx, CALM_SOURCE_DIR "/recipes/models/qwen-demo/tokenizer.json", &tok), CALM_ENOMEM,
             "out of memory");
    ck_assert_ptr_null(tok);
}
END_OF_TEST

static calm_status encode_in_thread(calm_ctx *task, size_t index, void *user)
{
    const calm_tokenizer *tok = user;
    const char *text = "Threads share one tokenizer, and each of them gets the same ids: <|im_start|> 42";
    calm_arena out = {0};
    uint32_t *ids, sum = 0;
    size_t n;
    task->out = &out;
    CALM_TRY(calm_tokenizer_encode(task, tok, text + index % 7, strlen(text) - index % 7, true, &ids, &n));
    for (size_t i = n - 2; i < n; i++)
        sum = sum * 10000 + ids[i];
    calm_arena_clear(&out);
    return sum == 190017 ? CALM_OK : calm_fail(task, CALM_EMISMATCH, "%zu: last ids %u", index, sum);
}

TEST(threads_share_a_tokenizer)
{
    calm_tokenizer *tok = bundled();
    ctx->n_threads = 4;
    ck_ok(calm_parallel_for(ctx, 500, encode_in_thread, tok));
    calm_tokenizer_close(tok);
}
END_OF_TEST

int main(void)
{
    return run_tests("tokenizer", (const TTest *[]){the_lowest_rank_merges_first, files_of_2019_have_no_type,
                                                    a_whole_piece_may_be_taken_before_merging, unknown_characters,
                                                    merging_agrees_with_its_definition, split_behaviors, digits,
                                                    byte_level_with_prefix, nfc_comes_before_the_pieces,
                                                    added_tokens_are_cut_out, added_tokens_listed_again,
                                                     templates_surround_the_text,
                                                    ids_become_text_again,
                                                    a_normalized_token_becomes_its_normalized_text, tokens_for_people,
                                                    bundled_tokenizer_on_wikitext,
                                                    text_that_is_not_utf8_is_refused, no_memory_is_an_error,
                                                    threads_share_a_tokenizer, NULL});
}
