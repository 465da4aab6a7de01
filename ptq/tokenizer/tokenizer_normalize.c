/* Normalizers: change a text before it is split.  BERT's and SentencePiece's have separate files. */
#include "ptq/tokenizer/tokenizer_parts.h"
#include "ptq/text/unicode_classes.h"

/* ---- normalization forms ---- */

static calm_status run_form(calm_ctx *ctx, const calm_token_part *self, calm_normal *text)
{
    return calm_unicode_normalize(ctx, (calm_unicode_form)self->flags, text->piece.text, text->piece.n,
                                  &text->piece.text, &text->piece.n);
}

/* ---- letters ---- */

static calm_status run_strip_accents(calm_ctx *ctx, const calm_token_part *self, calm_normal *text)
{
    const calm_piece in = text->piece;
    calm_bytes out = {0};
    uint32_t c;
    (void)self;
    for (size_t at = 0, length; at < in.n; at += length) {
        length = calm_utf8_decode(in.text + at, &c);
        if (!calm_unicode_is_mark(c))
            CALM_TRY(calm_bytes_add(ctx, &out, in.text + at, length));
        else
            text->beheaded |= at == 0;
    }
    text->piece = calm_bytes_piece(&out);
    return CALM_OK;
}

/* ---- ends of the text ---- */

enum { STRIP_LEFT = 1, STRIP_RIGHT = 2 };

static calm_status run_strip(calm_ctx *ctx, const calm_token_part *self, calm_normal *text)
{
    const calm_piece in = text->piece;
    size_t begin = 0, end = in.n;
    (void)ctx;
    if (self->flags & STRIP_LEFT)
        begin = calm_skip_spaces(in, 0);
    if (self->flags & STRIP_RIGHT)
        end = calm_skip_spaces_back(in, end, begin);
    text->beheaded |= begin > 0;
    text->piece = (calm_piece){in.text + begin, end - begin};
    return CALM_OK;
}

static calm_status read_strip(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json,
                              calm_token_part *part)
{
    bool left, right;
    (void)tok;
    CALM_TRY(calm_json_need_bool(ctx, where, json, "strip_left", NULL, &left));
    CALM_TRY(calm_json_need_bool(ctx, where, json, "strip_right", NULL, &right));
    part->flags = (left ? STRIP_LEFT : 0u) | (right ? STRIP_RIGHT : 0u);
    return CALM_OK;
}

static calm_status run_prepend(calm_ctx *ctx, const calm_token_part *self, calm_normal *text)
{
    calm_bytes out = {0};
    if (text->piece.n == 0)
        return CALM_OK;
    CALM_TRY(calm_bytes_reserve(ctx, &out, self->content.n + text->piece.n));
    CALM_TRY(calm_bytes_add(ctx, &out, self->content.text, self->content.n));
    CALM_TRY(calm_bytes_add(ctx, &out, text->piece.text, text->piece.n));
    text->piece = calm_bytes_piece(&out);
    return CALM_OK;
}

static calm_status read_prepend(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json,
                                calm_token_part *part)
{
    return calm_tokenizer_read_string(ctx, tok, where, json, "prepend", &part->content);
}

/* ---- patterns ---- */

static calm_status run_replace(calm_ctx *ctx, const calm_token_part *self, calm_normal *text)
{
    calm_bytes out = {0};
    bool at_front;
    CALM_TRY(calm_bytes_replace(ctx, &out, &self->pattern, text->piece, self->content, &at_front));
    text->piece = calm_bytes_piece(&out);
    text->beheaded |= at_front;
    return CALM_OK;
}

/* ---- table ---- */

calm_status calm_tokenizer_read_normalizer(calm_ctx *ctx, calm_tokenizer *tok, const char *where,
                                           const calm_json *json)
{
    static const calm_tokenizer_type types[] = {
        {"BertNormalizer", {0}, calm_tokenizer_read_bert_normalizer, NULL},
        {"Lowercase", {0}, calm_tokenizer_read_lowercase, NULL},
        {"NFC", {.normalize = run_form, .flags = CALM_NFC}, NULL, NULL},
        {"NFD", {.normalize = run_form, .flags = CALM_NFD}, NULL, NULL},
        {"NFKC", {.normalize = run_form, .flags = CALM_NFKC}, NULL, NULL},
        {"NFKD", {.normalize = run_form, .flags = CALM_NFKD}, NULL, NULL},
        {"Precompiled", {0}, calm_tokenizer_read_precompiled, NULL},
        {"Prepend", {.normalize = run_prepend}, read_prepend, NULL},
        {"Replace", {.normalize = run_replace}, calm_tokenizer_read_replace, NULL},
        {"Strip", {.normalize = run_strip}, read_strip, NULL},
        {"StripAccents", {.normalize = run_strip_accents}, NULL, NULL},
        {NULL, {0}, NULL, NULL},
    };
    return calm_tokenizer_read_parts(ctx, tok, where, json, "normalizers", types, &tok->normalizers);
}

calm_status calm_tokenizer_normalize(calm_ctx *ctx, const calm_tokenizer *tok, calm_normal *text)
{
    for (size_t i = 0; i < tok->normalizers.n; i++)
        CALM_TRY(tok->normalizers.of[i].normalize(ctx, &tok->normalizers.of[i], text));
    if (text->piece.n >= CALM_TOKENIZER_MAX_TEXT)
        return calm_fail(ctx, CALM_EARG, "text: grows beyond %zu bytes at a time", CALM_TOKENIZER_MAX_TEXT);
    return CALM_OK;
}
