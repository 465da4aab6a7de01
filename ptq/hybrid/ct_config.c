/* The quantization entry of a compressed-tensors config.json. */
#include "ptq/hybrid/ct_config.h"

#include <stdio.h>
#include <string.h>

#include "ptq/model/arch.h"

/* Module names of a job within its block, as the checkpoint and as fusing engines spell them. */
static const char *const job_pattern[CALM_N_JOBS] = {
    [CALM_JOB_QKV] = "self_attn\\.(q_proj|k_proj|v_proj|qkv_proj)",
    [CALM_JOB_O] = "self_attn\\.o_proj",
    [CALM_JOB_GATE_UP] = "mlp\\.(gate_proj|up_proj|gate_up_proj)",
    [CALM_JOB_DOWN] = "mlp\\.down_proj",
};

bool calm_ct_is_int_quantized(const calm_scheme *scheme)
{
    return scheme->act_bits != 0;
}

static bool same_scheme(const calm_plan_job *job, const calm_scheme *scheme)
{
    char a[CALM_SCHEME_NAME_MAX], b[CALM_SCHEME_NAME_MAX];
    if (!job->quantized)
        return false;
    calm_scheme_name(&job->scheme, a);
    calm_scheme_name(scheme, b);
    return strcmp(a, b) == 0;
}

/* The different schemes of a plan, in order of first use. */
static calm_status list_schemes(calm_ctx *ctx, const calm_plan *plan, calm_scheme **schemes, size_t *n)
{
    const size_t n_jobs = plan->n_blocks * CALM_N_JOBS;
    *n = 0;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, *schemes, n_jobs));
    for (size_t i = 0; i < n_jobs; i++) {
        bool known = !plan->jobs[i].quantized;
        for (size_t s = 0; s < *n && !known; s++)
            known = same_scheme(&plan->jobs[i], &(*schemes)[s]);
        if (!known)
            (*schemes)[(*n)++] = plan->jobs[i].scheme;
    }
    return CALM_OK;
}

/* "re:model\.layers\.(0|2)\.mlp\.down_proj$" for the blocks whose job has this scheme; nothing when there are none. */
static void add_target(calm_json *targets, const calm_plan *plan, const char *prefix, calm_job_kind job,
                       const calm_scheme *scheme)
{
    calm_text text;
    size_t n = 0;
    calm_text_init(&text);
    calm_text_append(&text, "re:", 3);
    for (const char *at = prefix; *at; at++)
        calm_text_printf(&text, "%s%c", *at == '.' ? "\\" : "", *at);
    calm_text_printf(&text, "layers\\.");
    for (size_t block = 0; block < plan->n_blocks; block++)
        n += same_scheme(calm_plan_at(plan, block, job), scheme);
    if (n == plan->n_blocks) {
        calm_text_printf(&text, "\\d+");
    } else {
        size_t listed = 0;
        for (size_t block = 0; block < plan->n_blocks; block++)
            if (same_scheme(calm_plan_at(plan, block, job), scheme))
                calm_text_printf(&text, "%s%zu", listed++ ? "|" : "(", block);
        calm_text_printf(&text, ")");
    }
    calm_text_printf(&text, "\\.%s$", job_pattern[job]);
    if (n)
        calm_json_add_string(targets, text.data);
    calm_text_clear(&text);
}

static calm_json *int_args(int bits, bool symmetric, const char *strategy, size_t group, bool dynamic)
{
    calm_json *args = calm_json_new_object();
    calm_json_set_int(args, "num_bits", bits);
    calm_json_set_string(args, "type", "int");
    calm_json_set_bool(args, "symmetric", symmetric);
    calm_json_set_string(args, "strategy", strategy);
    if (group)
        calm_json_set_int(args, "group_size", (int64_t)group);
    else
        calm_json_set(args, "group_size", calm_json_new_null());
    calm_json_set_bool(args, "dynamic", dynamic);
    return args;
}

static calm_json *group_entry(const calm_plan *plan, const char *prefix, const calm_scheme *scheme)
{
    calm_json *group = calm_json_new_object(), *targets = calm_json_new_array();
    for (calm_job_kind job = 0; job < CALM_N_JOBS; job++)
        add_target(targets, plan, prefix, job, scheme);
    calm_json_set(group, "targets", targets);
    calm_json_set(group, "weights", int_args(scheme->bits, scheme->symmetric, scheme->group ? "group" : "channel",
                                             scheme->group, false));
    calm_json_set(group, "input_activations",
                  scheme->act_bits ? int_args(scheme->act_bits, true, "token", 0, true) : calm_json_new_null());
    calm_json_set(group, "output_activations", calm_json_new_null());
    calm_json_set_string(group, "format", calm_ct_is_int_quantized(scheme) ? "int-quantized" : "pack-quantized");
    return group;
}

static calm_status add_ignored(calm_ctx *ctx, const calm_export_input *input, calm_json *ignore)
{
    calm_json_add_string(ignore, "lm_head");
    for (size_t block = 0; block < input->plan->n_blocks; block++)
        for (calm_role role = 0; role < CALM_N_ROLES; role++) {
            char *name;
            if (calm_plan_at(input->plan, block, calm_role_job(role))->quantized)
                continue;
            CALM_TRY(calm_model_linear_name(ctx, input->model, block, role, &name));
            calm_json_add_string(ignore, name);
        }
    return CALM_OK;
}

static calm_status fill_entry(calm_ctx *ctx, const calm_export_input *input, const calm_scheme *schemes, size_t n,
                              calm_json *entry)
{
    const char *prefix = calm_model_config(input->model)->arch->prefix;
    const char *format = n && calm_ct_is_int_quantized(&schemes[0]) ? "int-quantized" : "pack-quantized";
    const char *version = "0.17.1";
    calm_json *groups = calm_json_new_object(), *ignore = calm_json_new_array();
    for (size_t s = 0; s < n; s++) {
        char name[32];
        snprintf(name, sizeof name, "group_%02zu", s);
        calm_json_set(groups, name, group_entry(input->plan, prefix, &schemes[s]));
        if (calm_ct_is_int_quantized(&schemes[s]) != calm_ct_is_int_quantized(&schemes[0]))
            format = "mixed-precision";
        if (schemes[s].bits == 3)
            version = "0.18.0";    /* the first whose readers take the dense 3-bit stream */
    }
    calm_json_set_string(entry, "quant_method", "compressed-tensors");
    calm_json_set_string(entry, "quantization_status", "compressed");
    calm_json_set_string(entry, "format", format);
    calm_json_set(entry, "config_groups", groups);
    calm_status status = add_ignored(ctx, input, ignore);
    calm_json_set(entry, "ignore", ignore);
    calm_json_set(entry, "kv_cache_scheme", calm_json_new_null());
    calm_json_set(entry, "global_compression_ratio", calm_json_new_null());
    calm_json_set(entry, "sparsity_config", calm_json_new_object());
    calm_json_set(entry, "transform_config", calm_json_new_object());
    calm_json_set_string(entry, "version", version);
    return status;
}

calm_status calm_ct_config(calm_ctx *ctx, const calm_export_input *input, calm_json **out)
{
    calm_scheme *schemes;
    size_t n;
    CALM_TRY(list_schemes(ctx, input->plan, &schemes, &n));
    *out = calm_json_new_object();
    const calm_status status = fill_entry(ctx, input, schemes, n, *out);
    if (status != CALM_OK) {
        calm_json_free(*out);
        *out = NULL;
    }
    return status;
}
