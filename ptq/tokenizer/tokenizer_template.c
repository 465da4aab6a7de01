/* Post-processors: add special tokens around a text.
 *
 * Only "single" of a template matters here: the special tokens before and after the one place of the text.  Each
 * further template of a Sequence surrounds the previous ones. */
#include <string.h>

#include "ptq/base/array.h"
#include "ptq/tokenizer/tokenizer_parts.h"

static bool is_token(const calm_tokenizer *tok, int64_t id)
{
    return id >= 0 && (uint64_t)id < tok->n_ids && tok->tokens[id].piece.text;
}

/* Appends the ids of one special token of the template to `out`, in ctx->scratch. */
static calm_status expand(calm_ctx *ctx, const calm_tokenizer *tok, const char *where, const calm_json *json,
                          const char *name, calm_token_ids *out)
{
    const calm_json *list = calm_json_get(calm_json_get(calm_json_get(json, "special_tokens"), name), "ids");
    const size_t count = calm_json_size(list);
    size_t capacity = out->n;
    if (calm_json_typeof(list) != CALM_JSON_ARRAY)
        return calm_fail(ctx, CALM_EFORMAT, "%s.special_tokens: no ids for \"%.60s\"", where, name);
    CALM_TRY(CALM_GROW(ctx, ctx->scratch, out->of, out->n, &capacity, out->n + count));
    for (size_t i = 0; i < count; i++) {
        const int64_t id = calm_json_int(calm_json_at(list, i), -1);
        if (!is_token(tok, id))
            return calm_fail(ctx, CALM_EFORMAT, "%s.special_tokens: \"%.60s\": ids[%zu] is not the id of a token",
                             where, name, i);
        out->of[out->n++] = (uint32_t)id;
    }
    return CALM_OK;
}

/* Puts `before` in front of the tokenizer's special tokens before a text, and `after` behind those after a text. */
static calm_status surround(calm_ctx *ctx, calm_tokenizer *tok, calm_token_ids before, calm_token_ids after)
{
    const calm_token_ids inner[2] = {tok->before, tok->after};
    CALM_TRY(CALM_NEW(ctx, &tok->arena, tok->before.of, before.n + inner[0].n));
    CALM_TRY(CALM_NEW(ctx, &tok->arena, tok->after.of, after.n + inner[1].n));
    for (size_t i = 0; i < before.n + inner[0].n; i++)
        tok->before.of[i] = i < before.n ? before.of[i] : inner[0].of[i - before.n];
    for (size_t i = 0; i < inner[1].n + after.n; i++)
        tok->after.of[i] = i < inner[1].n ? inner[1].of[i] : after.of[i - inner[1].n];
    tok->before.n += before.n;
    tok->after.n += after.n;
    return CALM_OK;
}

static calm_status read_template(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json)
{
    const calm_json *single = calm_json_get(json, "single");
    calm_token_ids sides[2] = {{NULL, 0}, {NULL, 0}};    /* before and after the text */
    size_t n_texts = 0;
    for (size_t i = 0; i < calm_json_size(single); i++) {
        const calm_json *item = calm_json_at(single, i);
        const char *special = calm_json_string(calm_json_get(calm_json_get(item, "SpecialToken"), "id"), NULL);
        const char *text = calm_json_string(calm_json_get(calm_json_get(item, "Sequence"), "id"), NULL);
        if (!special == !text)
            return calm_fail(ctx, CALM_EFORMAT, "%s.single[%zu]: expected a SpecialToken or a Sequence with an id",
                             where, i);
        if (special)
            CALM_TRY(expand(ctx, tok, where, json, special, &sides[n_texts > 0]));
        else if (strcmp(text, "A") != 0)
            return calm_fail(ctx, CALM_EFORMAT, "%s.single[%zu]: expected the sequence \"A\", found \"%.60s\"", where,
                             i, text);
        else
            n_texts++;
    }
    if (n_texts != 1)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s.single: not supported: %zu times the text, expected once", where,
                         n_texts);
    return surround(ctx, tok, sides[0], sides[1]);
}

/* Reads the id of ["token", id] under `key`. */
static calm_status read_pair(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json,
                             const char *key, uint32_t *out)
{
    const calm_json *pair = calm_json_get(json, key);
    const int64_t id = calm_json_int(calm_json_at(pair, 1), -1);
    if (calm_json_size(pair) != 2 || !calm_json_string(calm_json_at(pair, 0), NULL) || id < 0)
        return calm_fail(ctx, CALM_EFORMAT, "%s.%s: expected [\"token\", id]", where, key);
    if (!is_token(tok, id))
        return calm_fail(ctx, CALM_EFORMAT, "%s.%s: %lld is not the id of a token", where, key, (long long)id);
    *out = (uint32_t)id;
    return CALM_OK;
}

/* Reads BertProcessing or RobertaProcessing: one token before the text and one after it. */
static calm_status read_pairs(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json)
{
    uint32_t before = 0, after = 0;
    CALM_TRY(read_pair(ctx, tok, where, json, "cls", &before));
    CALM_TRY(read_pair(ctx, tok, where, json, "sep", &after));
    return surround(ctx, tok, (calm_token_ids){&before, 1}, (calm_token_ids){&after, 1});
}

calm_status calm_tokenizer_read_template(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json)
{
    static const calm_tokenizer_type types[] = {
        {"BertProcessing", {0}, NULL, read_pairs},
        {"ByteLevel", {0}, NULL, NULL},    /* it only trims offsets, which calm does not have */
        {"RobertaProcessing", {0}, NULL, read_pairs},
        {"TemplateProcessing", {0}, NULL, read_template},
        {NULL, {0}, NULL, NULL},
    };
    return calm_tokenizer_read_parts(ctx, tok, where, json, "processors", types, NULL);
}

size_t calm_tokenizer_head(const calm_tokenizer *tok, const uint32_t **ids)
{
    *ids = tok->before.of;
    return tok->before.n;
}
