/* Check: what one engine's kernels take; said only to those who name it. */
#include <string.h>

#include "ptq/check/check_state.h"

static calm_status check_scheme(calm_checking *c, const calm_check_module *module)
{
    const calm_stored_scheme *scheme = &module->scheme;
    const bool gptq = strcmp(c->format->name, "gptq") == 0, ct = strcmp(c->format->name, "compressed_tensors") == 0;
    const bool wide = scheme->bits == 4 || scheme->bits == 8;
    char text[96];
    const bool taken = c->target == CALM_CHECK_VLLM ? !gptq || (wide && scheme->symmetric) : !gptq && !ct ? true : wide;
    if (!taken)
        return calm_check_say(c, CALM_RULE_TARGET_SCHEME, module->name, "%s: %s", c->report->format,
                              calm_check_scheme_text(scheme, text));
    if (scheme->act_bits && (scheme->act_bits < 8 || scheme->bits < 8))
        return calm_check_say(c, CALM_RULE_NO_ACT_KERNEL, module->name, "%s", calm_check_scheme_text(scheme, text));
    return CALM_OK;
}

static calm_status check_shape(calm_checking *c, const calm_check_module *module)
{
    const size_t group = module->scheme.group;
    if (module->in % 128 != 0 || module->out % 64 != 0)
        CALM_TRY(calm_check_say(c, CALM_RULE_KERNEL_SHAPE, module->name,
                                "[%zu, %zu], expected rows %% 64 = 0 and columns %% 128 = 0", module->out, module->in));
    if (group && group != 32 && group != 64 && group != 128)
        CALM_TRY(calm_check_say(c, CALM_RULE_KERNEL_GROUP, module->name, "groups of %zu", group));
    if (group && module->in % 2 == 0 && module->in / 2 % group != 0)
        CALM_TRY(
            calm_check_say(c, CALM_RULE_PARALLEL_SLICE, module->name, "%zu columns, groups of %zu", module->in, group));
    return CALM_OK;
}

/* Experts of the whole model have one scheme in transformers. */
static calm_status check_experts(calm_checking *c)
{
    const calm_check_module *first = NULL;
    char a[96], b[96];
    for (size_t i = 0; i < c->n_modules; i++) {
        const calm_check_module *at = &c->modules[i];
        if (!at->quantized || !strstr(at->name, ".experts."))
            continue;
        first = first ? first : at;
        if (!at->scheme.symmetric)
            return calm_check_say(c, CALM_RULE_EXPERTS_ONE, at->name, "%s", calm_check_scheme_text(&at->scheme, a));
        if (!calm_check_same_scheme(&first->scheme, &at->scheme))
            return calm_check_say(c, CALM_RULE_EXPERTS_ONE, at->name, "%s, but %s is %s",
                                  calm_check_scheme_text(&at->scheme, a), first->name,
                                  calm_check_scheme_text(&first->scheme, b));
    }
    return CALM_OK;
}

calm_status calm_check_kernels(calm_checking *c)
{
    const bool engine = c->target == CALM_CHECK_VLLM || c->target == CALM_CHECK_SGLANG;
    const bool ct = c->format && strcmp(c->format->name, "compressed_tensors") == 0;
    for (size_t i = 0; i < c->n_modules; i++) {
        const calm_check_module *at = &c->modules[i];
        if (!at->quantized || !at->out || !at->in)
            continue;
        if (engine) {
            CALM_TRY(check_scheme(c, at));
            CALM_TRY(check_shape(c, at));
        }
        if (ct && !at->scheme.symmetric)
            CALM_TRY(calm_check_say(c, CALM_RULE_ASYMMETRIC_CT, at->name, "a zero point per group"));
    }
    return ct ? check_experts(c) : CALM_OK;
}
