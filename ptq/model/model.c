/* Model: opening a checkpoint directory, and its parts as float32. */
#include "ptq/model/model.h"

#include <stdlib.h>
#include <string.h>

#include "ptq/model/arch.h"
#include "ptq/model/compressed.h"
#include "ptq/tensor/linalg.h"
#include "ptq/tensor/vector.h"

#define CONFIG_MAX ((size_t)16 * 1024 * 1024)

struct calm_model {
    calm_arena arena;
    char *dir;
    calm_json *json;
    calm_config config;
    calm_safetensors *tensors;
    calm_compressed *compressed;    /* NULL: a float checkpoint */
};

/* ---- names and shapes ---- */

calm_status calm_model_block_name(calm_ctx *ctx, const calm_model *model, size_t index, char **out)
{
    return calm_strf(ctx, ctx->out, out, "%slayers.%zu", model->config.arch->prefix, index);
}

calm_status calm_model_linear_name(calm_ctx *ctx, const calm_model *model, size_t index, calm_role role, char **out)
{
    return calm_strf(ctx, ctx->out, out, "%slayers.%zu.%s", model->config.arch->prefix, index, calm_role_module(role));
}

void calm_config_role_shape(const calm_config *config, calm_role role, size_t *out, size_t *in)
{
    const size_t q_width = config->n_heads * config->head_dim, kv_width = config->n_kv * config->head_dim;
    switch (role) {
    case CALM_ROLE_Q:
        *out = q_width, *in = config->hidden;
        break;
    case CALM_ROLE_K:
    case CALM_ROLE_V:
        *out = kv_width, *in = config->hidden;
        break;
    case CALM_ROLE_O:
        *out = config->hidden, *in = q_width;
        break;
    case CALM_ROLE_GATE:
    case CALM_ROLE_UP:
        *out = config->inner, *in = config->hidden;
        break;
    case CALM_ROLE_DOWN:
    case CALM_N_ROLES:
        *out = config->hidden, *in = config->inner;
        break;
    }
}

static bool role_has_bias(const calm_config *config, calm_role role)
{
    return config->attention_bias && (calm_role_job(role) == CALM_JOB_QKV || calm_role_job(role) == CALM_JOB_O);
}

/* ---- opening ---- */

/* A float tensor of this shape. */
static calm_status need_floats(calm_ctx *ctx, const calm_model *model, const char *name, int n_dims,
                               const size_t *shape, const calm_tensor **out)
{
    CALM_TRY(calm_safetensors_need(ctx, model->tensors, name, n_dims, shape, out));
    if (!calm_dtype_is_float((*out)->dtype))
        return calm_fail(ctx, CALM_EFORMAT, "%s: tensor %s: dtype %s, expected BF16, F16 or F32", (*out)->file, name,
                         calm_dtype_name((*out)->dtype));
    return CALM_OK;
}

static calm_status need_vector(calm_ctx *ctx, const calm_model *model, const char *name, size_t n,
                               const calm_tensor **out)
{
    return need_floats(ctx, model, name, 1, &n, out);
}

static calm_status need_matrix(calm_ctx *ctx, const calm_model *model, const char *name, size_t rows, size_t cols,
                               const calm_tensor **out)
{
    return need_floats(ctx, model, name, 2, (const size_t[2]){rows, cols}, out);
}

/* One linear: find its scheme and check its tensors; with `w` also read it. */
static calm_status read_linear(calm_ctx *ctx, const calm_model *model, const char *module, size_t out, size_t in,
                               float *w, int *act_bits)
{
    bool quantized = false;
    calm_stored_scheme scheme;
    char *name;
    const calm_tensor *tensor;
    if (model->compressed)
        CALM_TRY(calm_compressed_find(ctx, model->compressed, module, &quantized, &scheme));
    if (act_bits)
        *act_bits = quantized ? scheme.act_bits : 0;
    if (quantized)
        return w ? calm_compressed_load(ctx, model->tensors, module, &scheme, out, in, w)
                 : calm_compressed_check(ctx, model->tensors, module, &scheme, out, in);
    CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%s.weight", module));
    CALM_TRY(need_matrix(ctx, model, name, out, in, &tensor));
    if (!w)
        return CALM_OK;
    CALM_TRY(calm_tensor_to_f32(ctx, tensor, w));
    calm_safetensors_release(model->tensors, tensor);
    return CALM_OK;
}

static calm_status read_vector(calm_ctx *ctx, const calm_model *model, const char *prefix, const char *suffix, size_t n,
                               const float **out)
{
    char *name;
    const calm_tensor *tensor;
    float *values;
    CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%s.%s", prefix, suffix));
    CALM_TRY(need_vector(ctx, model, name, n, &tensor));
    if (!out)
        return CALM_OK;
    CALM_TRY(CALM_NEW(ctx, ctx->out, values, n));
    CALM_TRY(calm_tensor_to_f32(ctx, tensor, values));
    *out = values;
    return CALM_OK;
}

/* The vectors of a block; `block` NULL: check them alone. */
static calm_status read_vectors(calm_ctx *ctx, const calm_model *model, const char *name, calm_block *block)
{
    const calm_config *config = &model->config;
    CALM_TRY(read_vector(ctx, model, name, "input_layernorm.weight", config->hidden,
                         block ? &block->norm[CALM_SUBLAYER_ATTENTION] : NULL));
    CALM_TRY(read_vector(ctx, model, name, "post_attention_layernorm.weight", config->hidden,
                         block ? &block->norm[CALM_SUBLAYER_MLP] : NULL));
    if (config->arch->qk_norm == CALM_QK_NORM_HEAD) {
        CALM_TRY(
            read_vector(ctx, model, name, "self_attn.q_norm.weight", config->head_dim, block ? &block->q_norm : NULL));
        CALM_TRY(
            read_vector(ctx, model, name, "self_attn.k_norm.weight", config->head_dim, block ? &block->k_norm : NULL));
    }
    return CALM_OK;
}

static calm_status check_tensors(calm_ctx *ctx, const calm_model *model)
{
    const calm_config *config = &model->config;
    const calm_tensor *tensor;
    char *name;
    CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%sembed_tokens.weight", config->arch->prefix));
    CALM_TRY(need_matrix(ctx, model, name, config->vocab, config->hidden, &tensor));
    for (size_t i = 0; i < config->n_blocks; i++) {
        for (calm_role role = 0; role < CALM_N_ROLES; role++) {
            size_t out, in;
            calm_config_role_shape(config, role, &out, &in);
            CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%slayers.%zu.%s", config->arch->prefix, i,
                               calm_role_module(role)));
            CALM_TRY(read_linear(ctx, model, name, out, in, NULL, NULL));
            if (role_has_bias(config, role))
                CALM_TRY(read_vector(ctx, model, name, "bias", out, NULL));
        }
        CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%slayers.%zu", config->arch->prefix, i));
        CALM_TRY(read_vectors(ctx, model, name, NULL));
    }
    CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%snorm.weight", config->arch->prefix));
    CALM_TRY(need_vector(ctx, model, name, config->hidden, &tensor));
    if (!config->tied)
        CALM_TRY(need_matrix(ctx, model, "lm_head.weight", config->vocab, config->hidden, &tensor));
    return CALM_OK;
}

static calm_status open_parts(calm_ctx *ctx, calm_model *model, const char *dir)
{
    char *path;
    CALM_TRY(calm_strf(ctx, &model->arena, &model->dir, "%s", dir));
    CALM_TRY(calm_path_join(ctx, &model->arena, &path, dir, "config.json"));
    if (!calm_is_directory(dir))
        return calm_fail(ctx, CALM_ENOTFOUND, "%s: no such model directory", dir);
    CALM_TRY(calm_json_read(ctx, path, CONFIG_MAX, &model->json));
    CALM_TRY(calm_config_read(ctx, path, model->json, &model->config));
    const calm_json *quantization = calm_json_get(model->json, "quantization_config");
    if (calm_json_typeof(quantization) != CALM_JSON_NULL)
        CALM_TRY(calm_compressed_read(ctx, path, quantization, &model->compressed));
    CALM_TRY(calm_safetensors_open(ctx, dir, &model->tensors));
    return check_tensors(ctx, model);
}

calm_status calm_model_open(calm_ctx *ctx, const char *dir, calm_model **out)
{
    *out = NULL;
    calm_model *model = calloc(1, sizeof *model);
    if (!model)
        return calm_fail(ctx, CALM_ENOMEM, "%s: out of memory", dir);
    calm_arena *caller = ctx->out;
    calm_arena_mark mark = calm_arena_save(ctx->scratch);
    ctx->out = &model->arena;    /* what the config owns lives as long as the model */
    calm_status status = open_parts(ctx, model, dir);
    ctx->out = caller;
    calm_arena_rewind(ctx->scratch, mark);
    if (status == CALM_OK)
        *out = model;
    else
        calm_model_close(model);
    return status;
}

void calm_model_close(calm_model *model)
{
    if (!model)
        return;
    calm_safetensors_close(model->tensors);
    calm_compressed_free(model->compressed);
    calm_json_free(model->json);
    calm_arena_clear(&model->arena);
    free(model);
}

const calm_config *calm_model_config(const calm_model *model)
{
    return &model->config;
}

const char *calm_model_dir(const calm_model *model)
{
    return model->dir;
}

const calm_json *calm_model_json(const calm_model *model)
{
    return model->json;
}

const calm_safetensors *calm_model_tensors(const calm_model *model)
{
    return model->tensors;
}

bool calm_model_is_quantized(const calm_model *model)
{
    return model->compressed != NULL;
}

size_t calm_model_n_params(const calm_model *model)
{
    size_t n = 0;
    for (size_t i = 0; i < calm_safetensors_count(model->tensors); i++) {
        const calm_tensor *tensor = calm_safetensors_at(model->tensors, i);
        n += calm_dtype_is_float(tensor->dtype) ? tensor->n_elements : 0;
    }
    return n;
}

size_t calm_model_bytes(const calm_model *model)
{
    size_t n = 0;
    for (size_t i = 0; i < calm_safetensors_count(model->tensors); i++)
        n += calm_safetensors_at(model->tensors, i)->bytes;
    return n;
}

/* ---- parts in float32 ---- */

static calm_status load_weight(calm_ctx *ctx, const calm_model *model, size_t index, calm_role role, calm_weight *out)
{
    const calm_config *config = &model->config;
    char *name;
    float *w;
    *out = (calm_weight){0};
    calm_config_role_shape(config, role, &out->out, &out->in);
    CALM_TRY(calm_model_linear_name(ctx, model, index, role, &name));
    out->name = name;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, w, out->out * out->in));
    CALM_TRY(read_linear(ctx, model, name, out->out, out->in, w, &out->act_bits));
    out->w = w;
    if (role_has_bias(config, role))
        CALM_TRY(read_vector(ctx, model, name, "bias", out->out, &out->bias));
    return CALM_OK;
}

calm_status calm_model_load_block(calm_ctx *ctx, const calm_model *model, size_t index, calm_block *out)
{
    char *name;
    calm_arena_mark mark = calm_arena_save(ctx->scratch);
    *out = (calm_block){.index = index, .config = &model->config};
    for (calm_role role = 0; role < CALM_N_ROLES; role++)
        CALM_TRY(load_weight(ctx, model, index, role, &out->weight[role]));
    CALM_TRY(calm_model_block_name(ctx, model, index, &name));
    CALM_TRY(read_vectors(ctx, model, name, out));
    calm_arena_rewind(ctx->scratch, mark);
    return CALM_OK;
}

static calm_status embedding(calm_ctx *ctx, const calm_model *model, const calm_tensor **out)
{
    char *name;
    CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%sembed_tokens.weight", model->config.arch->prefix));
    return need_matrix(ctx, model, name, model->config.vocab, model->config.hidden, out);
}

calm_status calm_model_embed(calm_ctx *ctx, const calm_model *model, const uint32_t *ids, size_t n, float *out)
{
    const size_t width = model->config.hidden;
    const calm_tensor *table;
    CALM_TRY(embedding(ctx, model, &table));
    const size_t row_bytes = width * calm_dtype_bytes(table->dtype);
    for (size_t t = 0; t < n; t++) {
        if (ids[t] >= model->config.vocab)
            return calm_fail(ctx, CALM_EARG, "token id %u, but the vocabulary has %zu", ids[t], model->config.vocab);
        float *row = out + t * width;
        CALM_TRY(calm_to_f32(ctx, table->dtype, table->data + ids[t] * row_bytes, width, row));
        size_t bad = calm_find_nonfinite(row, width);
        if (bad < width)
            return calm_fail(ctx, CALM_ENUMERIC, "%s: tensor %s: element %zu is %g; the checkpoint is damaged",
                             table->file, table->name, ids[t] * width + bad, (double)row[bad]);
    }
    return CALM_OK;
}

calm_status calm_model_load_head(calm_ctx *ctx, const calm_model *model, calm_head *out)
{
    const calm_config *config = &model->config;
    const calm_tensor *table;
    const size_t shape[2] = {config->vocab, config->hidden};
    char *prefix;
    float *w;
    *out = (calm_head){.hidden = config->hidden, .vocab = config->vocab, .norm_eps = config->norm_eps};
    CALM_TRY(calm_strf(ctx, ctx->scratch, &prefix, "%snorm", config->arch->prefix));
    CALM_TRY(read_vector(ctx, model, prefix, "weight", config->hidden, &out->norm));
    if (config->tied)
        CALM_TRY(embedding(ctx, model, &table));
    else
        CALM_TRY(calm_safetensors_need(ctx, model->tensors, "lm_head.weight", 2, shape, &table));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, w, table->n_elements));
    CALM_TRY(calm_tensor_to_f32(ctx, table, w));
    out->w = w;
    return CALM_OK;
}

void calm_head_norm(const calm_head *head, float *x, size_t n)
{
    for (size_t t = 0; t < n; t++)
        calm_vec_rmsnorm(head->hidden, x + t * head->hidden, head->norm, head->norm_eps, x + t * head->hidden);
}

void calm_head_logits(const calm_head *head, const float *x, size_t n, float *logits)
{
    calm_sgemm_nt(n, head->vocab, head->hidden, 1.0f, x, head->hidden, head->w, head->hidden, 0.0f, logits,
                  head->vocab);
}
