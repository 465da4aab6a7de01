/* BertNormalizer: BasicTokenizer of google-research/bert, as the tokenizers library implements it.
 *
 *   clean_text            removes control characters; every white space becomes a space
 *   handle_chinese_chars  puts spaces around ideographs
 *   strip_accents         canonical decomposition, then removes nonspacing marks; null: as lowercase
 *   lowercase             character by character */
#include "ptq/tokenizer/tokenizer_parts.h"
#include "ptq/text/unicode_classes.h"

enum { CLEAN = 1, CHINESE = 2, ACCENTS = 4, LOWERCASE = 8 };

static void put(calm_bytes *out, uint32_t c)
{
    if (c < 0x80)
        out->data[out->n++] = (char)c;
    else
        out->n += calm_utf8_encode(c, out->data + out->n);
}

/* Runs the first two steps, character by character. */
static calm_status clean(calm_ctx *ctx, unsigned flags, calm_normal *text)
{
    const calm_piece in = text->piece;
    calm_bytes out = {0};
    uint32_t c;
    for (size_t at = 0, length; at < in.n; at += length) {
        length = calm_utf8_decode(in.text + at, &c);
        if ((flags & CLEAN) && calm_unicode_is_other(c)) {
            text->beheaded |= out.n == 0;
            continue;
        }
        CALM_TRY(calm_bytes_reserve(ctx, &out, CALM_UTF8_MAX + 2));
        const bool apart = c >= 0x3400 && (flags & CHINESE) && calm_unicode_is_ideograph(c);
        if (apart)
            put(&out, ' ');
        put(&out, (flags & CLEAN) && calm_unicode_is_space(c) ? ' ' : c);
        if (apart)
            put(&out, ' ');
    }
    text->piece = calm_bytes_piece(&out);
    return CALM_OK;
}

/* Runs the last two steps, after the decomposition. */
static calm_status simplify(calm_ctx *ctx, unsigned flags, calm_normal *text)
{
    const calm_piece in = text->piece;
    calm_bytes out = {0};
    uint32_t c, lower[2];
    for (size_t at = 0; at < in.n;) {
        at += calm_utf8_decode(in.text + at, &c);
        CALM_TRY(calm_bytes_reserve(ctx, &out, 2 * CALM_UTF8_MAX));
        if (c < 0x80) {
            put(&out, (flags & LOWERCASE) && c >= 'A' && c <= 'Z' ? c + 32 : c);
            continue;
        }
        if ((flags & ACCENTS) && calm_unicode_is_nonspacing(c)) {
            text->beheaded |= out.n == 0;
            continue;
        }
        const size_t count = flags & LOWERCASE ? calm_unicode_lower(c, lower) : 0;
        if (count == 0)
            put(&out, c);
        for (size_t i = 0; i < count; i++)
            put(&out, lower[i]);
    }
    text->piece = calm_bytes_piece(&out);
    return CALM_OK;
}

static calm_status run(calm_ctx *ctx, const calm_token_part *self, calm_normal *text)
{
    if (self->flags & (CLEAN | CHINESE))
        CALM_TRY(clean(ctx, self->flags, text));
    if (self->flags & ACCENTS)
        CALM_TRY(calm_unicode_normalize(ctx, CALM_NFD, text->piece.text, text->piece.n, &text->piece.text,
                                        &text->piece.n));
    if (self->flags & (ACCENTS | LOWERCASE))
        CALM_TRY(simplify(ctx, self->flags, text));
    return CALM_OK;
}

calm_status calm_tokenizer_read_bert_normalizer(calm_ctx *ctx, calm_tokenizer *tok, const char *where,
                                                const calm_json *json, calm_token_part *part)
{
    bool clean_text, chinese, accents, lowercase;
    CALM_TRY(calm_json_need_bool(ctx, where, json, "clean_text", NULL, &clean_text));
    CALM_TRY(calm_json_need_bool(ctx, where, json, "handle_chinese_chars", NULL, &chinese));
    CALM_TRY(calm_json_need_bool(ctx, where, json, "lowercase", NULL, &lowercase));
    CALM_TRY(calm_json_need_bool(ctx, where, json, "strip_accents", &lowercase, &accents));
    (void)tok;
    part->normalize = run;
    part->flags = (clean_text ? CLEAN : 0u) | (chinese ? CHINESE : 0u) | (accents ? ACCENTS : 0u) |
                  (lowercase ? LOWERCASE : 0u);
    return CALM_OK;
}

/* Lowercase is the last step of BertNormalizer. */
calm_status calm_tokenizer_read_lowercase(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json,
                                          calm_token_part *part)
{
    (void)ctx, (void)tok, (void)where, (void)json;
    part->normalize = run;
    part->flags = LOWERCASE;
    return CALM_OK;
}
