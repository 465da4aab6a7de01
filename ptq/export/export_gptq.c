/* GPTQ: the format of GPTQModel, AutoGPTQ, vLLM and SGLang (docs/formats.md section 4).
 *
 *   m.weight -> m.qweight I32 [in b / 32, out], packed along in     m.scales F16 [G, out]
 *               m.qzeros I32 [G, out b / 32], packed along out      m.g_idx I32 [in] = i / g
 *
 * With act_order input order[k] has g_idx k / g, and desc_act is true: rows of qweight stay in the order of inputs.
 *
 * "gptq" stores (zero - 1) mod 2^b; "gptq_v2", which asymmetric weights need, the zero itself.  The scheme of most
 * weights is the file's; "dynamic" says what differs: other widths, and modules that stay float. */
#include <string.h>

#include "ptq/export/format_checks.h"
#include "ptq/export/module_names.h"
#include "ptq/export/safetensors_export.h"
#include "ptq/quant/pack.h"

#define NAME "gptq"

/* ---- a linear ---- */

static size_t list_tensors(const calm_scheme *scheme, size_t out, size_t in,
                           calm_export_tensor list[CALM_EXPORT_TENSORS])
{
    const size_t groups = calm_scheme_groups(scheme, in);
    list[0] = (calm_export_tensor){"qweight", CALM_I32, 2, {calm_pack_words(in, scheme->bits), out}};
    list[1] = (calm_export_tensor){"qzeros", CALM_I32, 2, {groups, calm_pack_words(out, scheme->bits)}};
    list[2] = (calm_export_tensor){"scales", CALM_F16, 2, {groups, out}};
    list[3] = (calm_export_tensor){"g_idx", CALM_I32, 1, {in, 0}};
    return 4;
}

static calm_status put_codes(calm_ctx *ctx, calm_shards_writer *writer, const calm_qlinear *linear)
{
    uint8_t *codes;
    CALM_TRY(calm_export_transpose(ctx, linear->codes, 0, linear->out, linear->in, linear->order, &codes));
    return calm_export_put_packed(ctx, writer, codes, linear->in, linear->out, linear->scheme.bits, true);
}

static calm_status put_zeros(calm_ctx *ctx, calm_shards_writer *writer, const calm_qlinear *linear, bool v2)
{
    const int bits = linear->scheme.bits;
    const uint8_t middle = (uint8_t)(1 << (bits - 1));
    uint8_t *zeros;
    CALM_TRY(calm_export_transpose(ctx, linear->zeros, middle, linear->out, linear->n_groups, NULL, &zeros));
    for (size_t i = 0; i < linear->n_groups * linear->out && !v2; i++)
        zeros[i] = (uint8_t)((zeros[i] - 1) & ((1 << bits) - 1));
    return calm_export_put_packed(ctx, writer, zeros, linear->n_groups, linear->out, bits, false);
}

static calm_status put_g_idx(calm_ctx *ctx, calm_shards_writer *writer, const calm_qlinear *linear)
{
    int32_t *index;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, index, linear->in));
    for (size_t k = 0; k < linear->in; k++)
        index[linear->order ? linear->order[k] : k] = (int32_t)(k / linear->group);
    return calm_shards_put(ctx, writer, index, linear->in * sizeof *index);
}

static calm_status put(calm_ctx *ctx, calm_shards_writer *writer, const calm_qlinear *linear, size_t which,
                       bool asymmetric)
{
    if (which == 0)
        return put_codes(ctx, writer, linear);
    if (which == 1)
        return put_zeros(ctx, writer, linear, asymmetric);
    return which == 2 ? calm_export_put_scales(ctx, writer, linear) : put_g_idx(ctx, writer, linear);
}

/* ---- the configuration ---- */

static int64_t group_of(const calm_scheme *scheme)
{
    return scheme->group ? (int64_t)scheme->group : -1;
}

/* Members of "dynamic" being added: what modules of one scheme have, NULL for those that stay float. */
typedef struct rules {
    calm_json *dynamic;
    const calm_scheme *scheme;
    bool ordered;    /* what modules have that no rule names */
} rules;

/* A calm_pattern_fn. */
static void add_rule(void *user, const char *regex)
{
    const rules *to = user;
    calm_json *values = calm_json_new_object();
    CALM_SCOPED_TEXT(key);
    calm_text_printf(&key, "%s:%s", to->scheme ? "+" : "-", regex);
    if (to->scheme)
        CALM_EXTEND(values, CALM_KV("bits", (long)to->scheme->bits), CALM_KV("group_size", group_of(to->scheme)),
                    CALM_KV("sym", to->scheme->symmetric));
    if (to->scheme && to->scheme->act_order != to->ordered)
        calm_json_set(values, "desc_act", calm_json_of_bool(to->scheme->act_order));
    calm_json_set(to->dynamic, key.data ? key.data : "", values);
}

/* Routers and what else is a matrix next to the linears that calm knows; the head has its own member. */
static calm_status add_others(calm_ctx *ctx, const calm_export_input *input, rules *to)
{
    const bool quantized = calm_outer_own_head(input->model, input->outer) != NULL;
    const char **modules, *own = quantized ? calm_model_layout(input->model)->head : "lm_head";
    size_t n;
    CALM_TRY(calm_float_modules(ctx, input, false, &modules, &n));
    for (size_t i = 0; i < n; i++) {
        CALM_SCOPED_TEXT(regex);
        if (strcmp(modules[i], "lm_head") == 0 || strcmp(modules[i], own) == 0
            || calm_layout_find(calm_model_layout(input->model), modules[i], strlen(modules[i])))
            continue;
        calm_append_escaped(&regex, modules[i], strlen(modules[i]));
        calm_text_printf(&regex, "$");
        add_rule(to, regex.data ? regex.data : "");
    }
    calm_words roots;
    CALM_TRY(calm_foreign_roots(ctx, input, &roots));
    for (size_t i = 0; i < roots.n; i++) {
        CALM_SCOPED_TEXT(regex);
        calm_text_printf(&regex, "^%s%s\\..*", calm_model_is_wrapped(input->model) ? "(model\\.)?" : "", roots.of[i]);
        add_rule(to, regex.data ? regex.data : "");
    }
    return CALM_OK;
}

/* The head, where it has other values than most linears. */
static void add_head(const calm_export_input *input, const calm_scheme *base, rules *to)
{
    const calm_scheme *head = calm_outer_own_head(input->model, input->outer);
    const char *name = calm_model_layout(input->model)->head;
    CALM_SCOPED_TEXT(regex);
    if (!head || (head->bits == base->bits && head->group == base->group && head->symmetric == base->symmetric &&
                  !base->act_order))
        return;
    if (calm_model_is_wrapped(input->model)) {
        calm_text_printf(&regex, "%s", CALM_WRAPPED_HEAD);
    } else {
        calm_append_escaped(&regex, name, strlen(name));
        calm_text_printf(&regex, "$");
    }
    to->scheme = head;
    add_rule(to, regex.data ? regex.data : "");
}

static calm_status fill_entry(calm_ctx *ctx, const calm_export_input *input, calm_json *entry)
{
    calm_scheme *schemes;
    size_t n, base;
    CALM_TRY(calm_plan_schemes(ctx, input, &schemes, &n, &base));
    calm_json *dynamic = calm_json_new_object(), *quantizer = calm_json_new_array();
    rules to = {dynamic, NULL, schemes[base].act_order};
    calm_module_regexes(input, calm_plan_is_float, NULL, add_rule, &to);
    const calm_status status = add_others(ctx, input, &to);
    for (size_t s = 0; s < n; s++) {
        to.scheme = &schemes[s];
        if (s != base)
            calm_module_regexes(input, calm_plan_has_scheme, to.scheme, add_rule, &to);
    }
    add_head(input, &schemes[base], &to);
    CALM_EXTEND(entry, CALM_KV("quant_method", "gptq"), CALM_KV("bits", (long)schemes[base].bits),
                CALM_KV("group_size", group_of(&schemes[base])), CALM_KV("sym", schemes[base].symmetric),
                CALM_KV("desc_act", schemes[base].act_order),
                CALM_KV("lm_head", (bool)(calm_outer_own_head(input->model, input->outer) != NULL)),
                CALM_KV("checkpoint_format", calm_export_is_asymmetric(input) ? "gptq_v2" : "gptq"),
                CALM_KV("pack_dtype", "int32"));
    if (calm_json_size(dynamic))
        calm_json_set(entry, "dynamic", dynamic);
    else
        calm_json_free(dynamic);
    calm_json_add_string(quantizer, "calm:" CALM_VERSION);
    calm_json_set(entry, "meta", CALM_OBJECT(CALM_KV("quantizer", quantizer)));
    return status;
}

/* ---- the exporter ---- */

/* A head's rows stand side by side in words, as those of all linears. */
static calm_status check_head(calm_ctx *ctx, const calm_export_input *input)
{
    const calm_scheme *head = calm_outer_own_head(input->model, input->outer);
    const size_t vocab = calm_model_config(input->model)->vocab;
    return !head || vocab * (size_t)head->bits % 32 == 0
               ? CALM_OK : calm_fail(ctx, CALM_EUNSUPPORTED, NAME ": %zu rows of the head at %d bits do not fill words "
                                     "of 32 bits", vocab, head->bits);
}

static calm_status check_outer(calm_ctx *ctx, const calm_scheme *scheme, const char *module, size_t in)
{
    const char *name = CALM_SCHEME_NAME(scheme);
    if (scheme->group && in % scheme->group)
        return calm_fail(ctx, CALM_EUNSUPPORTED, NAME ": %s is %s: its groups do not divide %zu columns", module, name,
                         in);
    return in * (size_t)scheme->bits % 32 == 0
               ? CALM_OK : calm_fail(ctx, CALM_EUNSUPPORTED, NAME ": %s is %s: %zu columns do not fill words of 32 "
                                     "bits", module, name, in);
}

static calm_status check(calm_ctx *ctx, const calm_export_input *input)
{
    bool unread = false, mixed = false;
    const calm_plan *plan = input->plan;
    CALM_TRY(calm_export_check_quantized(ctx, NAME, input));
    CALM_TRY(calm_check_groups(ctx, NAME, input));
    CALM_TRY(calm_check_experts(ctx, NAME, input));
    CALM_TRY(calm_check_words(ctx, NAME, input, true, true));
    CALM_TRY(check_head(ctx, input));
    for (size_t i = 0; i < plan->n_jobs; i++) {
        const calm_scheme *scheme = &plan->jobs[i].scheme;
        unread |= plan->jobs[i].quantized && (!scheme->symmetric || scheme->bits < 4);
        mixed |= plan->jobs[i].quantized != plan->jobs[0].quantized ||
                 (plan->jobs[i].quantized && !calm_plan_has_scheme(&plan->jobs[0].scheme, &plan->jobs[i]));
    }
    if (unread)
        calm_log(ctx, CALM_LOG_WARNING, NAME ": vLLM reads symmetric weights of 4 and 8 bits alone");
    if (mixed)
        calm_log(ctx, CALM_LOG_WARNING,
                 NAME ": several schemes need \"dynamic\", which GPTQModel, vLLM and SGLang read and "
                      "transformers does not");
    return CALM_OK;
}

const calm_exporter calm_export_gptq = {
    .name = NAME,
    .summary = "GPTQ v1 (v2 where asymmetric): GPTQModel, vLLM, SGLang, transformers",
    .serve = "vllm serve",
    .tie = CALM_TIE_BLOCK,
    .head_alone = true,
    .orders = true,
    .check_outer = check_outer,
    .refuses = calm_export_refuses_activations,
    .check = check,
    .more_bits = true,    /* zero points of symmetric schemes too */
    .form = &(const calm_export_form){.tensors = list_tensors,
                                      .stores_f16 = calm_export_always_f16,
                                      .put = put,
                                      .entry = fill_entry,
                                      .keys = {"quantization_config"},
                                      .entry_file = "quantize_config.json"},
};
