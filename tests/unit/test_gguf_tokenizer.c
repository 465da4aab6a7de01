/* Tokenizers as keys of a GGUF file: names of pre-tokenizers, tokens, types, scores, merges, special tokens. */
#include "ptq/export/gguf_tokenizer.h"

#include "ptq/base/file.h"
#include "ptq/io/gguf_impl.h"
#include "tests/support/harness.h"

#define QWEN2 "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}" \
              "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|" \
              "\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define SPLIT(regex)                                                                                                   \
    "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"" regex "\"}, \"behavior\": \"Isolated\", \"invert\": false}"
#define LEVEL(regex) "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": " regex "}"
#define SEQUENCE(a, b) "{\"type\": \"Sequence\", \"pretokenizers\": [" a ", " b "]}"

static void put(const char *dir, const char *name, const char *text)
{
    ck_ok(calm_write_file(ctx, test_format("%s/%s", dir, name), text, strlen(text)));
}

/* Whether the model gives embeddings. */
static bool embeds;

/* Writes the keys of the tokenizer in `dir` for n tokens, and opens them as a file. */
static calm_status try_keys(const char *dir, const char *config, size_t n, const char *pre, calm_gguf **out)
{
    const char *path = test_format("%s/x.gguf", test_directory());
    calm_gguf_keys keys;
    calm_gguf_writer writer;
    calm_json *json;
    ck_ok(calm_json_parse(ctx, "config", config, strlen(config), &json));
    calm_gguf_keys_init(&keys);
    calm_status status = calm_gguf_add_tokenizer(ctx, dir, json, n, embeds, pre, &keys);
    if (status == CALM_OK) {
        ck_ok(calm_gguf_begin(ctx, &writer, path, &keys, NULL, 0));
        ck_ok(calm_gguf_end(ctx, &writer));
        ck_ok(calm_gguf_open(ctx, path, out));
    }
    calm_gguf_keys_clear(&keys);
    calm_json_free(json);
    return status;
}

static const calm_gguf_key *key(const calm_gguf *file, const char *name)
{
    return calm_gguf_find_key(file, test_format("tokenizer.ggml.%s", name));
}

static void check_strings(const calm_gguf *file, const char *name, const char *joined)
{
    const char *text, *all = "";
    size_t at = 0, n;
    while (calm_gguf_next_string(key(file, name), &at, &text, &n))
        all = test_format("%s%.*s|", all, (int)n, text);
    ck_assert_str_eq(all, joined);
}

static void check_ints(const calm_gguf *file, const char *name, const char *joined)
{
    const char *all = "";
    int64_t value;
    for (size_t i = 0; calm_gguf_int(key(file, name), i, &value); i++)
        all = test_format("%s%lld ", all, (long long)value);
    ck_assert_str_eq(all, joined);
}

static bool truth(const calm_gguf *file, const char *name)
{
    const calm_gguf_key *found = key(file, name);
    ck_assert_msg(found && found->kind == CALM_GGUF_BOOL && found->n == 1, "%s", name);
    return found->data[0] != 0;
}

/* ---- byte-level ---- */

static const char *byte_level(const char *pre_tokenizer, const char *more)
{
    const char *dir = test_directory();
    put(dir, "tokenizer.json",
        test_format(
            "{\"added_tokens\": [{\"id\": 3, \"content\": \"<|end|>\", \"special\": true}, {\"id\": 4, \"content\": "
            "\"<tool>\", \"special\": false}], \"pre_tokenizer\": %s, \"model\": {\"type\": \"BPE\", \"vocab\": "
            "{\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": [\"a b\"]%s}}",
            pre_tokenizer, more));
    return dir;
}

TEST(byte_level_tokens)
{
    const char *dir = byte_level(SEQUENCE(SPLIT(QWEN2), LEVEL("false")), "");
    calm_gguf *file;
    put(dir, "tokenizer_config.json",
        "{\"eos_token\": {\"content\": \"<|end|>\"}, \"bos_token\": null, \"chat_template\": [{\"name\": \"x\", "
        "\"template\": \"no\"}, {\"name\": \"default\", \"template\": \"{{ yes }}\"}]}");
    ck_ok(try_keys(dir, "{\"bos_token_id\": 3, \"pad_token_id\": [1, 2]}", 7, NULL, &file));
    ck_assert(calm_gguf_is(key(file, "model"), "gpt2") && calm_gguf_is(key(file, "pre"), "qwen2"));
    check_strings(file, "tokens", "a|b|ab|<|end|>|<tool>|[PAD5]|[PAD6]|");
    check_ints(file, "token_type", "1 1 1 3 4 5 5 ");
    check_strings(file, "merges", "a b|");
    check_ints(file, "eos_token_id", "3 ");
    check_ints(file, "bos_token_id", "3 ");
    check_ints(file, "padding_token_id", "1 ");
    ck_assert_ptr_null(key(file, "unknown_token_id"));
    ck_assert(!truth(file, "add_bos_token") && !truth(file, "add_eos_token"));
    ck_assert(calm_gguf_is(calm_gguf_find_key(file, "tokenizer.chat_template"), "{{ yes }}"));
    calm_gguf_close(file);
    put(dir, "chat_template.jinja", "{{ file }}");
    ck_ok(try_keys(dir, "{}", 4, "mine", &file));    /* <tool> has no row */
    ck_assert(calm_gguf_is(key(file, "pre"), "mine"));
    check_strings(file, "tokens", "a|b|ab|<|end|>|");
    ck_assert(calm_gguf_is(calm_gguf_find_key(file, "tokenizer.chat_template"), "{{ file }}"));
    calm_gguf_close(file);
}
END_OF_TEST

/* The default chat template and named ones, from tokenizer_config.json and from files. */
TEST(chat_templates)
{
    const char *dir = byte_level(SEQUENCE(SPLIT(QWEN2), LEVEL("false")), "");
    calm_gguf *file;
    put(dir, "tokenizer_config.json",
        "{\"chat_template\": [{\"name\": \"tool-use\", \"template\": \"{{ tools }}\"}, {\"name\": \"default\", "
        "\"template\": \"{{ yes }}\"}, {\"name\": \"\", \"template\": \"no\"}, {\"name\": \"rag\"}, 7]}");
    ck_ok(calm_make_directories(ctx, test_format("%s/additional_chat_templates", dir)));
    put(dir, "additional_chat_templates/rag.jinja", "{{ rag }}");
    put(dir, "additional_chat_templates/tool_use.jinja", "the first stays");
    ck_ok(try_keys(dir, "{}", 7, NULL, &file));
    ck_assert(calm_gguf_is(calm_gguf_find_key(file, "tokenizer.chat_template"), "{{ yes }}"));
    ck_assert(calm_gguf_is(calm_gguf_find_key(file, "tokenizer.chat_template.tool_use"), "{{ tools }}"));
    ck_assert(calm_gguf_is(calm_gguf_find_key(file, "tokenizer.chat_template.rag"), "{{ rag }}"));
    const calm_gguf_key *names = calm_gguf_find_key(file, "tokenizer.chat_templates");
    const char *text;
    size_t at = 0, n;
    ck_assert_ptr_nonnull(names);
    ck_assert(calm_gguf_next_string(names, &at, &text, &n) && n == 8 && memcmp(text, "tool_use", n) == 0);
    ck_assert(calm_gguf_next_string(names, &at, &text, &n) && n == 3 && memcmp(text, "rag", n) == 0);
    ck_assert(!calm_gguf_next_string(names, &at, &text, &n));
    calm_gguf_close(file);
}
END_OF_TEST

/* What the post-processor adds, and merges as pairs. */
TEST(added_around_the_text)
{
    static const char *const single[] = {
        "[{\"SpecialToken\": {\"id\": \"<|end|>\"}}, {\"Sequence\": {\"id\": \"A\"}}]",
        "[{\"Sequence\": {\"id\": \"A\"}}, {\"SpecialToken\": {\"id\": \"<|end|>\"}}]"};
    for (int i = 0; i < 2; i++) {
        const char *dir = test_directory();
        calm_gguf *file;
        put(dir, "tokenizer.json",
            test_format(
                "{\"added_tokens\": [{\"id\": 3, \"content\": \"<|end|>\", \"special\": true}], \"pre_tokenizer\": "
                "" LEVEL(
                    "true") ", \"post_processor\": {\"type\": \"Sequence\", \"processors\": [{\"type\": "
                            "\"ByteLevel\"}, {\"type\": \"TemplateProcessing\", \"single\": %s}]}, \"model\": "
                            "{\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": [[\"a\", "
                            "\"b\"]]}}",
                single[i]));
        put(dir, "tokenizer_config.json", "{\"eos_token\": \"<|end|>\"}");
        ck_ok(try_keys(dir, "{}", 4, NULL, &file));
        ck_assert(calm_gguf_is(key(file, "pre"), "gpt-2"));
        ck_assert(truth(file, "add_bos_token") == (i == 0) && truth(file, "add_eos_token") == (i == 1));
        ck_assert((key(file, "bos_token_id") != NULL) == (i == 0));
        check_strings(file, "merges", "a b|");
        calm_gguf_close(file);
    }
}
END_OF_TEST

static const char *pre_of(const char *pre_tokenizer, bool whole)
{
    const char *text = test_format("{\"pre_tokenizer\": %s}", pre_tokenizer);
    calm_json *json;
    char *pattern;
    ck_ok(calm_json_parse(ctx, "x", text, strlen(text), &json));
    ck_ok(calm_gguf_pattern(ctx, json, &pattern));
    calm_json_free(json);
    return calm_gguf_find_pre(pattern, whole);
}

TEST(names_of_pre_tokenizers)
{
#define LLAMA3 "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}" \
               "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|" \
               "\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define DIGITS "{\"type\": \"Digits\", \"individual_digits\": true}"
    ck_assert_str_eq(pre_of(SEQUENCE(SPLIT(QWEN2), LEVEL("false")), false), "qwen2");
    ck_assert_str_eq(pre_of(SEQUENCE(SPLIT(LLAMA3), LEVEL("false")), true), "llama-bpe");
    ck_assert_str_eq(pre_of(SEQUENCE(SPLIT(LLAMA3), LEVEL("false")), false), "dbrx");
    ck_assert_str_eq(pre_of(LEVEL("true"), false), "gpt-2");
    ck_assert_str_eq(pre_of("{\"type\": \"ByteLevel\"}", false), "gpt-2");
    ck_assert_str_eq(pre_of(SEQUENCE(DIGITS, LEVEL("true")), false), "smollm");
    ck_assert_str_eq(pre_of("{\"type\": \"Split\", \"pattern\": {\"Regex\": \"" QWEN2
                            "\"}, \"behavior\": \"Removed\", \"invert\": true}",
                            false),
                     "qwen2");
    ck_assert_ptr_null(
        pre_of("{\"type\": \"Split\", \"pattern\": {\"Regex\": \"" QWEN2 "\"}, \"behavior\": \"Removed\"}", false));
    ck_assert_ptr_null(pre_of(SEQUENCE(SPLIT(QWEN2), LEVEL("true")), false));
    ck_assert_ptr_null(pre_of(LEVEL("false"), false));
    ck_assert_ptr_null(pre_of("null", false));
    ck_assert_ptr_null(pre_of(SEQUENCE(SEQUENCE(DIGITS, DIGITS), LEVEL("true")), false));
}
END_OF_TEST

TEST(refused)
{
    calm_gguf *file;
    const char *dir = byte_level(SEQUENCE(SPLIT("\\\\w+"), LEVEL("false")), "");
    ck_fails(try_keys(dir, "{}", 5, NULL, &file), CALM_EUNSUPPORTED,
             "llama.cpp's name of its pre-tokenizer is not known (\"split \\w+\"); say it with `export.gguf_pre` (");
    ck_ok(try_keys(dir, "{}", 5, "qwen2", &file));
    calm_gguf_close(file);
    ck_fails(try_keys(byte_level("null", ""), "{}", 5, NULL, &file), CALM_EUNSUPPORTED, "neither byte-level nor");
    dir = test_directory();
    put(dir, "tokenizer.json", "{\"model\": {\"type\": \"WordLevel\", \"vocab\": {}}}");
    ck_fails(try_keys(dir, "{}", 5, NULL, &file), CALM_EUNSUPPORTED,
             "a model of type WordLevel; calm writes BPE, Unigram and WordPiece");
    put(dir, "tokenizer.json", "{\"model\": {\"type\": \"WordPiece\", \"vocab\": {}}}");
    ck_fails(try_keys(dir, "{}", 5, NULL, &file), CALM_EUNSUPPORTED, "a WordPiece without BertNormalizer");
    put(dir, "tokenizer.json", "{\"model\": {\"type\": \"BPE\", \"byte_fallback\": true, \"vocab\": []}}");
    ck_fails(try_keys(dir, "{}", 5, NULL, &file), CALM_EFORMAT, "model.vocab: expected an object");
    put(dir, "tokenizer.json", "{\"model\": {\"type\": \"BPE\", \"byte_fallback\": true, \"vocab\": {\"a\": -1}}}");
    ck_fails(try_keys(dir, "{}", 5, NULL, &file), CALM_EFORMAT, "an id is not a whole number");
    put(dir, "tokenizer.json",
        "{\"model\": {\"type\": \"BPE\", \"byte_fallback\": true, \"vocab\": {\"a\": 0}, \"merges\": [\"ab\"]}}");
    ck_fails(try_keys(dir, "{}", 5, NULL, &file), CALM_EFORMAT, "model.merges: expected two tokens");
    put(dir, "tokenizer.json", "{\"model\": {\"type\": \"BPE\", \"byte_fallback\": true, \"vocab\": {\"a\": 0}}, "
                               "\"added_tokens\": [{\"id\": 1, \"content\": \"a\"}]}");
    ck_fails(try_keys(dir, "{}", 5, NULL, &file), CALM_EUNSUPPORTED, "tokens 0 and 1 are both \"a\"");
}
END_OF_TEST

/* ---- SentencePiece ---- */

TEST(sentencepiece_tokens)
{
    const char *dir = test_directory();
    calm_gguf *file;
    double score[8];
    put(dir, "tokenizer.json",
        "{\"added_tokens\": [{\"id\": 0, \"content\": \"<unk>\", \"special\": true}, {\"id\": 1, \"content\": "
        "\"<s>\", \"special\": true}, {\"id\": 7, \"content\": \"\xe2\x96\x81\xe2\x96\x81\", \"special\": false}],"
        " \"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Prepend\", \"prepend\": "
        "\"\xe2\x96\x81\"}]}, \"model\": {\"type\": \"BPE\", \"unk_token\": \"<unk>\", \"byte_fallback\": true,"
        " \"vocab\": {\"<unk>\": 0, \"<s>\": 1, \"<0x0A>\": 2, \"a\": 3, \"b\": 4, \"ab\": 5, \"aab\": 6},"
        " \"merges\": [\"a b\", \"a ab\"]}}");
    ck_ok(try_keys(dir, "{\"bos_token_id\": 1}", 8, NULL, &file));
    ck_assert(calm_gguf_is(key(file, "model"), "llama") && calm_gguf_is(key(file, "pre"), "default"));
    check_strings(file, "tokens", "<unk>|<s>|<0x0A>|a|b|ab|aab|  |");
    check_ints(file, "token_type", "2 3 6 1 1 1 1 4 ");
    for (size_t i = 0; i < 8; i++)
        ck_assert(calm_gguf_number(key(file, "scores"), i, &score[i]));
    ck_assert(score[5] == 0 && score[6] == -1 && score[3] < score[6]);
    ck_assert(truth(file, "add_space_prefix"));
    check_ints(file, "bos_token_id", "1 ");
    calm_gguf_close(file);
}
END_OF_TEST

TEST(unigram_tokens)
{
    const char *dir = test_directory();
    calm_gguf *file;
    double score;
    put(dir, "tokenizer.json",
        "{\"pre_tokenizer\": {\"type\": \"Metaspace\", \"prepend_scheme\": \"never\"}, \"model\": {\"type\": "
        "\"Unigram\", \"unk_id\": 0, \"vocab\": [[\"<unk>\", 0], [\"a\", -1.5]]}}");
    ck_ok(try_keys(dir, "{}", 2, NULL, &file));
    ck_assert(calm_gguf_is(key(file, "model"), "t5"));
    check_ints(file, "token_type", "2 1 ");
    ck_assert(calm_gguf_number(key(file, "scores"), 1, &score) && score == -1.5);
    ck_assert(!truth(file, "add_space_prefix") && !truth(file, "remove_extra_whitespaces"));
    calm_gguf_close(file);
    put(dir, "tokenizer.json",
        "{\"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": \"AQD/\"}, \"model\": {\"type\": "
        "\"Unigram\", \"vocab\": []}}");
    ck_ok(try_keys(dir, "{}", 2, NULL, &file));
    check_ints(file, "precompiled_charsmap", "1 0 255 ");
    calm_gguf_close(file);
    put(dir, "tokenizer.json",
        "{\"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": \"AQ!\"}, \"model\": {\"type\": "
        "\"Unigram\", \"vocab\": []}}");
    ck_fails(try_keys(dir, "{}", 2, NULL, &file), CALM_EFORMAT, "precompiled_charsmap: expected base64");
}
END_OF_TEST

static void keep_said(void *user, calm_log_level level, const char *line)
{
    char *said = user;
    const size_t n = strlen(said);
    if (level == CALM_LOG_WARNING)
        snprintf(said + n, 1000 - n, "%s\n", line);
}

/* Normalisations that llama.cpp lacks give a warning each, unless a character map has them. */
TEST(forms_of_text)
{
    static const struct {
        const char *normalizer, *said, *unsaid;
    } cases[] = {
        {"{\"type\": \"NFKC\"}", "it normalizes texts by NFKC without a character map; llama.cpp does not", "NFC"},
        {"{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFKC\"}, {\"type\": \"Replace\", \"pattern\": "
         "{\"Regex\": \" {2,}\"}, \"content\": \" \"}]}", "by NFKC without a character map", "Replace"},
        {"{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Precompiled\", \"precompiled_charsmap\": "
         "\"AQD/\"}, {\"type\": \"NFKC\"}, {\"type\": \"Lowercase\"}]}", "by Lowercase; llama.cpp does not", "NFKC"},
        {"{\"type\": \"StripAccents\"}", "by StripAccents;", "map"},
        {"{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Sequence\", \"normalizers\": [{\"type\": "
         "\"NFKC\"}]}]}", "by NFKC without a character map", "NFC"},
        {"{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Precompiled\", \"precompiled_charsmap\": "
         "\"\"}, {\"type\": \"NFKC\"}]}", "by NFKC without a character map", "NFC"},
        {"null", "", "normalizes"}};
    static const char *const models[] = {
        "{\"type\": \"Unigram\", \"unk_id\": 0, \"vocab\": [[\"<unk>\", 0], [\"a\", -1.5]]}",
        "{\"type\": \"BPE\", \"unk_token\": \"<unk>\", \"byte_fallback\": true, \"vocab\": {\"<unk>\": 0, \"a\": 1}, "
        "\"merges\": []}"};
    const char *dir = test_directory();
    char said[1000];
    ctx->log = keep_said;
    ctx->log_user = said;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t m = 0; m < 2; m++) {
            calm_gguf *file;
            put(dir, "tokenizer.json",
                test_format("{\"normalizer\": %s, \"model\": %s}", cases[i].normalizer, models[m]));
            said[0] = '\0';
            ck_ok(try_keys(dir, "{}", 2, NULL, &file));
            ck_assert_msg(strstr(said, cases[i].said) && !strstr(said, cases[i].unsaid), "%zu: %s", i, said);
            calm_gguf_close(file);
        }
    ctx->log = NULL;
}
END_OF_TEST

/* Kinds without a character map (byte-level BPE, WordPiece) lack every normalisation. */
TEST(forms_without_maps)
{
    static const char *const kinds[] = {
        "{\"normalizer\": {\"type\": \"NFC\"}, \"pre_tokenizer\": " LEVEL("true") ", \"model\": {\"type\": "
        "\"BPE\", \"vocab\": {\"a\": 0, \"b\": 1}, \"merges\": []}}",
        "{\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"BertNormalizer\"}, {\"type\": "
        "\"NFC\"}]}, \"pre_tokenizer\": {\"type\": \"BertPreTokenizer\"}, \"model\": {\"type\": "
        "\"WordPiece\", \"unk_token\": \"a\", \"vocab\": {\"a\": 0, \"b\": 1}}}"};
    const char *dir = test_directory();
    char said[1000];
    ctx->log = keep_said;
    ctx->log_user = said;
    for (size_t i = 0; i < 2; i++) {
        calm_gguf *file;
        put(dir, "tokenizer.json", kinds[i]);
        said[0] = '\0';
        ck_ok(try_keys(dir, "{}", 2, i ? NULL : "gpt-2", &file));
        ck_assert_msg(strstr(said, "it normalizes texts by NFC; llama.cpp does not"), "%zu: %s", i, said);
        calm_gguf_close(file);
    }
    ctx->log = NULL;
}
END_OF_TEST

/* In an encoder the token after a text is its end, whatever config.json says; a second unknown token is left out. */
TEST(embedding_tokens)
{
    const char *dir = test_directory();
    calm_gguf *file;
    put(dir, "tokenizer.json",
        "{\"added_tokens\": [{\"id\": 1, \"content\": \"<s>\", \"special\": true}, {\"id\": 2, \"content\": \"</s>\", "
        "\"special\": true}, {\"id\": 4, \"content\": \"<unk>\", \"special\": true}], \"post_processor\": {\"type\": "
        "\"RobertaProcessing\", \"sep\": [\"</s>\", 2], \"cls\": [\"<s>\", 1]}, \"model\": {\"type\": \"Unigram\", "
        "\"unk_id\": 0, \"vocab\": [[\"<unk>\", 0], [\"<s>\", 0], [\"</s>\", 0], [\"a\", -1.5]]}}");
    put(dir, "tokenizer_config.json", "{\"mask_token\": \"a\"}");
    for (int i = 0; i < 2; i++) {
        embeds = i == 1;
        ck_ok(try_keys(dir, "{\"eos_token_id\": 3}", 5, NULL, &file));
        check_strings(file, "tokens", "<unk>|<s>|</s>|a|[PAD4]|");
        check_ints(file, "bos_token_id", "1 ");
        check_ints(file, "eos_token_id", embeds ? "2 " : "3 ");
        ck_assert(truth(file, "add_bos_token") && truth(file, "add_eos_token") == embeds);
        ck_assert_int_eq(key(file, "seperator_token_id") != NULL, embeds);
        ck_assert_int_eq(key(file, "mask_token_id") != NULL, embeds);
        calm_gguf_close(file);
    }
    embeds = false;
}
END_OF_TEST

/* Words begin with U+2581; continuations have no mark. */
TEST(wordpiece_tokens)
{
    const char *dir = test_directory();
    calm_gguf *file;
    embeds = true;
    put(dir, "tokenizer.json",
        "{\"added_tokens\": [{\"id\": 0, \"content\": \"[UNK]\", \"special\": true}, {\"id\": 4, \"content\": \"<x>\", "
        "\"special\": false}], \"normalizer\": {\"type\": \"BertNormalizer\", \"lowercase\": true, \"strip_accents\": "
        "false}, \"pre_tokenizer\": {\"type\": \"BertPreTokenizer\"}, \"model\": {\"type\": \"WordPiece\", \"vocab\": "
        "{\"[UNK]\": 0, \"a\": 1, \"##b\": 2, \"##\": 3}}}");
    ck_ok(try_keys(dir, "{}", 5, NULL, &file));
    ck_assert(calm_gguf_is(key(file, "model"), "bert") && calm_gguf_is(key(file, "pre"), "default"));
    check_strings(file, "tokens", "[UNK]|\xe2\x96\x81""a|b|\xe2\x96\x81##|<x>|");
    check_ints(file, "token_type", "3 1 1 1 4 ");
    ck_assert(truth(file, "normalizer.lowercase") && !truth(file, "normalizer.strip_accents"));
    calm_gguf_close(file);
    embeds = false;
}
END_OF_TEST

TEST(no_tokenizer)
{
    calm_gguf *file;
    ck_ok(try_keys(test_directory(), "{}", 2, NULL, &file));
    ck_assert(calm_gguf_is(key(file, "model"), "none"));
    ck_assert_uint_eq(calm_gguf_n_keys(file), 1);
    calm_gguf_close(file);
}
END_OF_TEST

int main(void)
{
    return run_tests("gguf_tokenizer",
                     (const TTest *[]){byte_level_tokens, chat_templates, added_around_the_text,
                                       names_of_pre_tokenizers, refused, sentencepiece_tokens,
                                       unigram_tokens, forms_of_text, forms_without_maps, embedding_tokens,
                                       wordpiece_tokens, no_tokenizer,
                                       NULL});
}
