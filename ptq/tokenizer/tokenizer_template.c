/* Post-processors: the special tokens around a text.
 *
 * Of a template only "single" matters here, and in it the one place of the text: what comes before and what comes
 * after.  A Sequence puts each next template around all before it. */
#include <string.h>

#include "ptq/tokenizer/tokenizer_parts.h"

/* Ids of one special token of the template into ids [capacity], counting on from *n. */
static calm_status expand(calm_ctx *ctx, const calm_tokenizer *tok, const char *where, const calm_json *json,
                          const char *name, uint32_t **ids, size_t *n)
{
    const calm_json *list = calm_json_get(calm_json_get(calm_json_get(json, "special_tokens"), name), "ids");
    uint32_t *longer;
    if (calm_json_typeof(list) != CALM_JSON_ARRAY)
        return calm_fail(ctx, CALM_EFORMAT, "%s.special_tokens: no ids for \"%.60s\"", where, name);
    size_t count = calm_json_size(list);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, longer, *n + count));
    if (*n)
        memcpy(longer, *ids, *n * sizeof *longer);
    for (size_t i = 0; i < count; i++) {
        int64_t id = calm_json_int(calm_json_at(list, i), -1);
        if (id < 0 || (uint64_t)id >= tok->n_ids || !tok->tokens[id].piece.text)
            return calm_fail(ctx, CALM_EFORMAT, "%s.special_tokens: \"%.60s\": ids[%zu] is not the id of a token",
                             where, name, i);
        longer[(*n)++] = (uint32_t)id;
    }
    *ids = longer;
    return CALM_OK;
}

/* a then b, in the tokenizer's arena. */
static calm_status join(calm_ctx *ctx, calm_tokenizer *tok, const uint32_t *a, size_t n_a, const uint32_t *b,
                        size_t n_b, uint32_t **out, size_t *n_out)
{
    uint32_t *both;
    CALM_TRY(CALM_NEW(ctx, &tok->arena, both, n_a + n_b));
    if (n_a)
        memcpy(both, a, n_a * sizeof *both);
    if (n_b)
        memcpy(both + n_a, b, n_b * sizeof *both);
    *out = both;
    *n_out = n_a + n_b;
    return CALM_OK;
}

static calm_status read_template(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json)
{
    const calm_json *single = calm_json_get(json, "single");
    uint32_t *before = NULL, *after = NULL;
    size_t n_before = 0, n_after = 0, n_texts = 0;
    for (size_t i = 0; i < calm_json_size(single); i++) {
        const calm_json *item = calm_json_at(single, i);
        const char *special = calm_json_string(calm_json_get(calm_json_get(item, "SpecialToken"), "id"), NULL);
        const char *text = calm_json_string(calm_json_get(calm_json_get(item, "Sequence"), "id"), NULL);
        if (!special == !text)
            return calm_fail(ctx, CALM_EFORMAT, "%s.single[%zu]: expected a SpecialToken or a Sequence with an id",
                             where, i);
        if (special && n_texts == 0)
            CALM_TRY(expand(ctx, tok, where, json, special, &before, &n_before));
        else if (special)
            CALM_TRY(expand(ctx, tok, where, json, special, &after, &n_after));
        else if (strcmp(text, "A") != 0)
            return calm_fail(ctx, CALM_EFORMAT, "%s.single[%zu]: expected the sequence \"A\", found \"%.60s\"", where,
                             i, text);
        else
            n_texts++;
    }
    if (n_texts != 1)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s.single: not supported: %zu times the text, expected once", where,
                         n_texts);
    CALM_TRY(join(ctx, tok, before, n_before, tok->before, tok->n_before, &tok->before, &tok->n_before));
    return join(ctx, tok, tok->after, tok->n_after, after, n_after, &tok->after, &tok->n_after);
}

/* The id of ["token", id] under `key`. */
static calm_status read_pair(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json,
                             const char *key, uint32_t *out)
{
    const calm_json *pair = calm_json_get(json, key);
    const int64_t id = calm_json_int(calm_json_at(pair, 1), -1);
    if (calm_json_size(pair) != 2 || !calm_json_string(calm_json_at(pair, 0), NULL) || id < 0)
        return calm_fail(ctx, CALM_EFORMAT, "%s.%s: expected [\"token\", id]", where, key);
    if ((uint64_t)id >= tok->n_ids || !tok->tokens[id].piece.text)
        return calm_fail(ctx, CALM_EFORMAT, "%s.%s: %lld is not the id of a token", where, key, (long long)id);
    *out = (uint32_t)id;
    return CALM_OK;
}

/* BertProcessing and RobertaProcessing: one token before the text and one after it. */
static calm_status read_pairs(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json)
{
    uint32_t before = 0, after = 0;
    CALM_TRY(read_pair(ctx, tok, where, json, "cls", &before));
    CALM_TRY(read_pair(ctx, tok, where, json, "sep", &after));
    CALM_TRY(join(ctx, tok, &before, 1, tok->before, tok->n_before, &tok->before, &tok->n_before));
    return join(ctx, tok, tok->after, tok->n_after, &after, 1, &tok->after, &tok->n_after);
}

calm_status calm_tokenizer_read_template(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json)
{
    static const calm_tokenizer_type types[] = {
        {"BertProcessing", {0}, NULL, read_pairs},
        {"ByteLevel", {0}, NULL, NULL},    /* it trims offsets only, which calm has none of */
        {"RobertaProcessing", {0}, NULL, read_pairs},
        {"TemplateProcessing", {0}, NULL, read_template},
        {NULL, {0}, NULL, NULL},
    };
    return calm_tokenizer_read_parts(ctx, tok, where, json, "processors", types, NULL);
}
