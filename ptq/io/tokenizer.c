/* Opening tokenizer.json: its members in the order in which they need each other. */
#include <stdlib.h>
#include <string.h>

#include "ptq/io/bytelevel.h"
#include "ptq/io/tokenizer_parts.h"
#include "ptq/io/unicode.h"

/* Twice the largest of today (Gemma 3: 33 MB); a parsed document takes some ten times its size. */
#define FILE_MAX ((size_t)64 * 1024 * 1024)

/* ---- helpers of the readers ---- */

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

calm_status calm_tokenizer_check_room(calm_ctx *ctx, const char *where, size_t count)
{
    if (count < CALM_TOKENIZER_MAX_PARTS)
        return CALM_OK;
    return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: not supported: more than %d parts", where, CALM_TOKENIZER_MAX_PARTS);
}

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

/* ---- tokens for people ---- */

static void show_character(const char *text, size_t length, calm_text *out)
{
    uint32_t c;
    calm_utf8_decode(text, &c);
    if (c == '\n' || c == '\r' || c == '\t')
        calm_text_printf(out, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
    else if (c != ' ' && (calm_unicode_is_unprintable(c) || calm_unicode_is_space(c)))
        calm_text_printf(out, c < 0x80 ? "\\x%02X" : "\\u{%04X}", c);
    else
        calm_text_append(out, text, length);
}

static void show_bytes(const char *bytes, size_t n, calm_text *out)
{
    uint32_t c;
    for (size_t at = 0; at < n;) {
        size_t good = at + calm_utf8_invalid_at(bytes + at, n - at);
        while (at < good) {
            size_t length = calm_utf8_decode(bytes + at, &c);
            show_character(bytes + at, length, out);
            at += length;
        }
        if (at < n)
            calm_text_printf(out, "\\x%02X", (unsigned char)bytes[at++]);
    }
}

calm_status calm_tokenizer_show_tokens(calm_ctx *ctx, calm_tokenizer *tok)
{
    size_t longest = 0;
    char *bytes;
    for (size_t id = 0; id < tok->n_ids; id++)
        longest = tok->tokens[id].piece.n > longest ? tok->tokens[id].piece.n : longest;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, bytes, longest));
    calm_text_append(&tok->shown, "", 1);
    for (size_t id = 0; id < tok->n_ids; id++) {
        calm_token *token = &tok->tokens[id];
        if (!token->piece.text)
            continue;
        token->shown = tok->shown.length;
        if (tok->byte_level && !token->added)
            show_bytes(bytes, calm_bytelevel_read(token->piece.text, token->piece.n, bytes), &tok->shown);
        else
            show_bytes(token->piece.text, token->piece.n, &tok->shown);
        calm_text_append(&tok->shown, "", 1);
    }
    return calm_text_check(ctx, &tok->shown);
}

const char *calm_tokenizer_token(const calm_tokenizer *tok, uint32_t id)
{
    return tok->shown.data + (id < tok->n_ids ? tok->tokens[id].shown : 0);
}

size_t calm_tokenizer_size(const calm_tokenizer *tok)
{
    return tok->n_ids;
}

/* ---- the file ---- */

static calm_status read_model(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json)
{
    static const calm_tokenizer_type types[] = {{"BPE", calm_tokenizer_read_bpe},
                                                {"Unigram", calm_tokenizer_read_unigram},
                                                {"WordPiece", calm_tokenizer_read_wordpiece},
                                                {NULL, NULL}};
    if (calm_json_typeof(json) != CALM_JSON_OBJECT)
        return calm_fail(ctx, CALM_EFORMAT, "%s: expected an object, found %s", where,
                         calm_json_type_name(calm_json_typeof(json)));
    /* Files of 2019 and 2020 (gpt2) do not name the type; only BPE has merges. */
    if (!calm_json_get(json, "type") && calm_json_get(json, "merges"))
        return calm_tokenizer_read_bpe(ctx, tok, where, json);
    return calm_tokenizer_read_parts(ctx, tok, where, json, NULL, types);
}

static calm_status read_file(calm_ctx *ctx, calm_tokenizer *tok, const calm_json *json)
{
    static const struct {
        const char *key;
        calm_tokenizer_reader *read;
    } members[] = {
        {"normalizer", calm_tokenizer_read_normalizer}, {"pre_tokenizer", calm_tokenizer_read_pretokenizer},
        {"model", read_model},                          {"added_tokens", calm_tokenizer_read_added},
        {"decoder", calm_tokenizer_read_decoder},       {"post_processor", calm_tokenizer_read_template},
    };
    const char *version;
    char *place;
    if (calm_json_typeof(json) != CALM_JSON_OBJECT)
        return calm_fail(ctx, CALM_EFORMAT, "%s: expected an object, found %s", tok->path,
                         calm_json_type_name(calm_json_typeof(json)));
    CALM_TRY(calm_json_need_string(ctx, tok->path, json, "version", "1.0", &version));
    if (strcmp(version, "1.0") != 0)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: version \"%.60s\": not supported; known is \"1.0\"", tok->path,
                         version);
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        CALM_TRY(calm_strf(ctx, ctx->scratch, &place, "%s: %s", tok->path, members[i].key));
        CALM_TRY(members[i].read(ctx, tok, place, calm_json_get(json, members[i].key)));
    }
    return calm_tokenizer_show_tokens(ctx, tok);
}

calm_status calm_tokenizer_open(calm_ctx *ctx, const char *path, calm_tokenizer **out)
{
    calm_json *json = NULL;
    calm_arena_mark mark = calm_arena_save(ctx->scratch);
    calm_tokenizer *tok = calloc(1, sizeof *tok);
    *out = NULL;
    if (!tok)
        return calm_fail(ctx, CALM_ENOMEM, "%s: out of memory", path);
    calm_arena_init(&tok->arena);
    calm_text_init(&tok->shown);
    calm_status status = calm_strf(ctx, &tok->arena, &tok->path, "%s", path);
    if (status == CALM_OK)
        status = calm_json_read(ctx, path, FILE_MAX, &json);
    if (status == CALM_OK)
        status = read_file(ctx, tok, json);
    calm_json_free(json);
    calm_arena_rewind(ctx->scratch, mark);
    if (status == CALM_OK)
        *out = tok;
    else
        calm_tokenizer_close(tok);
    return status;
}

void calm_tokenizer_close(calm_tokenizer *tok)
{
    if (!tok)
        return;
    for (size_t i = 0; i < tok->n_pretokenizers; i++)
        calm_regex_free(tok->pretokenizers[i].pattern.regex);
    for (size_t i = 0; i < tok->n_normalizers; i++)
        calm_regex_free(tok->normalizers[i].pattern.regex);
    for (size_t i = 0; i < tok->n_decoders; i++)
        calm_regex_free(tok->decoders[i].pattern.regex);
    calm_text_clear(&tok->shown);
    free(tok->tokens);
    calm_arena_clear(&tok->arena);
    free(tok);
}
