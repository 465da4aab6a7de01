/* The table of all values of a recipe. */
#include "ptq/recipe/spec.h"

#include <stddef.h>
#include <string.h>

#include "ptq/base/message.h"
#include "ptq/export/export_options.h"
#include "ptq/export/rotate.h"
#include "ptq/plan/engines.h"
#include "ptq/arch/layout.h"
#include "ptq/plan/rule.h"
#include "ptq/quant/mix.h"
#include "ptq/recipe/preset.h"
#include "ptq/recipe/recipe.h"

#define WORDS_OF(number) #number
#define TEXT_OF(macro)   WORDS_OF(macro)

/* The default schemes and algorithms for a budget. */
#define BUDGET_SCHEMES "w2a16_g64,w3a16_g128,w4a16_g128,w8a16"
/* The default schemes for a size limit in GGUF, which stores them as they are. */
#define GGUF_SCHEMES "q2_k,q3_k,iq4_xs,q4_k,q5_k,q6_k"
#define BUDGET_POOL "gptq,gptq-hls,mkq-full"

#define WINDOWS_MAX (1 << 20)
#define PATH_BYTES 4096

#define AT(field) .offset = offsetof(calm_recipe_spec, field)

/* Options by type: bounds or words, the default, and the placeholder of the value in the help. */
#define COUNT(field, least, most, standard)                                                                            \
    AT(field), .type = CALM_OPTION_INT, .min = (least), .max = (most), .fallback = (standard), .metavar = "N"
#define WORD(field, words, standard)                                                                                   \
    AT(field), .type = CALM_OPTION_ENUM, .values = (words), .fallback = (standard), .metavar = (words)
#define TEXT(field, most, shown) AT(field), .type = CALM_OPTION_STRING, .max = (most), .metavar = (shown)
#define LIST(field, most, shown) AT(field), .type = CALM_OPTION_WORDS, .max = (most), .metavar = (shown)
#define FILES(field, most, shown) AT(field), .type = CALM_OPTION_FILES, .max = (most), .metavar = (shown)
#define FLAG(field)              AT(field), .type = CALM_OPTION_BOOL

const calm_option calm_spec_table[] = {
    {.name = "model", .basic = true,
     .help = "checkpoint directory, known name, or ORG/NAME", TEXT(model, 512, "MODEL"), .key = 'm'},
    {.name = "adapter",
     .help = "LoRA adapter to merge into the model",
     TEXT(adapter, PATH_BYTES, "DIR"), .place = "adapter"},
    {.name = "accept-key",
     .help = "accept a key of config.json that calm does not know; may be repeated",
     FILES(accept_keys, 64, "KEY"), .place = "accept_keys"},
    {.name = "rotate",
     .help = "rotate the float model first. r1: the residual stream; r1r2: also each head between v and o; r1r2r4: "
             "also the input of down while the model runs; inputs: only the inputs of linears, while the model runs, "
             "in almost any decoder (both only compressed-tensors)",
     WORD(rotate, CALM_ROTATE_NAMES, "none"), .place = "rotate"},
    {.name = "rotate-seed", .help = "seed of the rotations' signs", COUNT(rotate_seed, 0, 9e18, "0"),
     .place = "rotate_seed"},
    {.name = "bits", .basic = true,
     .help = "4: w4a16_g128, 3: w3a16_g128, 2: w2a16_g64, 8: w8a16", COUNT(bits, 2, 8, "4"),
     .key = 'b'},
    {.name = "scheme", .basic = true, .help = "number format instead of --bits: w4a16_g64, w8a8, w4a4_g128, ...",
     LIST(schemes, 16, "NAME"), .min = 1, .place = "schemes", .yields_to = "bits|gguf-type"},
    {.name = "preset", .basic = true,
     .help = "fast: half the time; best: 3 to 5 times the time, learns and rotates",
     AT(preset), .type = CALM_OPTION_ENUM, .values = CALM_RECIPE_PRESET_NAMES, .fallback = "balanced",
     .metavar = "NAME", .place = "preset"},
    {.name = "scale-dtype",
     .help = "dtype to which scales are rounded before codes are computed; bf16 is exact in every format",
     WORD(scale_dtype, "bf16|f16", "bf16"), .place = "scale_dtype"},
    {.name = "algorithms", .basic = true, .help = "names or chains that compete; one alone is a uniform run",
     LIST(algorithms, 64, "LIST"), .key = 'a', .place = "algorithms", .yields_to = "preset"},
    {.name = "calib", .basic = true,
     .help = "calibration text, or JSON documents: lines or an array of {\"text\": ...} (default: bundled "
             "WikiText-2); may be repeated: the texts share the windows",
     FILES(calib, CALM_TEXTS_MAX, "FILE"), .place = "calibration.text", .yields_to = "tokens"},
    {.name = "tokens",
     .help = "JSON lines {\"ids\": [...]} instead of a calibration text; calm need not be able to read the "
             "tokenizer",
     TEXT(tokens, PATH_BYTES, "FILE"), .place = "calibration.tokens", .yields_to = "calib"},
    {.name = "imatrix",
     .help = "importance matrix of llama-imatrix, .gguf or .dat: its mean squares replace those of the calibration "
             "inputs; correlations stay",
     TEXT(imatrix, PATH_BYTES, "FILE"), .place = "calibration.imatrix"},
    {.name = "samples", .basic = true, .help = "calibration windows", COUNT(samples, 1, WINDOWS_MAX, "128"),
     .place = "calibration.samples"},
    {.name = "seqlen", .basic = true, .help = "tokens per window", COUNT(seqlen, 2, WINDOWS_MAX, "512"),
     .place = "calibration.seqlen"},
    {.name = "seed", .help = "draw the windows at random with this seed (default: the first windows)",
     COUNT(seed, 0, 9e18, "-1"), .place = "calibration.seed"},
    {.name = "no-special",
     .help = "calibrate without the special tokens (BOS) that the tokenizer puts before a text",
     FLAG(no_special), .place = "calibration.special"},
    {.name = "stream",
     .help = "encoders: calibrate on windows of running text, without special tokens, instead of sentences",
     FLAG(encoder_stream), .place = "calibration.stream"},
    {.name = "score-samples",
     .help = "held-out calibration windows on which candidates are scored (default: the beginnings of 8 windows, "
             "4096 tokens in all or what takes a tenth of the run; a single algorithm at a single scheme is not "
             "scored); 0: no scores and no activation statistics",
     COUNT(score_samples, 0, WINDOWS_MAX, "-1"), .place = "calibration.score_samples"},
    {.name = "guard-samples",
     .help = "windows outside calibration on which the guard compares the hybrid with uniform runs; up to four "
             "times as many if the difference is within its standard error (default: 16; if windows are longer than "
             "512 tokens, those of 8192 tokens, at least 4; 0 if --preset fast leaves one algorithm)",
     COUNT(guard_samples, 0, WINDOWS_MAX, "-1"), .place = "calibration.guard_samples"},
    {.name = "eval-text", .help = "text to evaluate on (default: bundled WikiText-2 test)",
     TEXT(eval_text, PATH_BYTES, "FILE"), .place = "evaluation.text", .yields_to = "no-eval"},
    {.name = "eval-samples",
     .help = "test windows, the first ones; 0: all (default: spread over the text, as many as take 15 % of the "
             "run, in short runs up to 64 in a third)",
     COUNT(eval_samples, 0, 1 << 24, "-1"),
     .place = "evaluation.samples", .yields_to = "no-eval"},
    {.name = "store", .basic = true, .help = "SQLite file of candidates, scores and choices", TEXT(store, 0, "FILE"),
     .fallback = "calm-out/calm.db", .key = 's'},
    {.name = "blocks", .help = "quantize only blocks FIRST-LAST (or one block N); the others stay float", AT(blocks),
     .type = CALM_OPTION_RANGE, .max = WINDOWS_MAX, .metavar = "A-B", .place = "blocks"},
    {.name = "keep-float",
     .help = "linears that stay float: a name in the checkpoint or re:PATTERN; linears that engines fuse with them "
             "also stay float; !NAME: quantize one that calm keeps float; may be repeated",
     FILES(keep_float, 1024, "PATTERN"), .place = "keep_float", .yields_to = "ignore"},
    {.name = "group-fallback",
     .help = "for linears whose input columns the group size does not divide: float: they stay float; row: one "
             "scale per row; a number: that group size (default: calm refuses the model)",
     TEXT(group_fallback, 16, "float|row|SIZE"), .place = "group_fallback"},
    {.name = "ignore", .help = "llm-compressor's name for --keep-float", FILES(ignore, 1024, "PATTERN")},
    {.name = "expert-tokens",
     .help = "experts with fewer calibration tokens are rounded to nearest, without data; 0: four times the "
             "group size",
     COUNT(expert_tokens, 0, 1 << 24, "0"), .place = "choice.expert_tokens"},
    {.name = "memory",
     .help = "limit of resident memory: 6GB, 1500MiB (default: 70 % of what is free)",
     TEXT(memory, 0, "SIZE")},
    {.name = "act-rule",
     .help = "scales of quantized activations as in transformers (compressed-tensors) or as in vLLM's kernels",
     WORD(act_rule, CALM_ACT_RULE_NAMES, "compressed-tensors"), .place = "act_rule"},
    {.name = "exact-float",
     .help = "simulate quantized inputs in float in guard, probes and evaluation, instead of exact integer sums",
     FLAG(exact_float), .place = "exact_float"},
    {.name = "probe-samples",
     .help = "held-out calibration windows on which single units are probed",
     COUNT(probe_samples, 1, WINDOWS_MAX, "16"), .place = "choice.probe_samples"},
    {.name = "prefix",
     .help = "inputs of a block in calibration. float: from the float blocks before it; quantized: from the "
             "quantized blocks before it (choices then depend on each other); asymmetric: from the quantized "
             "blocks, with the float outputs as targets, for the transform asym",
     WORD(prefix, CALM_PREFIX_NAMES, "float"), .place = "calibration.prefix"},
    {.name = "weight",
     .help = "weights of calibration rows in fits. none: all equal; gradient: from gradients of the float model at "
             "the output of each job (decoders); first: the first token of a window, to which all others attend, "
             "counts up to 32 times; auto: first in a decoder with float activations whose windows all begin with "
             "one token, such as <bos>",
     WORD(weight, CALM_WEIGHT_NAMES, "auto"), .place = "calibration.weight"},
    {.name = "calib-dtype",
     .help = "operands of matrix products. f32: as they are; bf16x2: sums of two bfloat16 with 16 bits, 8 while "
             "learning (half the time with AMX, else f32); bf16: rounded, in calibration alone (half the time with "
             "AVX512-BF16, a third with AMX); auto: bf16x2 with AMX where no kernels are named, else "
             "f32, and the lock says which",
     WORD(calib_dtype, CALM_OPERANDS_NAMES "|auto", "auto"), .place = "calibration.dtype"},
    {.name = "learn",
     .help = "learn from the result by gradients. blocks: rounding, scales and norms of each block; kl: scales and "
             "norms of the whole model",
     WORD(learn, CALM_LEARN_NAMES, "none"), .place = "learn"},
    {.name = "learn-steps",
     .help = "gradient steps per block, each on 512 tokens or one longer window",
     COUNT(learn_steps, 50, 1000000, "200"), .place = "learn_steps"},
    {.name = "learn-loss",
     .help = "loss of --learn kl for encoders. output: 1 - cosine of the embeddings; mini: also the relations "
             "between tokens in the last attention, queries to keys and values to values",
     WORD(learn_loss, CALM_LEARN_LOSS_NAMES, "output"), .place = "learn_loss"},
    /* From here on: options of one choice and one result. */
    {.name = "budget", .basic = true,
     .help = "mean bits per weight, for which the schemes of --scheme compete; several budgets (2.5,3,3.5) give a "
             "table",
     AT(budgets), .type = CALM_OPTION_NUMBERS, .min = 0x1p-1000, .max = CALM_BUDGET_MAX, .metavar = "BITS",
     .place = "choice.budget", .yields_to = "size|bits-per-weight"},
    {.name = "size",
     .help = "largest size of the written file, embedding and head included: 3.0MB, 350MB; the schemes of --scheme "
             "compete for it",
     TEXT(size, 32, "SIZE"), .place = "choice.size", .yields_to = "budget|bits-per-weight"},
    {.name = "bits-per-weight",
     .help = "as --size, in bits per weight over all tensors of the file, float ones included",
     AT(file_bits), .type = CALM_OPTION_DOUBLE, .min = 0x1p-1000, .max = CALM_FILE_BITS_MAX, .metavar = "BITS",
     .place = "choice.bits_per_weight", .yields_to = "budget|size"},
    {.name = "act-budget",
     .help = "mean bits of activations, for which the schemes of --scheme with a4, a8 and a16 (float) compete",
     AT(act_budget), .type = CALM_OPTION_DOUBLE, .min = 0x1p-1000, .max = CALM_ACT_BUDGET_MAX, .metavar = "BITS",
     .place = "choice.act_budget"},
    {.name = "sensitivity",
     .help = "how a budget predicts the loss of each unit. probe: quantize only that unit and measure; gradient: "
             "from gradients of the float model, faster with many units (decoders); auto: gradient where it agrees "
             "with probes",
     WORD(sensitivity, CALM_SENSITIVITY_NAMES, "auto"), .place = "choice.sensitivity"},
    {.name = "unit",
     .help = "what gets one algorithm: a job (linears with the same input), a sublayer or a block",
     WORD(unit, CALM_UNIT_NAMES, "job"), .place = "choice.unit"},
    {.name = "effort",
     .help = "light: skip smoothing of quantized inputs without outliers; high: the same as --learn both",
     WORD(effort, CALM_EFFORT_NAMES, "full"), .place = "choice.effort"},
    {.name = "rule",
     .help = "argmax: the candidate with the least score (CALM as published: --metric cka); token: among candidates "
             "within --shortlist of the least score, the one with the least log_rel_mse",
     WORD(rule, CALM_CHOICE_RULE_NAMES, "argmax"), .place = "choice.rule"},
    {.name = "shortlist",
     .help = "--rule token: candidates up to this factor of the least score compete (default "
             TEXT_OF(CALM_SHORTLIST_DEFAULT) "); 1000000: all",
     AT(shortlist), .type = CALM_OPTION_DOUBLE, .min = 1, .max = CALM_SHORTLIST_MAX, .metavar = "FACTOR",
     .place = "choice.shortlist"},
    {.name = "metric", .help = "score that the rule reads (default rel_mae; cka_token with --rule token)",
     TEXT(metric, 64, "NAME"), .place = "choice.metric"},
    {.name = "keep-hybrid",
     .help = "keep the hybrid even if a uniform run is as good or better, and the rotated model even if the given "
             "model is",
     FLAG(keep_hybrid), .place = "choice.keep_hybrid"},
    {.name = "split-v",
     .help = "treat v as a separate job, so that a budget or size may give it another type than q and k (gguf and "
             "mlx, whose readers do not fuse the three)",
     FLAG(split_v), .place = "choice.split_v"},
    {.name = "keep-candidates",
     .help = "keep the codes of all candidates in the store (default: only of the chosen ones; calm computes others "
             "again when needed)",
     FLAG(keep_candidates), .place = "keep_candidates"},
    {.name = "pin",
     .help = "give units of this name or pattern this candidate; if several candidates match, the rule chooses",
     AT(pins), .type = CALM_OPTION_PAIRS, .max = 4096, .metavar = "UNIT=CANDIDATE", .place = "choice.pins"},
    {.name = "forbid",
     .help = "never choose this candidate: a name, a pattern (mkq*) or #NUMBER",
     LIST(forbid, 64, "CANDIDATE"), .place = "choice.forbid"},
    {.name = "gate",
     .help = "condition on the result, such as 'ppl_ratio <= 1.05'; exit status 3 if it does not hold; may be "
             "repeated",
     LIST(gates, 64, "GATE"), .place = "gates"},
    {.name = "format", .basic = true,
     .help = "compressed-tensors (the default), gptq, awq, mlx, gguf, imatrix, tensor-types; several: one folder "
             "each",
     LIST(formats, 7, "LIST"), .place = "formats"},
    {.name = "max-shard-size", .help = "largest total size of the tensors in a file (default: 5GB of safetensors, "
             "one GGUF file)",
     TEXT(max_shard_size, 0, "SIZE"), .place = "export.max_shard_size"},
    {.name = "kv-cache",
     .help = "fp8: the engine keeps keys and values in 8 bits, with scales of each block from the calibration "
             "(compressed-tensors: vLLM, SGLang)",
     WORD(kv_cache, "none|fp8", "none"), .place = "kv_cache"},
    {.name = "gguf-type",
     .help = "the types that llama-quantize gives matrices under this name: Q4_K_M, Q3_K_S, IQ4_XS, ...",
     TEXT(gguf_type, 32, "NAME")},
    {.name = "gguf-pre",
     .help = "llama.cpp's name of the pre-tokenizer, if calm cannot tell it from the split pattern",
     TEXT(gguf_pre, 0, "NAME"), .place = "export.gguf_pre"},
    {.name = "gguf-float",
     .help = "dtype of float tensors in a GGUF file",
     WORD(gguf_float, CALM_EXPORT_FLOAT_NAMES, "stored"), .place = "export.gguf_float"},
    {.name = "embed-scheme",
     .help = "number format of the embedding, or float (default: GGUF and MLX: as their own tools, else float)",
     TEXT(embed_scheme, 64, "NAME"), .place = "export.embed_scheme"},
    {.name = "head-scheme", .help = "number format of the head, or float; a tied table has one format for both",
     TEXT(head_scheme, 64, "NAME"), .place = "export.head_scheme"},
    {.name = "target", .basic = true,
     .help = "engine that must run the result; calm uses its format, and only schemes and shapes of its kernels",
     TEXT(target, 0, CALM_ENGINE_NAMES), .place = "target"},
    {.name = "kernels",
     .help = "OpenBLAS kernels: a core type (Haswell, SkylakeX, ...)",
     TEXT(kernels, 64, "TYPE"), .place = "kernels"},
    {.name = "no-eval", .help = "skip the evaluation", FLAG(no_eval), .place = "evaluation",
     .yields_to = "eval-text|eval-samples"},
    {.name = "output", .basic = true,
     .help = "folder to write (default calm-out/MODEL-SCHEME)", TEXT(output, 0, "DIR"),
     .key = 'o'},
    {.name = "force", .basic = true, .help = "replace the output", FLAG(force), .key = 'f'},
    {0},
};

size_t calm_spec_shared(void)
{
    return (size_t)(calm_option_find(calm_spec_table, "budget") - calm_spec_table);
}

calm_status calm_spec_init(calm_ctx *ctx, calm_recipe_spec *out)
{
    memset(out, 0, sizeof *out);
    return calm_options_init(ctx, calm_spec_table, out);
}

/* Finds an option by its place, which is unique, or by its name. */
static const calm_option *find(const char *key)
{
    for (const calm_option *option = calm_spec_table; option->name; option++)
        if (option->place && strcmp(option->place, key) == 0)
            return option;
    return calm_option_find(calm_spec_table, key);
}

calm_status calm_spec_set(calm_ctx *ctx, calm_recipe_spec *spec, const char *key, const char *value)
{
    CALM_ENTER(ctx, spec && key && value);
    const calm_option *option = find(key);
    const char *names[2 * CALM_SPEC_OPTIONS];
    char hint[CALM_HINT_MAX];
    size_t n = 0;
    if (option) {
        CALM_TRY(calm_option_set_one(ctx, option, spec, "recipe", value, false));
        spec->given[option - calm_spec_table] = true;
        return CALM_OK;
    }
    for (const calm_option *at = calm_spec_table; at->name; at++) {
        names[n++] = at->name;
        if (at->place)
            names[n++] = at->place;
    }
    return calm_fail(ctx, CALM_EARG, "recipe: there is no key \"%.100s\"%s", key,
                     calm_did_you_mean(hint, key, names, n));
}

bool calm_spec_given(const calm_recipe_spec *spec, const char *name)
{
    const calm_option *option = calm_option_find(calm_spec_table, name);
    return option && spec->given[option - calm_spec_table];
}

const char *calm_spec_flag(const char *key)
{
    const calm_option *option = find(key);
    return option ? option->name : NULL;
}

const char *calm_spec_default_schemes(const calm_recipe_spec *spec)
{
    static const char *const by_bits[9] = {[2] = "w2a16_g64", [3] = "w3a16_g128", [4] = "w4a16_g128", [8] = "w8a16"};
    if (spec->gguf_type)
        return calm_mix_called(spec->gguf_type);
    if (calm_spec_sized(spec) && spec->formats.n == 1 && strcmp(spec->formats.of[0], "gguf") == 0)
        return GGUF_SCHEMES;
    if (spec->budgets.n || calm_spec_sized(spec))
        return BUDGET_SCHEMES;
    return spec->bits >= 0 && spec->bits <= 8 ? by_bits[spec->bits] : NULL;
}

const char *calm_spec_default_algorithms(const calm_recipe_spec *spec)
{
    const bool shares = spec->budgets.n || calm_spec_sized(spec);
    return shares && spec->preset != CALM_RECIPE_FAST ? BUDGET_POOL : NULL;
}

bool calm_spec_sized(const calm_recipe_spec *spec)
{
    return spec->size || spec->file_bits > 0;
}

calm_status calm_spec_keep_float(calm_ctx *ctx, const calm_recipe_spec *spec, calm_words *out)
{
    *out = (calm_words){0};
    for (size_t i = 0; i < spec->keep_float.n; i++)
        CALM_TRY(calm_words_add(ctx, out, spec->keep_float.of[i]));
    for (size_t i = 0; i < spec->ignore.n; i++)
        CALM_TRY(calm_words_add(ctx, out, spec->ignore.of[i]));
    return CALM_OK;
}
