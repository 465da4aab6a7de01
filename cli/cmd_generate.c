/* calm generate: continues a prompt by greedy decoding. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "cli/command.h"
#include "cli/kernels.h"
#include "cli/print.h"
#include "cli/pull.h"
#include "cli/read_rate.h"
#include "ptq/arch/arch.h"
#include "ptq/data/chat.h"
#include "ptq/data/token_file.h"
#include "ptq/eval/generate.h"
#include "ptq/tokenizer/gguf_vocab.h"
#include "ptq/tokenizer/tokenizer.h"

typedef struct options {
    calm_common common;
    calm_model_how how;
    const char *model, *prompt, *tokens;
    long long max_tokens;
    int act_rule;
    bool chat, ignore_eos, exact_float, json;
} options;

static const calm_option table[] = {
    CALM_OPT("model", model, STRING, "directory of a decoder, float or quantized, a GGUF file, or a known name",
             .metavar = "DIR", .key = 'm', .basic = true),
    CALM_OPT("prompt", prompt, STRING, "the text to continue", .metavar = "TEXT", .key = 'p', .basic = true),
    CALM_OPT("chat", chat, BOOL, "the prompt is a user's message: put it through the model's chat template",
             .basic = true),
    CALM_OPT("tokens", tokens, STRING, "a JSON line {\"ids\": [...]} instead of a prompt; calm then needs no "
             "tokenizer and prints ids", .metavar = "FILE"),
    CALM_OPT("max-tokens", max_tokens, INT, "largest number of tokens to add", .fallback = "64", .min = 1,
             .max = 1 << 20,
             .metavar = "N", .key = 'n', .basic = true),
    CALM_OPT("ignore-eos", ignore_eos, BOOL, "continue after a token that ends the text"),
    CALM_OPT_EXACT_FLOAT(.basic = false),
    CALM_OPT_ACT_RULE,
    CALM_OPT("json", json, BOOL, "print ids, text, tokens per second, and the tokens per second that the memory's "
             "rate allows",
             .basic = true),
    CALM_OPT_HOW,
    CALM_OPT_COMMON,
    {0},
};

static calm_status check(calm_ctx *ctx, const options *o)
{
    if (!o->model || (!o->prompt && !o->tokens))
        return calm_fail(ctx, CALM_EARG, "calm generate: %s is missing; try: calm generate --model qwen "
                         "--prompt 'The history of'",
                         !o->model ? "--model" : "--prompt");
    if (o->tokens && (o->prompt || o->chat))
        return calm_fail(ctx, CALM_EARG, "calm generate: --tokens replaces --prompt and --chat; give one");
    if (o->prompt && !*o->prompt)
        return calm_fail(ctx, CALM_EARG, "calm generate: --prompt is empty");
    return CALM_OK;
}

static calm_status open_model(calm_ctx *ctx, const options *o, const char *dir, calm_model **model)
{
    CALM_TRY(calm_model_open_as(ctx, dir, &o->how, model));
    if (calm_model_config(*model)->arch->encoder)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "calm generate: %s is an encoder (%s), which predicts no next token "
                         "(calm embed writes its embeddings)", o->model, calm_model_class(*model));
    return calm_model_set_act_rule(ctx, *model, (calm_act_rule)o->act_rule);
}

/* ---- the prompt ---- */

static calm_status encode_chat(calm_ctx *ctx, const options *o, const calm_model *model,
                               const calm_tokenizer *tokenizer, uint32_t **ids, size_t *n)
{
    CALM_SCOPED(calm_chat, calm_chat_close) chat = {.model = calm_model_dir(model), .prompts = true};
    CALM_SCOPED_TEXT(text);
    CALM_SCOPED_JSON(document);
    calm_json *messages = calm_json_new_array();
    calm_json_add(messages, CALM_OBJECT(CALM_KV("role", "user"), CALM_KV("content", o->prompt)));
    document = CALM_OBJECT(CALM_KV("messages", messages));
    CALM_TRY(calm_chat_render(ctx, &chat, "--prompt", document, &text));
    CALM_TRY(calm_text_check(ctx, &text));
    /* The template writes the special tokens. */
    return calm_tokenizer_encode(ctx, tokenizer, text.data ? text.data : "", text.length, false, ids, n);
}

static calm_status read_tokens(calm_ctx *ctx, const options *o, const calm_model *model, uint32_t **ids, size_t *n)
{
    calm_token_file file;
    CALM_TRY(calm_token_file_read(ctx, o->tokens, calm_model_config(model)->vocab, &file));
    if (file.n != 1)
        return calm_fail(ctx, CALM_EARG, "%s: %zu sequences, expected one", o->tokens, file.n);
    *ids = file.ids;
    *n = file.begin[1];
    return CALM_OK;
}

static calm_status read_prompt(calm_ctx *ctx, const options *o, const calm_model *model,
                               const calm_tokenizer *tokenizer, uint32_t **ids, size_t *n)
{
    if (o->tokens)
        return read_tokens(ctx, o, model, ids, n);
    return o->chat ? encode_chat(ctx, o, model, tokenizer, ids, n)
                   : calm_tokenizer_encode(ctx, tokenizer, o->prompt, strlen(o->prompt), true, ids, n);
}

/* ---- the answer ---- */

/* State of the printed text. */
typedef struct stream {
    const calm_tokenizer *tokenizer;    /* NULL: ids are printed           */
    size_t printed;                     /* bytes of the text on the screen */
} stream;

/* A character that needs several tokens decodes to U+FFFD until the last of them, so such an end waits. */
static size_t whole_characters(const char *text, size_t n)
{
    while (n >= 3 && memcmp(text + n - 3, "\xEF\xBF\xBD", 3) == 0)
        n -= 3;
    return n;
}

/* Vocabularies are padded: a model may choose an id that no token has.  Such an id has no text. */
static calm_status decode(calm_ctx *ctx, const calm_tokenizer *tokenizer, const uint32_t *ids, size_t n, char **text,
                          size_t *n_bytes)
{
    uint32_t *known;
    size_t n_known = 0;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, known, n));
    for (size_t i = 0; i < n; i++)
        if (calm_tokenizer_token(tokenizer, ids[i])[0])
            known[n_known++] = ids[i];
    return calm_tokenizer_decode(ctx, tokenizer, known, n_known, false, text, n_bytes);
}

/* A calm_token_fn: prints the text that the last token adds. */
static calm_status print_token(calm_ctx *ctx, void *user, const uint32_t *ids, size_t n)
{
    stream *s = user;
    char *text;
    size_t n_bytes;
    CALM_SCOPED_RESULTS(ctx);
    if (!s->tokenizer) {
        printf(n > 1 ? " %u" : "%u", ids[n - 1]);
        fflush(stdout);
        return CALM_OK;
    }
    /* Decodes all tokens again: a token's text may depend on the tokens before it. */
    CALM_TRY(decode(ctx, s->tokenizer, ids, n, &text, &n_bytes));
    n_bytes = whole_characters(text, n_bytes);
    if (n_bytes > s->printed)
        fwrite(text + s->printed, 1, n_bytes - s->printed, stdout);
    s->printed = calm_size_max(s->printed, n_bytes);
    fflush(stdout);
    return CALM_OK;
}

/* Returns the text of the whole answer. */
static calm_status answer_text(calm_ctx *ctx, const calm_tokenizer *tokenizer, const calm_generation *answer,
                               char **text, size_t *n)
{
    *text = NULL;
    *n = 0;
    return tokenizer ? decode(ctx, tokenizer, answer->ids, answer->n, text, n) : CALM_OK;
}

static double rate(size_t n, double seconds)
{
    return seconds > 0 ? (double)n / seconds : 0;
}

/* Returns the number of tokens that ran one by one. */
static size_t steps(const calm_generation *answer)
{
    return answer->n ? answer->n - 1 : 0;
}

static calm_status print_json(calm_ctx *ctx, const options *o, const calm_tokenizer *tokenizer, size_t n_prompt,
                              const calm_generation *answer)
{
    calm_json *ids = calm_json_new_array(), *root;
    char *text;
    size_t n;
    double bytes_per_second;
    for (size_t i = 0; i < answer->n; i++)
        calm_json_add(ids, calm_json_of_int(answer->ids[i]));
    root = CALM_OBJECT(CALM_KV("model", o->model), CALM_KV("prompt_tokens", (int64_t)n_prompt), CALM_KV("ids", ids),
                       CALM_KV("stopped", answer->stopped), CALM_KV("threads", (int64_t)ctx->n_threads),
                       CALM_KV("load_seconds", answer->load_seconds),
                       CALM_KV("prompt_tokens_per_second", rate(n_prompt, answer->prompt_seconds)),
                       CALM_KV("tokens_per_second", rate(steps(answer), answer->token_seconds)),
                       CALM_KV("token_bytes", answer->token_bytes), CALM_KV("cache_bytes", answer->past_bytes));
    CALM_TRY(answer_text(ctx, tokenizer, answer, &text, &n));
    if (text)
        calm_json_set_bytes(root, "text", text, n);
    CALM_TRY(calm_read_rate(ctx, &bytes_per_second));
    calm_json_set_number(root, "read_bytes_per_second", bytes_per_second);
    calm_json_set_number(root, "limit_tokens_per_second", bytes_per_second / answer->token_bytes);
    return calm_print_json(ctx, root);
}

/* Prints the end of the text, which print_token held back. */
static calm_status end_text(calm_ctx *ctx, const options *o, const stream *s, size_t n_prompt,
                            const calm_generation *answer)
{
    char *text;
    size_t n;
    CALM_TRY(answer_text(ctx, s->tokenizer, answer, &text, &n));
    if (text && n > s->printed)
        fwrite(text + s->printed, 1, n - s->printed, stdout);
    putchar('\n');
    fflush(stdout);    /* before anything on stderr */
    if (!o->common.quiet)
        fprintf(stderr, "calm: %zu tokens of prompt, %.1f per second; %zu tokens%s, %.1f per second\n", n_prompt,
                rate(n_prompt, answer->prompt_seconds), answer->n, answer->stopped ? " to the end of the text" : "",
                rate(steps(answer), answer->token_seconds));
    return CALM_OK;
}

static calm_status generate(calm_ctx *ctx, const options *o, const calm_model *model, const calm_tokenizer *tokenizer)
{
    stream s = {.tokenizer = tokenizer};
    calm_generation_request request = {.most = (size_t)o->max_tokens, .user = &s};
    calm_generation answer;
    uint32_t *ids, *stops;
    CALM_TRY(read_prompt(ctx, o, model, tokenizer, &ids, &request.n_prompt));
    CALM_TRY(calm_generation_stops(ctx, model, &stops, &request.n_stops));
    request.prompt = ids;
    request.stops = stops;
    if (o->ignore_eos)
        request.n_stops = 0;
    if (!o->json)
        request.told = print_token;
    CALM_TRY(calm_generate(ctx, model, &request, &answer));
    return o->json ? print_json(ctx, o, tokenizer, request.n_prompt, &answer)
                   : end_text(ctx, o, &s, request.n_prompt, &answer);
}

static calm_status run(calm_ctx *ctx, const void *opts)
{
    const options *o = opts;
    calm_named_model named;
    CALM_SCOPED_MODEL(model);
    CALM_SCOPED_TOKENIZER(tokenizer);
    char *path;
    CALM_TRY(check(ctx, o));
    CALM_TRY(calm_kernels_pin(ctx, NULL));
    CALM_TRY(calm_find_shown(ctx, o->model, o->common.quiet, &named));
    CALM_TRY(open_model(ctx, o, named.dir, &model));
    CALM_TRY(calm_gguf_tokenizer_find(ctx, named.dir, &path));
    if (!o->tokens)
        CALM_TRY(calm_tokenizer_open(ctx, path, &tokenizer));
    ctx->ints = !o->exact_float;
    ctx->decode = true;
    return generate(ctx, o, model, tokenizer);
}

const calm_command calm_cmd_generate = {
    .name = "generate",
    .summary = "continue a prompt by greedy decoding",
    .description =
        "Adds the token with the largest logit to the prompt, again and again, until a token ends the text "
        "(eos_token_id of generation_config.json or config.json).  Weights stay in memory as they are stored: a "
        "token takes about as long as reading them.  Activations are float if the checkpoint quantizes only "
        "weights, else integers, as in calm eval.  It continues one text at a time and is no server.",
    .examples = "  calm generate --model qwen --prompt 'The history of'\n"
                "  calm generate --model calm-out/qwen-w4a16_g128 --prompt 'The history of' --max-tokens 200\n"
                "  calm generate --model ./gemma-3-270m-it --chat --prompt 'Name three rivers.'\n"
                "  calm generate --model ./gemma-w4 --prompt 'The history of' --json\n",
    CALM_COMMAND_PARTS,
};
