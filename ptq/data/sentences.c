/* Sentences as windows. */
#include "ptq/data/sentences.h"

#include <string.h>

#include "ptq/base/file.h"
#include "ptq/io/json.h"
#include "ptq/text/lines.h"
#include "ptq/tokenizer/tokenizer.h"

/* What is read, and the ids so far. */
typedef struct reader {
    const calm_tokenizer *tokenizer;
    const char *path, *where;    /* where: file and line */
    size_t seqlen, samples, vocab;
    bool json;
    calm_token_file out;
    size_t ids_capacity, capacity;    /* of out.ids; of out.begin, less one */
} reader;

/* The tokenizer does not know where a text comes from. */
static calm_status encode(calm_ctx *ctx, const reader *r, const char *text, size_t n_bytes, bool special,
                          uint32_t **ids, size_t *n)
{
    char reason[CALM_MESSAGE_MAX];
    const calm_status status = calm_tokenizer_encode(ctx, r->tokenizer, text, n_bytes, special, ids, n);
    if (status == CALM_OK)
        return CALM_OK;
    memcpy(reason, ctx->message, sizeof reason);
    calm_ctx_forgive(ctx);
    return calm_fail(ctx, status, "%s: %s", r->where, reason);
}

/* Shorten ids [*n] to seqlen: `before` special tokens, the text's first ones, the special tokens after it. */
static calm_status shorten(calm_ctx *ctx, const reader *r, const char *text, size_t n_bytes, uint32_t *ids, size_t *n)
{
    uint32_t *plain;
    size_t n_plain, before = 0;
    CALM_TRY(encode(ctx, r, text, n_bytes, false, &plain, &n_plain));
    const size_t special = *n - n_plain;
    if (n_plain > *n || special >= r->seqlen)
        return calm_fail(ctx, CALM_EARG, "%s: sentences of %zu tokens have no room beside the special ones", r->where,
                         r->seqlen);
    while (before <= special && memcmp(ids + before, plain, n_plain * sizeof *ids) != 0)
        before++;
    if (before > special)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: the tokenizer's template puts special tokens within a text, "
                         "which cannot be shortened", r->where);
    const size_t kept = r->seqlen - special;
    memmove(ids + before + kept, ids + before + n_plain, (special - before) * sizeof *ids);
    *n = r->seqlen;
    return CALM_OK;
}

/* A larger copy of an array, in ctx->scratch. */
static calm_status grow(calm_ctx *ctx, const void *old, size_t used, size_t capacity, size_t size, void *out)
{
    void *fresh;
    CALM_TRY(calm_alloc(ctx, ctx->scratch, &fresh, capacity, size, "sentences"));
    if (used)
        memcpy(fresh, old, used * size);
    memcpy(out, &fresh, sizeof fresh);
    return CALM_OK;
}

static calm_status keep(calm_ctx *ctx, reader *r, const uint32_t *ids, size_t n)
{
    calm_token_file *out = &r->out;
    const size_t used = out->n ? out->begin[out->n] : 0;
    for (size_t i = 0; i < n; i++)
        if (r->vocab && ids[i] >= r->vocab)
            return calm_fail(ctx, CALM_EFORMAT, "%s: token %zu has id %u, but the model's vocabulary has %zu: "
                             "tokenizer and model do not belong together", r->where, i, ids[i], r->vocab);
    if (n == 0)
        return calm_fail(ctx, CALM_EFORMAT, "%s: a sentence without a token", r->where);
    if (used + n > r->ids_capacity) {
        r->ids_capacity = 2 * (used + n);
        CALM_TRY(grow(ctx, out->ids, used, r->ids_capacity, sizeof *out->ids, &out->ids));
    }
    if (out->n == r->capacity) {
        r->capacity = 2 * r->capacity + 64;
        CALM_TRY(grow(ctx, out->begin, out->n ? out->n + 1 : 0, r->capacity + 1, sizeof *out->begin, &out->begin));
    }
    memcpy(out->ids + used, ids, n * sizeof *ids);
    out->begin[++out->n] = used + n;
    out->longest = n > out->longest ? n : out->longest;
    return CALM_OK;
}

static calm_status add_sentence(calm_ctx *ctx, reader *r, const char *text, size_t n_bytes)
{
    calm_arena arena, *caller = ctx->out;
    uint32_t *ids;
    size_t n;
    calm_arena_init(&arena);
    ctx->out = &arena;
    calm_status status = encode(ctx, r, text, n_bytes, true, &ids, &n);
    if (status == CALM_OK && n > r->seqlen)
        status = shorten(ctx, r, text, n_bytes, ids, &n);
    ctx->out = caller;
    if (status == CALM_OK)
        status = keep(ctx, r, ids, n);
    calm_arena_clear(&arena);
    return status;
}

static calm_status add_line(calm_ctx *ctx, reader *r, const char *line, size_t n_bytes)
{
    calm_json *json;
    if (!r->json) {
        while (n_bytes && line[n_bytes - 1] == '\r')
            n_bytes--;
        return add_sentence(ctx, r, line, n_bytes);
    }
    CALM_TRY(calm_json_parse(ctx, r->where, line, n_bytes, &json));
    const calm_json *text = calm_json_typeof(json) == CALM_JSON_OBJECT ? calm_json_get(json, "text") : json;
    calm_status status;
    if (calm_json_typeof(text) != CALM_JSON_STRING)
        status = calm_fail(ctx, CALM_EFORMAT, "%s: expected a string or an object with \"text\"", r->where);
    else
        status = add_sentence(ctx, r, calm_json_string(text, ""), calm_json_string_length(text));
    calm_json_free(json);
    return status;
}

static calm_status read_lines(calm_ctx *ctx, reader *r, const char *text, size_t n)
{
    calm_lines lines = {.text = text, .n = n};
    const char *line;
    size_t n_bytes;
    char *where;
    while ((!r->samples || r->out.n < r->samples) && calm_lines_next(&lines, &line, &n_bytes)) {
        CALM_TRY(calm_strf(ctx, ctx->scratch, &where, "%s: line %zu", r->path, lines.number));
        r->where = where;
        CALM_TRY(add_line(ctx, r, line, n_bytes));
    }
    return r->out.n ? CALM_OK : calm_fail(ctx, CALM_EARG, "%s: no sentence in it", r->path);
}

calm_status calm_sentences_read(calm_ctx *ctx, const calm_tokenizer *tokenizer, const char *path, size_t seqlen,
                                size_t samples, size_t vocab, calm_windows *out)
{
    const size_t length = strlen(path);
    reader r = {.tokenizer = tokenizer, .path = path, .seqlen = seqlen, .samples = samples, .vocab = vocab,
                .json = length > 6 && strcmp(path + length - 6, ".jsonl") == 0};
    const calm_arena_mark mark = calm_arena_save(ctx->scratch);
    calm_mapping map;
    CALM_TRY(calm_map_file(ctx, path, &map));
    calm_status status = read_lines(ctx, &r, map.data ? (const char *)map.data : "", map.bytes);
    calm_unmap_file(&map);
    if (status == CALM_OK)
        status = calm_windows_from_sequences(ctx, &r.out, out);
    calm_arena_rewind(ctx->scratch, mark);
    return status;
}
