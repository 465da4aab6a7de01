/* The 8-bit KV cache: names and values of its scales, and its rounding. */
#include "ptq/layers/kv_cache.h"

#include <math.h>
#include <string.h>

#include "ptq/arch/arch.h"
#include "ptq/arch/kind.h"
#include "ptq/quant/levels.h"

/* Numbers that are rounded together, on the stack. */
#define AT_ONCE ((size_t)128)

void calm_kv_watch(_Atomic float *peak, const float *x, size_t n, size_t stride, size_t width)
{
    float most = 0;
    for (size_t t = 0; t < n; t++)
        for (size_t i = 0; i < width; i++)
            most = fabsf(x[t * stride + i]) > most ? fabsf(x[t * stride + i]) : most;
    /* Each task searches its own rows, and updates the common peak once.  A maximum does not depend on the order of
     * threads. */
    float known = atomic_load(peak);
    while (known < most && !atomic_compare_exchange_weak(peak, &known, most))
        ;
}

void calm_kv_round(float scale, float *x, size_t n, size_t stride, size_t width)
{
    double part[AT_ONCE];
    for (size_t t = 0; t < n; t++)
        for (size_t first = 0, m; first < width; first += m) {
            float *row = x + t * stride + first;
            m = calm_size_min(width - first, AT_ONCE);
            /* Divided in float, like in kernels; the quotient is then exact in double. */
            for (size_t i = 0; i < m; i++)
                part[i] = (double)(row[i] / scale);
            calm_levels_nearest(&calm_levels_e4m3, part, m);
            for (size_t i = 0; i < m; i++)
                row[i] = (float)part[i] * scale;
        }
}

float calm_kv_scale(float peak)
{
    /* Engines divide by the scale, so it must not be 0. */
    return peak > 0 ? peak / CALM_KV_LARGEST : 1;
}

/* Returns a linear within attention's module: "self_attn.k_proj", in Phi-3 "self_attn.qkv_proj"; families have no name
 * for attention itself. */
static const char *attention_word(const calm_config *config)
{
    const calm_names *names = config->arch->names;
    return names->role[CALM_ROLE_FUSED_QKV] ? names->role[CALM_ROLE_FUSED_QKV] : names->role[CALM_ROLE_K];
}

bool calm_kv_has(const calm_config *config, size_t block)
{
    const calm_kind *kind = calm_kind_at(config, block, CALM_SUBLAYER_ATTENTION);
    const char *word = attention_word(config);
    /* Bidirectional attention has no cache. */
    return kind && strcmp(kind->name, "attention") == 0 && !config->both_ways && word && strrchr(word, '.');
}

calm_status calm_kv_name(calm_ctx *ctx, const calm_config *config, const char *prefix, size_t block, char which,
                         calm_string_out out)
{
    const char *word = attention_word(config);
    return calm_strf(ctx, ctx->out, out, "%s%s.%zu.%.*s.%c_scale", prefix, config->arch->names->blocks, block,
                     (int)(strrchr(word, '.') - word), word, which);
}

/* ---- reading ---- */

/* Is it the supported scheme?  With dynamic scales, or one per head, engines compute otherwise than this file does. */
static bool is_known(const calm_json *scheme)
{
    return strcmp(calm_json_string(calm_json_get(scheme, "type"), ""), "float") == 0 &&
           calm_json_int(calm_json_get(scheme, "num_bits"), 0) == 8 &&
           strcmp(calm_json_string(calm_json_get(scheme, "strategy"), ""), "tensor") == 0 &&
           !calm_json_bool(calm_json_get(scheme, "dynamic"), false);
}

/* Reads one scale; *found: the checkpoint has the tensor. */
static calm_status read_scale(calm_ctx *ctx, const calm_config *config, const char *prefix, size_t block, char which,
                              const calm_safetensors *tensors, float *out, bool *found)
{
    char *name;
    CALM_SCOPED_OUT(ctx, ctx->scratch);
    CALM_TRY(calm_kv_name(ctx, config, prefix, block, which, &name));
    const calm_tensor *tensor = calm_safetensors_find(tensors, name);
    *found = tensor != NULL;
    if (!tensor)
        return CALM_OK;
    if (tensor->n_elements == 1 && calm_dtype_is_float(tensor->dtype)) {
        CALM_TRY(calm_tensor_part_to_f32(ctx, tensor, 0, 1, out));
        if (isfinite(*out) && *out > 0)
            return CALM_OK;
    }
    return calm_fail(ctx, CALM_EFORMAT, "%s: expected one number above 0, the scale of an 8-bit KV cache", name);
}

calm_status calm_kv_read(calm_ctx *ctx, calm_arena *arena, const calm_json *json, const calm_config *config,
                         const char *prefix, const calm_safetensors *tensors, calm_kv_scales **out)
{
    const calm_json *entry = calm_json_get(json, "quantization_config");
    const calm_json *scheme = calm_json_get(entry, "kv_cache_scheme");
    calm_kv_scales *scales;
    *out = NULL;
    if (calm_json_typeof(scheme) != CALM_JSON_OBJECT || !is_known(scheme))
        return CALM_OK;
    /* Blocks of other kinds have zeros. */
    CALM_TRY(CALM_NEW(ctx, arena, scales, config->n_blocks));
    for (size_t b = 0; b < config->n_blocks; b++) {
        CALM_SCOPED_SCRATCH(ctx);
        bool k = false, v = false;
        if (!calm_kv_has(config, b))
            continue;
        CALM_TRY(read_scale(ctx, config, prefix, b, 'k', tensors, &scales[b].k, &k));
        CALM_TRY(read_scale(ctx, config, prefix, b, 'v', tensors, &scales[b].v, &v));
        /* `calm check` reports missing scales; engines use 1 or refuse the file. */
        if (!k || !v)
            return CALM_OK;
    }
    *out = scales;
    return CALM_OK;
}
