/* calm quantize: a float checkpoint in, a smaller one out, with the evidence. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/command.h"
#include "cli/dry_run.h"
#include "cli/pipeline.h"
#include "cli/report.h"
#include "ptq/base/file.h"
#include "ptq/model/arch.h"

/* Competes by default: docs/method.md section 4. */
#define POOL_WEIGHTS "rtn,gptq,smoothquant,mkq,gptq-hls,mkq-full"
#define POOL_ACTIVATIONS "rtn,gptq,smoothquant,mkq,gptq-hls,mkq-full,smoothquant-gptq"

#define CONFIG_MAX ((size_t)16 * 1024 * 1024)

typedef struct options {
    calm_common common;
    const char *model, *scheme, *algorithms, *calib, *eval_text, *output, *store, *blocks, *memory, *tokens;
    long long bits, samples, seqlen, seed, score_samples, guard_samples, eval_samples, expert_tokens;
    int rule, scale_dtype, act_rule;
    const char *metric;
    bool keep_hybrid, special, no_eval, force, json, dry_run;
} options;

static const calm_option table[] = {
    {.name = "model",
     .help = "checkpoint directory, or a known name",
     .offset = offsetof(options, model),
     .type = CALM_OPTION_STRING,
     .metavar = "MODEL",
     .key = 'm'},
    {.name = "bits",
     .help = "4: w4a16_g128, 3: w3a16_g128, 2: w2a16_g64, 8: w8a16",
     .offset = offsetof(options, bits),
     .type = CALM_OPTION_INT,
     .fallback = "4",
     .min = 2,
     .max = 8,
     .metavar = "N",
     .key = 'b'},
    {.name = "scheme",
     .help = "number format instead of --bits: w4a16_g64, w8a8, w8a8_asymact, w4a4_g128, ...",
     .offset = offsetof(options, scheme),
     .type = CALM_OPTION_STRING,
     .metavar = "NAME"},
    {.name = "scale-dtype",
     .help = "scales are rounded to it before codes are computed; bf16 is exact in every format",
     .offset = offsetof(options, scale_dtype),
     .type = CALM_OPTION_ENUM,
     .values = "bf16|f16",
     .fallback = "bf16",
     .metavar = "bf16|f16"},
    {.name = "act-rule",
     .help = "scales of quantized activations as in transformers (compressed-tensors) or in vLLM's kernel",
     .offset = offsetof(options, act_rule),
     .type = CALM_OPTION_ENUM,
     .values = CALM_ACT_RULE_NAMES,
     .fallback = "compressed-tensors",
     .metavar = CALM_ACT_RULE_NAMES},
    {.name = "algorithms",
     .help = "names or chains that compete; one alone is a uniform run",
     .offset = offsetof(options, algorithms),
     .type = CALM_OPTION_STRING,
     .metavar = "LIST",
     .key = 'a',
     .list = true},
    {.name = "calib",
     .help = "calibration text, or .jsonl with one document a line (default: bundled WikiText-2)",
     .offset = offsetof(options, calib),
     .type = CALM_OPTION_STRING,
     .metavar = "FILE"},
    {.name = "tokens",
     .help = "calibration ids instead of a text: JSON lines {\"ids\": [...]}; the tokenizer need not be readable",
     .offset = offsetof(options, tokens),
     .type = CALM_OPTION_STRING,
     .metavar = "FILE"},
    {.name = "samples",
     .help = "calibration windows",
     .offset = offsetof(options, samples),
     .type = CALM_OPTION_INT,
     .fallback = "128",
     .min = 1,
     .max = 1 << 20,
     .metavar = "N"},
    {.name = "seqlen",
     .help = "tokens per window",
     .offset = offsetof(options, seqlen),
     .type = CALM_OPTION_INT,
     .fallback = "512",
     .min = 2,
     .max = 1 << 20,
     .metavar = "N"},
    {.name = "seed",
     .help = "draw the windows at random with this seed; without it: the first ones",
     .offset = offsetof(options, seed),
     .type = CALM_OPTION_INT,
     .fallback = "-1",
     .min = 0,
     .max = 9e18,
     .metavar = "N"},
    {.name = "special",
     .help = "add the special tokens of the tokenizer's template",
     .offset = offsetof(options, special),
     .type = CALM_OPTION_BOOL},
    {.name = "score-samples",
     .help = "calibration windows that candidates are scored on",
     .offset = offsetof(options, score_samples),
     .type = CALM_OPTION_INT,
     .fallback = "8",
     .min = 1,
     .max = 1 << 20,
     .metavar = "N"},
    {.name = "guard-samples",
     .help = "windows outside calibration on which the hybrid must hold against uniform runs",
     .offset = offsetof(options, guard_samples),
     .type = CALM_OPTION_INT,
     .fallback = "16",
     .min = 0,
     .max = 1 << 20,
     .metavar = "N"},
    {.name = "rule",
     .help = "token: near ties by relative error; argmax: CALM as published",
     .offset = offsetof(options, rule),
     .type = CALM_OPTION_ENUM,
     .values = CALM_RULE_NAMES,
     .fallback = "token",
     .metavar = "token|argmax"},
    {.name = "metric",
     .help = "score that the rule reads (default cka_token; cka with --rule argmax)",
     .offset = offsetof(options, metric),
     .type = CALM_OPTION_STRING,
     .metavar = "NAME"},
    {.name = "keep-hybrid",
     .help = "the hybrid is the result even when a uniform run is better",
     .offset = offsetof(options, keep_hybrid),
     .type = CALM_OPTION_BOOL},
    {.name = "eval-text",
     .help = "text to evaluate on (default: bundled WikiText-2 test)",
     .offset = offsetof(options, eval_text),
     .type = CALM_OPTION_STRING,
     .metavar = "FILE"},
    {.name = "eval-samples",
     .help = "windows of it; 0 = all",
     .offset = offsetof(options, eval_samples),
     .type = CALM_OPTION_INT,
     .fallback = "0",
     .min = 0,
     .max = 1 << 24,
     .metavar = "N"},
    {.name = "no-eval", .help = "skip the evaluation", .offset = offsetof(options, no_eval), .type = CALM_OPTION_BOOL},
    {.name = "output",
     .help = "checkpoint to write (default calm-out/MODEL-SCHEME)",
     .offset = offsetof(options, output),
     .type = CALM_OPTION_STRING,
     .metavar = "DIR",
     .key = 'o'},
    {.name = "store",
     .help = "SQLite file of candidates, scores and choices",
     .offset = offsetof(options, store),
     .type = CALM_OPTION_STRING,
     .fallback = "calm-out/calm.db",
     .metavar = "FILE",
     .key = 's'},
    {.name = "blocks",
     .help = "quantize blocks FIRST-LAST alone (or one block N); the others stay float",
     .offset = offsetof(options, blocks),
     .type = CALM_OPTION_STRING,
     .metavar = "A-B"},
    {.name = "expert-tokens",
     .help = "an expert that fewer calibration tokens were routed to is rounded without data; 0: 4 groups",
     .offset = offsetof(options, expert_tokens),
     .type = CALM_OPTION_INT,
     .fallback = "0",
     .min = 0,
     .max = 1 << 24,
     .metavar = "N"},
    {.name = "memory",
     .help = "most memory this process may have resident: 6GB, 1500MiB (default: 70 % of what is free)",
     .offset = offsetof(options, memory),
     .type = CALM_OPTION_STRING,
     .metavar = "SIZE"},
    {.name = "dry-run",
     .help = "say what the run would need - memory, disk, time, size - and do nothing else",
     .offset = offsetof(options, dry_run),
     .type = CALM_OPTION_BOOL},
    {.name = "force",
     .help = "replace the output directory",
     .offset = offsetof(options, force),
     .type = CALM_OPTION_BOOL,
     .key = 'f'},
    {.name = "json", .help = "print the report as JSON", .offset = offsetof(options, json), .type = CALM_OPTION_BOOL},
    CALM_COMMON_OPTIONS(options),
    {0},
};

static calm_status resolve_scheme(calm_ctx *ctx, const options *o, calm_scheme *out)
{
    static const char *const by_bits[9] = {[2] = "w2a16_g64", [3] = "w3a16_g128", [4] = "w4a16_g128", [8] = "w8a16"};
    if (o->scheme)
        CALM_TRY(calm_scheme_parse(ctx, o->scheme, out));
    else if (!by_bits[o->bits])
        return calm_fail(ctx, CALM_EARG, "--bits %lld: expected 2, 3, 4 or 8 (see --scheme for other formats)",
                         o->bits);
    else
        CALM_TRY(calm_scheme_parse(ctx, by_bits[o->bits], out));
    if (out->bits == 0)
        return calm_fail(ctx, CALM_EARG, "--scheme float: there is nothing to quantize");
    if (o->scale_dtype == 1)
        out->scale_dtype = CALM_F16;
    if (o->act_rule == CALM_ACT_RULE_VLLM && !out->act_bits)
        return calm_fail(ctx, CALM_EARG, "--act-rule vllm is about quantized activations, which the scheme leaves float; "
                         "try: --scheme w8a8");
    if (o->act_rule == CALM_ACT_RULE_VLLM)    /* else as the scheme's name says */
        out->act_rule = CALM_ACT_RULE_VLLM;
    return CALM_OK;
}

/* Inputs of an encoder's linears lie between LayerNorms and GELUs, far from symmetric: there the range of activations that
 * the name leaves open is the asymmetric one (docs/method.md section 1). */
static calm_status resolve_range(calm_ctx *ctx, const options *o, calm_recipe *recipe)
{
    char *path, *note, name[CALM_SCHEME_NAME_MAX];
    calm_json *json;
    calm_config config;
    if (!recipe->scheme.act_bits || calm_scheme_says_range(o->scheme))
        return CALM_OK;
    CALM_TRY(calm_path_join(ctx, ctx->scratch, &path, recipe->model.dir, "config.json"));
    CALM_TRY(calm_json_read(ctx, path, CONFIG_MAX, &json));
    const calm_status status = calm_config_read(ctx, path, json, &config);
    calm_json_free(json);
    if (status != CALM_OK || !config.arch->encoder)
        return status;
    recipe->scheme.act_asymmetric = true;
    calm_scheme_name(&recipe->scheme, name);
    CALM_TRY(calm_strf(ctx, ctx->out, &note, "an encoder: --scheme %s stands for %s, activations with a zero point; "
                                             "%s_symact is the one without", o->scheme, name, o->scheme));
    recipe->scheme_note = note;
    return CALM_OK;
}

/* A text of the user, or a bundled one under a name that does not depend on where calm lies. */
static calm_status resolve_text(calm_ctx *ctx, const char *given, const char *bundled, const char **path,
                                const char **name)
{
    char *text;
    if (given) {
        *path = *name = given;
        return CALM_OK;
    }
    CALM_TRY(calm_strf(ctx, ctx->out, &text, "text/%s", bundled));
    CALM_TRY(calm_recipes_path(ctx, text, &text));
    *path = text;
    CALM_TRY(calm_strf(ctx, ctx->out, &text, "bundled %s", bundled));
    *name = text;
    return CALM_OK;
}

static calm_status resolve_metric(calm_ctx *ctx, const options *o, calm_recipe *recipe)
{
    const char *name = o->metric ? o->metric : o->rule == CALM_RULE_ARGMAX ? "cka" : "cka_token";
    const char *names[CALM_N_METRICS];
    recipe->metric = calm_metric_find(name);
    if (recipe->metric != CALM_N_METRICS)
        return CALM_OK;
    for (calm_metric m = 0; m < CALM_N_METRICS; m++)
        names[m] = calm_metric_name(m);
    const char *near = calm_nearest(name, names, CALM_N_METRICS);
    return calm_fail(ctx, CALM_EARG, "--metric %s: unknown%s%s%s", name, near ? "; did you mean " : "",
                     near ? near : "", near ? "?" : "");
}

/* "3" or "0-3". */
static calm_status resolve_blocks(calm_ctx *ctx, const options *o, calm_recipe *recipe)
{
    char *end;
    if (!o->blocks)
        return CALM_OK;
    recipe->first_block = recipe->last_block = strtoll(o->blocks, &end, 10);
    if (end != o->blocks && *end == '-')
        recipe->last_block = strtoll(end + 1, &end, 10);
    if (*end || end == o->blocks || o->blocks[0] == '-' || recipe->last_block < recipe->first_block ||
        recipe->last_block > 1 << 20)
        return calm_fail(ctx, CALM_EARG, "--blocks %s: expected the number of a block, or FIRST-LAST: --blocks 0-3", o->blocks);
    return CALM_OK;
}

/* The last part of the model's name, for the output's name. */
static const char *base_name(const char *name)
{
    const char *slash = strrchr(name, '/');
    return slash && slash[1] ? slash + 1 : name;
}

static calm_status resolve(calm_ctx *ctx, const options *o, calm_recipe *recipe)
{
    size_t limit;
    char scheme[CALM_SCHEME_NAME_MAX], *output;
    if (!o->model)
        return calm_fail(ctx, CALM_EARG, "calm quantize: --model is missing; try: calm quantize --model qwen --bits 4");
    if (o->memory)
        CALM_TRY(calm_budget_parse(ctx, o->memory, &limit));    /* before the model is looked for */
    *recipe = (calm_recipe){.samples = o->samples,
                            .seqlen = o->seqlen,
                            .seed = o->seed,
                            .score_windows = o->score_samples,
                            .guard_windows = o->guard_samples,
                            .special = o->special,
                            .rule = (calm_rule)o->rule,
                            .keep_hybrid = o->keep_hybrid,
                            .eval_windows = o->eval_samples,
                            .output = o->output,
                            .store = o->store,
                            .force = o->force,
                            .least_tokens = o->expert_tokens,
                            .memory = o->memory,
                            .last_block = -1};
    CALM_TRY(resolve_blocks(ctx, o, recipe));
    CALM_TRY(resolve_scheme(ctx, o, &recipe->scheme));
    CALM_TRY(resolve_metric(ctx, o, recipe));
    const char *pool = o->algorithms ? o->algorithms : recipe->scheme.act_bits ? POOL_ACTIVATIONS : POOL_WEIGHTS;
    CALM_TRY(calm_recipe_algorithms(ctx, pool, recipe));
    CALM_TRY(calm_resolve_model(ctx, o->model, o->common.quiet, &recipe->model));
    CALM_TRY(resolve_range(ctx, o, recipe));
    if (o->tokens && (o->calib || o->special))
        return calm_fail(ctx, CALM_EARG, "calm quantize: --tokens takes the place of --calib and --special");
    CALM_TRY(resolve_text(ctx, o->tokens ? o->tokens : o->calib, "wikitext2-valid.txt", &recipe->calib_path,
                          &recipe->calib_name));
    recipe->tokens = o->tokens != NULL;
    if (!o->no_eval)
        CALM_TRY(resolve_text(ctx, o->eval_text, "wikitext2-test.txt", &recipe->eval_path, &recipe->eval_name));
    if (!recipe->output) {
        calm_scheme_name(&recipe->scheme, scheme);
        CALM_TRY(calm_strf(ctx, ctx->out, &output, "calm-out/%s-%s", base_name(o->model), scheme));
        recipe->output = output;
    }
    return CALM_OK;
}

static calm_status run(calm_ctx *ctx, const void *opts, const char *const *args, size_t n_args)
{
    const options *o = opts;
    calm_recipe recipe;
    calm_pipeline pipeline;
    calm_progress progress;
    char *command;
    (void)args;
    (void)n_args;
    CALM_TRY(resolve(ctx, o, &recipe));
    if (o->dry_run)
        return calm_dry_run(ctx, &recipe, o->json);
    CALM_TRY(calm_strf(ctx, ctx->out, &command, "calm quantize --model %s --output %s", o->model, recipe.output));
    calm_progress_init(&progress, o->common.quiet);
    ctx->log = calm_progress_log;
    ctx->log_user = &progress;
    if (recipe.model.note)
        calm_log(ctx, CALM_LOG_INFO, "%s", recipe.model.note);
    if (recipe.scheme_note)
        calm_log(ctx, CALM_LOG_INFO, "%s", recipe.scheme_note);
    calm_status status = calm_pipeline_run(ctx, &recipe, command, &progress, &pipeline);
    if (status == CALM_OK)
        status = o->json ? calm_report_json(ctx, &pipeline) : calm_report_print(ctx, &pipeline);
    calm_pipeline_close(&pipeline);
    ctx->log = NULL;
    return status;
}

const calm_command calm_cmd_quantize = {
    .name = "quantize",
    .summary = "quantize a checkpoint, choosing the best algorithm per layer",
    .description =
        "Runs several algorithms on every job of every block, scores each by CKA and error against the float output, "
        "chooses per job, and writes a compressed-tensors checkpoint.  Everything it computed is kept in the "
        "store, so the next run goes on from there.",
    .examples = "  calm quantize --model qwen --bits 4\n"
                "  calm quantize --model /models/Qwen3-0.6B --scheme w4a16_g64 --output out --store out.db\n"
                "  calm quantize --model qwen --bits 4 --algorithms gptq          (a uniform run)\n"
                "  calm quantize --model qwen --scheme w4a4_g128 --algorithms rtn,gptq,smoothquant,mkq\n",
    .options = table,
    .opts_size = sizeof(options),
    .run = run,
};
