/* One block: names, linears, MLP, residuals.  Attention is in attention.c. */
#include "ptq/model/block.h"

#include <string.h>

#include "ptq/quant/grid.h"
#include "ptq/tensor/linalg.h"
#include "ptq/tensor/vector.h"

/* ---- names ---- */

const char *calm_role_module(calm_role role)
{
    static const char *const names[] = {
#define CALM_ROLE_NAME(role, name, job) name,
        CALM_ROLE_LIST(CALM_ROLE_NAME)
#undef CALM_ROLE_NAME
    };
    return names[role];
}

calm_job_kind calm_role_job(calm_role role)
{
    static const calm_job_kind jobs[] = {
#define CALM_ROLE_JOB(role, name, job) CALM_JOB_##job,
        CALM_ROLE_LIST(CALM_ROLE_JOB)
#undef CALM_ROLE_JOB
    };
    return jobs[role];
}

static const struct {
    const char *name;
    calm_sublayer sublayer;
    calm_hook input;
} job_table[] = {
#define CALM_JOB_ROW(job, name, sublayer, hook) {name, CALM_SUBLAYER_##sublayer, CALM_HOOK_##hook},
    CALM_JOB_LIST(CALM_JOB_ROW)
#undef CALM_JOB_ROW
};

const char *calm_job_name(calm_job_kind job)
{
    return job_table[job].name;
}

calm_sublayer calm_job_sublayer(calm_job_kind job)
{
    return job_table[job].sublayer;
}

calm_hook calm_job_input(calm_job_kind job)
{
    return job_table[job].input;
}

static const struct {
    const char *name, *help;
} hook_table[] = {
#define CALM_HOOK_ROW(hook, name, help) {name, help},
    CALM_HOOK_LIST(CALM_HOOK_ROW)
#undef CALM_HOOK_ROW
};

const char *calm_hook_name(calm_hook hook)
{
    return hook_table[hook].name;
}

const char *calm_hook_help(calm_hook hook)
{
    return hook_table[hook].help;
}

/* ---- linears ---- */

/* What the linear really reads: x / in_scale, then quantized per token; x itself when there is neither. */
static calm_status prepare_input(calm_ctx *ctx, const calm_weight *weight, const float *x, size_t n_tokens,
                                 const float **out)
{
    float *copy;
    size_t n = n_tokens * weight->in;
    *out = x;
    if (!weight->in_scale && !weight->act_bits)
        return CALM_OK;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, copy, n));
    memcpy(copy, x, n * sizeof *copy);
    for (size_t t = 0; weight->in_scale && t < n_tokens; t++)
        for (size_t i = 0; i < weight->in; i++)
            copy[t * weight->in + i] /= weight->in_scale[i];
    if (weight->act_bits)
        calm_act_quantize_rows(copy, n_tokens, weight->in, weight->act_bits, copy);
    *out = copy;
    return CALM_OK;
}

calm_status calm_weight_apply(calm_ctx *ctx, const calm_weight *weight, const float *x, size_t n_tokens, float *y)
{
    calm_arena_mark mark = calm_arena_save(ctx->scratch);
    CALM_TRY(prepare_input(ctx, weight, x, n_tokens, &x));
    for (size_t t = 0; weight->bias && t < n_tokens; t++)
        memcpy(y + t * weight->out, weight->bias, weight->out * sizeof *y);
    calm_sgemm_nt(n_tokens, weight->out, weight->in, 1.0f, x, weight->in, weight->w, weight->in,
                  weight->bias ? 1.0f : 0.0f, y, weight->out);
    calm_arena_rewind(ctx->scratch, mark);
    return CALM_OK;
}

static calm_status observe(const calm_observer *observer, calm_ctx *ctx, calm_hook hook, const float *x,
                           size_t n_tokens, size_t width)
{
    if (!observer || !observer->fn)
        return CALM_OK;
    return observer->fn(observer->user, ctx, hook, observer->window, x, n_tokens, width);
}

/* ---- sublayers ---- */

calm_status calm_block_mlp(calm_ctx *ctx, const calm_block *block, const float *h, size_t n_tokens, float *out,
                           const calm_observer *observer)
{
    const calm_config *config = block->config;
    const size_t n = n_tokens * config->inner;
    float *gate, *up;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, gate, n));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, up, n));
    CALM_TRY(observe(observer, ctx, CALM_HOOK_GATE_UP_IN, h, n_tokens, config->hidden));
    CALM_TRY(calm_weight_apply(ctx, &block->weight[CALM_ROLE_GATE], h, n_tokens, gate));
    CALM_TRY(calm_weight_apply(ctx, &block->weight[CALM_ROLE_UP], h, n_tokens, up));
    CALM_TRY(observe(observer, ctx, CALM_HOOK_GATE, gate, n_tokens, config->inner));
    calm_vec_silu_mul(n, gate, up);
    CALM_TRY(observe(observer, ctx, CALM_HOOK_DOWN_IN, gate, n_tokens, config->inner));
    CALM_TRY(calm_weight_apply(ctx, &block->weight[CALM_ROLE_DOWN], gate, n_tokens, out));
    return observe(observer, ctx, CALM_HOOK_MLP_OUT, out, n_tokens, config->hidden);
}

calm_status calm_block_from_job(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, calm_job_kind job,
                                const float *x, size_t n_tokens, float *out)
{
    switch (job) {
    case CALM_JOB_QKV:
        return calm_block_attention(ctx, block, rope, x, n_tokens, out, NULL);
    case CALM_JOB_O:
        return calm_weight_apply(ctx, &block->weight[CALM_ROLE_O], x, n_tokens, out);
    case CALM_JOB_GATE_UP:
        return calm_block_mlp(ctx, block, x, n_tokens, out, NULL);
    case CALM_JOB_DOWN:
        return calm_weight_apply(ctx, &block->weight[CALM_ROLE_DOWN], x, n_tokens, out);
    case CALM_N_JOBS:
        break;
    }
    return calm_fail(ctx, CALM_EARG, "no such job");
}

static void norm_rows(const calm_block *block, calm_sublayer sublayer, const float *x, size_t n_tokens, float *h)
{
    const size_t width = block->config->hidden;
    for (size_t t = 0; t < n_tokens; t++)
        calm_vec_rmsnorm(width, x + t * width, block->norm[sublayer], block->config->norm_eps, h + t * width);
}

calm_status calm_block_run(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, float *x, size_t n_tokens,
                           const calm_observer *observer)
{
    const size_t width = block->config->hidden, n = n_tokens * width;
    calm_arena_mark mark = calm_arena_save(ctx->scratch);
    float *h, *out;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, h, n));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, out, n));

    norm_rows(block, CALM_SUBLAYER_ATTENTION, x, n_tokens, h);
    CALM_TRY(calm_block_attention(ctx, block, rope, h, n_tokens, out, observer));
    CALM_TRY(observe(observer, ctx, CALM_HOOK_ATTN_OUT, out, n_tokens, width));
    calm_vec_add(n, out, x);

    norm_rows(block, CALM_SUBLAYER_MLP, x, n_tokens, h);
    CALM_TRY(calm_block_mlp(ctx, block, h, n_tokens, out, observer));
    calm_vec_add(n, out, x);
    CALM_TRY(observe(observer, ctx, CALM_HOOK_BLOCK_OUT, x, n_tokens, width));
    calm_arena_rewind(ctx->scratch, mark);
    return CALM_OK;
}
