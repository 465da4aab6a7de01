/* Module names in quantization entries. */
#include "ptq/export/module_names.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptq/arch/kind.h"
#include "ptq/base/scope.h"
#include "ptq/model/tensor_use.h"

/* ---- schemes ---- */

bool calm_plan_has_scheme(const void *scheme, const calm_plan_job *job)
{
    return job->quantized && calm_scheme_same(&job->scheme, scheme);
}

bool calm_plan_is_float(const void *unused, const calm_plan_job *job)
{
    (void)unused;
    return !job->quantized;
}

calm_status calm_plan_schemes(calm_ctx *ctx, const calm_export_input *input, calm_scheme **schemes, size_t *n,
                              size_t *base)
{
    const calm_plan *plan = input->plan;
    const calm_job_ref *refs = calm_model_layout(input->model)->jobs;
    size_t *weights;
    *n = *base = 0;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, *schemes, plan->n_jobs));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, weights, plan->n_jobs));
    for (size_t i = 0; i < plan->n_jobs; i++) {
        size_t s = 0;
        while (s < *n && !calm_plan_has_scheme(&(*schemes)[s], &plan->jobs[i]))
            s++;
        if (!plan->jobs[i].quantized)
            continue;
        if (s == *n)
            (*schemes)[(*n)++] = plan->jobs[i].scheme;
        weights[s] += refs[i].out * refs[i].in;
    }
    for (size_t s = 1; s < *n; s++)
        *base = weights[s] > weights[*base] ? s : *base;
    return CALM_OK;
}

/* ---- regexes ---- */

/* Places of the linears of a job kind: in the block, in its shared expert, in its experts. */
typedef enum place { IN_BLOCK, IN_SHARED, IN_EXPERTS, N_PLACES } place;

static place place_of(const calm_job_ref *job)
{
    return job->expert == CALM_NO_EXPERT ? IN_BLOCK : job->expert == CALM_SHARED_EXPERT ? IN_SHARED : IN_EXPERTS;
}

void calm_append_escaped(calm_text *text, const char *name, size_t n)
{
    for (size_t i = 0; i < n; i++)
        calm_text_printf(text, "%s%c", name[i] == '.' ? "\\" : "", name[i]);
}

/* "self_attn", or where engines have another name for its first words "(conv|short_conv)".  They rename what stands in
 * lists of modules, but not what patterns say. */
static void add_parent(calm_text *text, const calm_names *names, const char *parent, size_t n)
{
    const size_t first = names->parent ? strlen(names->parent) : 0;
    const bool renamed = first && first <= n && strncmp(names->parent, parent, first) == 0 &&
                         (first == n || parent[first] == '.');
    if (renamed) {
        calm_text_printf(text, "(");
        calm_append_escaped(text, names->parent, first);
        calm_text_printf(text, "|");
        calm_append_escaped(text, names->engine_parent, strlen(names->engine_parent));
        calm_text_printf(text, ")");
    }
    calm_append_escaped(text, parent + (renamed ? first : 0), n - (renamed ? first : 0));
}

/* Prints "self_attn\.(q_proj|k_proj|v_proj|qkv_proj)": the modules of a job within its block, with the names of the
 * checkpoint and of engines that fuse them. */
static void add_modules(calm_text *text, const calm_names *names, calm_job_kind kind, place where)
{
    const char *stem = NULL, *parent = where == IN_SHARED    ? names->moe.shared
                                       : where == IN_EXPERTS ? names->moe.experts
                                                             : NULL;
    size_t n = 0;
    CALM_SCOPED_TEXT(words);
    for (calm_role role = 0; role < CALM_N_ROLES; role++) {
        const char *module = where == IN_EXPERTS ? calm_expert_word(names, role) : names->role[role];
        if (!module || calm_role_job(role) != kind)
            continue;
        const char *dot = strrchr(module, '.');
        stem = module;
        calm_text_printf(&words, "%s%s", n++ ? "|" : "", dot ? dot + 1 : module);
    }
    const char *fused = calm_job_fused(names, kind);
    if (fused)
        calm_text_printf(&words, "|%s", fused);
    const char *dot = stem ? strrchr(stem, '.') : NULL;
    if (parent)
        add_parent(text, names, parent, strlen(parent));
    else if (dot)
        add_parent(text, names, stem, (size_t)(dot - stem));
    calm_text_printf(text, where == IN_EXPERTS ? "\\.\\d+\\." : parent || dot ? "\\." : "");
    calm_text_printf(text, n > 1 ? "(%s)" : "%s", words.data ? words.data : "");
}

/* The requested jobs, and the callback for their regexes. */
typedef struct wanted {
    const calm_export_input *input;
    calm_plan_match_fn *match;
    const void *match_user;
    calm_pattern_fn *each;
    void *user;
} wanted;

/* Does a block have a job of this kind at this place that matches?  All experts of a block have one scheme. */
static bool block_has(const wanted *w, size_t block, calm_job_kind kind, place where)
{
    const calm_layout *layout = calm_model_layout(w->input->model);
    for (size_t j = layout->block_begin[block]; j < layout->block_begin[block + 1]; j++)
        if (layout->jobs[j].kind == kind && place_of(&layout->jobs[j]) == where)
            return w->match(w->match_user, &w->input->plan->jobs[j]);
    return false;
}

/* What names of blocks begin with, as a regex.  In a wrapper the checkpoint, transformers' modules and vLLM's have
 * three prefixes, of which any may be the checkpoint's. */
static void append_prefix(calm_text *text, const calm_model *model)
{
    const char *prefix = calm_model_prefix(model);
    const calm_arch *arch = calm_model_config(model)->arch;
    /* Of a model without a head vLLM makes one that gives embeddings: words stand before the names, or a dot alone. */
    if (arch->encoder && !calm_model_is_wrapped(model))
        calm_text_printf(text, "(\\w*\\.)*");
    else if (calm_model_is_wrapped(model))
        calm_text_printf(text, "(model\\.language_model\\.|language_model\\.model\\.|model\\.)");
    else
        calm_append_escaped(text, prefix, strlen(prefix));
    calm_append_escaped(text, arch->names->blocks, strlen(arch->names->blocks));
}

/* "\.\d+\.mlp\.down_proj" or "\.(0|2)\.mlp\.down_proj" for the n blocks whose job matches. */
static void append_modules(const wanted *w, const calm_names *names, calm_job_kind kind, place where, size_t n,
                           calm_text *text)
{
    const size_t n_blocks = calm_model_config(w->input->model)->n_blocks;
    size_t listed = 0;
    calm_text_printf(text, "\\.%s", n == n_blocks ? "\\d+" : "");
    for (size_t block = 0; n < n_blocks && block < n_blocks; block++)
        if (block_has(w, block, kind, where))
            calm_text_printf(text, "%s%zu", listed++ ? "|" : "(", block);
    calm_text_printf(text, "%s\\.", n < n_blocks ? ")" : "");
    add_modules(text, names, kind, where);
}

/* "model\.layers\.(0|2)\.mlp\.down_proj$" for the blocks whose job matches; nothing when there are none.  Where readers
 * or vLLM have other modules than the checkpoint, each in turn: "(encoder\.layer\.\d+\.mlp\.fc2|...)$". */
static void add_target(const wanted *w, calm_job_kind kind, place where)
{
    const calm_config *config = calm_model_config(w->input->model);
    const calm_names *names = config->arch->names, *const others[] = {names->readers, names->engine};
    CALM_SCOPED_TEXT(text);
    size_t n = 0;
    for (size_t block = 0; block < config->n_blocks; block++)
        n += block_has(w, block, kind, where);
    if (!n)
        return;
    calm_text_printf(&text, names->readers ? "(" : "");
    append_prefix(&text, w->input->model);
    append_modules(w, names, kind, where, n, &text);
    for (size_t i = 0; i < 2; i++)
        if (others[i]) {
            calm_text_printf(&text, i ? "|(\\w*\\.)*" : "|(\\w+\\.)?");
            calm_append_escaped(&text, others[i]->blocks, strlen(others[i]->blocks));
            append_modules(w, others[i], kind, where, n, &text);
        }
    calm_text_printf(&text, names->readers ? ")$" : "$");
    w->each(w->user, text.data);
}

void calm_module_regexes(const calm_export_input *input, calm_plan_match_fn *match, const void *match_user,
                  calm_pattern_fn *each, void *user)
{
    const wanted w = {input, match, match_user, each, user};
    for (calm_job_kind kind = 0; kind < CALM_N_JOBS; kind++)
        for (place where = 0; where < N_PLACES; where++)
            add_target(&w, kind, where);
}

/* A calm_plan_match_fn: every job. */
static bool matches_all(const void *unused, const calm_plan_job *job)
{
    (void)unused;
    (void)job;
    return true;
}

void calm_module_regexes_of_job(const calm_export_input *input, calm_job_kind kind, calm_pattern_fn *each, void *user)
{
    const wanted w = {input, matches_all, NULL, each, user};
    for (place where = 0; where < N_PLACES; where++)
        add_target(&w, kind, where);
}

/* ---- float modules ---- */

/* Lists the modules of the linears that the plan quantizes, sorted. */
static calm_status list_quantized(calm_ctx *ctx, const calm_export_input *input, const char ***out, size_t *n)
{
    const calm_layout *layout = calm_model_layout(input->model);
    *n = 0;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, *out, layout->n_linears));
    for (size_t j = 0; j < layout->n_jobs; j++)
        for (size_t i = layout->jobs[j].first;
             input->plan->jobs[j].quantized && i < layout->jobs[j].first + layout->jobs[j].n; i++)
            (*out)[(*n)++] = layout->linears[i].module;
    qsort(*out, *n, sizeof **out, calm_words_compare);
    return CALM_OK;
}

/* Does the model have a head?  All decoders do; an encoder does if the checkpoint has tensors of a head (a bias, a
 * transform). */
static bool has_head(const calm_model *model)
{
    const calm_arch *arch = calm_model_config(model)->arch;
    const calm_safetensors *set = calm_model_tensors(model);
    const char *head = calm_model_layout(model)->head, *dot = head ? strrchr(head, '.') : NULL;
    /* DistilBERT's, "vocab_projector", is below nothing. */
    const size_t parent = dot ? (size_t)(dot - head) : head ? strlen(head) : 0;
    bool found = head && !arch->encoder;
    for (size_t i = 0; head && i < calm_safetensors_count(set) && !found; i++) {
        const char *name = calm_safetensors_at(set, i)->name;
        found = strncmp(name, head, parent) == 0 && name[parent] == '.';
    }
    return found;
}

/* Is the module a table by its name?  Linears that merge streams (streams.h) are not. */
static bool is_table(const char *name)
{
    return strstr(name, "embed") && !strstr(name, "unembed");
}

calm_status calm_float_modules(calm_ctx *ctx, const calm_export_input *input, bool embeddings, const char ***out,
                               size_t *n_out)
{
    const calm_safetensors *set = calm_model_tensors(input->model);
    const char **quantized, **found;
    size_t n, listed = 0;
    CALM_TRY(list_quantized(ctx, input, &quantized, &n));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, found, calm_safetensors_count(set) + 1));
    const char *head = calm_model_layout(input->model)->head;
    if (has_head(input->model))
        found[listed++] = head;
    for (size_t i = 0; i < calm_safetensors_count(set); i++) {
        const calm_tensor *tensor = calm_safetensors_at(set, i);
        const char *dot = strrchr(tensor->name, '.');
        char *module;
        if (tensor->n_dims != 2 || !dot || strcmp(dot, ".weight") != 0 ||
            (!embeddings && is_table(tensor->name)))
            continue;
        CALM_TRY(calm_strf(ctx, ctx->scratch, &module, "%.*s", (int)(dot - tensor->name), tensor->name));
        const char *key = module;
        if ((!head || strcmp(module, head) != 0) && !bsearch(&key, quantized, n, sizeof *quantized, calm_words_compare))
            found[listed++] = module;
    }
    *out = found;
    *n_out = listed;
    return CALM_OK;
}

calm_status calm_add_float_modules(calm_ctx *ctx, const calm_export_input *input, calm_json *array)
{
    const char **modules;
    size_t n;
    CALM_TRY(calm_float_modules(ctx, input, false, &modules, &n));
    const char *head = calm_outer_own_head(input->model, input->outer)
                           ? calm_model_layout(input->model)->head : "";
    for (size_t i = 0; i < n; i++)
        if (strcmp(modules[i], head) != 0)
            calm_json_add_string(array, modules[i]);
    return CALM_OK;
}

/* Is the first word of `name` [n] a root of foreign modules?  Not where a linear of the model begins so. */
static bool is_root(const calm_export_input *input, const char *name, size_t n)
{
    const calm_layout *layout = calm_model_layout(input->model);
    bool fits = n > 0 && strchr(name + n + 1, '.');    /* the module has a name below it */
    const size_t first = calm_model_is_wrapped(input->model) && strncmp(name, "model.", 6) == 0 ? 6 : 0;
    for (size_t i = first; i < n && fits; i++)
        fits = isalnum((unsigned char)name[i]) || name[i] == '_' || name[i] == '-';
    for (size_t i = 0; i < layout->n_linears && fits; i++)
        fits = strncmp(layout->linears[i].module, name, n + 1) != 0;
    return fits;
}

calm_status calm_foreign_roots(calm_ctx *ctx, const calm_export_input *input, calm_words *out)
{
    const calm_safetensors *set = calm_model_tensors(input->model);
    CALM_SCOPED_OUT(ctx, ctx->scratch);
    *out = (calm_words){0};
    for (size_t i = 0; i < calm_safetensors_count(set); i++) {
        const calm_tensor *tensor = calm_safetensors_at(set, i);
        /* In a wrapper all parts may be below "model.". */
        const bool below = calm_model_is_wrapped(input->model) && strncmp(tensor->name, "model.", 6) == 0;
        const char *name = tensor->name + (below ? 6 : 0);
        const size_t n = strcspn(name, ".");
        bool listed = tensor->n_dims < 2 || !name[n];
        char *root;
        for (size_t w = 0; w < out->n && !listed; w++)
            listed = strlen(out->of[w]) == n && strncmp(out->of[w], name, n) == 0;
        if (listed || calm_model_tensor_use(input->model, tensor->name) != CALM_TENSOR_FOREIGN ||
            !is_root(input, tensor->name, (size_t)(name - tensor->name) + n))
            continue;
        CALM_TRY(calm_strf(ctx, ctx->scratch, &root, "%.*s", (int)n, name));
        CALM_TRY(calm_words_add(ctx, out, root));
    }
    return CALM_OK;
}

/* ---- kinds of tensors ---- */

long calm_tensor_block(const calm_model *model, const char *tensor, const char **rest)
{
    const calm_config *config = calm_model_config(model);
    const long block = calm_arch_block_of(config->arch, calm_model_prefix(model), tensor, rest);
    return block < (long)config->n_blocks ? block : -1;
}

/* Is the tensor of this name within its block the weight or the bias of the norm before a sublayer?  Where a block has
 * one sublayer, the name is that of the norm before it. */
static bool is_folded_norm(const calm_config *config, const char *rest, calm_export_part *part)
{
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++) {
        const char *norm = config->arch->names->norm[s][CALM_NORM_IN];
        const size_t length = norm ? strlen(norm) : 0;
        if (!norm || strncmp(rest, norm, length) != 0 || !calm_kind_at(config, (size_t)part->block, s))
            continue;
        const bool bias = strcmp(rest + length, ".bias") == 0;
        part->sublayer = s;
        part->kind = bias ? CALM_EXPORT_NORM_BIAS : CALM_EXPORT_NORM;
        if (bias || strcmp(rest + length, ".weight") == 0)
            return true;
    }
    return false;
}

calm_export_part calm_export_part_of(const calm_model *model, const calm_tensor *source)
{
    const char *name = source->name, *rest, *dot = strrchr(name, '.');
    calm_export_part part = {.block = calm_tensor_block(model, name, &rest), .source = source};
    if (part.block < 0 || is_folded_norm(calm_model_config(model), rest, &part))
        return part;
    const calm_named_linear *found =
        dot ? calm_layout_find(calm_model_layout(model), name, (size_t)(dot - name)) : NULL;
    part.kind = !found                        ? CALM_EXPORT_COPY
                : strcmp(dot, ".weight") == 0 ? CALM_EXPORT_WEIGHT
                : strcmp(dot, ".bias") == 0   ? CALM_EXPORT_BIAS
                                              : CALM_EXPORT_COPY;
    if (found) {
        part.job = found->job;
        part.role = found->linear->role;
        part.module = found->linear->module;
        part.sublayer = calm_job_sublayer(found->job->kind);
    }
    return part;
}

const float *calm_export_part_floats(const calm_export_part *part, const calm_fold_set *set)
{
    const calm_qlinear *linear = &set->linear[part->role];
    const calm_named_vector *learned = calm_vectors_find(&set->vectors, part->source->name);
    const float *const floats[] = {[CALM_EXPORT_COPY] = NULL,
                                   [CALM_EXPORT_NORM] = set->norm,
                                   [CALM_EXPORT_NORM_BIAS] = set->norm_bias,
                                   [CALM_EXPORT_BIAS] = linear->bias,
                                   [CALM_EXPORT_WEIGHT] = linear->w};
    return learned && learned->n == part->source->n_elements ? learned->values : floats[part->kind];
}
