/* Reads compressed-tensors (docs/formats.md section 3).
 *
 *   pack-quantized   m.weight_packed I32 [out, ceil(in b / 32)]   m.weight_scale [out, G]   m.weight_shape I64 [2]
 *                    m.weight_zero_point I32 [ceil(out b / 32), G] when asymmetric
 *   int-quantized    m.weight I8 [out, in]                        m.weight_scale [out, G]
 *                    m.input_scale [1] with static activations
 *   float-quantized, naive-quantized   m.weight F8_E4M3 [out, in]   m.weight_scale [out, 1], of blocks of 128 x 128
 *                                      [ceil(out / 128), ceil(in / 128)], of the whole weight [1]; m.input_scale [1]
 *                                      with static activations
 *   mxfp4-pack-quantized   m.weight_packed U8 [out, in / 2], the lower nibble first   m.weight_scale U8 [out, G]
 *   nvfp4-pack-quantized   the same, m.weight_scale F8_E4M3 [out, G], m.weight_global_scale F32 [1], and with quantized
 *                          activations m.input_global_scale F32 [1]
 *
 * transform_config lists Hadamard matrices that multiply inputs at run time; the file's weights already contain theirs.
 *
 * Targets are resolved like in the library: exact names, then regexes, then the class name Linear. */
#include <math.h>
#include <string.h>

#include "ptq/text/regex.h"
#include "ptq/weights/qformat_ct.h"
#include "ptq/quant/levels.h"
#include "ptq/quant/pack.h"

typedef struct target {
    const char *name;     /* exact module name or class; NULL when it is a pattern */
    calm_regex *regex;
    size_t group;         /* index of the group; n_groups = ignored */
} target;

typedef struct compressed {
    calm_qformat_scheme *groups;
    size_t n_groups;
    target *targets;
    size_t n_targets;
    target *turned;       /* [n_turned] whose input is multiplied by a Hadamard matrix; group: the width of its
                             blocks, 0: the whole input */
    size_t n_turned;
} compressed;

static calm_status unsupported(calm_ctx *ctx, const char *path, const char *group, const char *what)
{
    return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: quantization_config.config_groups.%s: %s", path, group, what);
}

/* Is it one byte per weight, with scales of any float type? */
static bool is_fp8(int family)
{
    return calm_scheme_is_fp8(&(calm_scheme){.family = family});
}

/* Does the whole weight have one scale? */
static bool is_whole(int family)
{
    return calm_scheme_is_whole(&(calm_scheme){.family = family});
}

/* ---- the configuration ---- */

/* Are these the sides of a block of FP8 weights? */
static bool is_fp8_block(const calm_json *sides)
{
    const calm_family *family = calm_scheme_family(&(calm_scheme){.family = CALM_FAMILY_FP8_BLOCK});
    return calm_json_size(sides) == 2 && calm_json_int(calm_json_at(sides, 0), 0) == (int64_t)family->rows &&
           calm_json_int(calm_json_at(sides, 1), 0) == (int64_t)family->group;
}

/* Reads weights of type float, which must be a known family.  `sides`: block_structure. */
static calm_status read_floats(calm_ctx *ctx, const char *path, const char *group, int64_t bits, int64_t width,
                               const char *strategy, const calm_json *sides, calm_qformat_scheme *out)
{
    if (!out->symmetric)
        return unsupported(ctx, path, group, "asymmetric weights of type float");
    if (bits == 8 && strcmp(strategy, "channel") == 0)
        out->family = CALM_FAMILY_FP8;
    else if (bits == 8 && strcmp(strategy, "tensor") == 0)
        out->family = CALM_FAMILY_FP8_TENSOR;
    else if (bits == 8 && strcmp(strategy, "block") == 0 && is_fp8_block(sides))
        out->family = CALM_FAMILY_FP8_BLOCK;
    else if (bits == 4 && width == 32 && strcmp(strategy, "group") == 0)
        out->family = CALM_FAMILY_MXFP4;
    else if (bits == 4 && width == 16 && strcmp(strategy, "tensor_group") == 0)
        out->family = CALM_FAMILY_NVFP4;
    else
        return unsupported(ctx, path, group, "weights of type float that are neither of 8 bits by tensor, by channel "
                                             "or in blocks of 128 x 128, nor of 4 bits in groups of 32, nor of 4 bits "
                                             "in tensor_groups of 16");
    /* For one scale per row the file has no group size, or -1; a block's sizes are its sides. */
    out->bits = (int)bits;
    out->group = calm_scheme_family(&(calm_scheme){.family = out->family})->group;
    return CALM_OK;
}

/* Reads "weights" of a group; refuses what calm's grids cannot express. */
static calm_status read_weights(calm_ctx *ctx, const char *path, const char *group, const calm_json *args,
                                calm_qformat_scheme *out)
{
    int64_t bits = 0, width = 0;
    const char *type, *strategy;
    CALM_TRY(calm_json_need_int(ctx, path, args, "num_bits", NULL, 2, 8, &bits));
    CALM_TRY(calm_json_need_int(ctx, path, args, "group_size", &(int64_t){0}, -1, 1 << 24, &width));
    CALM_TRY(calm_json_need_bool(ctx, path, args, "symmetric", &(bool){true}, &out->symmetric));
    CALM_TRY(calm_json_need_string(ctx, path, args, "type", "int", &type));
    /* Older files lack the strategy; it follows from the group size. */
    CALM_TRY(calm_json_need_string(ctx, path, args, "strategy", width > 0 ? "group" : "channel", &strategy));
    if (strcmp(type, "float") == 0)
        return read_floats(ctx, path, group, bits, width, strategy, calm_json_get(args, "block_structure"), out);
    if (strcmp(type, "int") != 0)
        return unsupported(ctx, path, group, "weights that are neither of type int nor float");
    if (strcmp(strategy, "group") != 0 && strcmp(strategy, "channel") != 0)
        return unsupported(ctx, path, group, "weights.strategy is neither group nor channel");
    /* The library packs any number of bits; calm has grids of 2, 3, 4 and 8. */
    if (bits > 4 && bits < 8)
        return unsupported(ctx, path, group, "weights of 5, 6 or 7 bits");
    out->bits = (int)bits;
    out->group = strcmp(strategy, "group") == 0 && width > 0 ? (size_t)width : 0;
    return CALM_OK;
}

/* Reads activations of type float, which must match the weights. */
static calm_status read_float_inputs(calm_ctx *ctx, const char *path, const char *group, const calm_json *args,
                                     calm_qformat_scheme *out)
{
    static const struct {
        int family, bits;
        const char *strategy, *dynamic;
        int64_t width;
        calm_act_rule rule;
    } known[] = {{CALM_FAMILY_INT, 8, "token", "true", 0, CALM_ACT_RULE_FP8},
                 {CALM_FAMILY_FP8, 8, "token", "true", 0, CALM_ACT_RULE_FP8},
                 {CALM_FAMILY_FP8, 8, "tensor", "false", 0, CALM_ACT_RULE_FP8_STATIC},
                 {CALM_FAMILY_FP8_TENSOR, 8, "token", "true", 0, CALM_ACT_RULE_FP8},
                 {CALM_FAMILY_FP8_TENSOR, 8, "tensor", "false", 0, CALM_ACT_RULE_FP8_STATIC},
                 {CALM_FAMILY_FP8_BLOCK, 8, "group", "true", 128, CALM_ACT_RULE_FP8_GROUPS},
                 {CALM_FAMILY_MXFP4, 4, "group", "true", 32, CALM_ACT_RULE_MXFP4},
                 {CALM_FAMILY_NVFP4, 4, "tensor_group", "local", 16, CALM_ACT_RULE_NVFP4}};
    const calm_json *value = calm_json_get(args, "dynamic");
    const char *dynamic = calm_json_string(value, calm_json_bool(value, false) ? "true" : "false");
    const char *strategy;
    int64_t bits = 0, width = 0;
    bool symmetric;
    CALM_TRY(calm_json_need_int(ctx, path, args, "num_bits", NULL, 2, 8, &bits));
    CALM_TRY(calm_json_need_int(ctx, path, args, "group_size", &(int64_t){0}, -1, 1 << 24, &width));
    CALM_TRY(calm_json_need_bool(ctx, path, args, "symmetric", &(bool){true}, &symmetric));
    CALM_TRY(calm_json_need_string(ctx, path, args, "strategy", "", &strategy));
    /* Readers quantize inputs only in the groups of the weights: each family has one form.  Scales are computed at run
     * time, except NVFP4's global scale. */
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].family == out->family && symmetric && bits == known[i].bits &&
            strcmp(strategy, known[i].strategy) == 0 && (width > 0 ? width : 0) == known[i].width &&
            strcmp(dynamic, known[i].dynamic) == 0) {
            out->act_bits = known[i].bits;
            out->act_rule = known[i].rule;
            return CALM_OK;
        }
    return unsupported(ctx, path, group, "input_activations of type float other than those that go with its weights: "
                                         "dynamic, per token or in the same groups, and of FP8 static per tensor");
}

/* Reads "input_activations" of a group; absent or null: they stay float. */
static calm_status read_activations(calm_ctx *ctx, const char *path, const char *group, const calm_json *args,
                                    calm_qformat_scheme *out)
{
    int64_t bits = 0;
    bool symmetric, dynamic;
    const char *strategy, *type;
    if (calm_json_typeof(args) == CALM_JSON_NULL)
        return CALM_OK;
    CALM_TRY(calm_json_need_string(ctx, path, args, "type", "int", &type));
    if (strcmp(type, "float") == 0)
        return read_float_inputs(ctx, path, group, args, out);
    CALM_TRY(calm_json_need_int(ctx, path, args, "num_bits", NULL, 2, 8, &bits));
    CALM_TRY(calm_json_need_bool(ctx, path, args, "symmetric", &(bool){true}, &symmetric));
    CALM_TRY(calm_json_need_bool(ctx, path, args, "dynamic", &(bool){false}, &dynamic));
    CALM_TRY(calm_json_need_string(ctx, path, args, "strategy", "token", &strategy));
    /* A static zero point would be a second tensor, which no rule of the forward pass reads. */
    const bool fixed = !dynamic && symmetric && strcmp(strategy, "tensor") == 0;
    if ((!fixed && (!dynamic || strcmp(strategy, "token") != 0)) || strcmp(type, "int") != 0)
        return unsupported(ctx, path, group, "input_activations other than int, dynamic per token or static and "
                                             "symmetric per tensor");
    if (fixed)
        out->act_rule = CALM_ACT_RULE_STATIC;
    out->act_bits = (int)bits;
    out->act_asymmetric = !symmetric;
    return CALM_OK;
}

/* Checks that the format is that of the family. */
static calm_status read_float_format(calm_ctx *ctx, const char *path, const char *group, const char *format,
                                     calm_qformat_scheme *out)
{
    const char *packed = out->family == CALM_FAMILY_MXFP4 ? "mxfp4-pack-quantized" : "nvfp4-pack-quantized";
    const bool plain = strcmp(format, "float-quantized") == 0 || strcmp(format, "naive-quantized") == 0;
    /* A group of a mixed file has its own format; a reader infers a missing one. */
    out->layout = CALM_CT_FLOATS;
    if (strcmp(format, "mixed-precision") == 0 ||
        (is_fp8(out->family) ? plain : strcmp(format, packed) == 0))
        return CALM_OK;
    return unsupported(ctx, path, group, "a format other than float-quantized, mxfp4-pack-quantized and "
                                         "nvfp4-pack-quantized of its weights");
}

/* Weights are read first: allowed activations depend on their family, and the format on both. */
calm_status calm_qformat_ct_group(calm_ctx *ctx, const char *path, const char *name, const calm_json *group,
                                  const char *global_format, calm_qformat_scheme *out)
{
    const char *format;
    if (calm_json_typeof(calm_json_get(group, "weights")) != CALM_JSON_OBJECT)
        return unsupported(ctx, path, name, "without weights");
    CALM_TRY(read_weights(ctx, path, name, calm_json_get(group, "weights"), out));
    CALM_TRY(read_activations(ctx, path, name, calm_json_get(group, "input_activations"), out));
    if (calm_json_typeof(calm_json_get(group, "output_activations")) != CALM_JSON_NULL)
        return unsupported(ctx, path, name, "output_activations");
    /* Without a separate format a reader infers it from the scheme, never from "mixed-precision". */
    CALM_TRY(calm_json_need_string(ctx, path, group, "format", global_format, &format));
    if (out->family)
        return read_float_format(ctx, path, name, format, out);
    if (strcmp(format, "mixed-precision") == 0)
        format = out->act_bits ? "int-quantized" : "pack-quantized";
    out->layout = strcmp(format, "pack-quantized") == 0 ? CALM_CT_PACK : CALM_CT_INT;
    if (out->layout == CALM_CT_INT && strcmp(format, "int-quantized") != 0)
        return unsupported(ctx, path, name, "a format other than pack-quantized and int-quantized");
    return CALM_OK;
}

/* Appends a target to list [*n]: a module name, a pattern after "re:", or a class; `group` is n_groups for ignored
 * ones. */
static calm_status add_target(calm_ctx *ctx, const char *path, const calm_json *value, size_t group,
                              calm_arena *arena, target *list, size_t *n)
{
    const char *text = calm_json_string(value, NULL);
    target *at = &list[*n];
    if (!text)
        return calm_fail(ctx, CALM_EFORMAT, "%s: quantization_config: a target that is not a string", path);
    at->group = group;
    if (strncmp(text, "re:", 3) == 0) {
        CALM_TRY(calm_regex_new(ctx, path, text + 3, strlen(text + 3), &at->regex));
        calm_regex_limit(at->regex, CALM_NAME_STEPS);
    } else {
        CALM_TRY(calm_strf(ctx, arena, &at->name, "%s", text));
    }
    ++*n;
    return CALM_OK;
}

/* Reads the targets of "ignore" and of all groups into one list. */
static calm_status read_targets(calm_ctx *ctx, const char *path, const calm_json *root, calm_arena *arena,
                                compressed *out)
{
    const calm_json *groups = calm_json_get(root, "config_groups"), *ignore = calm_json_get(root, "ignore"), *group;
    size_t n = calm_json_size(ignore), index = 0;
    const char *name;
    for (void *iter = NULL; calm_json_next(groups, &iter, &name, &group);)
        n += calm_json_size(calm_json_get(group, "targets"));
    CALM_TRY(CALM_NEW(ctx, arena, out->targets, n + 1));
    for (size_t i = 0; i < calm_json_size(ignore); i++)
        CALM_TRY(add_target(ctx, path, calm_json_at(ignore, i), out->n_groups, arena, out->targets,
                            &out->n_targets));
    for (void *iter = NULL; calm_json_next(groups, &iter, &name, &group); index++) {
        /* Groups are numbered like the schemes, since both loops visit them in the same order. */
        const calm_json *targets = calm_json_get(group, "targets");
        for (size_t i = 0; i < calm_json_size(targets); i++)
            CALM_TRY(add_target(ctx, path, calm_json_at(targets, i), index, arena, out->targets,
                                &out->n_targets));
    }
    return CALM_OK;
}

/* ---- transforms ---- */

/* Adds the targets of one place where a transform is applied; the file's weights already contain theirs. */
static calm_status read_place(calm_ctx *ctx, const char *path, const calm_json *place, size_t width, calm_arena *arena,
                              compressed *out)
{
    const calm_json *targets = calm_json_get(place, "targets");
    target *all;
    if (strcmp(calm_json_string(calm_json_get(place, "location"), ""), "input") != 0)
        return CALM_OK;
    CALM_TRY(CALM_NEW(ctx, arena, all, out->n_turned + calm_json_size(targets)));
    if (out->n_turned)
        memcpy(all, out->turned, out->n_turned * sizeof *all);
    out->turned = all;
    for (size_t i = 0; i < calm_json_size(targets); i++)
        CALM_TRY(add_target(ctx, path, calm_json_at(targets, i), width, arena, out->turned, &out->n_turned));
    return CALM_OK;
}

/* Reads the transforms.  A Hadamard matrix of Sylvester's is symmetric, so "inverse" changes nothing. */
static calm_status read_transforms(calm_ctx *ctx, const char *path, const calm_json *root, calm_arena *arena,
                                   compressed *out)
{
    const calm_json *all = calm_json_get(calm_json_get(root, "transform_config"), "config_groups"), *scheme;
    const char *name;
    for (void *iter = NULL; calm_json_next(all, &iter, &name, &scheme);) {
        const calm_json *apply = calm_json_get(scheme, "apply");
        size_t width;
        bool online;
        CALM_TRY(calm_qformat_ct_transform(ctx, path, name, scheme, &online, &width));
        for (size_t i = 0; i < calm_json_size(apply); i++)
            CALM_TRY(read_place(ctx, path, calm_json_at(apply, i), width, arena, out));
    }
    return CALM_OK;
}

static calm_status read(calm_ctx *ctx, const char *path, const calm_json *root, calm_arena *arena, void *self)
{
    compressed *out = self;
    const calm_json *groups = calm_json_get(root, "config_groups"), *group;
    const char *status, *format, *name;
    CALM_TRY(calm_json_need_string(ctx, path, root, "quantization_status", "(none)", &status));
    /* "frozen" checkpoints hold float weights next to their scales. */
    if (strcmp(status, "compressed") != 0)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: quantization_config.quantization_status is \"%s\", expected "
                                                 "\"compressed\"", path, status);
    CALM_TRY(calm_json_need_string(ctx, path, root, "format", "mixed-precision", &format));
    if (calm_json_typeof(groups) != CALM_JSON_OBJECT || calm_json_size(groups) == 0)
        return calm_fail(ctx, CALM_EFORMAT, "%s: quantization_config.config_groups is missing or empty", path);
    CALM_TRY(CALM_NEW(ctx, arena, out->groups, calm_json_size(groups)));
    for (void *iter = NULL; calm_json_next(groups, &iter, &name, &group);)
        CALM_TRY(calm_qformat_ct_group(ctx, path, name, group, format, &out->groups[out->n_groups++]));
    CALM_TRY(read_targets(ctx, path, root, arena, out));
    return read_transforms(ctx, path, root, arena, out);
}

/* Early files have no quant_method. */
static bool resembles(const calm_json *config)
{
    return calm_json_get(calm_json_get(config, "quantization_config"), "config_groups") != NULL;
}

static void release(void *self)
{
    compressed *out = self;
    for (size_t i = 0; i < out->n_targets; i++)
        calm_regex_free(out->targets[i].regex);
    for (size_t i = 0; i < out->n_turned; i++)
        calm_regex_free(out->turned[i].regex);
}

/* ---- modules ---- */

/* Finds a module's scheme; a module without a target stays float. */
static calm_status find(calm_ctx *ctx, const void *self, const calm_safetensors *set, const char *module,
                        bool *quantized, calm_qformat_scheme *out)
{
    const compressed *from = self;
    const target *best = NULL;
    int best_rank = 4;    /* 0 ignored, 1 exact name, 2 pattern, 3 class */
    (void)set;
    for (size_t i = 0; i < from->n_targets; i++) {
        const target *at = &from->targets[i];
        bool hit = at->name && strcmp(at->name, module) == 0;
        /* Of several matching targets the one of the lowest rank decides, the first of equal ones. */
        int rank = at->group == from->n_groups ? 0 : at->regex ? 2 : 1;
        if (at->regex)
            CALM_TRY(calm_regex_matches_prefix(ctx, at->regex, module, &hit));
        if (!hit && rank == 1 && strcmp(at->name, "Linear") == 0) {
            hit = true;
            rank = 3;
        }
        if (hit && rank < best_rank) {
            best = at;
            best_rank = rank;
        }
    }
    *quantized = best && best_rank > 0;
    if (*quantized)
        *out = from->groups[best->group];
    return CALM_OK;
}

/* Finds the first target that names the module. */
static calm_status hadamard(calm_ctx *ctx, const void *self, const char *module, size_t in, size_t *width)
{
    const compressed *from = self;
    for (size_t i = 0; i < from->n_turned && !*width; i++) {
        const target *at = &from->turned[i];
        bool hit = at->name && (strcmp(at->name, module) == 0 || strcmp(at->name, "Linear") == 0);
        if (at->regex)
            CALM_TRY(calm_regex_matches_prefix(ctx, at->regex, module, &hit));
        if (hit)
            *width = at->group ? at->group : in;
    }
    if (*width & (*width - 1))
        return calm_fail(ctx, CALM_EUNSUPPORTED,
                         "%s: transform_config multiplies its whole input by a Hadamard matrix; found %zu channels, "
                         "expected a power of two", module, *width);
    return CALM_OK;
}

/* Lists the tensors of a weight of a float family, and of its input. */
static void float_tensors(const calm_qformat_scheme *scheme, size_t out, size_t in, size_t groups,
                          calm_qformat_tensor *list, size_t *n)
{
    /* Properties that follow from the family. */
    const calm_scheme plain = {.family = scheme->family};
    const bool bytes = is_fp8(scheme->family), global = calm_scheme_has_global(&plain) && !bytes;
    const size_t rows = calm_scheme_row_blocks(&plain, out);
    const calm_dtype scale = bytes ? CALM_N_DTYPES : global ? CALM_F8_E4M3 : CALM_U8;
    list[0] = (calm_qformat_tensor){CALM_QFORMAT_CODES, "weight_packed", CALM_U8, 2, {out, in / 2}, false};
    if (bytes)
        list[0] = (calm_qformat_tensor){CALM_QFORMAT_CODES, "weight", CALM_F8_E4M3, 2, {out, in}, false};
    list[1] = (calm_qformat_tensor){CALM_QFORMAT_SCALES, "weight_scale", scale, 2, {rows, groups}, false};
    if (is_whole(scheme->family))
        list[1] = (calm_qformat_tensor){CALM_QFORMAT_SCALES, "weight_scale", scale, 1, {1, 0}, false};
    *n = 2;
    if (scheme->act_rule == CALM_ACT_RULE_FP8_STATIC)
        list[(*n)++] = (calm_qformat_tensor){CALM_QFORMAT_ACT_SCALE, "input_scale", scale, 1, {1, 0}, false};
    /* Numbers of the whole tensor, which the library writes as vectors of one element. */
    if (global)
        list[(*n)++] =
            (calm_qformat_tensor){CALM_QFORMAT_GLOBAL, "weight_global_scale", CALM_F32, 1, {1, 0}, false};
    if (global && scheme->act_bits)
        list[(*n)++] =
            (calm_qformat_tensor){CALM_QFORMAT_ACT_GLOBAL, "input_global_scale", CALM_F32, 1, {1, 0}, false};
}

static calm_status tensors(calm_ctx *ctx, const char *module, const calm_qformat_scheme *scheme, size_t out, size_t in,
                           calm_qformat_tensor *list, size_t *n)
{
    const size_t group = scheme->group ? scheme->group : in, groups = (in + group - 1) / group;
    if (scheme->family) {
        float_tensors(scheme, out, in, groups, list, n);
        return CALM_OK;
    }
    /* Bytes have their zero in the middle of the signed range; readers know no zero point next to them. */
    const bool packed = scheme->layout == CALM_CT_PACK;
    if (!packed && !scheme->symmetric)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: asymmetric int-quantized weights", module);
    list[0] = (calm_qformat_tensor){CALM_QFORMAT_CODES, "weight", CALM_I8, 2, {out, in}, false};
    if (packed)
        list[0] = (calm_qformat_tensor){CALM_QFORMAT_CODES, "weight_packed", CALM_I32, 2,
                                        {out, calm_pack_words(in, scheme->bits)}, false};
    list[1] = (calm_qformat_tensor){CALM_QFORMAT_SCALES, "weight_scale", CALM_N_DTYPES, 2, {out, groups}, false};
    *n = 2;
    if (scheme->act_rule == CALM_ACT_RULE_STATIC)
        list[(*n)++] = (calm_qformat_tensor){CALM_QFORMAT_ACT_SCALE, "input_scale", CALM_N_DTYPES, 1, {1, 0}, false};
    if (packed)
        list[(*n)++] = (calm_qformat_tensor){CALM_QFORMAT_SHAPE, "weight_shape", CALM_I64, 1, {2, 0}, true};
    if (!scheme->symmetric)
        list[(*n)++] = (calm_qformat_tensor){CALM_QFORMAT_ZEROS, "weight_zero_point", CALM_I32, 2,
                                             {calm_pack_words(out, scheme->bits), groups}, false};
    return CALM_OK;
}

/* Converts signed bytes to codes. */
static calm_status unpack_bytes(calm_ctx *ctx, const char *module, int bits, const calm_tensor *tensor, uint8_t *codes)
{
    /* Codes of fewer bits may be stored in a byte each: the value must be in their range. */
    const int zero = 1 << (bits - 1);
    for (size_t i = 0; i < tensor->bytes; i++) {
        const int value = (int8_t)tensor->data[i];
        if (value < -zero || value >= zero)
            return calm_fail(ctx, CALM_EFORMAT, "%s: %s.weight: %d at %zu is no code of %d bits", tensor->file, module,
                             value, i, bits);
        codes[i] = (uint8_t)(value + zero);
    }
    return CALM_OK;
}

/* Unpacks small floats.  All ones is NaN in F8_E4M3; every 4-bit pattern is a number. */
static calm_status unpack_bits(calm_ctx *ctx, const char *module, const calm_levels *levels, const calm_tensor *tensor,
                               size_t n, uint8_t *codes)
{
    /* The lower nibble of packed codes is the first. */
    const bool bytes = tensor->dtype == CALM_F8_E4M3;
    for (size_t i = 0; i < n; i++) {
        const uint8_t bits = bytes ? tensor->data[i] : tensor->data[i / 2] >> (i % 2 * 4) & 15;
        if (bytes && (bits & 127) == 127)
            return calm_fail(ctx, CALM_ENUMERIC, "%s: %s: the value at %zu is NaN", tensor->file, module, i);
        codes[i] = calm_levels_of_bits(levels, bits);
    }
    return CALM_OK;
}

/* Computes the scales that readers use: powers of two, or quotients in float32. */
static calm_status small_scales(calm_ctx *ctx, const char *module, const calm_tensor *tensor,
                                const calm_tensor *global, float *scales)
{
    float divisor = 1;
    if (global)
        CALM_TRY(calm_tensor_to_f32(ctx, global, &divisor));
    /* The library multiplies scales by this number before it rounds them, so readers divide by it, in float32. */
    if (!(divisor > 0))
        return calm_fail(ctx, CALM_ENUMERIC, "%s: %s.weight_global_scale is %g, expected a positive number",
                         tensor->file, module, (double)divisor);
    for (size_t i = 0; i < tensor->n_elements; i++) {
        const uint8_t bits = tensor->data[i];
        if (bits == 255 || (global && bits == 127))
            return calm_fail(ctx, CALM_ENUMERIC, "%s: %s.weight_scale: the value at %zu is NaN", tensor->file, module,
                             i);
        scales[i] = global ? calm_levels_e4m3.value[calm_levels_of_bits(&calm_levels_e4m3, bits)] / divisor
                           : ldexpf(1, bits - 127);
    }
    return CALM_OK;
}

/* Copies the scales of blocks of rows, which come first, to each row of a block; from the last row down, so that none
 * is overwritten before it is copied. */
static void repeat_scales(const calm_qformat_scheme *scheme, calm_qformat_values *values)
{
    const size_t groups = values->n_groups;
    const size_t rows = is_whole(scheme->family) ? values->out
                                                 : calm_scheme_rows(&(calm_scheme){.family = scheme->family});
    for (size_t row = values->out; rows > 1 && row-- > 0;)
        memmove(values->scales + row * groups, values->scales + row / rows * groups, groups * sizeof *values->scales);
}

static calm_status unpack_floats(calm_ctx *ctx, const char *module, const calm_qformat_scheme *scheme,
                                 const calm_tensor *const found[CALM_N_QFORMAT_PARTS], calm_qformat_values *values)
{
    const calm_tensor *scales = found[CALM_QFORMAT_SCALES];
    /* One per row or block, of any float type. */
    if (is_fp8(scheme->family)) {
        CALM_TRY(calm_qformat_floats(ctx, scales, false, 0, 0, values->scales));
        repeat_scales(scheme, values);
    } else
        CALM_TRY(small_scales(ctx, module, scales, found[CALM_QFORMAT_GLOBAL], values->scales));
    return unpack_bits(ctx, module, values->levels, found[CALM_QFORMAT_CODES], values->out * values->in,
                       values->codes);
}

static calm_status unpack(calm_ctx *ctx, const char *module, const calm_qformat_scheme *scheme,
                          const calm_tensor *const found[CALM_N_QFORMAT_PARTS], calm_qformat_values *values)
{
    const calm_tensor *codes = found[CALM_QFORMAT_CODES], *zeros = found[CALM_QFORMAT_ZEROS];
    if (scheme->family)
        return unpack_floats(ctx, module, scheme, found, values);
    CALM_TRY(calm_qformat_floats(ctx, found[CALM_QFORMAT_SCALES], false, 0, 0, values->scales));
    if (scheme->layout == CALM_CT_INT)
        return unpack_bytes(ctx, module, scheme->bits, codes, values->codes);
    CALM_TRY(calm_qformat_codes(ctx, codes, CALM_QFORMAT_BY_ROWS, scheme->bits, false, values->out, values->in,
                                values->codes));
    return zeros ? calm_qformat_codes(ctx, zeros, CALM_QFORMAT_BY_COLUMNS, scheme->bits, false, values->out,
                                      values->n_groups, values->zeros)
                 : CALM_OK;
}

static const calm_qformat_suffix suffixes[] = {
    {"weight_packed", CALM_QFORMAT_CODES}, {"weight", CALM_QFORMAT_CODES},
    {"weight_scale", CALM_QFORMAT_SCALES}, {"weight_zero_point", CALM_QFORMAT_ZEROS},
    {"weight_shape", CALM_QFORMAT_SHAPE},  {"weight_g_idx", CALM_QFORMAT_INDEX},
    {"weight_global_scale", CALM_QFORMAT_GLOBAL}, {"input_global_scale", CALM_QFORMAT_ACT_GLOBAL},
    {"input_scale", CALM_QFORMAT_ACT_SCALE}, {NULL, CALM_QFORMAT_CODES}};

const calm_qformat calm_qformat_compressed_tensors = {
    .name = "compressed_tensors",
    .label = "compressed-tensors",
    .suffixes = suffixes,
    .resembles = resembles,
    .bytes = sizeof(compressed),
    .read = read,
    .release = release,
    .find = find,
    .hadamard = hadamard,
    .tensors = tensors,
    .plain_bytes = true,
    .unpack = unpack,
};
