/* Added tokens: texts that become one id wherever they stand, cut out before anything else happens.
 *
 * The leftmost token wins, and the longest of those that begin there.  Candidates are narrowed down byte by
 * byte in a sorted list, which costs nothing where no token begins. */
#include <stdlib.h>
#include <string.h>

#include "ptq/tokenizer/tokenizer_parts.h"
#include "ptq/text/unicode.h"

/* ---- finding ---- */

/* First of tokens [lo, hi) whose byte `depth` is >= (or, with `above`, >) `byte`; all are longer than depth. */
static size_t bound(const calm_added *tokens, size_t lo, size_t hi, size_t depth, unsigned char byte, bool above)
{
    while (lo < hi) {
        size_t middle = lo + (hi - lo) / 2;
        unsigned char found = (unsigned char)tokens[middle].piece.text[depth];
        if (found < byte || (above && found == byte))
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo;
}

/* The longest token that `text` [n] begins with, or NULL. */
static const calm_added *longest_at(const calm_added_set *set, const char *text, size_t n)
{
    const calm_added *best = NULL;
    size_t lo = 0, hi = set->n;
    for (size_t depth = 0; lo < hi; depth++) {
        if (set->tokens[lo].piece.n == depth)
            best = &set->tokens[lo++];
        if (depth == n)
            break;
        lo = bound(set->tokens, lo, hi, depth, (unsigned char)text[depth], false);
        hi = bound(set->tokens, lo, hi, depth, (unsigned char)text[depth], true);
    }
    return best;
}

static bool stands_alone(calm_piece text, size_t begin, size_t end)
{
    uint32_t before = ' ', after = ' ';
    if (begin > 0)
        calm_utf8_decode(text.text + calm_utf8_step_back(text.text, begin), &before);
    if (end < text.n)
        calm_utf8_decode(text.text + end, &after);
    return !calm_unicode_is_word(before) && !calm_unicode_is_word(after);
}

bool calm_added_next(calm_added_cursor *cursor, calm_piece *gap, uint32_t *id)
{
    const calm_piece text = cursor->text;
    if (cursor->ended)
        return false;
    while (cursor->searched < text.n) {
        size_t begin = cursor->searched;
        const calm_added *token = NULL;
        if (cursor->set->begins[(unsigned char)text.text[begin]])
            token = longest_at(cursor->set, text.text + begin, text.n - begin);
        if (!token) {
            cursor->searched++;
            continue;
        }
        size_t end = begin + token->piece.n;
        cursor->searched = end;
        if (token->single_word && !stands_alone(text, begin, end))
            continue;
        if (token->lstrip)
            begin = begin < cursor->done ? cursor->done : calm_skip_spaces_back(text, begin, cursor->done);
        if (token->rstrip)
            end = calm_skip_spaces(text, end);
        /* What the token before took leaves nothing of this one, which looks at its left side. */
        if (begin >= end) {
            cursor->done = end;
            continue;
        }
        /* What a token took to its right may hold another token: then nothing lies between. */
        *gap = (calm_piece){text.text + cursor->done, begin > cursor->done ? begin - cursor->done : 0};
        *id = token->id;
        cursor->done = end;
        return true;
    }
    *gap = (calm_piece){text.text + cursor->done, text.n - cursor->done};
    *id = CALM_NO_TOKEN;
    cursor->ended = true;
    return true;
}

/* ---- reading ---- */

static int compare_tokens(const void *left, const void *right)
{
    const calm_added *a = left, *b = right;
    const int order = calm_compare_bytes(a->piece.text, a->piece.n, b->piece.text, b->piece.n);
    return order != 0 ? order : (a->id > b->id) - (a->id < b->id);
}

/* Sort, and drop tokens that look the same (two normalized ones may): the first id stays. */
static void finish_set(calm_added_set *set)
{
    size_t kept = 0;
    qsort(set->tokens, set->n, sizeof *set->tokens, compare_tokens);
    for (size_t i = 0; i < set->n; i++) {
        const calm_piece piece = set->tokens[i].piece;
        if (kept > 0 && calm_piece_equal(set->tokens[kept - 1].piece, piece))
            continue;
        set->begins[(unsigned char)piece.text[0]] = true;
        set->tokens[kept++] = set->tokens[i];
    }
    set->n = kept;
}

/* Enter the token in the table of ids; one that the model knows must have the model's id. */
static calm_status enter_token(calm_ctx *ctx, calm_tokenizer *tok, const char *where, uint32_t id, calm_piece piece,
                               bool special)
{
    uint32_t known = calm_vocab_find(&tok->vocab, piece.text, piece.n);
    if (known == CALM_NO_TOKEN)
        CALM_TRY(calm_tokenizer_set_token(ctx, tok, where, id, piece));
    else if (known != id)
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"%.60s\" has id %u here and %u in model.vocab", where, piece.text, id,
                         known);
    else if (tok->tokens[id].added)
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"%.60s\" with id %u is listed twice", where, piece.text, id);
    tok->tokens[id].added = true;
    tok->tokens[id].special = special;
    return CALM_OK;
}

static calm_status read_token(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json)
{
    int64_t id;
    bool special, normalized;
    calm_added token = {.id = 0};
    CALM_TRY(calm_json_need_int(ctx, where, json, "id", NULL, 0, CALM_TOKENIZER_MAX_IDS - 1, &id));
    CALM_TRY(calm_tokenizer_read_string(ctx, tok, where, json, "content", &token.piece));
    CALM_TRY(calm_json_need_bool(ctx, where, json, "special", &(bool){false}, &special));
    CALM_TRY(calm_json_need_bool(ctx, where, json, "single_word", &(bool){false}, &token.single_word));
    CALM_TRY(calm_json_need_bool(ctx, where, json, "lstrip", &(bool){false}, &token.lstrip));
    CALM_TRY(calm_json_need_bool(ctx, where, json, "rstrip", &(bool){false}, &token.rstrip));
    const bool usual = !special;
    CALM_TRY(calm_json_need_bool(ctx, where, json, "normalized", &usual, &normalized));
    token.id = (uint32_t)id;
    CALM_TRY(enter_token(ctx, tok, where, token.id, token.piece, special));
    if (normalized) {
        char *kept;
        calm_normal found = {.piece = token.piece};
        CALM_TRY(calm_tokenizer_normalize(ctx, tok, &found));
        CALM_TRY(CALM_NEW(ctx, &tok->arena, kept, found.piece.n + 1));
        memcpy(kept, found.piece.text, found.piece.n);
        /* The library decodes such a token as what it looks for, and what is special is the text as written. */
        if (!calm_piece_equal(found.piece, token.piece))
            tok->tokens[id].special = false;
        token.piece = (calm_piece){kept, found.piece.n};
        tok->tokens[id].piece = token.piece;
    }
    /* Nothing can be found by an empty text. */
    calm_added_set *set = normalized ? &tok->normalized : &tok->raw;
    if (token.piece.n > 0)
        set->tokens[set->n++] = token;
    return CALM_OK;
}

calm_status calm_tokenizer_read_added(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json)
{
    size_t n = calm_json_size(json);
    char *place;
    if (calm_json_typeof(json) != CALM_JSON_NULL)
        CALM_TRY(calm_json_expect(ctx, json, CALM_JSON_ARRAY, "%s", where));
    CALM_TRY(CALM_NEW(ctx, &tok->arena, tok->raw.tokens, n));
    CALM_TRY(CALM_NEW(ctx, &tok->arena, tok->normalized.tokens, n));
    for (size_t i = 0; i < n; i++) {
        CALM_TRY(calm_strf(ctx, ctx->scratch, &place, "%s[%zu]", where, i));
        CALM_TRY(read_token(ctx, tok, place, calm_json_at(json, i)));
    }
    finish_set(&tok->raw);
    finish_set(&tok->normalized);
    /* A list of pieces may have the text of a special token twice; what is special is the text. */
    for (size_t id = 0; n > 0 && id < tok->n_ids; id++) {
        const calm_piece piece = tok->tokens[id].piece;
        const uint32_t known = piece.text ? calm_vocab_find(&tok->vocab, piece.text, piece.n) : CALM_NO_TOKEN;
        if (known != CALM_NO_TOKEN)
            tok->tokens[id].special |= tok->tokens[known].special;
    }
    return CALM_OK;
}
