/* Encodes a text: cuts out added tokens, normalizes the rest, and passes it piece by piece through pre-tokenizers
 * and model (tokenizer_encoder.c). */
#include <string.h>

#include "ptq/tokenizer/tokenizer_encoder.h"
#include "ptq/text/unicode.h"

static calm_status encode_normalized(calm_encoder *enc, calm_piece text)
{
    calm_added_cursor cursor = {.set = &enc->tok->normalized, .text = text};
    calm_piece gap;
    uint32_t id;
    while (calm_added_next(&cursor, &gap, &id)) {
        CALM_TRY(calm_encoder_pass(enc, 0, gap));
        if (id != CALM_NO_TOKEN)
            CALM_TRY(calm_encoder_put(enc, id));
    }
    return CALM_OK;
}

static calm_status encode_text(calm_encoder *enc, calm_piece text)
{
    calm_added_cursor cursor = {.set = &enc->tok->raw, .text = text};
    calm_piece gap;
    uint32_t id;
    while (calm_added_next(&cursor, &gap, &id)) {
        if (gap.n > 0) {
            calm_normal normal = {.piece = gap};
            CALM_TRY(calm_tokenizer_normalize(enc->ctx, enc->tok, &normal));
            enc->start = gap.text == text.text && !normal.beheaded ? normal.piece.text : NULL;
            CALM_TRY(encode_normalized(enc, normal.piece));
        }
        if (id != CALM_NO_TOKEN)
            CALM_TRY(calm_encoder_put(enc, id));
    }
    return CALM_OK;
}

static calm_status encode_all(calm_encoder *enc, calm_piece text, bool special)
{
    const calm_tokenizer *tok = enc->tok;
    /* English has about four bytes per token; the array grows if a text has more tokens. */
    CALM_TRY(calm_encoder_reserve_ids(enc, text.n / 4));
    for (size_t i = 0; i < tok->pretokenizers.n; i++)
        if (tok->pretokenizers.of[i].pattern.regex)
            CALM_TRY(calm_matcher_new(enc->ctx, tok->pretokenizers.of[i].pattern.regex, &enc->matchers[i]));
    for (size_t i = 0; special && i < tok->before.n; i++)
        CALM_TRY(calm_encoder_put(enc, tok->before.of[i]));
    CALM_TRY(encode_text(enc, text));
    for (size_t i = 0; special && i < tok->after.n; i++)
        CALM_TRY(calm_encoder_put(enc, tok->after.of[i]));
    return CALM_OK;
}

calm_status calm_tokenizer_encode(calm_ctx *ctx, const calm_tokenizer *tok, const char *text, size_t n_bytes,
                                  bool special, uint32_t **ids, size_t *n_ids)
{
    CALM_ENTER(ctx, tok && (text || !n_bytes) && ids && n_ids);
    *ids = NULL;
    *n_ids = 0;
    if (n_bytes >= CALM_TOKENIZER_MAX_TEXT)
        return calm_fail(ctx, CALM_EARG, "text of %zu bytes, expected less than %zu at a time", n_bytes,
                         CALM_TOKENIZER_MAX_TEXT);
    size_t invalid = calm_utf8_invalid_at(text, n_bytes);
    if (invalid != n_bytes)
        return calm_fail(ctx, CALM_EFORMAT, "text: not UTF-8 at byte %zu (0x%02X)", invalid,
                         (unsigned char)text[invalid]);
    calm_encoder enc = {.ctx = ctx, .tok = tok};
    CALM_SCOPED_SCRATCH(ctx);
    calm_status status = encode_all(&enc, (calm_piece){n_bytes ? text : "", n_bytes}, special);
    if (status == CALM_OK)
        status = CALM_NEW(ctx, ctx->out, *ids, enc.n_ids);
    if (status == CALM_OK && enc.n_ids)
        memcpy(*ids, enc.ids, enc.n_ids * sizeof **ids);
    *n_ids = status == CALM_OK ? enc.n_ids : 0;
    for (size_t i = 0; i < tok->pretokenizers.n; i++)
        calm_matcher_free(enc.matchers[i]);
    return status;
}
