/* Check: the tokenizer of a GGUF file. */

#include "ptq/check/check_gguf.h"

static calm_status check_lengths(calm_check_gguf_state *g, const calm_gguf_key *tokens)
{
    static const char *const names[] = {"tokenizer.ggml.token_type", "tokenizer.ggml.scores"};
    for (int i = 0; i < 2; i++) {
        const calm_gguf_key *key = calm_gguf_find_key(g->file, names[i]);
        if (key && (!key->array || key->n != tokens->n))
            CALM_TRY(calm_check_add(g->c, CALM_CHECK_RULE_GGUF_TOKENS, names[i], "%zu elements, there are %zu tokens",
                                    key->n, tokens->n));
    }
    return CALM_OK;
}

static calm_status check_types(calm_check_gguf_state *g)
{
    const calm_gguf_key *key = calm_gguf_find_key(g->file, "tokenizer.ggml.token_type");
    size_t bad = 0, first = 0;
    for (size_t i = key ? key->n : 0; i-- > 0;) {
        int64_t value = 0;
        if (!calm_gguf_int(key, i, &value) || value < 1 || value > 6) {
            bad++;
            first = i;
        }
    }
    return bad ? calm_check_add(g->c, CALM_CHECK_RULE_GGUF_TOKEN_TYPE, key->name, "%zu of %zu, the first is token %zu",
                                bad, key->n, first)
               : CALM_OK;
}

static calm_status check_ids(calm_check_gguf_state *g, size_t n_tokens)
{
    static const char *const names[] = {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
                                        "tokenizer.ggml.unknown_token_id", "tokenizer.ggml.padding_token_id",
                                        "tokenizer.ggml.eot_token_id"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int64_t id;
        const calm_gguf_key *key = calm_gguf_find_key(g->file, names[i]);
        if (key && (!calm_gguf_int(key, 0, &id) || id < 0 || (uint64_t)id >= n_tokens))
            CALM_TRY(calm_check_add(g->c, CALM_CHECK_RULE_GGUF_TOKEN_ID, names[i], "there are %zu tokens", n_tokens));
    }
    return CALM_OK;
}

/* Checks what gpt2 and llama vocabularies need in addition to tokens. */
static calm_status check_kind(calm_check_gguf_state *g, const calm_gguf_key *model)
{
    const calm_gguf_key *merges = calm_gguf_find_key(g->file, "tokenizer.ggml.merges");
    if (calm_gguf_is(model, "gpt2")) {
        if (!merges || !merges->array || merges->kind != CALM_GGUF_STRING)
            CALM_TRY(calm_check_add(g->c, CALM_CHECK_RULE_GGUF_MERGES, "tokenizer.ggml.merges",
                                    "expected an array of strings"));
        if (!calm_gguf_find_key(g->file, "tokenizer.ggml.pre"))
            return calm_check_add(g->c, CALM_CHECK_RULE_GGUF_MERGES, "tokenizer.ggml.pre",
                                  "it is missing: llama.cpp warns and takes its default");
    }
    if (calm_gguf_is(model, "llama") && !calm_gguf_find_key(g->file, "tokenizer.ggml.scores"))
        return calm_check_add(g->c, CALM_CHECK_RULE_GGUF_MERGES, "tokenizer.ggml.scores", "it is missing");
    return CALM_OK;
}

calm_status calm_check_gguf_keys(calm_check_gguf_state *g)
{
    calm_checking *c = g->c;
    const calm_gguf_key *model = calm_gguf_find_key(g->file, "tokenizer.ggml.model");
    const calm_gguf_key *tokens = calm_gguf_find_key(g->file, "tokenizer.ggml.tokens");
    const calm_gguf_tensor *table = calm_gguf_find_tensor(g->file, "token_embd.weight");
    if (calm_gguf_spare(g->file))
        CALM_TRY(calm_check_add(c, CALM_CHECK_RULE_GGUF_SPARE, c->path, "%zu bytes", calm_gguf_spare(g->file)));
    if (!model && !g->list.n) /* an image encoder or an adapter needs no vocabulary */
        return CALM_OK;
    if (!model)
        return calm_check_add(c, CALM_CHECK_RULE_GGUF_KEY_MISSING, "tokenizer.ggml.model", "it is missing");
    if (calm_gguf_is(model, "none") || calm_gguf_is(model, "no_vocab"))
        return CALM_OK;
    if (!tokens || !tokens->array || tokens->kind != CALM_GGUF_STRING)
        return calm_check_add(c, CALM_CHECK_RULE_GGUF_KEY_MISSING, "tokenizer.ggml.tokens",
                              "expected an array of strings");
    if (table && table->dims[1] != tokens->n)
        CALM_TRY(calm_check_add(c, CALM_CHECK_RULE_GGUF_VOCAB, "tokenizer.ggml.tokens",
                                "%zu tokens, token_embd.weight has %zu rows", tokens->n, table->dims[1]));
    CALM_TRY(check_lengths(g, tokens));
    CALM_TRY(check_types(g));
    CALM_TRY(check_ids(g, tokens->n));
    return check_kind(g, model);
}
