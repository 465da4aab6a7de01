/* An override of the forward pass that replaces float weights by a plan's weights. */
#include "ptq/plan/assemble_impl.h"

#include "ptq/plan/block_vectors.h"
#include "ptq/quant/grid.h"
#include "ptq/weights/int_linear.h"

/* Computes the weights that a reader of the checkpoint computes: from the folded scales, in float32.  The casts remove
 * const, because a calm_qjob is writable; nothing is written. */
static void dequantize(const calm_qlinear *linear, float *w)
{
    const calm_qjob rows = {.out = linear->out,
                            .in = linear->in,
                            .group = linear->group,
                            .n_groups = linear->n_groups,
                            .scheme = linear->scheme,
                            .codes = (uint8_t *)(uintptr_t)linear->codes,
                            .scales = linear->scales,
                            .zeros = (uint8_t *)(uintptr_t)linear->zeros,
                            .mins = linear->mins,
                            .global = linear->global,
                            .order = (uint32_t *)(uintptr_t)linear->order};
    calm_qjob_dequantize(&rows, w);
}

/* Stores the dequantized weight, or in the same memory its codes if ctx wants integer products. */
static calm_status put_weight(calm_ctx *ctx, const calm_qlinear *linear, calm_weight *weight)
{
    const calm_scheme *scheme = &linear->scheme;
    const calm_int_source source = {linear->out, linear->in, scheme->bits > 4 ? 8 : 4, linear->group, linear->codes,
                                    linear->scales, linear->zeros, calm_symmetric_zero(scheme)};
    float *w;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, w, linear->out * linear->in));
    /* The forward pass quantizes the input of this linear as an engine does. */
    weight->act_bits = scheme->act_bits;
    weight->act_asymmetric = scheme->act_asymmetric;
    weight->act_rule = scheme->act_rule;
    weight->act_global = linear->act_global;
    weight->in_scale = linear->in_scale;
    weight->w = w;
    weight->ints = NULL;
    /* Integer kernels need groups of neighbouring columns. */
    if (calm_scheme_is_plain(scheme) && !linear->order)
        calm_int_linear_take(ctx, &source, w, weight);
    if (!weight->ints)
        dequantize(linear, w);
    return CALM_OK;
}

calm_status calm_fold_set_apply(calm_ctx *ctx, const calm_fold_set *assembled, calm_weight *weights, calm_norm *norm)
{
    for (calm_role role = 0; role < CALM_N_ROLES; role++) {
        const calm_qlinear *linear = &assembled->linear[role];
        calm_weight *weight = &weights[role];
        if (linear->quantized) {
            CALM_TRY(put_weight(ctx, linear, weight));
        } else if (linear->w) {
            weight->w = linear->w;
        }
        if (linear->bias)
            weight->bias = linear->bias;
    }
    if (!norm || !assembled->norm)
        return CALM_OK;
    float *w;
    CALM_TRY(CALM_NEW(ctx, ctx->out, w, norm->width));
    /* From the stored weight to the factor, with the rounding of the stored dtype. */
    for (size_t i = 0; i < norm->width; i++)
        w[i] = assembled->norm[i] + (norm->kind == CALM_NORM_RMS_PLUS_ONE ? 1 : 0);
    norm->w = w;
    norm->b = assembled->norm_bias ? assembled->norm_bias : norm->b;
    return CALM_OK;
}

size_t calm_fold_set_apply_bytes(const calm_model *model, size_t begin, size_t end, unsigned extras)
{
    const calm_layout *layout = calm_model_layout(model);
    size_t bytes = 0;
    for (size_t j = begin; j < end; j++) {
        const calm_job_ref *job = &layout->jobs[j];
        for (size_t i = job->first; i < job->first + job->n; i++)
            bytes += CALM_BYTES(float, layout->linears[i].out * layout->linears[i].in);
        bytes += extras & CALM_QJOB_SCALED && calm_assembled_norm_bytes(calm_model_config(model), job)
                     ? CALM_BYTES(float, calm_model_config(model)->hidden)
                     : 0;
    }
    return bytes;
}

/* An expert loader that quantizes what the float loader loads. */
typedef struct expert_override {
    calm_plan_override plan;
    calm_block block;    /* the float block, with the float loader */
} expert_override;

static calm_status load_quantized(void *user, calm_ctx *ctx, size_t index, size_t expert,
                                  calm_weight weight[CALM_N_ROLES])
{
    const expert_override *override = user;
    calm_fold_set assembled;
    (void)index;
    CALM_TRY(calm_assemble_expert(ctx, override->plan.model, override->plan.plan, &override->block, expert, weight,
                                  &assembled));
    return calm_fold_set_apply(ctx, &assembled, weight, NULL);
}

calm_status calm_plan_apply(void *plan_override, calm_ctx *ctx, size_t index, calm_block *block)
{
    const calm_plan_override *override = plan_override;
    calm_fold_set_ref set;
    calm_fold_set assembled;
    (void)index;
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++) {
        calm_weight *weight = calm_fold_set_weights(block, s, &set);
        CALM_TRY(calm_assemble_fold_set(ctx, override->model, override->plan, &set, &assembled));
        CALM_TRY(calm_fold_set_apply(ctx, &assembled, weight, &block->norm[s][CALM_NORM_IN]));
    }
    CALM_TRY(calm_block_vectors_set(ctx, override->model, &assembled.vectors, block));
    if (!block->moe.router)
        return CALM_OK;
    /* The copy of the block keeps the float loader, which load_quantized calls.  It is in ctx->out and lives as long as
     * the block's weights. */
    expert_override *experts;
    CALM_TRY(CALM_NEW(ctx, ctx->out, experts, 1));
    *experts = (expert_override){*override, *block};
    block->moe.load = load_quantized;
    block->moe.user = experts;
    return CALM_OK;
}
