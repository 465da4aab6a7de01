/* Added tokens: texts that become one id wherever they occur; they are cut out before normalization.
 *
 * The leftmost token wins, and the longest of those that begin there.  The search narrows the candidates byte by
 * byte in a sorted list, and costs nothing where no token begins. */
#include <stdlib.h>
#include <string.h>

#include "ptq/tokenizer/tokenizer_parts.h"
#include "ptq/text/unicode.h"

/* ---- search ---- */

/* Returns the first of tokens [lo, hi) whose byte `depth` is >= (or, with `above`, >) `byte`; all are longer than
 * depth. */
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

/* Returns the longest token that `text` [n] begins with, or NULL. */
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
        /* The previous token's rstrip consumed this token. */
        if (begin >= end) {
            cursor->done = end;
            continue;
        }
        /* The text that the previous token's rstrip consumed may contain this token: then nothing is between them. */
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

/* Sorts the tokens, and removes duplicates (normalization may make texts equal): the lowest id stays. */
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

/* An entry of added_tokens; each text occurs once. */
typedef struct listed {
    calm_added token;      /* piece as written in the file                          */
    bool normalized, special;
} listed;

typedef struct listing {
    listed *of;            /* [n]                                                   */
    size_t n;
    calm_vocab seen;       /* texts with their indices in `of`                      */
    size_t n_model;        /* number of tokens of the model                         */
    uint32_t highest;      /* highest id of an added token; CALM_NO_TOKEN: none     */
    bool renumbered;       /* an id differs from the file's; logged once            */
} listing;

static bool is_taken(const calm_tokenizer *tok, uint32_t id)
{
    return id < tok->n_ids && tok->tokens[id].piece.text;
}

/* Returns the id of a text at its first occurrence.  The tokenizers library assigns the model's id, else the next
 * free one, and ignores the file's.  Here the file's id counts while it is free and all earlier entries had theirs. */
static uint32_t new_id(const calm_tokenizer *tok, const listing *list, calm_piece piece, uint32_t said)
{
    const uint32_t known = calm_vocab_find(&tok->vocab, piece.text, piece.n);
    if (known != CALM_NO_TOKEN)
        return known;
    if (!list->renumbered && !is_taken(tok, said))
        return said;
    const bool beyond = list->highest != CALM_NO_TOKEN && list->highest >= list->n_model;
    const uint32_t next = beyond ? list->highest + 1 : (uint32_t)list->n_model;
    return is_taken(tok, next) ? said : next;
}

/* Finds the entry of the text in the list, or adds one with an id. */
static calm_status find_place(calm_ctx *ctx, calm_tokenizer *tok, const char *where, listing *list, calm_piece piece,
                              uint32_t said, listed **out)
{
    const uint32_t place = calm_vocab_find(&list->seen, piece.text, piece.n);
    *out = &list->of[place != CALM_NO_TOKEN ? place : list->n];
    if (place == CALM_NO_TOKEN) {
        const uint32_t id = new_id(tok, list, piece, said);
        if (calm_vocab_find(&tok->vocab, piece.text, piece.n) == CALM_NO_TOKEN)
            CALM_TRY(calm_tokenizer_set_token(ctx, tok, where, id, piece));
        calm_vocab_add(&list->seen, piece.text, (uint32_t)piece.n, (uint32_t)list->n++);
        (*out)->token.id = id;
        list->highest = list->highest == CALM_NO_TOKEN || id > list->highest ? id : list->highest;
    }
    if ((*out)->token.id != said && !list->renumbered)
        calm_log(ctx, CALM_LOG_WARNING, "%s: \"%.60s\" has id %u here; it is read as %u, as in the tokenizers library",
                 where, piece.text, said, (*out)->token.id);
    list->renumbered |= (*out)->token.id != said;
    return CALM_OK;
}

/* Reads one entry.  If a text occurs again, the last entry counts, as in the library, but `special` stays set. */
static calm_status read_token(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json,
                              listing *list)
{
    int64_t id;
    bool special, normalized;
    calm_added token = {.id = 0};
    listed *to;
    CALM_TRY(calm_json_need_int(ctx, where, json, "id", NULL, 0, CALM_TOKENIZER_MAX_IDS - 1, &id));
    CALM_TRY(calm_tokenizer_read_string(ctx, tok, where, json, "content", &token.piece));
    CALM_TRY(calm_json_need_bool(ctx, where, json, "special", &(bool){false}, &special));
    CALM_TRY(calm_json_need_bool(ctx, where, json, "single_word", &(bool){false}, &token.single_word));
    CALM_TRY(calm_json_need_bool(ctx, where, json, "lstrip", &(bool){false}, &token.lstrip));
    CALM_TRY(calm_json_need_bool(ctx, where, json, "rstrip", &(bool){false}, &token.rstrip));
    const bool usual = !special;
    CALM_TRY(calm_json_need_bool(ctx, where, json, "normalized", &usual, &normalized));
    CALM_TRY(find_place(ctx, tok, where, list, token.piece, (uint32_t)id, &to));
    token.id = to->token.id;
    *to = (listed){token, normalized, special || to->special};
    return CALM_OK;
}

/* Enters the token in the table of ids, and in its search set. */
static calm_status enter_token(calm_ctx *ctx, calm_tokenizer *tok, const listed *from)
{
    calm_added token = from->token;
    calm_token *entry = &tok->tokens[token.id];
    entry->added = true;
    entry->special = from->special;
    if (from->normalized) {
        char *kept;
        calm_normal found = {.piece = token.piece};
        CALM_TRY(calm_tokenizer_normalize(ctx, tok, &found));
        CALM_TRY(CALM_NEW(ctx, &tok->arena, kept, found.piece.n + 1));
        memcpy(kept, found.piece.text, found.piece.n);
        /* The library decodes such a token as its normalized text; the special token is the text as written. */
        if (!calm_piece_equal(found.piece, token.piece))
            entry->special = false;
        token.piece = (calm_piece){kept, found.piece.n};
        entry->piece = token.piece;
    }
    /* An empty text matches nothing. */
    calm_added_set *set = from->normalized ? &tok->normalized : &tok->raw;
    if (token.piece.n > 0)
        set->tokens[set->n++] = token;
    return CALM_OK;
}

/* Makes an empty list with capacity n. */
static calm_status begin_list(calm_ctx *ctx, const calm_tokenizer *tok, size_t n, listing *list)
{
    *list = (listing){.highest = CALM_NO_TOKEN};
    for (size_t id = 0; id < tok->n_ids; id++)
        list->n_model += tok->tokens[id].piece.text != NULL;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, list->of, n + 1));
    return calm_vocab_init(ctx, ctx->scratch, &list->seen, n);
}

calm_status calm_tokenizer_read_added(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json)
{
    size_t n = calm_json_size(json);
    listing list;
    char *place;
    if (calm_json_typeof(json) != CALM_JSON_NULL)
        CALM_TRY(calm_json_expect(ctx, json, CALM_JSON_ARRAY, "%s", where));
    CALM_TRY(CALM_NEW(ctx, &tok->arena, tok->raw.tokens, n));
    CALM_TRY(CALM_NEW(ctx, &tok->arena, tok->normalized.tokens, n));
    CALM_TRY(begin_list(ctx, tok, n, &list));
    for (size_t i = 0; i < n; i++) {
        CALM_TRY(calm_strf(ctx, ctx->scratch, &place, "%s[%zu]", where, i));
        CALM_TRY(read_token(ctx, tok, place, calm_json_at(json, i), &list));
    }
    for (size_t i = 0; i < list.n; i++)
        CALM_TRY(enter_token(ctx, tok, &list.of[i]));
    finish_set(&tok->raw);
    finish_set(&tok->normalized);
    /* A vocabulary may contain the text of a special token twice: every token with that text is special. */
    for (size_t id = 0; n > 0 && id < tok->n_ids; id++) {
        const calm_piece piece = tok->tokens[id].piece;
        const uint32_t known = piece.text ? calm_vocab_find(&tok->vocab, piece.text, piece.n) : CALM_NO_TOKEN;
        if (known != CALM_NO_TOKEN)
            tok->tokens[id].special |= tok->tokens[known].special;
    }
    return CALM_OK;
}
