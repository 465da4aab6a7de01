/* Pre-tokenizers: split a text into the pieces that the model encodes separately.
 *
 * Each piece passes through the whole chain before the next one is cut, so the pieces of a text are never listed. */
#include <string.h>

#include "ptq/base/option.h"
#include "ptq/tokenizer/tokenizer_encoder.h"
#include "ptq/text/unicode_classes.h"

/* GPT-2's regular expression (openai/gpt-2, src/encoder.py), which ByteLevel uses with use_regex. */
static const char gpt2_pattern[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static calm_status run_byte_level(calm_encoder *enc, size_t index, calm_piece in)
{
    const calm_token_part *self = &enc->tok->pretokenizers.of[index];
    if (self->prepend == CALM_PREPEND_ALWAYS && in.text[0] != ' ') {
        char *text;
        CALM_TRY(calm_encoder_reserve(enc, &enc->changed[index], in.n + 1, 1, &text));
        text[0] = ' ';
        memcpy(text + 1, in.text, in.n);
        in = (calm_piece){text, in.n + 1};
    }
    return self->whole ? calm_encoder_pass(enc, index + 1, in) : calm_encoder_split(enc, index, in);
}

/* Splits like Whitespace, \w+|[^\w\s]+: into runs of word characters, and runs of characters that are neither word
 * characters nor white space. */
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

/* Runs Metaspace: replaces spaces by SentencePiece's visible space, U+2581, and splits before each. */
static calm_status run_metaspace(calm_encoder *enc, size_t index, calm_piece in)
{
    const calm_token_part *self = &enc->tok->pretokenizers.of[index];
    const calm_piece mark = self->content;
    const bool marked = in.text[0] == ' ' || calm_piece_begins(in, mark);
    const bool asked = self->prepend == CALM_PREPEND_ALWAYS ||
                       (self->prepend == CALM_PREPEND_FIRST && in.text == enc->start);
    char *text, *end;
    CALM_TRY(calm_encoder_reserve(enc, &enc->changed[index], in.n + 1, mark.n, &text));
    end = asked && !marked ? mempcpy(text, mark.text, mark.n) : text;
    for (size_t i = 0; i < in.n; i++)
        if (in.text[i] == ' ')
            end = mempcpy(end, mark.text, mark.n);
        else
            *end++ = in.text[i];
    const calm_piece out = {text, (size_t)(end - text)};
    return self->whole ? calm_encoder_pass(enc, index + 1, out) : calm_encoder_split(enc, index, out);
}

/* ---- reading ---- */

static calm_status read_behavior(calm_ctx *ctx, const char *where, const calm_json *json, const char *fallback,
                                 calm_split_behavior *out)
{
    const char *name;
    CALM_TRY(calm_json_need_string(ctx, where, json, "behavior", fallback, &name));
    const int index = calm_option_value_index("Isolated|Removed|MergedWithPrevious|MergedWithNext|Contiguous", name);
    *out = (calm_split_behavior)index;
    return index >= 0 ? CALM_OK
                      : calm_fail(ctx, CALM_EUNSUPPORTED, "%s.behavior \"%.60s\": not supported", where, name);
}

static calm_status read_split(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json,
                              calm_token_part *part)
{
    CALM_TRY(read_behavior(ctx, where, json, NULL, &part->behavior));
    CALM_TRY(calm_json_need_bool(ctx, where, json, "invert", &(bool){false}, &part->invert));
    return calm_tokenizer_read_pattern(ctx, tok, where, json, &part->pattern);
}

static calm_status read_digits(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json,
                               calm_token_part *part)
{
    bool individual;
    (void)tok;
    CALM_TRY(calm_json_need_bool(ctx, where, json, "individual_digits", &(bool){false}, &individual));
    part->behavior = individual ? CALM_SPLIT_ISOLATED : CALM_SPLIT_CONTIGUOUS;
    return CALM_OK;
}

static calm_status read_punctuation(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json,
                                    calm_token_part *part)
{
    (void)tok;
    return read_behavior(ctx, where, json, "Isolated", &part->behavior);
}

/* Parts that split at single characters. */
#define AT_SPACES                                                                                                      \
    {.split = calm_encoder_split, .pattern.is_match = calm_unicode_is_space, .behavior = CALM_SPLIT_REMOVED}
#define AT_PUNCTUATION {.split = calm_encoder_split, .pattern.is_match = calm_unicode_is_punctuation}
#define AT_NUMBERS     {.split = calm_encoder_split, .pattern.is_match = calm_unicode_is_number}

/* Reads BertPreTokenizer as two parts: the first removes white space, the second isolates punctuation characters. */
static calm_status read_bert(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json,
                             calm_token_part *part)
{
    static const calm_token_part second = AT_PUNCTUATION;
    (void)json;
    return calm_tokenizer_add_part(ctx, tok, where, &tok->pretokenizers, &second, &part);
}

calm_status calm_tokenizer_read_metaspace(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json,
                                          calm_token_part *part)
{
    const bool yes = true;
    const char *name;
    bool legacy, split;
    /* Older files have a boolean instead of the scheme. */
    CALM_TRY(calm_json_need_bool(ctx, where, json, "add_prefix_space", &yes, &legacy));
    CALM_TRY(calm_json_need_string(ctx, where, json, "prepend_scheme", legacy ? "always" : "never", &name));
    const int scheme = calm_option_value_index("never|first|always", name);
    if (scheme < 0)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s.prepend_scheme \"%.60s\": not supported", where, name);
    if (!legacy && scheme != CALM_PREPEND_NEVER)
        return calm_fail(ctx, CALM_EFORMAT, "%s: add_prefix_space is false, but prepend_scheme is \"%s\"", where, name);
    part->prepend = (calm_prepend)scheme;
    CALM_TRY(calm_json_need_bool(ctx, where, json, "split", &yes, &split));
    part->whole = !split;
    CALM_TRY(calm_tokenizer_read_character(ctx, tok, where, json, "replacement", &part->content));
    part->pattern.literal = part->content;
    return CALM_OK;
}

static calm_status read_byte_level(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json,
                                   calm_token_part *part)
{
    bool use_regex, prefix_space;
    tok->byte_level = true;
    CALM_TRY(calm_json_need_bool(ctx, where, json, "add_prefix_space", NULL, &prefix_space));
    CALM_TRY(calm_json_need_bool(ctx, where, json, "use_regex", &(bool){true}, &use_regex));
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
        {"BertPreTokenizer", AT_SPACES, read_bert, NULL},
        {"ByteLevel", {.split = run_byte_level, .behavior = CALM_SPLIT_ISOLATED}, read_byte_level, NULL},
        {"Digits", AT_NUMBERS, read_digits, NULL},
        {"Metaspace", {.split = run_metaspace, .behavior = CALM_SPLIT_MERGED_WITH_NEXT}, calm_tokenizer_read_metaspace,
         NULL},
        {"Punctuation", AT_PUNCTUATION, read_punctuation, NULL},
        {"Split", {.split = calm_encoder_split}, read_split, NULL},
        {"Whitespace", {.split = run_words}, NULL, NULL},
        {"WhitespaceSplit", AT_SPACES, NULL, NULL},
        {NULL, {0}, NULL, NULL},
    };
    return calm_tokenizer_read_parts(ctx, tok, where, json, "pretokenizers", types, &tok->pretokenizers);
}
