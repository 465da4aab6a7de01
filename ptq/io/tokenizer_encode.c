/* Encoding: added tokens are cut out, the rest goes through normalizers and pre-tokenizers, and each piece to the
 * model, unless the same piece has been there before. */
#include <string.h>

#include "ptq/io/bytelevel.h"
#include "ptq/io/tokenizer_parts.h"
#include "ptq/io/unicode.h"

/* Longer pieces hardly come twice: they are not kept, and cut first where that changes nothing. */
#define KEPT_MAX 256

/* Slots of the largest table of pieces seen; what comes after it is full is encoded each time. */
#define CACHE_SLOTS_MAX ((size_t)1 << 22)

/* Texts of pieces seen are kept in blocks of so many bytes. */
#define KEPT_BLOCK 65536

/* ---- the encoder ---- */

calm_status calm_encoder_reserve(calm_encoder *enc, calm_room *room, size_t count, size_t size, void *out)
{
    size_t bytes;
    if (!calm_size_mul(&bytes, count, size))
        return calm_fail(enc->ctx, CALM_ENOMEM, "out of memory: %zu x %zu bytes to tokenize", count, size);
    if (bytes > room->bytes || !room->data) {
        size_t grown = bytes < 4096 ? 4096 : bytes + bytes / 2;
        room->data = calm_arena_alloc(enc->ctx->scratch, grown, 1);
        room->bytes = grown;
        if (!room->data)
            return calm_fail(enc->ctx, CALM_ENOMEM, "out of memory: %zu bytes to tokenize", grown);
    }
    memcpy(out, &room->data, sizeof room->data);
    return CALM_OK;
}

/* Make place for `count` more ids. */
static calm_status make_place(calm_encoder *enc, size_t count)
{
    if (enc->ids_capacity - enc->n_ids >= count)
        return CALM_OK;
    size_t capacity = 2 * (enc->ids_capacity + count) + 64;
    uint32_t *grown = calm_arena_alloc(enc->ctx->scratch, capacity, sizeof *grown);
    if (!grown)
        return calm_fail(enc->ctx, CALM_ENOMEM, "out of memory for %zu token ids", capacity);
    if (enc->n_ids)
        memcpy(grown, enc->ids, enc->n_ids * sizeof *grown);
    enc->ids = grown;
    enc->ids_capacity = capacity;
    return CALM_OK;
}

calm_status calm_encoder_put(calm_encoder *enc, uint32_t id)
{
    if (enc->n_ids == enc->ids_capacity)
        CALM_TRY(make_place(enc, 1));
    enc->ids[enc->n_ids++] = id;
    return CALM_OK;
}

/* ---- pieces seen before ---- */

struct calm_cache_slot {
    const char *text;    /* the first such piece; NULL: free */
    uint32_t n, hash;
    uint32_t first, count;    /* its ids in calm_encoder.ids */
};

/* The slot that holds the piece, or the free one where it belongs. */
static calm_cache_slot *locate(calm_cache_slot *cache, size_t mask, calm_piece piece, uint32_t hash)
{
    for (size_t i = hash & mask;; i = (i + 1) & mask) {
        calm_cache_slot *slot = &cache[i];
        if (!slot->text)
            return slot;
        if (slot->hash == hash && slot->n == piece.n && memcmp(slot->text, piece.text, piece.n) == 0)
            return slot;
    }
}

static calm_status grow_cache(calm_encoder *enc)
{
    calm_cache_slot *grown;
    size_t n_slots = enc->cache ? 2 * (enc->cache_mask + 1) : 256;
    CALM_TRY(CALM_NEW(enc->ctx, enc->ctx->scratch, grown, n_slots));
    for (size_t i = 0; enc->cache && i <= enc->cache_mask; i++) {
        const calm_cache_slot *slot = &enc->cache[i];
        if (slot->text)
            *locate(grown, n_slots - 1, (calm_piece){slot->text, slot->n}, slot->hash) = *slot;
    }
    enc->cache = grown;
    enc->cache_mask = n_slots - 1;
    return CALM_OK;
}

static calm_status encode_new(calm_encoder *enc, calm_piece piece)
{
    if (enc->tok->byte_level) {
        char *spelled;
        CALM_TRY(calm_encoder_reserve(enc, &enc->spelled, piece.n, 2, &spelled));
        piece = (calm_piece){spelled, calm_bytelevel_spell(piece.text, piece.n, spelled)};
    }
    return enc->tok->encode(enc, piece);
}

/* A copy of the piece that lasts as long as the encoder. */
static calm_status keep_text(calm_encoder *enc, calm_piece piece, const char **out)
{
    if (enc->kept_left < piece.n) {
        CALM_TRY(CALM_NEW_RAW(enc->ctx, enc->ctx->scratch, enc->kept, KEPT_BLOCK));
        enc->kept_left = KEPT_BLOCK;
    }
    memcpy(enc->kept, piece.text, piece.n);
    *out = enc->kept;
    enc->kept += piece.n;
    enc->kept_left -= piece.n;
    return CALM_OK;
}

static calm_status encode_short(calm_encoder *enc, calm_piece piece)
{
    const char *text;
    if (!enc->cache || (enc->n_cached > enc->cache_mask / 2 && enc->cache_mask < CACHE_SLOTS_MAX - 1))
        CALM_TRY(grow_cache(enc));
    uint32_t hash = (uint32_t)calm_hash_bytes(piece.text, piece.n);
    calm_cache_slot *slot = locate(enc->cache, enc->cache_mask, piece, hash);
    if (slot->text) {
        CALM_TRY(make_place(enc, slot->count));
        memcpy(enc->ids + enc->n_ids, enc->ids + slot->first, slot->count * sizeof *enc->ids);
        enc->n_ids += slot->count;
        return CALM_OK;
    }
    size_t first = enc->n_ids;
    CALM_TRY(encode_new(enc, piece));
    if (enc->n_cached > enc->cache_mask / 2)
        return CALM_OK;
    CALM_TRY(keep_text(enc, piece, &text));
    *slot = (calm_cache_slot){text, (uint32_t)piece.n, hash, (uint32_t)first, (uint32_t)(enc->n_ids - first)};
    enc->n_cached++;
    return CALM_OK;
}

static calm_status encode_piece(calm_encoder *enc, calm_piece piece)
{
    const calm_tokenizer *tok = enc->tok;
    if (piece.n <= KEPT_MAX)
        return encode_short(enc, piece);
    for (size_t begin = 0, end; begin < piece.n; begin = end) {
        end = tok->cut ? tok->cut(tok, piece, begin) : piece.n;
        const calm_piece part = {piece.text + begin, end - begin};
        CALM_TRY(part.n <= KEPT_MAX ? encode_short(enc, part) : encode_new(enc, part));
    }
    return CALM_OK;
}

calm_status calm_encoder_pass(calm_encoder *enc, size_t index, calm_piece piece)
{
    if (piece.n == 0)
        return CALM_OK;
    if (index < enc->tok->n_pretokenizers)
        return enc->tok->pretokenizers[index].run(enc, index, piece);
    return encode_piece(enc, piece);
}

/* ---- a text ---- */

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
    /* English has about four bytes to a token; more of them are made place for as they come. */
    CALM_TRY(make_place(enc, text.n / 4));
    for (size_t i = 0; i < tok->n_pretokenizers; i++)
        if (tok->pretokenizers[i].pattern.regex)
            CALM_TRY(calm_matcher_new(enc->ctx, tok->pretokenizers[i].pattern.regex, &enc->matchers[i]));
    for (size_t i = 0; special && i < tok->n_before; i++)
        CALM_TRY(calm_encoder_put(enc, tok->before[i]));
    CALM_TRY(encode_text(enc, text));
    for (size_t i = 0; special && i < tok->n_after; i++)
        CALM_TRY(calm_encoder_put(enc, tok->after[i]));
    return CALM_OK;
}

calm_status calm_tokenizer_encode(calm_ctx *ctx, const calm_tokenizer *tok, const char *text, size_t n_bytes,
                                  bool special, uint32_t **ids, size_t *n_ids)
{
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
    calm_arena_mark mark = calm_arena_save(ctx->scratch);
    calm_status status = encode_all(&enc, (calm_piece){n_bytes ? text : "", n_bytes}, special);
    if (status == CALM_OK)
        status = CALM_NEW(ctx, ctx->out, *ids, enc.n_ids);
    if (status == CALM_OK && enc.n_ids)
        memcpy(*ids, enc.ids, enc.n_ids * sizeof **ids);
    *n_ids = status == CALM_OK ? enc.n_ids : 0;
    for (size_t i = 0; i < tok->n_pretokenizers; i++)
        calm_matcher_free(enc.matchers[i]);
    calm_arena_rewind(ctx->scratch, mark);
    return status;
}
