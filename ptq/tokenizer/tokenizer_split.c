/* Pre-tokenizers: a text is split into the pieces that the model sees one by one.
 *
 * Each piece goes down the whole chain before the next one is cut, so a text of any length is never listed. */
#include <string.h>

#include "ptq/tokenizer/tokenizer_encoder.h"
#include "ptq/text/unicode_classes.h"

/* The expression of GPT-2 (openai/gpt-2, src/encoder.py), which ByteLevel means by use_regex. */
static const char gpt2_pattern[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static calm_status run_byte_level(calm_encoder *enc, size_t index, calm_piece in)
{
    const calm_pretokenizer *self = &enc->tok->pretokenizers[index];
    if (self->prepend == CALM_PREPEND_ALWAYS && in.text[0] != ' ') {
        char *text;
        CALM_TRY(calm_encoder_reserve(enc, &enc->changed[index], in.n + 1, 1, &text));
        text[0] = ' ';
        memcpy(text + 1, in.text, in.n);
        in = (calm_piece){text, in.n + 1};
    }
    return self->whole ? calm_encoder_pass(enc, index + 1, in) : calm_encoder_split(enc, index, in);
}

/* Whitespace, which is \w+|[^\w\s]+: runs of word characters, and of what is neither that nor white space. */
static calm_status run_words(calm_encoder *enc, size_t index, calm_piece in)
{
    enum { SPACE, WORD, OTHER } class, last = SPACE;
    size_t begin = 0;
    uint32_t c;
    for (size_t at = 0, length; at < in.n; at += length) {
        length = calm_utf8_decode(in.text + at, &c);
        class = calm_unicode_is_space(c) ? SPACE : calm_unicode_is_word(c) ? WORD : OTHER;
        if (class == last)
            continue;
        if (last != SPACE)
            CALM_TRY(calm_encoder_pass(enc, index + 1, (calm_piece){in.text + begin, at - begin}));
        begin = at;
        last = class;
    }
    return last == SPACE ? CALM_OK
                         : calm_encoder_pass(enc, index + 1, (calm_piece){in.text + begin, in.n - begin});
}

/* ---- reading ---- */

static calm_status read_behavior(calm_ctx *ctx, const char *where, const calm_json *json, const char *fallback,
                                 calm_split_behavior *out)
{
    static const char *const names[] = {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    const char *name;
    CALM_TRY(calm_json_need_string(ctx, where, json, "behavior", fallback, &name));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(name, names[i]) == 0) {
            *out = (calm_split_behavior)i;
            return CALM_OK;
        }
    }
    return calm_fail(ctx, CALM_EUNSUPPORTED, "%s.behavior \"%.60s\": not supported", where, name);
}

static calm_status read_split(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json)
{
    calm_pretokenizer *part = NULL;
    const bool no = false;
    CALM_TRY(calm_tokenizer_new_pretokenizer(ctx, tok, where, &part));
    part->run = calm_encoder_split;
    CALM_TRY(read_behavior(ctx, where, json, NULL, &part->behavior));
    CALM_TRY(calm_json_need_bool(ctx, where, json, "invert", &no, &part->invert));
    return calm_tokenizer_read_pattern(ctx, tok, where, calm_json_get(json, "pattern"), &part->pattern);
}

/* A part that splits at single characters. */
static calm_status add_characters(calm_ctx *ctx, calm_tokenizer *tok, const char *where, bool (*is_match)(uint32_t),
                                  calm_split_behavior behavior)
{
    calm_pretokenizer *part = NULL;
    CALM_TRY(calm_tokenizer_new_pretokenizer(ctx, tok, where, &part));
    part->run = calm_encoder_split;
    part->pattern.is_match = is_match;
    part->behavior = behavior;
    return CALM_OK;
}

static calm_status read_digits(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json)
{
    const bool no = false;
    bool individual;
    CALM_TRY(calm_json_need_bool(ctx, where, json, "individual_digits", &no, &individual));
    return add_characters(ctx, tok, where, calm_unicode_is_number,
                          individual ? CALM_SPLIT_ISOLATED : CALM_SPLIT_CONTIGUOUS);
}

static calm_status read_punctuation(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json)
{
    calm_split_behavior behavior = CALM_SPLIT_ISOLATED;
    CALM_TRY(read_behavior(ctx, where, json, "Isolated", &behavior));
    return add_characters(ctx, tok, where, calm_unicode_is_punctuation, behavior);
}

static calm_status read_whitespace_split(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json)
{
    (void)json;
    return add_characters(ctx, tok, where, calm_unicode_is_space, CALM_SPLIT_REMOVED);
}

static calm_status read_bert(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json)
{
    CALM_TRY(read_whitespace_split(ctx, tok, where, json));
    return add_characters(ctx, tok, where, calm_unicode_is_punctuation, CALM_SPLIT_ISOLATED);
}

static calm_status read_whitespace(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json)
{
    calm_pretokenizer *part = NULL;
    (void)json;
    CALM_TRY(calm_tokenizer_new_pretokenizer(ctx, tok, where, &part));
    part->run = run_words;
    return CALM_OK;
}

static calm_status read_byte_level(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json)
{
    calm_pretokenizer *part = NULL;
    const bool yes = true;
    bool use_regex, prefix_space;
    CALM_TRY(calm_tokenizer_new_pretokenizer(ctx, tok, where, &part));
    part->run = run_byte_level;
    part->behavior = CALM_SPLIT_ISOLATED;
    tok->byte_level = true;
    CALM_TRY(calm_json_need_bool(ctx, where, json, "add_prefix_space", NULL, &prefix_space));
    CALM_TRY(calm_json_need_bool(ctx, where, json, "use_regex", &yes, &use_regex));
    part->prepend = prefix_space ? CALM_PREPEND_ALWAYS : CALM_PREPEND_NEVER;
    part->whole = !use_regex;
    if (!use_regex)
        return CALM_OK;
    return calm_regex_new(ctx, where, gpt2_pattern, sizeof gpt2_pattern - 1, &part->pattern.regex);
}

calm_status calm_tokenizer_read_pretokenizer(calm_ctx *ctx, calm_tokenizer *tok, const char *where,
                                             const calm_json *json)
{
    static const calm_tokenizer_type types[] = {
        {"BertPreTokenizer", read_bert},
        {"ByteLevel", read_byte_level},
        {"Digits", read_digits},
        {"Metaspace", calm_tokenizer_read_metaspace_splitter},
        {"Punctuation", read_punctuation},
        {"Split", read_split},
        {"Whitespace", read_whitespace},
        {"WhitespaceSplit", read_whitespace_split},
        {NULL, NULL},
    };
    return calm_tokenizer_read_parts(ctx, tok, where, json, "pretokenizers", types);
}
