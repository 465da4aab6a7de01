/* Decoders: convert tokens in the spelling of the vocabulary to pieces of text.  Each decoder processes the pieces
 * of the previous one; between decoders all pieces are well-formed UTF-8. */
#include <string.h>

#include "ptq/tokenizer/bytelevel.h"
#include "ptq/tokenizer/tokenizer_parts.h"

/* ---- bytes ---- */

static calm_status run_byte_level(calm_ctx *ctx, const calm_token_part *self, calm_piece *pieces, size_t *n)
{
    calm_bytes all = {0};
    CALM_SCOPED_TEXT(repaired);
    (void)self;
    for (size_t i = 0; i < *n; i++) {
        CALM_TRY(calm_bytes_reserve(ctx, &all, pieces[i].n));
        all.n += calm_bytelevel_read(pieces[i].text, pieces[i].n, all.data + all.n);
    }
    if (*n == 0)
        return CALM_OK;
    *n = 1;
    pieces[0] = calm_bytes_piece(&all);
    if (calm_utf8_invalid_at(pieces[0].text, pieces[0].n) == pieces[0].n)
        return CALM_OK;
    calm_utf8_repair(pieces[0].text, pieces[0].n, &repaired);
    return calm_text_take(ctx, ctx->scratch, &repaired, &pieces[0].text, &pieces[0].n);
}

static int hex_digit(char c)
{
    static const char digits[] = "0123456789ABCDEFabcdef";
    const char *at = c ? strchr(digits, c) : NULL;
    return !at ? -1 : at - digits < 16 ? (int)(at - digits) : (int)(at - digits) - 6;
}

/* Returns the byte of "<0x41>", or -1. */
static int byte_of(calm_piece piece)
{
    if (piece.n != 6 || memcmp(piece.text, "<0x", 3) != 0 || piece.text[5] != '>')
        return -1;
    const int high = piece.text[3] == '+' ? 0 : hex_digit(piece.text[3]), low = hex_digit(piece.text[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

/* Joins consecutive byte tokens to one text if they are well-formed UTF-8; else each becomes U+FFFD. */
static calm_status run_byte_fallback(calm_ctx *ctx, const calm_token_part *self, calm_piece *pieces, size_t *n)
{
    size_t kept = 0;
    (void)self;
    for (size_t i = 0; i < *n;) {
        size_t end = i;
        char *bytes;
        while (end < *n && byte_of(pieces[end]) >= 0)
            end++;
        if (end == i) {
            pieces[kept++] = pieces[i++];
            continue;
        }
        const size_t count = end - i;
        CALM_TRY(CALM_NEW(ctx, ctx->scratch, bytes, count));
        for (size_t k = 0; k < count; k++)
            bytes[k] = (char)byte_of(pieces[i + k]);
        if (calm_utf8_invalid_at(bytes, count) == count)
            pieces[kept++] = (calm_piece){bytes, count};
        else
            for (size_t k = 0; k < count; k++)
                pieces[kept++] = (calm_piece){"\xEF\xBF\xBD", 3};
        i = end;
    }
    *n = kept;
    return CALM_OK;
}

/* ---- texts ---- */

static calm_status run_fuse(calm_ctx *ctx, const calm_token_part *self, calm_piece *pieces, size_t *n)
{
    calm_bytes all = {0};
    (void)self;
    for (size_t i = 0; i < *n; i++)
        CALM_TRY(calm_bytes_add(ctx, &all, pieces[i].text, pieces[i].n));
    /* Even no pieces become one, which the next decoders may change. */
    pieces[0] = calm_bytes_piece(&all);
    *n = 1;
    return CALM_OK;
}

static calm_status replace_in(calm_ctx *ctx, const calm_pattern *pattern, calm_piece content, calm_piece *piece)
{
    calm_bytes out = {0};
    bool at_front;
    if (pattern->literal.n && !memmem(piece->text, piece->n, pattern->literal.text, pattern->literal.n))
        return CALM_OK;
    CALM_TRY(calm_bytes_replace(ctx, &out, pattern, *piece, content, &at_front));
    *piece = calm_bytes_piece(&out);
    return CALM_OK;
}

static calm_status run_replace(calm_ctx *ctx, const calm_token_part *self, calm_piece *pieces, size_t *n)
{
    for (size_t i = 0; i < *n; i++)
        CALM_TRY(replace_in(ctx, &self->pattern, self->content, &pieces[i]));
    return CALM_OK;
}

static calm_status run_strip(calm_ctx *ctx, const calm_token_part *self, calm_piece *pieces, size_t *n)
{
    const calm_piece cut = self->content;
    (void)ctx;
    for (size_t i = 0; i < *n; i++) {
        calm_piece piece = pieces[i];
        for (size_t k = 0; k < self->start && calm_piece_begins(piece, cut); k++)
            piece = (calm_piece){piece.text + cut.n, piece.n - cut.n};
        for (size_t k = 0; k < self->stop && piece.n >= cut.n &&
                           memcmp(piece.text + piece.n - cut.n, cut.text, cut.n) == 0; k++)
            piece.n -= cut.n;
        pieces[i] = piece;
    }
    return CALM_OK;
}

static calm_status read_strip(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json,
                              calm_token_part *part)
{
    int64_t start, stop;
    CALM_TRY(calm_json_need_int(ctx, where, json, "start", NULL, 0, INT64_MAX, &start));
    CALM_TRY(calm_json_need_int(ctx, where, json, "stop", NULL, 0, INT64_MAX, &stop));
    part->start = (size_t)start;
    part->stop = (size_t)stop;
    return calm_tokenizer_read_character(ctx, tok, where, json, "content", &part->content);
}

/* ---- words ---- */

static calm_status run_metaspace(calm_ctx *ctx, const calm_token_part *self, calm_piece *pieces, size_t *n)
{
    /* If encoding adds a space in front, decoding removes the first one. */
    const bool drops = self->prepend != CALM_PREPEND_NEVER;
    for (size_t i = 0; i < *n; i++)
        CALM_TRY(replace_in(ctx, &self->pattern, (calm_piece){" ", i == 0 && drops ? 0 : 1}, &pieces[i]));
    return CALM_OK;
}

/* Removes spaces that tokenization put into English text; list and order are the library's. */
static calm_status clean_up(calm_ctx *ctx, calm_piece *piece)
{
    static const char *const pairs[][2] = {
        {" .", "."},     {" ?", "?"},   {" !", "!"},           {" ,", ","},   {" ' ", "'"},   {" n't", "n't"},
        {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const calm_pattern dirty = {.literal = {pairs[i][0], strlen(pairs[i][0])}};
        CALM_TRY(replace_in(ctx, &dirty, (calm_piece){pairs[i][1], strlen(pairs[i][1])}, piece));
    }
    return CALM_OK;
}

static calm_status run_wordpiece(calm_ctx *ctx, const calm_token_part *self, calm_piece *pieces, size_t *n)
{
    const calm_piece prefix = self->content;
    for (size_t i = 0; i < *n; i++) {
        calm_piece piece = pieces[i];
        calm_bytes spaced = {0};
        if (i > 0 && calm_piece_begins(piece, prefix)) {
            piece = (calm_piece){piece.text + prefix.n, piece.n - prefix.n};
        } else if (i > 0) {
            CALM_TRY(calm_bytes_add(ctx, &spaced, " ", 1));
            CALM_TRY(calm_bytes_add(ctx, &spaced, piece.text, piece.n));
            piece = calm_bytes_piece(&spaced);
        }
        if (self->flags)
            CALM_TRY(clean_up(ctx, &piece));
        pieces[i] = piece;
    }
    return CALM_OK;
}

static calm_status read_wordpiece(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json,
                                  calm_token_part *part)
{
    bool cleans;
    CALM_TRY(calm_json_need_bool(ctx, where, json, "cleanup", NULL, &cleans));
    part->flags = cleans;
    return calm_tokenizer_read_string(ctx, tok, where, json, "prefix", &part->content);
}

static calm_status run_bpe(calm_ctx *ctx, const calm_token_part *self, calm_piece *pieces, size_t *n)
{
    for (size_t i = 0; i < *n; i++)
        CALM_TRY(replace_in(ctx, &self->pattern, (calm_piece){" ", i + 1 < *n}, &pieces[i]));
    return CALM_OK;
}

static calm_status read_bpe(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json,
                            calm_token_part *part)
{
    CALM_TRY(calm_tokenizer_read_string(ctx, tok, where, json, "suffix", &part->pattern.literal));
    if (part->pattern.literal.n == 0)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s.suffix: not supported: an empty one", where);
    return CALM_OK;
}

/* ---- table ---- */

calm_status calm_tokenizer_read_decoder(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json)
{
    static const calm_tokenizer_type types[] = {
        {"BPEDecoder", {.decode = run_bpe}, read_bpe, NULL},
        {"ByteFallback", {.decode = run_byte_fallback}, NULL, NULL},
        {"ByteLevel", {.decode = run_byte_level}, NULL, NULL},
        {"Fuse", {.decode = run_fuse}, NULL, NULL},
        {"Metaspace", {.decode = run_metaspace}, calm_tokenizer_read_metaspace, NULL},
        {"Replace", {.decode = run_replace}, calm_tokenizer_read_replace, NULL},
        {"Strip", {.decode = run_strip}, read_strip, NULL},
        {"WordPiece", {.decode = run_wordpiece}, read_wordpiece, NULL},
        {NULL, {0}, NULL, NULL},
    };
    return calm_tokenizer_read_parts(ctx, tok, where, json, "decoders", types, &tok->decoders);
}
