/* Adds a massive first token, as large decoders have: the tokenizer's template puts `token` before every text, and
 * one channel of its embedding is MASSIVE.  A tied head becomes a separate tensor with the old values, so texts
 * without the token have the model's logits, bit for bit. */
#include <string.h>

#include "ptq/base/file.h"
#include "ptq/base/rng.h"
#include "tests/tools/twin.h"

#define MASSIVE 500.0F
#define TOKENIZER_BYTES ((size_t)256 << 20)

/* Finds the id of an added token with that text. */
static calm_status find_id(calm_ctx *ctx, const twin *it, const char *token, int64_t *out)
{
    const calm_json *list = calm_json_get(it->tokenizer, "added_tokens");
    for (size_t i = 0; i < calm_json_size(list); i++) {
        const calm_json *entry = calm_json_at(list, i);
        *out = calm_json_int(calm_json_get(entry, "id"), -1);
        if (strcmp(calm_json_string(calm_json_get(entry, "content"), ""), token) == 0 && *out >= 0)
            return CALM_OK;
    }
    return calm_fail(ctx, CALM_ENOTFOUND, "%s: no added token %s in its tokenizer", calm_model_dir(it->model), token);
}

/* {"SpecialToken": {"id": TOKEN, "type_id": 0}} or {"Sequence": ...} */
static calm_json *part(const char *kind, const char *id)
{
    return CALM_OBJECT(CALM_KV(kind, CALM_OBJECT(CALM_KV("id", id), CALM_KV("type_id", (size_t)0))));
}

static void set_template(twin *it, const char *token, int64_t id)
{
    calm_json *single = calm_json_new_array(), *pair = calm_json_new_array(), *ids = calm_json_new_array();
    calm_json *tokens = calm_json_new_array();
    calm_json_add(single, part("SpecialToken", token));
    calm_json_add(single, part("Sequence", "A"));
    calm_json_add(pair, part("SpecialToken", token));
    calm_json_add(pair, part("Sequence", "A"));
    calm_json_add(pair, part("Sequence", "B"));
    calm_json_add(ids, calm_json_of_int(id));
    calm_json_add_string(tokens, token);
    calm_json *special = CALM_OBJECT(CALM_KV("id", token), CALM_KV("ids", ids), CALM_KV("tokens", tokens));
    calm_json_set(it->tokenizer, "post_processor",
                  CALM_OBJECT(CALM_KV("type", "TemplateProcessing"), CALM_KV("single", single), CALM_KV("pair", pair),
                              CALM_KV("special_tokens", CALM_OBJECT(CALM_KV(token, special)))));
}

calm_status twin_first_token(calm_ctx *ctx, twin *it)
{
    const char *token = it->args->first_token;
    const calm_tensor *table;
    twin_piece *embed, head;
    float *extra;
    int64_t id = 0;
    char *path;
    CALM_TRY(calm_path_join(ctx, ctx->out, &path, calm_model_dir(it->model), "tokenizer.json"));
    CALM_TRY(calm_json_read(ctx, path, TOKENIZER_BYTES, &it->tokenizer));
    CALM_TRY(find_id(ctx, it, token, &id));
    CALM_TRY(calm_model_table(ctx, it->model, false, &table));
    CALM_TRY(twin_find(ctx, it, table->name, &embed));
    if ((size_t)id >= embed->n_rows)
        return calm_fail(ctx, CALM_EARG, "%s: token %s is number %lld of %zu", calm_model_dir(it->model), token,
                         (long long)id, embed->n_rows);
    head = *embed;
    CALM_TRY(CALM_NEW(ctx, ctx->out, extra, embed->n_columns));
    extra[calm_rng_u64((uint64_t)it->args->seed, 0, 0) % embed->n_columns] = MASSIVE;
    embed->extra_row = extra;
    embed->extra_at = (size_t)id;
    if (it->config->tied) {
        head.name = "lm_head.weight";
        CALM_TRY(twin_add(ctx, it, &head));
        calm_json_set_bool(it->json, "tie_word_embeddings", false);
    }
    calm_json_set_int(it->json, "bos_token_id", id);
    set_template(it, token, id);
    return CALM_OK;
}
