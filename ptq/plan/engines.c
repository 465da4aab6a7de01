/* What engines take.  Versions read: vLLM 0.33.0 with humming-kernels 0.1.19, SGLang 0.5.23, Transformers 5.23.0 with
 * compressed-tensors 0.17 to 0.20, optimum 2.3.0 and GPTQModel 7.7.0, mlx-lm 0.32.2, llama.cpp;
 * docs/evidence/engine_rules.csv has the file that each rule comes from. */
#include "ptq/plan/engines.h"

#include <string.h>

#include "ptq/base/scope.h"

#define MAX_FORMATS 4
#define MAX_GROUPS 8
#define MAX_TILES 2

/* Widths as a set. */
#define B(bits)   (1u << (bits))
#define B_2_TO_8  (B(2) | B(3) | B(4) | B(5) | B(6) | B(7) | B(8))
#define B_4_AND_8 (B(4) | B(8))
#define B_STORED  (B(2) | B(3) | B(4) | B(8))    /* that calm has a layout for */

/* What a kernel divides the shape by; 0: any. */
typedef struct tile {
    size_t columns, rows;
} tile;

/* Kernels of one kind of scale. */
typedef struct kernels {
    unsigned bits, zeros;             /* widths, and those at which zero points may be                             */
    tile tiles[MAX_TILES];            /* one of them must divide the shape; none: every shape                      */
} kernels;

/* Sides of the matrix along which codes must fill 32-bit words. */
enum { FILLS_IN = 1, FILLS_OUT = 2, FILLS_ZEROS = 4 /* the output side, where there are zero points */ };

/* What a kernel family asks. */
typedef struct limits {
    kernels grouped, rowwise;         /* weight-only: scales of groups, one scale per row                          */
    size_t groups[MAX_GROUPS];        /* sizes that are known, ended by 0; none: every size                        */
    size_t group_multiple;            /* that every size is a multiple of; 0: none                                 */
    unsigned fills;
    unsigned families;                /* rows of schemes.def next to the integers, as a set of B(CALM_FAMILY_X),    */
    unsigned act_families;            /* and those whose activations are quantized                                 */
    size_t nvfp4;                     /* columns of a block of NVFP4; 0: those of a group                          */
    bool whole_parts;                 /* parts of a linear are computed by themselves: blocks may end within them  */
    unsigned pairs;                   /* with quantized activations: widths of weights; 0: weight-only             */
    unsigned acts;                    /* widths of those activations                                               */
    bool pairs_group;                 /* such weights may have groups                                              */
    bool act_zeros;                   /* activations may have zero points                                          */
    bool act_static;                  /* activations may have one scale for all                                    */
    tile pair[MAX_TILES];             /* shapes with quantized activations                                         */
    tile act_zero[MAX_TILES];         /* and with zero points of those                                             */
    size_t head_rows;                 /* heads are padded to a multiple of this many rows, and loaded row by row      */
    bool head_whole;                  /* its words hold inputs of all rows, so that it cannot be padded            */
} limits;

/* MARLIN_SUPPORTED_GROUP_SIZES, and -1: one scale per row. */
#define MARLIN_GROUPS .groups = {32, 64, 128}
/* Marlin's thread tiles, of either kind; its mixture has the second kind alone: hidden size % 128 and intermediate size
 * % 64, of gate_up and down together. */
#define MARLIN {128, 64}, {64, 128}
#define MARLIN_EXPERT {64, 128}
/* Kernels by widths, widths with zero points, and tiles. */
#define WIDTHS(b, z, ...) {.bits = (b), .zeros = (z), .tiles = {__VA_ARGS__}}
#define INT8_PAIR .pairs = B(8), .acts = B(8)

typedef struct reading {
    const char *format;               /* NULL: no more                                                             */
    limits dense, experts;            /* experts without any width: none may be quantized                          */
    calm_tie tie;
} reading;

struct calm_engine {
    const char *name, *formats;
    reading readings[MAX_FORMATS];
};

static const calm_engine any = {"any", "", {{0}}};

#define FP8       B(CALM_FAMILY_FP8)
#define FP8_BLOCK B(CALM_FAMILY_FP8_BLOCK)
#define MXFP4     B(CALM_FAMILY_MXFP4)
#define NVFP4     B(CALM_FAMILY_NVFP4)

/* Dense shapes are padded to Marlin's tiles when the weight is prepared.  Widths and zero points that Marlin does not
 * have go to Humming, which pads too.  Experts that do not fit Marlin's go to Triton or Humming, with scales of groups
 * alone. */
static const calm_engine vllm = {
    "vllm", "compressed-tensors,gptq,awq",
    {{"compressed-tensors",
      {.grouped = WIDTHS(B_2_TO_8, B_2_TO_8), .rowwise = WIDTHS(B_2_TO_8, B_2_TO_8), MARLIN_GROUPS,
       .fills = FILLS_IN | FILLS_ZEROS, INT8_PAIR, .act_zeros = true, .act_zero = {{16, 16}},
       .act_static = true, .families = FP8 | FP8_BLOCK | MXFP4 | NVFP4,
       .act_families = FP8 | FP8_BLOCK | MXFP4 | NVFP4, .head_rows = 64},
      {.grouped = WIDTHS(B_2_TO_8, B_2_TO_8),
       .rowwise = WIDTHS(B_4_AND_8, B(4), MARLIN_EXPERT), MARLIN_GROUPS,
       .fills = FILLS_IN | FILLS_ZEROS, INT8_PAIR, .families = MXFP4 | NVFP4,
       .act_families = FP8 | FP8_BLOCK | MXFP4 | NVFP4},
      CALM_TIE_BLOCK},
     {"gptq",
      {.grouped = WIDTHS(B_4_AND_8, 0), .rowwise = WIDTHS(B_4_AND_8, 0), MARLIN_GROUPS, .fills = FILLS_IN | FILLS_OUT,
       .head_rows = 64, .head_whole = true},
      {.grouped = WIDTHS(B_4_AND_8, 0), .rowwise = WIDTHS(B_4_AND_8, 0, MARLIN_EXPERT), MARLIN_GROUPS,
       .fills = FILLS_IN | FILLS_OUT},
      CALM_TIE_BLOCK},
     {"awq",
      {.grouped = WIDTHS(B(4), B(4)), .rowwise = WIDTHS(B(4), B(4)), MARLIN_GROUPS,
       .fills = FILLS_OUT},
      {.grouped = WIDTHS(B(4), B(4)), MARLIN_GROUPS, .fills = FILLS_OUT},
      CALM_TIE_MODEL}},
};

/* Nothing is padded.  Its Marlin has no kernel for 8 bits with zero points, and its mixture reads those of
 * compressed-tensors in AWQ's order.  AWQ falls back to kernels that take other shapes, in groups.  W8A8 is CUTLASS
 * alone, and not for experts.  Of small floats there is no scheme for MXFP4, nor for FP8 weights alone of experts or in
 * blocks. */
static const calm_engine sglang = {
    "sglang", "compressed-tensors,gptq,awq",
    {{"compressed-tensors",
      {.grouped = WIDTHS(B_4_AND_8, B(4), MARLIN),
       .rowwise = WIDTHS(B_4_AND_8, B(4), MARLIN), MARLIN_GROUPS, INT8_PAIR, .pair = {{16, 8}},
       .families = FP8 | NVFP4, .act_families = FP8 | FP8_BLOCK | NVFP4, .head_rows = 64},
      {.grouped = WIDTHS(B_4_AND_8, 0, MARLIN_EXPERT),
       .rowwise = WIDTHS(B_4_AND_8, 0, MARLIN_EXPERT), MARLIN_GROUPS,
       .families = NVFP4, .act_families = FP8 | FP8_BLOCK | NVFP4},
      CALM_TIE_BLOCK},
     {"gptq",
      {.grouped = WIDTHS(B_4_AND_8, 0, MARLIN), .rowwise = WIDTHS(B_4_AND_8, 0, MARLIN),
       MARLIN_GROUPS, .head_rows = 64, .head_whole = true},
      {.grouped = WIDTHS(B_4_AND_8, 0, MARLIN_EXPERT),
       .rowwise = WIDTHS(B_4_AND_8, 0, MARLIN_EXPERT), MARLIN_GROUPS},
      CALM_TIE_BLOCK},
     {"awq",
      {.grouped = WIDTHS(B(4), B(4)), .rowwise = WIDTHS(B(4), B(4), {128, 64}),
       MARLIN_GROUPS, .fills = FILLS_OUT},
      {.grouped = WIDTHS(B(4), B(4)), MARLIN_GROUPS, .fills = FILLS_OUT},
      CALM_TIE_MODEL}},
};

/* Blocks of 32, of NVFP4 64; 2 and 3 bits are written as Q4_0, which has no zero point. */
#define GGML_BLOCKS WIDTHS(B_STORED, B(4), {32, 0})
#define GGML                                                                                                           \
    .grouped = GGML_BLOCKS, .rowwise = GGML_BLOCKS, .group_multiple = 32, .families = CALM_GGUF_FAMILIES, .nvfp4 = 64

static const calm_engine llamacpp = {"llamacpp", "gguf", {{"gguf", {GGML}, {GGML}, CALM_TIE_PROJECTION}}};

#define AFFINE .grouped = WIDTHS(B_STORED, B_STORED), .groups = {32, 64, 128}

/* Of AWQ one scheme is read for all, and experts are not stacked. */
static const calm_engine mlx = {
    "mlx", "mlx,awq",
    {{"mlx", {AFFINE}, {AFFINE}, CALM_TIE_PROJECTION},
     {"awq", {.grouped = WIDTHS(B(4), B(4)), .groups = {32, 64, 128}, .fills = FILLS_OUT},
      .tie = CALM_TIE_MODEL}},
};

/* Zero points: compressed-tensors 0.18 to 0.20 do not load them; experts: one packed, symmetric scheme for all.  GPTQ
 * and AWQ are GPTQModel's torch kernels, one scheme for all; they replace linears, which experts are not. */
static const calm_engine transformers = {
    "transformers", "compressed-tensors,gptq,awq",
    {{"compressed-tensors",
      {.grouped = WIDTHS(B_STORED, 0), .rowwise = WIDTHS(B_STORED, 0), .pairs = B_4_AND_8, .acts = B_4_AND_8,
       .pairs_group = true, .act_zeros = true, .act_static = true, .families = FP8 | FP8_BLOCK | MXFP4 | NVFP4,
       .act_families = FP8 | FP8_BLOCK | MXFP4 | NVFP4, .whole_parts = true},
      {.grouped = WIDTHS(B_STORED, 0), .rowwise = WIDTHS(B_STORED, 0)},
      CALM_TIE_EXPERTS},
     {"gptq",
      {.grouped = WIDTHS(B_STORED, B_STORED), .rowwise = WIDTHS(B_STORED, B_STORED),
       .groups = {16, 32, 64, 128, 256, 512, 1024}},
      .tie = CALM_TIE_MODEL},
     {"awq",
      {.grouped = WIDTHS(B(4), B(4)), .rowwise = WIDTHS(B(4), B(4)), .groups = {16, 32, 64, 128},
       .fills = FILLS_OUT},
      .tie = CALM_TIE_MODEL}},
};

/* In the order of CALM_ENGINE_NAMES. */
static const calm_engine *const engines[] = {&any, &vllm, &sglang, &llamacpp, &mlx, &transformers};

enum { N_ENGINES = sizeof engines / sizeof *engines };

/* ---- names ---- */

const calm_engine *calm_engine_find(const char *name)
{
    for (size_t i = 0; i < N_ENGINES; i++)
        if (strcmp(engines[i]->name, name) == 0)
            return engines[i];
    return NULL;
}

calm_status calm_engine_parse(calm_ctx *ctx, const char *name, const calm_engine **out)
{
    const char *names[N_ENGINES];
    *out = calm_engine_find(name);
    if (*out)
        return CALM_OK;
    for (size_t i = 0; i < N_ENGINES; i++)
        names[i] = engines[i]->name;
    const char *near = calm_nearest(name, names, N_ENGINES);
    return calm_fail(ctx, CALM_EARG, "target \"%.60s\": expected one of " CALM_ENGINE_NAMES "%s%s%s", name,
                     near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

const char *calm_engine_name(const calm_engine *engine)
{
    return engine->name;
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

/* ---- verdicts ---- */

size_t calm_engine_part(size_t part, size_t rows)
{
    while (part) {    /* Euclid */
        const size_t rest = rows % part;
        rows = part;
        part = rest;
    }
    return rows;
}

static bool divides(size_t step, size_t n)
{
    return step == 0 || n % step == 0;
}

static bool has_size(const limits *l, size_t group)
{
    bool known = l->groups[0] == 0;
    for (size_t i = 0; i < MAX_GROUPS && l->groups[i]; i++)
        known |= l->groups[i] == group;
    return known && divides(l->group_multiple, group);
}

/* Codes that fill 32-bit words along a side: 8 of 4 bits, 32 of 3. */
static size_t word_step(int bits)
{
    /* The least power of two n with n * bits % 32 = 0. */
    size_t step = 32;
    while (step % 2 == 0 && step / 2 * (size_t)bits % 32 == 0)
        step /= 2;
    return step;
}

static bool has(const kernels *k, const calm_scheme *scheme)
{
    return (k->bits & B(scheme->bits)) && (scheme->symmetric || (k->zeros & B(scheme->bits)));
}

static bool fills_out(const limits *l, const calm_scheme *scheme)
{
    return l->fills & FILLS_OUT || (l->fills & FILLS_ZEROS && !scheme->symmetric);
}

/* The tiles [MAX_TILES] of the kernels that the scheme needs. */
static const tile *tiles_of(const limits *l, const calm_scheme *scheme)
{
    if (scheme->act_bits)
        return scheme->act_asymmetric ? l->act_zero : l->pair;
    return scheme->group ? l->grouped.tiles : l->rowwise.tiles;
}

static size_t n_tiles(const tile *tiles)
{
    size_t n = 0;
    while (n < MAX_TILES && (tiles[n].columns || tiles[n].rows))
        n++;
    return n;
}

/* Columns are said to be wrong unless rows alone are. */
/* Alternatives are whole tiles: columns of one and rows of another do not make a kernel. */
static calm_engine_rule tile_verdict(const limits *l, const calm_engine_linear *linear, const calm_scheme *scheme)
{
    const tile *tiles = tiles_of(l, scheme);
    const size_t n = n_tiles(tiles);
    bool columns = false, rows = false;
    for (size_t i = 0; i < n; i++) {
        const bool c = divides(tiles[i].columns, linear->in), r = divides(tiles[i].rows, linear->out);
        if (c && r)
            return CALM_ENGINE_TAKES;
        columns |= c;
        rows |= r;
    }
    return n == 0 ? CALM_ENGINE_TAKES : columns && !rows ? CALM_ENGINE_ROWS : CALM_ENGINE_COLUMNS;
}

static calm_engine_rule pair_verdict(const limits *l, const calm_engine_linear *linear, const calm_scheme *scheme)
{
    if (!l->pairs || scheme->act_bits > 8 || !(l->acts & B(scheme->act_bits)) ||
        (scheme->act_asymmetric && !l->act_zeros) ||
        (scheme->act_rule == CALM_ACT_RULE_STATIC && !l->act_static))
        return CALM_ENGINE_ACTIVATIONS;
    /* The order of the checks is that of calm_engine_rule: a verdict names the broadest rule that is
     * broken.
     */
    if (!(l->pairs & B(scheme->bits)))
        return CALM_ENGINE_BITS;
    if (!scheme->symmetric)
        return CALM_ENGINE_ZEROS;
    if (scheme->group && !l->pairs_group)
        return CALM_ENGINE_GROUP;
    return divides(scheme->group, linear->in) ? tile_verdict(l, linear, scheme) : CALM_ENGINE_COLUMNS;
}

static calm_engine_rule weight_verdict(const limits *l, const calm_engine_linear *linear, const calm_scheme *scheme)
{
    const size_t step = word_step(scheme->bits);
    if (!((l->grouped.bits | l->rowwise.bits) & B(scheme->bits)))
        return CALM_ENGINE_BITS;
    /* A width that only some kernels have is a question of zero points or groups, not of bits. */
    if (!has(&l->grouped, scheme) && !has(&l->rowwise, scheme))
        return CALM_ENGINE_ZEROS;
    if (scheme->group ? !has(&l->grouped, scheme) || !has_size(l, scheme->group) : !has(&l->rowwise, scheme))
        return CALM_ENGINE_GROUP;
    if (!divides(scheme->group, linear->in) || (l->fills & FILLS_IN && linear->in % step))
        return CALM_ENGINE_COLUMNS;
    return fills_out(l, scheme) && linear->out % step ? CALM_ENGINE_ROWS : tile_verdict(l, linear, scheme);
}

/* Columns that a block of the family has. */
static size_t family_block(const limits *l, const calm_scheme *scheme)
{
    return scheme->family == CALM_FAMILY_NVFP4 && l->nvfp4 ? l->nvfp4 : calm_scheme_block(scheme);
}

/* Blocks of rows do not cross parts, whose scales stand under each other: each but the last fills its blocks.
 * transformers fuses none, and pads columns of weights alone. */
static calm_engine_rule family_verdict(const limits *l, const calm_engine_linear *linear, const calm_scheme *scheme)
{
    const size_t rows = calm_scheme_rows(scheme);
    if (!((scheme->act_bits ? l->act_families : l->families) & B(scheme->family)))
        return CALM_ENGINE_FAMILY;
    if (!divides(family_block(l, scheme), linear->in) && (scheme->act_bits || rows == 1 || !l->whole_parts))
        return CALM_ENGINE_COLUMNS;
    return l->whole_parts || divides(rows, linear->part) ? CALM_ENGINE_TAKES : CALM_ENGINE_ROWS;
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
    /* Widths are bits of a set, so one out of range must not be shifted. */
    if (scheme->bits < 0 || scheme->bits > 8 || scheme->act_bits < 0)
        return CALM_ENGINE_BITS;
    /* GGUF's own types fall back to others where their super-blocks do not divide the columns. */
    const calm_scheme stored = calm_scheme_for(scheme, linear->in);
    scheme = &stored;
    calm_engine_linear padded = *linear;
    if (linear->head && l->head_rows) {
        if (calm_scheme_rows(scheme) > 1 || (l->head_whole && linear->out % l->head_rows))
            return CALM_ENGINE_HEAD;
        padded.out = (linear->out + l->head_rows - 1) / l->head_rows * l->head_rows;
    }
    /* Kernels of a family have its one group size, and no zero points. */
    if (scheme->family)
        return family_verdict(l, &padded, scheme);
    return scheme->act_bits ? pair_verdict(l, &padded, scheme) : weight_verdict(l, &padded, scheme);
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

static void print_groups(calm_text *out, const limits *l, const calm_scheme *scheme)
{
    const bool rows = has(&l->rowwise, scheme);
    size_t n = 0;
    while (n < MAX_GROUPS && l->groups[n])
        n++;
    if (scheme->act_bits) {
        calm_text_printf(out, "takes one scale per row next to quantized activations, not groups of %zu",
                         scheme->group);
        return;
    }
    calm_text_printf(out, "takes ");
    if (has(&l->grouped, scheme)) {
        calm_text_printf(out, "groups of ");
        if (n)
            print_list(out, l->groups, n);
        else if (l->group_multiple)
            calm_text_printf(out, "a multiple of %zu", l->group_multiple);
        else
            calm_text_printf(out, "any size");
        calm_text_printf(out, " columns%s", rows ? " or " : "");
    }
    calm_text_printf(out, "%s, not ", rows ? "one scale per row" : "");
    if (scheme->group)
        calm_text_printf(out, "%zu", scheme->group);
    else
        calm_text_printf(out, "one scale per row");
}

static void print_activations(calm_text *out, const limits *l, const calm_scheme *scheme)
{
    if (!l->pairs)
        calm_text_printf(out, "takes weight-only schemes, no quantized activations");
    else if (scheme->act_bits > 8 || !(l->acts & B(scheme->act_bits))) {
        calm_text_printf(out, "has kernels for activations of ");
        print_widths(out, l->acts);
        calm_text_printf(out, " bits, not %d", scheme->act_bits);
    } else if (scheme->act_rule == CALM_ACT_RULE_STATIC)
        calm_text_printf(out, "takes activations with a scale per token, not one for all");
    else
        calm_text_printf(out, "takes symmetric activations, none with zero points");
}

static void print_zeros(calm_text *out, const limits *l, const calm_scheme *scheme)
{
    const unsigned zeros = l->grouped.zeros | l->rowwise.zeros;
    if (!zeros || scheme->act_bits) {
        calm_text_printf(out, "takes symmetric weights%s, none with zero points",
                         scheme->act_bits ? " next to quantized activations" : "");
        return;
    }
    calm_text_printf(out, "takes zero points at ");
    print_widths(out, zeros);
    calm_text_printf(out, " bits, not %d", scheme->bits);
}

static void print_bits(calm_text *out, const limits *l, const calm_scheme *scheme)
{
    const unsigned bits = scheme->act_bits ? l->pairs : l->grouped.bits | l->rowwise.bits;
    if (!bits) {
        calm_text_printf(out, "takes none that are quantized in this format");
        return;
    }
    calm_text_printf(out, "takes weights of ");
    print_widths(out, bits);
    calm_text_printf(out, " bits%s, not %d", scheme->act_bits ? " next to quantized activations" : "", scheme->bits);
}

/* What must divide the side that the rule is about; 0: each side suits a tile, but no tile suits both. */
static size_t broken_step(const limits *l, bool rows, const calm_engine_linear *linear, const calm_scheme *scheme)
{
    const tile *tiles = tiles_of(l, scheme);
    const size_t side = rows ? linear->out : linear->in, step = word_step(scheme->bits);
    size_t least = SIZE_MAX;
    if (!rows && !divides(scheme->group, side))
        return scheme->group;
    if (!scheme->act_bits && (rows ? fills_out(l, scheme) : l->fills & FILLS_IN) && side % step)
        return step;
    for (size_t i = 0; i < n_tiles(tiles); i++) {
        const size_t ask = rows ? tiles[i].rows : tiles[i].columns;
        least = ask < least ? ask : least;
    }
    return divides(least, side) ? 0 : least;
}

static void print_shape(calm_text *out, const limits *l, bool rows, const calm_engine_linear *linear,
                        const calm_scheme *scheme)
{
    const tile *tiles = tiles_of(l, scheme);
    const size_t step = broken_step(l, rows, linear, scheme);
    if (step)
        calm_text_printf(out, "takes %s that %zu divides, not %zu", rows ? "output rows" : "input columns", step,
                         rows ? linear->out : linear->in);
    else
        calm_text_printf(out, "takes input columns that %zu divides or output rows that %zu divides, not %zu and %zu",
                         tiles[0].columns, tiles[1].rows, linear->in, linear->out);
}

static void print_rule(calm_text *out, const limits *l, calm_engine_rule rule, const calm_engine_linear *linear,
                       const calm_scheme *scheme)
{
    char name[CALM_SCHEME_NAME_MAX];
    calm_scheme_name(scheme, name);
    if (rule == CALM_ENGINE_FAMILY)
        calm_text_printf(out, "has no kernel for %s in this format", name);
    else if (rule == CALM_ENGINE_COLUMNS && scheme->family)
        calm_text_printf(out, "takes input columns that %zu divides, not %zu", family_block(l, scheme), linear->in);
    else if (rule == CALM_ENGINE_ROWS && scheme->family)
        calm_text_printf(out, "takes parts of a fused linear whose rows %zu divides, not %zu", calm_scheme_rows(scheme),
                         linear->part);
    else if (rule == CALM_ENGINE_HEAD && calm_scheme_rows(scheme) > 1)
        calm_text_printf(out, "loads a head row by row, so no scales of %zu rows together", calm_scheme_rows(scheme));
    else if (rule == CALM_ENGINE_HEAD)
        calm_text_printf(out, "takes heads of rows that %zu divides in this format, not %zu", l->head_rows,
                         linear->out);
    else if (rule == CALM_ENGINE_ACTIVATIONS)
        print_activations(out, l, scheme);
    else if (rule == CALM_ENGINE_BITS)
        print_bits(out, l, scheme);
    else if (rule == CALM_ENGINE_ZEROS)
        print_zeros(out, l, scheme);
    else if (rule == CALM_ENGINE_GROUP)
        print_groups(out, l, scheme);
    else if (rule == CALM_ENGINE_COLUMNS || rule == CALM_ENGINE_ROWS)
        print_shape(out, l, rule == CALM_ENGINE_ROWS, linear, scheme);
    else
        calm_text_printf(out, "takes it");
}

calm_status calm_engine_explain(calm_ctx *ctx, const calm_engine *engine, const char *format,
                                const calm_engine_linear *linear, const calm_scheme *scheme, char **out)
{
    const calm_engine_rule rule = calm_engine_verdict(engine, format, linear, scheme);
    CALM_SCOPED_TEXT(text);
    if (rule == CALM_ENGINE_FORMAT)
        calm_text_printf(&text, "reads %s, not %.60s", engine->formats, format);
    else
        print_rule(&text, rule ? limits_of(engine, format, linear) : NULL, rule, linear, scheme);
    calm_text_printf(&text, "%s", linear->expert && rule > CALM_ENGINE_FORMAT ? " (experts)" : "");
    return calm_text_take(ctx, ctx->out, &text, out, NULL);
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
    const size_t of_expert[] = {[CALM_TIE_NONE] = 0,
                                [CALM_TIE_PROJECTION] = 1 + 2 * block + down,
                                [CALM_TIE_BLOCK] = 1 + block,
                                [CALM_TIE_EXPERTS] = 1,
                                [CALM_TIE_MODEL] = 1};
    return expert || tie == CALM_TIE_MODEL ? of_expert[tie] : 0;
}
