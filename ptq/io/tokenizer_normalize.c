/* Normalizers: what happens to a text before it is split. */
#include "ptq/io/tokenizer_parts.h"
#include "ptq/io/unicode.h"

static calm_status run_nfc(calm_ctx *ctx, const calm_normalizer *self, calm_piece in, calm_piece *out)
{
    (void)self;
    return calm_unicode_nfc(ctx, in.text, in.n, &out->text, &out->n);
}

static calm_status read_nfc(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json)
{
    (void)json;
    CALM_TRY(calm_tokenizer_check_room(ctx, where, tok->n_normalizers));
    tok->normalizers[tok->n_normalizers++].run = run_nfc;
    return CALM_OK;
}

calm_status calm_tokenizer_read_normalizer(calm_ctx *ctx, calm_tokenizer *tok, const char *where,
                                           const calm_json *json)
{
    static const calm_tokenizer_type types[] = {{"NFC", read_nfc}, {NULL, NULL}};
    return calm_tokenizer_read_parts(ctx, tok, where, json, "normalizers", types);
}

calm_status calm_tokenizer_normalize(calm_ctx *ctx, const calm_tokenizer *tok, calm_piece in, calm_piece *out)
{
    *out = in;
    for (size_t i = 0; i < tok->n_normalizers; i++)
        CALM_TRY(tok->normalizers[i].run(ctx, &tok->normalizers[i], *out, out));
    return CALM_OK;
}
