/* Computes the divisors of the angles of the rotary embedding for a GGUF file. */
#include "ptq/export/gguf_factors.h"

#include <math.h>
#include <string.h>

#include "ptq/arch/arch.h"
#include "ptq/gguf/gguf_names.h"

bool calm_gguf_has_rope_factors(const calm_model *model)
{
    const calm_config *config = calm_model_config(model);
    /* Gemma 4's loader needs the tensor. */
    return config->rope[CALM_ROPE_GLOBAL].kind == CALM_ROPE_LLAMA3 || strcmp(config->arch->name, "gemma4") == 0;
}

calm_status calm_gguf_rope_factors(calm_ctx *ctx, const calm_model *model, float **out)
{
    const calm_rope_config *rope = &calm_model_config(model)->rope[CALM_ROPE_GLOBAL];
    const size_t half = rope->rotary / 2;
    CALM_TRY(CALM_NEW(ctx, ctx->out, *out, half));
    /* Whole heads turn; of proportional ones the last pairs stand, as near as a factor can bring them to it. */
    for (size_t i = 0; i < half && rope->kind != CALM_ROPE_LLAMA3; i++)
        (*out)[i] = rope->kind != CALM_ROPE_PROPORTIONAL ? 1
                    : (double)i >= floor(rope->share * (double)half) ? CALM_GGUF_UNROTATED
                                                                     : (float)rope->factor;
    for (size_t i = 0; i < half && rope->kind == CALM_ROPE_LLAMA3; i++) {
        const double turns = rope->original / (2 * M_PI * pow(rope->theta, 2 * (double)i / (double)rope->rotary));
        const double smooth = (turns - rope->low_freq) / (rope->high_freq - rope->low_freq);
        const double kept = smooth < 0 ? 0 : smooth > 1 ? 1 : smooth; /* share of the frequency that is not divided */
        (*out)[i] = (float)(1 / ((1 - kept) / rope->factor + kept));
    }
    return CALM_OK;
}
