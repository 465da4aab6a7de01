/* What the readers of tokenizer.json share: dispatch by "type", new parts, strings, tokens and vocabularies. */
#include "ptq/tokenizer/tokenizer_parts.h"

#include <stdlib.h>
#include <string.h>

/* ---- parts ---- */

static calm_status unsupported_type(calm_ctx *ctx, const char *where, const char *type, const char *list,
                                    const calm_tokenizer_type *types)
{
    char known[256] = "";
    for (const calm_tokenizer_type *row = types; row->name; row++) {
        strncat(known, row->name, sizeof known - strlen(known) - 1);
        if (row[1].name || list)
            strncat(known, ", ", sizeof known - strlen(known) - 1);
    }
    return calm_fail(ctx, CALM_EUNSUPPORTED, "%s.type \"%.60s\": not supported; known: %s%s", where, type, known,
                     list ? "Sequence" : "");
}

calm_status calm_tokenizer_read_parts(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json,
                                      const char *list, const calm_tokenizer_type *types)
{
    const char *type;
    char *place;
    if (calm_json_typeof(json) == CALM_JSON_NULL)
        return CALM_OK;
    CALM_TRY(calm_json_need_string(ctx, where, json, "type", NULL, &type));
    if (!list || strcmp(type, "Sequence") != 0) {
        for (const calm_tokenizer_type *row = types; row->name; row++)
            if (strcmp(type, row->name) == 0)
                return row->read(ctx, tok, where, json);
        return unsupported_type(ctx, where, type, list, types);
    }
    const calm_json *parts = calm_json_get(json, list);
    if (calm_json_typeof(parts) != CALM_JSON_ARRAY)
        return calm_fail(ctx, CALM_EFORMAT, "%s.%s: expected an array, found %s", where, list,
                         calm_json_type_name(calm_json_typeof(parts)));
    for (size_t i = 0; i < calm_json_size(parts); i++) {
        CALM_TRY(calm_strf(ctx, ctx->scratch, &place, "%s.%s[%zu]", where, list, i));
        CALM_TRY(calm_tokenizer_read_parts(ctx, tok, place, calm_json_at(parts, i), list, types));
    }
    return CALM_OK;
}

/* Is there room for one more part of a kind that has `count` already? */
static calm_status check_room(calm_ctx *ctx, const char *where, size_t count)
{
    if (count < CALM_TOKENIZER_MAX_PARTS)
        return CALM_OK;
    return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: not supported: more than %d parts", where, CALM_TOKENIZER_MAX_PARTS);
}

calm_status calm_tokenizer_new_normalizer(calm_ctx *ctx, calm_tokenizer *tok, const char *where, calm_normalizer **out)
{
    CALM_TRY(check_room(ctx, where, tok->n_normalizers));
    *out = &tok->normalizers[tok->n_normalizers++];
    return CALM_OK;
}

calm_status calm_tokenizer_new_pretokenizer(calm_ctx *ctx, calm_tokenizer *tok, const char *where,
                                            calm_pretokenizer **out)
{
    CALM_TRY(check_room(ctx, where, tok->n_pretokenizers));
    /* Pieces spelled in the byte-level alphabet would be split otherwise than their bytes. */
    if (tok->byte_level)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: not supported: a pre-tokenizer after ByteLevel", where);
    *out = &tok->pretokenizers[tok->n_pretokenizers++];
    return CALM_OK;
}

calm_status calm_tokenizer_new_decoder(calm_ctx *ctx, calm_tokenizer *tok, const char *where, calm_decoder **out)
{
    CALM_TRY(check_room(ctx, where, tok->n_decoders));
    *out = &tok->decoders[tok->n_decoders++];
    return CALM_OK;
}

/* ---- members ---- */

calm_status calm_tokenizer_copy_string(calm_ctx *ctx, calm_arena *arena, const char *where, const char *what,
                                       const calm_json *json, calm_piece *out)
{
    char *copy;
    if (calm_json_typeof(json) != CALM_JSON_STRING)
        return calm_fail(ctx, CALM_EFORMAT, "%s.%s: expected a string, found %s", where, what,
                         calm_json_type_name(calm_json_typeof(json)));
    size_t n = calm_json_string_length(json);
    CALM_TRY(CALM_NEW(ctx, arena, copy, n + 1));
    memcpy(copy, calm_json_string(json, ""), n);
    *out = (calm_piece){copy, n};
    return CALM_OK;
}

calm_status calm_tokenizer_read_character(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json,
                                          const char *key, calm_piece *out)
{
    uint32_t c;
    CALM_TRY(calm_tokenizer_copy_string(ctx, &tok->arena, where, key, calm_json_get(json, key), out));
    if (out->n == 0 || calm_utf8_decode(out->text, &c) != out->n)
        return calm_fail(ctx, CALM_EFORMAT, "%s.%s: expected one character, found \"%.60s\"", where, key, out->text);
    return CALM_OK;
}

calm_status calm_tokenizer_read_pattern(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json,
                                        calm_pattern *out)
{
    const calm_json *regex = calm_json_get(json, "Regex"), *string = calm_json_get(json, "String");
    calm_piece text;
    if (!regex == !string)
        return calm_fail(ctx, CALM_EFORMAT, "%s.pattern: expected {\"Regex\": ...} or {\"String\": ...}", where);
    CALM_TRY(calm_tokenizer_copy_string(ctx, &tok->arena, where, "pattern", regex ? regex : string, &text));
    if (string && text.n > 0) {
        out->literal = text;
        return CALM_OK;
    }
    return calm_regex_new(ctx, where, text.text, text.n, &out->regex);
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

calm_status calm_tokenizer_read_vocab(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *vocab)
{
    const calm_json *value;
    const char *key;
    char *texts;
    size_t total = 1;
    if (calm_json_typeof(vocab) != CALM_JSON_OBJECT)
        return calm_fail(ctx, CALM_EFORMAT, "%s.vocab: expected an object, found %s", where,
                         calm_json_type_name(calm_json_typeof(vocab)));
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
