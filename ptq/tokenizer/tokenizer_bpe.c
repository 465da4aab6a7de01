/* Byte-pair encoding: merges pairs of symbols, that of the lowest rank first and of equal ranks the leftmost, until
 * no pair is in the list of merges.
 *
 * Sennrich, Haddow, Birch, "Neural Machine Translation of Rare Words with Subword Units", ACL 2016.  With a heap of
 * candidate pairs over a linked list of symbols, a piece of n characters costs O(n log n). */
#include "ptq/tokenizer/tokenizer_bpe.h"

#include <assert.h>
#include <string.h>

#include "ptq/tokenizer/tokenizer_encoder.h"

/* A symbol of the current piece: a character, or the token that it was merged to. */
typedef struct symbol {
    uint32_t id;             /* CALM_NO_TOKEN: merged into the previous symbol */
    uint32_t previous, next; /* NOWHERE at the ends */
} symbol;

#define NOWHERE UINT32_MAX

typedef struct candidate {
    uint64_t priority;     /* order << 32 | index of the left symbol: the smallest is next */
    const calm_merge *merge;    /* stale if the symbols have changed      */
} candidate;

typedef struct workspace {
    candidate *heap;
    size_t n_heap, heap_max;
    symbol *symbols;
    size_t n_symbols;
    char *room;            /* buffer for a character with prefix and suffix */
} workspace;

/* ---- merges ---- */

calm_merge *calm_bpe_locate(const calm_bpe *bpe, uint64_t pair)
{
    uint64_t hash = pair * UINT64_C(0x9E3779B97F4A7C15);
    for (size_t i = (hash ^ hash >> 32) & bpe->mask;; i = (i + 1) & bpe->mask)
        if (bpe->merges[i].order == 0 || bpe->merges[i].pair == pair)
            return &bpe->merges[i];
}

size_t calm_bpe_seam(uint32_t left, uint32_t right)
{
    const uint64_t hash = ((uint64_t)left << 32 | right) * UINT64_C(0x9E3779B97F4A7C15);
    return (size_t)(hash >> 32) & (CALM_BPE_SEAM_BITS - 1);
}

static uint64_t pair_of(uint32_t left, uint32_t right)
{
    return (uint64_t)left << 32 | right;
}

/* ---- min-heap ---- */

static void push(workspace *work, candidate entry)
{
    assert(work->n_heap < work->heap_max);
    size_t i = work->n_heap++;
    for (; i > 0 && work->heap[(i - 1) / 2].priority > entry.priority; i = (i - 1) / 2)
        work->heap[i] = work->heap[(i - 1) / 2];
    work->heap[i] = entry;
}

static candidate pop(workspace *work)
{
    candidate least = work->heap[0], last = work->heap[--work->n_heap];
    size_t i = 0, child;
    while ((child = 2 * i + 1) < work->n_heap) {
        if (child + 1 < work->n_heap && work->heap[child + 1].priority < work->heap[child].priority)
            child++;
        if (last.priority <= work->heap[child].priority)
            break;
        work->heap[i] = work->heap[child];
        i = child;
    }
    work->heap[i] = last;
    return least;
}

/* ---- encoding ---- */

/* Adds the pair that begins at symbol `left` to the heap, if it can merge. */
static void consider(const calm_bpe *self, workspace *work, uint32_t left)
{
    uint32_t right = left == NOWHERE ? NOWHERE : work->symbols[left].next;
    if (right == NOWHERE)
        return;
    const calm_merge *found = calm_bpe_locate(self, pair_of(work->symbols[left].id, work->symbols[right].id));
    if (found->order)
        push(work, (candidate){(uint64_t)found->order << 32 | left, found});
}

static void add_symbol(workspace *work, uint32_t id)
{
    uint32_t i = (uint32_t)work->n_symbols++;
    work->symbols[i] = (symbol){id, i - 1, NOWHERE};
    if (i > 0)
        work->symbols[i - 1].next = i;
}

/* Returns the id of a single character, or CALM_NO_TOKEN. */
static uint32_t id_of(const calm_bpe *self, const calm_vocab *vocab, const char *text, size_t n, uint32_t character)
{
    return character < CALM_BYTELEVEL_END ? self->direct[character] : calm_vocab_find(vocab, text, n);
}

/* Returns a character with its prefix and suffix, in `room` if it has any. */
static calm_piece dress(const calm_bpe *self, calm_piece piece, size_t at, size_t length, char *room)
{
    const bool first = at == 0, last = at + length == piece.n;
    char *end = room;
    if ((first || self->prefix.n == 0) && (!last || self->suffix.n == 0))
        return (calm_piece){piece.text + at, length};
    if (!first)
        end = mempcpy(end, self->prefix.text, self->prefix.n);
    end = mempcpy(end, piece.text + at, length);
    if (last)
        end = mempcpy(end, self->suffix.text, self->suffix.n);
    return (calm_piece){room, (size_t)(end - room)};
}

/* Adds the bytes of an unknown character, if all of them have tokens. */
static bool add_bytes(const calm_bpe *self, calm_piece character, workspace *work)
{
    for (size_t i = 0; i < character.n; i++)
        if (self->bytes[(unsigned char)character.text[i]] == CALM_NO_TOKEN)
            return false;
    for (size_t i = 0; i < character.n; i++)
        add_symbol(work, self->bytes[(unsigned char)character.text[i]]);
    return true;
}

/* Splits a piece into characters.  As in the library, the unknown token is added only when the next character is
 * known or, without fusing, also unknown; byte-fallback tokens in between do not trigger it. */
static void split_characters(const calm_bpe *self, const calm_vocab *vocab, calm_piece piece, workspace *work)
{
    const bool plain = self->prefix.n == 0 && self->suffix.n == 0;
    uint32_t c;
    bool waiting = false;
    for (size_t at = 0, length; at < piece.n; at += length) {
        length = calm_utf8_decode(piece.text + at, &c);
        calm_piece character = {piece.text + at, length};
        if (!plain)
            character = dress(self, piece, at, length, work->room);
        uint32_t id = plain ? id_of(self, vocab, character.text, length, c)
                            : calm_vocab_find(vocab, character.text, character.n);
        if (id == CALM_NO_TOKEN && self->byte_fallback && add_bytes(self, character, work))
            continue;
        if (waiting && (id != CALM_NO_TOKEN || !self->fuse_unknown)) {
            add_symbol(work, self->unknown);
            waiting = false;
        }
        if (id != CALM_NO_TOKEN)
            add_symbol(work, id);
        else
            waiting = self->unknown != CALM_NO_TOKEN;
    }
    if (waiting)
        add_symbol(work, self->unknown);
}

static void merge_all(const calm_bpe *self, workspace *work)
{
    symbol *symbols = work->symbols;
    for (size_t i = 0; i + 1 < work->n_symbols; i++)
        consider(self, work, (uint32_t)i);
    while (work->n_heap > 0) {
        candidate best = pop(work);
        uint32_t left = (uint32_t)best.priority, right = symbols[left].next;
        if (symbols[left].id == CALM_NO_TOKEN || right == NOWHERE ||
            pair_of(symbols[left].id, symbols[right].id) != best.merge->pair)
            continue;
        symbols[left].id = best.merge->merged;
        symbols[left].next = symbols[right].next;
        symbols[right].id = CALM_NO_TOKEN;
        if (symbols[left].next != NOWHERE)
            symbols[symbols[left].next].previous = left;
        consider(self, work, symbols[left].previous);
        consider(self, work, left);
    }
}

/* Returns an upper bound of the initial symbols of a piece. */
static size_t symbols_max(const calm_bpe *self, calm_piece piece)
{
    const size_t n = calm_utf8_count(piece.text, piece.n);
    return self->byte_fallback ? piece.n + n * self->prefix.n + self->suffix.n : n;
}

calm_status calm_bpe_encode(calm_encoder *enc, calm_piece piece)
{
    const calm_bpe *self = enc->tok->model;
    if (self->ignore_merges) {
        uint32_t whole = calm_vocab_find(&enc->tok->vocab, piece.text, piece.n);
        if (whole != CALM_NO_TOKEN)
            return calm_encoder_put(enc, whole);
    }
    /* n symbols form n - 1 pairs, and each of at most n - 1 merges removes one pair and adds two. */
    const size_t n = symbols_max(self, piece), dressed = self->prefix.n + CALM_UTF8_MAX + self->suffix.n;
    workspace work = {.heap_max = 2 * n};
    char *room;
    CALM_TRY(calm_encoder_reserve(enc, &enc->work, n + dressed, 2 * sizeof(candidate) + sizeof(symbol), &room));
    work.heap = (candidate *)(void *)room;
    work.symbols = (symbol *)(void *)(room + 2 * n * sizeof(candidate));
    work.room = room + n * (2 * sizeof(candidate) + sizeof(symbol));
    split_characters(self, &enc->tok->vocab, piece, &work);
    merge_all(self, &work);
    for (size_t i = 0; i < work.n_symbols; i++)
        if (work.symbols[i].id != CALM_NO_TOKEN)
            CALM_TRY(calm_encoder_put(enc, work.symbols[i].id));
    return CALM_OK;
}

/* Returns a position between two characters that no merge joins: no left token ends in the one while its right
 * token begins with the other.  The right character must be known: an unknown one may fuse with the text before it. */
size_t calm_bpe_cut(const calm_tokenizer *tok, calm_piece piece, size_t from)
{
    const calm_bpe *self = tok->model;
    uint32_t left, right;
    size_t at = from + calm_utf8_decode(piece.text + from, &left);
    for (size_t length; at < piece.n; at += length, left = right) {
        length = calm_utf8_decode(piece.text + at, &right);
        const size_t seam = calm_bpe_seam(left, right);
        if (!(self->seams[seam / 64] >> seam % 64 & 1) &&
            id_of(self, &tok->vocab, piece.text + at, length, right) != CALM_NO_TOKEN)
            return at;
    }
    return piece.n;
}
