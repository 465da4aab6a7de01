/* tokenizer.json files that are refused: each row changes one member of a good file, and the message names the
 * place. */
#include <fcntl.h>
#include <unistd.h>

#include "ptq/base/file.h"
#include "ptq/tokenizer/tokenizer.h"
#include "tests/support/harness.h"

#define GOOD_MODEL "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}"
#define MODEL(members) "{\"type\":\"BPE\"," members "}"
#define VOCAB "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},"
#define SPLIT(members) "{\"type\":\"Split\"," members "}"
#define CHARSMAP(base64) "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"" base64 "\"}"
#define META(members) "{\"type\":\"Metaspace\"," members "}"
#define WORDPIECE(members) "{\"type\":\"WordPiece\",\"unk_token\":\"?\"," members "}"
#define UNIGRAM(vocab) "{\"type\":\"Unigram\",\"vocab\":" vocab "}"
#define TEMPLATE(single, special)                                                                                      \
    "{\"type\":\"TemplateProcessing\",\"single\":" single ",\"special_tokens\":" special "}"
#define PART_5 "{\"type\":\"NFC\"},{\"type\":\"NFC\"},{\"type\":\"NFC\"},{\"type\":\"NFC\"},{\"type\":\"NFC\"}"

typedef struct refusal {
    const char *member, *json;    /* the changed member of the file */
    calm_status status;
    const char *text;             /* in the message, after the path */
} refusal;

static const refusal parts[] = {
    {"version", "\"2.0\"", CALM_EUNSUPPORTED, ": version \"2.0\": not supported; known is \"1.0\""},
    {"version", "1", CALM_EFORMAT, "version"},

    {"normalizer", "{\"type\":\"Nonsense\"}", CALM_EUNSUPPORTED,
     ": normalizer.type \"Nonsense\": not supported; known: "},
    {"normalizer", "{}", CALM_EFORMAT, ": normalizer: \"type\" is missing"},
    {"normalizer", "[]", CALM_EFORMAT, ": normalizer"},
    {"normalizer", "{\"type\":5}", CALM_EFORMAT, ": normalizer"},
    {"normalizer", "{\"type\":\"Sequence\"}", CALM_EFORMAT, ": normalizer.normalizers: expected an array, found null"},
    {"normalizer", "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"X\"}]}", CALM_EUNSUPPORTED,
     ": normalizer.normalizers[1].type \"X\": not supported"},
    {"normalizer", "{\"type\":\"Sequence\",\"normalizers\":[" PART_5 "," PART_5 "," PART_5 "," PART_5 "]}",
     CALM_EUNSUPPORTED, ": normalizer.normalizers[16]: not supported: more than 16 parts"},

    {"normalizer", "{\"type\":\"Strip\"}", CALM_EFORMAT, ": normalizer: \"strip_left\" is missing"},
    {"normalizer", "{\"type\":\"Prepend\"}", CALM_EFORMAT, ": normalizer.prepend: expected a string, found null"},
    {"normalizer", "{\"type\":\"Replace\",\"content\":\"\"}", CALM_EFORMAT,
     ": normalizer.pattern: expected {\"Regex\""},
    {"normalizer", "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"}}", CALM_EFORMAT,
     ": normalizer.content: expected"},
    {"normalizer", "{\"type\":\"Replace\",\"content\":\"\",\"pattern\":{\"Regex\":\"(\"}}", CALM_EFORMAT,
     ": normalizer: pattern"},
    {"normalizer", "{\"type\":\"BertNormalizer\"}", CALM_EFORMAT, ": normalizer: \"clean_text\" is missing"},
    {"normalizer", "{\"type\":\"Precompiled\"}", CALM_EFORMAT,
     ": normalizer.precompiled_charsmap: expected a string, found null"},
    {"normalizer", CHARSMAP("!!!!"), CALM_EFORMAT, ": normalizer.precompiled_charsmap: not base64"},
    {"normalizer", CHARSMAP("AAAAA"), CALM_EFORMAT, ": normalizer.precompiled_charsmap: not base64"},
    {"normalizer", CHARSMAP("=AAA"), CALM_EFORMAT, ": normalizer.precompiled_charsmap: not base64"},
    {"normalizer", CHARSMAP(""), CALM_EFORMAT, ": normalizer.precompiled_charsmap: a trie of 0 bytes in a map of 0"},
    {"normalizer", CHARSMAP("AAA="), CALM_EFORMAT,
     ": normalizer.precompiled_charsmap: a trie of 0 bytes in a map of 2"},
    {"normalizer", CHARSMAP("BAAAAA=="), CALM_EFORMAT,
     ": normalizer.precompiled_charsmap: a trie of 4 bytes in a map of 4"},
    {"normalizer", CHARSMAP("AgAAAAAA"), CALM_EFORMAT,
     ": normalizer.precompiled_charsmap: a trie of 2 bytes in a map of 6"},
    {"normalizer", CHARSMAP("////////"), CALM_EFORMAT, ": normalizer.precompiled_charsmap: a trie of 4294967295 bytes"},
    {"normalizer", CHARSMAP("AAAAAP8="), CALM_EFORMAT,
     ": normalizer.precompiled_charsmap: texts are not UTF-8 at byte 0"},

    {"pre_tokenizer", META("\"replacement\":\"\""), CALM_EFORMAT,
     ": pre_tokenizer.replacement: expected one character, found \"\""},
    {"pre_tokenizer", META("\"replacement\":\"__\""), CALM_EFORMAT,
     ": pre_tokenizer.replacement: expected one character"},
    {"pre_tokenizer", META("\"split\":true"), CALM_EFORMAT,
     ": pre_tokenizer.replacement: expected a string, found null"},
    {"pre_tokenizer", META("\"replacement\":\"_\",\"prepend_scheme\":\"last\""), CALM_EUNSUPPORTED,
     ": pre_tokenizer.prepend_scheme \"last\": not supported"},
    {"pre_tokenizer", META("\"replacement\":\"_\",\"prepend_scheme\":\"first\",\"add_prefix_space\":false"),
     CALM_EFORMAT, ": pre_tokenizer: add_prefix_space is false, but prepend_scheme is \"first\""},
    {"pre_tokenizer", "{\"type\":\"Punctuation\",\"behavior\":\"Sideways\"}", CALM_EUNSUPPORTED,
     ": pre_tokenizer.behavior"},
    {"pre_tokenizer", "{\"type\":\"Nonsense\"}", CALM_EUNSUPPORTED, ": pre_tokenizer.type \"Nonsense\": not supported"},
    {"pre_tokenizer", "{\"type\":\"ByteLevel\"}", CALM_EFORMAT, ": pre_tokenizer: \"add_prefix_space\" is missing"},
    {"pre_tokenizer", "{\"type\":\"ByteLevel\",\"add_prefix_space\":1}", CALM_EFORMAT, "add_prefix_space"},
    {"pre_tokenizer",
     "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\",\"add_prefix_space\":true},"
     "{\"type\":\"Digits\"}]}",
     CALM_EUNSUPPORTED, ": pre_tokenizer.pretokenizers[1]: not supported: a pre-tokenizer after ByteLevel"},
    {"pre_tokenizer", SPLIT("\"behavior\":\"Isolated\""), CALM_EFORMAT, ": pre_tokenizer.pattern: expected {\"Regex\""},
    {"pre_tokenizer", SPLIT("\"behavior\":\"Isolated\",\"pattern\":\"x\""), CALM_EFORMAT,
     ": pre_tokenizer.pattern: expected"},
    {"pre_tokenizer", SPLIT("\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":5}"), CALM_EFORMAT,
     ": pre_tokenizer.pattern: expected a string, found a whole number"},
    {"pre_tokenizer", SPLIT("\"behavior\":\"Sideways\",\"pattern\":{\"Regex\":\"x\"}"), CALM_EUNSUPPORTED,
     ": pre_tokenizer.behavior \"Sideways\": not supported"},
    {"pre_tokenizer", SPLIT("\"pattern\":{\"Regex\":\"x\"}"), CALM_EFORMAT, ": pre_tokenizer: \"behavior\" is missing"},
    {"pre_tokenizer", SPLIT("\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":\"(x\"}"), CALM_EFORMAT,
     ": pre_tokenizer: pattern \"(x\": missing closing parenthesis"},
    {"pre_tokenizer", SPLIT("\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":\"\\\\h\"}"), CALM_EUNSUPPORTED,
     ": pre_tokenizer: pattern \"\\h\": not supported"},

    {"model", "null", CALM_EFORMAT, ": model: expected an object, found null"},
    {"model", "{}", CALM_EFORMAT, ": model: \"type\" is missing"},
    {"model", "{\"type\":\"WordLevel\"}", CALM_EUNSUPPORTED, ": model.type \"WordLevel\": not supported; known: BPE"},
    {"model", "{\"type\":\"Sequence\"}", CALM_EUNSUPPORTED, ": model.type \"Sequence\": not supported"},
    {"model", MODEL("\"merges\":[]"), CALM_EFORMAT, ": model.vocab: expected an object, found null"},
    {"model", MODEL("\"vocab\":[],\"merges\":[]"), CALM_EFORMAT, ": model.vocab: expected an object, found an array"},
    {"model", MODEL("\"vocab\":{\"a\":\"0\"},\"merges\":[]"), CALM_EFORMAT, ": model.vocab: id of \"a\": expected"},
    {"model", MODEL("\"vocab\":{\"a\":-1},\"merges\":[]"), CALM_EFORMAT, ": model.vocab: id of \"a\": expected"},
    {"model", MODEL("\"vocab\":{\"a\":1.0},\"merges\":[]"), CALM_EFORMAT, ": model.vocab: id of \"a\": expected"},
    {"model", MODEL("\"vocab\":{\"a\":4194304},\"merges\":[]"), CALM_EFORMAT,
     ": model: id 4194304 of \"a\": expected below"},
    {"model", MODEL("\"vocab\":{\"a\":9223372036854775807},\"merges\":[]"), CALM_EFORMAT, "expected below"},
    {"model", MODEL("\"vocab\":{\"a\":3,\"b\":3},\"merges\":[]"), CALM_EFORMAT,
     ": model: id 3 is given to \"a\" and to \"b\""},
    {"model", MODEL("\"vocab\":{\"a\":3,\"a\":4},\"merges\":[]"), CALM_EFORMAT, ": not valid JSON: duplicate"},
    {"model", MODEL(VOCAB "\"x\":1"), CALM_EFORMAT, ": model.merges: expected an array, found null"},
    {"model", MODEL(VOCAB "\"merges\":[\"a b\",\"ab\"]"), CALM_EFORMAT, ": model.merges[1]: expected two tokens"},
    {"model", MODEL(VOCAB "\"merges\":[\"a b c\"]"), CALM_EFORMAT, ": model.merges[0]: expected two tokens"},
    {"model", MODEL(VOCAB "\"merges\":[5]"), CALM_EFORMAT, ": model.merges[0]: expected two tokens"},
    {"model", MODEL(VOCAB "\"merges\":[[\"a\"]]"), CALM_EFORMAT, ": model.merges[0]: expected two strings"},
    {"model", MODEL(VOCAB "\"merges\":[[\"a\",5]]"), CALM_EFORMAT, ": model.merges[0]: expected two strings"},
    {"model", MODEL(VOCAB "\"merges\":[[\"a\",\"b\",\"a\"]]"), CALM_EFORMAT, ": model.merges[0]: expected two strings"},
    {"model", MODEL(VOCAB "\"merges\":[\"a b\",\"x b\"]"), CALM_EFORMAT, ": model.merges[1]: no token \"x\" in"},
    {"model", MODEL(VOCAB "\"merges\":[\"a x\"]"), CALM_EFORMAT, ": model.merges[0]: no token \"x\" in"},
    {"model", MODEL(VOCAB "\"merges\":[\"b a\"]"), CALM_EFORMAT, ": model.merges[0]: no token \"ba\" in"},
    {"model", MODEL(VOCAB "\"merges\":[[\"ab\",\"ab\"]]"), CALM_EFORMAT, ": model.merges[0]: no token \"abab\" in"},
    {"model", MODEL(VOCAB "\"merges\":[],\"unk_token\":\"<unk>\""), CALM_EFORMAT,
     ": model.unk_token: no token \"<unk>\" in"},
    {"model", MODEL(VOCAB "\"merges\":[],\"dropout\":0.1"), CALM_EUNSUPPORTED, ": model.dropout 0.1: not supported"},
    {"model", MODEL(VOCAB "\"merges\":[],\"dropout\":2"), CALM_EFORMAT, "dropout"},
    {"model", MODEL(VOCAB "\"merges\":[],\"continuing_subword_prefix\":5"), CALM_EFORMAT,
     ": model.continuing_subword_prefix: expected a string, found a whole number"},
    {"model", MODEL(VOCAB "\"merges\":[],\"end_of_word_suffix\":[]"), CALM_EFORMAT,
     ": model.end_of_word_suffix: expected a string, found an array"},
    {"model", MODEL(VOCAB "\"merges\":[],\"ignore_merges\":\"yes\""), CALM_EFORMAT, "ignore_merges"},

    {"model", "{\"type\":\"WordPiece\",\"vocab\":{\"a\":0}}", CALM_EFORMAT, ": model: \"unk_token\" is missing"},
    {"model", WORDPIECE("\"vocab\":{\"a\":0}"), CALM_EFORMAT, ": model.unk_token: no token \"?\" in the vocabulary"},
    {"model", WORDPIECE("\"vocab\":[]"), CALM_EFORMAT, ": model.vocab: expected an object, found an array"},
    {"model", WORDPIECE("\"vocab\":{\"?\":0},\"max_input_chars_per_word\":-1"), CALM_EFORMAT,
     "max_input_chars_per_word"},
    {"model", WORDPIECE("\"vocab\":{\"?\":0},\"max_input_chars_per_word\":1e30"), CALM_EFORMAT,
     "max_input_chars_per_word"},
    {"model", "{\"type\":\"Unigram\"}", CALM_EFORMAT, ": model.vocab: expected an array that is not empty, found null"},
    {"model", UNIGRAM("[]"), CALM_EFORMAT, ": model.vocab: expected an array that is not empty"},
    {"model", UNIGRAM("[[\"a\",0],[\"\",-1]]"), CALM_EFORMAT,
     ": model.vocab[1]: expected [\"text\", score], the text not empty"},
    {"model", UNIGRAM("[[\"a\",null]]"), CALM_EFORMAT, ": model.vocab[0]: expected [\"text\", score]"},
    {"model", UNIGRAM("[[\"a\",\"NaN\"]]"), CALM_EFORMAT, ": model.vocab[0]: expected [\"text\", score]"},
    {"model", UNIGRAM("[[\"a\",NaN]]"), CALM_EFORMAT, ": model.vocab[0]: expected [\"text\", score]"},
    {"model", UNIGRAM("[[\"a\",1e999]]"), CALM_EFORMAT, ": not valid JSON"},
    {"model", UNIGRAM("[[\"a\"]]"), CALM_EFORMAT, ": model.vocab[0]: expected"},
    {"model", UNIGRAM("[5]"), CALM_EFORMAT, ": model.vocab[0]: expected"},
    {"model", UNIGRAM("[{\"a\":1,\"b\":2}]"), CALM_EFORMAT, ": model.vocab[0]: expected"},
    {"model", UNIGRAM("[[\"a\",0]],\"unk_id\":1"), CALM_EFORMAT, ": model: \"unk_id\": expected 0 to 0, found 1"},
    {"model", UNIGRAM("[[\"a\",0]],\"unk_id\":-1"), CALM_EFORMAT, "unk_id"},

    {"added_tokens", "{}", CALM_EFORMAT, ": added_tokens: expected an array, found an object"},
    {"added_tokens", "[5]", CALM_EFORMAT, ": added_tokens[0]"},
    {"added_tokens", "[{\"id\":7,\"content\":\"<x>\"},{\"id\":8}]", CALM_EFORMAT,
     ": added_tokens[1].content: expected a string, found null"},
    {"added_tokens", "[{\"content\":\"<x>\"}]", CALM_EFORMAT, ": added_tokens[0]: \"id\" is missing"},
    {"added_tokens", "[{\"id\":-1,\"content\":\"<x>\"}]", CALM_EFORMAT, ": added_tokens[0]"},
    {"added_tokens", "[{\"id\":4194304,\"content\":\"<x>\"}]", CALM_EFORMAT, ": added_tokens[0]"},
    {"added_tokens", "[{\"id\":7,\"content\":\"<x>\",\"lstrip\":\"no\"}]", CALM_EFORMAT, "lstrip"},

    {"post_processor", "{\"type\":\"BertProcessing\",\"cls\":[\"a\",0]}", CALM_EFORMAT,
     ": post_processor.sep: expected [\"token\", id]"},
    {"post_processor", "{\"type\":\"BertProcessing\",\"cls\":[\"a\",99],\"sep\":[\"a\",0]}", CALM_EFORMAT,
     ": post_processor.cls: 99 is not the id of a token"},
    {"post_processor", "{\"type\":\"RobertaProcessing\",\"cls\":[0,\"a\"],\"sep\":[\"a\",0]}", CALM_EFORMAT,
     ": post_processor.cls: expected"},
    {"post_processor", "{\"type\":\"Nonsense\"}", CALM_EUNSUPPORTED,
     ": post_processor.type \"Nonsense\": not supported"},
    {"post_processor", TEMPLATE("[]", "{}"), CALM_EUNSUPPORTED,
     ": post_processor.single: not supported: 0 times the text"},
    {"post_processor", TEMPLATE("[{\"Sequence\":{\"id\":\"A\"}},{\"Sequence\":{\"id\":\"A\"}}]", "{}"),
     CALM_EUNSUPPORTED, "2 times the text"},
    {"post_processor", TEMPLATE("[{\"Sequence\":{\"id\":\"B\"}}]", "{}"), CALM_EFORMAT,
     ": post_processor.single[0]: expected the sequence \"A\", found \"B\""},
    {"post_processor", TEMPLATE("[{\"Other\":{\"id\":\"B\"}}]", "{}"), CALM_EFORMAT,
     ": post_processor.single[0]: expected a SpecialToken or a Sequence"},
    {"post_processor", TEMPLATE("[{\"SpecialToken\":{\"id\":\"<s>\"}}]", "{}"), CALM_EFORMAT,
     ": post_processor.special_tokens: no ids for \"<s>\""},
    {"post_processor", TEMPLATE("[{\"SpecialToken\":{\"id\":\"a\"}}]", "{\"a\":{\"ids\":[0,99]}}"), CALM_EFORMAT,
     ": post_processor.special_tokens: \"a\": ids[1] is not the id of a token"},
    {"post_processor", TEMPLATE("[{\"SpecialToken\":{\"id\":\"a\"}}]", "{\"a\":{\"ids\":[-1]}}"), CALM_EFORMAT,
     "ids[0]"},
    {"post_processor", TEMPLATE("[{\"SpecialToken\":{\"id\":\"a\"}}]", "{\"a\":{\"ids\":[\"x\"]}}"), CALM_EFORMAT,
     "ids[0]"},

    {"decoder", "{\"type\":\"Strip\",\"content\":\"ab\",\"start\":1,\"stop\":0}", CALM_EFORMAT,
     ": decoder.content: expected one character, found \"ab\""},
    {"decoder", "{\"type\":\"Strip\",\"content\":\"a\",\"start\":-1,\"stop\":0}", CALM_EFORMAT, ": decoder: \"start\""},
    {"decoder", "{\"type\":\"WordPiece\",\"prefix\":\"##\"}", CALM_EFORMAT, ": decoder: \"cleanup\" is missing"},
    {"decoder", "{\"type\":\"BPEDecoder\",\"suffix\":\"\"}", CALM_EUNSUPPORTED,
     ": decoder.suffix: not supported: an empty one"},
    {"decoder", "{\"type\":\"Replace\",\"content\":\"\",\"pattern\":{}}", CALM_EFORMAT, ": decoder.pattern: expected"},
    {"decoder", "{\"type\":\"Nonsense\"}", CALM_EUNSUPPORTED, ": decoder.type \"Nonsense\": not supported; known: "},
    {"decoder", "{\"type\":\"Sequence\",\"decoders\":{}}", CALM_EFORMAT,
     ": decoder.decoders: expected an array, found an object"},
};

/* Writes a good file in which one member is replaced; member NULL: the file unchanged. */
static const char *file_with(const char *member, const char *json)
{
    static const struct {
        const char *name, *json;
    } good[] = {{"version", "\"1.0\""},     {"normalizer", "{\"type\":\"NFC\"}"}, {"pre_tokenizer", "null"},
                {"model", GOOD_MODEL},      {"added_tokens", "[]"},               {"post_processor", "null"},
                {"decoder", "null"},        {"truncation", "null"}};
    const char *path = test_format("%s/tokenizer.json", test_directory()), *text = "";
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        bool replaced = member && strcmp(member, good[i].name) == 0;
        text = test_format("%s%c\"%s\":%s", text, i ? ',' : '{', good[i].name, replaced ? json : good[i].json);
    }
    text = test_format("%s}", text);
    ck_ok(calm_write_file(ctx, path, text, strlen(text)));
    return path;
}

TEST(the_good_file_opens)
{
    calm_tokenizer *tok;
    ck_ok(calm_tokenizer_open(ctx, file_with(NULL, NULL), &tok));
    ck_assert_uint_eq(calm_tokenizer_size(tok), 3);
    calm_tokenizer_close(tok);
}
END_OF_TEST

TEST(bad_members_are_refused)
{
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        calm_tokenizer *tok;
        const char *path = file_with(parts[i].member, parts[i].json);
        calm_status status = calm_tokenizer_open(ctx, path, &tok);
        ck_assert_msg(status == parts[i].status && strstr(ctx->message, parts[i].text) &&
                          strncmp(ctx->message, path, strlen(path)) == 0 && !tok,
                      "%s = %s: %s \"%s\", expected %s \"%s\"", parts[i].member, parts[i].json,
                      calm_status_name(status), ctx->message, calm_status_name(parts[i].status), parts[i].text);
        calm_ctx_clear_failure(ctx);
    }
}
END_OF_TEST

TEST(files_that_are_none)
{
    calm_tokenizer *tok;
    const char *folder = test_directory(), *path = test_format("%s/tokenizer.json", folder);
    ck_fails(calm_tokenizer_open(ctx, path, &tok), CALM_ENOTFOUND, path);
    ck_fails(calm_tokenizer_open(ctx, folder, &tok), CALM_EARG, folder);
    ck_ok(calm_write_file(ctx, path, "", 0));
    ck_fails(calm_tokenizer_open(ctx, path, &tok), CALM_EFORMAT, "not valid JSON");
    ck_ok(calm_write_file(ctx, path, "[]", 2));
    ck_fails(calm_tokenizer_open(ctx, path, &tok), CALM_EFORMAT, "expected an object, found an array");
    ck_ok(calm_write_file(ctx, path, "{\"model\":{\"type\":\"BP", 20));
    ck_fails(calm_tokenizer_open(ctx, path, &tok), CALM_EFORMAT, "not valid JSON");
    ck_ok(calm_write_file(ctx, path, "{}", 2));
    ck_fails(calm_tokenizer_open(ctx, path, &tok), CALM_EFORMAT, "model: expected an object");
}
END_OF_TEST

/* A double array whose offsets lead outside, and one whose text does not exist: found when a text reaches them. */
TEST(a_map_that_leads_nowhere_is_an_error)
{
    static const char *const maps[] = {
        "CAAAAAAEAAAAAAAAYQA=",    /* the root leads to unit 1 ^ byte, of 2 */
        "BAAAAAD8//9hAA==",        /* and far away */
    };
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) {
        calm_tokenizer *tok;
        uint32_t *ids;
        size_t n;
        const char *path =
            file_with("normalizer", test_format("{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"%s\"}", maps[i]));
        ck_ok(calm_tokenizer_open(ctx, path, &tok));
        ck_fails(calm_tokenizer_encode(ctx, tok, "a", 1, false, &ids, &n), CALM_EFORMAT,
                 "normalizer.precompiled_charsmap: corrupt: unit");
        calm_tokenizer_close(tok);
    }
}
END_OF_TEST

TEST(a_file_nested_too_deep_is_refused)
{
    calm_tokenizer *tok;
    enum { DEPTH = 100000 };
    static char json[2 * DEPTH + 1];
    memset(json, '[', DEPTH);
    memset(json + DEPTH, ']', DEPTH);
    const char *path = file_with("normalizer", json);
    ck_fails(calm_tokenizer_open(ctx, path, &tok), CALM_EFORMAT, "not valid JSON");
}
END_OF_TEST

TEST(a_file_of_300_megabytes_is_refused)
{
    calm_tokenizer *tok;
    const char *path = test_format("%s/tokenizer.json", test_directory());
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, 300000000), 0);
    close(fd);
    ck_fails(calm_tokenizer_open(ctx, path, &tok), CALM_EFORMAT, "300000000 bytes, expected at most");
}
END_OF_TEST

TEST(an_exponential_pattern_is_an_error_when_it_meets_its_text)
{
    calm_tokenizer *tok;
    uint32_t *ids;
    size_t n;
    const char *path =
        file_with("pre_tokenizer", SPLIT("\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":\"(a|aa)+$\"}"));
    ck_ok(calm_tokenizer_open(ctx, path, &tok));
    ck_ok(calm_tokenizer_encode(ctx, tok, "aaab", 4, false, &ids, &n));
    ck_fails(calm_tokenizer_encode(ctx, tok, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", 56, false,
                                   &ids, &n),
             CALM_EFORMAT, ": pre_tokenizer: pattern \"(a|aa)+$\": search given up");
    ck_assert_ptr_null(ids);
    calm_tokenizer_close(tok);
}
END_OF_TEST

int main(void)
{
    return run_tests("tokenizer_errors",
                     (const TTest *[]){the_good_file_opens, bad_members_are_refused, files_that_are_none,
                                       a_map_that_leads_nowhere_is_an_error, a_file_nested_too_deep_is_refused,
                                       a_file_of_300_megabytes_is_refused,
                                       an_exponential_pattern_is_an_error_when_it_meets_its_text, NULL});
}
