/* Bytes that grow in the scratch arena, white space, and patterns found and replaced. */
#include <string.h>

#include "ptq/tokenizer/tokenizer_parts.h"

calm_status calm_bytes_reserve(calm_ctx *ctx, calm_bytes *bytes, size_t more)
{
    char *grown;
    if (bytes->capacity - bytes->n >= more)
        return CALM_OK;
    if (more >= CALM_TOKENIZER_MAX_TEXT || bytes->n >= CALM_TOKENIZER_MAX_TEXT - more)
        return calm_fail(ctx, CALM_EARG, "text: grows beyond %zu bytes at a time", CALM_TOKENIZER_MAX_TEXT);
    const size_t capacity = 2 * (bytes->n + more) + 64;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, grown, capacity));
    if (bytes->n)
        memcpy(grown, bytes->data, bytes->n);
    bytes->data = grown;
    bytes->capacity = capacity;
    return CALM_OK;
}

calm_status calm_bytes_add(calm_ctx *ctx, calm_bytes *bytes, const char *text, size_t n)
{
    CALM_TRY(calm_bytes_reserve(ctx, bytes, n));
    if (n)
        memcpy(bytes->data + bytes->n, text, n);
    bytes->n += n;
    return CALM_OK;
}

calm_piece calm_bytes_piece(const calm_bytes *bytes)
{
    return (calm_piece){bytes->data ? bytes->data : "", bytes->n};
}

/* ---- white space ---- */

size_t calm_skip_spaces_back(calm_piece text, size_t at, size_t floor)
{
    uint32_t c;
    while (at > floor) {
        size_t before = calm_utf8_step_back(text.text, at);
        calm_utf8_decode(text.text + before, &c);
        if (!calm_unicode_is_space(c))
            break;
        at = before;
    }
    return at;
}

size_t calm_skip_spaces(calm_piece text, size_t at)
{
    uint32_t c;
    while (at < text.n) {
        size_t length = calm_utf8_decode(text.text + at, &c);
        if (!calm_unicode_is_space(c))
            break;
        at += length;
    }
    return at;
}

/* ---- patterns ---- */

static bool find_literal(calm_piece literal, calm_piece text, size_t offset, size_t *begin, size_t *end)
{
    const char *at = memmem(text.text + offset, text.n - offset, literal.text, literal.n);
    if (!at)
        return false;
    *begin = (size_t)(at - text.text);
    *end = *begin + literal.n;
    return true;
}

static bool find_character(bool (*is_match)(uint32_t), calm_piece text, size_t offset, size_t *begin, size_t *end)
{
    uint32_t c;
    for (size_t length; offset < text.n; offset += length) {
        length = calm_utf8_decode(text.text + offset, &c);
        if (is_match(c)) {
            *begin = offset;
            *end = offset + length;
            return true;
        }
    }
    return false;
}

calm_status calm_pattern_find(calm_ctx *ctx, const calm_pattern *pattern, calm_matcher *matcher, calm_piece text,
                              size_t offset, bool *found, size_t *begin, size_t *end)
{
    if (pattern->literal.n)
        *found = find_literal(pattern->literal, text, offset, begin, end);
    else if (!pattern->regex)
        *found = find_character(pattern->is_match, text, offset, begin, end);
    else
        return calm_matcher_find(ctx, matcher, text.text, text.n, offset, found, begin, end);
    return CALM_OK;
}

static calm_status replace(calm_ctx *ctx, calm_bytes *bytes, const calm_pattern *pattern, calm_matcher *matcher,
                           calm_piece in, calm_piece content, bool *at_front)
{
    size_t offset = 0, done = 0, begin = 0, end = 0;
    bool found, any = false;
    while (offset <= in.n) {
        CALM_TRY(calm_pattern_find(ctx, pattern, matcher, in, offset, &found, &begin, &end));
        if (!found)
            break;
        if (begin == end && any && end == done) {
            uint32_t skipped;
            offset += offset < in.n ? calm_utf8_decode(in.text + offset, &skipped) : 1;
            continue;
        }
        CALM_TRY(calm_bytes_add(ctx, bytes, in.text + done, begin - done));
        CALM_TRY(calm_bytes_add(ctx, bytes, content.text, content.n));
        *at_front |= begin == 0 && end > 0 && content.n == 0;
        done = offset = end;
        any = true;
    }
    return calm_bytes_add(ctx, bytes, in.text + done, in.n - done);
}

calm_status calm_bytes_replace(calm_ctx *ctx, calm_bytes *bytes, const calm_pattern *pattern, calm_piece in,
                               calm_piece content, bool *at_front)
{
    calm_matcher *matcher = NULL;
    *at_front = false;
    if (pattern->regex && !pattern->literal.n)
        CALM_TRY(calm_matcher_new(ctx, pattern->regex, &matcher));
    const calm_status status = replace(ctx, bytes, pattern, matcher, in, content, at_front);
    calm_matcher_free(matcher);
    return status;
}
