/* Reads a BPE model: vocabulary, merges, and positions at which pieces may be cut. */
#include <assert.h>
#include <string.h>

#include "ptq/tokenizer/tokenizer_bpe.h"

/* ---- merges ---- */

/* Reads the two tokens of merge i: "left right" or ["left", "right"]. */
static calm_status split_merge(calm_ctx *ctx, const char *where, const calm_json *json, size_t i, calm_piece *left,
                               calm_piece *right)
{
    if (calm_json_typeof(json) == CALM_JSON_ARRAY) {
        const calm_json *a = calm_json_at(json, 0), *b = calm_json_at(json, 1);
        *left = (calm_piece){calm_json_string(a, NULL), calm_json_string_length(a)};
        *right = (calm_piece){calm_json_string(b, NULL), calm_json_string_length(b)};
        if (calm_json_size(json) == 2 && left->text && right->text)
            return CALM_OK;
        return calm_fail(ctx, CALM_EFORMAT, "%s.merges[%zu]: expected two strings", where, i);
    }
    const char *text = calm_json_string(json, "");
    size_t n = calm_json_string_length(json);
    const char *space = memchr(text, ' ', n);
    if (!space || memchr(space + 1, ' ', n - (size_t)(space + 1 - text)))
        return calm_fail(ctx, CALM_EFORMAT, "%s.merges[%zu]: expected two tokens with a space between, found \"%.60s\"",
                         where, i, text);
    *left = (calm_piece){text, (size_t)(space - text)};
    *right = (calm_piece){space + 1, n - left->n - 1};
    return CALM_OK;
}

/* Finds the ids of both tokens of merge i and of their concatenation, in which the right one loses its prefix; room
 * [twice the longest token]. */
static calm_status resolve_merge(calm_ctx *ctx, const calm_tokenizer *tok, const char *where, size_t i, calm_piece left,
                                 calm_piece right, char *room, uint32_t ids[3])
{
    const calm_bpe *self = tok->model;
    calm_piece unknown = left;
    ids[0] = calm_vocab_find(&tok->vocab, left.text, left.n);
    ids[1] = calm_vocab_find(&tok->vocab, right.text, right.n);
    if (ids[0] != CALM_NO_TOKEN && ids[1] == CALM_NO_TOKEN)
        unknown = right;
    if (ids[0] != CALM_NO_TOKEN && ids[1] != CALM_NO_TOKEN) {
        const size_t skipped = self->prefix.n < right.n ? self->prefix.n : right.n;
        unknown = (calm_piece){room, left.n + right.n - skipped};
        memcpy(room, left.text, left.n);
        memcpy(room + left.n, right.text + skipped, right.n - skipped);
        ids[2] = calm_vocab_find(&tok->vocab, room, unknown.n);
        if (ids[2] != CALM_NO_TOKEN)
            return CALM_OK;
    }
    return calm_fail(ctx, CALM_EFORMAT, "%s.merges[%zu]: no token \"%.*s\" in the vocabulary", where, i,
                     (int)(unknown.n < 60 ? unknown.n : 60), unknown.text);
}

static calm_status read_merges(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json,
                               calm_bpe *self)
{
    const calm_json *merges = calm_json_get(json, "merges");
    size_t n = calm_json_size(merges), n_slots = calm_hash_slots(n);
    calm_piece left = {0}, right = {0};
    uint32_t ids[3] = {0};
    char *room;
    assert(n_slots > 0);
    CALM_TRY(calm_json_expect(ctx, merges, CALM_JSON_ARRAY, "%s.merges", where));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, room, 2 * calm_tokenizer_longest(tok)));
    CALM_TRY(CALM_NEW(ctx, &tok->arena, self->merges, n_slots));
    self->mask = n_slots - 1;
    for (size_t i = 0; i < n; i++) {
        CALM_TRY(split_merge(ctx, where, calm_json_at(merges, i), i, &left, &right));
        CALM_TRY(resolve_merge(ctx, tok, where, i, left, right, room, ids));
        /* A merge that is listed twice has the later rank, as in the library. */
        const uint64_t pair = (uint64_t)ids[0] << 32 | ids[1];
        *calm_bpe_locate(self, pair) = (calm_merge){pair, (uint32_t)i + 1, ids[2]};
    }
    return CALM_OK;
}

/* ---- positions for cuts ---- */

/* Computes the filter of pairs of characters that can merge.  Pieces are only cut if every symbol is the text of
 * its characters: no merges of unknown or byte tokens, no prefix or suffix, no lookup of the whole piece. */
static calm_status mark_seams(calm_ctx *ctx, calm_tokenizer *tok, calm_bpe *self)
{
    bool cuts = !self->ignore_merges && self->prefix.n == 0 && self->suffix.n == 0 && !tok->byte_level;
    uint64_t *seams;
    if (!cuts)
        return CALM_OK;
    CALM_TRY(CALM_NEW(ctx, &tok->arena, seams, CALM_BPE_SEAM_BITS / 64));
    for (size_t i = 0; i <= self->mask; i++) {
        if (self->merges[i].order == 0)
            continue;
        const uint32_t sides[2] = {(uint32_t)(self->merges[i].pair >> 32), (uint32_t)self->merges[i].pair};
        const calm_piece left = tok->tokens[sides[0]].piece, right = tok->tokens[sides[1]].piece;
        uint32_t end, begin;
        for (size_t side = 0; side < 2; side++) {
            const calm_piece piece = side == 0 ? left : right;
            cuts &= sides[side] != self->unknown;
            cuts &= !self->byte_fallback || piece.n != 6 || memcmp(piece.text, "<0x", 3) != 0;
        }
        if (left.n == 0 || right.n == 0)
            continue;
        calm_utf8_decode(left.text + calm_utf8_step_back(left.text, left.n), &end);
        calm_utf8_decode(right.text, &begin);
        const size_t seam = calm_bpe_seam(end, begin);
        seams[seam / 64] |= UINT64_C(1) << seam % 64;
    }
    if (cuts) {
        self->seams = seams;
        tok->cut = calm_bpe_cut;
    }
    return CALM_OK;
}

/* ---- the model ---- */

static calm_status read_switches(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json,
                                 calm_bpe *self)
{
    double dropout;
    CALM_TRY(calm_json_need_number(ctx, where, json, "dropout", &(double){0}, 0, 1, &dropout));
    if (dropout > 0)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s.dropout %g: not supported: ids would be random", where, dropout);
    CALM_TRY(calm_json_need_bool(ctx, where, json, "byte_fallback", &(bool){false}, &self->byte_fallback));
    CALM_TRY(calm_json_need_bool(ctx, where, json, "fuse_unk", &(bool){false}, &self->fuse_unknown));
    CALM_TRY(calm_json_need_bool(ctx, where, json, "ignore_merges", &(bool){false}, &self->ignore_merges));
    self->prefix.text = self->suffix.text = "";
    if (calm_json_typeof(calm_json_get(json, "continuing_subword_prefix")) != CALM_JSON_NULL)
        CALM_TRY(calm_tokenizer_read_string(ctx, tok, where, json, "continuing_subword_prefix", &self->prefix));
    if (calm_json_typeof(calm_json_get(json, "end_of_word_suffix")) != CALM_JSON_NULL)
        CALM_TRY(calm_tokenizer_read_string(ctx, tok, where, json, "end_of_word_suffix", &self->suffix));
    return CALM_OK;
}

calm_status calm_tokenizer_read_bpe(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json)
{
    calm_bpe *self;
    CALM_TRY(CALM_NEW(ctx, &tok->arena, self, 1));
    CALM_TRY(read_switches(ctx, tok, where, json, self));
    tok->model = self;
    tok->encode = calm_bpe_encode;
    CALM_TRY(calm_tokenizer_read_vocab(ctx, tok, where, json));
    CALM_TRY(read_merges(ctx, tok, where, json, self));
    CALM_TRY(calm_tokenizer_read_unknown(ctx, tok, where, json, false, &self->unknown));
    for (uint32_t c = 0; c < CALM_BYTELEVEL_END; c++) {
        char text[CALM_UTF8_MAX];
        self->direct[c] = calm_vocab_find(&tok->vocab, text, calm_utf8_encode(c, text));
    }
    calm_tokenizer_find_bytes(tok, self->bytes);
    return mark_seams(ctx, tok, self);
}
