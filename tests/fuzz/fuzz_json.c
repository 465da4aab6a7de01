/* JSON documents: a parsed document can be walked and written, and its text parses to the same document. */
#include <stdlib.h>
#include <string.h>

#include "ptq/io/json.h"
#include "tests/fuzz/fuzz.h"

/* Reads every value with every accessor; returns the number of values. */
static size_t walk(const calm_json *value)
{
    size_t n = 1, n_members = 0;
    const char *text = calm_json_string(value, NULL), *key;
    if (text && strlen(text) > calm_json_string_length(value))
        abort();
    calm_json_int(value, 0);
    calm_json_number(value, 0);
    calm_json_bool(value, false);
    if (calm_json_typeof(value) == CALM_JSON_ARRAY)
        for (size_t i = 0; i < calm_json_size(value); i++)
            n += walk(calm_json_at(value, i));
    const calm_json *member;
    for (void *iter = NULL; calm_json_next(value, &iter, &key, &member); n_members++)
        n += walk(member);
    if (calm_json_typeof(value) == CALM_JSON_OBJECT && n_members != calm_json_size(value))
        abort();
    return n;
}

static void check_members(calm_ctx *ctx, const calm_json *root)
{
    int64_t integer;
    double number;
    bool flag;
    const char *text;
    calm_json_need_int(ctx, "fuzz", root, "hidden_size", NULL, 1, 1 << 20, &integer);
    calm_ctx_clear_failure(ctx);
    calm_json_need_number(ctx, "fuzz", root, "rms_norm_eps", NULL, 0, 1, &number);
    calm_ctx_clear_failure(ctx);
    calm_json_need_bool(ctx, "fuzz", root, "tie_word_embeddings", NULL, &flag);
    calm_ctx_clear_failure(ctx);
    calm_json_need_string(ctx, "fuzz", root, "model_type", NULL, &text);
    calm_ctx_clear_failure(ctx);
}

int calm_fuzz_one(const uint8_t *data, size_t size)
{
    calm_ctx *ctx = fuzz_context();
    calm_json *root, *again = NULL;
    if (calm_json_parse(ctx, "fuzz", (const char *)data, size, &root) != CALM_OK) {
        if (root || !ctx->message[0])
            abort();
        return 0;
    }
    size_t n = walk(root);
    check_members(ctx, root);
    calm_text first, second;
    calm_text_init(&first);
    calm_text_init(&second);
    if (calm_json_write(ctx, root, 0, &first) != CALM_OK ||
        calm_json_parse(ctx, "again", first.data, first.length, &again) != CALM_OK || walk(again) != n ||
        calm_json_write(ctx, again, 0, &second) != CALM_OK || first.length != second.length ||
        memcmp(first.data, second.data, first.length) != 0)
        abort();
    calm_text_clear(&first);
    calm_text_clear(&second);
    calm_json_free(root);
    calm_json_free(again);
    return 0;
}
