/* Assembly of one block. */
#include "ptq/hybrid/assemble.h"

#include <math.h>
#include <string.h>

#include "ptq/quant/grid.h"

const calm_plan_job *calm_plan_at(const calm_plan *plan, size_t block, calm_job_kind job)
{
    return &plan->jobs[block * CALM_N_JOBS + job];
}

/* ---- codes ---- */

/* Distribute the rows of a job over its linears, in role order. */
static calm_status split_job(calm_ctx *ctx, const calm_block *block, calm_job_kind job, const calm_scheme *scheme,
                             const calm_qjob *qjob, calm_qblock *out)
{
    size_t row = 0;
    for (calm_role role = 0; role < CALM_N_ROLES; role++) {
        const calm_weight *weight = &block->weight[role];
        calm_qlinear *linear = &out->linear[role];
        if (calm_role_job(role) != job)
            continue;
        if (qjob->in != weight->in || row + weight->out > qjob->out)
            return calm_fail(ctx, CALM_EFORMAT, "%s: [%zu, %zu], but the stored candidate has [%zu, %zu]", weight->name,
                             weight->out, weight->in, qjob->out, qjob->in);
        *linear = (calm_qlinear){.quantized = true, .scheme = *scheme, .out = weight->out, .in = weight->in,
                                 .group = qjob->group, .n_groups = qjob->n_groups,
                                 .codes = qjob->codes + row * qjob->in, .scales = qjob->scales + row * qjob->n_groups,
                                 .zeros = qjob->zeros ? qjob->zeros + row * qjob->n_groups : NULL};
        row += weight->out;
    }
    if (row != qjob->out)
        return calm_fail(ctx, CALM_EFORMAT, "block %zu, %s: %zu rows, but the stored candidate has %zu", block->index,
                         calm_job_name(job), row, qjob->out);
    return CALM_OK;
}

/* ---- folding ---- */

static float round_to(calm_dtype dtype, float value)
{
    if (dtype == CALM_BF16)
        return calm_bf16_to_f32(calm_f32_to_bf16(value));
    return dtype == CALM_F16 ? calm_f16_to_f32(calm_f32_to_f16(value)) : value;
}

/* Round what was folded to the dtype that the checkpoint stores MODULE.PART in; nothing to do for NULL. */
static calm_status round_stored(calm_ctx *ctx, const calm_model *model, const char *module, const char *part, float *values,
                                size_t n)
{
    char *name;
    if (!values)
        return CALM_OK;
    CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%s.%s", module, part));
    const calm_tensor *tensor = calm_safetensors_find(calm_model_tensors(model), name);
    for (size_t i = 0; i < n; i++) {
        values[i] = round_to(tensor ? tensor->dtype : CALM_BF16, values[i]);
        if (!isfinite(values[i]))
            return calm_fail(ctx, CALM_ENUMERIC, "%s: value %zu is out of range after its input scale was folded in", name, i);
    }
    return CALM_OK;
}

static calm_status fold_norm(calm_ctx *ctx, const calm_model *model, const calm_block *block, calm_sublayer sublayer,
                             const float *in_scale, calm_qblock *out)
{
    static const char *const names[] = {"input_layernorm", "post_attention_layernorm"};
    const size_t width = block->config->hidden;
    char *prefix, *module;
    float *folded;
    CALM_TRY(CALM_NEW(ctx, ctx->out, folded, width));
    for (size_t i = 0; i < width; i++)
        folded[i] = block->norm[sublayer][i] / in_scale[i];
    CALM_TRY(calm_model_block_name(ctx, model, block->index, &prefix));
    CALM_TRY(calm_strf(ctx, ctx->scratch, &module, "%s.%s", prefix, names[sublayer]));
    out->norm[sublayer] = folded;
    return round_stored(ctx, model, module, "weight", folded, width);
}

static calm_status fold_quantized_row(calm_ctx *ctx, const calm_weight *weight, calm_qlinear *linear, size_t row,
                                      float s)
{
    for (size_t g = 0; g < linear->n_groups; g++) {
        float *scale = &linear->scales[row * linear->n_groups + g];
        *scale = calm_scale_round((double)*scale / (double)s, linear->scheme.scale_dtype);
        if (!isfinite(*scale))
            return calm_fail(ctx, CALM_ENUMERIC, "%s: scale of row %zu, group %zu is out of range after folding %g",
                             weight->name, row, g, (double)s);
    }
    return CALM_OK;
}

/* Divide row r of a linear by s: in its scales when it is quantized, else in a copy of its weights. */
static calm_status fold_row(calm_ctx *ctx, const calm_weight *weight, calm_qlinear *linear, size_t row, float s)
{
    if (weight->bias && !linear->bias) {
        CALM_TRY(CALM_NEW(ctx, ctx->out, linear->bias, weight->out));
        memcpy(linear->bias, weight->bias, weight->out * sizeof *linear->bias);
    }
    if (linear->bias)
        linear->bias[row] /= s;
    if (linear->quantized)
        return fold_quantized_row(ctx, weight, linear, row, s);
    if (!linear->w) {
        CALM_TRY(CALM_NEW(ctx, ctx->out, linear->w, weight->out * weight->in));
        memcpy(linear->w, weight->w, weight->out * weight->in * sizeof *linear->w);
    }
    for (size_t i = 0; i < weight->in; i++)
        linear->w[row * weight->in + i] /= s;
    return CALM_OK;
}

static calm_status fold_rows(calm_ctx *ctx, const calm_model *model, const calm_block *block, calm_job_kind job,
                             const float *in_scale, calm_qblock *out)
{
    const calm_config *config = block->config;
    const calm_role feeder = job == CALM_JOB_O ? CALM_ROLE_V : CALM_ROLE_UP;
    const calm_weight *weight = &block->weight[feeder];
    const size_t d = config->head_dim, heads_per_kv = config->n_heads / config->n_kv;
    for (size_t row = 0; row < weight->out; row++) {
        /* Input channel of o that reads row r of v: the first query head of its kv head. */
        const size_t channel = job == CALM_JOB_O ? row / d * heads_per_kv * d + row % d : row;
        CALM_TRY(fold_row(ctx, weight, &out->linear[feeder], row, in_scale[channel]));
    }
    CALM_TRY(round_stored(ctx, model, weight->name, "weight", out->linear[feeder].w, weight->out * weight->in));
    return round_stored(ctx, model, weight->name, "bias", out->linear[feeder].bias, weight->out);
}

static calm_status fold(calm_ctx *ctx, const calm_model *model, const calm_block *block, calm_job_kind job,
                        const float *in_scale, calm_qblock *out)
{
    if (job == CALM_JOB_QKV || job == CALM_JOB_GATE_UP)
        return fold_norm(ctx, model, block, calm_job_sublayer(job), in_scale, out);
    return fold_rows(ctx, model, block, job, in_scale, out);
}

calm_status calm_assemble_block(calm_ctx *ctx, const calm_model *model, const calm_plan *plan, const calm_block *block,
                                calm_qblock *out)
{
    const float *in_scale[CALM_N_JOBS] = {NULL};
    memset(out, 0, sizeof *out);
    for (calm_job_kind job = 0; job < CALM_N_JOBS; job++) {
        const calm_plan_job *planned = calm_plan_at(plan, block->index, job);
        calm_qjob qjob;
        if (!planned->quantized)
            continue;
        CALM_TRY(plan->fetch(plan->user, ctx, planned, &qjob));
        CALM_TRY(split_job(ctx, block, job, &planned->scheme, &qjob, out));
        in_scale[job] = qjob.in_scale;
    }
    for (calm_job_kind job = 0; job < CALM_N_JOBS; job++)
        if (in_scale[job])
            CALM_TRY(fold(ctx, model, block, job, in_scale[job], out));
    return CALM_OK;
}

/* ---- in place of the float weights ---- */

static calm_status dequantize(calm_ctx *ctx, const calm_qlinear *linear, const float **out)
{
    float *w;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, w, linear->out * linear->in));
    const calm_qjob rows = {.out = linear->out,
                            .in = linear->in,
                            .group = linear->group,
                            .n_groups = linear->n_groups,
                            .scheme = linear->scheme,
                            .codes = (uint8_t *)(uintptr_t)linear->codes,
                            .scales = linear->scales,
                            .zeros = (uint8_t *)(uintptr_t)linear->zeros};
    calm_qjob_dequantize(&rows, w);
    *out = w;
    return CALM_OK;
}

calm_status calm_qblock_apply(calm_ctx *ctx, const calm_qblock *assembled, calm_block *block)
{
    for (calm_role role = 0; role < CALM_N_ROLES; role++) {
        const calm_qlinear *linear = &assembled->linear[role];
        calm_weight *weight = &block->weight[role];
        if (linear->quantized) {
            CALM_TRY(dequantize(ctx, linear, &weight->w));
            weight->act_bits = linear->scheme.act_bits;
        } else if (linear->w) {
            weight->w = linear->w;
        }
        if (linear->bias)
            weight->bias = linear->bias;
    }
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++)
        if (assembled->norm[s])
            block->norm[s] = assembled->norm[s];
    return CALM_OK;
}

calm_status calm_plan_apply(void *plan_override, calm_ctx *ctx, size_t index, calm_block *block)
{
    const calm_plan_override *override = plan_override;
    calm_qblock assembled;
    (void)index;
    CALM_TRY(calm_assemble_block(ctx, override->model, override->plan, block, &assembled));
    return calm_qblock_apply(ctx, &assembled, block);
}
