/* Texts of a file: lines, or documents of JSON. */
#include "ptq/data/texts.h"

#include <stdio.h>
#include <string.h>

#include "ptq/base/message.h"
#include "ptq/data/gunzip.h"
#include "ptq/data/raw_text.h"

#define KEYS_MAX 8    /* maximum number of keys that a message names */
#define UNZIPPED_MAX ((size_t)4 * 1024 * 1024 * 1024)

/* Returns whether a path ends with `ending`, or with `ending` and ".gz", behind at least one character. */
static bool has_ending(const char *path, const char *ending)
{
    char zipped[16];
    snprintf(zipped, sizeof zipped, "%s.gz", ending);
    return path[0] && (calm_text_ends_with(path + 1, ending) || calm_text_ends_with(path + 1, zipped));
}

static calm_status open_bytes(calm_ctx *ctx, const char *path, size_t limit, calm_texts *out)
{
    *out = (calm_texts){.path = path};
    snprintf(out->where, sizeof out->where, "%s", path);
    CALM_TRY(calm_map_file_within(ctx, path, limit, &out->map));
    out->text = (const char *)out->map.data;
    out->n = out->map.bytes;
    if (calm_gunzip_is(out->text, out->n)) {
        CALM_TRY(calm_gunzip(ctx, path, out->text, out->n, calm_size_min(limit, UNZIPPED_MAX), &out->unzipped));
        out->text = out->unzipped.data ? out->unzipped.data : "";
        out->n = out->unzipped.length;
    }
    CALM_TRY(calm_raw_text_check(ctx, path, out->text, out->n));
    const size_t mark = calm_raw_text_mark(out->text, out->n);
    out->text += mark;
    out->n -= mark;
    return CALM_OK;
}

static calm_status begin(calm_ctx *ctx, calm_texts *texts)
{
    CALM_TRY(calm_raw_text_repair(ctx, texts->is_json, &texts->copy, &texts->text, &texts->n));
    texts->lines = (calm_lines){.text = texts->text, .n = texts->n};
    return CALM_OK;
}

calm_status calm_texts_open_json(calm_ctx *ctx, const char *path, size_t limit, calm_texts *out)
{
    CALM_TRY(open_bytes(ctx, path, limit, out));
    out->is_json = true;
    return begin(ctx, out);
}

/* Returns whether the first non-blank line is a JSON value other than an array, as in JSON lines. */
static bool first_line_is_document(calm_ctx *ctx, const calm_texts *texts)
{
    CALM_SCOPED_JSON(json);
    calm_lines lines = {.text = texts->text, .n = texts->n};
    const char *line;
    size_t n;
    if (!calm_lines_next(&lines, &line, &n))
        return true;
    if (calm_json_parse(ctx, texts->path, line, n, &json) != CALM_OK)
        calm_ctx_clear_failure(ctx);
    return json && calm_json_typeof(json) != CALM_JSON_ARRAY;
}

/* Parses the whole file as one JSON value. */
static calm_status parse_whole(calm_ctx *ctx, calm_texts *texts)
{
    char message[CALM_MESSAGE_MAX];
    if (calm_json_parse(ctx, texts->path, texts->text, texts->n, &texts->whole) == CALM_OK)
        return CALM_OK;
    snprintf(message, sizeof message, "%s", ctx->message);
    calm_ctx_clear_failure(ctx);
    return calm_fail(ctx, CALM_EARG, "%s; a text that begins like JSON is not read as running text", message);
}

calm_status calm_texts_open(calm_ctx *ctx, const char *path, size_t limit, calm_texts *out)
{
    const calm_status opened = open_bytes(ctx, path, limit, out);
    if (opened == CALM_ENOTFOUND) {
        calm_ctx_clear_failure(ctx);
        return calm_fail(ctx, opened, "%s: no such file; expected a text, or JSON documents: calm reads texts from "
                         "files, and without one takes the bundled WikiText-2", path);
    }
    CALM_TRY(opened);
    const bool begins_json = calm_raw_text_begins_json(out->text, out->n), lines = has_ending(path, ".jsonl");
    out->is_json = begins_json || lines || has_ending(path, ".json");
    CALM_TRY(begin(ctx, out));
    const size_t first = begins_json ? strspn(out->text, " \t\r\n") : 0;
    const bool array = begins_json && out->text[first] == '[';
    if (out->is_json && (array || (!lines && !first_line_is_document(ctx, out))))
        return parse_whole(ctx, out);
    return CALM_OK;
}

void calm_texts_close(calm_texts *texts)
{
    calm_json_free(texts->json);
    calm_json_free(texts->whole);
    texts->json = texts->whole = NULL;
    calm_text_clear(&texts->copy);
    calm_text_clear(&texts->unzipped);
    calm_text_clear(&texts->rendered);
    calm_unmap_file(&texts->map);
}

static bool next_line(calm_texts *texts, const char **line, size_t *n)
{
    if (!calm_lines_next(&texts->lines, line, n))
        return false;
    snprintf(texts->where, sizeof texts->where, "%s: line %zu", texts->path, texts->lines.number);
    return true;
}

calm_status calm_texts_next_json(calm_ctx *ctx, calm_texts *texts, size_t line_max, const calm_json **out)
{
    const char *line;
    size_t n;
    *out = NULL;
    calm_json_free(texts->json);
    texts->json = NULL;
    if (!next_line(texts, &line, &n))
        return CALM_OK;
    if (line_max && n > line_max)
        return calm_fail(ctx, CALM_EFORMAT, "%s: expected at most %zu bytes, found %zu", texts->where, line_max, n);
    CALM_TRY(calm_json_parse(ctx, texts->where, line, n, &texts->json));
    *out = texts->json;
    return CALM_OK;
}

/* Returns the next document in *out: a JSON line, or an element of the file's array, or the file's only value; NULL
 * at the end. */
static calm_status next_document(calm_ctx *ctx, calm_texts *texts, const calm_json **out)
{
    const bool array = calm_json_typeof(texts->whole) == CALM_JSON_ARRAY;
    if (!texts->whole)
        return calm_texts_next_json(ctx, texts, 0, out);
    *out = array ? calm_json_at(texts->whole, texts->n_read) : texts->n_read ? NULL : texts->whole;
    texts->n_read++;
    if (array && *out)
        snprintf(texts->where, sizeof texts->where, "%s: document %zu", texts->path, texts->n_read);
    return CALM_OK;
}

/* Fails with CALM_EFORMAT: `json` is not a document; the message names its keys. */
static calm_status refuse_document(calm_ctx *ctx, const calm_texts *texts, const calm_json *json)
{
    CALM_SCOPED_TEXT(keys);
    const calm_json *value, *text = calm_json_get(json, "text");
    const char *key;
    size_t n = 0;
    if (text || calm_json_typeof(json) != CALM_JSON_OBJECT)
        return calm_fail(ctx, CALM_EFORMAT, "%s: expected a string or an object with \"text\", a string; found %s",
                         texts->where, calm_json_type_name(calm_json_typeof(text ? text : json)));
    for (void *iter = NULL; n < KEYS_MAX && calm_json_next(json, &iter, &key, &value); n++)
        calm_text_printf(&keys, "%s\"%.40s\"", n ? ", " : "", key);
    CALM_TRY(calm_text_check(ctx, &keys));
    return calm_fail(ctx, CALM_EFORMAT, "%s: expected a string or an object with \"text\", found the keys %s%s",
                     texts->where, n ? keys.data : "of an empty object", calm_json_size(json) > n ? ", ..." : "");
}

calm_status calm_texts_next(calm_ctx *ctx, calm_texts *texts, const char **text, size_t *n)
{
    const calm_json *document;
    *text = NULL;
    if (!texts->is_json) {
        next_line(texts, text, n);
        while (*text && *n && (*text)[*n - 1] == '\r')
            --*n;
        return CALM_OK;
    }
    CALM_TRY(next_document(ctx, texts, &document));
    if (!document)
        return CALM_OK;
    const bool object = calm_json_typeof(document) == CALM_JSON_OBJECT;
    const calm_json *string = object ? calm_json_get(document, "text") : document;
    texts->is_chat = texts->chat && calm_json_typeof(string) == CALM_JSON_NULL && calm_chat_is(document);
    if (texts->is_chat) {
        CALM_TRY(calm_chat_render(ctx, texts->chat, texts->where, document, &texts->rendered));
        *text = texts->rendered.data ? texts->rendered.data : "";
        *n = texts->rendered.length;
        return CALM_OK;
    }
    if (calm_json_typeof(string) != CALM_JSON_STRING)
        return refuse_document(ctx, texts, document);
    *text = calm_json_string(string, "");
    *n = calm_json_string_length(string);
    return CALM_OK;
}

calm_status calm_texts_encode(calm_ctx *ctx, calm_arena *arena, const calm_tokenizer *tokenizer, const char *where,
                              const char *text, size_t n_bytes, bool special, uint32_t **ids, size_t *n)
{
    CALM_SCOPED_OUT(ctx, arena);
    calm_tokenizer_encode(ctx, tokenizer, text, n_bytes, special, ids, n);
    return calm_fail_prefix(ctx, "%s", where);    /* the tokenizer does not know the text's file         */
}

calm_status calm_texts_check_ids(calm_ctx *ctx, const char *where, const uint32_t *ids, size_t n, size_t vocab)
{
    for (size_t i = 0; vocab && i < n; i++)
        if (ids[i] >= vocab)
            return calm_fail(ctx, CALM_EFORMAT,
                             "%s: token %zu has id %u, but the model's vocabulary has %zu: tokenizer and model do not "
                             "belong together", where, i, ids[i], vocab);
    return CALM_OK;
}
