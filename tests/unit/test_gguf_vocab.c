/* The tokenizer of a GGUF file gives the ids of the tokenizer.json that it was written from; invalid keys are
 * refused. */
#include "ptq/tokenizer/gguf_vocab.h"

#include "calm.h"
#include "ptq/base/base64.h"
#include "ptq/base/file.h"
#include "ptq/export/gguf_tokenizer.h"
#include "ptq/tokenizer/tokenizer.h"
#include "tests/support/harness.h"

#define SPACE "\xe2\x96\x81"
#define WORDS "\"a\": 3, \"b\": 4, \"ab\": 5, \"" SPACE "\": 6, \"" SPACE "a\": 7, \"aab\": 8"
#define ADDED "\"added_tokens\": [{\"id\": 0, \"content\": \"<unk>\", \"special\": true}, {\"id\": 1, \"content\": " \
              "\"<s>\", \"special\": true}, {\"id\": 9, \"content\": \"<tool>\", \"special\": false, \"normalized\": " \
              "false}], "
#define N_TOKENS 10

static void put(const char *dir, const char *name, const char *text)
{
    ck_ok(calm_write_file(ctx, test_format("%s/%s", dir, name), text, strlen(text)));
}

static const char *write_gguf(const calm_gguf_keys *keys)
{
    const char *path = test_format("%s/x.gguf", test_directory());
    calm_gguf_writer writer;
    ck_ok(calm_gguf_begin(ctx, &writer, path, keys, NULL, 0));
    ck_ok(calm_gguf_end(ctx, &writer));
    return path;
}

static void expect_same(const calm_tokenizer *a, const calm_tokenizer *b, const char *text)
{
    uint32_t *x, *y;
    size_t n, m;
    ck_ok(calm_tokenizer_encode(ctx, a, text, strlen(text), true, &x, &n));
    ck_ok(calm_tokenizer_encode(ctx, b, text, strlen(text), true, &y, &m));
    ck_assert_msg(n == m && memcmp(x, y, n * sizeof *x) == 0, "\"%s\": %zu and %zu tokens", text, n, m);
}

/* Returns a character map that turns A into b, in base64: units of a double array (tokenizer_precompiled.c), then
 * the text. */
static const char *map_of_letter(void)
{
    /* From the root (unit 0, offset 1) the byte 'A' leads to unit 1 ^ 65, whose offset 2 leads to the value in unit
     * (1 ^ 65) ^ 2. */
    enum { ROOT = 1, LETTER = ROOT ^ 'A', LEAF = LETTER ^ 2, N = 128 };
    unsigned char bytes[4 + 4 * N + 2] = {0};
    uint32_t units[N] = {[0] = ROOT << 10, [LETTER] = 2u << 10 | 1u << 8 | 'A', [LEAF] = 1u << 31};
    CALM_SCOPED_TEXT(text);
    for (int i = 0; i <= N; i++) {
        const uint32_t value = i ? units[i - 1] : 4 * N;
        for (int k = 0; k < 4; k++)
            bytes[4 * i + k] = (unsigned char)(value >> (8 * k));
    }
    bytes[4 + 4 * N] = 'b';
    calm_base64_append(&text, bytes, sizeof bytes);
    return test_format("%s", text.data);
}

/* Converts tokenizer.json to GGUF and checks that it gives the same ids. */
static void round_trip(const char *json, size_t n, const char *const *texts)
{
    const char *dir = test_directory();
    calm_gguf_keys keys;
    CALM_SCOPED_JSON(config);
    CALM_SCOPED_TOKENIZER(from);
    CALM_SCOPED_TOKENIZER(to);
    ck_ok(calm_json_parse(ctx, "config", "{\"bos_token_id\": 1}", 19, &config));
    put(dir, "tokenizer.json", json);
    calm_gguf_keys_init(&keys);
    ck_ok(calm_gguf_add_tokenizer(ctx, dir, config, n, false, NULL, &keys));
    ck_ok(calm_tokenizer_open(ctx, test_format("%s/tokenizer.json", dir), &from));
    ck_ok(calm_tokenizer_open(ctx, write_gguf(&keys), &to));
    calm_gguf_keys_clear(&keys);
    ck_assert_uint_eq(calm_tokenizer_size(to), n);
    for (; *texts; texts++)
        expect_same(from, to, *texts);
}

static const char *const texts[] = {"", "a", "ab aab", " a  b", "a\nab<tool>ab <s>a", "ab1a22bab", NULL};

TEST(byte_level)
{
#define LEVEL "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": true}"
    static const char *const pre[] = {LEVEL, "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Digits\", "
                                             "\"individual_digits\": true}, " LEVEL "]}"};
    for (int i = 0; i < 2; i++)
        round_trip(test_format("{" ADDED "\"pre_tokenizer\": %s, \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 3, "
                               "\"b\": 4, \"ab\": 5, \"\xc4\xa0\": 6, \"\xc4\xa0""a\": 7, \"aab\": 8, \"1\": 2, "
                               "\"2\": 10, \"22\": 11, \"\xc4\x8a\": 12}, \"merges\": [\"a b\", \"\xc4\xa0 a\", "
                               "\"a ab\", \"2 2\"]}}", pre[i]), 13, texts);
}
END_OF_TEST

static const char *sentencepiece(const char *normalizer)
{
    return test_format("{" ADDED "\"normalizer\": %s, "
                       "\"post_processor\": {\"type\": \"TemplateProcessing\", "
                       "\"single\": [{\"SpecialToken\": {\"id\": \"<s>\", \"type_id\": 0}}, {\"Sequence\": {\"id\": "
                       "\"A\", \"type_id\": 0}}], \"pair\": [{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], "
                       "\"special_tokens\": {\"<s>\": {\"id\": \"<s>\", \"ids\": [1], \"tokens\": [\"<s>\"]}}}, "
                       "\"model\": {\"type\": \"BPE\", \"unk_token\": \"<unk>\", \"fuse_unk\": true, "
                       "\"byte_fallback\": true, \"vocab\": {\"<unk>\": 0, \"<s>\": 1, \"<0x0A>\": 2, " WORDS "}, "
                       "\"merges\": [\"a b\", \"" SPACE " a\", \"a ab\"]}}", normalizer);
}

TEST(sentencepiece_bpe)
{
#define REPLACE "{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"" SPACE "\"}"
    round_trip(sentencepiece(REPLACE), N_TOKENS, texts);
    round_trip(sentencepiece("{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Prepend\", \"prepend\": \"" SPACE
                             "\"}, " REPLACE "]}"), N_TOKENS, texts);
}
END_OF_TEST

TEST(unigram)
{
    round_trip("{\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"" SPACE "\", \"prepend_scheme\": "
               "\"always\"}, \"model\": {\"type\": \"Unigram\", \"unk_id\": 0, \"vocab\": [[\"<unk>\", 0], [\"a\", "
               "-1.5], [\"b\", -2], [\"ab\", -2.5], [\"" SPACE "\", -3], [\"" SPACE "a\", -3.25]]}}", 6, texts);
}
END_OF_TEST

/* Words with upper case and accents, a Chinese letter, a word that is not divided. */
TEST(wordpiece)
{
    static const char *const words[] = {"", "ab", "Ab\xc3\xa1 b, a", "a\xe4\xb8\xad""b", "abz [MASK] aab", NULL};
    static const char *const options[] = {"\"strip_accents\": null, \"lowercase\": true",
                                          "\"strip_accents\": false, \"lowercase\": true",
                                          "\"strip_accents\": true, \"lowercase\": false",
                                          "\"strip_accents\": null, \"lowercase\": false"};
    for (int i = 0; i < 4; i++)
        round_trip(test_format(
                       "{\"added_tokens\": [{\"id\": 0, \"content\": \"[UNK]\", \"special\": true}, {\"id\": 1, "
                       "\"content\": \"[CLS]\", \"special\": true}, {\"id\": 2, \"content\": \"[SEP]\", \"special\": "
                       "true}, {\"id\": 3, \"content\": \"[MASK]\", \"special\": true}], \"normalizer\": {\"type\": "
                       "\"BertNormalizer\", \"clean_text\": true, \"handle_chinese_chars\": true, %s}, "
                       "\"pre_tokenizer\": {\"type\": \"BertPreTokenizer\"}, \"post_processor\": {\"type\": "
                       "\"BertProcessing\", \"sep\": [\"[SEP]\", 2], \"cls\": [\"[CLS]\", 1]}, \"model\": {\"type\": "
                       "\"WordPiece\", \"unk_token\": \"[UNK]\", \"continuing_subword_prefix\": \"##\", "
                       "\"max_input_chars_per_word\": 100, \"vocab\": {\"[UNK]\": 0, \"[CLS]\": 1, \"[SEP]\": 2, "
                       "\"[MASK]\": 3, \"a\": 4, \"##b\": 5, \"b\": 6, \"ab\": 7, \"##a\": 8, \",\": 9, "
                       "\"\xe4\xb8\xad\": 10, \"A\": 11, \"##\xc3\xa1\": 12}}}",
                       options[i]),
                   13, words);
}
END_OF_TEST

/* A map that turns A into B: the trie is one unit from the root and its leaf. */
TEST(character_map)
{
    round_trip(test_format("{\"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": \"%s\"}, "
                           "\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"" SPACE
                           "\", \"prepend_scheme\": \"always\"}, \"model\": {\"type\": \"Unigram\", \"unk_id\": 0, "
                           "\"vocab\": [[\"<unk>\", 0], [\"a\", -1.5], [\"b\", -2], [\"ab\", -2.5], [\"" SPACE
                           "\", -3], [\"" SPACE "a\", -3.25]]}}", map_of_letter()), 6,
               (const char *const[]){"a", "abA", "A b", NULL});
}
END_OF_TEST

/* Writes a file with these tokens, types and scores ("llama"). */
static const char *hostile(size_t n, const char *const *tokens, size_t n_scores, const char *model)
{
    calm_gguf_keys keys;
    calm_gguf_keys_init(&keys);
    calm_gguf_add_string(&keys, "tokenizer.ggml.model", model);
    calm_gguf_add_string(&keys, "tokenizer.ggml.pre", "nobody's");
    calm_gguf_add_array(&keys, "tokenizer.ggml.tokens", CALM_GGUF_STRING, n);
    for (size_t i = 0; i < n; i++)
        calm_gguf_element_string(&keys, tokens[i], strlen(tokens[i]));
    calm_gguf_add_array(&keys, "tokenizer.ggml.scores", CALM_GGUF_F32, n_scores);
    for (size_t i = 0; i < n_scores; i++)
        calm_gguf_element_f32(&keys, 0);
    const char *path = write_gguf(&keys);
    calm_gguf_keys_clear(&keys);
    return path;
}

TEST(refused)
{
    static const char *const good[] = {"a", "b", ""}, *const twice[] = {"a", "a"}, *const bytes[] = {"\xff", "a"};
    CALM_SCOPED_TOKENIZER(tok);
    ck_fails(calm_tokenizer_open(ctx, hostile(3, good, 2, "llama"), &tok), CALM_EFORMAT,
             "key tokenizer.ggml.scores: expected 3 values, one for each token, found 2");
    ck_fails(calm_tokenizer_open(ctx, hostile(2, twice, 2, "llama"), &tok), CALM_EFORMAT,
             "tokens 0 and 1 are both \"a\"");
    ck_fails(calm_tokenizer_open(ctx, hostile(2, bytes, 2, "llama"), &tok), CALM_EFORMAT, "token 0 is not UTF-8");
    ck_fails(calm_tokenizer_open(ctx, hostile(3, good, 3, "gpt2"), &tok), CALM_EUNSUPPORTED,
             "the pre-tokenizer \"nobody's\" is not known");
    ck_fails(calm_tokenizer_open(ctx, hostile(3, good, 3, "rwkv"), &tok), CALM_EUNSUPPORTED,
             "tokenizer.ggml.model: \"rwkv\" is not read");
    /* Three tokens have no id 100. */
    ck_fails(calm_tokenizer_open(ctx, hostile(3, good, 3, "bert"), &tok), CALM_EFORMAT,
             "seperator_token_id: expected ids of tokens");
    ck_ok(calm_tokenizer_open(ctx, hostile(3, good, 3, "llama"), &tok));
    ck_assert_str_eq(calm_tokenizer_token(tok, 2), "[EMPTY_2]");
}
END_OF_TEST

int main(void)
{
    return run_tests("gguf_vocab", (const TTest *[]){byte_level, sentencepiece_bpe, unigram, wordpiece,
                                                      character_map, refused, NULL});
}
