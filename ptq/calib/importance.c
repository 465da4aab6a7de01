/* Importance matrix of a model. */
#include "ptq/calib/importance.h"

#include "ptq/arch/kind.h"
#include "ptq/calib/capture.h"
#include "ptq/layers/moe.h"

/* Limit for hidden states of a batch.  Fixed, not taken from the free memory: batches decide the order of the sums. */
#define BATCH_BYTES ((size_t)1 << 30)

/* Limit for the outputs of the experts of a wave. */
#define WAVE_BYTES CALM_MOE_WAVE_BYTES

typedef struct collector {
    const calm_model *model;
    calm_rope rope;
    calm_batch batch;
    calm_job_importance *jobs;    /* [n_jobs] */
    double **sums;                /* [n_jobs] writable sumsq of jobs */
    calm_kv_peaks *peaks;         /* [n_blocks] or NULL */
    size_t done, total;           /* blocks done, of the blocks of all batches */
} collector;

/* Adds the sums of a capture. */
static void add(collector *to, size_t block, const calm_capture *seen)
{
    const calm_layout *layout = calm_model_layout(to->model);
    size_t begin, end;
    calm_layout_fold_set(layout, block, seen->sublayer, seen->expert, &begin, &end);
    for (size_t j = begin; j < end; j++) {
        const calm_job_capture *job = &seen->job[layout->jobs[j].kind];
        if (!job->used || !job->stats.sumsq)
            continue;
        to->jobs[j].rows += job->stats.rows;
        for (size_t i = 0; i < job->width; i++)
            to->sums[j][i] += job->stats.sumsq[i];
    }
}

/* Captures attention, a dense MLP or the shared expert, and adds its sums. */
static calm_status run_sublayer(calm_ctx *ctx, collector *to, const calm_block *block, calm_sublayer sublayer,
                                long expert)
{
    const calm_capture_options options = {.jobs = CALM_CAPTURE_ALL_JOBS, .stay = expert == CALM_SHARED_EXPERT,
                                          .unweighted = true};
    calm_capture seen;
    CALM_TRY(calm_capture_sublayer(ctx, block, sublayer, expert, &to->rope, &to->batch, &options, &seen));
    add(to, block->index, &seen);
    return CALM_OK;
}

/* Captures all experts of a block and adds their sums; weights and captures of a wave are freed before the next. */
static calm_status run_waves(calm_ctx *ctx, collector *to, const calm_block *block, const calm_routing *routing,
                             calm_moe_sum *sum)
{
    const calm_capture_options options = {.jobs = CALM_CAPTURE_ALL_JOBS, .unweighted = true};
    for (size_t first = 0, n; first < block->config->moe.n_experts; first += n) {
        calm_capture *seen;
        CALM_SCOPED_RESULTS(ctx);
        n = calm_moe_wave(block, routing, first, WAVE_BYTES);
        CALM_TRY(CALM_NEW(ctx, ctx->out, seen, n));
        CALM_TRY(calm_capture_experts(ctx, block, &to->batch, routing, first, n, &options, sum, seen));
        for (size_t i = 0; i < n; i++)
            add(to, block->index, &seen[i]);
    }
    return CALM_OK;
}

/* Runs a mixture: the shared expert reads the block's input, so it runs before the sum is added to it. */
static calm_status run_mixture(calm_ctx *ctx, collector *to, const calm_block *block)
{
    calm_routing routing;
    CALM_SCOPED_MOE_SUM(sum);
    CALM_TRY(calm_moe_route(ctx, block, &to->batch, NULL, &routing));
    if (calm_moe_has_shared(block))
        CALM_TRY(run_sublayer(ctx, to, block, CALM_SUBLAYER_MLP, CALM_SHARED_EXPERT));
    CALM_TRY(calm_moe_begin(ctx, block->config, &to->batch, ctx->out, &sum));
    CALM_TRY(run_waves(ctx, to, block, &routing, &sum));
    return calm_moe_end(ctx, block, &to->batch, NULL, &sum);
}

/* Runs one block over the batch, whose hidden states are then the next block's input. */
static calm_status run_block(calm_ctx *ctx, collector *to, size_t index)
{
    calm_block block;
    CALM_SCOPED_RESULTS(ctx);
    CALM_TRY(calm_model_load_block(ctx, to->model, index, &block));
    block.kv_peaks = to->peaks ? &to->peaks[index] : NULL;
    if (calm_block_kind(&block, CALM_SUBLAYER_ATTENTION))
        CALM_TRY(run_sublayer(ctx, to, &block, CALM_SUBLAYER_ATTENTION, CALM_NO_EXPERT));
    if (block.moe.router)
        return run_mixture(ctx, to, &block);
    return calm_block_kind(&block, CALM_SUBLAYER_MLP)
               ? run_sublayer(ctx, to, &block, CALM_SUBLAYER_MLP, CALM_NO_EXPERT) : CALM_OK;
}

/* ---- memory ---- */

/* Bytes of a mixture's experts for a batch of `n` windows: routing, sum, and one wave. */
static size_t mixture_bytes(const calm_model *model, size_t block, const calm_capture_shape *shape,
                            const calm_capture_options *options, size_t n_threads)
{
    const calm_config *config = calm_model_config(model);
    const calm_moe_config *moe = &config->moe;
    const size_t tokens = shape->rows * moe->top_k / moe->n_experts + 1;    /* an even share */
    const size_t output = CALM_BYTES(float, tokens * calm_expert_width(config, 0));
    const size_t n = calm_size_min(moe->n_experts, 1 + WAVE_BYTES / output);
    calm_capture_shape expert = *shape;
    expert.expert = 0;
    expert.rows = tokens;
    expert.most_rows = calm_moe_busiest_tokens(moe, shape->rows);
    const size_t ends = calm_size_min(n_threads, shape->n_windows) * calm_moe_end_scratch_bytes(config, shape->longest);
    const size_t wave = n * calm_model_load_expert_bytes(model, block) + CALM_BYTES(calm_capture, n) +
                        calm_capture_experts_bytes(&expert, options, n) +
                        calm_capture_experts_scratch_bytes(&expert, options, n, n_threads);
    return calm_moe_route_bytes(config, shape->rows, shape->n_windows) +
           calm_row_store_bytes(shape->rows, calm_expert_width(config, 0)) + calm_size_max(wave, ends);
}

/* Bytes of a block with its captured statistics, which are freed at its end. */
static size_t block_bytes(const calm_model *model, size_t block, calm_capture_shape *shape, size_t n_threads)
{
    calm_capture_options options = {.jobs = CALM_CAPTURE_ALL_JOBS, .unweighted = true};
    size_t held = 0, most = 0;
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++) {
        const bool mixture = s == CALM_SUBLAYER_MLP && shape->config->moe.sparse[block];
        if (!calm_kind_at(calm_model_config(model), block, s))
            continue;
        shape->config = calm_config_at(calm_model_config(model), block);
        held += calm_model_load_sublayer_bytes(model, block, s);
        shape->sublayer = s;
        shape->expert = mixture ? CALM_SHARED_EXPERT : CALM_NO_EXPERT;
        /* The shared expert is captured separately, and leaves the hidden states unchanged. */
        options.stay = mixture;
        if (!mixture || shape->config->moe.shared_inner) {
            held += calm_capture_bytes(shape, &options);
            most = calm_size_max(most, calm_capture_sublayer_scratch_bytes(shape, &options, n_threads));
        }
        if (mixture)
            most = calm_size_max(most, mixture_bytes(model, block, shape, &options, n_threads));
    }
    return held + most;
}

size_t calm_importance_collect_bytes(const calm_model *model, size_t longest)
{
    const calm_layout *layout = calm_model_layout(model);
    size_t bytes = CALM_BYTES(calm_job_importance, layout->n_jobs) + CALM_BYTES(double *, layout->n_jobs);
    for (size_t j = 0; j < layout->n_jobs; j++)
        bytes += CALM_BYTES(double, layout->jobs[j].in);
    return bytes + calm_rope_bytes(calm_model_config(model), longest);
}

size_t calm_importance_collect_scratch_bytes(const calm_model *model, size_t n_windows, size_t longest,
                                             size_t n_threads)
{
    const calm_config *config = calm_model_config(model);
    const size_t n = calm_size_min(n_windows, calm_batch_count(n_windows, longest, config->hidden, BATCH_BYTES));
    calm_capture_shape shape = {.config = config, .rows = n * longest, .n_windows = n, .longest = longest};
    size_t most = 0;
    for (size_t b = 0; b < config->n_blocks; b++)
        most = calm_size_max(most, block_bytes(model, b, &shape, n_threads));
    return calm_row_store_bytes(shape.rows, calm_batch_width(config)) + calm_batch_share_bytes(config, shape.rows) +
           most;
}

/* ---- batches ---- */

/* Runs all blocks over windows first .. first + n - 1. */
static calm_status run_batch(calm_ctx *ctx, collector *to, const calm_windows *windows, size_t first, size_t n,
                             calm_tick_fn *tick, void *tick_user)
{
    /* Hidden states are in memory, so there is no file to close. */
    CALM_SCOPED_ARENA(rows);
    CALM_TRY(calm_batch_embed(ctx, to->model, windows, first, n, &rows, NULL, &to->batch));
    CALM_TRY(calm_batch_new_shared(ctx, calm_model_config(to->model), &rows, &to->batch));
    for (size_t i = 0; i < calm_model_config(to->model)->n_blocks; i++) {
        CALM_TRY(run_block(ctx, to, i));
        if (tick)
            tick(tick_user, ++to->done, to->total);
    }
    return CALM_OK;
}

calm_status calm_importance_collect(calm_ctx *ctx, const calm_model *model, const calm_windows *windows,
                                    const char *dataset, calm_kv_peaks *peaks, calm_tick_fn *tick, void *tick_user,
                                    calm_importance *out)
{
    const calm_layout *layout = calm_model_layout(model);
    const calm_config *config = calm_model_config(model);
    const size_t most = calm_batch_windows(windows, config->hidden, BATCH_BYTES);
    collector to = {.model = model, .peaks = peaks, .total = (windows->n + most - 1) / most * config->n_blocks};
    CALM_TRY(CALM_NEW(ctx, ctx->out, to.jobs, layout->n_jobs));
    CALM_TRY(CALM_NEW(ctx, ctx->out, to.sums, layout->n_jobs));
    for (size_t j = 0; j < layout->n_jobs; j++) {
        CALM_TRY(CALM_NEW(ctx, ctx->out, to.sums[j], layout->jobs[j].in));
        to.jobs[j].width = layout->jobs[j].in;
        /* The result points to the sums as const; this file writes them through `sums`. */
        to.jobs[j].sumsq = to.sums[j];
    }
    CALM_TRY(calm_rope_init(ctx, config, calm_windows_reach(windows), &to.rope));
    for (size_t first = 0, n; first < windows->n; first += n) {
        n = windows->n - first < most ? windows->n - first : most;
        CALM_TRY(run_batch(ctx, &to, windows, first, n, tick, tick_user));
    }
    *out = (calm_importance){.n_jobs = layout->n_jobs, .jobs = to.jobs, .dataset = dataset, .n_windows = windows->n,
                             .window = windows->longest};
    return CALM_OK;
}
