/* Greedy generation. */
#include "ptq/eval/generate.h"

#include "ptq/arch/arch.h"
#include "ptq/base/file.h"
#include "ptq/base/threads.h"

/* ---- tokens that end a text ---- */

#define SETTINGS_MAX ((size_t)1 << 20)

static calm_status read_id(calm_ctx *ctx, const char *file, const calm_json *value, uint32_t *out)
{
    const int64_t id = calm_json_int(value, -1);
    if (id < 0 || id > UINT32_MAX)
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"eos_token_id\": expected an id, or a list of ids", file);
    *out = (uint32_t)id;
    return CALM_OK;
}

static calm_status read_ids(calm_ctx *ctx, const char *file, const calm_json *value, uint32_t **ids, size_t *n)
{
    const bool list = calm_json_typeof(value) == CALM_JSON_ARRAY;
    *n = list ? calm_json_size(value) : calm_json_typeof(value) != CALM_JSON_NULL;
    CALM_TRY(CALM_NEW(ctx, ctx->out, *ids, *n));
    for (size_t i = 0; i < *n; i++)
        CALM_TRY(read_id(ctx, file, list ? calm_json_at(value, i) : value, &(*ids)[i]));
    return CALM_OK;
}

calm_status calm_generation_stops(calm_ctx *ctx, const calm_model *model, uint32_t **ids, size_t *n)
{
    const char *key = "eos_token_id", *dir = calm_model_dir(model);
    const calm_json *own = calm_json_get(calm_model_json(model), key);
    CALM_SCOPED_JSON(settings);
    CALM_SCOPED_SCRATCH(ctx);
    char *path;
    CALM_TRY(calm_path_join(ctx, ctx->scratch, &path, dir, "generation_config.json"));
    if (!calm_model_is_file(model) && calm_path_exists(path)) {
        CALM_TRY(calm_json_read(ctx, path, SETTINGS_MAX, &settings));
        CALM_TRY(read_ids(ctx, path, calm_json_get(settings, key), ids, n));
        if (*n)
            return CALM_OK;
    }
    /* The key of a wrapper, or else of its text model. */
    if (calm_json_typeof(own) == CALM_JSON_NULL)
        own = calm_json_get(calm_model_text_json(model), key);
    return read_ids(ctx, dir, own, ids, n);
}

/* ---- tokens ---- */

static bool is_stop(const calm_generation_request *request, uint32_t id)
{
    bool stop = false;
    for (size_t i = 0; i < request->n_stops; i++)
        stop |= request->stops[i] == id;
    return stop;
}

/* Computes the most tokens of prompt and answer together. */
static calm_status find_room(calm_ctx *ctx, const calm_model *model, const calm_generation_request *request,
                             size_t *out)
{
    const size_t positions = calm_model_config(model)->max_positions;
    if (request->n_prompt == 0)
        return calm_fail(ctx, CALM_EARG, "the prompt has no token: there is nothing to continue");
    if (positions && request->n_prompt > positions)
        return calm_fail(ctx, CALM_EARG, "the prompt has %zu tokens, but %s has %zu positions", request->n_prompt,
                         calm_model_dir(model), positions);
    *out = request->n_prompt + request->most;
    if (positions)
        *out = calm_size_min(*out, positions);
    return CALM_OK;
}

/* Appends the most probable token. */
static calm_status choose(calm_ctx *ctx, const calm_generation_request *request, const float *logits, size_t vocab,
                          calm_generation *out)
{
    CALM_TRY(calm_decoder_best(ctx, logits, vocab, &out->ids[out->n]));
    out->n++;
    out->stopped = is_stop(request, out->ids[out->n - 1]);
    return request->told ? request->told(ctx, request->user, out->ids, out->n) : CALM_OK;
}

static calm_status answer(calm_ctx *ctx, calm_decoder *decoder, const calm_generation_request *request, size_t vocab,
                          size_t most, calm_generation *out)
{
    double start = calm_seconds();
    float *logits;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, logits, vocab));
    CALM_TRY(calm_decoder_run(ctx, decoder, request->prompt, request->n_prompt, logits));
    out->prompt_seconds = calm_seconds() - start;
    start = calm_seconds();
    if (most)
        CALM_TRY(choose(ctx, request, logits, vocab, out));
    while (out->n < most && !out->stopped) {
        CALM_TRY(calm_decoder_run(ctx, decoder, &out->ids[out->n - 1], 1, logits));
        CALM_TRY(choose(ctx, request, logits, vocab, out));
    }
    out->token_seconds = calm_seconds() - start;
    return CALM_OK;
}

calm_status calm_generate(calm_ctx *ctx, const calm_model *model, const calm_generation_request *request,
                          calm_generation *out)
{
    const size_t vocab = calm_model_config(model)->vocab;
    const double start = calm_seconds();
    size_t room = 0;
    CALM_SCOPED_DECODER(decoder);
    *out = (calm_generation){0};
    CALM_TRY(find_room(ctx, model, request, &room));
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->ids, request->most));
    CALM_TRY(calm_decoder_open(ctx, model, room, &decoder));
    out->load_seconds = calm_seconds() - start;
    out->token_bytes = calm_decoder_token_bytes(decoder);
    out->past_bytes = calm_past_bytes(calm_model_config(model), room);
    return answer(ctx, decoder, request, vocab, room - request->n_prompt, out);
}
