/* tokenizer.json and text: an opened tokenizer encodes and decodes any text, and the bundled one restores every
 * text. */
#include <stdlib.h>
#include <string.h>

#include "ptq/tokenizer/tokenizer.h"
#include "ptq/text/unicode.h"
#include "tests/fuzz/fuzz.h"

/* A failure has a message; a success has ids below the vocabulary size, which decode to well-formed text. */
static void check_text(calm_ctx *ctx, const calm_tokenizer *tok, const char *text, size_t n, char **back,
                       size_t *n_back)
{
    uint32_t *ids;
    size_t n_ids;
    *back = NULL;
    if (calm_tokenizer_encode(ctx, tok, text, n, true, &ids, &n_ids) != CALM_OK) {
        if (ids || !ctx->message[0])
            abort();
        return;
    }
    for (size_t i = 0; i < n_ids; i++)
        if (ids[i] >= calm_tokenizer_size(tok) || !calm_tokenizer_token(tok, ids[i]))
            abort();
    if (calm_tokenizer_decode(ctx, tok, ids, n_ids, true, back, n_back) != CALM_OK ||
        calm_utf8_invalid_at(*back, *n_back) != *n_back)
        abort();
}

static void check_file(const uint8_t *data, size_t size)
{
    static const char text[] =
        "Hello world's 12345  <|x|> \n\n e\xCC\x81 \xE4\xB8\xAD\xF0\x9F\x98\x80 aaaaaaaaaaaaaaaaaaaaaaaaaaaaab";
    calm_ctx *ctx = fuzz_context();
    calm_tokenizer *tok;
    char *back;
    size_t n_back;
    if (calm_tokenizer_open(ctx, fuzz_file("tokenizer.json", data, size), &tok) != CALM_OK) {
        if (tok || !ctx->message[0])
            abort();
        return;
    }
    check_text(ctx, tok, text, sizeof text - 1, &back, &n_back);
    calm_tokenizer_close(tok);
}

/* Text without added tokens is restored as its NFC. */
static void check_bundled(const uint8_t *data, size_t size)
{
    static calm_tokenizer *tok;    /* opened once, still reachable at the end */
    const char *text = (const char *)data, *composed;
    calm_ctx *ctx = fuzz_context();
    char *back;
    size_t n_back, n_composed;
    if (!tok && calm_tokenizer_open(ctx, CALM_SOURCE_DIR "/recipes/models/qwen-demo/tokenizer.json", &tok) != CALM_OK)
        abort();
    check_text(ctx, tok, text, size, &back, &n_back);
    bool valid = calm_utf8_invalid_at(text, size) == size;
    if (valid != (back != NULL))
        abort();
    if (!valid || memmem(text, size, "<|", 2))
        return;
    if (calm_unicode_normalize(ctx, CALM_NFC, text, size, &composed, &n_composed) != CALM_OK || n_back != n_composed ||
        memcmp(back, composed, n_back) != 0)
        abort();
}

int calm_fuzz_one(const uint8_t *data, size_t size)
{
    check_bundled(data, size);
    check_file(data, size);
    return 0;
}
