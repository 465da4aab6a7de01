/* Exceptions for one model family: what an engine's class for it does differently from its other classes. */
#include "ptq/plan/engine_family.h"

#include <string.h>

#include "ptq/base/text.h"
#include "ptq/quant/act_levels.h"

bool calm_engine_skips_experts(const char *family)
{
    return strcmp(family, "gpt_oss") == 0;
}

bool calm_engine_moves_rows(const char *family, const char *format, bool symmetric, bool blocks)
{
    const bool named = strcmp(format, "compressed-tensors") == 0;
    return strcmp(family, "llama4") != 0 || (named && symmetric && !blocks);
}

const char *const *calm_engine_unread_parts(const char *family, const char *module)
{
    static const char *const of_all_rows[] = {"input_scale", "weight_shape", "weight_global_scale", NULL},
                      *const packed[] = {"weight_packed", NULL};
    const char *last = calm_text_last_word(module);
    if (strcmp(family, "modernbert") == 0)
        return packed;
    const bool gte = strcmp(family, "gte") == 0, nomic = strcmp(family, "nomic_bert") == 0;
    return (gte && (strcmp(last, "qkv_proj") == 0 || strcmp(last, "up_gate_proj") == 0)) ||
                   (nomic && strcmp(last, "Wqkv") == 0)
               ? of_all_rows : NULL;
}

calm_engine_experts calm_engine_holds_experts(const char *family, const char *model_type)
{
    if (strcmp(family, "llama4") == 0)
        return CALM_ENGINE_EXPERTS_MODULES;
    return calm_text_listed("gpt_oss|gemma4|granitemoe|granitemoehybrid", '|', family) ||
                   strcmp(model_type, "qwen3_vl_moe_text") == 0
               ? CALM_ENGINE_EXPERTS_WHOLE : CALM_ENGINE_EXPERTS_JOINED;
}

bool calm_engine_flattens_shared(const char *family)
{
    return calm_text_listed("ernie4_5_moe|llama4|qwen2_moe|qwen3_5_moe|qwen3_next", '|', family);
}

/* Returns true if compressed-tensors has this tensor for a linear in a scheme. */
static bool has_part(const calm_scheme *scheme, const char *part)
{
    const bool fours = scheme->family == CALM_FAMILY_MXFP4 || scheme->family == CALM_FAMILY_NVFP4;
    const bool bytes = scheme->act_bits && !calm_act_rule_is_float(scheme->act_rule);
    const bool words = !scheme->family && !bytes;    /* integers packed in 32-bit words */
    if (strcmp(part, "input_scale") == 0)
        return scheme->act_bits && calm_act_rule_is_static(scheme->act_rule);
    if (strcmp(part, "weight_packed") == 0)
        return words || fours;
    return strcmp(part, "weight_shape") == 0 ? words : scheme->family == CALM_FAMILY_NVFP4;
}

static calm_status check_transformers(calm_ctx *ctx, const char *format, const char *family, const calm_engine_job *own)
{
    const char *const *part = calm_engine_unread_parts(family, own->name);
    if (own->expert && calm_engine_holds_experts(family, "") == CALM_ENGINE_EXPERTS_WHOLE &&
        strcmp(format, "compressed-tensors") == 0)
        return calm_fail(ctx, CALM_EARG, "`target` transformers does not read %s of %s: its class reads experts in one "
                         "tensor; leave them float (`keep_float` re:.*experts.*)", own->name, family);
    for (; part && *part && strcmp(format, "compressed-tensors") == 0; part++)
        if (has_part(own->scheme, *part))
            return calm_fail(ctx, CALM_EARG, "`target` transformers does not read %s.%s of %s; take w8a8 or fp8, or "
                             "leave it float (`keep_float`)", own->name, *part, family);
    return CALM_OK;
}

calm_status calm_engine_check_family(calm_ctx *ctx, const calm_engine *engine, const char *format, const char *family,
                                     const calm_engine_job *own)
{
    if (!calm_engine_is_any(engine) && strcmp(calm_engine_name(engine), "transformers") == 0)
        return check_transformers(ctx, format, family, own);
    /* vllm, vllm-cpu and vllm-rocm have the same classes. */
    if (calm_engine_is_any(engine) || strncmp(calm_engine_name(engine), "vllm", 4) != 0)
        return CALM_OK;
    if (own->expert && calm_engine_skips_experts(family))
        return calm_fail(ctx, CALM_EARG, "`target` %s does not read %s of %s: its class has no names for quantized "
                         "experts; leave them float (`keep_float` re:.*experts.*)", calm_engine_name(engine), own->name,
                         family);
    if (own->turns && !calm_engine_moves_rows(family, format, own->scheme->symmetric,
                                              own->scheme->family == CALM_FAMILY_FP8_BLOCK))
        return calm_fail(ctx, CALM_EARG, "`target` %s computes other values with %s of %s: its class moves the rows of "
                         "q and k only of symmetric weights without blocks in compressed-tensors; take such weights, "
                         "or leave q, k and v float (`keep_float` re:.*q_proj)", calm_engine_name(engine), own->name,
                         family);
    return CALM_OK;
}
