/* Opens tokenizer.json: reads its members in the order of their dependencies. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptq/base/file.h"
#include "ptq/io/gguf.h"
#include "ptq/io/gguf_split.h"
#include "ptq/tokenizer/bytelevel.h"
#include "ptq/tokenizer/gguf_vocab.h"
#include "ptq/tokenizer/tokenizer_parts.h"
#include "ptq/text/unicode.h"

/* Twice the largest file of today (Gemma 3: 33 MB); a parsed document needs about ten times the memory. */
#define FILE_MAX ((size_t)64 * 1024 * 1024)

/* ---- printable tokens ---- */

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

/* Fills tok->shown. */
static calm_status show_tokens(calm_ctx *ctx, calm_tokenizer *tok)
{
    char *bytes;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, bytes, calm_tokenizer_longest(tok)));
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
    static const calm_tokenizer_type types[] = {{"BPE", {0}, NULL, calm_tokenizer_read_bpe},
                                                {"Unigram", {0}, NULL, calm_tokenizer_read_unigram},
                                                {"WordPiece", {0}, NULL, calm_tokenizer_read_wordpiece},
                                                {NULL, {0}, NULL, NULL}};
    CALM_TRY(calm_json_expect(ctx, json, CALM_JSON_OBJECT, "%s", where));
    /* Files of 2019 and 2020 (gpt2) lack the type; only BPE has merges. */
    if (!calm_json_get(json, "type") && calm_json_get(json, "merges"))
        return calm_tokenizer_read_bpe(ctx, tok, where, json);
    return calm_tokenizer_read_parts(ctx, tok, where, json, NULL, types, NULL);
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
    CALM_TRY(calm_json_expect(ctx, json, CALM_JSON_OBJECT, "%s", tok->path));
    CALM_TRY(calm_json_need_string(ctx, tok->path, json, "version", "1.0", &version));
    if (strcmp(version, "1.0") != 0)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: version \"%.60s\": not supported; known is \"1.0\"", tok->path,
                         version);
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        CALM_TRY(calm_strf(ctx, ctx->scratch, &place, "%s: %s", tok->path, members[i].key));
        CALM_TRY(members[i].read(ctx, tok, place, calm_json_get(json, members[i].key)));
    }
    return show_tokens(ctx, tok);
}

/* Reads a tokenizer.json, or converts the tokenizer of a GGUF file. */
static calm_status read_json(calm_ctx *ctx, const char *path, calm_json **out)
{
    calm_gguf *file;
    if (!calm_path_exists(path))
        return calm_fail(ctx, CALM_ENOTFOUND, "%s: no such file, and the model's tokenizer is needed: copy it from the "
                                              "original model, or AutoTokenizer.from_pretrained(DIR).save_pretrained("
                                              "DIR) of transformers writes it", path);
    if (!calm_file_begins(path, CALM_GGUF_MAGIC))
        return calm_json_read(ctx, path, FILE_MAX, out);
    CALM_TRY(calm_gguf_open_split(ctx, path, &file));
    const calm_status status = calm_gguf_tokenizer_json(ctx, file, out);
    calm_gguf_close(file);
    return status;
}

calm_status calm_tokenizer_open(calm_ctx *ctx, const char *path, calm_tokenizer **out)
{
    CALM_ENTER(ctx, path && out);
    CALM_SCOPED_SCRATCH(ctx);
    CALM_SCOPED_JSON(json);
    CALM_SCOPED_TOKENIZER(tok);
    *out = NULL;
    tok = calloc(1, sizeof *tok);
    if (!tok)
        return calm_fail(ctx, CALM_ENOMEM, "%s: out of memory", path);
    CALM_TRY(calm_strf(ctx, &tok->arena, &tok->path, "%s", path));
    CALM_TRY(read_json(ctx, path, &json));
    CALM_TRY(read_file(ctx, tok, json));
    *out = tok;
    tok = NULL;
    return CALM_OK;
}

void calm_tokenizer_close(calm_tokenizer *tok)
{
    if (!tok)
        return;
    calm_token_chain *const chains[] = {&tok->normalizers, &tok->pretokenizers, &tok->decoders};
    for (size_t k = 0; k < 3; k++)
        for (size_t i = 0; i < chains[k]->n; i++)
            calm_regex_free(chains[k]->of[i].pattern.regex);
    calm_text_clear(&tok->shown);
    free(tok->tokens);
    calm_arena_clear(&tok->arena);
    free(tok);
}
