/* Check: the checks of each quantized format, and parts that several of them share. */
#include "ptq/check/check_state.h"

#define CALM_QFORMAT(name) extern const calm_check_format calm_check_format_##name;
#include "ptq/weights/qformats.def"
#undef CALM_QFORMAT

const calm_check_format *calm_check_format_of(const calm_qformat *format)
{
    static const calm_check_format *const all[] = {
#define CALM_QFORMAT(name) &calm_check_format_##name,
#include "ptq/weights/qformats.def"
#undef CALM_QFORMAT
    };
    size_t n, i = 0;
    const calm_qformat *const *formats = calm_qformats(&n);
    while (formats[i] != format)
        i++;
    return all[i];
}

calm_status calm_check_open(calm_checking *c, calm_check_rule rule, bool (*elsewhere)(const calm_checking *c))
{
    if (calm_qformat_open(c->ctx, c->config_path, c->config, &c->reader) == CALM_OK)
        return CALM_OK;
    c->unread = true;
    const bool other = c->ctx->status == CALM_EUNSUPPORTED && elsewhere(c);
    return calm_check_add_failure(c, other ? CALM_CHECK_RULE_METHOD_UNCHECKED : rule, "config.json");
}

calm_status calm_check_resolve(calm_checking *c, calm_check_rule rule)
{
    for (size_t i = 0; i < c->n_modules; i++) {
        calm_check_module *module = &c->modules[i];
        const bool layout = c->model_known ? module->in_layout : module->stored;
        bool quantized;
        calm_qformat_scheme scheme;
        if (!module->linear || (!layout && !module->stored))
            continue;
        if (calm_qformat_find(c->ctx, c->reader, c->set, module->name, &quantized, &scheme) != CALM_OK)
            return calm_check_add_failure(c, rule, module->name);
        if (!quantized && module->stored)
            CALM_TRY(calm_check_add(c, CALM_CHECK_RULE_PART_EXTRA, module->name,
                                    "it stays float by config.json, but has quantized tensors"));
        module->quantized = quantized;
        module->scheme = scheme;
    }
    c->resolved = true;
    return CALM_OK;
}
