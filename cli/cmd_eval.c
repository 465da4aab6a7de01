/* calm eval: measures perplexity, KL and agreement of a model, or its accuracy on tasks; for an encoder, the distance
 * of its sentence embeddings from the reference's. */
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/command.h"
#include "cli/eval.h"
#include "cli/kernels.h"
#include "cli/progress.h"
#include "cli/pull.h"
#include "cli/print.h"
#include "ptq/base/file.h"
#include "ptq/eval/evaluate.h"
#include "ptq/tokenizer/gguf_vocab.h"
#include "ptq/tokenizer/tokenizer.h"
#include "ptq/arch/arch.h"
#include "ptq/state/eval_text.h"
#include "ptq/tensor/bf16_product.h"

typedef calm_eval_options options;

/* Values of options.dtype, with the index of each. */
#define DTYPES "f32|bf16x2|auto"
enum { DTYPE_BF16X2 = 1, DTYPE_AUTO };

static calm_operands operands_of(const options *o)
{
    if (o->dtype == DTYPE_AUTO)
        return calm_bf16_auto();
    return o->dtype == DTYPE_BF16X2 ? CALM_OPERANDS_BF16X2 : CALM_OPERANDS_F32;
}

static const calm_option table[] = {
    CALM_OPT("model", model, STRING, "directory to evaluate, float or quantized, a GGUF file, or a known name",
             .metavar = "DIR|FILE.gguf", .key = 'm', .basic = true),
    CALM_OPT("text", text, STRING, "text, or JSON documents as for --calib; for encoders each line or document is a "
             "sentence (default: bundled WikiText-2 test)", .metavar = "FILE", .key = 't', .basic = true),
    CALM_OPT("tokens", tokens, STRING, "JSON lines {\"ids\": [...]} instead of a text; calm then needs no tokenizer",
             .metavar = "FILE"),
    CALM_OPT("tasks", tasks, STRING, "JSON lines {\"context\": \"...\", \"choices\": [...], \"answer\": 0} instead of "
             "a text: accuracy, as in lm-evaluation-harness", .metavar = "FILE", .basic = true),
    CALM_OPT("reference", reference, STRING, "float directory or name: also print KL divergence and agreement with "
             "it; encoders need it", .metavar = "DIR", .key = 'r', .basic = true),
    CALM_OPT("seqlen", seqlen, INT, "tokens per window, or per sentence at most", .fallback = "512", .min = 2,
             .max = 1 << 20, .metavar = "N", .basic = true),
    CALM_OPT("samples", samples, INT, "windows, sentences or tasks from the start of the file; 0 = all",
             .fallback = "0", .min = 0, .max = 1 << 24, .metavar = "N", .basic = true),
    CALM_OPT("worst", worst, INT, "also print the N tokens at which the model differs most from --reference, with "
             "the text around them", .fallback = "0", .min = 0, .max = 10000, .metavar = "N", .basic = true),
    CALM_OPT("detail", detail, BOOL, "also print quantiles of the KL divergence to --reference, and its mean by "
             "position in the window"),
    CALM_OPT_ACT_RULE,
    CALM_OPT("no-special", no_special, BOOL, "no special tokens (BOS) before a window, although the tokenizer's "
             "template has them; sentences always have them"),
    CALM_OPT("special", special, BOOL, "tasks: begin with the special tokens of the tokenizer's template, as "
             "add_bos_token of lm-evaluation-harness does"),
    CALM_OPT("exact-float", exact_float, BOOL, "compute linears with quantized inputs in float, instead of exact "
             "integer sums"),
    CALM_OPT("dtype", dtype, ENUM, "operands of matrix products. f32: as they are; bf16x2: sums of two bfloat16, which "
             "keep 16 bits, where the CPU has AMX; auto: bf16x2 there, as in calm quantize", .values = DTYPES,
             .fallback = "auto", .metavar = DTYPES),
    CALM_OPT_HOW,
    CALM_OPT("json", json, BOOL, "print {tokens, nll, ppl, kl, top1, top5, windows, ...}; tasks: {tasks, acc, "
             "acc_norm, agreement, per_task, ...}; encoders: {sentences, error, cosine, spearman, ...} (docs/eval.md)",
             .basic = true),
    CALM_OPT_COMMON,
    {0},
};

static calm_status print(calm_ctx *ctx, const options *o, const calm_tokenizer *tokenizer, const calm_windows *windows,
                         const calm_eval_result *result, const calm_eval_result *reference,
                         const calm_eval_worst *worst)
{
    CALM_SCOPED_TABLE(rows);
    calm_json *detail = calm_json_new_null();
    if (o->worst)
        CALM_TRY(calm_eval_worst_table(ctx, tokenizer, windows, worst, &rows));
    if (o->detail && o->json)
        CALM_TRY(calm_eval_detail_json(ctx, windows, worst, &detail));
    if (o->json)
        return calm_print_json(
            ctx, CALM_OBJECT(CALM_KV("model", o->model), CALM_KV("reference", o->reference),
                             CALM_KV("windows", windows->n), CALM_KV("seqlen", o->seqlen),
                             CALM_KV("tokens", result->tokens), CALM_KV("nll", result->nll),
                             CALM_KV("ppl", result->ppl), CALM_KV("kl", result->kl), CALM_KV("top1", result->top1),
                             CALM_KV("top5", result->top5),
                             CALM_KV("reference_ppl", o->reference ? reference->ppl : NAN),
                             CALM_KV("worst", o->worst ? calm_rows_json(ctx, &rows) : calm_json_new_null()),
                             CALM_KV("detail", detail)));
    printf("tokens       %zu predicted, in %zu windows (the text has %zu tokens)\n", result->tokens, windows->n,
           windows->n_tokens);
    printf("nll          %.6f\nperplexity   %.4f\n", result->nll, result->ppl);
    if (o->reference)
        printf("KL           %.6f to %s (perplexity %.4f)\ntop-1        %.2f %% the same first choice\n"
               "top-5        %.2f %% its first choice among the first five\n", result->kl, o->reference, reference->ppl,
               100 * result->top1, 100 * result->top5);
    if (o->detail)
        CALM_TRY(calm_eval_detail_print(ctx, windows, worst));
    if (!o->worst)
        return CALM_OK;
    printf("\n");
    return calm_print_table(ctx, &rows, stdout);
}

static calm_status read_windows(calm_ctx *ctx, const options *o, const calm_model *model,
                                const calm_tokenizer *tokenizer, calm_windows *windows)
{
    const calm_eval_text text = {.text = o->text, .tokens = o->tokens, .seqlen = (size_t)o->seqlen,
                                 .samples = (size_t)o->samples, .no_special = o->no_special};
    return calm_eval_text_windows(ctx, model, tokenizer, &text, windows);
}

static calm_status evaluate(calm_ctx *ctx, const options *o, const calm_model *model, const calm_model *reference,
                            const calm_tokenizer *tokenizer)
{
    const calm_subject subject = {.model = model}, against = {.model = reference};
    calm_eval_result result, reference_result = {0};
    calm_eval_worst worst = {0};
    calm_windows windows;
    calm_progress progress;
    calm_progress_begin(ctx, &progress, o->common.quiet);    /* before the text, which may cause notes */
    if (read_windows(ctx, o, model, tokenizer, &windows) != CALM_OK)
        return calm_progress_end(ctx, &progress);
    calm_progress_add(&progress, "evaluate", "windows");
    if (o->worst || o->detail)
        calm_evaluate_worst(ctx, &against, &reference_result, &subject, &result, &windows, (size_t)o->worst,
                            calm_progress_tick, &progress, &worst);
    else
        calm_evaluate(ctx, reference ? &against : NULL, reference ? &reference_result : NULL, &subject, 1, &result,
                      &windows, calm_progress_tick, &progress);
    CALM_TRY(calm_progress_end(ctx, &progress));
    return print(ctx, o, tokenizer, &windows, &result, &reference_result, &worst);
}

/* ---- encoders ---- */

static calm_status print_embeddings(calm_ctx *ctx, const options *o, const calm_windows *windows,
                                    const calm_embedding_result *result)
{
    const size_t tokens = windows->begin[windows->n];
    if (o->json)
        return calm_print_json(
            ctx, CALM_OBJECT(CALM_KV("model", o->model), CALM_KV("reference", o->reference),
                             CALM_KV("sentences", result->n), CALM_KV("tokens", tokens),
                             CALM_KV("error", result->error), CALM_KV("cosine", result->cosine),
                             CALM_KV("cosine_min", result->cosine_min), CALM_KV("spearman", result->spearman),
                             CALM_KV("pairs", result->pairs)));
    printf("sentences    %zu, of %zu tokens together\n", result->n, tokens);
    printf("error        %.6f of the length of the embedding by %s\n", result->error, o->reference);
    printf("cosine       %.6f to it, at least %.6f\n", result->cosine, result->cosine_min);
    if (isnan(result->spearman))
        printf("spearman     none: %zu pairs cannot be ranked\n", result->pairs);
    else
        printf("spearman     %.6f, correlation of ranks of the cosines of %zu pairs\n", result->spearman,
               result->pairs);
    return CALM_OK;
}

static calm_status evaluate_encoder(calm_ctx *ctx, const options *o, const calm_model *model,
                                    const calm_model *reference, const calm_tokenizer *tokenizer)
{
    calm_windows windows;
    calm_progress progress;
    calm_embedding_result result;
    if (o->tasks || o->worst || o->detail)
        return calm_fail(ctx, CALM_EARG, "calm eval: %s is an encoder, which predicts no next token: %s is not for it",
                         o->model, o->tasks ? "--tasks" : o->worst ? "--worst" : "--detail");
    if (!reference)
        return calm_fail(ctx, CALM_EARG, "calm eval: %s is an encoder, which is judged by its distance to the float "
                         "one: --reference is missing", o->model);
    if (!calm_model_config(reference)->arch->encoder)
        return calm_fail(ctx, CALM_EARG, "calm eval: %s is an encoder, %s is not", o->model, o->reference);
    CALM_TRY(read_windows(ctx, o, model, tokenizer, &windows));
    calm_progress_begin(ctx, &progress, o->common.quiet);
    calm_progress_add(&progress, "evaluate", "sentences");
    calm_eval_text_embeddings(ctx, model, reference, &windows, calm_progress_tick, &progress, &result);
    CALM_TRY(calm_progress_end(ctx, &progress));
    return print_embeddings(ctx, o, &windows, &result);
}

/* Refuses options that exclude each other. */
static calm_status check(calm_ctx *ctx, const options *o)
{
    if (!o->model)
        return calm_fail(ctx, CALM_EARG, "calm eval: --model is missing; try: calm eval --model qwen");
    if (o->tokens && o->text)
        return calm_fail(ctx, CALM_EARG, "calm eval: --tokens replaces --text; give one");
    if (o->special && !o->tasks)
        return calm_fail(ctx, CALM_EARG, "calm eval: --special is for --tasks: windows of a text begin as the "
                         "tokenizer's template does unless --no-special is given");
    if (o->tasks && access(o->tasks, F_OK) != 0 && errno == ENOENT)
        return calm_fail(ctx, CALM_ENOTFOUND, "%s: no such file; --tasks takes a file of JSON lines with \"context\", "
                         "\"choices\" and \"answer\", not the name of a task", o->tasks);
    if (o->tasks && (o->text || o->tokens || o->worst || o->detail))
        return calm_fail(ctx, CALM_EARG,
                         "calm eval: --tasks replaces --text, --tokens, --worst and --detail; leave these out");
    if ((o->worst || o->detail) && !o->reference)
        return calm_fail(ctx, CALM_EARG, "calm eval: %s shows where the model differs from another one: --reference is "
                         "missing", o->worst ? "--worst" : "--detail");
    return CALM_OK;
}

/* Both models are open; the tokenizer too, unless ids are given. */
static calm_status evaluate_any(calm_ctx *ctx, const options *o, calm_model *model, const calm_model *reference,
                                const calm_tokenizer *tokenizer)
{
    CALM_TRY(calm_model_set_act_rule(ctx, model, (calm_act_rule)o->act_rule));
    if (calm_model_config(model)->arch->encoder)
        return evaluate_encoder(ctx, o, model, reference, tokenizer);
    return o->tasks ? calm_eval_tasks(ctx, o, model, reference, tokenizer)
                    : evaluate(ctx, o, model, reference, tokenizer);
}

/* Finds the model's tokenizer: tokenizer.json, or a GGUF file; else that of the reference, which may be NULL. */
static calm_status find_tokenizer(calm_ctx *ctx, const char *model, const char *reference, char **out)
{
    CALM_TRY(calm_gguf_tokenizer_find(ctx, model, out));
    if (reference && calm_is_file(model) && !calm_path_exists(*out))
        return calm_gguf_tokenizer_find(ctx, reference, out);
    return CALM_OK;
}

static calm_status run(calm_ctx *ctx, const void *opts)
{
    const options *o = opts;
    const calm_model_how plain = {.accept_keys = o->how.accept_keys};
    calm_named_model named, reference_named;
    CALM_SCOPED_MODEL(model);
    CALM_SCOPED_MODEL(reference);
    CALM_SCOPED_TOKENIZER(tokenizer);
    char *path;
    CALM_TRY(check(ctx, o));
    CALM_TRY(calm_kernels_pin(ctx, NULL));
    CALM_SCOPED_OPERANDS(ctx, operands_of(o));    /* the kernels are chosen by now */
    ctx->ints = !o->exact_float;
    CALM_TRY(calm_find_shown(ctx, o->model, o->common.quiet, &named));
    CALM_TRY(calm_find_shown(ctx, o->reference, o->common.quiet, &reference_named));
    CALM_TRY(find_tokenizer(ctx, named.dir, reference_named.dir, &path));
    CALM_TRY(calm_model_open_as(ctx, named.dir, &o->how, &model));
    if (calm_json_typeof(calm_json_get(calm_json_get(calm_model_json(model), "quantization_config"),
                                       "kv_cache_scheme")) == CALM_JSON_OBJECT &&
        !calm_model_has_kv_scales(model))
        calm_log(ctx, CALM_LOG_INFO, "%s: config.json has a kv_cache_scheme, but not one scale for keys and one for "
                 "values per block: keys and values stay float here", named.dir);
    if (o->reference)
        CALM_TRY(calm_model_open_as(ctx, reference_named.dir, &plain, &reference));
    if (!o->tokens)
        CALM_TRY(calm_tokenizer_open(ctx, path, &tokenizer));
    return evaluate_any(ctx, o, model, reference, tokenizer);
}

const calm_command calm_cmd_eval = {
    .name = "eval",
    .summary = "perplexity, KL divergence and agreement of a checkpoint, or its accuracy on tasks",
    .description =
        "Evaluates a float or quantized directory or a GGUF file on whole windows of --seqlen tokens of a text, "
        "without predicting a window's first token.  It computes in float32 (--dtype) and adds in double.  The "
        "tokenizer of a GGUF file is tokenizer.json next to the file, else the file's, else the reference's.  With "
        "--tasks it takes the choice with the greatest log-probability in each task, also after division by its "
        "length in characters.  For encoders it compares each sentence's mean of the last hidden state over the "
        "tokens with that of --reference.",
    .examples = "  calm eval --model qwen\n"
                "  calm eval --model calm-out/qwen-w4a16_g128 --reference qwen --samples 200 --json\n"
                "  calm eval --model calm-out/qwen-w4a16_g128 --reference qwen --samples 50 --worst 20\n"
                "  calm eval --model calm-out/qwen-w4a16_g128 --reference qwen --tasks tasks.jsonl\n"
                "  calm eval --model calm-out/qwen-w8a8 --reference qwen --act-rule vllm\n"
                "  calm eval --model model-Q4_K_M.gguf --reference qwen --samples 50\n"
                "  calm eval --model qwen --tokens ids.jsonl\n",
    CALM_COMMAND_PARTS,
};
