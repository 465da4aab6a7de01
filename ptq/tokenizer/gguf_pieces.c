/* Tokens of a GGUF file, converted to members of tokenizer.json. */
#include "ptq/tokenizer/gguf_pieces.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ptq/text/unicode.h"

#define LONGEST 512       /* longest merged token in bytes: the search time grows with its square               */
#define NO_SCORE (-1e8f)  /* tokens with lower scores are not merged from others */

/* ---- reading ---- */

static calm_status read_text(calm_ctx *ctx, calm_gguf_pieces *in, size_t id, const char *text, size_t n)
{
    char *copy;
    if (n > INT32_MAX || calm_utf8_invalid_at(text, n) != n || (n && memchr(text, 0, n)))
        return calm_fail(ctx, CALM_EFORMAT, "%s: tokenizer.ggml.tokens: token %zu is not UTF-8",
                         calm_gguf_path(in->file), id);
    if (n)
        CALM_TRY(calm_strf(ctx, ctx->out, &copy, "%.*s", (int)n, text));
    else
        CALM_TRY(calm_strf(ctx, ctx->out, &copy, "[EMPTY_%zu]", id));    /* llama.cpp's name      */
    in->of[id] = (calm_gguf_piece){copy, (uint32_t)strlen(copy), 0, CALM_GGUF_PIECE_NORMAL};
    if (!calm_vocab_add(&in->ids, copy, in->of[id].n, (uint32_t)id))
        return calm_fail(ctx, CALM_EFORMAT, "%s: tokenizer.ggml.tokens: tokens %u and %zu are both \"%.60s\"",
                         calm_gguf_path(in->file), (unsigned)calm_vocab_find(&in->ids, copy, in->of[id].n), id, copy);
    return CALM_OK;
}

static calm_status need_length(calm_ctx *ctx, const calm_gguf_pieces *in, const char *name, const calm_gguf_key *key)
{
    if (!key)
        return calm_fail(ctx, CALM_EFORMAT, "%s: has no key %s", calm_gguf_path(in->file), name);
    if (!key->array || key->n != in->n)
        return calm_fail(ctx, CALM_EFORMAT, "%s: key %s: expected %zu values, one for each token, found %zu",
                         calm_gguf_path(in->file), name, in->n, key->n);
    return CALM_OK;
}

static calm_status read_kinds(calm_ctx *ctx, calm_gguf_pieces *in)
{
    static const char name[] = "tokenizer.ggml.token_type";
    const calm_gguf_key *key = calm_gguf_find_key(in->file, name);
    int64_t kind;
    if (!key)
        return CALM_OK;
    CALM_TRY(need_length(ctx, in, name, key));
    for (size_t i = 0; i < in->n; i++) {
        if (!calm_gguf_int(key, i, &kind))
            return calm_fail(ctx, CALM_EFORMAT, "%s: key %s: expected whole numbers", calm_gguf_path(in->file), name);
        in->of[i].kind = kind >= CALM_GGUF_PIECE_NORMAL && kind <= CALM_GGUF_PIECE_BYTE ? (calm_gguf_piece_kind)kind
                                                                             : CALM_GGUF_PIECE_NORMAL;
    }
    return CALM_OK;
}

static calm_status read_scores(calm_ctx *ctx, calm_gguf_pieces *in)
{
    static const char name[] = "tokenizer.ggml.scores";
    const calm_gguf_key *key = calm_gguf_find_key(in->file, name);
    double score;
    CALM_TRY(need_length(ctx, in, name, key));
    for (size_t i = 0; i < in->n; i++) {
        if (!calm_gguf_number(key, i, &score) || !isfinite(score))
            return calm_fail(ctx, CALM_EFORMAT, "%s: key %s: token %zu has no finite score", calm_gguf_path(in->file),
                             name, i);
        in->of[i].score = (float)score;
    }
    return CALM_OK;
}

calm_status calm_gguf_pieces_read(calm_ctx *ctx, const calm_gguf *file, bool scored, calm_gguf_pieces *out)
{
    const calm_gguf_key *tokens = calm_gguf_find_key(file, "tokenizer.ggml.tokens");
    const char *text;
    size_t at = 0, n;
    if (!tokens || tokens->kind != CALM_GGUF_STRING || !tokens->array || !tokens->n || tokens->n > INT32_MAX)
        return calm_fail(ctx, CALM_EFORMAT, "%s: key tokenizer.ggml.tokens: expected an array of strings",
                         calm_gguf_path(file));
    *out = (calm_gguf_pieces){.file = file, .n = tokens->n};
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->of, out->n));
    CALM_TRY(calm_vocab_init(ctx, ctx->out, &out->ids, out->n));
    for (size_t id = 0; id < out->n && calm_gguf_next_string(tokens, &at, &text, &n); id++)
        CALM_TRY(read_text(ctx, out, id, text, n));
    CALM_TRY(read_kinds(ctx, out));
    return scored ? read_scores(ctx, out) : CALM_OK;
}

/* ---- members of tokenizer.json ---- */

calm_json *calm_gguf_pieces_vocab(const calm_gguf_pieces *pieces)
{
    calm_json *vocab = calm_json_new_object();
    for (size_t i = 0; i < pieces->n; i++)
        calm_json_set_int(vocab, pieces->of[i].text, (int64_t)i);
    return vocab;
}

calm_json *calm_gguf_pieces_added(const calm_gguf_pieces *pieces)
{
    calm_json *added = calm_json_new_array();
    for (size_t i = 0; i < pieces->n; i++) {
        const calm_gguf_piece *piece = &pieces->of[i];
        const bool own = piece->kind == CALM_GGUF_PIECE_USER_DEFINED, no = false;
        if (own || piece->kind == CALM_GGUF_PIECE_CONTROL || piece->kind == CALM_GGUF_PIECE_UNKNOWN)
            calm_json_add(added, CALM_OBJECT(CALM_KV("id", i), CALM_KV("content", piece->text),
                                             CALM_KV("single_word", no), CALM_KV("lstrip", no), CALM_KV("rstrip", no),
                                             CALM_KV("normalized", no), CALM_KV("special", (bool)!own)));
    }
    return added;
}

/* ---- merges from scores ---- */

typedef struct merge {
    uint32_t made, left, right;
    uint32_t at;    /* bytes of the left token */
    float score;
} merge;

static bool may_merge(const calm_gguf_pieces *pieces, uint32_t id)
{
    return id != CALM_NO_TOKEN && pieces->of[id].kind == CALM_GGUF_PIECE_NORMAL;
}

/* Finds all pairs of tokens that make up token `made`, fewer than its bytes; returns their number. */
static size_t find_splits(const calm_gguf_pieces *pieces, uint32_t made, merge out[LONGEST])
{
    const calm_gguf_piece *piece = &pieces->of[made];
    uint32_t c;
    size_t n = 0;
    if (piece->kind != CALM_GGUF_PIECE_NORMAL || piece->n > LONGEST || piece->score < NO_SCORE)
        return 0;
    for (size_t at = calm_utf8_decode(piece->text, &c); at < piece->n; at += calm_utf8_decode(piece->text + at, &c)) {
        const uint32_t left = calm_vocab_find(&pieces->ids, piece->text, at),
                       right = calm_vocab_find(&pieces->ids, piece->text + at, piece->n - at);
        if (may_merge(pieces, left) && may_merge(pieces, right))
            out[n++] = (merge){made, left, right, (uint32_t)at, piece->score};
    }
    return n;
}

static int compare(const void *a, const void *b)
{
    const merge *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    if (x->made != y->made)
        return x->made < y->made ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

calm_status calm_gguf_pieces_merges(calm_ctx *ctx, const calm_gguf_pieces *pieces, calm_json **out)
{
    CALM_SCOPED_SCRATCH(ctx);
    merge found[LONGEST], *all;
    size_t n = 0, k = 0;
    for (size_t i = 0; i < pieces->n; i++)
        n += find_splits(pieces, (uint32_t)i, found);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, all, n + 1));
    for (size_t i = 0; i < pieces->n; i++) {
        const size_t more = find_splits(pieces, (uint32_t)i, found);
        memcpy(all + k, found, more * sizeof *found);
        k += more;
    }
    qsort(all, n, sizeof *all, compare);
    *out = calm_json_new_array();
    for (size_t i = 0; i < n; i++) {
        calm_json *pair = calm_json_new_array();
        calm_json_add_string(pair, pieces->of[all[i].left].text);
        calm_json_add_string(pair, pieces->of[all[i].right].text);
        calm_json_add(*out, pair);
    }
    return CALM_OK;
}
