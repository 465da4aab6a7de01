/* Check: what an engine's kernels run, by the table of engines (ptq/plan/engines.h), so that a plan for an engine and
 * the written checkpoint are judged by the same rules.  Only for an engine that the user names. */
#include "ptq/check/check_state.h"
#include "ptq/plan/engine_family.h"
#include "ptq/quant/act_levels.h"

/* Returns the check's rule for a broken rule of the engine. */
static calm_check_rule rule_of(const calm_checking *c, calm_engine_rule broken, const calm_engine_linear *linear,
                         const calm_scheme *scheme)
{
    const bool zeros = broken == CALM_ENGINE_ZEROS;
    if (broken == CALM_ENGINE_COLUMNS || broken == CALM_ENGINE_ROWS)
        return CALM_CHECK_RULE_KERNEL_SHAPE;
    if ((scheme->act_bits && !scheme->family) || broken == CALM_ENGINE_ACTIVATIONS)
        return CALM_CHECK_RULE_NO_ACT_KERNEL;
    if (zeros && c->asked == CALM_CHECK_TRANSFORMERS)
        return linear->expert ? CALM_CHECK_RULE_EXPERTS_ONE : CALM_CHECK_RULE_ASYMMETRIC_CT;
    return broken == CALM_ENGINE_GROUP ? CALM_CHECK_RULE_KERNEL_GROUP : CALM_CHECK_RULE_TARGET_SCHEME;
}

static calm_engine_experts held_experts(const calm_checking *c)
{
    return calm_engine_holds_experts(c->model_known ? c->model.arch->name : "",
                                     calm_json_string(calm_json_get(calm_check_text_config(c), "model_type"), ""));
}

/* Returns true if the engine computes a module as an expert.  transformers has modules for some families' experts,
 * which it computes as linears, except for activation scales per token: it takes one scale for all tokens, also for
 * some shared experts. */
static bool is_expert(const calm_checking *c, const calm_check_module *module, const calm_scheme *scheme)
{
    const bool expert = calm_check_is_expert(module), by_token = scheme->act_bits &&
                        !calm_act_rule_is_static(scheme->act_rule);
    if (c->asked != CALM_CHECK_TRANSFORMERS || !c->model_known)
        return expert;
    if (strstr(module->name, ".shared_expert"))
        return by_token && calm_engine_flattens_shared(c->model.arch->name);
    return expert && (by_token || held_experts(c) != CALM_ENGINE_EXPERTS_MODULES);
}

static calm_status check_module(calm_checking *c, const calm_check_module *module)
{
    const calm_scheme scheme = calm_qformat_as_scheme(&module->scheme, CALM_BF16);
    const char *format = c->report->format;
    const bool fuses = c->asked >= CALM_CHECK_VLLM && c->asked <= CALM_CHECK_SGLANG;    /* vLLM's and SGLang */
    calm_engine_linear linear = {.name = module->name, .out = module->out, .in = module->in,
                                 .expert = is_expert(c, module, &scheme),
                                 .head = calm_text_ends_with(module->name, "lm_head")};
    char text[96], *why;
    if (fuses)
        CALM_TRY(calm_check_fused_rows(c, module, &linear.out, &linear.part));
    calm_engine_rule broken = calm_engine_verdict(c->engine, format, &linear, &scheme);
    if (broken != CALM_ENGINE_TAKES) {
        CALM_TRY(calm_engine_explain(c->ctx, c->engine, format, &linear, &scheme, &why));
        return calm_check_add(c, rule_of(c, broken, &linear, &scheme), module->name, "%s[%zu, %zu], %s: %s (on %s) %s",
                              linear.out == module->out ? "" : "fused ", linear.out, linear.in,
                              calm_check_scheme_text(&module->scheme, text), calm_engine_name(c->engine),
                              calm_engine_hardware(c->engine), why);
    }
    /* Tensor parallelism cuts parts of fused linears and heads along their rows. */
    if (linear.in % 2 != 0 || linear.head || calm_check_is_fused_part(module->name))
        return CALM_OK;
    linear.in /= 2;
    broken = calm_engine_verdict(c->engine, format, &linear, &scheme);
    if (broken == CALM_ENGINE_TAKES)
        return CALM_OK;
    CALM_TRY(calm_engine_explain(c->ctx, c->engine, format, &linear, &scheme, &why));
    return calm_check_add(c, CALM_CHECK_RULE_PARALLEL_SLICE, module->name,
                          "tensor parallelism of 2 gives each device %zu of %zu columns: %s (on %s) %s", linear.in,
                          module->in, calm_engine_name(c->engine), calm_engine_hardware(c->engine), why);
}

/* Checks experts that the engine keeps under one scheme across blocks; check_fused.c compares those of one block for
 * every engine. */
static calm_status check_ties(calm_checking *c)
{
    const calm_tie tie = calm_engine_tie(c->engine, c->report->format);
    const calm_check_module *first = NULL;
    char a[96], b[96];
    if (tie <= CALM_TIE_BLOCK)
        return CALM_OK;
    for (size_t i = 0; i < c->n_modules; i++) {
        const calm_check_module *at = &c->modules[i];
        if (!at->quantized || !calm_check_is_expert(at))
            continue;
        first = first ? first : at;
        if (!calm_check_same_scheme(&first->scheme, &at->scheme))
            return calm_check_add(c, CALM_CHECK_RULE_EXPERTS_ONE, at->name, "%s, but %s is %s",
                                  calm_check_scheme_text(&at->scheme, a), first->name,
                                  calm_check_scheme_text(&first->scheme, b));
    }
    return CALM_OK;
}

/* Reports the first quantized expert whose name the engine's class does not know. */
static calm_status check_expert_names(calm_checking *c)
{
    if (!c->model_known || !calm_engine_skips_experts(c->model.arch->name))
        return CALM_OK;
    for (size_t i = 0; i < c->n_modules; i++) {
        /* Float experts in one tensor are read. */
        const calm_check_module *at = &c->modules[i];
        const calm_tensor *weight = calm_check_part(c, at, "weight");
        if (calm_check_is_expert(at) && (at->quantized || (weight && !weight->whole)))
            return calm_check_add(c, CALM_CHECK_RULE_EXPERT_NAMES, at->name, "%s", c->report->format);
    }
    return CALM_OK;
}

/* Reports the first q or k whose rows the engine's class does not permute. */
static calm_status check_moved_rows(calm_checking *c)
{
    if (!c->model_known)
        return CALM_OK;
    for (size_t i = 0; i < c->n_modules; i++) {
        const calm_check_module *at = &c->modules[i];
        const calm_qformat_scheme *scheme = &at->scheme;
        char text[96];
        if (!at->quantized || calm_engine_moves_rows(c->model.arch->name, c->report->format, scheme->symmetric,
                                                     scheme->family == CALM_FAMILY_FP8_BLOCK))
            continue;
        if (calm_text_ends_with(at->name, ".q_proj") || calm_text_ends_with(at->name, ".k_proj"))
            return calm_check_add(c, CALM_CHECK_RULE_MOVED_ROWS, at->name, "%s, %s", c->report->format,
                                  calm_check_scheme_text(scheme, text));
    }
    return CALM_OK;
}

/* Reports the first tensor that transformers does not read. */
static calm_status check_unread_parts(calm_checking *c)
{
    for (size_t i = 0; c->model_known && i < c->n_modules; i++) {
        const calm_check_module *at = &c->modules[i];
        const char *const *part = at->stored ? calm_engine_unread_parts(c->model.arch->name, at->name) : NULL;
        for (; part && *part; part++)
            if (calm_check_part(c, at, *part))
                return calm_check_add(c, CALM_CHECK_RULE_UNREAD_PART, at->name, "%s", *part);
    }
    return CALM_OK;
}

/* Returns true if the first group, by which transformers reads experts that no group names, has FP8 weights. */
static bool is_fp8(const calm_checking *c)
{
    const calm_json *group;
    const char *name;
    void *first = NULL;
    if (!calm_json_next(calm_json_get(c->entry, "config_groups"), &first, &name, &group))
        return false;
    const calm_json *weights = calm_json_get(group, "weights");
    return strcmp(calm_json_string(calm_json_get(weights, "type"), ""), "float") == 0 &&
           calm_json_int(calm_json_get(weights, "num_bits"), 0) == 8;
}

/* Reports the first expert that transformers does not read. */
static calm_status check_unread_experts(calm_checking *c)
{
    static const char *const found[] = {"float, one by one, next to quantized linears",
                                        "one by one; its class reads one tensor of all experts",
                                        "float, in one tensor; its class reads them one by one"};
    if (c->asked != CALM_CHECK_TRANSFORMERS || !c->model_known || !c->entry ||
        strcmp(c->report->format, "compressed-tensors") != 0)
        return CALM_OK;
    const calm_engine_experts held = held_experts(c);
    const bool joins_floats = held == CALM_ENGINE_EXPERTS_JOINED && is_fp8(c);
    for (size_t i = 0; i < c->n_modules; i++) {
        const calm_check_module *at = &c->modules[i];
        const calm_tensor *weight = calm_check_part(c, at, "weight");
        if (!calm_check_is_expert(at) || !(at->quantized || weight))
            continue;
        const bool single = at->quantized || !weight->whole;
        const bool read = held == CALM_ENGINE_EXPERTS_JOINED    ? at->quantized || !single || joins_floats
                          : held == CALM_ENGINE_EXPERTS_MODULES ? single : !single;
        if (!read)
            return calm_check_add(c, CALM_CHECK_RULE_UNREAD_EXPERTS, at->name, "%s", found[held]);
    }
    return CALM_OK;
}

calm_status calm_check_kernels(calm_checking *c)
{
    if (calm_engine_is_any(c->engine))
        return CALM_OK;
    CALM_TRY(check_expert_names(c));
    CALM_TRY(check_moved_rows(c));
    CALM_TRY(check_unread_parts(c));
    CALM_TRY(check_unread_experts(c));
    for (size_t i = 0; i < c->n_modules; i++)
        if (c->modules[i].quantized && c->modules[i].out && c->modules[i].in)
            CALM_TRY(check_module(c, &c->modules[i]));
    return check_ties(c);
}
