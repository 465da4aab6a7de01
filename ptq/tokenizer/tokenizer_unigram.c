/* Unigram: the segmentation of a piece into tokens with the highest sum of scores.
 *
 * Kudo, "Subword Regularization", ACL 2018.  Finds the best path to each byte from left to right, in double and
 * with additions in this order; of equal sums the path found first stays, which has the longest last token.  A
 * character without a token has an edge with the unknown token, whose score is the lowest score minus 10. */
#include <math.h>
#include <string.h>

#include "ptq/tokenizer/tokenizer_encoder.h"
#include "ptq/tokenizer/trie.h"

#define UNKNOWN_PENALTY 10.0

typedef struct unigram {
    calm_trie trie;
    double *scores;         /* [n] scores by id */
    double unknown_score;
    uint32_t unknown;       /* or CALM_NO_TOKEN: unknown characters are an error */
    uint32_t bytes[256];    /* ids of <0x00> ... <0xFF> */
    bool byte_fallback;     /* use byte tokens for unknown characters, if all bytes have one */
    const char *where;
} unigram;

/* The best path to a position: its sum, its last token and where that begins. */
typedef struct place {
    double sum;
    uint32_t from, id;
} place;

#define NOWHERE UINT32_MAX

/* ---- encoding ---- */

static void offer(place *to, double sum, size_t from, uint32_t id)
{
    if (to->from == NOWHERE || sum > to->sum)
        *to = (place){sum, (uint32_t)from, id};
}

/* Offers all edges that begin at `from`. */
static calm_status spread(calm_ctx *ctx, const unigram *self, calm_piece piece, size_t from, size_t length,
                          place *places)
{
    const double before = places[from].sum;
    bool known = false;
    uint32_t node = CALM_TRIE_ROOT;
    for (size_t at = from; at < piece.n;) {
        node = calm_trie_step(&self->trie, node, (uint8_t)piece.text[at++]);
        if (node == CALM_TRIE_NONE)
            break;
        const uint32_t id = self->trie.id[node];
        if (id == CALM_TRIE_NONE)
            continue;
        offer(&places[at], self->scores[id] + before, from, id);
        known |= at == from + length;
    }
    if (known)
        return CALM_OK;
    if (self->unknown == CALM_NO_TOKEN)
        return calm_fail(ctx, CALM_EFORMAT, "%s: the text has a character without a token, and there is no unk_id",
                         self->where);
    offer(&places[from + length], self->unknown_score + before, from, self->unknown);
    return CALM_OK;
}

/* Encodes the text of consecutive unknown tokens: as one token if it has one, else as bytes, else as the unknown
 * token. */
static calm_status put_unknown(calm_encoder *enc, const unigram *self, calm_piece text)
{
    const uint32_t id = calm_vocab_find(&enc->tok->vocab, text.text, text.n);
    bool spelled = id == CALM_NO_TOKEN && self->byte_fallback;
    for (size_t i = 0; spelled && i < text.n; i++)
        spelled = self->bytes[(unsigned char)text.text[i]] != CALM_NO_TOKEN;
    if (!spelled)
        return calm_encoder_put(enc, id == CALM_NO_TOKEN ? self->unknown : id);
    for (size_t i = 0; i < text.n; i++)
        CALM_TRY(calm_encoder_put(enc, self->bytes[(unsigned char)text.text[i]]));
    return CALM_OK;
}

/* Reverses the links of the path from its end, then follows it from the beginning. */
static calm_status put_path(calm_encoder *enc, const unigram *self, calm_piece piece, place *places)
{
    uint32_t end = (uint32_t)piece.n, next = NOWHERE, unknown_from = NOWHERE;
    while (end > 0) {
        const uint32_t begin = places[end].from;
        places[end].from = next;
        next = end;
        end = begin;
    }
    for (uint32_t begin = 0; next != NOWHERE; begin = next, next = places[next].from) {
        const uint32_t id = places[next].id;
        if (id == self->unknown) {
            unknown_from = unknown_from == NOWHERE ? begin : unknown_from;
            continue;
        }
        if (unknown_from != NOWHERE)
            CALM_TRY(put_unknown(enc, self, (calm_piece){piece.text + unknown_from, begin - unknown_from}));
        unknown_from = NOWHERE;
        CALM_TRY(calm_encoder_put(enc, id));
    }
    if (unknown_from == NOWHERE)
        return CALM_OK;
    return put_unknown(enc, self, (calm_piece){piece.text + unknown_from, piece.n - unknown_from});
}

static calm_status encode(calm_encoder *enc, calm_piece piece)
{
    const unigram *self = enc->tok->model;
    place *places;
    uint32_t c;
    CALM_TRY(calm_encoder_reserve(enc, &enc->work, piece.n + 1, sizeof *places, &places));
    places[0] = (place){0, 0, 0};
    for (size_t i = 1; i <= piece.n; i++)
        places[i].from = NOWHERE;
    for (size_t at = 0, length; at < piece.n; at += length) {
        length = calm_utf8_decode(piece.text + at, &c);
        CALM_TRY(spread(enc->ctx, self, piece, at, length, places));
    }
    return put_path(enc, self, piece, places);
}

/* ---- reading ---- */

/* Reads piece i and copies its text to *texts. */
static calm_status read_piece(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json, size_t i,
                              char **texts, calm_trie_entry *entry, double *score)
{
    const calm_json *text = calm_json_at(json, 0);
    const calm_piece piece = {*texts, calm_json_string_length(text)};
    *score = calm_json_number(calm_json_at(json, 1), NAN);
    if (calm_json_typeof(json) != CALM_JSON_ARRAY || calm_json_size(json) != 2 || isnan(*score) || piece.n == 0)
        return calm_fail(ctx, CALM_EFORMAT, "%s.vocab[%zu]: expected [\"text\", score], the text not empty", where, i);
    memcpy(*texts, calm_json_string(text, ""), piece.n);
    *texts += piece.n + 1;
    *entry = (calm_trie_entry){piece.text, (uint32_t)piece.n, (uint32_t)i};
    return calm_tokenizer_set_token(ctx, tok, where, i, piece);
}

static calm_status read_pieces(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *vocab,
                               unigram *self)
{
    const size_t n = calm_json_size(vocab);
    double lowest = INFINITY;
    calm_trie_entry *entries;
    size_t total = 1;
    char *texts;
    if (calm_json_typeof(vocab) != CALM_JSON_ARRAY || n == 0)
        return calm_fail(ctx, CALM_EFORMAT, "%s.vocab: expected an array that is not empty, found %s", where,
                         calm_json_type_name(calm_json_typeof(vocab)));
    if (n > CALM_TOKENIZER_MAX_IDS)
        return calm_fail(ctx, CALM_EFORMAT, "%s.vocab: %zu tokens, expected at most %u", where, n,
                         CALM_TOKENIZER_MAX_IDS);
    CALM_TRY(CALM_NEW(ctx, &tok->arena, self->scores, n));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, entries, n));
    CALM_TRY(calm_vocab_init(ctx, &tok->arena, &tok->vocab, n));
    for (size_t i = 0; i < n; i++)
        total += calm_json_string_length(calm_json_at(calm_json_at(vocab, i), 0)) + 1;
    CALM_TRY(CALM_NEW(ctx, &tok->arena, texts, total));
    for (size_t i = 0; i < n; i++) {
        CALM_TRY(read_piece(ctx, tok, where, calm_json_at(vocab, i), i, &texts, &entries[i], &self->scores[i]));
        lowest = self->scores[i] < lowest ? self->scores[i] : lowest;
    }
    self->unknown_score = lowest - UNKNOWN_PENALTY;
    /* Of equal texts the last one counts; the table keeps the first that is added. */
    for (size_t i = n; i-- > 0;)
        calm_vocab_add(&tok->vocab, entries[i].text, entries[i].n, (uint32_t)i);
    return calm_trie_init(ctx, &tok->arena, &self->trie, entries, n);
}

calm_status calm_tokenizer_read_unigram(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json)
{
    int64_t unknown;
    unigram *self;
    CALM_TRY(CALM_NEW(ctx, &tok->arena, self, 1));
    CALM_TRY(calm_strf(ctx, &tok->arena, &self->where, "%s", where));
    tok->model = self;
    tok->encode = encode;
    CALM_TRY(read_pieces(ctx, tok, where, calm_json_get(json, "vocab"), self));
    CALM_TRY(calm_json_need_int(ctx, where, json, "unk_id", &(int64_t){-1}, 0, (int64_t)tok->n_ids - 1, &unknown));
    CALM_TRY(calm_json_need_bool(ctx, where, json, "byte_fallback", &(bool){false}, &self->byte_fallback));
    self->unknown = unknown < 0 ? CALM_NO_TOKEN : (uint32_t)unknown;
    calm_tokenizer_find_bytes(tok, self->bytes);
    return CALM_OK;
}
