/* compressed-tensors, reading. */
#include "ptq/model/compressed.h"

#include <stdlib.h>
#include <string.h>

#include "ptq/io/regex.h"
#include "ptq/quant/pack.h"

typedef struct target {
    const char *name;     /* exact module name or class; NULL when it is a pattern */
    calm_regex *regex;
    size_t group;         /* index of the group; n_groups = ignored */
} target;

struct calm_compressed {
    calm_arena arena;
    calm_stored_scheme *groups;
    size_t n_groups;
    target *targets;
    size_t n_targets;
};

static calm_status unsupported(calm_ctx *ctx, const char *path, const char *group, const char *what)
{
    return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: quantization_config.config_groups.%s: %s", path, group, what);
}

/* ---- the configuration ---- */

static calm_status read_weights(calm_ctx *ctx, const char *path, const char *group, const calm_json *args,
                                calm_stored_scheme *out)
{
    const bool yes = true;
    const int64_t none = 0;
    int64_t bits = 0, width = 0;
    const char *type, *strategy;
    CALM_TRY(calm_json_need_int(ctx, path, args, "num_bits", NULL, 2, 8, &bits));
    CALM_TRY(calm_json_need_int(ctx, path, args, "group_size", &none, -1, 1 << 24, &width));
    CALM_TRY(calm_json_need_bool(ctx, path, args, "symmetric", &yes, &out->symmetric));
    CALM_TRY(calm_json_need_string(ctx, path, args, "type", "int", &type));
    CALM_TRY(calm_json_need_string(ctx, path, args, "strategy", width > 0 ? "group" : "channel", &strategy));
    if (strcmp(type, "int") != 0)
        return unsupported(ctx, path, group, "weights that are not of type int");
    if (strcmp(strategy, "group") != 0 && strcmp(strategy, "channel") != 0)
        return unsupported(ctx, path, group, "weights.strategy is neither group nor channel");
    if (bits > 4 && bits < 8)
        return unsupported(ctx, path, group, "weights of 5, 6 or 7 bits");
    out->bits = (int)bits;
    out->group = strcmp(strategy, "group") == 0 && width > 0 ? (size_t)width : 0;
    return CALM_OK;
}

static calm_status read_activations(calm_ctx *ctx, const char *path, const char *group, const calm_json *args,
                                    calm_stored_scheme *out)
{
    const bool yes = true, no = false;
    int64_t bits = 0;
    bool symmetric, dynamic;
    const char *strategy, *type;
    if (calm_json_typeof(args) == CALM_JSON_NULL)
        return CALM_OK;
    CALM_TRY(calm_json_need_int(ctx, path, args, "num_bits", NULL, 2, 8, &bits));
    CALM_TRY(calm_json_need_bool(ctx, path, args, "symmetric", &yes, &symmetric));
    CALM_TRY(calm_json_need_bool(ctx, path, args, "dynamic", &no, &dynamic));
    CALM_TRY(calm_json_need_string(ctx, path, args, "strategy", "token", &strategy));
    CALM_TRY(calm_json_need_string(ctx, path, args, "type", "int", &type));
    if (!dynamic || strcmp(strategy, "token") != 0 || strcmp(type, "int") != 0)
        return unsupported(ctx, path, group, "input_activations other than int, dynamic, per token");
    out->act_bits = (int)bits;
    out->act_asymmetric = !symmetric;
    return CALM_OK;
}

static calm_status read_group(calm_ctx *ctx, const char *path, const char *name, const calm_json *group,
                              const char *global_format, calm_stored_scheme *out)
{
    const char *format;
    if (calm_json_typeof(calm_json_get(group, "weights")) != CALM_JSON_OBJECT)
        return unsupported(ctx, path, name, "without weights");
    CALM_TRY(read_weights(ctx, path, name, calm_json_get(group, "weights"), out));
    CALM_TRY(read_activations(ctx, path, name, calm_json_get(group, "input_activations"), out));
    if (calm_json_typeof(calm_json_get(group, "output_activations")) != CALM_JSON_NULL)
        return unsupported(ctx, path, name, "output_activations");
    /* Without a format of its own a reader infers it from the scheme, never from "mixed-precision". */
    CALM_TRY(calm_json_need_string(ctx, path, group, "format", global_format, &format));
    if (strcmp(format, "mixed-precision") == 0)
        format = out->act_bits ? "int-quantized" : "pack-quantized";
    out->packed = strcmp(format, "pack-quantized") == 0;
    if (!out->packed && strcmp(format, "int-quantized") != 0)
        return unsupported(ctx, path, name, "a format other than pack-quantized and int-quantized");
    return CALM_OK;
}

static calm_status add_target(calm_ctx *ctx, calm_compressed *out, const char *path, const calm_json *value,
                              size_t group)
{
    const char *text = calm_json_string(value, NULL);
    target *at = &out->targets[out->n_targets];
    char *copy;
    if (!text)
        return calm_fail(ctx, CALM_EFORMAT, "%s: quantization_config: a target that is not a string", path);
    at->group = group;
    if (strncmp(text, "re:", 3) == 0) {
        CALM_TRY(calm_regex_new(ctx, path, text + 3, strlen(text + 3), &at->regex));
    } else {
        CALM_TRY(calm_strf(ctx, &out->arena, &copy, "%s", text));
        at->name = copy;
    }
    out->n_targets++;
    return CALM_OK;
}

static calm_status read_targets(calm_ctx *ctx, const char *path, const calm_json *root, calm_compressed *out)
{
    const calm_json *groups = calm_json_get(root, "config_groups"), *ignore = calm_json_get(root, "ignore"), *group;
    size_t n = calm_json_size(ignore), index = 0;
    const char *name;
    for (void *iter = NULL; calm_json_next(groups, &iter, &name, &group);)
        n += calm_json_size(calm_json_get(group, "targets"));
    CALM_TRY(CALM_NEW(ctx, &out->arena, out->targets, n + 1));
    for (size_t i = 0; i < calm_json_size(ignore); i++)
        CALM_TRY(add_target(ctx, out, path, calm_json_at(ignore, i), out->n_groups));
    for (void *iter = NULL; calm_json_next(groups, &iter, &name, &group); index++) {
        const calm_json *targets = calm_json_get(group, "targets");
        for (size_t i = 0; i < calm_json_size(targets); i++)
            CALM_TRY(add_target(ctx, out, path, calm_json_at(targets, i), index));
    }
    return CALM_OK;
}

static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_compressed *out)
{
    const calm_json *groups = calm_json_get(root, "config_groups"), *group;
    const char *method, *status, *format, *name;
    CALM_TRY(calm_json_need_string(ctx, path, root, "quant_method", "(none)", &method));
    if (strcmp(method, "compressed-tensors") != 0)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: quantization_config.quant_method \"%s\": only compressed-tensors "
                                                 "is read", path, method);
    CALM_TRY(calm_json_need_string(ctx, path, root, "quantization_status", "(none)", &status));
    if (strcmp(status, "compressed") != 0)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: quantization_config.quantization_status is \"%s\", expected "
                                                 "\"compressed\"", path, status);
    CALM_TRY(calm_json_need_string(ctx, path, root, "format", "mixed-precision", &format));
    if (calm_json_typeof(groups) != CALM_JSON_OBJECT || calm_json_size(groups) == 0)
        return calm_fail(ctx, CALM_EFORMAT, "%s: quantization_config.config_groups is missing or empty", path);
    CALM_TRY(CALM_NEW(ctx, &out->arena, out->groups, calm_json_size(groups)));
    for (void *iter = NULL; calm_json_next(groups, &iter, &name, &group);)
        CALM_TRY(read_group(ctx, path, name, group, format, &out->groups[out->n_groups++]));
    return read_targets(ctx, path, root, out);
}

calm_status calm_compressed_read(calm_ctx *ctx, const char *path, const calm_json *root, calm_compressed **out)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return calm_fail(ctx, CALM_ENOMEM, "%s: out of memory", path);
    calm_status status = read_config(ctx, path, root, *out);
    if (status != CALM_OK) {
        calm_compressed_free(*out);
        *out = NULL;
    }
    return status;
}

void calm_compressed_free(calm_compressed *compressed)
{
    if (!compressed)
        return;
    for (size_t i = 0; i < compressed->n_targets; i++)
        calm_regex_free(compressed->targets[i].regex);
    calm_arena_clear(&compressed->arena);
    free(compressed);
}

/* ---- modules ---- */

calm_status calm_compressed_find(calm_ctx *ctx, const calm_compressed *compressed, const char *module, bool *quantized,
                                 calm_stored_scheme *out)
{
    const target *best = NULL;
    int best_rank = 4;    /* 0 ignored, 1 exact name, 2 pattern, 3 class */
    for (size_t i = 0; i < compressed->n_targets; i++) {
        const target *at = &compressed->targets[i];
        bool hit = at->name && strcmp(at->name, module) == 0;
        int rank = at->group == compressed->n_groups ? 0 : at->regex ? 2 : 1;
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
        *out = compressed->groups[best->group];
    return CALM_OK;
}

/* The tensor module + suffix with this dtype and shape. */
static calm_status need(calm_ctx *ctx, const calm_safetensors *set, const char *module, const char *suffix,
                        calm_dtype dtype, size_t rows, size_t cols, const calm_tensor **out)
{
    char *name;
    const size_t shape[2] = {rows, cols};
    CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%s.%s", module, suffix));
    CALM_TRY(calm_safetensors_need(ctx, set, name, 2, shape, out));
    bool fits = dtype == CALM_F32 ? calm_dtype_is_float((*out)->dtype) : (*out)->dtype == dtype;
    if (!fits)
        return calm_fail(ctx, CALM_EFORMAT, "%s: tensor %s: dtype %s, expected %s", (*out)->file, name,
                         calm_dtype_name((*out)->dtype),
                         dtype == CALM_F32 ? "BF16, F16 or F32" : calm_dtype_name(dtype));
    return CALM_OK;
}

typedef struct stored {
    const calm_tensor *codes, *scales, *zeros;
    size_t n_groups, group;
} stored;

static calm_status need_all(calm_ctx *ctx, const calm_safetensors *set, const char *module,
                            const calm_stored_scheme *scheme, size_t out, size_t in, stored *found)
{
    found->group = scheme->group ? scheme->group : in;
    found->n_groups = (in + found->group - 1) / found->group;
    found->zeros = NULL;
    CALM_TRY(need(ctx, set, module, "weight_scale", CALM_F32, out, found->n_groups, &found->scales));
    if (!scheme->packed) {
        if (!scheme->symmetric)
            return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: asymmetric int-quantized weights", module);
        return need(ctx, set, module, "weight", CALM_I8, out, in, &found->codes);
    }
    CALM_TRY(need(ctx, set, module, "weight_packed", CALM_I32, out, calm_pack_words(in, scheme->bits), &found->codes));
    if (!scheme->symmetric)
        CALM_TRY(need(ctx, set, module, "weight_zero_point", CALM_I32, calm_pack_words(out, scheme->bits),
                      found->n_groups, &found->zeros));
    return CALM_OK;
}

calm_status calm_compressed_check(calm_ctx *ctx, const calm_safetensors *set, const char *module,
                                  const calm_stored_scheme *scheme, size_t out, size_t in)
{
    stored found;
    return need_all(ctx, set, module, scheme, out, in, &found);
}

/* Codes of all rows as unsigned numbers [out, in], from words or from signed bytes. */
static calm_status unpack(calm_ctx *ctx, const stored *found, const calm_stored_scheme *scheme, size_t out, size_t in,
                          uint8_t *codes, uint8_t *zeros)
{
    uint32_t *words;
    if (!scheme->packed) {
        for (size_t i = 0; i < out * in; i++)
            codes[i] = (uint8_t)(found->codes->data[i] + (1u << (scheme->bits - 1)));
    } else {
        /* Copied: a mapped tensor may lie at any alignment. */
        CALM_TRY(CALM_NEW(ctx, ctx->scratch, words, found->codes->n_elements));
        memcpy(words, found->codes->data, found->codes->bytes);
        calm_unpack_rows(words, out, in, scheme->bits, codes);
    }
    memset(zeros, 1 << (scheme->bits - 1), out * found->n_groups);
    if (found->zeros) {
        CALM_TRY(CALM_NEW(ctx, ctx->scratch, words, found->zeros->n_elements));
        memcpy(words, found->zeros->data, found->zeros->bytes);
        calm_unpack_columns(words, out, found->n_groups, scheme->bits, zeros);
    }
    return CALM_OK;
}

calm_status calm_compressed_load(calm_ctx *ctx, const calm_safetensors *set, const char *module,
                                 const calm_stored_scheme *scheme, size_t out, size_t in, float *w)
{
    stored found;
    uint8_t *codes, *zeros;
    float *scales;
    calm_arena_mark mark = calm_arena_save(ctx->scratch);
    CALM_TRY(need_all(ctx, set, module, scheme, out, in, &found));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, codes, out * in));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, zeros, out * found.n_groups));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, scales, out * found.n_groups));
    CALM_TRY(calm_tensor_to_f32(ctx, found.scales, scales));
    CALM_TRY(unpack(ctx, &found, scheme, out, in, codes, zeros));
    for (size_t o = 0; o < out; o++)
        for (size_t i = 0; i < in; i++) {
            size_t g = o * found.n_groups + i / found.group;
            w[o * in + i] = (float)((int)codes[o * in + i] - (int)zeros[g]) * scales[g];
        }
    calm_safetensors_release(set, found.codes);
    calm_arena_rewind(ctx->scratch, mark);
    return CALM_OK;
}
