/* Reading of token files: the first pass counts, the second fills. */
#include "ptq/data/token_file.h"

#include <string.h>

#include "ptq/data/texts.h"

/* Maximum bytes of a file; also limits the size of each array. */
#define FILE_MAX ((size_t)4 * 1024 * 1024 * 1024)

/* State of reading a token file.  Its arrays have room for as many ids as the text has "," and "[". */
typedef struct reader {
    calm_token_file *out;
    calm_texts texts;
    size_t vocab;
    size_t n_ids;
    bool masked, typed;   /* whether a line has a mask, types */
} reader;

static calm_status read_number(calm_ctx *ctx, const reader *r, const char *key, const calm_json *list, size_t i,
                               int64_t limit, int64_t *out)
{
    const calm_json *value = calm_json_at(list, i);
    *out = calm_json_int(value, -1);
    CALM_TRY(calm_json_expect(ctx, value, CALM_JSON_INT, "%s: %s[%zu]", r->texts.where, key, i));
    if (*out < 0 || *out >= limit)
        return calm_fail(ctx, CALM_EFORMAT, "%s: %s[%zu]: expected 0 to %lld, found %lld", r->texts.where, key, i,
                         (long long)limit - 1, (long long)*out);
    return CALM_OK;
}

/* Reads the n bytes of `key`, one per id, or sets all to `fallback` if the key is absent. */
static calm_status read_bytes(calm_ctx *ctx, const reader *r, const calm_json *json, const char *key, size_t n,
                              int64_t limit, uint8_t fallback, bool *present, uint8_t *out)
{
    const calm_json *list = calm_json_get(json, key);
    int64_t value;
    memset(out, fallback, n);
    if (calm_json_typeof(list) == CALM_JSON_NULL)
        return CALM_OK;
    if (calm_json_typeof(list) != CALM_JSON_ARRAY || calm_json_size(list) != n)
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"%s\": expected an array of %zu, as many as \"ids\", found %s of %zu",
                         r->texts.where, key, n, calm_json_type_name(calm_json_typeof(list)), calm_json_size(list));
    for (size_t i = 0; i < n; i++) {
        CALM_TRY(read_number(ctx, r, key, list, i, limit, &value));
        out[i] = (uint8_t)value;
    }
    *present = true;
    return CALM_OK;
}

static calm_status read_sequence(calm_ctx *ctx, reader *r, const calm_json *json)
{
    calm_token_file *out = r->out;
    const calm_json *list = calm_json_get(json, "ids");
    const size_t n = calm_json_size(list), at = r->n_ids;
    const int64_t limit = r->vocab ? (int64_t)r->vocab : UINT32_MAX;
    int64_t id;
    if (calm_json_typeof(list) != CALM_JSON_ARRAY || n == 0)
        return calm_fail(ctx, CALM_EFORMAT, "%s: expected {\"ids\": [...]} with at least one id", r->texts.where);
    for (size_t i = 0; i < n; i++) {
        CALM_TRY(read_number(ctx, r, "ids", list, i, limit, &id));
        out->ids[at + i] = (uint32_t)id;
    }
    CALM_TRY(read_bytes(ctx, r, json, "mask", n, 2, 1, &r->masked, out->mask + at));
    CALM_TRY(read_bytes(ctx, r, json, "types", n, 256, 0, &r->typed, out->types + at));
    if (!memchr(out->mask + at, 1, n))
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"mask\": all of the sequence is padding", r->texts.where);
    r->n_ids += n;
    out->begin[++out->n] = r->n_ids;
    out->longest = calm_size_max(out->longest, n);
    return CALM_OK;
}

static calm_status read_lines(calm_ctx *ctx, reader *r)
{
    for (;;) {
        const calm_json *json;
        CALM_TRY(calm_texts_next_json(ctx, &r->texts, 0, &json));
        if (!json)
            break;
        r->out->line[r->out->n] = r->texts.lines.number;
        CALM_TRY(read_sequence(ctx, r, json));
    }
    return r->out->n ? CALM_OK : calm_fail(ctx, CALM_EARG, "%s: no sequence of ids in it", r->out->path);
}

static calm_status read_text(calm_ctx *ctx, reader *r)
{
    const calm_texts *texts = &r->texts;
    size_t n_lines = 1, n_numbers = 1;
    for (size_t i = 0; i < texts->n; i++) {
        n_lines += texts->text[i] == '\n';
        n_numbers += texts->text[i] == ',' || texts->text[i] == '[';
    }
    CALM_TRY(calm_strf(ctx, ctx->out, &r->out->path, "%s", r->out->path));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, r->out->ids, n_numbers));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, r->out->mask, n_numbers));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, r->out->types, n_numbers));
    CALM_TRY(CALM_NEW(ctx, ctx->out, r->out->begin, n_lines + 1));
    CALM_TRY(CALM_NEW(ctx, ctx->out, r->out->line, n_lines));
    CALM_TRY(read_lines(ctx, r));
    r->out->mask = r->masked ? r->out->mask : NULL;
    r->out->types = r->typed ? r->out->types : NULL;
    return CALM_OK;
}

calm_status calm_token_file_read(calm_ctx *ctx, const char *path, size_t vocab, calm_token_file *out)
{
    *out = (calm_token_file){.path = path};
    reader r = {.out = out, .vocab = vocab};
    if (calm_texts_open_json(ctx, path, FILE_MAX, &r.texts) == CALM_OK)
        read_text(ctx, &r);
    calm_texts_close(&r.texts);
    return ctx->status;
}
