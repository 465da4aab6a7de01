/* Options that make a recipe: those that every command has which quantizes, and how they become one. */
#ifndef CALM_CLI_RECIPE_OPTIONS_H
#define CALM_CLI_RECIPE_OPTIONS_H

#include "cli/recipe.h"

/* The second member, `recipe`, of such a command's options struct. */
typedef struct calm_recipe_options {
    const char *model, *scheme, *algorithms, *calib, *tokens, *eval_text, *store, *blocks, *memory;
    long long bits, samples, seqlen, seed, score_samples, guard_samples, eval_samples, expert_tokens, probe_samples;
    int scale_dtype, prefix, act_rule;
    bool special, stream;
} calm_recipe_options;

/* `windows`, as text: the default of --eval-samples. */
#define CALM_RECIPE_OPTIONS_WITH(opts_t, windows)                                                                    \
    {.name = "model", .help = "checkpoint directory, or a known name", .offset = offsetof(opts_t, recipe.model),     \
     .type = CALM_OPTION_STRING, .metavar = "MODEL", .key = 'm'},                                                    \
    {.name = "bits", .help = "4: w4a16_g128, 3: w3a16_g128, 2: w2a16_g64, 8: w8a16",                                 \
     .offset = offsetof(opts_t, recipe.bits), .type = CALM_OPTION_INT, .fallback = "4", .min = 2, .max = 8,          \
     .metavar = "N", .key = 'b'},                                                                                    \
    {.name = "scheme", .help = "number format instead of --bits: w4a16_g64, w8a8, w4a4_g128, ...",     \
     .offset = offsetof(opts_t, recipe.scheme), .type = CALM_OPTION_STRING, .metavar = "NAME"},                      \
    {.name = "scale-dtype",                                                                                          \
     .help = "scales are rounded to it before codes are computed; bf16 is exact in every format",                    \
     .offset = offsetof(opts_t, recipe.scale_dtype), .type = CALM_OPTION_ENUM, .values = "bf16|f16",                 \
     .fallback = "bf16", .metavar = "bf16|f16"},                                                                     \
    {.name = "algorithms", .help = "names or chains that compete; one alone is a uniform run",                       \
     .offset = offsetof(opts_t, recipe.algorithms), .type = CALM_OPTION_STRING, .metavar = "LIST", .key = 'a',       \
     .list = true},                                                                                                  \
    {.name = "calib",                                                                                                \
     .help = "calibration text, or .jsonl with one document a line (default: bundled WikiText-2)",                   \
     .offset = offsetof(opts_t, recipe.calib), .type = CALM_OPTION_STRING, .metavar = "FILE"},                       \
    {.name = "tokens",                                                                                               \
     .help = "calibration ids instead of a text: JSON lines {\"ids\": [...]}; the tokenizer need not be readable",   \
     .offset = offsetof(opts_t, recipe.tokens), .type = CALM_OPTION_STRING, .metavar = "FILE"},                      \
    {.name = "samples", .help = "calibration windows", .offset = offsetof(opts_t, recipe.samples),                   \
     .type = CALM_OPTION_INT, .fallback = "128", .min = 1, .max = 1 << 20, .metavar = "N"},                          \
    {.name = "seqlen", .help = "tokens per window", .offset = offsetof(opts_t, recipe.seqlen),                       \
     .type = CALM_OPTION_INT, .fallback = "512", .min = 2, .max = 1 << 20, .metavar = "N"},                          \
    {.name = "seed", .help = "draw the windows at random with this seed; without it: the first ones",                \
     .offset = offsetof(opts_t, recipe.seed), .type = CALM_OPTION_INT, .fallback = "-1", .min = 0, .max = 9e18,      \
     .metavar = "N"},                                                                                                \
    {.name = "special", .help = "add the special tokens of the tokenizer's template",                                \
     .offset = offsetof(opts_t, recipe.special), .type = CALM_OPTION_BOOL},                                          \
    {.name = "stream", .help = "encoders: windows of the running text without special tokens, not sentences",        \
     .offset = offsetof(opts_t, recipe.stream), .type = CALM_OPTION_BOOL},                                           \
    {.name = "score-samples", .help = "calibration windows that candidates are scored on",                           \
     .offset = offsetof(opts_t, recipe.score_samples), .type = CALM_OPTION_INT, .fallback = "8", .min = 1,           \
     .max = 1 << 20, .metavar = "N"},                                                                                \
    {.name = "guard-samples",                                                                                        \
     .help = "windows outside calibration on which the hybrid must hold against uniform runs",                       \
     .offset = offsetof(opts_t, recipe.guard_samples), .type = CALM_OPTION_INT, .fallback = "16", .min = 0,          \
     .max = 1 << 20, .metavar = "N"},                                                                                \
    {.name = "eval-text", .help = "text to evaluate on (default: bundled WikiText-2 test)",                          \
     .offset = offsetof(opts_t, recipe.eval_text), .type = CALM_OPTION_STRING, .metavar = "FILE"},                   \
    {.name = "eval-samples", .help = "windows of it; 0 = all", .offset = offsetof(opts_t, recipe.eval_samples),      \
     .type = CALM_OPTION_INT, .fallback = windows, .min = 0, .max = 1 << 24, .metavar = "N"},                            \
    {.name = "store", .help = "SQLite file of candidates, scores and choices",                                       \
     .offset = offsetof(opts_t, recipe.store), .type = CALM_OPTION_STRING, .fallback = "calm-out/calm.db",           \
     .metavar = "FILE", .key = 's'},                                                                                 \
    {.name = "blocks", .help = "quantize blocks FIRST-LAST alone (or one block N); the others stay float",           \
     .offset = offsetof(opts_t, recipe.blocks), .type = CALM_OPTION_STRING, .metavar = "A-B"},                       \
    {.name = "expert-tokens",                                                                                        \
     .help = "an expert that fewer calibration tokens were routed to is rounded without data; 0: 4 groups",          \
     .offset = offsetof(opts_t, recipe.expert_tokens), .type = CALM_OPTION_INT, .fallback = "0", .min = 0,           \
     .max = 1 << 24, .metavar = "N"},                                                                                \
    {.name = "memory",                                                                                               \
     .help = "most memory this process may have resident: 6GB, 1500MiB (default: 70 % of what is free)",             \
     .offset = offsetof(opts_t, recipe.memory), .type = CALM_OPTION_STRING, .metavar = "SIZE"},                      \
    {.name = "act-rule", .help = "scales of quantized activations as transformers takes them, or vLLM's kernel",     \
     .offset = offsetof(opts_t, recipe.act_rule), .type = CALM_OPTION_ENUM, .values = CALM_ACT_RULE_NAMES,           \
     .fallback = "compressed-tensors", .metavar = CALM_ACT_RULE_NAMES},                                              \
    {.name = "probe-samples", .help = "calibration windows that probes of single units are measured on",             \
     .offset = offsetof(opts_t, recipe.probe_samples), .type = CALM_OPTION_INT, .fallback = "16", .min = 1,          \
     .max = 1 << 20, .metavar = "N"},                                                                                \
    {.name = "prefix", .help = "blocks before: as they are, or as chosen (units then depend on each other)",         \
     .offset = offsetof(opts_t, recipe.prefix), .type = CALM_OPTION_ENUM, .values = CALM_PREFIX_NAMES,               \
     .fallback = "float", .metavar = "float|quantized"}

#define CALM_RECIPE_OPTIONS(opts_t) CALM_RECIPE_OPTIONS_WITH(opts_t, "0")

/* The scheme that --bits N stands for; NULL: none. */
const char *calm_recipe_scheme_of_bits(long long bits);

/* Algorithms that compete at the recipe's schemes when none are named. */
const char *calm_recipe_default_pool(const calm_recipe *recipe);

/* --blocks, "3" or "0-3", into the recipe.  CALM_EARG. */
calm_status calm_recipe_blocks(calm_ctx *ctx, const calm_recipe_options *options, calm_recipe *recipe);

/* What the names of bundled texts begin with, in reports and stores. */
#define CALM_BUNDLED "bundled "

/* Which text and which windows of it calibrate and guard, into the recipe.  CALM_EARG: --tokens beside --calib or
 * --special. */
calm_status calm_recipe_calibration(calm_ctx *ctx, const calm_recipe_options *options, calm_recipe *recipe);

/* The recipe of these options, without what a command decides itself: the evaluation's text, the choice, the output.
 *   schemes     names in place of --scheme and --bits; NULL: those
 *   algorithms  in place of --algorithms; NULL: those, or the default pool of the schemes
 * In ctx->out.  CALM_EARG, CALM_ENOTFOUND and what model names and chains fail with. */
calm_status calm_recipe_resolve(calm_ctx *ctx, const calm_recipe_options *options, const char *schemes,
                                const char *algorithms, bool quiet, calm_recipe *out);

/* Evaluate on --eval-text or the bundled text. */
calm_status calm_recipe_evaluate(calm_ctx *ctx, const calm_recipe_options *options, calm_recipe *recipe);

/* How units are chosen: the rule, and a metric by name (NULL: cka_token, of the rule argmax cka), checked against the unit
 * and the recipe's schemes.  CALM_EARG, naming the nearest. */
calm_status calm_recipe_select(calm_ctx *ctx, calm_unit unit, calm_rule rule, const char *metric, calm_recipe *recipe);

#endif
