/* Texts of a file. */
#include "ptq/data/texts.h"

#include <stdio.h>
#include <string.h>

#include "ptq/base/message.h"

calm_status calm_texts_open(calm_ctx *ctx, const char *path, size_t limit, calm_texts *out)
{
    *out = (calm_texts){.path = path, .is_json = path[0] && calm_text_ends_with(path + 1, ".jsonl")};
    snprintf(out->where, sizeof out->where, "%s", path);
    CALM_TRY(calm_map_file_within(ctx, path, limit, &out->map));
    out->lines = (calm_lines){.text = (const char *)out->map.data, .n = out->map.bytes};
    return CALM_OK;
}

void calm_texts_close(calm_texts *texts)
{
    calm_json_free(texts->json);
    texts->json = NULL;
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

calm_status calm_texts_next(calm_ctx *ctx, calm_texts *texts, const char **text, size_t *n)
{
    const calm_json *json;
    *text = NULL;
    if (!texts->is_json) {
        next_line(texts, text, n);
        while (*text && *n && (*text)[*n - 1] == '\r')
            --*n;
        return CALM_OK;
    }
    CALM_TRY(calm_texts_next_json(ctx, texts, 0, &json));
    if (!json)
        return CALM_OK;
    if (calm_json_typeof(json) == CALM_JSON_OBJECT)
        json = calm_json_get(json, "text");
    if (calm_json_typeof(json) != CALM_JSON_STRING)
        return calm_fail(ctx, CALM_EFORMAT, "%s: expected a string or an object with \"text\"", texts->where);
    *text = calm_json_string(json, "");
    *n = calm_json_string_length(json);
    return CALM_OK;
}

calm_status calm_texts_encode(calm_ctx *ctx, calm_arena *arena, const calm_tokenizer *tokenizer, const char *where,
                              const char *text, size_t n_bytes, bool special, uint32_t **ids, size_t *n)
{
    CALM_SCOPED_OUT(ctx, arena);
    calm_tokenizer_encode(ctx, tokenizer, text, n_bytes, special, ids, n);
    return calm_fail_prefix(ctx, "%s", where);    /* the tokenizer does not know where a text comes from */
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
