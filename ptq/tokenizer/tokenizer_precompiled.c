/* Precompiled: the character map of a SentencePiece model (sentencepiece, src/builder.cc), base64 in the file.
 *
 *   u32le  bytes of the trie            then the trie, then the texts, each ending with a zero byte
 *   trie   u32le units of a double array (Yata, Darts-clone); the value of a key is an offset into the texts
 *
 * The tokenizers library looks up a grapheme cluster of less than 6 bytes, else each of its characters, and
 * replaces the whole cluster by the value of its *shortest* prefix in the map; ids depend on that, while
 * SentencePiece uses the longest.  Every index is checked against its array: a map that points outside is an error. */
#include <string.h>

#include "ptq/base/base64.h"
#include "ptq/tokenizer/tokenizer_parts.h"

/* Grapheme clusters of this many bytes or more are looked up by character. */
#define CLUSTER_MAX 6

typedef struct charsmap {
    const unsigned char *trie;    /* [n_units] of 4 bytes, at any address */
    size_t n_units;
    const char *texts;            /* [n_texts], well-formed UTF-8 and a zero byte */
    size_t n_texts;
    const char *where;
} charsmap;

/* ---- lookup ---- */

static uint32_t unit_at(const charsmap *self, size_t i)
{
    const unsigned char *at = self->trie + 4 * i;
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static size_t offset_of(uint32_t unit)
{
    return (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6);
}

static calm_status corrupt(calm_ctx *ctx, const charsmap *self, const char *what, size_t found, size_t limit)
{
    return calm_fail(ctx, CALM_EFORMAT, "%s.precompiled_charsmap: corrupt: %s %zu, expected below %zu", self->where,
                     what, found, limit);
}

/* Finds the text of the shortest key that `key` begins with; *found false: there is none. */
static calm_status look_up(calm_ctx *ctx, const charsmap *self, const char *key, size_t n, bool *found, calm_piece *out)
{
    *found = false;
    if (self->n_units == 0)
        return CALM_OK;
    size_t node = offset_of(unit_at(self, 0));
    for (size_t i = 0; i < n && key[i]; i++) {
        const unsigned char byte = (unsigned char)key[i];
        node ^= byte;
        if (node >= self->n_units)
            return corrupt(ctx, self, "unit", node, self->n_units);
        const uint32_t unit = unit_at(self, node);
        if ((unit & (1u << 31 | 0xFF)) != byte)
            return CALM_OK;
        node ^= offset_of(unit);
        if (!(unit & 1u << 8))
            continue;
        if (node >= self->n_units)
            return corrupt(ctx, self, "unit", node, self->n_units);
        const size_t at = unit_at(self, node) & ~(1u << 31);
        if (at >= self->n_texts)
            return corrupt(ctx, self, "text at byte", at, self->n_texts);
        if (((unsigned char)self->texts[at] & 0xC0) == 0x80)
            return corrupt(ctx, self, "text inside a character at byte", at, self->n_texts);
        *out = (calm_piece){self->texts + at, strlen(self->texts + at)};
        *found = true;
        return CALM_OK;
    }
    return CALM_OK;
}

/* Appends the mapped text, if the map has one. */
static calm_status put(calm_ctx *ctx, const charsmap *self, calm_bytes *out, const char *text, size_t n, bool *found)
{
    calm_piece mapped;
    CALM_TRY(look_up(ctx, self, text, n, found, &mapped));
    return *found ? calm_bytes_add(ctx, out, mapped.text, mapped.n) : CALM_OK;
}

static calm_status run(calm_ctx *ctx, const calm_token_part *part, calm_normal *text)
{
    const charsmap *self = part->data;
    const calm_piece in = text->piece;
    calm_bytes out = {0};
    for (size_t at = 0, n; at < in.n; at += n) {
        const char *here = in.text + at;
        bool whole = false, found;
        n = calm_unicode_grapheme(here, in.n - at);
        if (n < CLUSTER_MAX)
            CALM_TRY(put(ctx, self, &out, here, n, &whole));
        for (size_t i = 0, length; !whole && i < n; i += length) {
            uint32_t c;
            length = calm_utf8_decode(here + i, &c);
            CALM_TRY(put(ctx, self, &out, here + i, length, &found));
            if (!found)
                CALM_TRY(calm_bytes_add(ctx, &out, here + i, length));
        }
    }
    text->piece = calm_bytes_piece(&out);
    return CALM_OK;
}

/* ---- reading ---- */

static calm_status parse(calm_ctx *ctx, charsmap *self, const unsigned char *bytes, size_t n)
{
    const charsmap head = {.trie = bytes};
    const size_t size = n >= 4 ? unit_at(&head, 0) : 0;
    if (n < 4 || size % 4 || size > n - 4)
        return calm_fail(ctx, CALM_EFORMAT, "%s.precompiled_charsmap: a trie of %zu bytes in a map of %zu", self->where,
                         size, n);
    self->trie = bytes + 4;
    self->n_units = size / 4;
    self->texts = (const char *)bytes + 4 + size;
    self->n_texts = n - 4 - size;
    const size_t invalid = calm_utf8_invalid_at(self->texts, self->n_texts);
    if (invalid != self->n_texts)
        return calm_fail(ctx, CALM_EFORMAT, "%s.precompiled_charsmap: texts are not UTF-8 at byte %zu", self->where,
                         invalid);
    return CALM_OK;
}

calm_status calm_tokenizer_read_precompiled(calm_ctx *ctx, calm_tokenizer *tok, const char *where,
                                            const calm_json *json, calm_token_part *part)
{
    const calm_json *map = calm_json_get(json, "precompiled_charsmap");
    const size_t n = calm_json_string_length(map);
    charsmap *self;
    unsigned char *bytes;
    size_t n_bytes;
    CALM_TRY(calm_json_expect(ctx, map, CALM_JSON_STRING, "%s.precompiled_charsmap", where));
    CALM_TRY(CALM_NEW(ctx, &tok->arena, self, 1));
    CALM_TRY(calm_strf(ctx, &tok->arena, &self->where, "%s", where));
    CALM_TRY(CALM_NEW(ctx, &tok->arena, bytes, n / 4 * 3 + 1));    /* plus the zero byte after the last text */
    if (!calm_base64_decode(calm_json_string(map, ""), n, bytes, &n_bytes))
        return calm_fail(ctx, CALM_EFORMAT, "%s.precompiled_charsmap: not base64", where);
    bytes[n_bytes] = 0;
    CALM_TRY(parse(ctx, self, bytes, n_bytes));
    part->normalize = run;
    part->data = self;
    return CALM_OK;
}
