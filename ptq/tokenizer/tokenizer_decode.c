/* Decoding: ids to tokens, tokens through the decoders (tokenizer_decoders.c), and concatenation. */
#include "ptq/tokenizer/tokenizer_parts.h"

static calm_status collect(calm_ctx *ctx, const calm_tokenizer *tok, const uint32_t *ids, size_t n, bool special,
                           calm_piece *pieces, size_t *n_pieces)
{
    *n_pieces = 0;
    for (size_t i = 0; i < n; i++) {
        if (ids[i] >= tok->n_ids || !tok->tokens[ids[i]].piece.text)
            return calm_fail(ctx, CALM_EARG, "%s: no token has id %u (number %zu of those to decode)", tok->path,
                             ids[i], i);
        if (special || !tok->tokens[ids[i]].special)
            pieces[(*n_pieces)++] = tok->tokens[ids[i]].piece;
    }
    return CALM_OK;
}

static calm_status finish(calm_ctx *ctx, const calm_tokenizer *tok, const calm_piece *pieces, size_t n, char **text,
                          size_t *n_bytes)
{
    CALM_SCOPED_TEXT(joined);
    for (size_t i = 0; i < n; i++) {
        /* The library's rule for a file without a decoder. */
        if (i > 0 && tok->decoders.n == 0)
            calm_text_append(&joined, " ", 1);
        calm_utf8_repair(pieces[i].text, pieces[i].n, &joined);
    }
    return calm_text_take(ctx, ctx->out, &joined, text, n_bytes);
}

calm_status calm_tokenizer_decode(calm_ctx *ctx, const calm_tokenizer *tok, const uint32_t *ids, size_t n, bool special,
                                  char **text, size_t *n_bytes)
{
    CALM_ENTER(ctx, tok && (ids || !n) && text && n_bytes);
    calm_piece *pieces;
    size_t n_pieces;
    CALM_SCOPED_SCRATCH(ctx);
    *text = NULL;
    *n_bytes = 0;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, pieces, n + 1));    /* Fuse makes one piece of none */
    CALM_TRY(collect(ctx, tok, ids, n, special, pieces, &n_pieces));
    for (size_t i = 0; i < tok->decoders.n; i++)
        CALM_TRY(tok->decoders.of[i].decode(ctx, &tok->decoders.of[i], pieces, &n_pieces));
    return finish(ctx, tok, pieces, n_pieces, text, n_bytes);
}
