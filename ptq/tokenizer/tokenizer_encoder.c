/* Passes a piece through pre-tokenizers to the model, and collects its ids. */
#include "ptq/tokenizer/tokenizer_encoder.h"

#include <string.h>

#include "ptq/base/array.h"
#include "ptq/tokenizer/bytelevel.h"

/* Longer pieces rarely repeat: they are not cached, and are first cut where that does not change the ids. */
#define KEPT_MAX 256

/* Largest number of slots of the cache; once half of them are used, further pieces are not cached. */
#define CACHE_SLOTS_MAX ((size_t)1 << 22)

/* Bytes per allocation for texts of cached pieces. */
#define KEPT_BLOCK 65536

/* ---- memory and ids ---- */

calm_status calm_encoder_reserve(calm_encoder *enc, calm_room *room, size_t count, size_t size, void *out)
{
    size_t bytes;
    if (!calm_size_mul(&bytes, count, size))
        return calm_fail(enc->ctx, CALM_ENOMEM, "out of memory: %zu x %zu bytes to tokenize", count, size);
    /* Most pieces are words, for which the first allocation suffices. */
    CALM_TRY(calm_array_grow(enc->ctx, enc->ctx->scratch, &room->data, 0, &room->bytes, calm_size_max(bytes, 4096), 1,
                             "the tokenizer"));
    memcpy(out, &room->data, sizeof room->data);
    return CALM_OK;
}

calm_status calm_encoder_reserve_ids(calm_encoder *enc, size_t count)
{
    return calm_array_grow(enc->ctx, enc->ctx->scratch, &enc->ids, enc->n_ids, &enc->ids_capacity, enc->n_ids + count,
                           sizeof *enc->ids, "token ids");
}

calm_status calm_encoder_put(calm_encoder *enc, uint32_t id)
{
    if (enc->n_ids == enc->ids_capacity)
        CALM_TRY(calm_encoder_reserve_ids(enc, 1));
    enc->ids[enc->n_ids++] = id;
    return CALM_OK;
}

/* ---- cache ---- */

struct calm_cache_slot {
    const char *text;    /* copy of the piece; NULL: the slot is free   */
    uint32_t n, hash;
    uint32_t first, count;    /* range of its ids in calm_encoder.ids */
};

/* Returns the slot of a piece, or the free slot where it belongs. */
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
        char *spelled = NULL;
        CALM_TRY(calm_encoder_reserve(enc, &enc->spelled, piece.n, 2, &spelled));
        piece = (calm_piece){spelled, calm_bytelevel_spell(piece.text, piece.n, spelled)};
    }
    return enc->tok->encode(enc, piece);
}

/* Copies a piece to memory that lives as long as the encoder. */
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
        CALM_TRY(calm_encoder_reserve_ids(enc, slot->count));
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
    if (index < enc->tok->pretokenizers.n)
        return enc->tok->pretokenizers.of[index].split(enc, index, piece);
    return encode_piece(enc, piece);
}

/* ---- splitting ---- */

/* Joins matches and the text between them as the behavior says; the span begin .. end waits while the next span may
 * still join it. */
typedef struct splitter {
    calm_encoder *enc;
    size_t index;
    calm_piece in;
    size_t begin, end;
    bool holding, previous;    /* a span is waiting; the last span was a match   */
} splitter;

static calm_status pass(splitter *s, size_t begin, size_t end)
{
    return calm_encoder_pass(s->enc, s->index + 1, (calm_piece){s->in.text + begin, end - begin});
}

static calm_status flush(splitter *s)
{
    if (!s->holding)
        return CALM_OK;
    s->holding = false;
    return pass(s, s->begin, s->end);
}

static calm_status add_span(splitter *s, const calm_token_part *self, size_t begin, size_t end, bool match)
{
    match ^= self->invert;
    if (self->behavior == CALM_SPLIT_REMOVED && match)
        return CALM_OK;
    if (self->behavior == CALM_SPLIT_REMOVED || self->behavior == CALM_SPLIT_ISOLATED)
        return pass(s, begin, end);
    const bool joins = self->behavior == CALM_SPLIT_MERGED_WITH_PREVIOUS ? match && !s->previous
                       : self->behavior == CALM_SPLIT_MERGED_WITH_NEXT   ? !match && s->previous
                                                                         : match == s->previous;
    s->previous = match;
    if (s->holding && joins) {
        s->end = end;
        return CALM_OK;
    }
    CALM_TRY(flush(s));
    s->holding = true;
    s->begin = begin;
    s->end = end;
    return CALM_OK;
}

calm_status calm_encoder_split(calm_encoder *enc, size_t index, calm_piece in)
{
    const calm_token_part *self = &enc->tok->pretokenizers.of[index];
    splitter s = {.enc = enc, .index = index, .in = in};
    calm_pattern_walk walk = {.pattern = &self->pattern, .matcher = enc->matchers[index], .text = in};
    for (bool found = true; found;) {
        CALM_TRY(calm_pattern_next(enc->ctx, &walk, &found));
        const size_t before = found ? walk.before : walk.end, begin = found ? walk.begin : in.n;
        if (before < begin)
            CALM_TRY(add_span(&s, self, before, begin, false));
        if (found)
            CALM_TRY(add_span(&s, self, begin, walk.end, true));
    }
    return flush(&s);
}
