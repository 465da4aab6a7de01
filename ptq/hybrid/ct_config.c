/* The quantization entry of a compressed-tensors config.json. */
#include "ptq/hybrid/ct_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptq/model/arch.h"

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
    const size_t n_jobs = plan->n_jobs;
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

/* Where the linears of a job kind stand: in the block, in its shared expert, in its experts. */
typedef enum place { IN_BLOCK, IN_SHARED, IN_EXPERTS, N_PLACES } place;

static place place_of(const calm_job_ref *job)
{
    return job->expert == CALM_NO_EXPERT ? IN_BLOCK : job->expert == CALM_SHARED_EXPERT ? IN_SHARED : IN_EXPERTS;
}

static void add_escaped(calm_text *text, const char *name, size_t n)
{
    for (size_t i = 0; i < n; i++)
        calm_text_printf(text, "%s%c", name[i] == '.' ? "\\" : "", name[i]);
}

/* "self_attn\.(q_proj|k_proj|v_proj|qkv_proj)": the modules of a job within its block, as the checkpoint and as fusing
 * engines spell them. */
static void add_modules(calm_text *text, const calm_names *names, calm_job_kind kind, place where)
{
    const char *stem = NULL, *parent = where == IN_SHARED ? names->moe.shared : where == IN_EXPERTS ? names->moe.experts : NULL;
    size_t n = 0;
    calm_text words;
    calm_text_init(&words);
    for (calm_role role = 0; role < CALM_N_ROLES; role++) {
        const char *module = names->role[role];
        if (!module || calm_role_job(role) != kind)
            continue;
        const char *dot = strrchr(module, '.');
        stem = module;
        calm_text_printf(&words, "%s%s", n++ ? "|" : "", dot ? dot + 1 : module);
    }
    if (n > 1 && kind == CALM_JOB_QKV && strcmp(stem, "self_attn.v_proj") == 0)
        calm_text_printf(&words, "|qkv_proj");
    if (n > 1 && kind == CALM_JOB_GATE_UP)
        calm_text_printf(&words, "|gate_up_proj");
    const char *dot = stem ? strrchr(stem, '.') : NULL;
    if (parent)
        add_escaped(text, parent, strlen(parent));
    else if (dot)
        add_escaped(text, stem, (size_t)(dot - stem));
    calm_text_printf(text, where == IN_EXPERTS ? "\\.\\d+\\." : parent || dot ? "\\." : "");
    calm_text_printf(text, n > 1 ? "(%s)" : "%s", words.data ? words.data : "");
    calm_text_clear(&words);
}

/* Has a block a job of this kind there, and is it of this scheme?  All experts of a block have one. */
static bool block_has(const calm_layout *layout, const calm_plan *plan, size_t block, calm_job_kind kind, place where,
                      const calm_scheme *scheme)
{
    for (size_t j = layout->block_begin[block]; j < layout->block_begin[block + 1]; j++)
        if (layout->jobs[j].kind == kind && place_of(&layout->jobs[j]) == where)
            return same_scheme(&plan->jobs[j], scheme);
    return false;
}

/* "re:model\.layers\.(0|2)\.mlp\.down_proj$" for the blocks whose job has this scheme; nothing when there are none. */
static void add_target(calm_json *targets, const calm_export_input *input, calm_job_kind kind, place where,
                       const calm_scheme *scheme)
{
    const calm_layout *layout = calm_model_layout(input->model);
    const calm_config *config = calm_model_config(input->model);
    const calm_names *names = config->arch->names;
    calm_text text;
    size_t n = 0, listed = 0;
    for (size_t block = 0; block < config->n_blocks; block++)
        n += block_has(layout, input->plan, block, kind, where, scheme);
    if (!n)
        return;
    calm_text_init(&text);
    calm_text_append(&text, "re:", 3);
    add_escaped(&text, calm_model_prefix(input->model), strlen(calm_model_prefix(input->model)));
    add_escaped(&text, names->blocks, strlen(names->blocks));
    calm_text_printf(&text, "\\.%s", n == config->n_blocks ? "\\d+" : "");
    for (size_t block = 0; n < config->n_blocks && block < config->n_blocks; block++)
        if (block_has(layout, input->plan, block, kind, where, scheme))
            calm_text_printf(&text, "%s%zu", listed++ ? "|" : "(", block);
    calm_text_printf(&text, "%s\\.", n < config->n_blocks ? ")" : "");
    add_modules(&text, names, kind, where);
    calm_text_printf(&text, "$");
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

static calm_json *group_entry(const calm_export_input *input, const calm_scheme *scheme)
{
    calm_json *group = calm_json_new_object(), *targets = calm_json_new_array();
    for (calm_job_kind kind = 0; kind < CALM_N_JOBS; kind++)
        for (place where = 0; where < N_PLACES; where++)
            add_target(targets, input, kind, where, scheme);
    calm_json_set(group, "targets", targets);
    calm_json_set(group, "weights", int_args(scheme->bits, scheme->symmetric, scheme->group ? "group" : "channel",
                                             scheme->group, false));
    calm_json_set(group, "input_activations",
                  scheme->act_bits ? int_args(scheme->act_bits, !scheme->act_asymmetric, "token", 0, true)
                                   : calm_json_new_null());
    calm_json_set(group, "output_activations", calm_json_new_null());
    calm_json_set_string(group, "format", calm_ct_is_int_quantized(scheme) ? "int-quantized" : "pack-quantized");
    return group;
}

static int compare_modules(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Modules of the linears that the plan quantizes, sorted. */
static calm_status list_quantized(calm_ctx *ctx, const calm_export_input *input, const char ***out, size_t *n)
{
    const calm_layout *layout = calm_model_layout(input->model);
    *n = 0;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, *out, layout->n_linears));
    for (size_t j = 0; j < layout->n_jobs; j++)
        for (size_t i = layout->jobs[j].first; input->plan->jobs[j].quantized && i < layout->jobs[j].first + layout->jobs[j].n; i++)
            (*out)[(*n)++] = layout->linears[i].module;
    qsort(*out, *n, sizeof **out, compare_modules);
    return CALM_OK;
}

/* Has the model a head?  All decoders have; an encoder if the checkpoint has anything beside it (a bias, a transform). */
static bool has_head(const calm_model *model)
{
    const calm_arch *arch = calm_model_config(model)->arch;
    const calm_safetensors *set = calm_model_tensors(model);
    const char *head = arch->names->head, *dot = head ? strrchr(head, '.') : NULL;
    bool found = head && !arch->encoder;
    for (size_t i = 0; dot && i < calm_safetensors_count(set) && !found; i++)
        found = strncmp(calm_safetensors_at(set, i)->name, head, (size_t)(dot - head) + 1) == 0;
    return found;
}

/* Every matrix of the checkpoint that is a linear and stays float, and the head (which the file lacks when it is tied). */
static calm_status add_ignored(calm_ctx *ctx, const calm_export_input *input, calm_json *ignore)
{
    const calm_safetensors *set = calm_model_tensors(input->model);
    const char **quantized;
    size_t n;
    CALM_TRY(list_quantized(ctx, input, &quantized, &n));
    const char *head = calm_model_config(input->model)->arch->names->head;
    if (has_head(input->model))
        calm_json_add_string(ignore, head);
    for (size_t i = 0; i < calm_safetensors_count(set); i++) {
        const calm_tensor *tensor = calm_safetensors_at(set, i);
        const char *dot = strrchr(tensor->name, '.');
        char *module;
        if (tensor->n_dims != 2 || !dot || strcmp(dot, ".weight") != 0 || strstr(tensor->name, "embed"))
            continue;
        CALM_TRY(calm_strf(ctx, ctx->scratch, &module, "%.*s", (int)(dot - tensor->name), tensor->name));
        const char *key = module;
        if ((!head || strcmp(module, head) != 0) && !bsearch(&key, quantized, n, sizeof *quantized, compare_modules))
            calm_json_add_string(ignore, module);
    }
    return CALM_OK;
}

static calm_status fill_entry(calm_ctx *ctx, const calm_export_input *input, const calm_scheme *schemes, size_t n,
                              calm_json *entry)
{
    const char *format = n && calm_ct_is_int_quantized(&schemes[0]) ? "int-quantized" : "pack-quantized";
    const char *version = "0.17.1";
    calm_json *groups = calm_json_new_object(), *ignore = calm_json_new_array();
    for (size_t s = 0; s < n; s++) {
        char name[32];
        snprintf(name, sizeof name, "group_%02zu", s);
        calm_json_set(groups, name, group_entry(input, &schemes[s]));
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
