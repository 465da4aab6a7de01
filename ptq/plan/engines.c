/* What engines take.  Versions read: vLLM 0.33, SGLang 0.5.23, Transformers 5.23 with compressed-tensors 0.17 to 0.20,
 * mlx-lm 0.32, llama.cpp; docs/targets.md has each rule with its source. */
#include "ptq/plan/engines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptq/base/text.h"

#define MAX_FORMATS 4

/* Widths as a set. */
#define B(bits)   (1u << (bits))
#define B_2_TO_8  (B(2) | B(3) | B(4) | B(5) | B(6) | B(7) | B(8))
#define B_STORED  (B(2) | B(3) | B(4) | B(8))    /* that calm has a layout for */

/* What a kernel family asks. */
typedef struct limits {
    unsigned bits, zeros;             /* weight-only: widths, and those at which zero points may be                */
    unsigned pairs;                   /* with quantized activations: widths of weights; 0: weight-only             */
    unsigned acts;                    /* widths of those activations                                               */
    bool pairs_group;                 /* such weights may have groups                                              */
    size_t groups[4];                 /* sizes that are known, ended by 0; none: every size                        */
    size_t group_multiple;            /* that every size is a multiple of; 0: none                                 */
    bool row;                         /* one scale per row                                                         */
    size_t columns, rows;             /* weight-only: divide input and output; 0: any                              */
} limits;

/* Marlin: GPTQ_MARLIN_MIN_THREAD_K, _N and its group sizes; W8A8 goes to CUTLASS or Triton, which take every shape. */
#define MARLIN .groups = {32, 64, 128}, .row = true, .columns = 128, .rows = 64
/* Its mixture: hidden size % 128, intermediate size % 64, as rows and columns of gate_up and down. */
#define MARLIN_EXPERTS .groups = {32, 64, 128}, .row = true, .columns = 64, .rows = 128
#define INT8_PAIR .pairs = B(8), .acts = B(8)

typedef struct reading {
    const char *format;               /* NULL: no more                                                             */
    limits dense, experts;
    calm_tie tie;
} reading;

struct calm_engine {
    const char *name, *summary, *formats;
    reading readings[MAX_FORMATS];
};

static const calm_engine any = {"any", "asks for nothing beyond what the format can express", "", {{0}}};

static const calm_engine vllm = {
    "vllm", "vLLM: Marlin kernels, W8A8", "compressed-tensors,gptq,awq",
    {{"compressed-tensors", {.bits = B_2_TO_8, .zeros = B(4), INT8_PAIR, MARLIN},
      {.bits = B(4) | B(8), INT8_PAIR, MARLIN_EXPERTS}, CALM_TIE_BLOCK},
     {"gptq", {.bits = B(4) | B(8), MARLIN}, {.bits = B(4) | B(8), MARLIN_EXPERTS}, CALM_TIE_BLOCK},
     {"awq", {.bits = B(4), .zeros = B(4), MARLIN}, {.bits = B(4), .zeros = B(4), MARLIN_EXPERTS}, CALM_TIE_MODEL}},
};

static const calm_engine sglang = {
    "sglang", "SGLang: Marlin kernels, W8A8", "compressed-tensors,gptq,awq",
    {{"compressed-tensors", {.bits = B(4) | B(8), .zeros = B(4), INT8_PAIR, MARLIN},
      {.bits = B(4) | B(8), INT8_PAIR, MARLIN_EXPERTS}, CALM_TIE_BLOCK},
     {"gptq", {.bits = B(4) | B(8), MARLIN}, {.bits = B(4) | B(8), MARLIN_EXPERTS}, CALM_TIE_BLOCK},
     {"awq", {.bits = B(4), .zeros = B(4), MARLIN}, {.bits = B(4), .zeros = B(4), MARLIN_EXPERTS}, CALM_TIE_MODEL}},
};

/* Blocks of 32; 2 and 3 bits are written as Q4_0, which has no zero point. */
#define GGML .bits = B_STORED, .zeros = B(4), .group_multiple = 32, .row = true, .columns = 32

static const calm_engine llamacpp = {
    "llamacpp", "llama.cpp: Q4_0, Q4_1 and Q8_0, weight-only", "gguf",
    {{"gguf", {GGML}, {GGML}, CALM_TIE_PROJECTION}},
};

#define AFFINE .bits = B_STORED, .zeros = B_STORED, .groups = {32, 64, 128}

static const calm_engine mlx = {
    "mlx", "MLX: affine groups of 32, 64 or 128, weight-only", "mlx",
    {{"mlx", {AFFINE}, {AFFINE}, CALM_TIE_PROJECTION}},
};

/* Zero points: compressed-tensors 0.18 to 0.20 do not load them; experts: one packed, symmetric scheme for all. */
static const calm_engine transformers = {
    "transformers", "Transformers: everything symmetric that compressed-tensors stores, activations simulated",
    "compressed-tensors,gptq",
    {{"compressed-tensors",
      {.bits = B_STORED, .pairs = B(4) | B(8), .acts = B(4) | B(8), .pairs_group = true, .row = true},
      {.bits = B_STORED, .row = true}, CALM_TIE_EXPERTS},
     {"gptq", {.bits = B_STORED, .row = true}, {.bits = B_STORED, .row = true}, CALM_TIE_MODEL}},
};

const calm_engine *const *calm_engines(size_t *n)
{
    static const calm_engine *const all[] = {&any, &vllm, &sglang, &llamacpp, &mlx, &transformers};
    *n = sizeof all / sizeof *all;
    return all;
}

/* ---- names ---- */

const char *calm_engine_rule_name(calm_engine_rule rule)
{
    static const char *const names[] = {
        "takes",
#define CALM_ENGINE_RULE_NAME(rule, name, help) name,
        CALM_ENGINE_RULE_LIST(CALM_ENGINE_RULE_NAME)
#undef CALM_ENGINE_RULE_NAME
    };
    return names[rule];
}

const calm_engine *calm_engine_find(const char *name)
{
    size_t n;
    const calm_engine *const *all = calm_engines(&n);
    for (size_t i = 0; i < n; i++)
        if (strcmp(all[i]->name, name) == 0)
            return all[i];
    return NULL;
}

calm_status calm_engine_parse(calm_ctx *ctx, const char *name, const calm_engine **out)
{
    size_t n;
    const calm_engine *const *all = calm_engines(&n);
    const char *names[16];
    *out = calm_engine_find(name);
    if (*out)
        return CALM_OK;
    for (size_t i = 0; i < n; i++)
        names[i] = all[i]->name;
    const char *near = calm_nearest(name, names, n);
    return calm_fail(ctx, CALM_EARG, "target \"%.60s\": expected one of " CALM_ENGINE_NAMES "%s%s%s", name,
                     near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

const char *calm_engine_name(const calm_engine *engine)
{
    return engine->name;
}

const char *calm_engine_summary(const calm_engine *engine)
{
    return engine->summary;
}

const char *calm_engine_formats(const calm_engine *engine)
{
    return engine->formats;
}

bool calm_engine_is_any(const calm_engine *engine)
{
    return !engine || engine == &any;
}

/* ---- formats ---- */

/* NULL: the engine does not read it, or is `any`. */
static const reading *reading_of(const calm_engine *engine, const char *format)
{
    for (size_t i = 0; i < MAX_FORMATS && engine->readings[i].format; i++)
        if (!format || strcmp(engine->readings[i].format, format) == 0)
            return &engine->readings[i];
    return NULL;
}

bool calm_engine_reads(const calm_engine *engine, const char *format)
{
    return calm_engine_is_any(engine) || reading_of(engine, format);
}

calm_status calm_engine_check_format(calm_ctx *ctx, const calm_engine *engine, const char *format)
{
    if (calm_engine_reads(engine, format))
        return CALM_OK;
    return calm_fail(ctx, CALM_EARG, "--target %s does not read --format %.60s; it reads %s", engine->name, format,
                     engine->formats);
}

/* ---- verdicts ---- */

static bool has_group(const limits *l, size_t group)
{
    bool known = l->groups[0] == 0;
    if (group == 0)
        return l->row;
    for (size_t i = 0; i < sizeof l->groups / sizeof *l->groups && l->groups[i]; i++)
        known |= l->groups[i] == group;
    return known && (!l->group_multiple || group % l->group_multiple == 0);
}

static bool divides(size_t step, size_t n)
{
    return step == 0 || n % step == 0;
}

/* Zero points of weights or activations are known to no kernel beside quantized activations. */
static calm_engine_rule pair_verdict(const limits *l, const calm_engine_linear *linear, const calm_scheme *scheme)
{
    if (!l->pairs || scheme->act_bits > 8 || !(l->acts & B(scheme->act_bits)) || scheme->act_asymmetric)
        return CALM_ENGINE_ACTIVATIONS;
    if (!(l->pairs & B(scheme->bits)))
        return CALM_ENGINE_BITS;
    if (!scheme->symmetric)
        return CALM_ENGINE_ZEROS;
    if (scheme->group && !l->pairs_group)
        return CALM_ENGINE_GROUP;
    return divides(scheme->group, linear->in) ? CALM_ENGINE_TAKES : CALM_ENGINE_COLUMNS;
}

static calm_engine_rule weight_verdict(const limits *l, const calm_engine_linear *linear, const calm_scheme *scheme)
{
    if (!(l->bits & B(scheme->bits)))
        return CALM_ENGINE_BITS;
    if (!scheme->symmetric && !(l->zeros & B(scheme->bits)))
        return CALM_ENGINE_ZEROS;
    if (!has_group(l, scheme->group))
        return CALM_ENGINE_GROUP;
    if (!divides(scheme->group, linear->in) || !divides(l->columns, linear->in))
        return CALM_ENGINE_COLUMNS;
    return divides(l->rows, linear->out) ? CALM_ENGINE_TAKES : CALM_ENGINE_ROWS;
}

/* The limits that count; NULL: the format is not read. */
static const limits *limits_of(const calm_engine *engine, const char *format, const calm_engine_linear *linear)
{
    const reading *r = reading_of(engine, format);
    return !r ? NULL : linear->expert ? &r->experts : &r->dense;
}

calm_engine_rule calm_engine_verdict(const calm_engine *engine, const char *format, const calm_engine_linear *linear,
                                     const calm_scheme *scheme)
{
    if (calm_engine_is_any(engine))
        return CALM_ENGINE_TAKES;
    const limits *l = limits_of(engine, format, linear);
    if (!l)
        return CALM_ENGINE_FORMAT;
    if (scheme->bits == 0)
        return CALM_ENGINE_TAKES;
    if (scheme->bits < 0 || scheme->bits > 8 || scheme->act_bits < 0)
        return CALM_ENGINE_BITS;
    return scheme->act_bits ? pair_verdict(l, linear, scheme) : weight_verdict(l, linear, scheme);
}

/* ---- sentences ---- */

/* "2, 3, 4 or 8" */
static void print_list(calm_text *out, const size_t *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        calm_text_printf(out, "%s%zu", i == 0 ? "" : i + 1 == n ? " or " : ", ", values[i]);
}

static void print_widths(calm_text *out, unsigned set)
{
    size_t values[9], n = 0;
    for (size_t bits = 1; bits <= 8; bits++)
        if (set & B(bits))
            values[n++] = bits;
    print_list(out, values, n);
}

static void print_groups(calm_text *out, const limits *l, size_t group)
{
    size_t n = 0;
    while (n < sizeof l->groups / sizeof *l->groups && l->groups[n])
        n++;
    calm_text_printf(out, "takes groups of ");
    if (n)
        print_list(out, l->groups, n);
    else if (l->group_multiple)
        calm_text_printf(out, "a multiple of %zu", l->group_multiple);
    else
        calm_text_printf(out, "any size");
    calm_text_printf(out, "%s, not ", l->row ? " columns or one scale per row" : " columns");
    if (group)
        calm_text_printf(out, "%zu", group);
    else
        calm_text_printf(out, "one scale per row");
}

static void print_activations(calm_text *out, const limits *l, const calm_scheme *scheme)
{
    if (!l->pairs)
        calm_text_printf(out, "takes weight-only schemes, no quantized activations");
    else if (scheme->act_asymmetric)
        calm_text_printf(out, "takes symmetric activations, none with zero points");
    else {
        calm_text_printf(out, "has kernels for activations of ");
        print_widths(out, l->acts);
        calm_text_printf(out, " bits, not %d", scheme->act_bits);
    }
}

static void print_zeros(calm_text *out, const limits *l, const calm_scheme *scheme)
{
    if (!l->zeros || scheme->act_bits) {
        calm_text_printf(out, "takes symmetric weights%s, none with zero points",
                         scheme->act_bits ? " beside quantized activations" : "");
        return;
    }
    calm_text_printf(out, "takes zero points at ");
    print_widths(out, l->zeros);
    calm_text_printf(out, " bits, not %d", scheme->bits);
}

static void print_rule(calm_text *out, const limits *l, calm_engine_rule rule, const calm_engine_linear *linear,
                       const calm_scheme *scheme)
{
    switch (rule) {
    case CALM_ENGINE_ACTIVATIONS:
        print_activations(out, l, scheme);
        break;
    case CALM_ENGINE_BITS:
        calm_text_printf(out, "takes weights of ");
        print_widths(out, scheme->act_bits ? l->pairs : l->bits);
        calm_text_printf(out, " bits%s, not %d", scheme->act_bits ? " beside quantized activations" : "", scheme->bits);
        break;
    case CALM_ENGINE_ZEROS:
        print_zeros(out, l, scheme);
        break;
    case CALM_ENGINE_GROUP:
        if (scheme->act_bits)
            calm_text_printf(out, "takes one scale per row beside quantized activations, not groups of %zu",
                             scheme->group);
        else
            print_groups(out, l, scheme->group);
        break;
    case CALM_ENGINE_COLUMNS:
        calm_text_printf(out, "takes input columns that %zu divides, not %zu",
                         divides(scheme->group, linear->in) ? l->columns : scheme->group, linear->in);
        break;
    case CALM_ENGINE_ROWS:
        calm_text_printf(out, "takes output rows that %zu divides, not %zu", l->rows, linear->out);
        break;
    default:
        calm_text_printf(out, "takes it");
        break;
    }
}

calm_status calm_engine_explain(calm_ctx *ctx, const calm_engine *engine, const char *format,
                                const calm_engine_linear *linear, const calm_scheme *scheme, char **out)
{
    const calm_engine_rule rule = calm_engine_verdict(engine, format, linear, scheme);
    calm_text text;
    calm_text_init(&text);
    if (rule == CALM_ENGINE_FORMAT)
        calm_text_printf(&text, "reads %s, not %.60s", engine->formats, format);
    else
        print_rule(&text, rule ? limits_of(engine, format, linear) : NULL, rule, linear, scheme);
    calm_status status = calm_text_check(ctx, &text);
    if (status == CALM_OK)
        status = calm_strf(ctx, ctx->out, out, "%s%s", text.data,
                           linear->expert && rule > CALM_ENGINE_FORMAT ? " (experts)" : "");
    calm_text_clear(&text);
    return status;
}

/* ---- proposals ---- */

/* How unlike two schemes are: the width first, then activations, then groups. */
static size_t distance(const calm_scheme *a, const calm_scheme *b)
{
    return (size_t)abs(a->bits - b->bits) * 100 + (size_t)abs(a->act_bits - b->act_bits) * 1000 +
           (a->group != b->group) + (a->group == 0 || b->group == 0);
}

bool calm_engine_propose(const calm_engine *engine, const char *format, const calm_engine_linear *linear,
                         const calm_scheme *scheme, calm_scheme *out)
{
    static const int widths[] = {2, 3, 4, 8};
    static const size_t groups[] = {128, 64, 32, 0};
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        for (size_t j = 0; j < sizeof groups / sizeof *groups; j++)
            for (int act_bits = 0; act_bits <= 8; act_bits += 8) {
                const calm_scheme usual = {.bits = widths[i], .group = groups[j], .symmetric = true,
                                           .act_bits = act_bits, .scale_dtype = scheme->scale_dtype};
                const size_t d = distance(&usual, scheme);
                if ((act_bits && (widths[i] != 8 || groups[j])) || d >= best ||
                    calm_engine_verdict(engine, format, linear, &usual) != CALM_ENGINE_TAKES)
                    continue;
                best = d;
                *out = usual;
            }
    return best != SIZE_MAX;
}

calm_status calm_engine_check_scheme(calm_ctx *ctx, const calm_engine *engine, const char *format,
                                     const calm_engine_linear *linear, const calm_scheme *scheme)
{
    char name[CALM_SCHEME_NAME_MAX], other[CALM_SCHEME_NAME_MAX], *reason;
    calm_scheme proposal;
    if (calm_engine_verdict(engine, format, linear, scheme) == CALM_ENGINE_TAKES)
        return CALM_OK;
    calm_scheme_name(scheme, name);
    CALM_TRY(calm_engine_explain(ctx, engine, format, linear, scheme, &reason));
    if (!calm_engine_propose(engine, format, linear, scheme, &proposal))
        return calm_fail(ctx, CALM_EARG, "--target %s takes no %s for %s [%zu, %zu]: it %s; no usual scheme would do: leave "
                                         "the block out (--blocks) or give another --target",
                         engine->name, name, linear->name, linear->out, linear->in, reason);
    calm_scheme_name(&proposal, other);
    return calm_fail(ctx, CALM_EARG, "--target %s takes no %s for %s [%zu, %zu]: it %s; --scheme %s would do",
                     engine->name, name, linear->name, linear->out, linear->in, reason, other);
}

/* ---- ties ---- */

calm_tie calm_engine_tie(const calm_engine *engine, const char *format)
{
    const reading *r = calm_engine_is_any(engine) ? NULL : reading_of(engine, format);
    return r ? r->tie : CALM_TIE_NONE;
}

calm_tie calm_tie_both(calm_tie a, calm_tie b)
{
    return a > b ? a : b;
}

const char *calm_tie_text(calm_tie tie)
{
    static const char *const texts[] = {"each job by itself", "all experts of a projection", "all experts of a block",
                                        "all experts of the model", "all linears of the model"};
    return texts[tie];
}

size_t calm_tie_number(calm_tie tie, size_t block, bool expert, bool down)
{
    switch (tie) {
    case CALM_TIE_PROJECTION:
        return expert ? 1 + 2 * block + down : 0;
    case CALM_TIE_BLOCK:
        return expert ? 1 + block : 0;
    case CALM_TIE_EXPERTS:
        return expert;
    case CALM_TIE_MODEL:
        return 1;
    default:
        return 0;
    }
}
