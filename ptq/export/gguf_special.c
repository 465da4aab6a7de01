/* Adds special tokens as keys of a GGUF file. */
#include "ptq/export/gguf_tokenizer_impl.h"

#include <stdio.h>
#include <string.h>

typedef calm_gguf_vocab_reader reader;

/* Returns the id of a text, from the added tokens or else from the vocabulary; -1: none. */
static int64_t id_of(const reader *in, const char *text)
{
    for (size_t i = in->n; text && i-- > 0;)
        if (in->tokens[i].type != CALM_GGUF_PIECE_UNUSED && in->tokens[i].n == strlen(text)
            && memcmp(in->tokens[i].text, text, in->tokens[i].n) == 0)
            return (int64_t)i;
    return -1;
}

/* Returns the id of a special token, "bos", from tokenizer_config.json or else config.json. */
static int64_t special_id(const reader *in, const char *which)
{
    char key[32];
    snprintf(key, sizeof key, "%s_token", which);
    const calm_json *entry = calm_json_get(in->settings, key);
    const char *text = calm_json_string(entry, calm_json_string(calm_json_get(entry, "content"), NULL));
    int64_t id = id_of(in, text);
    snprintf(key, sizeof key, "%s_token_id", which);
    entry = calm_json_get(in->config, key);
    if (id < 0)
        id = calm_json_int(entry, calm_json_int(calm_json_at(entry, 0), -1));
    return id >= 0 && (uint64_t)id < in->n ? id : -1;
}

/* Returns the "single" template of the post-processor; NULL: none. */
static const calm_json *find_template(const reader *in)
{
    const calm_json *processor = calm_json_get(in->root, "post_processor"),
                    *list = calm_json_get(processor, "processors");
    for (size_t i = 0; i < calm_json_size(list); i++)
        if (calm_json_get(calm_json_at(list, i), "single"))
            processor = calm_json_at(list, i);
    return calm_json_get(processor, "single");
}

/* Returns the token that a BertProcessing or RobertaProcessing adds; NULL: the post-processor is another one. */
static const char *added_by_kind(const reader *in, bool before)
{
    const calm_json *processor = calm_json_get(in->root, "post_processor");
    const char *type = calm_json_string(calm_json_get(processor, "type"), "");
    if (strcmp(type, "BertProcessing") != 0 && strcmp(type, "RobertaProcessing") != 0)
        return NULL;
    return calm_json_string(calm_json_at(calm_json_get(processor, before ? "cls" : "sep"), 0), NULL);
}

/* Does the tokenizer add a special token before (or after) the text?  *id is that token.  The post-processor decides,
 * or without one tokenizer_config.json's add_bos_token (add_eos_token). */
static bool is_added(const reader *in, bool before, int64_t *id)
{
    const calm_json *single = find_template(in);
    const size_t n = calm_json_size(single);
    const calm_json *piece = calm_json_at(single, before ? 0 : n - (n > 0));
    const char *by_kind = added_by_kind(in, before);
    const char *text = by_kind ? by_kind
                               : calm_json_string(calm_json_get(calm_json_get(piece, "SpecialToken"), "id"), NULL);
    if (!single && !by_kind)
        return *id >= 0
               && calm_json_bool(calm_json_get(in->settings, before ? "add_bos_token" : "add_eos_token"), false);
    if (!text || id_of(in, text) < 0)
        return false;
    *id = id_of(in, text);
    return true;
}

/* Returns the id of the model's unknown token; WordPiece gives its text, Unigram its number. */
static int64_t unknown_id(const reader *in)
{
    const int64_t id = calm_json_int(calm_json_get(in->model, "unk_id"), -1);
    return id >= 0 && (uint64_t)id < in->n ? id : id_of(in, calm_json_string(calm_json_get(in->model, "unk_token"),
                                                                             NULL));
}

void calm_gguf_add_special(const reader *in, calm_gguf_keys *keys)
{
    static const struct {
        const char *name, *key;
    } list[] = {{"bos", "tokenizer.ggml.bos_token_id"},
                {"eos", "tokenizer.ggml.eos_token_id"},
                {"unk", "tokenizer.ggml.unknown_token_id"},
                {"pad", "tokenizer.ggml.padding_token_id"},
                {"sep", "tokenizer.ggml.seperator_token_id"},    /* as llama.cpp spells it */
                {"cls", "tokenizer.ggml.cls_token_id"},
                {"mask", "tokenizer.ggml.mask_token_id"}};
    enum { BOS, EOS, UNK, N_DECODER = 4, SEP = N_DECODER, N = sizeof list / sizeof *list };
    const size_t n = in->embeds ? N : N_DECODER;
    int64_t ids[N];
    for (size_t i = 0; i < n; i++)
        ids[i] = special_id(in, list[i].name);
    if (in->embeds && ids[UNK] < 0)
        ids[UNK] = unknown_id(in);
    const bool add_bos = is_added(in, true, &ids[BOS]);
    int64_t last = ids[EOS];
    const bool behind = is_added(in, false, &last);
    if (behind && in->embeds)
        ids[EOS] = ids[SEP] = last;
    const bool add_eos = behind && last == ids[EOS]; /* llama.cpp can add no other token */
    for (size_t i = 0; i < n; i++)
        if (ids[i] >= 0)
            calm_gguf_add_u32(keys, list[i].key, (uint32_t)ids[i]);
    calm_gguf_add_bool(keys, "tokenizer.ggml.add_bos_token", add_bos);
    calm_gguf_add_bool(keys, "tokenizer.ggml.add_eos_token", add_eos);
}
