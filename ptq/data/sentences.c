/* Windows of one sentence each. */
#include "ptq/data/sentences.h"

#include <string.h>

#include "ptq/base/array.h"
#include "ptq/data/texts.h"

/* Texts of a file, and the ids of the sentences so far, in ctx->scratch. */
typedef struct reader {
    const calm_tokenizer *tokenizer;
    calm_texts texts;
    calm_windows_options options;
    calm_token_file out;
    size_t ids_capacity, capacity;    /* of out.ids and out.begin */
} reader;

/* Shortens ids [*n] to seqlen tokens: the special tokens before the text, its first tokens, the special tokens
 * after it. */
static calm_status shorten(calm_ctx *ctx, calm_arena *arena, const reader *r, const char *text, size_t n_bytes,
                           uint32_t *ids, size_t *n)
{
    const char *where = r->texts.where;
    uint32_t *plain;
    size_t n_plain, before = 0;
    CALM_TRY(calm_texts_encode(ctx, arena, r->tokenizer, where, text, n_bytes, false, &plain, &n_plain));
    const size_t special = *n - n_plain;
    if (n_plain > *n || special >= r->options.seqlen)
        return calm_fail(ctx, CALM_EARG, "%s: sentences of %zu tokens have no room next to the special ones", where,
                         r->options.seqlen);
    while (before <= special && memcmp(ids + before, plain, n_plain * sizeof *ids) != 0)
        before++;
    if (before > special)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: the tokenizer's template puts special tokens within a text, "
                         "which cannot be shortened", where);
    const size_t kept = r->options.seqlen - special;
    memmove(ids + before + kept, ids + before + n_plain, (special - before) * sizeof *ids);
    *n = r->options.seqlen;
    return CALM_OK;
}

static calm_status keep(calm_ctx *ctx, reader *r, const uint32_t *ids, size_t n)
{
    calm_token_file *out = &r->out;
    const size_t used = out->n ? out->begin[out->n] : 0;
    CALM_TRY(calm_texts_check_ids(ctx, r->texts.where, ids, n, r->options.vocab));
    if (n == 0)
        return calm_fail(ctx, CALM_EFORMAT, "%s: a sentence without a token", r->texts.where);
    CALM_TRY(CALM_GROW(ctx, ctx->scratch, out->ids, used, &r->ids_capacity, used + n));
    CALM_TRY(CALM_GROW(ctx, ctx->scratch, out->begin, out->n ? out->n + 1 : 0, &r->capacity, out->n + 2));
    memcpy(out->ids + used, ids, n * sizeof *ids);
    out->begin[0] = 0;
    out->begin[++out->n] = used + n;
    out->longest = calm_size_max(out->longest, n);
    return CALM_OK;
}

static calm_status add_sentence(calm_ctx *ctx, reader *r, const char *text, size_t n_bytes)
{
    /* Unshortened ids go to a separate arena: those of a whole file would not fit next to the kept ids. */
    CALM_SCOPED_ARENA(arena);
    uint32_t *ids;
    size_t n;
    const size_t n_prompt = r->options.prompt ? strlen(r->options.prompt) : 0;
    if (n_prompt) {
        char *whole;
        CALM_TRY(CALM_NEW_RAW(ctx, &arena, whole, n_prompt + n_bytes));
        memcpy(whole, r->options.prompt, n_prompt);
        memcpy(whole + n_prompt, text, n_bytes);
        text = whole;
        n_bytes += n_prompt;
    }
    CALM_TRY(calm_texts_encode(ctx, &arena, r->tokenizer, r->texts.where, text, n_bytes, true, &ids, &n));
    if (n > r->options.seqlen)
        CALM_TRY(shorten(ctx, &arena, r, text, n_bytes, ids, &n));
    return keep(ctx, r, ids, n);
}

static calm_status read_sentences(calm_ctx *ctx, reader *r)
{
    const char *text;
    size_t n_bytes;
    /* The choice of drawn or spread sentences depends on their number, so all are read. */
    const bool all = !r->options.n_windows || r->options.n_spread || r->options.seed >= 0;
    while (all || r->out.n < r->options.n_windows) {
        CALM_TRY(calm_texts_next(ctx, &r->texts, &text, &n_bytes));
        if (!text)
            break;
        CALM_TRY(add_sentence(ctx, r, text, n_bytes));
    }
    return r->out.n ? CALM_OK : calm_fail(ctx, CALM_EARG, "%s: no sentence in it", r->texts.path);
}

/* Copies the chosen sentences to `out`: drawn sentences have no order that would allow moving them in place. */
static calm_status keep_chosen(calm_ctx *ctx, reader *r, calm_token_file *out)
{
    const calm_token_file *all = &r->out;
    size_t *chosen, total = 0;
    *out = (calm_token_file){0};
    CALM_TRY(calm_windows_choose(ctx, &r->options, all->n, &out->n, &chosen));
    for (size_t i = 0; i < out->n; i++)
        total += all->begin[chosen[i] + 1] - all->begin[chosen[i]];
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, out->ids, total));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, out->begin, out->n + 1));
    for (size_t i = 0; i < out->n; i++) {
        const size_t from = all->begin[chosen[i]], n = all->begin[chosen[i] + 1] - from;
        memcpy(out->ids + out->begin[i], all->ids + from, n * sizeof *out->ids);
        out->begin[i + 1] = out->begin[i] + n;
        out->longest = calm_size_max(out->longest, n);
    }
    return CALM_OK;
}

calm_status calm_sentences_read(calm_ctx *ctx, const calm_tokenizer *tokenizer, const char *path,
                                const calm_windows_options *options, calm_windows *out)
{
    reader r = {.tokenizer = tokenizer, .options = *options};
    calm_token_file chosen;
    CALM_SCOPED_SCRATCH(ctx);
    const calm_status opened = calm_texts_open(ctx, path, SIZE_MAX, &r.texts);
    r.texts.chat = options->chat;
    if (opened == CALM_OK)
        read_sentences(ctx, &r);
    calm_texts_close(&r.texts);
    CALM_TRY(ctx->status);
    CALM_TRY(keep_chosen(ctx, &r, &chosen));
    return calm_windows_from_sequences(ctx, &chosen, out);
}
