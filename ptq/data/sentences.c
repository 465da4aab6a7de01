/* Sentences as windows. */
#include "ptq/data/sentences.h"

#include <string.h>

#include "ptq/base/array.h"
#include "ptq/data/texts.h"

/* What is read, and the ids so far, in ctx->scratch. */
typedef struct reader {
    const calm_tokenizer *tokenizer;
    calm_texts texts;
    size_t seqlen, samples, n_spread, vocab;
    calm_token_file out;
    size_t ids_capacity, capacity;    /* of out.ids; of out.begin */
} reader;

/* Shorten ids [*n] to seqlen: `before` special tokens, the text's first ones, the special tokens after it. */
static calm_status shorten(calm_ctx *ctx, calm_arena *arena, const reader *r, const char *text, size_t n_bytes,
                           uint32_t *ids, size_t *n)
{
    const char *where = r->texts.where;
    uint32_t *plain;
    size_t n_plain, before = 0;
    CALM_TRY(calm_texts_encode(ctx, arena, r->tokenizer, where, text, n_bytes, false, &plain, &n_plain));
    const size_t special = *n - n_plain;
    if (n_plain > *n || special >= r->seqlen)
        return calm_fail(ctx, CALM_EARG, "%s: sentences of %zu tokens have no room beside the special ones", where,
                         r->seqlen);
    while (before <= special && memcmp(ids + before, plain, n_plain * sizeof *ids) != 0)
        before++;
    if (before > special)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: the tokenizer's template puts special tokens within a text, "
                         "which cannot be shortened", where);
    const size_t kept = r->seqlen - special;
    memmove(ids + before + kept, ids + before + n_plain, (special - before) * sizeof *ids);
    *n = r->seqlen;
    return CALM_OK;
}

static calm_status keep(calm_ctx *ctx, reader *r, const uint32_t *ids, size_t n)
{
    calm_token_file *out = &r->out;
    const size_t used = out->n ? out->begin[out->n] : 0;
    CALM_TRY(calm_texts_check_ids(ctx, r->texts.where, ids, n, r->vocab));
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
    /* Ids before they are shortened go to an arena of their own: a file's would not fit beside the kept ones. */
    CALM_SCOPED_ARENA(arena);
    uint32_t *ids;
    size_t n;
    CALM_TRY(calm_texts_encode(ctx, &arena, r->tokenizer, r->texts.where, text, n_bytes, true, &ids, &n));
    if (n > r->seqlen)
        CALM_TRY(shorten(ctx, &arena, r, text, n_bytes, ids, &n));
    return keep(ctx, r, ids, n);
}

static calm_status read_sentences(calm_ctx *ctx, reader *r)
{
    const char *text;
    size_t n_bytes;
    /* Where they are spread depends on how many there are: then all are read. */
    while (!r->samples || r->n_spread || r->out.n < r->samples) {
        CALM_TRY(calm_texts_next(ctx, &r->texts, &text, &n_bytes));
        if (!text)
            break;
        CALM_TRY(add_sentence(ctx, r, text, n_bytes));
    }
    return r->out.n ? CALM_OK : calm_fail(ctx, CALM_EARG, "%s: no sentence in it", r->texts.path);
}

/* Keep the wanted ones of all, which rise: each moves towards the front. */
static void keep_spread(reader *r)
{
    calm_token_file *out = &r->out;
    const size_t available = out->n;
    if (!r->n_spread || !r->samples || available <= r->samples)
        return;
    out->longest = 0;
    for (out->n = 0; out->n < r->samples; out->n++) {
        const size_t from = calm_windows_place(out->n, r->samples, r->n_spread, available);
        const size_t begin = out->begin[from], n = out->begin[from + 1] - begin;
        memmove(out->ids + out->begin[out->n], out->ids + begin, n * sizeof *out->ids);
        out->begin[out->n + 1] = out->begin[out->n] + n;
        out->longest = calm_size_max(out->longest, n);
    }
}

calm_status calm_sentences_read(calm_ctx *ctx, const calm_tokenizer *tokenizer, const char *path, size_t seqlen,
                                size_t samples, size_t n_spread, size_t vocab, calm_windows *out)
{
    reader r = {.tokenizer = tokenizer, .seqlen = seqlen, .samples = samples, .n_spread = n_spread, .vocab = vocab};
    CALM_SCOPED_SCRATCH(ctx);
    if (calm_texts_open(ctx, path, SIZE_MAX, &r.texts) == CALM_OK)
        read_sentences(ctx, &r);
    calm_texts_close(&r.texts);
    CALM_TRY(ctx->status);
    keep_spread(&r);
    return calm_windows_from_sequences(ctx, &r.out, out);
}
