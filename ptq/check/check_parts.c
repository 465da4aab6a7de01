/* Check: the tensors of quantized modules, compared with their schemes. */
#include <string.h>

#include "ptq/check/check_state.h"

/* Computes rows and columns of a module from its codes, if the architecture does not have them. */
static calm_status derive_shape(const calm_checking *c, calm_check_module *module)
{
    const calm_tensor *codes = NULL;
    if (module->out && module->in)
        return CALM_OK;
    for (const calm_qformat_suffix *at = c->format->suffixes; at->suffix && !codes; at++)
        codes = at->part == CALM_QFORMAT_CODES ? calm_check_part(c, module, at->suffix) : NULL;
    if (!codes || (codes->n_dims != 2 && codes->n_dims != 3))
        return CALM_OK;
    module->experts = codes->n_dims == 3 ? codes->shape[0] : 0;
    return calm_qformat_shape(c->ctx, c->format, c->set, module->name, &module->scheme, codes, &module->out,
                              &module->in);
}

static calm_status check_shape_value(calm_checking *c, const calm_check_module *module, const calm_tensor *tensor)
{
    int64_t said[2];
    if (tensor->dtype != CALM_I64 || tensor->n_elements != 2)
        return CALM_OK; /* reported already */
    memcpy(said, tensor->data, sizeof said);
    if (said[0] == (int64_t)module->out && said[1] == (int64_t)module->in)
        return CALM_OK;
    /* Symmetric weights are unpacked column by column (pack_quantized, 0.14 to 0.20), so only columns matter. */
    const bool rows = said[1] == (int64_t)module->in && module->scheme.symmetric;
    return calm_check_add(c, rows ? CALM_CHECK_RULE_SHAPE_ROWS : CALM_CHECK_RULE_SHAPE_VALUE, module->name,
                          "weight_shape is [%lld, %lld], expected [%zu, %zu]", (long long)said[0], (long long)said[1],
                          module->out, module->in);
}

static calm_status check_one(calm_checking *c, const calm_check_module *module, const calm_qformat_tensor *expected)
{
    char found_text[128], expected_text[128];
    const size_t stack[3] = {module->experts, expected->shape[0], expected->shape[1]};
    const size_t *shape = module->experts ? stack : expected->shape;
    const int n_dims = expected->n_dims + (module->experts != 0);
    const calm_tensor *tensor = calm_check_part(c, module, expected->suffix);
    const bool floats = expected->dtype == CALM_N_DTYPES;
    if (!tensor && expected->part == CALM_QFORMAT_SHAPE)
        return calm_check_add(c, CALM_CHECK_RULE_SHAPE_MISSING, module->name, "expected %s I64 [2]", expected->suffix);
    if (!tensor)
        return expected->optional
                   ? CALM_OK
                   : calm_check_add(c, CALM_CHECK_RULE_PART_MISSING, module->name, "expected %s %s %s",
                                    expected->suffix, floats ? "BF16 or F16" : calm_dtype_name(expected->dtype),
                                    calm_shape_text(n_dims, shape, expected_text));
    if (tensor->n_dims != n_dims || memcmp(tensor->shape, shape, (size_t)n_dims * sizeof *shape) != 0)
        CALM_TRY(calm_check_add(c, CALM_CHECK_RULE_PART_SHAPE, module->name, "%s is %s, expected %s", expected->suffix,
                                calm_shape_text(tensor->n_dims, tensor->shape, found_text),
                                calm_shape_text(n_dims, shape, expected_text)));
    const bool fits =
        floats ? calm_dtype_is_float(tensor->dtype) && tensor->dtype != CALM_F64 : tensor->dtype == expected->dtype;
    if (!fits)
        return calm_check_add(c, CALM_CHECK_RULE_PART_DTYPE, module->name, "%s is %s, expected %s", expected->suffix,
                              calm_dtype_name(tensor->dtype),
                              floats ? "BF16, F16 or F32" : calm_dtype_name(expected->dtype));
    return expected->part == CALM_QFORMAT_SHAPE ? check_shape_value(c, module, tensor) : CALM_OK;
}

static calm_status check_extra(calm_checking *c, const calm_check_module *module, const calm_qformat_tensor *list,
                               size_t n)
{
    for (size_t i = module->first; i < module->first + module->n; i++) {
        const calm_check_member *at = &c->members[i];
        calm_qformat_part part;
        bool known = !calm_qformat_suffix_part(NULL, at->suffix, &part) ||
                     (module->reordered && strcmp(at->suffix, "weight_g_idx") == 0);
        for (size_t k = 0; k < n && !known; k++)
            known = strcmp(list[k].suffix, at->suffix) == 0;
        if (known)
            continue;
        const bool leftover = strcmp(at->suffix, "weight") == 0 && calm_dtype_is_float(at->tensor->dtype);
        CALM_TRY(calm_check_add(c, leftover ? CALM_CHECK_RULE_LEFTOVER : CALM_CHECK_RULE_PART_EXTRA, module->name,
                                "%s %s", at->suffix, calm_dtype_name(at->tensor->dtype)));
    }
    return CALM_OK;
}

static calm_status check_module(calm_checking *c, calm_check_module *module)
{
    calm_qformat_tensor list[CALM_N_QFORMAT_PARTS];
    size_t n = 0;
    CALM_TRY(derive_shape(c, module));
    if (!module->out || !module->in)
        return calm_check_add(c, CALM_CHECK_RULE_PART_MISSING, module->name, "it has no codes");
    /* Readers pad weight-only FP8 blocks. */
    const bool pads = calm_scheme_rows(&(calm_scheme){.family = module->scheme.family}) > 1 && !module->scheme.act_bits;
    if (module->scheme.group && module->in % module->scheme.group != 0 && !pads)
        return calm_check_add(c, CALM_CHECK_RULE_GROUP_DIVIDES, module->name, "%zu columns, groups of %zu", module->in,
                              module->scheme.group);
    if (c->format->tensors(c->ctx, module->name, &module->scheme, module->out, module->in, list, &n) != CALM_OK)
        return calm_check_add_failure(c, CALM_CHECK_RULE_PART_SHAPE, module->name);
    for (size_t i = 0; i < n; i++)
        CALM_TRY(check_one(c, module, &list[i]));
    return check_extra(c, module, list, n);
}

calm_status calm_check_parts(calm_checking *c)
{
    for (size_t i = 0; i < c->n_modules; i++)
        if (c->modules[i].quantized)
            CALM_TRY(check_module(c, &c->modules[i]));
    return CALM_OK;
}
