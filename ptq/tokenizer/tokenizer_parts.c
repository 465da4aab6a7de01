/* Helpers of the readers of tokenizer.json: dispatch by "type", new parts, strings, tokens and vocabularies. */
#include "ptq/tokenizer/tokenizer_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- parts ---- */

static calm_status unsupported_type(calm_ctx *ctx, const char *where, const char *type, const char *list,
                                    const calm_tokenizer_type *types)
{
    CALM_SCOPED_TEXT(known);
    for (const calm_tokenizer_type *row = types; row->name; row++)
        calm_text_printf(&known, "%s%s", row->name, row[1].name || list ? ", " : "");
    CALM_TRY(calm_text_check(ctx, &known));
    return calm_fail(ctx, CALM_EUNSUPPORTED, "%s.type \"%.60s\": not supported; known: %s%s", where, type, known.data,
                     list ? "Sequence" : "");
}

calm_status calm_tokenizer_add_part(calm_ctx *ctx, calm_tokenizer *tok, const char *where, calm_token_chain *chain,
                                    const calm_token_part *start, calm_token_part **out)
{
    if (chain->n == CALM_TOKENIZER_MAX_PARTS)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: not supported: more than %d parts", where,
                         CALM_TOKENIZER_MAX_PARTS);
    /* Pre-tokenizers after ByteLevel would split the spelling instead of the bytes. */
    if (chain == &tok->pretokenizers && tok->byte_level)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: not supported: a pre-tokenizer after ByteLevel", where);
    *out = &chain->of[chain->n++];
    **out = *start;
    return CALM_OK;
}

static calm_status read_part(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json,
                             const calm_tokenizer_type *type, calm_token_chain *chain)
{
    calm_token_part *part = NULL;
    if (!chain)
        return type->read ? type->read(ctx, tok, where, json) : CALM_OK;
    CALM_TRY(calm_tokenizer_add_part(ctx, tok, where, chain, &type->start, &part));
    return type->fill ? type->fill(ctx, tok, where, json, part) : CALM_OK;
}

calm_status calm_tokenizer_read_parts(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json,
                                      const char *list, const calm_tokenizer_type *types, calm_token_chain *chain)
{
    const char *type;
    char *place;
    if (calm_json_typeof(json) == CALM_JSON_NULL)
        return CALM_OK;
    CALM_TRY(calm_json_need_string(ctx, where, json, "type", NULL, &type));
    if (!list || strcmp(type, "Sequence") != 0) {
        for (const calm_tokenizer_type *row = types; row->name; row++)
            if (strcmp(type, row->name) == 0)
                return read_part(ctx, tok, where, json, row, chain);
        return unsupported_type(ctx, where, type, list, types);
    }
    const calm_json *parts = calm_json_get(json, list);
    CALM_TRY(calm_json_expect(ctx, parts, CALM_JSON_ARRAY, "%s.%s", where, list));
    for (size_t i = 0; i < calm_json_size(parts); i++) {
        CALM_TRY(calm_strf(ctx, ctx->scratch, &place, "%s.%s[%zu]", where, list, i));
        CALM_TRY(calm_tokenizer_read_parts(ctx, tok, place, calm_json_at(parts, i), list, types, chain));
    }
    return CALM_OK;
}

/* ---- members ---- */

static calm_status copy_string(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const char *what,
                               const calm_json *json, calm_piece *out)
{
    char *copy;
    CALM_TRY(calm_json_expect(ctx, json, CALM_JSON_STRING, "%s.%s", where, what));
    const size_t n = calm_json_string_length(json);
    CALM_TRY(CALM_NEW(ctx, &tok->arena, copy, n + 1));
    memcpy(copy, calm_json_string(json, ""), n);
    *out = (calm_piece){copy, n};
    return CALM_OK;
}

calm_status calm_tokenizer_read_string(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json,
                                       const char *key, calm_piece *out)
{
    return copy_string(ctx, tok, where, key, calm_json_get(json, key), out);
}

calm_status calm_tokenizer_read_character(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json,
                                          const char *key, calm_piece *out)
{
    uint32_t c;
    CALM_TRY(calm_tokenizer_read_string(ctx, tok, where, json, key, out));
    if (out->n == 0 || calm_utf8_decode(out->text, &c) != out->n)
        return calm_fail(ctx, CALM_EFORMAT, "%s.%s: expected one character, found \"%.60s\"", where, key, out->text);
    return CALM_OK;
}

calm_status calm_tokenizer_read_pattern(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json,
                                        calm_pattern *out)
{
    const calm_json *pattern = calm_json_get(json, "pattern");
    const calm_json *regex = calm_json_get(pattern, "Regex"), *string = calm_json_get(pattern, "String");
    calm_piece text;
    if (!regex == !string)
        return calm_fail(ctx, CALM_EFORMAT, "%s.pattern: expected {\"Regex\": ...} or {\"String\": ...}", where);
    CALM_TRY(copy_string(ctx, tok, where, "pattern", regex ? regex : string, &text));
    if (string && text.n > 0) {
        out->literal = text;
        return CALM_OK;
    }
    return calm_regex_new(ctx, where, text.text, text.n, &out->regex);
}

calm_status calm_tokenizer_read_replace(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json,
                                        calm_token_part *part)
{
    CALM_TRY(calm_tokenizer_read_string(ctx, tok, where, json, "content", &part->content));
    return calm_tokenizer_read_pattern(ctx, tok, where, json, &part->pattern);
}

/* ---- tokens ---- */

calm_status calm_tokenizer_set_token(calm_ctx *ctx, calm_tokenizer *tok, const char *where, uint64_t id,
                                     calm_piece piece)
{
    if (id >= CALM_TOKENIZER_MAX_IDS)
        return calm_fail(ctx, CALM_EFORMAT, "%s: id %llu of \"%.60s\": expected below %u", where,
                         (unsigned long long)id, piece.text, CALM_TOKENIZER_MAX_IDS);
    if (id >= tok->ids_capacity) {
        size_t capacity = id < 512 ? 1024 : 2 * (size_t)id;
        calm_token *grown = realloc(tok->tokens, capacity * sizeof *grown);
        if (!grown)
            return calm_fail(ctx, CALM_ENOMEM, "%s: out of memory for %zu tokens", where, capacity);
        memset(grown + tok->ids_capacity, 0, (capacity - tok->ids_capacity) * sizeof *grown);
        tok->tokens = grown;
        tok->ids_capacity = capacity;
    }
    calm_token *token = &tok->tokens[id];
    if (token->piece.text)
        return calm_fail(ctx, CALM_EFORMAT, "%s: id %llu is given to \"%.60s\" and to \"%.60s\"", where,
                         (unsigned long long)id, token->piece.text, piece.text);
    token->piece = piece;
    tok->n_ids = id >= tok->n_ids ? (size_t)id + 1 : tok->n_ids;
    return CALM_OK;
}

calm_status calm_tokenizer_read_vocab(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json)
{
    const calm_json *vocab = calm_json_get(json, "vocab"), *value;
    const char *key;
    char *texts;
    size_t total = 1;
    CALM_TRY(calm_json_expect(ctx, vocab, CALM_JSON_OBJECT, "%s.vocab", where));
    for (void *iter = NULL; calm_json_next(vocab, &iter, &key, &value);)
        total += strlen(key) + 1;
    CALM_TRY(CALM_NEW(ctx, &tok->arena, texts, total));
    CALM_TRY(calm_vocab_init(ctx, &tok->arena, &tok->vocab, calm_json_size(vocab)));
    for (void *iter = NULL; calm_json_next(vocab, &iter, &key, &value);) {
        int64_t id = calm_json_int(value, -1);
        calm_piece piece = {texts, strlen(key)};
        if (id < 0)
            return calm_fail(ctx, CALM_EFORMAT, "%s.vocab: id of \"%.60s\": expected a whole number >= 0", where, key);
        memcpy(texts, key, piece.n);
        texts += piece.n + 1;
        CALM_TRY(calm_tokenizer_set_token(ctx, tok, where, (uint64_t)id, piece));
        calm_vocab_add(&tok->vocab, piece.text, (uint32_t)piece.n, (uint32_t)id);
    }
    return CALM_OK;
}

calm_status calm_tokenizer_read_unknown(calm_ctx *ctx, const calm_tokenizer *tok, const char *where,
                                        const calm_json *json, bool required, uint32_t *out)
{
    const char *text;
    CALM_TRY(calm_json_need_string(ctx, where, json, "unk_token", required ? NULL : "", &text));
    *out = *text || required ? calm_vocab_find(&tok->vocab, text, strlen(text)) : CALM_NO_TOKEN;
    if (*out == CALM_NO_TOKEN && (*text || required))
        return calm_fail(ctx, CALM_EFORMAT, "%s.unk_token: no token \"%.60s\" in the vocabulary", where, text);
    return CALM_OK;
}

void calm_tokenizer_find_bytes(const calm_tokenizer *tok, uint32_t ids[256])
{
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[8];
        const int n = snprintf(text, sizeof text, "<0x%02X>", byte);
        ids[byte] = calm_vocab_find(&tok->vocab, text, (size_t)n);
    }
}

size_t calm_tokenizer_longest(const calm_tokenizer *tok)
{
    size_t longest = 0;
    for (size_t id = 0; id < tok->n_ids; id++)
        longest = calm_size_max(longest, tok->tokens[id].piece.n);
    return longest;
}
