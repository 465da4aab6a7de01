/* WordPiece: the longest token that a word begins with, then repeatedly the longest token with the prefix ("##")
 * that continues it; a word that cannot be covered, or is too long, is one unknown token.
 *
 * Schuster, Nakajima, "Japanese and Korean Voice Search", ICASSP 2012; greedy as in google-research/bert. */
#include "ptq/tokenizer/tokenizer_encoder.h"
#include "ptq/tokenizer/trie.h"

typedef struct wordpiece {
    calm_trie trie;
    uint32_t inner;      /* node of the prefix, from which all but the first token of a word are searched; or
                          * CALM_TRIE_NONE */
    uint32_t unknown;
    size_t longest;      /* longest word that is split, in characters          */
} wordpiece;

/* Finds the longest token at text[at] from `node` on: returns its end and sets its id; returns `at` if there is
 * none. */
static size_t longest_token(const wordpiece *self, uint32_t node, calm_piece word, size_t at, uint32_t *id)
{
    size_t end = at;
    for (size_t i = at; i < word.n && node != CALM_TRIE_NONE;) {
        node = calm_trie_step(&self->trie, node, (uint8_t)word.text[i++]);
        if (node != CALM_TRIE_NONE && self->trie.id[node] != CALM_TRIE_NONE) {
            *id = self->trie.id[node];
            end = i;
        }
    }
    return end;
}

static calm_status encode(calm_encoder *enc, calm_piece word)
{
    const wordpiece *self = enc->tok->model;
    const size_t n_before = enc->n_ids;
    uint32_t id = CALM_NO_TOKEN;
    bool good = calm_utf8_count(word.text, word.n) <= self->longest;
    for (size_t at = 0, end; good && at < word.n; at = end) {
        end = longest_token(self, at == 0 ? CALM_TRIE_ROOT : self->inner, word, at, &id);
        good = end > at;
        if (good)
            CALM_TRY(calm_encoder_put(enc, id));
    }
    if (good)
        return CALM_OK;
    enc->n_ids = n_before;
    return calm_encoder_put(enc, self->unknown);
}

static calm_status build(calm_ctx *ctx, calm_tokenizer *tok, wordpiece *self)
{
    calm_trie_entry *entries;
    size_t n = 0;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, entries, tok->n_ids));
    for (uint32_t id = 0; id < tok->n_ids; id++) {
        const calm_piece piece = tok->tokens[id].piece;
        if (piece.text)
            entries[n++] = (calm_trie_entry){piece.text, (uint32_t)piece.n, id};
    }
    return calm_trie_init(ctx, &tok->arena, &self->trie, entries, n);
}

calm_status calm_tokenizer_read_wordpiece(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json)
{
    const char *prefix;
    int64_t longest;
    wordpiece *self;
    CALM_TRY(calm_json_need_string(ctx, where, json, "continuing_subword_prefix", "##", &prefix));
    CALM_TRY(calm_json_need_int(ctx, where, json, "max_input_chars_per_word", &(int64_t){100}, 0, INT64_MAX, &longest));
    CALM_TRY(CALM_NEW(ctx, &tok->arena, self, 1));
    tok->model = self;
    tok->encode = encode;
    CALM_TRY(calm_tokenizer_read_vocab(ctx, tok, where, json));
    CALM_TRY(calm_tokenizer_read_unknown(ctx, tok, where, json, true, &self->unknown));
    self->longest = (size_t)longest;
    CALM_TRY(build(ctx, tok, self));
    self->inner = CALM_TRIE_ROOT;
    for (size_t i = 0; prefix[i] && self->inner != CALM_TRIE_NONE; i++)
        self->inner = calm_trie_step(&self->trie, self->inner, (uint8_t)prefix[i]);
    return CALM_OK;
}
