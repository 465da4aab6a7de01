/* calm embed: computes embeddings of sentences, as encode of sentence-transformers does. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>

#include "cli/command.h"
#include "cli/kernels.h"
#include "cli/print.h"
#include "cli/progress.h"
#include "cli/pull.h"
#include "ptq/arch/arch.h"
#include "ptq/base/output.h"
#include "ptq/base/times.h"
#include "ptq/eval/embedding_file.h"
#include "ptq/model/pooling.h"
#include "ptq/state/eval_text.h"
#include "ptq/tokenizer/gguf_vocab.h"
#include "ptq/tokenizer/tokenizer.h"

typedef struct options {
    calm_common common;
    calm_model_how how;
    const char *model, *text, *tokens, *output;
    long long seqlen, samples, batch;
    int act_rule;
    bool normalize, exact_float, json;
} options;

static const calm_option table[] = {
    CALM_OPT("model", model, STRING, "directory of an encoder, float or quantized, or a known name", .metavar = "DIR",
             .key = 'm', .basic = true),
    CALM_OPT("text", text, STRING, "each line that is not blank is a sentence; in JSON, as for --calib, each document",
             .metavar = "FILE", .key = 't', .basic = true),
    CALM_OPT("tokens", tokens, STRING, "JSON lines {\"ids\": [...]} instead of a text; calm then needs no tokenizer",
             .metavar = "FILE"),
    CALM_OPT("output", output, STRING, "file to write: float32 [sentences, width] in .npy, or {\"embedding\": [...]} "
             "per line in .jsonl", .metavar = "FILE.npy|FILE.jsonl", .key = 'o', .basic = true),
    CALM_OPT("normalize", normalize, BOOL, "divide each embedding by its length", .basic = true),
    CALM_OPT("seqlen", seqlen, INT, "tokens per sentence; calm cuts longer sentences", .fallback = "512", .min = 2,
             .max = 1 << 20,
             .metavar = "N", .basic = true),
    CALM_OPT("samples", samples, INT, "sentences from the start of the file; 0 = all", .fallback = "0", .min = 0,
             .max = 1 << 24, .metavar = "N", .basic = true),
    CALM_OPT("batch", batch, INT, "sentences that run together, with all weights in memory; 0 = as many as memory "
             "allows, with the weights of one block at a time", .fallback = "0",
             .min = 0, .max = 1 << 24, .metavar = "N",
             .basic = true),
    CALM_OPT_ACT_RULE,
    CALM_OPT_EXACT_FLOAT(.basic = true),
    CALM_OPT("json", json, BOOL, "print sentences per second, and the time to load the model", .basic = true),
    CALM_OPT_HOW,
    CALM_OPT_COMMON,
    {0},
};

static calm_status check(calm_ctx *ctx, const options *o)
{
    if (!o->model || !o->output || (!o->text && !o->tokens))
        return calm_fail(ctx, CALM_EARG, "calm embed: %s is missing; try: calm embed --model DIR --text "
                         "sentences.txt --output embeddings.npy",
                         !o->model ? "--model" : !o->output ? "--output" : "--text");
    if (o->text && o->tokens)
        return calm_fail(ctx, CALM_EARG, "calm embed: --tokens replaces --text; give one");
    if (!calm_embeddings_named(o->output))
        return calm_fail(ctx, CALM_EARG, "calm embed: --output %s: expected a name that ends in .npy or .jsonl",
                         o->output);
    return CALM_OK;
}

static calm_status open_model(calm_ctx *ctx, const options *o, const char *dir, calm_model **model)
{
    CALM_TRY(calm_model_open_as(ctx, dir, &o->how, model));
    if (!calm_model_config(*model)->arch->encoder)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "calm embed: %s is no encoder: it is %s, which predicts tokens "
                         "(calm forward writes its hidden states)", o->model, calm_model_class(*model));
    return calm_model_set_act_rule(ctx, *model, (calm_act_rule)o->act_rule);
}

/* Times of loading weights and of running sentences: with --batch one after the other, else alternating. */
typedef struct course {
    calm_time begun, loaded, ended;
} course;

static calm_status print_json(calm_ctx *ctx, const options *o, const calm_windows *windows, const course *took,
                              const calm_embeddings *embeddings)
{
    const double seconds = took->ended.wall - took->loaded.wall;
    return calm_print_json(ctx, CALM_OBJECT(
        CALM_KV("model", o->model), CALM_KV("sentences", (int64_t)embeddings->n),
        CALM_KV("tokens", (int64_t)windows->begin[windows->n]), CALM_KV("width", (int64_t)embeddings->width),
        CALM_KV("batch", o->batch ? calm_json_of_int(o->batch) : NULL), CALM_KV("threads", (int64_t)ctx->n_threads),
        CALM_KV("load_seconds", o->batch ? took->loaded.wall - took->begun.wall : NAN), CALM_KV("seconds", seconds),
        CALM_KV("cpu_seconds", took->ended.cpu - took->loaded.cpu),
        CALM_KV("sentences_per_second", seconds > 0 ? (double)embeddings->n / seconds : NAN)));
}

static calm_status compute(calm_ctx *ctx, const options *o, const calm_model *model, const calm_windows *windows,
                           calm_progress *progress, course *took, calm_embeddings *out)
{
    const calm_subject subject = {.model = model};
    took->begun = took->loaded = calm_time_now();
    if (o->batch)
        CALM_TRY(calm_encode_in_memory(ctx, model, windows, (size_t)o->batch, calm_progress_tick, progress,
                                       &took->loaded, out));
    else
        CALM_TRY(calm_encode(ctx, &subject, windows, calm_progress_tick, progress, out));
    took->ended = calm_time_now();
    return CALM_OK;
}

static calm_status encode(calm_ctx *ctx, const options *o, const calm_model *model, const calm_tokenizer *tokenizer)
{
    const calm_eval_text text = {
        .text = o->text, .tokens = o->tokens, .seqlen = (size_t)o->seqlen, .samples = (size_t)o->samples};
    calm_windows windows;
    calm_progress progress;
    calm_embeddings embeddings;
    course took;
    CALM_TRY(calm_eval_text_windows(ctx, model, tokenizer, &text, &windows));
    calm_progress_begin(ctx, &progress, o->common.quiet);
    calm_progress_add(&progress, "embed", "sentences");
    (void)compute(ctx, o, model, &windows, &progress, &took, &embeddings);
    CALM_TRY(calm_progress_end(ctx, &progress));
    if (o->normalize)
        calm_embeddings_normalize(&embeddings);
    CALM_TRY(calm_embeddings_write(ctx, &embeddings, o->output));
    if (o->json)
        return print_json(ctx, o, &windows, &took, &embeddings);
    if (!o->common.quiet)
        printf("%s: %zu sentences, %zu values each\n", o->output, embeddings.n, embeddings.width);
    return CALM_OK;
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
    ctx->ints = ctx->int_attention = !o->exact_float;
    CALM_TRY(calm_find_shown(ctx, o->model, o->common.quiet, &named));
    CALM_TRY(calm_output_file(ctx, o->output, true, NULL,
                              &(calm_words){(const char *[]){named.dir, o->text, o->tokens}, 3}));
    CALM_TRY(open_model(ctx, o, named.dir, &model));
    CALM_TRY(calm_gguf_tokenizer_find(ctx, named.dir, &path));
    if (!o->tokens)
        CALM_TRY(calm_tokenizer_open(ctx, path, &tokenizer));
    return encode(ctx, o, model, tokenizer);
}

const calm_command calm_cmd_embed = {
    .name = "embed",
    .summary = "embeddings of sentences by an encoder, float or quantized",
    .description =
        "Writes the embedding of each sentence, in the order of the file.  Pooling, dense layers, normalization and "
        "the default prompt are those of modules.json (sentence-transformers); without modules.json the embedding is "
        "the mean of the last hidden state over the tokens.  calm never pads sentences.  Linears with quantized "
        "inputs, and attention between them, use integer arithmetic.",
    .examples = "  calm embed --model ./encoder --text sentences.txt --output embeddings.npy\n"
                "  calm embed --model ./encoder-w8a8 --text sentences.jsonl --output embeddings.jsonl --normalize\n",
    CALM_COMMAND_PARTS,
};
