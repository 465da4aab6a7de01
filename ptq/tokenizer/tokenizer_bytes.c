/* Growing byte buffers in the scratch arena, white space, and search and replacement of patterns. */
#include <string.h>

#include "ptq/base/array.h"
#include "ptq/tokenizer/tokenizer_parts.h"

calm_status calm_bytes_reserve(calm_ctx *ctx, calm_bytes *bytes, size_t more)
{
    if (bytes->capacity - bytes->n >= more)
        return CALM_OK;
    if (more >= CALM_TOKENIZER_MAX_TEXT || bytes->n >= CALM_TOKENIZER_MAX_TEXT - more)
        return calm_fail(ctx, CALM_EARG, "text: grows beyond %zu bytes at a time", CALM_TOKENIZER_MAX_TEXT);
    return calm_array_grow(ctx, ctx->scratch, &bytes->data, bytes->n, &bytes->capacity,
                           calm_size_max(bytes->n + more, 64), 1, "text");
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

bool calm_piece_begins(calm_piece text, calm_piece prefix)
{
    return text.n >= prefix.n && memcmp(text.text, prefix.text, prefix.n) == 0;
}

bool calm_piece_equal(calm_piece a, calm_piece b)
{
    return a.n == b.n && memcmp(a.text, b.text, a.n) == 0;
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

static calm_status find(calm_ctx *ctx, calm_pattern_walk *walk, bool *found)
{
    const calm_pattern *pattern = walk->pattern;
    if (pattern->literal.n)
        *found = find_literal(pattern->literal, walk->text, walk->offset, &walk->begin, &walk->end);
    else if (!pattern->regex)
        *found = find_character(pattern->is_match, walk->text, walk->offset, &walk->begin, &walk->end);
    else
        return calm_matcher_find(ctx, walk->matcher, walk->text.text, walk->text.n, walk->offset, found, &walk->begin,
                                 &walk->end);
    return CALM_OK;
}

calm_status calm_pattern_next(calm_ctx *ctx, calm_pattern_walk *walk, bool *found)
{
    const calm_piece text = walk->text;
    walk->before = walk->end;
    for (*found = false; walk->offset <= text.n;) {
        CALM_TRY(find(ctx, walk, found));
        if (!*found)
            break;
        if (walk->begin < walk->end || !walk->any || walk->end != walk->before) {
            walk->offset = walk->end;
            walk->any = true;
            return CALM_OK;
        }
        /* An empty match at the end of the last match: search again from the next character. */
        uint32_t skipped;
        walk->offset += walk->offset < text.n ? calm_utf8_decode(text.text + walk->offset, &skipped) : 1;
    }
    *found = false;
    walk->end = walk->before;
    return CALM_OK;
}

calm_status calm_bytes_replace(calm_ctx *ctx, calm_bytes *bytes, const calm_pattern *pattern, calm_piece in,
                               calm_piece content, bool *at_front)
{
    CALM_SCOPED_MATCHER(matcher);
    *at_front = false;
    if (pattern->regex && !pattern->literal.n)
        CALM_TRY(calm_matcher_new(ctx, pattern->regex, &matcher));
    calm_pattern_walk walk = {.pattern = pattern, .matcher = matcher, .text = in};
    for (bool found;;) {
        CALM_TRY(calm_pattern_next(ctx, &walk, &found));
        if (!found)
            return calm_bytes_add(ctx, bytes, in.text + walk.end, in.n - walk.end);
        CALM_TRY(calm_bytes_add(ctx, bytes, in.text + walk.before, walk.begin - walk.before));
        CALM_TRY(calm_bytes_add(ctx, bytes, content.text, content.n));
        *at_front |= walk.begin == 0 && walk.end > 0 && content.n == 0;
    }
}
