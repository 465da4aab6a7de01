/* One block: MLP, norms and residuals.  A single linear is in weight.c, attention in attention.c, experts in moe.c. */
#include "ptq/layers/block_impl.h"

#include <string.h>

#include "ptq/arch/arch.h"
#include "ptq/arch/kind.h"
#include "ptq/base/threads.h"
#include "ptq/layers/gaussian_top_k.h"
#include "ptq/layers/hadamard.h"
#include "ptq/layers/streams.h"
#include "ptq/layers/tail.h"
#include "ptq/tensor/vector.h"

const calm_kind *calm_block_kind(const calm_block *block, calm_sublayer slot)
{
    return calm_kind_of(block->config, slot, block->moe.router != NULL);
}

/* ---- MLP ---- */

calm_status calm_mlp_project(calm_ctx *ctx, const calm_config *config, const calm_weight *weight, const float *h,
                             size_t n, calm_apply_fn *apply, float **a, float **b)
{
    const calm_weight *fused = &weight[CALM_ROLE_FUSED_GATE_UP], *gate = &weight[CALM_ROLE_GATE],
                      *up = &weight[CALM_ROLE_UP];
    const size_t inner = weight[CALM_ROLE_DOWN].in;
    float *both;
    *b = NULL;
    /* a and b outlive this function: they are allocated before the mark that releases `both`. */
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, *a, n * inner));
    if (!fused->w && !gate->w)
        return apply(ctx, up, h, n, *a);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, *b, n * inner));
    if (!fused->w)
        return calm_weight_apply_each(ctx, apply, 2, (const calm_weight *[]){gate, up}, h, n, (float *[]){*a, *b});
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, both, n * 2 * inner));
    CALM_TRY(apply(ctx, fused, h, n, both));
    /* Rows of the fused product are [gate | up] or [up | gate]; the activation kernels want each contiguous. */
    const bool up_first = config->arch->names->up_first;
    for (size_t t = 0; t < n; t++) {
        memcpy((up_first ? *b : *a) + t * inner, both + t * 2 * inner, inner * sizeof **a);
        memcpy((up_first ? *a : *b) + t * inner, both + t * 2 * inner + inner, inner * sizeof **b);
    }
    return CALM_OK;
}

void calm_mlp_combine(const calm_config *config, size_t n, float *a, const float *b)
{
    if (b && config->glu_limit > 0) {
        calm_vec_clamped_glu(n, config->glu_limit, config->glu_alpha, a, b);
        return;
    }
    /* The usual case in one pass over both arrays; silu(a) b rounds the same in one loop or two. */
    if (b && config->activation == CALM_ACTIVATION_SILU) {
        calm_vec_silu_mul(n, a, b);
        return;
    }
    calm_activate(config->activation, n, a);
    if (b)
        calm_vec_mul(n, b, a);
}

/* The elementwise product of gate and up; threads share its rows, also where a window runs alone. */
typedef struct combine_task {
    const calm_config *config;
    size_t inner;
    float *a;
    const float *b;
} combine_task;

static void combine_rows(size_t first, size_t n, void *user)
{
    const combine_task *task = user;
    const size_t at = first * task->inner;
    calm_mlp_combine(task->config, n * task->inner, task->a + at, task->b ? task->b + at : NULL);
}

size_t calm_mlp_run_scratch_bytes(const calm_config *config, long expert, size_t n, bool prepared)
{
    const bool fused = calm_expert_has_role(config, CALM_ROLE_FUSED_GATE_UP, expert);
    const bool gated = fused || calm_expert_has_role(config, CALM_ROLE_GATE, expert);
    size_t width, inner;
    calm_role_shape(config, CALM_ROLE_DOWN, expert, &width, &inner);
    /* `both` and the prepared input of the first product are released before down prepares its input. */
    const size_t one = CALM_BYTES(float, n * inner), row = calm_hadamard_bytes(config, CALM_JOB_DOWN, inner);
    const size_t both = fused ? CALM_BYTES(float, n * 2 * inner) : 0;
    const size_t first = prepared ? calm_weight_apply_scratch_bytes(width, n) : 0;
    /* The transform's row and the prepared input are never allocated at the same time. */
    const size_t last = calm_size_max(row, prepared ? calm_weight_apply_scratch_bytes(inner, n) : 0);
    return (gated ? 2 : 1) * one + calm_size_max(both + first, last);
}

/* Shows the observer x [n_rows, width] at a hook point, for the window or expert of `seen`. */
static calm_status observe_as(const calm_observer *observer, calm_ctx *ctx, const calm_observation *seen,
                              calm_hook hook, const float *x, size_t n_rows, size_t width)
{
    const calm_observation here = {hook, seen->expert, seen->window, x, n_rows, width, seen->rows};
    return calm_observe(observer, ctx, &here);
}

/* Runs the MLP over rows that are in memory together. */
static calm_status run_rows(calm_ctx *ctx, const calm_config *config, const calm_weight weight[CALM_N_ROLES],
                            const float *h, size_t n, float *out, const calm_observer *observer,
                            const calm_observation *seen)
{
    /* Not config->inner: experts and the shared expert have their own widths. */
    const size_t inner = weight[CALM_ROLE_DOWN].in, width = weight[CALM_ROLE_DOWN].out;
    CALM_SCOPED_SCRATCH(ctx);
    float *a, *b;
    CALM_TRY(observe_as(observer, ctx, seen, CALM_HOOK_GATE_UP_IN, h, n, width));
    CALM_TRY(calm_mlp_project(ctx, config, weight, h, n, calm_weight_apply, &a, &b));
    if (config->gate_sparsity > 0)
        calm_gaussian_top_k(ctx, config->gate_sparsity, n, inner, a);
    CALM_TRY(observe_as(observer, ctx, seen, CALM_HOOK_GATE, a, n, inner));
    calm_parallel_each_rows(ctx, n, combine_rows, &(combine_task){config, inner, a, b});
    CALM_TRY(calm_hadamard_rows(ctx, config, CALM_JOB_DOWN, n, inner, a));
    CALM_TRY(observe_as(observer, ctx, seen, CALM_HOOK_DOWN_IN, a, n, inner));
    return calm_weight_apply(ctx, &weight[CALM_ROLE_DOWN], a, n, out);
}

/* Approximate bytes of a thread's rows between the products: a part of the L2 cache; and what the rows are a multiple
 * of, so that the kernels' tiles stay whole. */
#define INNER_BYTES ((size_t)768 << 10)
#define ROWS_STEP   ((size_t)128)

/* Are all linears of the MLP integer products?  Those have the same bytes for any number of rows; BLAS does not. */
static bool in_integers(const calm_weight weight[CALM_N_ROLES])
{
    static const calm_role roles[] = {CALM_ROLE_GATE, CALM_ROLE_UP, CALM_ROLE_FUSED_GATE_UP, CALM_ROLE_DOWN};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (weight[roles[i]].w && !(weight[roles[i]].ints && weight[roles[i]].act_bits))
            return false;
    return weight[CALM_ROLE_DOWN].ints;
}

/* Returns the rows to run together. */
static size_t rows_at_once(const calm_ctx *ctx, const calm_weight weight[CALM_N_ROLES], size_t n,
                           const calm_observer *observer)
{
    const size_t row = weight[CALM_ROLE_DOWN].in * sizeof(float),
                 steps = calm_size_max(INNER_BYTES / (row * ROWS_STEP), 1);
    return observer || !in_integers(weight) ? calm_size_max(n, 1) : steps * ROWS_STEP * (size_t)ctx->n_threads;
}

calm_status calm_mlp_run(calm_ctx *ctx, const calm_config *config, const calm_weight weight[CALM_N_ROLES],
                         const float *h, size_t n, float *out, const calm_observer *observer,
                         const calm_observation *seen)
{
    const size_t width = weight[CALM_ROLE_DOWN].out, most = rows_at_once(ctx, weight, n, observer);
    for (size_t row = 0; row < n; row += most)
        CALM_TRY(run_rows(ctx, config, weight, h + row * width, calm_size_min(most, n - row), out + row * width,
                          observer, seen));
    return CALM_OK;
}

/* ---- sublayers ---- */

/* Computes f of a dense sublayer, between its IN norm and its OUT norm. */
static calm_status sublayer_function(calm_ctx *ctx, const calm_block *block, calm_sublayer sublayer,
                                     const calm_rope *rope, const float *h, const calm_span *span, float *out,
                                     const calm_observer *observer)
{
    return calm_kind_dense(block->config, sublayer)->run(ctx, block, rope, h, span, out, observer);
}

calm_status calm_block_from_job(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, calm_job_kind job,
                                const float *input, const calm_span *span, float *out)
{
    /* The input is either that of f, which runs as a whole, or that of its last product. */
    const calm_sublayer sublayer = calm_job_sublayer(job);
    calm_role last;
    if (calm_job_is_last(block->config, job, &last)) {
        CALM_TRY(calm_weight_apply(ctx, &block->weight[last], input, span->n_tokens, out));
    } else {
        CALM_TRY(sublayer_function(ctx, block, sublayer, rope, input, span, out, NULL));
    }
    calm_norm_all(ctx, &block->norm[sublayer][CALM_NORM_OUT], out, span->n_tokens, out);
    calm_block_scale(ctx, block->config, span->n_tokens, out);
    return CALM_OK;
}

/* Operands of a residual addition. */
typedef struct add_task {
    size_t width;
    const float *x;
    float *y;
} add_task;

static void add_rows(size_t first, size_t n, void *user)
{
    const add_task *task = user;
    const size_t at = first * task->width;
    calm_vec_add(n * task->width, task->x + at, task->y + at);
}

/* combine_task serves with inner = D and a = y [T, D]. */
static void scale_rows(size_t first, size_t n, void *user)
{
    const combine_task *task = user;
    calm_vec_scale(n * task->inner, task->config->residual_scale, task->a + first * task->inner);
}

void calm_block_scale(calm_ctx *ctx, const calm_config *config, size_t n, float *y)
{
    /* The family has no factor. */
    if (config->residual_scale == 0)
        return;
    calm_parallel_each_rows(ctx, n, scale_rows, &(combine_task){.config = config, .inner = config->hidden, .a = y});
}

calm_status calm_block_transform(calm_ctx *ctx, const calm_config *config, calm_sublayer sublayer, size_t n, float *h)
{
    return calm_hadamard_rows(ctx, config, calm_slot_first_job(config, sublayer), n, config->hidden, h);
}

size_t calm_block_transform_bytes(const calm_config *config, calm_sublayer sublayer)
{
    return calm_hadamard_bytes(config, calm_slot_first_job(config, sublayer), config->hidden);
}

void calm_block_rows_add(calm_ctx *ctx, size_t n, size_t width, const float *x, float *y)
{
    calm_parallel_each_rows(ctx, n, add_rows, &(add_task){width, x, y});
}

calm_status calm_block_add(calm_ctx *ctx, const calm_block *block, calm_sublayer sublayer, float *y, float *x,
                           const calm_span *span, const calm_observer *observer)
{
    const size_t width = block->config->hidden;
    const calm_observation seen = {.expert = CALM_NO_EXPERT, .window = span->window};
    const calm_hook hook = calm_sublayer_output(sublayer);
    calm_norm_all(ctx, &block->norm[sublayer][CALM_NORM_OUT], y, span->n_tokens, y);
    calm_block_scale(ctx, block->config, span->n_tokens, y);
    CALM_TRY(observe_as(observer, ctx, &seen, hook, y, span->n_tokens, width));
    calm_block_rows_add(ctx, span->n_tokens, width, y, x);
    calm_norm_all(ctx, &block->norm[sublayer][CALM_NORM_RESIDUAL], x, span->n_tokens, x);
    CALM_TRY(calm_streams_after(ctx, block, sublayer, x, span, observer));
    if (sublayer != calm_block_last_slot(block->config))
        return CALM_OK;
    /* With residual streams the tail is part of calm_streams_after. */
    if (!block->config->streams.n)
        CALM_TRY(calm_tail_run(ctx, block, x, span, observer, NULL));
    return observe_as(observer, ctx, &seen, CALM_HOOK_BLOCK_OUT, x, span->n_tokens, width);
}

calm_status calm_block_sublayer(calm_ctx *ctx, const calm_block *block, calm_sublayer sublayer, const calm_rope *rope,
                                float *x, const calm_span *span, const calm_observer *observer)
{
    const size_t n = span->n_tokens * block->config->hidden;
    const calm_norm *in = &block->norm[sublayer][CALM_NORM_IN];
    const bool parallel = block->config->arch->parallel;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(calm_check_interrupt(ctx));
    /* In some families a block is one sublayer, and the other slot is empty. */
    if (!calm_kind_dense(block->config, sublayer))
        return CALM_OK;
    /* Without an IN norm f reads x itself; x is written only after f is done. */
    float *h = parallel ? span->shared : x, *out;
    if (!h)
        return calm_fail(ctx, CALM_EARG, "block %zu: its sublayers read the same rows, and have no room for them",
                         block->index);
    CALM_TRY(calm_streams_before(ctx, block, sublayer, x, span));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, out, n));
    if (in->w && !parallel)
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, h, n));
    if (in->w)
        calm_norm_all(ctx, in, x, span->n_tokens, h);
    CALM_TRY(calm_block_transform(ctx, block->config, sublayer, span->n_tokens, h));
    CALM_TRY(sublayer_function(ctx, block, sublayer, rope, h, span, out, observer));
    /* The low-rank branch reads the same normalised rows as attention. */
    CALM_TRY(calm_streams_branch(ctx, block, sublayer, h, x, span));
    return calm_block_add(ctx, block, sublayer, out, x, span, observer);
}

size_t calm_block_sublayer_scratch_bytes(const calm_config *config, calm_sublayer sublayer, size_t n_tokens,
                                         bool prepared)
{
    const size_t rows = CALM_BYTES(float, n_tokens * config->hidden);
    const bool own = config->arch->names->norm[sublayer][CALM_NORM_IN] && !config->arch->parallel;
    size_t most = 0;
    /* The maximum over blocks, where they differ. */
    for (size_t i = 0; i < (config->blocks ? config->n_blocks : 1); i++) {
        const calm_config *block = calm_config_at(config, i);
        const calm_kind *kind = calm_kind_dense(block, sublayer);
        if (!kind)
            continue;
        most = calm_size_max(most, kind->scratch_bytes(block, n_tokens, prepared));
        most = calm_size_max(most, calm_block_transform_bytes(block, sublayer));
    }
    /* h and out are still allocated while the tail runs; f's buffers are not. */
    const size_t tail = calm_tail_scratch_bytes(config, n_tokens), streams = calm_streams_bytes(config, n_tokens);
    return (own ? 2 : 1) * rows + calm_size_max(most, calm_size_max(tail, streams));
}

size_t calm_block_sublayer_helper_bytes(const calm_config *config, calm_sublayer sublayer, size_t n_tokens)
{
    size_t most = 0;
    for (size_t i = 0; i < (config->blocks ? config->n_blocks : 1); i++) {
        const calm_config *block = calm_config_at(config, i);
        const calm_kind *kind = calm_kind_dense(block, sublayer);
        most = calm_size_max(most, kind && kind->helper_bytes ? kind->helper_bytes(block, n_tokens) : 0);
    }
    return most;
}

calm_status calm_block_run(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, float *x,
                           const calm_span *span, const calm_observer *observer)
{
    calm_span own = *span;
    CALM_SCOPED_SCRATCH(ctx);
    if (block->config->arch->parallel)
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, own.shared, span->n_tokens * block->config->hidden));
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++)
        CALM_TRY(calm_block_sublayer(ctx, block, s, rope, x, &own, observer));
    return CALM_OK;
}
