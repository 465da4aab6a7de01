/* Byte-pair encoding: characters are merged pair by pair, the pair of the lowest rank first and of equal ones the
 * leftmost, until no pair is in the list of merges.
 *
 * Sennrich, Haddow, Birch, "Neural Machine Translation of Rare Words with Subword Units", ACL 2016.  A heap of
 * candidate pairs over a linked list of symbols makes a piece of n characters cost n log n. */
#include <assert.h>
#include <string.h>

#include "ptq/io/bytelevel.h"
#include "ptq/io/tokenizer_parts.h"
#include "ptq/io/unicode.h"

/* A merge of the list. */
typedef struct merge {
    uint64_t pair;      /* left id << 32 | right id   */
    uint32_t order;     /* rank + 1; 0: a free slot   */
    uint32_t merged;    /* id of both together        */
} merge;

typedef struct bpe {
    merge *merges;      /* [mask + 1], hashed by pair */
    size_t mask;
    uint32_t direct[CALM_BYTELEVEL_END];    /* ids of the first characters, the byte-level alphabet among them */
    uint32_t unknown;   /* or CALM_NO_TOKEN: unknown characters vanish */
    bool fuse_unknown, ignore_merges;
} bpe;

/* A symbol of the piece in work, first a character, later what it merged to. */
typedef struct symbol {
    uint32_t id;             /* CALM_NO_TOKEN: merged into the one before */
    uint32_t previous, next; /* NOWHERE at the ends */
} symbol;

#define NOWHERE UINT32_MAX

typedef struct candidate {
    uint64_t priority;     /* order << 32 | position of the left symbol: the least is next */
    const merge *merge;    /* stale when the symbols there are no longer this pair */
} candidate;

typedef struct workspace {
    candidate *heap;
    size_t n_heap, heap_max;
    symbol *symbols;
    size_t n_symbols;
} workspace;

/* ---- merges ---- */

/* The slot of the pair, or the free one where it belongs. */
static merge *locate(const bpe *self, uint64_t pair)
{
    uint64_t hash = pair * UINT64_C(0x9E3779B97F4A7C15);
    for (size_t i = (hash ^ hash >> 32) & self->mask;; i = (i + 1) & self->mask)
        if (self->merges[i].order == 0 || self->merges[i].pair == pair)
            return &self->merges[i];
}

static uint64_t pair_of(uint32_t left, uint32_t right)
{
    return (uint64_t)left << 32 | right;
}

/* ---- the heap, least first ---- */

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

/* Enter the pair that begins at symbol `left`, if it is one that merges. */
static void consider(const bpe *self, workspace *work, uint32_t left)
{
    uint32_t right = left == NOWHERE ? NOWHERE : work->symbols[left].next;
    if (right == NOWHERE)
        return;
    const merge *found = locate(self, pair_of(work->symbols[left].id, work->symbols[right].id));
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

static void split_characters(const bpe *self, const calm_vocab *vocab, calm_piece piece, workspace *work)
{
    uint32_t character;
    bool after_unknown = false;
    for (size_t at = 0, length; at < piece.n; at += length) {
        length = calm_utf8_decode(piece.text + at, &character);
        uint32_t id = character < CALM_BYTELEVEL_END ? self->direct[character]
                                                     : calm_vocab_find(vocab, piece.text + at, length);
        bool unknown = id == CALM_NO_TOKEN;
        if (!unknown)
            add_symbol(work, id);
        else if (self->unknown != CALM_NO_TOKEN && !(after_unknown && self->fuse_unknown))
            add_symbol(work, self->unknown);
        after_unknown = unknown;
    }
}

static void merge_all(const bpe *self, workspace *work)
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

static size_t count_characters(calm_piece piece)
{
    size_t n = 0;
    for (size_t i = 0; i < piece.n; i++)
        n += ((unsigned char)piece.text[i] & 0xC0) != 0x80;
    return n;
}

static calm_status encode(calm_encoder *enc, calm_piece piece)
{
    const bpe *self = enc->tok->model;
    if (self->ignore_merges) {
        uint32_t whole = calm_vocab_find(&enc->tok->vocab, piece.text, piece.n);
        if (whole != CALM_NO_TOKEN)
            return calm_encoder_put(enc, whole);
    }
    /* n characters make n - 1 pairs, and each of at most n - 1 merges takes one pair off and enters two. */
    size_t n = count_characters(piece);
    workspace work = {.heap_max = 2 * n};
    char *room;
    CALM_TRY(calm_encoder_reserve(enc, &enc->work, n, 2 * sizeof(candidate) + sizeof(symbol), &room));
    work.heap = (candidate *)(void *)room;
    work.symbols = (symbol *)(void *)(room + 2 * n * sizeof(candidate));
    split_characters(self, &enc->tok->vocab, piece, &work);
    merge_all(self, &work);
    for (size_t i = 0; i < work.n_symbols; i++)
        if (work.symbols[i].id != CALM_NO_TOKEN)
            CALM_TRY(calm_encoder_put(enc, work.symbols[i].id));
    return CALM_OK;
}

/* ---- reading ---- */

static calm_status read_vocab(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json)
{
    const calm_json *vocab = calm_json_get(json, "vocab"), *value;
    const char *key;
    char *texts;
    size_t total = 1;
    if (calm_json_typeof(vocab) != CALM_JSON_OBJECT)
        return calm_fail(ctx, CALM_EFORMAT, "%s.vocab: expected an object, found %s", where,
                         calm_json_type_name(calm_json_typeof(vocab)));
    for (void *iter = NULL; calm_json_next(vocab, &iter, &key, &value);)
        total += strlen(key) + 1;
    CALM_TRY(CALM_NEW(ctx, &tok->arena, texts, total));
    CALM_TRY(calm_vocab_init(ctx, &tok->arena, &tok->vocab, calm_json_size(vocab)));
    for (void *iter = NULL; calm_json_next(vocab, &iter, &key, &value);) {
        int64_t id = calm_json_int(value, -1);
        calm_piece piece = {texts, strlen(key)};
        if (id < 0)
            return calm_fail(ctx, CALM_EFORMAT, "%s.vocab: id of \"%.60s\": expected a whole number >= 0", where, key);
        memcpy(texts, key, piece.n);
        texts += piece.n + 1;
        CALM_TRY(calm_tokenizer_set_token(ctx, tok, where, (uint64_t)id, piece));
        calm_vocab_add(&tok->vocab, piece.text, (uint32_t)piece.n, (uint32_t)id);
    }
    return CALM_OK;
}

/* The two tokens of merge number i, "left right" or ["left", "right"]. */
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

/* Ids of the tokens of merge number i and of both together; room [the longest token twice]. */
static calm_status resolve_merge(calm_ctx *ctx, const calm_tokenizer *tok, const char *where, size_t i, calm_piece left,
                                 calm_piece right, size_t longest, char *room, uint32_t ids[3])
{
    calm_piece unknown = left;
    ids[0] = calm_vocab_find(&tok->vocab, left.text, left.n);
    ids[1] = calm_vocab_find(&tok->vocab, right.text, right.n);
    if (ids[0] != CALM_NO_TOKEN && ids[1] == CALM_NO_TOKEN)
        unknown = right;
    if (ids[0] != CALM_NO_TOKEN && ids[1] != CALM_NO_TOKEN) {
        unknown = (calm_piece){room, left.n + right.n};
        memcpy(room, left.text, left.n);
        memcpy(room + left.n, right.text, right.n);
        ids[2] = unknown.n <= longest ? calm_vocab_find(&tok->vocab, room, unknown.n) : CALM_NO_TOKEN;
        if (ids[2] != CALM_NO_TOKEN)
            return CALM_OK;
    }
    return calm_fail(ctx, CALM_EFORMAT, "%s.merges[%zu]: no token \"%.*s\" in the vocabulary", where, i,
                     (int)(unknown.n < 60 ? unknown.n : 60), unknown.text);
}

static calm_status read_merges(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json, bpe *self)
{
    const calm_json *merges = calm_json_get(json, "merges");
    size_t n = calm_json_size(merges), longest = 0, n_slots = calm_hash_slots(n);
    calm_piece left = {0}, right = {0};
    uint32_t ids[3] = {0};
    char *room;
    assert(n_slots > 0);
    if (calm_json_typeof(merges) != CALM_JSON_ARRAY)
        return calm_fail(ctx, CALM_EFORMAT, "%s.merges: expected an array, found %s", where,
                         calm_json_type_name(calm_json_typeof(merges)));
    for (size_t id = 0; id < tok->n_ids; id++)
        longest = tok->tokens[id].piece.n > longest ? tok->tokens[id].piece.n : longest;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, room, 2 * longest));
    CALM_TRY(CALM_NEW(ctx, &tok->arena, self->merges, n_slots));
    self->mask = n_slots - 1;
    for (size_t i = 0; i < n; i++) {
        CALM_TRY(split_merge(ctx, where, calm_json_at(merges, i), i, &left, &right));
        CALM_TRY(resolve_merge(ctx, tok, where, i, left, right, longest, room, ids));
        /* Of a merge that is listed twice the later rank counts, as in the library. */
        uint64_t pair = pair_of(ids[0], ids[1]);
        *locate(self, pair) = (merge){pair, (uint32_t)i + 1, ids[2]};
    }
    return CALM_OK;
}

/* Members that change the ids in ways not built here. */
static calm_status refuse_variants(calm_ctx *ctx, const char *where, const calm_json *json)
{
    static const char *const texts[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    const double none = 0;
    const bool no = false;
    double dropout;
    bool fallback;
    const char *text;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        CALM_TRY(calm_json_need_string(ctx, where, json, texts[i], "", &text));
        if (*text)
            return calm_fail(ctx, CALM_EUNSUPPORTED, "%s.%s \"%.60s\": not supported", where, texts[i], text);
    }
    CALM_TRY(calm_json_need_number(ctx, where, json, "dropout", &none, 0, 1, &dropout));
    if (dropout > 0)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s.dropout %g: not supported: ids would be random", where, dropout);
    CALM_TRY(calm_json_need_bool(ctx, where, json, "byte_fallback", &no, &fallback));
    if (fallback)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s.byte_fallback: not supported", where);
    return CALM_OK;
}

calm_status calm_tokenizer_read_bpe(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json)
{
    bpe *self;
    const char *unknown;
    const bool no = false;
    CALM_TRY(refuse_variants(ctx, where, json));
    CALM_TRY(CALM_NEW(ctx, &tok->arena, self, 1));
    tok->model = self;
    tok->encode = encode;
    CALM_TRY(calm_json_need_bool(ctx, where, json, "fuse_unk", &no, &self->fuse_unknown));
    CALM_TRY(calm_json_need_bool(ctx, where, json, "ignore_merges", &no, &self->ignore_merges));
    CALM_TRY(calm_json_need_string(ctx, where, json, "unk_token", "", &unknown));
    CALM_TRY(read_vocab(ctx, tok, where, json));
    CALM_TRY(read_merges(ctx, tok, where, json, self));
    self->unknown = *unknown ? calm_vocab_find(&tok->vocab, unknown, strlen(unknown)) : CALM_NO_TOKEN;
    if (*unknown && self->unknown == CALM_NO_TOKEN)
        return calm_fail(ctx, CALM_EFORMAT, "%s.unk_token: no token \"%.60s\" in the vocabulary", where, unknown);
    for (uint32_t c = 0; c < CALM_BYTELEVEL_END; c++) {
        char text[CALM_UTF8_MAX];
        self->direct[c] = calm_vocab_find(&tok->vocab, text, calm_utf8_encode(c, text));
    }
    return CALM_OK;
}
