/* SentencePiece-style BPE, WordPiece and Unigram on small files written by the tests: normalizers, pre-tokenizers,
 * models, post-processors and decoders.  All expectations are answers of the tokenizers library, explained in
 * comments. */
#include <inttypes.h>

#include "ptq/base/file.h"
#include "ptq/tokenizer/tokenizer.h"
#include "tests/support/harness.h"

/* Members of a tokenizer.json; NULL: null. */
typedef struct parts {
    const char *model, *normalizer, *pre, *post, *decoder, *added;
} parts;

static calm_tokenizer *opened(parts p)
{
    const char *path = test_format("%s/tokenizer.json", test_directory());
    const char *json = test_format("{\"model\":%s,\"normalizer\":%s,\"pre_tokenizer\":%s,\"post_processor\":%s,"
                                   "\"decoder\":%s,\"added_tokens\":[%s]}",
                                   p.model, p.normalizer ? p.normalizer : "null", p.pre ? p.pre : "null",
                                   p.post ? p.post : "null", p.decoder ? p.decoder : "null", p.added ? p.added : "");
    calm_tokenizer *tok;
    ck_ok(calm_write_file(ctx, path, json, strlen(json)));
    ck_ok(calm_tokenizer_open(ctx, path, &tok));
    return tok;
}

/* Returns the tokens of the text as readable pieces, with | between. */
static const char *split_up(parts p, const char *text)
{
    calm_tokenizer *tok = opened(p);
    uint32_t *ids;
    size_t n;
    const char *list = "";
    ck_ok(calm_tokenizer_encode(ctx, tok, text, strlen(text), true, &ids, &n));
    for (size_t i = 0; i < n; i++)
        list = test_format("%s%s%s", list, i ? "|" : "", calm_tokenizer_token(tok, ids[i]));
    calm_tokenizer_close(tok);
    return list;
}

static const char *decoded(parts p, const uint32_t *ids, size_t n)
{
    calm_tokenizer *tok = opened(p);
    char *text;
    size_t n_bytes;
    ck_ok(calm_tokenizer_decode(ctx, tok, ids, n, true, &text, &n_bytes));
    ck_assert_uint_eq(n_bytes, strlen(text));
    text = test_format("%s", text);
    calm_tokenizer_close(tok);
    return text;
}

/* ---- WordPiece ---- */

#define WORDS                                                                                                          \
    "{\"type\":\"WordPiece\",\"unk_token\":\"?\",\"continuing_subword_prefix\":\"##\",\"max_input_chars_per_word\":6," \
    "\"vocab\":{\"?\":0,\"a\":1,\"ab\":2,\"##b\":3,\"##c\":4,\"##bc\":5,\"e\":6,\"\xE4\xB8\xAD\":7,\",\":8,\"##cd\":"  \
    "9}}"
#define BERT(clean, chinese, accents, lower)                                                                   \
    "{\"type\":\"BertNormalizer\",\"clean_text\":" #clean ",\"handle_chinese_chars\":" #chinese                        \
    ",\"strip_accents\":" #accents ",\"lowercase\":" #lower "}"
#define PRE(type) "{\"type\":\"" type "\"}"

TEST(words_are_taken_apart_greedily)
{
    const parts p = {.model = WORDS, .pre = PRE("WhitespaceSplit")};
    ck_assert_str_eq(split_up(p, "abc ab abbc"), "ab|##c|ab|ab|##bc");
    ck_assert_str_eq(split_up(p, "abx b abcc"), "?|?|ab|##c|##c");    /* a rest, or a piece only inside: all unknown */
    ck_assert_str_eq(split_up(p, "abcbcb abcbcbc"), "ab|##c|##bc|##b|?");    /* six characters, and seven */
    ck_assert_str_eq(split_up(p, ""), "");
}
END_OF_TEST

TEST(bert_normalizer)
{
    const char *pre = PRE("BertPreTokenizer");
    ck_assert_str_eq(split_up((parts){.model = WORDS, .normalizer = BERT(true, true, null, true), .pre = pre},
                              "\xC3\x89" "A\xE4\xB8\xAD" "A\xE2\x80\x8B" "B\xC2\xA0" ",a"), "?|\xE4\xB8\xAD|ab|,|a");
    ck_assert_str_eq(
        split_up((parts){.model = WORDS, .normalizer = BERT(true, true, null, true), .pre = pre}, "\xC3\x89"), "e");
    ck_assert_str_eq(
        split_up((parts){.model = WORDS, .normalizer = BERT(true, true, false, true), .pre = pre}, "\xC3\x89"), "?");
    ck_assert_str_eq(
        split_up((parts){.model = WORDS, .normalizer = BERT(true, true, true, false), .pre = pre}, "\xC3\xA9"), "e");
    ck_assert_str_eq(
        split_up((parts){.model = WORDS, .normalizer = BERT(true, false, null, false), .pre = pre}, "a\xE4\xB8\xAD"),
        "?");
    ck_assert_str_eq(
        split_up((parts){.model = WORDS, .normalizer = BERT(false, true, null, false), .pre = pre}, "a\xE2\x80\x8B"),
        "?");
}
END_OF_TEST

TEST(punctuation_and_words)
{
    const char *model =
        "{\"type\":\"WordPiece\",\"unk_token\":\"?\",\"vocab\":{\"?\":0,\"a\":1,\"##a\":2,\"-\":3,\"##-\":4,"
        "\"1\":5,\"##1\":6,\"##,\":7}}";
    ck_assert_str_eq(split_up((parts){.model = model, .pre = PRE("Whitespace")}, "a1- -,\ta"), "a|##1|-|-|##,|a");
    ck_assert_str_eq(split_up((parts){.model = model, .pre = PRE("Punctuation")}, "aa--a"), "a|##a|-|-|a");
    ck_assert_str_eq(
        split_up((parts){.model = model, .pre = "{\"type\":\"Punctuation\",\"behavior\":\"MergedWithPrevious\"}"},
                 "aa--a"),
        "a|##a|##-|-|a");
    ck_assert_str_eq(
        split_up((parts){.model = model, .pre = "{\"type\":\"Digits\",\"individual_digits\":true}"}, "a11a"),
        "a|1|1|a");
}
END_OF_TEST

/* ---- BPE over characters ---- */

#define SP                                                                                                             \
    "{\"type\":\"BPE\",\"unk_token\":\"?\",\"fuse_unk\":true,\"byte_fallback\":true,\"vocab\":{\"?\":0,\"_\":1,\"a\":" \
    "2,\"b\":3,"                                                                                                       \
    "\"_a\":4,\"ab\":5,\"_ab\":6,\"<0xC3>\":7,\"<0xA9>\":8,\"b_\":9,\"b_a\":10},\"merges\":[\"_ a\",\"a b\",\"_a "     \
    "b\",\"b _\","                                                                                                     \
    "\"b_ a\"]}"
#define META(scheme, split)                                                                                    \
    "{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"" scheme "\",\"split\":" split "}"

TEST(bytes_stand_in_for_unknown_characters)
{
    ck_assert_str_eq(split_up((parts){.model = SP}, "a\xC3\xA9" "b"), "a|<0xC3>|<0xA9>|b");
    ck_assert_str_eq(split_up((parts){.model = SP}, "axyb"), "a|?|b");    /* no bytes for x and y: one unknown */
    ck_assert_str_eq(split_up((parts){.model = SP}, "<0xC3>"), "?");
    /* Bytes do not revive the unknown token before them. */
    ck_assert_str_eq(split_up((parts){.model = SP}, "x\xC3\xA9" "b"), "<0xC3>|<0xA9>|?|b");
}
END_OF_TEST

TEST(metaspace_and_prepend)
{
    ck_assert_str_eq(split_up((parts){.model = SP, .pre = META("always", "true")}, "a ab"), "_a|_ab");
    ck_assert_str_eq(split_up((parts){.model = SP, .pre = META("never", "true")}, "a ab"), "a|_ab");
    ck_assert_str_eq(split_up((parts){.model = SP, .pre = META("never", "false")}, "b a"), "b|_a");
    ck_assert_str_eq(split_up((parts){.model = SP, .pre = META("always", "true")}, " a"), "_a");
    const char *added = "{\"id\":20,\"content\":\"<x>\"}";
    ck_assert_str_eq(split_up((parts){.model = SP, .pre = META("first", "false"), .added = added}, "a<x>a"),
                     "_a|<x>|a");
    ck_assert_str_eq(split_up((parts){.model = SP, .pre = META("always", "false"), .added = added}, "a<x>a"),
                     "_a|<x>|_a");
    /* "first" is the start of the text, not the start of the rest. */
    ck_assert_str_eq(split_up((parts){.model = SP,
                                      .pre = META("first", "false"),
                                      .normalizer = "{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":true}"},
                              " a"),
                     "a");
    const char *both = "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"_\"},"
                       "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"_\"}]}";
    ck_assert_str_eq(split_up((parts){.model = SP, .normalizer = both}, "a b"), "_a|_|b");
    ck_assert_str_eq(split_up((parts){.model = SP, .normalizer = both}, " a"), "_|_a");
    ck_assert_str_eq(
        split_up(
            (parts){.model = SP, .pre = "{\"type\":\"Metaspace\",\"replacement\":\"_\",\"add_prefix_space\":true}"},
            "a"),
        "_a");
    ck_assert_str_eq(
        split_up(
            (parts){.model = SP, .pre = "{\"type\":\"Metaspace\",\"replacement\":\"_\",\"add_prefix_space\":false}"},
            "a"),
        "a");
}
END_OF_TEST

/* A long piece is cut where no merge joins: the ids are those of its short pieces. */
TEST(long_pieces_are_cut_where_that_changes_nothing)
{
    calm_tokenizer *tok = opened((parts){.model = SP});
    enum { N = 300000 };
    static char text[N];
    static const char period[] = "a_ab_ab\xC3\xA9" "bb_a_x";
    uint32_t *ids, *whole;
    size_t n, n_whole, length = sizeof period - 1;
    for (size_t i = 0; i < N; i++)
        text[i] = period[i % length];
    n = N - N % length;
    ck_ok(calm_tokenizer_encode(ctx, tok, text, n, false, &whole, &n_whole));
    /* The period ends in an unknown character, so that the ids repeat with it. */
    ck_ok(calm_tokenizer_encode(ctx, tok, text, 4 * length, false, &ids, &n));
    ck_assert_uint_eq(n % 4, 0);
    ck_assert_uint_eq(n_whole, N / length * (n / 4));
    for (size_t i = 0; i < n_whole; i++)
        ck_assert_uint_eq(whole[i], ids[i % n]);
    calm_tokenizer_close(tok);
}
END_OF_TEST

TEST(prefixes_and_suffixes)
{
    const char *model =
        "{\"type\":\"BPE\",\"continuing_subword_prefix\":\"##\",\"end_of_word_suffix\":\"$\",\"unk_token\":\"?\","
        "\"vocab\":{\"?\":0,\"a\":1,\"##b\":2,\"##b$\":3,\"a$\":4,\"ab\":5,\"ab$\":6},"
        "\"merges\":[\"a ##b\",\"a ##b$\"]}";
    ck_assert_str_eq(split_up((parts){.model = model, .pre = PRE("WhitespaceSplit")}, "ab a abb ba"),
                     "ab$|a$|ab|##b$|?|?");
    ck_assert_str_eq(decoded((parts){.model = model, .decoder = "{\"type\":\"BPEDecoder\",\"suffix\":\"$\"}"},
                             (const uint32_t[]){6, 5, 4}, 3), "ab aba");
}
END_OF_TEST

/* ---- Unigram ---- */

#define UNIGRAM(vocab, rest) "{\"type\":\"Unigram\",\"vocab\":[" vocab "]" rest "}"
#define SCORES "[\"?\",0],[\"a\",-1],[\"b\",-1.5],[\"ab\",-2.5],[\"aa\",-2],[\"aab\",-3.25]"

TEST(the_best_sum_wins)
{
    const char *model = UNIGRAM(SCORES, ",\"unk_id\":0");
    ck_assert_str_eq(split_up((parts){.model = model}, "ab"), "ab");         /* -2.5 both: the first found stays */
    ck_assert_str_eq(split_up((parts){.model = model}, "aa"), "aa");
    ck_assert_str_eq(split_up((parts){.model = model}, "aab"), "aab");
    ck_assert_str_eq(split_up((parts){.model = model}, "aaab"), "a|aab");    /* -4.25; a aa b and others -4.5 */
    ck_assert_str_eq(split_up((parts){.model = model}, "axyb"), "a|?|b");    /* unknown ones fuse */
    ck_assert_str_eq(split_up((parts){.model = model}, "xa"), "?|a");
    ck_assert_str_eq(split_up((parts){.model = UNIGRAM("[\"?\",0],[\"a\",-1],[\"<0x78>\",-2]",
                                                       ",\"unk_id\":0,\"byte_fallback\":true")},
                              "xaxxay"),
                     "<0x78>|a|<0x78>|<0x78>|a|?");
    calm_tokenizer *tok = opened((parts){.model = UNIGRAM("[\"a\",-1]", "")});
    uint32_t *ids;
    size_t n;
    ck_fails(calm_tokenizer_encode(ctx, tok, "ab", 2, false, &ids, &n), CALM_EFORMAT,
             "model: the text has a character without");
    calm_tokenizer_close(tok);
}
END_OF_TEST

/* Of equal texts the last one counts, and both are special if one is. */
TEST(a_text_that_is_listed_twice)
{
    calm_tokenizer *tok = opened((parts){.model = UNIGRAM("[\"a\",-1],[\"b\",-1],[\"a\",-3]", ",\"unk_id\":1"),
                                         .added = "{\"id\":2,\"content\":\"a\",\"special\":true}"});
    uint32_t *ids;
    size_t n;
    char *text;
    ck_ok(calm_tokenizer_encode(ctx, tok, "a", 1, false, &ids, &n));
    ck_assert_uint_eq(n, 1);
    ck_assert_uint_eq(ids[0], 2);
    ck_ok(calm_tokenizer_decode(ctx, tok, (const uint32_t[]){0, 1, 2}, 3, false, &text, &n));
    ck_assert_str_eq(text, "b");
    calm_tokenizer_close(tok);
}
END_OF_TEST

/* ---- post-processors and decoders ---- */

TEST(pairs_around_the_text)
{
    const char *pair = "\"sep\":[\"b\",3],\"cls\":[\"?\",0]";
    ck_assert_str_eq(split_up((parts){.model = SP, .post = test_format("{\"type\":\"BertProcessing\",%s}", pair)}, "a"),
                     "?|a|b");
    ck_assert_str_eq(split_up((parts){.model = SP,
                                      .post = test_format("{\"type\":\"RobertaProcessing\",%s,\"trim_offsets\":true,"
                                                          "\"add_prefix_space\":true}",
                                                          pair)},
                              "a"),
                     "?|a|b");
}
END_OF_TEST

TEST(decoders)
{
    const char *texts =
        "{\"type\":\"WordPiece\",\"unk_token\":\"?\",\"vocab\":{\"?\":0,\"_a\":1,\"##b\":2,\"<0xC3>\":3,\"<0xA9>\":4,"
        "\"__\":5,\"n't\":6,\"do\":7,\".\":8,\"_\":9}}";
    static const struct {
        const char *decoder;
        uint32_t ids[4];
        size_t n;
        const char *text;
    } cases[] = {
        {"{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"always\"}", {1, 1, 5}, 3, "a a  "},
        {"{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"never\"}", {1, 1}, 2, " a a"},
        {"{\"type\":\"ByteFallback\"}", {3, 4, 1, 3}, 4, "\xC3\xA9_a\xEF\xBF\xBD"},
        {"{\"type\":\"ByteFallback\"}", {4, 3, 1}, 3, "\xEF\xBF\xBD\xEF\xBF\xBD_a"},
        {"{\"type\":\"Replace\",\"pattern\":{\"String\":\"_\"},\"content\":\"--\"}", {1, 5}, 2, "--a----"},
        {"{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"_+\"},\"content\":\"-\"}", {1, 5}, 2, "-a-"},
        {"{\"type\":\"Strip\",\"content\":\"_\",\"start\":1,\"stop\":0}", {1, 5}, 2, "a_"},
        {"{\"type\":\"Strip\",\"content\":\"_\",\"start\":9,\"stop\":9}", {1, 5}, 2, "a"},
        {"{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\"_\",\"start\":1,"
         "\"stop\":0}]}",
         {1, 1},
         2,
         "a_a"},
        {"{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"}]}", {0}, 0, ""},
        {"{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true}", {7, 6, 2, 8}, 4, "don'tb."},
        {"{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":false}", {7, 6, 2, 8}, 4, "do n'tb ."},
        {"{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":false}", {2, 2}, 2, "##bb"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ck_assert_str_eq(decoded((parts){.model = texts, .decoder = cases[i].decoder}, cases[i].ids, cases[i].n),
                         cases[i].text);
}
END_OF_TEST

/* ---- normalizers ---- */

/* A trie of two keys, "b" and "\xC3\xA9" (both to "a"), made by hand: units of Darts-clone, then the texts. */
TEST(precompiled_maps)
{
    const char *map = 
        "GAMAAAAEAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
        "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
        "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
        "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
        "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
        "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAgGIFAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAACpBQAAAAAAgAAAAAAAAAAAAAAAAAAA"
        "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
        "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
        "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
        "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
        "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAwwQAAAAAAAAAAAAAAAAAAGEA";
    const char *normalizer = test_format("{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"%s\"}", map);
    ck_assert_str_eq(split_up((parts){.model = SP, .normalizer = normalizer}, "ab\xC3\xA9x"), "a|a|a|?");
}
END_OF_TEST

TEST(letters_and_patterns)
{
    ck_assert_str_eq(split_up((parts){.model = SP, .normalizer = PRE("Lowercase")}, "A_AB"), "a|_ab");
    const char *marks = "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFD\"},{\"type\":\"StripAccents\"}]}";
    ck_assert_str_eq(split_up((parts){.model = SP, .normalizer = marks}, "\xC3\xA1" "b"), "ab");
    ck_assert_str_eq(split_up((parts){.model = SP, .normalizer = PRE("NFKC")}, "\xEF\xBD\x81"), "a");
    ck_assert_str_eq(split_up((parts){.model = SP, .normalizer = PRE("NFKD")}, "\xEF\xBD\x81"), "a");
    ck_assert_str_eq(split_up((parts){.model = SP,
                                      .normalizer = "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"[x-z]+\"},"
                                                    "\"content\":\"_\"}"},
                              "xya"),
                     "_a");
    ck_assert_str_eq(
        split_up((parts){.model = SP, .normalizer = "{\"type\":\"Strip\",\"strip_left\":false,\"strip_right\":true}"},
                 "a \t"),
        "a");
}
END_OF_TEST

int main(void)
{
    return run_tests("tokenizer_families",
                     (const TTest *[]){words_are_taken_apart_greedily, bert_normalizer, punctuation_and_words,
                                       bytes_stand_in_for_unknown_characters, metaspace_and_prepend,
                                       long_pieces_are_cut_where_that_changes_nothing, prefixes_and_suffixes,
                                       the_best_sum_wins, a_text_that_is_listed_twice, pairs_around_the_text, decoders,
                                       precompiled_maps, letters_and_patterns, NULL});
}
