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
        /* What a token took to its right may hold another token: then nothing is between. */
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

/* Added tokens as the file lists them, each text once. */
typedef struct listed {
    calm_added token;      /* its piece as it is written                            */
    bool normalized, special;
} listed;

typedef struct listing {
    listed *of;            /* [n]                                                   */
    size_t n;
    calm_vocab seen;       /* texts with their places in `of`                       */
    size_t n_model;        /* tokens of the model                                   */
    uint32_t highest;      /* id of an added token; CALM_NO_TOKEN: there is none    */
    bool renumbered;       /* an id was other than the file says: said once         */
} listing;

static bool is_taken(const calm_tokenizer *tok, uint32_t id)
{
    return id < tok->n_ids && tok->tokens[id].piece.text;
}

/* The id of a text that is listed for the first time.  The library takes the model's, else the next one, whatever the
 * file says.  Here the file's counts as long as it can: until one is taken, or an entry before had another. */
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

/* Where the text belongs in the list: the place that it has already, or a new one, with its id. */
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

/* One more entry.  Of a text that is listed again the library takes what the last entry says; special it stays. */
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

/* Enter the token in the table of ids, and among those that are looked for. */
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
        /* The library decodes such a token as what it looks for, and what is special is the text as written. */
        if (!calm_piece_equal(found.piece, token.piece))
            entry->special = false;
        token.piece = (calm_piece){kept, found.piece.n};
        entry->piece = token.piece;
    }
    /* Nothing can be found by an empty text. */
    calm_added_set *set = from->normalized ? &tok->normalized : &tok->raw;
    if (token.piece.n > 0)
        set->tokens[set->n++] = token;
    return CALM_OK;
}

/* An empty list with room for n. */
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
    /* A list of pieces may have the text of a special token twice; what is special is the text. */
    for (size_t id = 0; n > 0 && id < tok->n_ids; id++) {
        const calm_piece piece = tok->tokens[id].piece;
        const uint32_t known = piece.text ? calm_vocab_find(&tok->vocab, piece.text, piece.n) : CALM_NO_TOKEN;
        if (known != CALM_NO_TOKEN)
            tok->tokens[id].special |= tok->tokens[known].special;
    }
    return CALM_OK;
}
