/* Judges whether an engine can run a scheme, and says what its rules ask. */

#include <string.h>

#include "ptq/base/scope.h"
#include "ptq/plan/engines_impl.h"
#include "ptq/quant/act_levels.h"

#define MOST_ENGINES 16

/* ---- names ---- */

const calm_engine *calm_engine_find(const char *name)
{
    size_t n;
    const calm_engine *const *engines = calm_engine_table(&n);
    for (size_t i = 0; i < n; i++)
        if (strcmp(engines[i]->name, name) == 0)
            return engines[i];
    return NULL;
}

calm_status calm_engine_parse(calm_ctx *ctx, const char *name, const calm_engine **out)
{
    size_t n;
    const calm_engine *const *engines = calm_engine_table(&n);
    const char *names[MOST_ENGINES];
    *out = calm_engine_find(name);
    if (*out)
        return CALM_OK;
    for (size_t i = 0; i < n; i++)
        names[i] = engines[i]->name;
    const char *near = calm_nearest(name, names, n);
    return calm_fail(ctx, CALM_EARG, "target \"%.60s\": expected one of " CALM_ENGINE_NAMES "%s%s%s", name,
                     near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

const char *calm_engine_name(const calm_engine *engine)
{
    return engine->name;
}

const char *calm_engine_hardware(const calm_engine *engine)
{
    return engine->hardware;
}

const char *calm_engine_formats(const calm_engine *engine)
{
    return engine->formats;
}

bool calm_engine_is_any(const calm_engine *engine)
{
    return !engine || engine == calm_engine_table(&(size_t){0})[0];
}

/* ---- formats ---- */

/* Returns the engine's limits in a format; NULL: the engine does not read it, or is `any`. */
static const calm_engine_reading *reading_of(const calm_engine *engine, const char *format)
{
    for (size_t i = 0; i < MAX_FORMATS && engine->readings[i].format; i++)
        if (!format || strcmp(engine->readings[i].format, format) == 0)
            return &engine->readings[i];
    return NULL;
}

/* A format without a reading is one that the engine refuses. */
bool calm_engine_reads(const calm_engine *engine, const char *format)
{
    return calm_engine_is_any(engine) || reading_of(engine, format);
}

/* ---- verdicts ---- */

size_t calm_engine_part(size_t part, size_t rows)
{
    while (part) {    /* Euclid's algorithm */
        const size_t rest = rows % part;
        rows = part;
        part = rest;
    }
    return rows;
}

/* Returns true if step divides n; step 0 (no condition) divides everything. */
static bool divides(size_t step, size_t n)
{
    return step == 0 || n % step == 0;
}

/* Returns the kernels for groups or rows at a width; 8 bits may have separate kernels. */
static const calm_engine_kernels *kernels_of(const calm_engine_limits *l, int bits, bool grouped)
{
    return bits == 8 && l->eights.bits ? &l->eights : grouped ? &l->grouped : &l->rowwise;
}

/* Returns true if a kernel has the group size, by a list of sizes, a multiple, or both. */
static bool has_size(const calm_engine_limits *l, int bits, size_t group)
{
    bool known = l->groups[0] == 0;
    if (bits == 8 && l->eights.bits)
        return group == l->eights_group;
    for (size_t i = 0; i < MAX_GROUPS && l->groups[i]; i++)
        known |= l->groups[i] == group;
    return known && divides(l->group_multiple, group);
}

/* Returns how many codes fill whole 32-bit words: 8 of 4 bits, 32 of 3 bits. */
static size_t word_step(int bits)
{
    /* The least power of two n with n * bits % 32 = 0. */
    size_t step = 32;
    while (step % 2 == 0 && step / 2 * (size_t)bits % 32 == 0)
        step /= 2;
    return step;
}

/* Returns true if a kernel for groups, or for rows, has the scheme's width and zero points. */
static bool has(const calm_engine_limits *l, const calm_scheme *scheme, bool grouped)
{
    const calm_engine_kernels *k = kernels_of(l, scheme->bits, grouped);
    return (k->bits & B(scheme->bits)) && (scheme->symmetric || (k->zeros & B(scheme->bits)));
}

/* Returns true if rows must fill words; zero points are packed along the rows. */
static bool fills_out(const calm_engine_limits *l, const calm_scheme *scheme)
{
    return l->fills & FILLS_OUT || (l->fills & FILLS_ZEROS && !scheme->symmetric);
}

/* Returns true for integer weights with FP8 activations. */
static bool has_fp8_inputs(const calm_scheme *scheme)
{
    return !scheme->family && scheme->act_rule == CALM_ACT_RULE_FP8;
}

/* The tiles [MAX_TILES] of the kernels that the scheme needs. */
static const calm_engine_tile *tiles_of(const calm_engine_limits *l, const calm_scheme *scheme)
{
    if (has_fp8_inputs(scheme))
        return l->fp8_inputs.tiles;
    if (scheme->act_bits)
        return scheme->act_asymmetric ? l->act_zero : l->pair;
    return kernels_of(l, scheme->bits, scheme->group != 0)->tiles;
}

/* Returns the number of tiles in a list, which ends with an empty tile or is full. */
static size_t n_tiles(const calm_engine_tile *tiles)
{
    size_t n = 0;
    while (n < MAX_TILES && (tiles[n].columns || tiles[n].rows))
        n++;
    return n;
}

/* Both sides must fit one tile: columns of one and rows of another tile are not enough.  Columns are reported unless
 * only rows are wrong. */
static calm_engine_rule tile_verdict(const calm_engine_limits *l, const calm_engine_linear *linear,
                                     const calm_scheme *scheme)
{
    const calm_engine_tile *tiles = tiles_of(l, scheme);
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

/* Judges integer weights with integer activations. */
static calm_engine_rule pair_verdict(const calm_engine_limits *l, const calm_engine_linear *linear,
                                     const calm_scheme *scheme)
{
    if (!l->pairs || scheme->act_bits > 8 || !(l->acts & B(scheme->act_bits)) ||
        (scheme->act_asymmetric && !l->act_zeros) ||
        (scheme->act_rule == CALM_ACT_RULE_STATIC && !l->act_static))
        return CALM_ENGINE_ACTIVATIONS;
    /* The checks follow the order of calm_engine_rule, so that the broadest broken rule is reported. */
    if (!(l->pairs & B(scheme->bits)))
        return CALM_ENGINE_BITS;
    if (!scheme->symmetric)
        return CALM_ENGINE_ZEROS;
    if (scheme->group && !(l->pairs_group & B(scheme->bits)))
        return CALM_ENGINE_GROUP;
    return divides(scheme->group, linear->in) ? tile_verdict(l, linear, scheme) : CALM_ENGINE_COLUMNS;
}

/* Judges integer weights with FP8 activations. */
static calm_engine_rule fp8_verdict(const calm_engine_limits *l, const calm_engine_linear *linear,
                                    const calm_scheme *scheme)
{
    const calm_engine_fp8 *fp8 = &l->fp8_inputs;
    if (!fp8->bits)
        return CALM_ENGINE_ACTIVATIONS;
    /* In the order of calm_engine_rule. */
    if (!(fp8->bits & B(scheme->bits)))
        return CALM_ENGINE_BITS;
    if (!scheme->symmetric)
        return CALM_ENGINE_ZEROS;
    if (fp8->group && scheme->group != fp8->group)
        return CALM_ENGINE_GROUP;
    return divides(scheme->group, linear->in) ? tile_verdict(l, linear, scheme) : CALM_ENGINE_COLUMNS;
}

/* Returns the set of widths of weight-only kernels. */
static unsigned weight_widths(const calm_engine_limits *l)
{
    return l->grouped.bits | l->rowwise.bits | l->eights.bits;
}

/* Judges weight-only integers. */
static calm_engine_rule weight_verdict(const calm_engine_limits *l, const calm_engine_linear *linear,
                                       const calm_scheme *scheme)
{
    const size_t step = word_step(scheme->bits);
    if (!(weight_widths(l) & B(scheme->bits)))
        return CALM_ENGINE_BITS;
    /* The width exists, so zero points or groups are the problem. */
    if (!has(l, scheme, true) && !has(l, scheme, false))
        return CALM_ENGINE_ZEROS;
    if (!has(l, scheme, scheme->group) || (scheme->group && !has_size(l, scheme->bits, scheme->group)))
        return CALM_ENGINE_GROUP;
    if (scheme->act_order && !l->orders)
        return CALM_ENGINE_ORDER;
    if (!divides(scheme->group, linear->in) || (l->fills & FILLS_IN && linear->in % step))
        return CALM_ENGINE_COLUMNS;
    return fills_out(l, scheme) && linear->out % step ? CALM_ENGINE_ROWS : tile_verdict(l, linear, scheme);
}

/* Returns true for FP8 with scales per row or per linear; FP8 blocks have other kernels. */
static bool has_fp8_sides(const calm_scheme *scheme)
{
    return calm_scheme_is_fp8(scheme) && scheme->family != CALM_FAMILY_FP8_BLOCK;
}

/* Returns the columns in a block of the family. */
static size_t family_block(const calm_engine_limits *l, const calm_scheme *scheme)
{
    return scheme->family == CALM_FAMILY_NVFP4 && l->nvfp4 ? l->nvfp4
           : has_fp8_sides(scheme) && l->fp8.columns ? l->fp8.columns
                                                    : calm_scheme_block(scheme);
}

/* Row blocks must not cross parts, whose scales are stacked: each part but the last must fill its blocks.  transformers
 * fuses no parts, and pads only columns, only of weight-only schemes. */
static calm_engine_rule family_verdict(const calm_engine_limits *l, const calm_engine_linear *linear,
                                       const calm_scheme *scheme)
{
    const size_t rows = calm_scheme_rows(scheme);
    if (!((scheme->act_bits ? l->act_families : l->families) & B(scheme->family)))
        return CALM_ENGINE_FAMILY;
    /* A static activation scale has another kernel than one scale per token. */
    const bool fixed = calm_act_rule_is_static(scheme->act_rule), whole = calm_scheme_is_whole(scheme);
    if (l->fp8_alike && scheme->act_bits ? fixed != whole : fixed && !l->fp8_static)
        return CALM_ENGINE_ACTIVATIONS;
    if (!divides(family_block(l, scheme), linear->in) && (scheme->act_bits || rows == 1 || !l->whole_parts))
        return CALM_ENGINE_COLUMNS;
    if (has_fp8_sides(scheme) && !divides(l->fp8.rows, linear->out))
        return CALM_ENGINE_ROWS;
    return l->whole_parts || divides(rows, linear->part) ? CALM_ENGINE_TAKES : CALM_ENGINE_ROWS;
}

/* Returns the limits for the linear; NULL: the engine does not read the format. */
static const calm_engine_limits *limits_of(const calm_engine *engine, const char *format,
                                           const calm_engine_linear *linear)
{
    const calm_engine_reading *r = reading_of(engine, format);
    return !r ? NULL : linear->expert ? &r->experts : &r->dense;
}

calm_engine_rule calm_engine_verdict(const calm_engine *engine, const char *format, const calm_engine_linear *linear,
                                     const calm_scheme *scheme)
{
    if (calm_engine_is_any(engine))
        return CALM_ENGINE_TAKES;
    const calm_engine_limits *l = limits_of(engine, format, linear);
    if (!l)
        return CALM_ENGINE_FORMAT;
    if (scheme->bits == 0)
        return CALM_ENGINE_TAKES;
    /* A width out of range must not be shifted. */
    if (scheme->bits < 0 || scheme->bits > 8 || scheme->act_bits < 0)
        return CALM_ENGINE_BITS;
    /* GGUF types are replaced by others if their super-blocks do not divide the columns. */
    const calm_scheme stored = calm_scheme_for(scheme, linear->in);
    scheme = &stored;
    calm_engine_linear padded = *linear;
    if (linear->head && l->head_rows) {
        if (calm_scheme_rows(scheme) > 1 || (l->head_whole && linear->out % l->head_rows))
            return CALM_ENGINE_HEAD;
        padded.out = (linear->out + l->head_rows - 1) / l->head_rows * l->head_rows;
    }
    /* Kernels of a family have one group size and no zero points. */
    if (scheme->family)
        return family_verdict(l, &padded, scheme);
    if (has_fp8_inputs(scheme))
        return fp8_verdict(l, &padded, scheme);
    return scheme->act_bits ? pair_verdict(l, &padded, scheme) : weight_verdict(l, &padded, scheme);
}

/* ---- sentences about rules ---- */

/* Half a sentence each: "takes ...", "has no kernel for ...". */

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

/* "takes groups of 32, 64 or 128 columns or one scale per row, not 16" */
static void print_groups(calm_text *out, const calm_engine_limits *l, const calm_scheme *scheme)
{
    const bool rows = has(l, scheme, false), eights = scheme->bits == 8 && l->eights.bits;
    size_t n = 0;
    while (n < MAX_GROUPS && l->groups[n])
        n++;
    if (has_fp8_inputs(scheme)) {
        calm_text_printf(out, "takes groups of %zu columns next to activations in FP8, not ", l->fp8_inputs.group);
        if (scheme->group)
            calm_text_printf(out, "%zu", scheme->group);
        else
            calm_text_printf(out, "one scale per row");
        return;
    }
    if (scheme->act_bits) {
        calm_text_printf(out, "takes one scale per row next to quantized activations, not groups of %zu",
                         scheme->group);
        return;
    }
    calm_text_printf(out, "takes ");
    if (has(l, scheme, true)) {
        calm_text_printf(out, "groups of ");
        if (eights)
            calm_text_printf(out, "%zu", l->eights_group);
        else if (n)
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

/* Appends what the engine asks of quantized activations. */
static void print_activations(calm_text *out, const calm_engine_limits *l, const calm_scheme *scheme)
{
    if (calm_scheme_is_whole(scheme) && !calm_act_rule_is_static(scheme->act_rule))
        calm_text_printf(out, "takes one scale for all activations next to one for all weights, not a scale per token");
    else if (calm_act_rule_is_static(scheme->act_rule) && scheme->family)
        calm_text_printf(out, "takes activations with a scale per token, not one for all");
    else if (has_fp8_inputs(scheme))
        calm_text_printf(out, "takes no activations in FP8 next to weights of whole numbers");
    else if (!l->pairs)
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

/* Appends what the engine asks of zero points of weights; with quantized activations there are none. */
static void print_zeros(calm_text *out, const calm_engine_limits *l, const calm_scheme *scheme)
{
    const unsigned zeros = l->grouped.zeros | l->rowwise.zeros | l->eights.zeros;
    if (!zeros || scheme->act_bits) {
        calm_text_printf(out, "takes symmetric weights%s, none with zero points",
                         scheme->act_bits ? " next to quantized activations" : "");
        return;
    }
    calm_text_printf(out, "takes zero points at ");
    print_widths(out, zeros);
    calm_text_printf(out, " bits, not %d", scheme->bits);
}

/* "takes weights of 4 or 8 bits, not 3" */
static void print_bits(calm_text *out, const calm_engine_limits *l, const calm_scheme *scheme)
{
    const unsigned bits = has_fp8_inputs(scheme) ? l->fp8_inputs.bits
                          : scheme->act_bits     ? l->pairs
                                                 : weight_widths(l);
    if (!bits) {
        calm_text_printf(out, "takes none that are quantized in this format");
        return;
    }
    calm_text_printf(out, "takes weights of ");
    print_widths(out, bits);
    calm_text_printf(out, " bits%s, not %d", scheme->act_bits ? " next to quantized activations" : "", scheme->bits);
}

/* Returns what must divide the side; 0: each side fits a tile, but no tile fits both. */
static size_t broken_step(const calm_engine_limits *l, bool rows, const calm_engine_linear *linear,
                          const calm_scheme *scheme)
{
    const calm_engine_tile *tiles = tiles_of(l, scheme);
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

/* Appends what must divide columns or rows. */
static void print_shape(calm_text *out, const calm_engine_limits *l, bool rows, const calm_engine_linear *linear,
                        const calm_scheme *scheme)
{
    const calm_engine_tile *tiles = tiles_of(l, scheme);
    const size_t step = broken_step(l, rows, linear, scheme);
    if (step)
        calm_text_printf(out, "takes %s that %zu divides, not %zu", rows ? "output rows" : "input columns", step,
                         rows ? linear->out : linear->in);
    else
        calm_text_printf(out, "takes input columns that %zu divides or output rows that %zu divides, not %zu and %zu",
                         tiles[0].columns, tiles[1].rows, linear->in, linear->out);
}

/* Appends what a broken rule asks. */
static void print_rule(calm_text *out, const calm_engine_limits *l, calm_engine_rule rule,
                       const calm_engine_linear *linear,
                       const calm_scheme *scheme)
{
    const char *name = CALM_SCHEME_NAME(scheme);
    if (rule == CALM_ENGINE_FAMILY)
        calm_text_printf(out, "has no kernel for %s in this format", name);
    else if (rule == CALM_ENGINE_COLUMNS && scheme->family)
        calm_text_printf(out, "takes input columns that %zu divides, not %zu", family_block(l, scheme), linear->in);
    else if (rule == CALM_ENGINE_ROWS && has_fp8_sides(scheme))
        calm_text_printf(out, "takes output rows that %zu divides, not %zu", l->fp8.rows, linear->out);
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
    else if (rule == CALM_ENGINE_ORDER)
        calm_text_printf(out, "takes groups of neighbouring columns, none by activation order");
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
    const calm_engine_reading *r = calm_engine_is_any(engine) ? NULL : reading_of(engine, format);
    return r ? r->tie : CALM_TIE_NONE;
}

calm_tie calm_tie_stronger(calm_tie a, calm_tie b)
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
