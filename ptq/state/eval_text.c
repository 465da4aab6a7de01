/* Texts, sentences and tasks for an evaluation. */
#include "ptq/state/eval_text.h"

#include <string.h>

#include "ptq/base/file.h"
#include "ptq/data/sentences.h"
#include "ptq/eval/forward_file.h"
#include "ptq/arch/arch.h"
#include "ptq/model/pooling.h"
#include "ptq/recipe/model_names.h"
#include "ptq/tokenizer/template_files.h"
#include "ptq/base/event.h"

/* The limit of tokens if config.json has none, as in lm-evaluation-harness. */
#define DEFAULT_LENGTH 2048
/* A larger tokenizer_config.json is not read: the file is untrusted. */
#define CONFIG_MAX ((size_t)16 * 1024 * 1024)

/* ---- windows and sentences ---- */

static calm_status text_path(calm_ctx *ctx, const calm_eval_text *text, const char **out)
{
    *out = text->text;
    return *out ? CALM_OK : calm_recipes_path(ctx, "text/wikitext2-test.txt", out);
}

static calm_status decoder_windows(calm_ctx *ctx, const calm_config *config, const calm_tokenizer *tokenizer,
                                   const calm_eval_text *text, calm_chat *chat, calm_windows *out)
{
    /* Without a seed: an evaluation reads the text from its start, so that its figures agree with other tools. */
    const calm_windows_options how = {.seqlen = text->seqlen, .n_windows = text->samples, .seed = -1,
                                      .vocab = config->vocab, .special = !text->no_special, .chat = chat};
    calm_token_file file;
    const char *path;
    if (text->tokens) {
        CALM_TRY(calm_token_file_read(ctx, text->tokens, how.vocab, &file));
        return calm_windows_from_tokens(ctx, &file, &how, out);
    }
    CALM_TRY(text_path(ctx, text, &path));
    CALM_TRY(calm_windows_read(ctx, tokenizer, path, &how, out));
    calm_chat_note(ctx, chat, path);
    return CALM_OK;
}

static calm_status encoder_sentences(calm_ctx *ctx, const calm_config *config, const calm_tokenizer *tokenizer,
                                     const calm_eval_text *text, calm_windows *out)
{
    calm_token_file file;
    calm_windows all;
    const char *path;
    if (text->tokens) {
        CALM_TRY(calm_token_file_read(ctx, text->tokens, config->vocab, &file));
        CALM_TRY(calm_forward_check(ctx, config, &file));
        CALM_TRY(calm_windows_from_sequences(ctx, &file, &all));
        const size_t n = text->samples ? calm_size_min(text->samples, all.n) : all.n;
        return calm_windows_slice(ctx, &all, 0, n, out);
    }
    /* An encoder has a table of positions, which limits the length of a sentence. */
    CALM_TRY(text_path(ctx, text, &path));
    const calm_windows_options options = {.seqlen = calm_size_min(text->seqlen, calm_config_positions(config)),
                                          .n_windows = text->samples, .seed = -1, .vocab = config->vocab,
                                          .prompt = calm_pooling_prompt(config)};
    return calm_sentences_read(ctx, tokenizer, path, &options, out);
}

calm_status calm_eval_text_windows(calm_ctx *ctx, const calm_model *model, const calm_tokenizer *tokenizer,
                                 const calm_eval_text *text, calm_windows *out)
{
    const calm_config *config = calm_model_config(model);
    CALM_SCOPED(calm_chat, calm_chat_close) chat = {.model = calm_model_dir(model)};
    if (config->arch->encoder)
        return encoder_sentences(ctx, config, tokenizer, text, out);
    CALM_TRY(decoder_windows(ctx, config, tokenizer, text, &chat, out));
    calm_windows_warn_positions(ctx, out, calm_config_positions(config), calm_model_dir(model), "evaluation");
    return CALM_OK;
}

/* ---- embeddings ---- */

calm_status calm_eval_text_embeddings(calm_ctx *ctx, const calm_model *model, const calm_model *reference,
                                    const calm_windows *windows, calm_tick_fn *tick, void *user,
                                    calm_embedding_result *out)
{
    const calm_subject subject = {.model = model}, against = {.model = reference};
    calm_embeddings expected, found;
    calm_shared_tick both = {tick, user, 0, 2 * windows->n};
    CALM_TRY(calm_encode(ctx, &against, windows, calm_tick_shared, &both, &expected));
    both.before = windows->n;    /* the second model's ticks follow the first one's */
    CALM_TRY(calm_encode(ctx, &subject, windows, calm_tick_shared, &both, &found));
    return calm_embedding_compare(ctx, &expected, &found, out);
}

/* ---- tasks ---- */

static size_t max_length(const calm_model *model)
{
    static const char *const keys[] = {"n_positions", "max_position_embeddings", "n_ctx"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const int64_t length = calm_json_int(calm_json_get(calm_model_text_json(model), keys[i]), 0);
        if (length > 0)
            return (size_t)length;
    }
    return DEFAULT_LENGTH;
}

/* Sets *prefix to the id of the text; leaves it unchanged if the text is not one token. */
static calm_status token_id(calm_ctx *ctx, const calm_tokenizer *tokenizer, const char *text, long long *prefix)
{
    uint32_t *ids;
    size_t n;
    CALM_TRY(calm_tokenizer_encode(ctx, tokenizer, text, strlen(text), false, &ids, &n));
    if (n == 1)
        *prefix = ids[0];
    return CALM_OK;
}

/* Finds the harness's prefix_token_id; < 0: the model names no such token. */
static calm_status find_prefix(calm_ctx *ctx, const calm_model *model, const calm_tokenizer *tokenizer,
                               long long *prefix)
{
    const calm_json *config = calm_model_text_json(model), *eos = calm_json_get(config, "eos_token_id");
    char *path;
    CALM_SCOPED_JSON(json);
    *prefix = -1;
    CALM_TRY(calm_path_beside(ctx, ctx->scratch, &path, calm_model_dir(model), "tokenizer_config.json"));
    const calm_status status = calm_json_read(ctx, path, CONFIG_MAX, &json);
    if (status == CALM_ENOTFOUND) {
        calm_ctx_clear_failure(ctx);
        const int64_t first = calm_json_int(calm_json_typeof(eos) == CALM_JSON_ARRAY ? calm_json_at(eos, 0) : eos, -1);
        *prefix = calm_json_int(calm_json_get(config, "bos_token_id"), first);
        return CALM_OK;
    }
    CALM_TRY(status);
    const char *bos = calm_settings_token(json, "bos_token");
    const char *text = bos ? bos : calm_settings_token(json, "eos_token");
    return text ? token_id(ctx, tokenizer, text, prefix) : CALM_OK;
}

calm_status calm_eval_text_task_options(calm_ctx *ctx, const calm_model *model, const calm_model *reference,
                                      const calm_tokenizer *tokenizer, calm_task_options *out)
{
    const size_t length = max_length(model);
    out->max_length = reference ? calm_size_min(length, max_length(reference)) : length;
    out->vocab = calm_model_config(model)->vocab;
    return find_prefix(ctx, model, tokenizer, &out->prefix);
}
