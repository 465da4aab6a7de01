/* Model: opens a checkpoint directory, and loads its parts as float32. */
#include "ptq/model/model_impl.h"

#include <stdlib.h>
#include <string.h>

#include "ptq/base/message.h"
#include "ptq/io/folder.h"
#include "ptq/arch/arch.h"
#include "ptq/layers/distance.h"
#include "ptq/weights/fused_experts.h"
#include "ptq/gguf/gguf_codes.h"
#include "ptq/gguf/gguf_model.h"
#include "ptq/arch/kind.h"
#include "ptq/model/model_unread.h"
#include "ptq/model/pooling.h"
#include "ptq/weights/row_linear.h"
#include "ptq/model/transforms.h"
#include "ptq/arch/wrapper.h"
#include "ptq/weights/widen.h"
#include "ptq/tensor/dtype.h"

/* Bounds what a wrong file makes us read; an entry for each module makes some files large. */
#define CONFIG_MAX ((size_t)16 * 1024 * 1024)

/* ---- names ---- */

calm_status calm_model_block_name(calm_ctx *ctx, const calm_model *model, size_t index, char **out)
{
    return calm_strf(ctx, ctx->out, out, "%s%s.%zu", model->prefix, model->config.arch->names->blocks, index);
}

/* ---- opening ---- */

/* Finds PREFIX MODULE.weight, a matrix of floats. */
static calm_status need_matrix(calm_ctx *ctx, const calm_model *model, const char *prefix, const char *module,
                               size_t rows, size_t cols, const calm_tensor **out)
{
    char *name;
    CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%s%s.weight", prefix, module));
    return calm_safetensors_need_floats(ctx, model->tensors, name, 2, (const size_t[2]){rows, cols}, out);
}

/* Finds out whether embedding and head are quantized. */
static calm_status find_tables(calm_ctx *ctx, calm_model *model)
{
    /* The head's module has its own prefix. */
    const calm_names *names = model->config.arch->names;
    for (int head = 0; model->stored && head < 2; head++) {
        const char *module = head ? model->layout.head : names->embed;
        char *name;
        /* GPTQ's files do not list the head among float modules, and a tied head has no tensors. */
        if (!module || (head && model->config.tied))
            continue;
        CALM_TRY(calm_strf(ctx, &model->arena, &name, "%s%s", head ? "" : model->prefix, module));
        CALM_TRY(calm_quantized_table_find(ctx, &model->arena, model->stored, model->tensors, name,
                                           model->config.vocab, model->config.hidden, &model->tables[head]));
    }
    return CALM_OK;
}

calm_status calm_model_table(calm_ctx *ctx, const calm_model *model, bool head, const calm_tensor **out)
{
    const calm_config *config = &model->config;
    const calm_names *names = config->arch->names;
    *out = &model->tables[head].floats;
    /* A quantized table, or one of a view, replaces the checkpoint's float tensor. */
    if ((*out)->name)
        return CALM_OK;
    return need_matrix(ctx, model, head ? "" : model->prefix, head ? model->layout.head : names->embed, config->vocab,
                       config->hidden, out);
}

/* Reads a float matrix into w, or makes `weight` (may be NULL) refer to it as it is stored. */
static calm_status read_matrix(calm_ctx *ctx, const calm_model *model, const calm_tensor *tensor, float *w,
                               calm_weight *weight)
{
    /* With ctx->decode the weight may point into the mapped file, and w stays unused. */
    if (weight && calm_row_linear_take(ctx, tensor, weight))
        return CALM_OK;
    /* With ctx->decode the codes of a GGUF file's blocks may be packed into the memory of w. */
    if (weight && model->in_blocks)
        CALM_TRY(calm_gguf_codes_take(ctx, model->tensors, tensor, w, weight));
    return weight && weight->ints ? CALM_OK : calm_widen(ctx, model->tensors, tensor, w);
}

calm_status calm_model_load_table(calm_ctx *ctx, const calm_model *model, bool head, calm_weight *out)
{
    const calm_tensor *tensor;
    float *w;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(calm_model_table(ctx, model, head, &tensor));
    *out = (calm_weight){.name = tensor->name, .out = tensor->shape[0], .in = tensor->shape[1]};
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, w, tensor->n_elements));
    /* The tables of a view (calm_model_view) have other sources. */
    if (tensor->source == &model->tables[head].source)
        return calm_quantized_table_load(ctx, &model->tables[head], w, out);
    CALM_TRY(read_matrix(ctx, model, tensor, w, out));
    /* w NULL means that there is no linear, so w is set even where its memory holds codes. */
    out->w = out->w ? out->w : w;
    return CALM_OK;
}

/* Finds the scheme of a linear and checks its tensors; with `w` also reads it; with `weight` sets how its input is
 * quantized. */
static calm_status read_linear(calm_ctx *ctx, const calm_model *model, const char *module, size_t out, size_t in,
                               float *w, calm_weight *weight)
{
    bool quantized = false;
    calm_qformat_scheme scheme;
    const calm_tensor *tensor;
    if (model->stored)
        CALM_TRY(calm_qformat_find(ctx, model->stored, model->tensors, module, &quantized, &scheme));
    /* Quantization of the input belongs to the stored scheme, not to the architecture. */
    if (weight) {
        weight->act_bits = quantized ? scheme.act_bits : 0;
        weight->act_asymmetric = quantized && scheme.act_asymmetric;
        weight->act_rule = quantized && calm_qformat_says_rule(&scheme) ? scheme.act_rule : model->act_rule;
        weight->act_global = 0;
        /* A scale next to the weight, which only quantized inputs have. */
        if (quantized)
            CALM_TRY(calm_qformat_act_global(ctx, model->stored, model->tensors, module, &scheme,
                                             &weight->act_global));
    }
    /* Checking reads no element: opening a checkpoint only touches headers and names. */
    if (quantized)
        return w ? calm_qformat_load(ctx, model->stored, model->tensors, module, &scheme, out, in, w, weight)
                 : calm_qformat_check(ctx, model->stored, model->tensors, module, &scheme, out, in);
    CALM_TRY(need_matrix(ctx, model, "", module, out, in, &tensor));
    return w ? read_matrix(ctx, model, tensor, w, weight) : CALM_OK;
}

/* Adds the keys of config.json that define a linear's shape to its failure. */
static calm_status name_keys(calm_ctx *ctx, const calm_model *model, size_t linear, calm_status status)
{
    const calm_layout *layout = &model->layout;
    size_t job = 0;
    /* Linears are numbered job by job. */
    while (layout->jobs[job].first + layout->jobs[job].n <= linear)
        job++;
    const calm_kind *kind = calm_kind_at(&model->config, layout->jobs[job].block,
                                         calm_job_sublayer(layout->jobs[job].kind));
    /* Only CALM_EFORMAT may be a wrong shape; a missing tensor has another status. */
    if (status != CALM_EFORMAT || !kind->keys)
        return status;
    return calm_fail_prefix(ctx, "%s: %s", model->dir, kind->keys(layout->linears[linear].role));
}

/* Checks presence, shape and dtype of every linear and its bias; scratch memory is rewound for each, since there may be
 * 10^5. */
static calm_status check_linears(calm_ctx *ctx, const calm_model *model)
{
    for (size_t i = 0; i < model->layout.n_linears; i++) {
        const calm_linear_ref *linear = &model->layout.linears[i];
        CALM_SCOPED_SCRATCH(ctx);
        const calm_status status = read_linear(ctx, model, linear->module, linear->out, linear->in, NULL, NULL);
        if (status != CALM_OK)
            return name_keys(ctx, model, i, status);
        if (linear->bias)
            CALM_TRY(calm_model_read_part(ctx, model, linear->module, "bias", linear->out, NULL));
    }
    return CALM_OK;
}

/* Checks the embeddings of position and type and their norm. */
static calm_status check_ends(calm_ctx *ctx, const calm_model *model)
{
    const calm_config *config = &model->config;
    const calm_ends *ends = config->arch->ends;
    const calm_tensor *tensor;
    char *name;
    if (ends->positions)
        CALM_TRY(need_matrix(ctx, model, model->prefix, ends->positions, config->max_positions, config->hidden,
                             &tensor));
    if (ends->types && config->n_types)
        CALM_TRY(need_matrix(ctx, model, model->prefix, ends->types, config->n_types, config->hidden, &tensor));
    CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%s%s", model->prefix, ends->norm));
    return calm_model_load_norm(ctx, model, name, config->hidden, NULL);
}

/* Checks every tensor that the forward pass will read, so that a run of hours does not fail at the last block. */
static calm_status check_tensors(calm_ctx *ctx, calm_model *model)
{
    const calm_config *config = &model->config;
    const calm_tensor *tensor;
    CALM_TRY(calm_model_table(ctx, model, false, &tensor));
    /* Without a dtype in config.json exporters write floats in the embedding's dtype. */
    if (!config->dtype_known)
        model->config.dtype = tensor->dtype;
    CALM_TRY(check_linears(ctx, model));
    /* Readers whose destination is NULL check names, shapes and dtypes, and read no element. */
    for (size_t i = 0; i < config->n_blocks; i++) {
        for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++)
            CALM_TRY(calm_model_read_norms(ctx, model, i, s, NULL));
        if (config->moe.sparse[i])
            CALM_TRY(calm_model_read_router(ctx, model, i, NULL));
        CALM_TRY(calm_model_read_tail(ctx, model, i, NULL));
        for (calm_sublayer s = 0; config->streams.n && s < CALM_N_SUBLAYERS; s++)
            CALM_TRY(calm_model_read_streams(ctx, model, i, s, NULL));
    }
    if (config->arch->names->final_norm) {
        char *name;
        CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%s%s", model->prefix, config->arch->names->final_norm));
        CALM_TRY(calm_model_load_norm(ctx, model, name, config->hidden, NULL));
    }
    /* One table serves all blocks, so it is checked once. */
    if (config->arch->names->distance)
        CALM_TRY(calm_distance_check(ctx, config, calm_model_tensors(model), model->prefix));
    /* An encoder may lack its head: calm_model_load_head() finds out which parts the file has. */
    if (config->arch->ends)
        return check_ends(ctx, model);
    if (config->head_bias) {
        char *name;
        CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%s.bias", model->layout.head));
        CALM_TRY(calm_model_load_vector(ctx, model, name, config->vocab, NULL));
    }
    return config->tied || !model->layout.head ? CALM_OK : calm_model_table(ctx, model, true, &tensor);
}

/* Finds the first of the family's prefixes with which the embedding exists, or else the usual one. */
static calm_status find_prefix(calm_ctx *ctx, calm_model *model)
{
    const calm_arch *arch = model->config.arch;
    const char *at;
    size_t n;
    for (size_t i = 0; (at = calm_arch_prefix(arch, i, &n)); i++) {
        char *prefix, *name;
        CALM_TRY(calm_strf(ctx, &model->arena, &prefix, "%.*s", (int)n, at));
        CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%s%s.weight", prefix, arch->names->embed));
        if (!model->prefix || calm_safetensors_find(model->tensors, name))
            /* Set even without a hit, so that messages about missing tensors have the usual name. */
            model->prefix = prefix;
        if (calm_safetensors_find(model->tensors, name))
            return CALM_OK;
    }
    return CALM_OK;
}

/* Are elements first .. first + n - 1 of two float tensors the same numbers? */
static calm_status same_numbers(calm_ctx *ctx, const calm_tensor *a, const calm_tensor *b, size_t first, size_t n,
                                bool *same)
{
    CALM_SCOPED_SCRATCH(ctx);
    float *values;
    /* Bytes are compared where both store the same dtype; a tensor with a source is decoded first. */
    if (a->dtype == b->dtype && !a->source && !b->source) {
        const size_t size = calm_dtype_bytes(a->dtype);
        *same = memcmp(a->data + first * size, b->data + first * size, n * size) == 0;
        return CALM_OK;
    }
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, values, 2 * n));
    CALM_TRY(calm_tensor_part_to_f32(ctx, a, first, n, values));
    CALM_TRY(calm_tensor_part_to_f32(ctx, b, first, n, values + n));
    *same = memcmp(values, values + n, n * sizeof *values) == 0;
    return CALM_OK;
}

/* Checks a head that config.json ties to the embedding although the file has both: if they differ the head is untied;
 * the same numbers in another dtype are one table. */
static calm_status check_tie(calm_ctx *ctx, calm_model *model)
{
    /* In pieces that are released at once, since the two tables of a large model are some GB. */
    const size_t piece = (size_t)4 * 1024 * 1024;
    const calm_names *names = model->config.arch->names;
    char *name;
    /* A class without a head has nothing to compare. */
    if (!model->layout.head)
        return CALM_OK;
    CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%s.weight", model->layout.head));
    const calm_tensor *head = calm_safetensors_find(model->tensors, name);
    CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%s%s.weight", model->prefix, names->embed));
    const calm_tensor *embed = calm_safetensors_find(model->tensors, name);
    if (!model->config.tied || !head || !embed)
        return CALM_OK;
    /* With another shape, or codes instead of floats, the head is not the embedding. */
    model->config.tied = head->n_elements == embed->n_elements && head->shape[0] == embed->shape[0]
                         && calm_dtype_is_float(head->dtype) && calm_dtype_is_float(embed->dtype);
    for (size_t at = 0; at < head->n_elements && model->config.tied; at += piece) {
        const size_t n = calm_size_min(piece, head->n_elements - at);
        CALM_TRY(same_numbers(ctx, head, embed, at, n, &model->config.tied));
        calm_safetensors_release_part(model->tensors, head, at * calm_dtype_bytes(head->dtype),
                                      n * calm_dtype_bytes(head->dtype));
        calm_safetensors_release_part(model->tensors, embed, at * calm_dtype_bytes(embed->dtype),
                                      n * calm_dtype_bytes(embed->dtype));
    }
    return CALM_OK;
}

calm_status calm_model_use_hadamard(calm_ctx *ctx, calm_model *model, bool every)
{
    return calm_transforms_use_hadamard(ctx, model->dir, every, &model->config, &model->layout);
}

/* Replaces weights that were published as small floats by float tensors, and removes the format from config.json. */
static calm_status widen_published(calm_ctx *ctx, calm_model *model)
{
    /* The values, codes times scales, are rounded to this dtype. */
    const calm_dtype dtype = model->config.dtype_known ? model->config.dtype : CALM_BF16;
    size_t n = 0;
    CALM_TRY(calm_published_widen(ctx, &model->published, dtype, model->tensors, &n));
    if (!n)
        calm_log(ctx, CALM_LOG_WARNING, "%s: config.json says %s, but no weight has that format", model->dir,
                 model->published.text);
    /* Exporters copy config.json, whose entry would announce codes that are floats by now. */
    calm_published_drop_entry(model->json);
    if (model->text)
        calm_published_drop_entry(model->text);
    return CALM_OK;
}

/* Opens a directory: first config.json, which defines the expected tensors, then the shards. */
static calm_status open_directory(calm_ctx *ctx, calm_model *model, const char *dir, const calm_model_how *how)
{
    char *path;
    CALM_TRY(calm_path_join(ctx, &model->arena, &path, dir, "config.json"));
    /* First, since its message for a folder with only an adapter names the adapter's base. */
    CALM_TRY(calm_adapter_is_no_model(ctx, dir));
    CALM_TRY(calm_folder_require_model(ctx, dir));
    CALM_TRY(calm_json_read(ctx, path, CONFIG_MAX, &model->json));
    CALM_TRY(calm_config_text(ctx, path, model->json, &model->text));
    CALM_TRY(calm_config_read_accepting(ctx, path, model->json, &how->accept_keys, &model->config));
    /* Only encoders pool their rows; modules.json of other models is not read. */
    if (model->config.arch->encoder)
        CALM_TRY(calm_pooling_read(ctx, dir, &model->config, &model->config.pooling));
    CALM_TRY(calm_published_read(ctx, path, model->json, how->floats, &model->published));
    /* Published small floats become float tensors, so no reader of codes is opened for them. */
    if (!model->published.kind)
        CALM_TRY(calm_qformat_open(ctx, path, model->json, &model->stored));
    CALM_TRY(calm_safetensors_open(ctx, dir, &model->tensors));
    return model->published.kind ? widen_published(ctx, model) : CALM_OK;
}

/* Sets an encoder's pooling from a GGUF file's number, and the dense layers after it. */
static calm_status set_pooling(calm_ctx *ctx, calm_config *config, const calm_gguf_opened *file)
{
    /* llama.cpp counts modes from 1, and 0 is no pooling: then the mean, as without modules.json. */
    const int64_t type = file->pooling;
    calm_pooling *pooling;
    if (!config->arch->encoder || type < 1 || type > CALM_POOLING_LAST + 1)
        return CALM_OK;
    CALM_TRY(CALM_NEW(ctx, ctx->out, pooling, 1));
    *pooling = (calm_pooling){.mode = (calm_pooling_mode)(type - 1), .hidden = config->hidden,
                              .width = config->hidden};
    /* The file's dense layers have neither bias nor activation: the other fields stay 0. */
    for (size_t i = 0; i < 2 && file->dense[i].w; i++)
        pooling->steps[pooling->n_steps++] = (calm_pooling_step){
            .dense = true, .in = file->dense[i].in, .out = file->dense[i].out, .w = file->dense[i].w};
    config->pooling = pooling;
    return CALM_OK;
}

/* Opens a GGUF file.  Its configuration is a config.json in memory, so later steps work as for a directory. */
static calm_status open_file(calm_ctx *ctx, calm_model *model, const char *path)
{
    calm_gguf_opened file;
    CALM_TRY(calm_folder_require_model(ctx, path));
    CALM_TRY(calm_gguf_open_model(ctx, path, &file));
    model->json = file.config;
    model->tensors = file.tensors;
    model->in_blocks = file.quantized;
    CALM_TRY(calm_config_read(ctx, path, model->json, &model->config));
    return set_pooling(ctx, &model->config, &file);
}

/* Fused experts are separate matrices by now, since an adapter names them one by one. */
static calm_status merge_adapter(calm_ctx *ctx, calm_model *model, const calm_model_how *how)
{
    const calm_adapter_base base = {&model->config, model->dir, model->prefix, model->tensors};
    if (!how->adapter)
        return CALM_OK;
    if (model->stored || model->in_blocks)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: it is quantized; `adapter` %s is merged into a float model",
                         model->dir, how->adapter);
    return calm_adapter_merge(ctx, how->adapter, &how->accept_keys, &base, &model->adapter);
}

/* Opens all parts; each step needs those before it: prefix, separate experts, adapter, layout, tie, tables. */
static calm_status open_parts(calm_ctx *ctx, calm_model *model, const char *dir, const calm_model_how *how)
{
    CALM_TRY(calm_strf(ctx, &model->arena, &model->dir, "%s", dir));
    CALM_TRY(calm_is_file(dir) ? open_file(ctx, model, dir) : open_directory(ctx, model, dir, how));
    CALM_TRY(find_prefix(ctx, model));
    CALM_TRY(calm_experts_unfuse(ctx, &model->config, model->prefix, model->tensors));
    CALM_TRY(merge_adapter(ctx, model, how));
    CALM_TRY(calm_layout_build(ctx, &model->config, model->prefix, false, &model->layout));
    if (model->stored)
        CALM_TRY(calm_kv_read(ctx, &model->arena, model->json, &model->config, model->prefix, model->tensors,
                              &model->kv));
    /* The layout names the head; find_tables() must know whether the head is tied. */
    CALM_TRY(check_tie(ctx, model));
    CALM_TRY(find_tables(ctx, model));
    CALM_TRY(calm_transforms_read(ctx, model->dir, model->stored, &model->config, &model->layout));
    return check_tensors(ctx, model);
}

calm_status calm_model_open(calm_ctx *ctx, const char *dir, calm_model **out)
{
    CALM_ENTER(ctx, dir && out);
    return calm_model_open_as(ctx, dir, &(calm_model_how){0}, out);
}

calm_status calm_model_open_as(calm_ctx *ctx, const char *dir, const calm_model_how *how, calm_model **out)
{
    *out = NULL;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_SCOPED_MODEL(model);
    model = calloc(1, sizeof *model);
    if (!model)
        return calm_fail(ctx, CALM_ENOMEM, "%s: out of memory", dir);
    /* Readers put their results into ctx->out, and those of the config live as long as the model. */
    CALM_SCOPED_OUT(ctx, &model->arena);
    CALM_TRY(open_parts(ctx, model, dir, how));
    /* All needed tensors exist by now, so faults of the shards' index are only worth warnings. */
    calm_safetensors_log_index(ctx, model->tensors);
    if (!how->glance)
        CALM_TRY(calm_model_warn_unread(ctx, model));
    *out = model;
    /* The model is the caller's now: the scope's cleanup must not close it. */
    model = NULL;
    return CALM_OK;
}

calm_status calm_model_open_floats(calm_ctx *ctx, const char *dir, const calm_model_how *how, calm_model **out)
{
    calm_model_how floats = *how;
    floats.floats = true;
    return calm_model_open_as(ctx, dir, &floats, out);
}

void calm_model_close(calm_model *model)
{
    if (!model)
        return;
    calm_safetensors_close(model->tensors);
    calm_adapter_close(model->adapter);
    calm_qformat_close(model->stored);
    calm_json_free(model->json);
    calm_json_free(model->text);
    calm_arena_clear(&model->arena);
    free(model);
}

calm_status calm_model_split(calm_ctx *ctx, calm_model *model)
{
    /* The arena lives as long as the model; the old layout stays in it for code that borrows its names. */
    CALM_SCOPED_OUT(ctx, &model->arena);
    CALM_TRY(calm_layout_build(ctx, &model->config, model->prefix, true, &model->layout));
    /* In the new layout down's input can absorb a scale again, which a stored transform forbids. */
    return calm_transforms_read(ctx, model->dir, model->stored, &model->config, &model->layout);
}

/* ---- parts in float32 ---- */

/* Loads a linear into w [out, in]; NULL: without its weight. */
static calm_status load_linear(calm_ctx *ctx, const calm_model *model, const char *module, size_t out, size_t in,
                               bool bias, float *w, calm_weight *weight)
{
    *weight = (calm_weight){.name = module, .out = out, .in = in};
    CALM_TRY(read_linear(ctx, model, module, out, in, w, weight));
    /* A weight that stays in the mapped file has set w (row_linear.h). */
    if (!weight->w)
        weight->w = w;
    return bias ? calm_model_read_part(ctx, model, module, "bias", out, &weight->bias) : CALM_OK;
}

calm_status calm_model_load_linear(calm_ctx *ctx, const calm_model *model, const char *module, size_t out, size_t in,
                                   bool bias, calm_weight *weight)
{
    float *w;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, w, out * in));
    return load_linear(ctx, model, module, out, in, bias, w, weight);
}

/* Loads the linears of a job, with `floats` their weights as the rows of one matrix. */
static calm_status load_job(calm_ctx *ctx, const calm_model *model, const calm_job_ref *job, bool floats,
                            calm_weight weight[CALM_N_ROLES])
{
    float *w = NULL;
    if (floats)
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, w, job->out * job->in));
    for (size_t i = job->first; i < job->first + job->n; i++) {
        const calm_linear_ref *linear = &model->layout.linears[i];
        CALM_TRY(load_linear(ctx, model, linear->module, linear->out, linear->in, linear->bias, w,
                             &weight[linear->role]));
        /* The next linear's rows follow in the same matrix. */
        w += w ? linear->out * linear->in : 0;
    }
    return CALM_OK;
}

calm_status calm_model_load_job(calm_ctx *ctx, const calm_model *model, const calm_job_ref *job,
                                calm_weight weight[CALM_N_ROLES])
{
    CALM_SCOPED_SCRATCH(ctx);
    return load_job(ctx, model, job, true, weight);
}

/* The expert loader of a block (block.h). */
static calm_status load_expert(void *user, calm_ctx *ctx, size_t block, size_t expert, calm_weight weight[CALM_N_ROLES])
{
    /* Workers of a wave call it at the same time: the model is only read. */
    const calm_model *model = user;
    size_t begin, end;
    calm_layout_fold_set(&model->layout, block, CALM_SUBLAYER_MLP, (long)expert, &begin, &end);
    for (size_t job = begin; job < end; job++)
        CALM_TRY(load_job(ctx, model, &model->layout.jobs[job], true, weight));
    return CALM_OK;
}

/* Loads one sublayer without its experts, with `floats` the weights of its linears; does not change the other sublayer
 * in *out. */
static calm_status load_sublayer(calm_ctx *ctx, const calm_model *model, size_t index, calm_sublayer sublayer,
                                 bool floats, calm_block *out)
{
    size_t begin, end;
    calm_layout_sublayer(&model->layout, index, sublayer, &begin, &end);
    for (size_t job = begin; job < end; job++) {
        const calm_job_ref *ref = &model->layout.jobs[job];
        /* The shared expert is loaded with its block, the other experts with their wave. */
        if (ref->expert < 0)
            CALM_TRY(load_job(ctx, model, ref, floats,
                              ref->expert == CALM_SHARED_EXPERT ? out->moe.shared : out->weight));
    }
    /* Numbered experts are not loaded here: the forward pass calls `load` for those that get tokens. */
    if (sublayer == CALM_SUBLAYER_MLP && model->config.moe.sparse[index]) {
        CALM_TRY(calm_model_read_router(ctx, model, index, &out->moe));
        out->moe.load = load_expert;
        /* The loader restores the const. */
        out->moe.user = (void *)(uintptr_t)model;
    }
    /* One table serves all blocks, and each loads a copy: it may be the only block in memory. */
    if (sublayer == CALM_SUBLAYER_ATTENTION && model->config.arch->names->distance)
        CALM_TRY(calm_distance_load(ctx, &model->config, calm_model_tensors(model), model->prefix, &out->distance));
    if (sublayer == calm_block_last_slot(out->config))
        CALM_TRY(calm_model_read_tail(ctx, model, index, &out->tail));
    if (model->config.streams.n)
        CALM_TRY(calm_model_read_streams(ctx, model, index, sublayer, &out->streams));
    /* Per-layer inputs are computed from the embedding of block 0. */
    if (out->tail.table)
        CALM_TRY(calm_model_table(ctx, model, false, &out->tail.embed));
    return calm_model_read_norms(ctx, model, index, sublayer, out);
}

/* Initialises a block without weights. */
static void begin_block(const calm_model *model, size_t index, calm_block *out)
{
    *out = (calm_block){.index = index, .config = calm_config_at(&model->config, index)};
    if (model->kv)
        out->kv = model->kv[index];
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++)
        for (calm_norm_place place = 0; place < CALM_N_NORM_PLACES; place++)
            /* Absent norms also need the width, to copy rows. */
            out->norm[s][place].width = model->config.hidden;
}

calm_status calm_model_load_sublayer(calm_ctx *ctx, const calm_model *model, size_t index, calm_sublayer sublayer,
                                     calm_block *out)
{
    CALM_SCOPED_SCRATCH(ctx);
    begin_block(model, index, out);
    return load_sublayer(ctx, model, index, sublayer, true, out);
}

/* Loads both sublayers. */
static calm_status load_block(calm_ctx *ctx, const calm_model *model, size_t index, bool floats, calm_block *out)
{
    CALM_SCOPED_SCRATCH(ctx);
    begin_block(model, index, out);
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++)
        CALM_TRY(load_sublayer(ctx, model, index, s, floats, out));
    return CALM_OK;
}

calm_status calm_model_load_block(calm_ctx *ctx, const calm_model *model, size_t index, calm_block *out)
{
    return load_block(ctx, model, index, true, out);
}

/* The caller, calm_assemble_parts(), then sets the weights of the linears by a plan. */
calm_status calm_model_load_outline(calm_ctx *ctx, const calm_model *model, size_t index, calm_block *out)
{
    return load_block(ctx, model, index, false, out);
}
