/* The end of the model: loading, logits, pooling. */
#include "ptq/model/head.h"

#include <math.h>
#include <string.h>

#include "ptq/arch/arch.h"
#include "ptq/tensor/linalg.h"
#include "ptq/tensor/product.h"
#include "ptq/tensor/vector.h"
#include "ptq/tensor/vector_back.h"

/* 4 MB of float32: larger than a product's share of the caches, small compared with the table of a large vocabulary. */
#define TILE_FLOATS ((size_t)1024 * 1024)

/* ---- loading ---- */

/* Finds the first existing tensor of those joined by '|', or the last one, for the message.  An untied head has its own
 * bias; if tied, all names mean the same one. */
static calm_status find_bias(calm_ctx *ctx, const calm_safetensors *set, const char *names, char **out)
{
    for (const char *at = names;; at = strchr(at, '|') + 1) {
        CALM_TRY(calm_strf(ctx, ctx->scratch, out, "%.*s", (int)strcspn(at, "|"), at));
        if (!strchr(at, '|') || calm_safetensors_find(set, *out))
            return CALM_OK;
    }
}

/* Loads the parts of encoders that exist: the masked language model's head and the pooler. */
static calm_status load_encoder(calm_ctx *ctx, const calm_model *model, calm_head *out)
{
    const calm_config *config = calm_model_config(model);
    const calm_ends *ends = config->arch->ends;
    const size_t width = out->hidden;
    const calm_safetensors *set = calm_model_tensors(model);
    char *pooler, *name, *bias;
    /* The file may lack the family's pooler. */
    if (ends->pooler) {
        CALM_TRY(calm_strf(ctx, ctx->scratch, &pooler, "%s%s", calm_model_prefix(model), ends->pooler));
        CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%s.weight", pooler));
        if (calm_safetensors_find(set, name))
            CALM_TRY(calm_model_load_linear(ctx, model, pooler, width, width, true, &out->pooler));
    }
    /* A plain encoder, whose results are the hidden states. */
    CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%s.weight", ends->transform ? ends->transform : ""));
    if (!config->arch->names->head || !calm_safetensors_find(set, name))
        return CALM_OK;
    /* Whether the transform has a bias follows from the file, not from config.json. */
    CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%s.bias", ends->transform));
    CALM_TRY(calm_model_load_linear(ctx, model, ends->transform, width, width, calm_safetensors_find(set, name),
                                    &out->transform));
    CALM_TRY(calm_model_load_norm(ctx, model, ends->transform_norm, width, &out->transform_norm));
    if (ends->bias) {
        CALM_TRY(find_bias(ctx, set, ends->bias, &bias));
        CALM_TRY(calm_model_load_vector(ctx, model, bias, out->vocab, &out->bias));
    }
    return calm_model_table(ctx, model, !config->tied, &out->table);
}

calm_status calm_model_load_head(calm_ctx *ctx, const calm_model *model, calm_head *out)
{
    const calm_config *config = calm_model_config(model);
    /* A norm without weights still needs its width, to copy rows. */
    *out = (calm_head){.hidden = config->hidden, .vocab = config->vocab, .set = calm_model_tensors(model),
                       .logit_scale = config->logit_scale, .logit_cap = config->logit_cap,
                       .activation = config->head_activation,
                       .norm = {.width = config->hidden}};
    CALM_SCOPED_SCRATCH(ctx);
    if (config->arch->names->final_norm) {
        char *module;
        CALM_TRY(
            calm_strf(ctx, ctx->scratch, &module, "%s%s", calm_model_prefix(model), config->arch->names->final_norm));
        CALM_TRY(calm_model_load_norm(ctx, model, module, config->hidden, &out->norm));
    }
    if (config->arch->ends)
        CALM_TRY(load_encoder(ctx, model, out));
    else if (config->arch->names->head)
        CALM_TRY(calm_model_table(ctx, model, !config->tied, &out->table));
    /* Added to the logits like that of a masked language model. */
    if (config->head_bias && out->table) {
        char *name;
        CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%s.bias", calm_model_layout(model)->head));
        CALM_TRY(calm_model_load_vector(ctx, model, name, config->vocab, &out->bias));
    }
    return CALM_OK;
}

size_t calm_model_load_head_bytes(const calm_config *config)
{
    const size_t row = CALM_BYTES(float, config->hidden), vectors = config->norm_bias ? 2 : 1;
    const size_t matrix = CALM_BYTES(float, config->hidden * config->hidden) + row;
    /* Final norm, head's bias; of encoders pooler and transform with biases, a norm, the bias of logits. */
    return (config->arch->names->final_norm ? vectors * row : 0) +
           (config->head_bias ? CALM_BYTES(float, config->vocab) : 0) +
           (config->arch->ends ? 2 * matrix + vectors * row + CALM_BYTES(float, config->vocab) : 0);
}

/* ---- logits ---- */

size_t calm_head_tile(const calm_head *head)
{
    /* At least 256 columns, however wide the model: thinner products waste the BLAS kernel. */
    const size_t rows = TILE_FLOATS / head->hidden;
    return rows < 256 ? (head->vocab < 256 ? head->vocab : 256) : rows < head->vocab ? rows : head->vocab;
}

size_t calm_head_tile_bytes(const calm_head *head)
{
    return CALM_BYTES(float, calm_head_tile(head) * head->hidden);
}

calm_status calm_head_prepare(calm_ctx *ctx, const calm_head *head, float *x, size_t n)
{
    CALM_SCOPED_SCRATCH(ctx);
    float *y;
    /* Only masked language models have a transform. */
    if (!head->transform.w)
        return CALM_OK;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, y, n * head->hidden));
    CALM_TRY(calm_weight_apply(ctx, &head->transform, x, n, y));
    calm_activate(head->activation, n * head->hidden, y);
    /* The result replaces x, which the table then multiplies. */
    calm_norm_rows(&head->transform_norm, y, n, x);
    return CALM_OK;
}

calm_status calm_head_read_tile(calm_ctx *ctx, const calm_head *head, size_t first, size_t count, float *w)
{
    const size_t row_bytes = head->hidden * calm_dtype_bytes(head->table->dtype);
    const calm_status status =
        calm_tensor_part_to_f32(ctx, head->table, first * head->hidden, count * head->hidden, w);
    /* Also after a failure; of a table of 1 GB only one tile is resident. */
    calm_safetensors_release_part(head->set, head->table, first * row_bytes, count * row_bytes);
    return status;
}

/* Returns the factor of the product of the head. */
static float scale_of(const calm_head *head)
{
    return head->logit_scale == 0 ? 1 : head->logit_scale;
}

/* The scale is BLAS's alpha, which products of bfloat16 do not have. */
static calm_status multiply_scaled(calm_ctx *ctx, const calm_head *head, calm_product_form form, size_t n,
                                   size_t columns, size_t terms, const float *x, const float *w, float beta, float *out,
                                   size_t stride)
{
    const float scale = scale_of(head);
    if (scale == 1)
        return calm_multiply(ctx, form, n, columns, terms, x, terms, w, head->hidden, beta, out, stride);
    (form == CALM_PRODUCT_NT ? calm_sgemm_nt : calm_sgemm_nn)(n, columns, terms, scale, x, terms, w, head->hidden, beta,
                                                              out, stride);
    return CALM_OK;
}

calm_status calm_head_multiply(calm_ctx *ctx, const calm_head *head, const float *w, const float *x, size_t n,
                               size_t first, size_t count, float *logits, size_t stride)
{
    /* The product adds to the bias (beta = 1), which saves a second pass over the logits. */
    for (size_t t = 0; head->bias && t < n; t++)
        memcpy(logits + t * stride, head->bias + first, count * sizeof *logits);
    CALM_TRY(multiply_scaled(ctx, head, CALM_PRODUCT_NT, n, count, head->hidden, x, w, head->bias ? 1 : 0, logits,
                             stride));
    /* Row by row, since the columns of other tiles may follow each row. */
    for (size_t t = 0; head->logit_cap > 0 && t < n; t++)
        calm_vec_soft_cap(count, 1, head->logit_cap, logits + t * stride);
    return CALM_OK;
}

calm_status calm_head_multiply_back(calm_ctx *ctx, const calm_head *head, const float *w, const float *logits, size_t n,
                                    size_t count, float *dlogits, float *dx)
{
    /* The cap's derivative follows from the capped logits, so the raw ones are not kept. */
    if (head->logit_cap > 0)
        calm_vec_soft_capped_back(n * count, head->logit_cap, logits, dlogits);
    /* dx += scale dlogits W, with beta = 1, since every tile of the vocabulary adds its part. */
    return multiply_scaled(ctx, head, CALM_PRODUCT_NN, n, head->hidden, count, dlogits, w, 1, dx, head->hidden);
}

calm_status calm_head_tile_logits(calm_ctx *ctx, const calm_head *head, const float *x, size_t n, size_t first,
                                  size_t count, float *logits, size_t stride)
{
    CALM_SCOPED_SCRATCH(ctx);
    float *w;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, w, count * head->hidden));
    CALM_TRY(calm_head_read_tile(ctx, head, first, count, w));
    return calm_head_multiply(ctx, head, w, x, n, first, count, logits, stride);
}

calm_status calm_head_pool(calm_ctx *ctx, const calm_head *head, const float *x, float *out)
{
    /* The first token is [CLS], whose row represents the text. */
    CALM_TRY(calm_weight_apply(ctx, &head->pooler, x, 1, out));
    for (size_t i = 0; i < head->hidden; i++)
        out[i] = tanhf(out[i]);
    return CALM_OK;
}
