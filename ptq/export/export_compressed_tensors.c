/* compressed-tensors: the format that transformers, vLLM and SGLang load (docs/formats.md section 3).
 *
 *   m.weight -> pack-quantized   m.weight_packed I32 [out, ceil(in b / 32)], m.weight_scale [out, G],
 *                                m.weight_shape I64 [2], m.weight_zero_point I32 [ceil(out b / 32), G] if asymmetric
 *   m.weight -> int-quantized    m.weight I8 [out, in] = code - 2^(b-1), m.weight_scale [out, G], m.input_scale [1]
 *                                with static activations
 *   m.weight -> float-quantized  m.weight F8_E4M3 [out, in], m.weight_scale [out, 1], of blocks [ceil(out / 128), G],
 *                                of whole linears [1], m.input_scale [1] with static activations
 *   m.weight -> mxfp4-pack-quantized   m.weight_packed U8 [out, in / 2], the lower nibble first, m.weight_scale U8
 *                                      [out, G], a power of two: exponent + 127
 *   m.weight -> nvfp4-pack-quantized   m.weight_packed U8 [out, in / 2], m.weight_scale F8_E4M3 [out, G],
 *                                      m.weight_global_scale F32 [1], by which readers divide that,
 *                                      m.input_global_scale F32 [1] with quantized activations
 *   all other tensors unchanged, except those that input scales were folded into
 *
 * Order in the file: safetensors_export.h. */
#include "ptq/export/ct_config.h"

#include <math.h>
#include <string.h>

#include "ptq/export/format_checks.h"
#include "ptq/export/safetensors_export.h"
#include "ptq/model/transforms.h"
#include "ptq/quant/act_levels.h"
#include "ptq/quant/levels.h"
#include "ptq/quant/pack.h"
#include "ptq/weights/source_codes.h"

#define NAME "compressed-tensors"

/* ---- a linear ---- */

static size_t list_floats(const calm_scheme *scheme, size_t out, size_t in,
                          calm_export_tensor list[CALM_EXPORT_TENSORS])
{
    const size_t groups = calm_scheme_groups(scheme, in);
    const bool global = calm_scheme_has_global(scheme);
    list[0] = (calm_export_tensor){"weight_packed", CALM_U8, 2, {out, in / 2}};
    list[1] = (calm_export_tensor){"weight_scale", global ? CALM_F8_E4M3 : CALM_U8, 2, {out, groups}};
    list[2] = (calm_export_tensor){"weight_global_scale", CALM_F32, 1, {1, 0}};
    list[3] = (calm_export_tensor){"input_global_scale", CALM_F32, 1, {1, 0}};
    if (calm_scheme_is_fp8(scheme)) {
        const size_t blocks = calm_scheme_row_blocks(scheme, out);
        list[0] = (calm_export_tensor){"weight", CALM_F8_E4M3, 2, {out, in}};
        list[1] = (calm_export_tensor){"weight_scale", scheme->scale_dtype, 2, {blocks, groups}};
        if (calm_scheme_is_whole(scheme))
            list[1] = (calm_export_tensor){"weight_scale", scheme->scale_dtype, 1, {1, 0}};
        list[2] = (calm_export_tensor){"input_scale", scheme->scale_dtype, 1, {1, 0}};
        return calm_act_rule_is_static(scheme->act_rule) ? 3 : 2;
    }
    return global ? 3 + (scheme->act_bits != 0) : 2;
}

static size_t list_tensors(const calm_scheme *scheme, size_t out, size_t in,
                           calm_export_tensor list[CALM_EXPORT_TENSORS])
{
    const size_t groups = calm_scheme_groups(scheme, in);
    if (scheme->family)
        return list_floats(scheme, out, in, list);
    list[1] = (calm_export_tensor){"weight_scale", scheme->scale_dtype, 2, {out, groups}};
    if (calm_ct_has_bytes(scheme)) { /* int-quantized */
        list[0] = (calm_export_tensor){"weight", CALM_I8, 2, {out, in}};
        list[2] = (calm_export_tensor){"input_scale", scheme->scale_dtype, 1, {1, 0}};
        return scheme->act_rule == CALM_ACT_RULE_STATIC ? 3 : 2;
    }
    list[0] = (calm_export_tensor){"weight_packed", CALM_I32, 2, {out, calm_pack_words(in, scheme->bits)}};
    list[2] = (calm_export_tensor){"weight_shape", CALM_I64, 1, {2, 0}};
    list[3] = (calm_export_tensor){"weight_zero_point", CALM_I32, 2, {calm_pack_words(out, scheme->bits), groups}};
    return scheme->symmetric ? 3 : 4;
}

static calm_status put_codes(calm_ctx *ctx, calm_shards_writer *writer, const calm_qlinear *linear)
{
    const size_t n = linear->out * linear->in;
    const int zero = 1 << (linear->scheme.bits - 1);
    int8_t *values;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, values, n));
    for (size_t i = 0; i < n; i++)
        values[i] = (int8_t)((int)linear->codes[i] - zero);
    return calm_shards_put(ctx, writer, values, n);
}

/* Packs the codes' bits, one or two codes per byte, in ctx->scratch. */
static calm_status bits_of(calm_ctx *ctx, const calm_qlinear *linear, uint8_t **bytes, size_t *n_bytes)
{
    const calm_levels *levels = calm_scheme_levels(&linear->scheme);
    const size_t n = linear->out * linear->in, per_byte = linear->scheme.bits == 4 ? 2 : 1;
    *n_bytes = n / per_byte;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, *bytes, *n_bytes));
    for (size_t i = 0; i < n; i++)
        (*bytes)[i / per_byte] |= (uint8_t)(calm_levels_bits(levels, linear->codes[i]) << (i % per_byte * 4));
    return CALM_OK;
}

/* Writes codes or scales of MXFP4; copies those of an MXFP4 source if the numbers are the same. */
static calm_status put_mxfp4(calm_ctx *ctx, calm_shards_writer *writer, const calm_qlinear *linear, bool scales)
{
    const size_t n = linear->out * linear->n_groups;
    uint8_t *codes, *exponents;
    size_t n_codes;
    CALM_TRY(bits_of(ctx, linear, &codes, &n_codes));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, exponents, n));
    for (size_t i = 0; i < n; i++)
        exponents[i] = (uint8_t)(ilogbf(linear->scales[i]) + 127);
    if (linear->source && linear->source->n_elements == linear->out * linear->in)
        calm_source_codes_restore(linear->source, codes, exponents);
    return scales ? calm_shards_put(ctx, writer, exponents, n) : calm_shards_put(ctx, writer, codes, n_codes);
}

static calm_status put_bits(calm_ctx *ctx, calm_shards_writer *writer, const calm_qlinear *linear)
{
    uint8_t *bytes;
    size_t n;
    CALM_TRY(bits_of(ctx, linear, &bytes, &n));
    return calm_shards_put(ctx, writer, bytes, n);
}

/* Writes the scales that a reader divides by the global scale. */
static calm_status put_small_scales(calm_ctx *ctx, calm_shards_writer *writer, const calm_qlinear *linear)
{
    const size_t n = linear->out * linear->n_groups;
    uint8_t *bytes;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, bytes, n));
    for (size_t i = 0; i < n; i++) {
        double stored = (double)linear->scales[i] * (double)linear->global;
        calm_levels_nearest(&calm_levels_e4m3, &stored, 1);    /* undoes the rounding of the division in float32 */
        bytes[i] = calm_levels_bits(&calm_levels_e4m3, calm_levels_code(&calm_levels_e4m3, stored));
    }
    return calm_shards_put(ctx, writer, bytes, n);
}

/* Writes 16-bit scales; for blocks and whole linears, those of their first rows. */
static calm_status put_wide_scales(calm_ctx *ctx, calm_shards_writer *writer, const calm_qlinear *linear)
{
    const bool whole = calm_scheme_is_whole(&linear->scheme);
    const size_t groups = linear->n_groups, n = whole ? 1 : calm_scheme_row_blocks(&linear->scheme, linear->out);
    const size_t rows = whole ? linear->out : calm_scheme_rows(&linear->scheme);
    float *scales;
    if (rows == 1)
        return calm_export_put_floats(ctx, writer, linear->scheme.scale_dtype, linear->scales, n * groups);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, scales, n * groups));
    for (size_t row = 0; row < linear->out; row++) {
        float *of = scales + row / rows * groups;
        const float *own = linear->scales + row * groups;
        if (row % rows == 0)
            memcpy(of, own, groups * sizeof *of);
        /* The candidate is of another version, or the store is damaged. */
        if (memcmp(of, own, groups * sizeof *of) != 0)
            return calm_fail(ctx, CALM_EFORMAT, NAME ": row %zu of %zu has other scales than row %zu of its block of "
                             "%zu rows", row, linear->out, row / rows * rows, rows);
    }
    return calm_export_put_floats(ctx, writer, linear->scheme.scale_dtype, scales, n * groups);
}

static calm_status put_floats(calm_ctx *ctx, calm_shards_writer *writer, const calm_qlinear *linear, size_t which)
{
    if (linear->scheme.family == CALM_FAMILY_MXFP4)
        return put_mxfp4(ctx, writer, linear, which == 1);
    if (which == 0)
        return put_bits(ctx, writer, linear);
    if (which == 2 && calm_scheme_is_fp8(&linear->scheme))
        return calm_export_put_floats(ctx, writer, linear->scheme.scale_dtype, &linear->act_global, 1);
    if (which > 1)
        return calm_shards_put(ctx, writer, which == 2 ? &linear->global : &linear->act_global, sizeof(float));
    return calm_scheme_is_fp8(&linear->scheme) ? put_wide_scales(ctx, writer, linear)
                                               : put_small_scales(ctx, writer, linear);
}

static calm_status put(calm_ctx *ctx, calm_shards_writer *writer, const calm_qlinear *linear, size_t which,
                       bool asymmetric)
{
    if (linear->scheme.family)
        return put_floats(ctx, writer, linear, which);
    const int64_t shape[2] = {(int64_t)linear->out, (int64_t)linear->in};
    const int bits = linear->scheme.bits;
    (void)asymmetric;
    const bool bytes = calm_ct_has_bytes(&linear->scheme);
    if (which == 0 && bytes)
        return put_codes(ctx, writer, linear);
    if (which == 0)
        return calm_export_put_packed(ctx, writer, linear->codes, linear->out, linear->in, bits, false);
    if (which == 1)
        return calm_export_put_floats(ctx, writer, linear->scheme.scale_dtype, linear->scales,
                                      linear->out * linear->n_groups);
    if (bytes)
        return calm_export_put_floats(ctx, writer, linear->scheme.scale_dtype, &linear->act_global, 1);
    return which == 2 ? calm_shards_put(ctx, writer, shape, sizeof shape)
                      : calm_export_put_packed(ctx, writer, linear->zeros, linear->out, linear->n_groups, bits, true);
}

/* ---- checks ---- */

/* Warns of features of a plan that not every reader supports. */
enum { THREE_BITS, ASYMMETRIC, UNREAD_EXPERTS, FLOAT_EXPERTS, EVALUATION_ONLY, N_WARNINGS };

static const char *const warnings[N_WARNINGS] = {
    [THREE_BITS] = "3 bits: compressed-tensors before 0.18 packs them differently; this checkpoint needs 0.18 or later",
    [ASYMMETRIC] =
        "asymmetric weights: compressed-tensors 0.18 to 0.20 do not load them in transformers; 0.14 to 0.17 do",
    [UNREAD_EXPERTS] =
        "experts with quantized activations or asymmetric weights: transformers 5 reads symmetric packed "
        "experts alone; engines such as vLLM take 8-bit ones with 8-bit activations",
    [FLOAT_EXPERTS] = "experts in small floats: transformers 5 reads symmetric packed integers of experts alone",
    [EVALUATION_ONLY] =
        "quantized activations with weights of 4 bits or in groups, or of 4 bits themselves: transformers "
        "computes them, no engine has a kernel; this checkpoint is for evaluation",
};

static const char *refuses(const calm_scheme *scheme)
{
    return scheme->act_bits && !scheme->symmetric ? "quantized activations need symmetric weights, without _asym"
                                                  : NULL;
}

static calm_status look_at(calm_ctx *ctx, const calm_export_input *input, size_t index, bool has[N_WARNINGS])
{
    const calm_scheme *scheme = &input->plan->jobs[index].scheme;
    const calm_job_ref *job = &calm_model_layout(input->model)->jobs[index];
    if (!input->plan->jobs[index].quantized)
        return CALM_OK;
    has[FLOAT_EXPERTS] |= job->expert >= 0 && scheme->family;
    if (scheme->family)
        return CALM_OK;
    if (scheme->bits > 4 && scheme->bits < 8)
        return calm_fail(ctx, CALM_EUNSUPPORTED, NAME ": %d bits: readers disagree on the layout; use 2, 3, 4 or 8",
                         scheme->bits);
    if (!scheme->symmetric && !(input->options && input->options->asymmetric))
        return calm_fail(ctx, CALM_EUNSUPPORTED,
                         NAME
                         ": %s has asymmetric weights, which transformers with compressed-tensors 0.18 to 0.20 does "
                         "not load; `asymmetric` writes them all the same, `formats` gptq another way",
                         job->name);
    has[UNREAD_EXPERTS] |= job->expert >= 0 && (scheme->act_bits || !scheme->symmetric);
    has[THREE_BITS] |= scheme->bits == 3;
    has[ASYMMETRIC] |= !scheme->symmetric;
    has[EVALUATION_ONLY] |= calm_ct_has_bytes(scheme) && (scheme->act_bits < 8 || scheme->bits < 8 || scheme->group);
    return CALM_OK;
}

static calm_status check(calm_ctx *ctx, const calm_export_input *input)
{
    bool has[N_WARNINGS] = {false};
    CALM_TRY(calm_check_experts(ctx, NAME, input));
    CALM_TRY(calm_check_groups(ctx, NAME, input));
    if (calm_transforms_any(calm_model_config(input->model)))
        calm_log(ctx, CALM_LOG_WARNING, "readers must apply transform_config before linears: transformers does not by "
                                        "itself, README.md of the checkpoint says how");
    for (size_t i = 0; i < input->plan->n_jobs; i++)
        CALM_TRY(look_at(ctx, input, i, has));
    for (size_t i = 0; i < N_WARNINGS; i++)
        if (has[i])
            calm_log(ctx, CALM_LOG_WARNING, "%s", warnings[i]);
    return CALM_OK;
}

/* Refuses table schemes other than weight-only ones with scales of rows or groups, because a table is rounded some rows
 * at a time, without inputs. */
static calm_status check_outer(calm_ctx *ctx, const calm_scheme *scheme, const char *module, size_t in)
{
    const char *name = CALM_SCHEME_NAME(scheme);
    if (calm_scheme_has_global(scheme))
        return calm_fail(ctx, CALM_EUNSUPPORTED, NAME ": %s is %s, whose number for the whole matrix calm does not "
                         "find for a head; %s has none", module, name,
                         calm_scheme_is_fp8(scheme) ? "fp8a16" : "mxfp4a16");
    if (!scheme->family && !scheme->symmetric)
        return calm_fail(ctx, CALM_EUNSUPPORTED, NAME ": %s is %s: compressed-tensors 0.18 to 0.20 do not load "
                         "asymmetric weights in transformers", module, name);
    return !scheme->group || in % scheme->group == 0 || calm_scheme_rows(scheme) > 1
               ? CALM_OK
               : calm_fail(ctx, CALM_EUNSUPPORTED, NAME ": %s is %s: its groups do not divide %zu columns", module,
                           name, in);
}

const calm_exporter calm_export_compressed_tensors = {
    .name = "compressed_tensors",
    .summary = "safetensors with packed integers: transformers, vLLM, SGLang",
    .serve = "vllm serve",
    .transforms = true,
    .caches = true,
    .families = 1u << CALM_FAMILY_FP8 | 1u << CALM_FAMILY_FP8_BLOCK | 1u << CALM_FAMILY_FP8_TENSOR |
                1u << CALM_FAMILY_MXFP4 | 1u << CALM_FAMILY_NVFP4,
    .tie = CALM_TIE_BLOCK,
    .head_alone = true,
    .check_outer = check_outer,
    .refuses = refuses,
    .check = check,
    .form = &(const calm_export_form){
        .tensors = list_tensors, .put = put, .whole = true, .entry = calm_ct_config,
        .keys = {"quantization_config"}},
};
