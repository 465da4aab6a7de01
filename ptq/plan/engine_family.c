/* What an engine's class of one family does otherwise than its other classes. */
#include "ptq/plan/engine_family.h"

#include <string.h>

bool calm_engine_passes_over(const char *family)
{
    return strcmp(family, "gpt_oss") == 0;
}

bool calm_engine_moves_rows(const char *family, const char *format, bool symmetric, bool blocks)
{
    const bool named = strcmp(format, "compressed-tensors") == 0;
    return strcmp(family, "llama4") != 0 || (named && symmetric && !blocks);
}

calm_status calm_engine_check_family(calm_ctx *ctx, const calm_engine *engine, const char *format, const char *family,
                                     const calm_engine_own *own)
{
    /* vllm, vllm-cpu and vllm-rocm have the same classes. */
    if (calm_engine_is_any(engine) || strncmp(calm_engine_name(engine), "vllm", 4) != 0)
        return CALM_OK;
    if (own->expert && calm_engine_passes_over(family))
        return calm_fail(ctx, CALM_EARG, "`target` %s does not read %s of %s: its class has no names for quantized "
                         "experts; leave them float (`keep_float` re:.*experts.*)", calm_engine_name(engine), own->name,
                         family);
    if (own->turns && !calm_engine_moves_rows(family, format, own->scheme->symmetric,
                                              own->scheme->family == CALM_FAMILY_FP8_BLOCK))
        return calm_fail(ctx, CALM_EARG, "`target` %s computes otherwise with %s of %s: its class moves the rows of q "
                         "and k of symmetric weights without blocks in compressed-tensors alone; take these, or leave "
                         "q, k and v float (`keep_float` re:.*q_proj)", calm_engine_name(engine), own->name, family);
    return CALM_OK;
}
