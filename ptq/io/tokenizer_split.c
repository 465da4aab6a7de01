/* Pre-tokenizers: a text is split into the pieces that the model sees one by one.
 *
 * Each piece goes down the whole chain before the next one is cut, so a text of any length is never listed. */
#include <string.h>

#include "ptq/io/tokenizer_parts.h"
#include "ptq/io/unicode.h"

/* The expression of GPT-2 (openai/gpt-2, src/encoder.py), which ByteLevel means by use_regex. */
static const char gpt2_pattern[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* ---- splitting ---- */

/* Matches and what lies between them are put together by the behavior: `begin`..`end` is held back as long as
 * the next one may still join it. */
typedef struct splitter {
    calm_encoder *enc;
    size_t index;
    calm_piece in;
    size_t begin, end;
    bool holding, previous;    /* something is held; whether the last one was a match */
} splitter;

static calm_status pass(splitter *s, size_t begin, size_t end)
{
    return calm_encoder_pass(s->enc, s->index + 1, (calm_piece){s->in.text + begin, end - begin});
}

static calm_status flush(splitter *s)
{
    if (!s->holding)
        return CALM_OK;
    s->holding = false;
    return pass(s, s->begin, s->end);
}

static calm_status add_span(splitter *s, const calm_pretokenizer *self, size_t begin, size_t end, bool match)
{
    bool joins = false;
    match ^= self->invert;
    switch (self->behavior) {
    case CALM_SPLIT_ISOLATED:
        return pass(s, begin, end);
    case CALM_SPLIT_REMOVED:
        return match ? CALM_OK : pass(s, begin, end);
    case CALM_SPLIT_MERGED_WITH_PREVIOUS:
        joins = match && !s->previous;
        break;
    case CALM_SPLIT_MERGED_WITH_NEXT:
        joins = !match && s->previous;
        break;
    case CALM_SPLIT_CONTIGUOUS:
        joins = match == s->previous;
        break;
    }
    s->previous = match;
    if (s->holding && joins) {
        s->end = end;
        return CALM_OK;
    }
    CALM_TRY(flush(s));
    s->holding = true;
    s->begin = begin;
    s->end = end;
    return CALM_OK;
}

/* An empty match splits too, but not right behind another match. */
static calm_status run_split(calm_encoder *enc, size_t index, calm_piece in)
{
    const calm_pretokenizer *self = &enc->tok->pretokenizers[index];
    splitter s = {.enc = enc, .index = index, .in = in};
    size_t offset = 0, done = 0, begin = 0, end = 0;
    bool found, any = false;
    while (offset <= in.n) {
        CALM_TRY(calm_matcher_find(enc->ctx, enc->matchers[index], in.text, in.n, offset, &found, &begin, &end));
        if (!found)
            break;
        if (begin == end && any && end == done) {
            uint32_t skipped;
            offset += offset < in.n ? calm_utf8_decode(in.text + offset, &skipped) : 1;
            continue;
        }
        if (done < begin)
            CALM_TRY(add_span(&s, self, done, begin, false));
        CALM_TRY(add_span(&s, self, begin, end, true));
        done = offset = end;
        any = true;
    }
    if (done < in.n)
        CALM_TRY(add_span(&s, self, done, in.n, false));
    return flush(&s);
}

static calm_status run_byte_level(calm_encoder *enc, size_t index, calm_piece in)
{
    const calm_pretokenizer *self = &enc->tok->pretokenizers[index];
    if (self->prefix_space && in.text[0] != ' ') {
        char *text;
        CALM_TRY(CALM_NEW(enc->ctx, enc->ctx->scratch, text, in.n + 1));
        text[0] = ' ';
        memcpy(text + 1, in.text, in.n);
        in = (calm_piece){text, in.n + 1};
    }
    return self->regex ? run_split(enc, index, in) : calm_encoder_pass(enc, index + 1, in);
}

/* ---- reading ---- */

/* The next free place; pieces spelled in the byte-level alphabet would be split otherwise than their bytes. */
static calm_status new_part(calm_ctx *ctx, calm_tokenizer *tok, const char *where, calm_pretokenizer **out)
{
    CALM_TRY(calm_tokenizer_check_room(ctx, where, tok->n_pretokenizers));
    if (tok->byte_level)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: not supported: a pre-tokenizer after ByteLevel", where);
    *out = &tok->pretokenizers[tok->n_pretokenizers++];
    return CALM_OK;
}

static calm_status read_behavior(calm_ctx *ctx, const char *where, const calm_json *json, calm_split_behavior *out)
{
    static const char *const names[] = {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    const char *name;
    CALM_TRY(calm_json_need_string(ctx, where, json, "behavior", NULL, &name));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(name, names[i]) == 0) {
            *out = (calm_split_behavior)i;
            return CALM_OK;
        }
    }
    return calm_fail(ctx, CALM_EUNSUPPORTED, "%s.behavior \"%.60s\": not supported", where, name);
}

/* {"Regex": "..."} or {"String": "..."}, the latter taken literally. */
static calm_status read_pattern(calm_ctx *ctx, const char *where, const calm_json *json, calm_regex **out)
{
    calm_piece pattern;
    char *literal;
    const calm_json *regex = calm_json_get(json, "Regex"), *string = calm_json_get(json, "String");
    if (!regex == !string)
        return calm_fail(ctx, CALM_EFORMAT, "%s.pattern: expected {\"Regex\": ...} or {\"String\": ...}", where);
    CALM_TRY(calm_tokenizer_copy_string(ctx, ctx->scratch, where, "pattern", regex ? regex : string, &pattern));
    if (string) {
        size_t n = 0;
        CALM_TRY(CALM_NEW(ctx, ctx->scratch, literal, 2 * pattern.n));
        for (size_t i = 0; i < pattern.n; i++) {
            if (strchr("\\^$.[]|()?*+{}", pattern.text[i]) && pattern.text[i])
                literal[n++] = '\\';
            literal[n++] = pattern.text[i];
        }
        pattern = (calm_piece){literal, n};
    }
    return calm_regex_new(ctx, where, pattern.text, pattern.n, out);
}

static calm_status read_split(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json)
{
    calm_pretokenizer *part = NULL;
    const bool no = false;
    CALM_TRY(new_part(ctx, tok, where, &part));
    part->run = run_split;
    CALM_TRY(read_behavior(ctx, where, json, &part->behavior));
    CALM_TRY(calm_json_need_bool(ctx, where, json, "invert", &no, &part->invert));
    return read_pattern(ctx, where, calm_json_get(json, "pattern"), &part->regex);
}

static calm_status read_digits(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json)
{
    calm_pretokenizer *part = NULL;
    const bool no = false;
    bool individual;
    CALM_TRY(new_part(ctx, tok, where, &part));
    part->run = run_split;
    CALM_TRY(calm_json_need_bool(ctx, where, json, "individual_digits", &no, &individual));
    part->behavior = individual ? CALM_SPLIT_ISOLATED : CALM_SPLIT_CONTIGUOUS;
    return calm_regex_new(ctx, where, "\\p{N}", 5, &part->regex);
}

static calm_status read_byte_level(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json)
{
    calm_pretokenizer *part = NULL;
    const bool yes = true;
    bool use_regex;
    CALM_TRY(new_part(ctx, tok, where, &part));
    part->run = run_byte_level;
    part->behavior = CALM_SPLIT_ISOLATED;
    tok->byte_level = true;
    CALM_TRY(calm_json_need_bool(ctx, where, json, "add_prefix_space", NULL, &part->prefix_space));
    CALM_TRY(calm_json_need_bool(ctx, where, json, "use_regex", &yes, &use_regex));
    if (!use_regex)
        return CALM_OK;
    return calm_regex_new(ctx, where, gpt2_pattern, sizeof gpt2_pattern - 1, &part->regex);
}

calm_status calm_tokenizer_read_pretokenizer(calm_ctx *ctx, calm_tokenizer *tok, const char *where,
                                             const calm_json *json)
{
    static const calm_tokenizer_type types[] = {
        {"ByteLevel", read_byte_level}, {"Digits", read_digits}, {"Split", read_split}, {NULL, NULL}};
    return calm_tokenizer_read_parts(ctx, tok, where, json, "pretokenizers", types);
}
