/* Capture of one block. */
#include "ptq/calib/capture.h"

#include <math.h>
#include <string.h>

#include "ptq/base/simd.h"
#include "ptq/base/threads.h"
#include "ptq/calib/gram.h"
#include "ptq/tensor/linalg.h"

/* Job inputs of the windows handled together; bounds memory, changes no result. */
#define GROUP_BYTES ((size_t)48 * 1024 * 1024)

/* Per-channel sums of one job's input. */
typedef struct channel_sums {
    float *absmax;
    double *sum, *sumsq, *sumabs;
} channel_sums;

/* What one window contributes, kept until it is merged in window order. */
typedef struct window_part {
    channel_sums sums[CALM_N_JOBS];
    calm_act_acc *activations[CALM_N_HOOKS];
} window_part;

typedef struct capture_state {
    const calm_capture_options *options;
    calm_capture *out;
    calm_batch group;                      /* the windows in progress, as a batch of its own      */
    size_t *row_begin;                     /* [group.n + 1] rows of the group                     */
    float *inputs[CALM_N_JOBS];            /* [rows of the group, I]                              */
    double *gram[CALM_N_JOBS];
    channel_sums total[CALM_N_JOBS];
    window_part *parts;                    /* [group.n]                                           */
    size_t group_windows;
} capture_state;

/* ---- one window ---- */

CALM_VECTORIZE static void add_channels(const float *x, size_t n, size_t width, channel_sums *sums)
{
    for (size_t t = 0; t < n; t++)
        for (size_t i = 0; i < width; i++) {
            const float value = x[t * width + i], magnitude = fabsf(value);
            sums->absmax[i] = magnitude > sums->absmax[i] ? magnitude : sums->absmax[i];
            sums->sum[i] += (double)value;
            sums->sumsq[i] += (double)value * (double)value;
            sums->sumabs[i] += (double)magnitude;
        }
}

static void keep_rows(float *kept, const calm_capture *out, const capture_state *state, size_t window, const float *x,
                      size_t n, size_t width)
{
    const size_t row = state->group.windows->begin[window] - state->group.windows->begin[0];
    if (kept && row + n <= out->score_rows)
        memcpy(kept + row * width, x, n * width * sizeof *x);
}

/* The observer: runs in the worker of this window and writes what belongs to this window alone. */
static calm_status observe_window(void *user, calm_ctx *ctx, calm_hook hook, size_t window, const float *x, size_t n,
                                  size_t width)
{
    capture_state *state = user;
    window_part *part = &state->parts[window - state->group.first];
    for (calm_job_kind job = 0; job < CALM_N_JOBS; job++) {
        if (calm_job_input(job) != hook)
            continue;
        if (state->inputs[job])
            memcpy(state->inputs[job] + state->row_begin[window - state->group.first] * width, x,
                   n * width * sizeof *x);
        add_channels(x, n, width, &part->sums[job]);
        keep_rows(state->out->score_input[job], state->out, state, window, x, n, width);
    }
    if (hook == CALM_HOOK_ATTN_OUT)
        keep_rows(state->out->score_output[CALM_SUBLAYER_ATTENTION], state->out, state, window, x, n, width);
    if (hook == CALM_HOOK_MLP_OUT)
        keep_rows(state->out->score_output[CALM_SUBLAYER_MLP], state->out, state, window, x, n, width);
    if (part->activations[hook])
        CALM_TRY(calm_act_add(ctx, part->activations[hook], x, n, (uint32_t)window, 0));
    return CALM_OK;
}

/* ---- buffers ---- */

static size_t hook_width(const calm_config *config, calm_hook hook)
{
    switch (hook) {
    case CALM_HOOK_O_IN:
        return config->n_heads * config->head_dim;
    case CALM_HOOK_GATE:
    case CALM_HOOK_DOWN_IN:
        return config->inner;
    default:
        return config->hidden;
    }
}

static bool hook_in_block(calm_hook hook)
{
    return hook != CALM_HOOK_EMBED && hook != CALM_HOOK_FINAL_NORM;
}

static calm_status new_sums(calm_ctx *ctx, calm_arena *arena, size_t width, channel_sums *sums)
{
    CALM_TRY(CALM_NEW(ctx, arena, sums->absmax, width));
    CALM_TRY(CALM_NEW(ctx, arena, sums->sum, width));
    CALM_TRY(CALM_NEW(ctx, arena, sums->sumsq, width));
    return CALM_NEW(ctx, arena, sums->sumabs, width);
}

static calm_status new_accumulator(calm_ctx *ctx, calm_arena *arena, size_t width, size_t tokens, calm_act_acc **out)
{
    CALM_TRY(CALM_NEW(ctx, arena, *out, 1));
    return calm_act_init(ctx, arena, width, tokens, *out);
}

/* Results, in ctx->out. */
static calm_status new_results(calm_ctx *ctx, const calm_block *block, const calm_batch *batch, capture_state *state)
{
    const calm_config *config = block->config;
    calm_capture *out = state->out;
    const size_t score_windows = state->options->score_windows < batch->n ? state->options->score_windows : batch->n;
    out->score_rows = calm_batch_row(batch, score_windows);
    for (calm_job_kind job = 0; job < CALM_N_JOBS; job++) {
        const size_t width = hook_width(config, calm_job_input(job));
        out->width[job] = width;
        CALM_TRY(new_sums(ctx, ctx->out, width, &state->total[job]));
        if (state->options->grams)
            CALM_TRY(CALM_NEW(ctx, ctx->out, state->gram[job], width * width));
        if (out->score_rows)
            CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, out->score_input[job], out->score_rows * width));
    }
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS && out->score_rows; s++)
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, out->score_output[s], out->score_rows * config->hidden));
    for (calm_hook hook = 0; hook < CALM_N_HOOKS && state->options->activations; hook++)
        if (hook_in_block(hook))
            CALM_TRY(new_accumulator(ctx, ctx->out, hook_width(config, hook), batch->rows, &out->activations[hook]));
    return CALM_OK;
}

/* Buffers of a group, in ctx->scratch. */
static calm_status new_group(calm_ctx *ctx, const calm_block *block, capture_state *state)
{
    const calm_config *config = block->config;
    const calm_batch *group = &state->group;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, state->row_begin, group->n + 1));
    for (size_t i = 0; i <= group->n; i++)
        state->row_begin[i] = calm_batch_row(group, i);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, state->parts, group->n));
    for (calm_job_kind job = 0; job < CALM_N_JOBS; job++)
        if (state->options->grams)
            CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, state->inputs[job], group->rows * state->out->width[job]));
    for (size_t w = 0; w < group->n; w++) {
        window_part *part = &state->parts[w];
        for (calm_job_kind job = 0; job < CALM_N_JOBS; job++)
            CALM_TRY(new_sums(ctx, ctx->scratch, state->out->width[job], &part->sums[job]));
        for (calm_hook hook = 0; hook < CALM_N_HOOKS && state->options->activations; hook++)
            if (hook_in_block(hook))
                CALM_TRY(new_accumulator(ctx, ctx->scratch, hook_width(config, hook), calm_batch_tokens(group, w),
                                         &part->activations[hook]));
    }
    return CALM_OK;
}

/* ---- merging, in window order ---- */

static void merge_sums(channel_sums *into, const channel_sums *from, size_t width)
{
    for (size_t i = 0; i < width; i++) {
        into->absmax[i] = from->absmax[i] > into->absmax[i] ? from->absmax[i] : into->absmax[i];
        into->sum[i] += from->sum[i];
        into->sumsq[i] += from->sumsq[i];
        into->sumabs[i] += from->sumabs[i];
    }
}

static calm_status merge_group(calm_ctx *ctx, capture_state *state)
{
    for (size_t w = 0; w < state->group.n; w++) {
        const window_part *part = &state->parts[w];
        for (calm_job_kind job = 0; job < CALM_N_JOBS; job++)
            merge_sums(&state->total[job], &part->sums[job], state->out->width[job]);
        for (calm_hook hook = 0; hook < CALM_N_HOOKS; hook++)
            if (part->activations[hook])
                CALM_TRY(calm_act_merge(ctx, state->out->activations[hook], part->activations[hook]));
    }
    return CALM_OK;
}

static calm_status add_grams(calm_ctx *ctx, capture_state *state)
{
    calm_gram_job jobs[CALM_N_JOBS];
    for (calm_job_kind job = 0; job < CALM_N_JOBS; job++)
        jobs[job] = (calm_gram_job){state->gram[job], state->inputs[job], state->group.rows, state->out->width[job],
                                    state->row_begin, state->group.n};
    return calm_gram_add(ctx, jobs, CALM_N_JOBS);
}

static calm_status run_group(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, capture_state *state)
{
    calm_arena_mark mark = calm_arena_save(ctx->scratch);
    CALM_TRY(new_group(ctx, block, state));
    calm_observer observer = {observe_window, state, 0};
    CALM_TRY(calm_batch_block(ctx, block, rope, &state->group, &observer));
    if (state->options->grams)
        CALM_TRY(add_grams(ctx, state));
    CALM_TRY(merge_group(ctx, state));
    calm_arena_rewind(ctx->scratch, mark);
    return CALM_OK;
}

static void publish(capture_state *state, size_t rows)
{
    for (calm_job_kind job = 0; job < CALM_N_JOBS; job++) {
        if (state->gram[job])
            calm_dsymmetrize(state->out->width[job], state->gram[job], state->out->width[job]);
        state->out->stats[job] = (calm_stats){.rows = rows,
                                              .gram = state->gram[job],
                                              .absmax = state->total[job].absmax,
                                              .sum = state->total[job].sum,
                                              .sumsq = state->total[job].sumsq,
                                              .sumabs = state->total[job].sumabs};
    }
}

calm_status calm_capture_block(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, calm_batch *batch,
                               const calm_capture_options *options, calm_capture *out)
{
    memset(out, 0, sizeof *out);
    capture_state state = {.options = options, .out = out};
    CALM_TRY(new_results(ctx, block, batch, &state));
    size_t width = 0;
    for (calm_job_kind job = 0; job < CALM_N_JOBS; job++)
        width += out->width[job];
    state.group_windows = calm_batch_windows(batch->windows, width, GROUP_BYTES);
    for (size_t w = 0; w < batch->n; w += state.group_windows) {
        const size_t n = batch->n - w < state.group_windows ? batch->n - w : state.group_windows;
        state.group = (calm_batch){.windows = batch->windows, .first = batch->first + w, .n = n, .width = batch->width,
                                   .rows = calm_batch_row(batch, w + n) - calm_batch_row(batch, w),
                                   .hidden = batch->hidden + calm_batch_row(batch, w) * batch->width};
        CALM_TRY(run_group(ctx, block, rope, &state));
    }
    publish(&state, batch->rows);
    return CALM_OK;
}

/* ---- rows outside the blocks ---- */

typedef struct rows_task {
    const calm_batch *batch;
    calm_act_acc **parts;    /* [n] */
} rows_task;

static calm_status add_rows(calm_ctx *ctx, size_t i, void *user)
{
    const rows_task *task = user;
    return calm_act_add(ctx, task->parts[i], task->batch->hidden + calm_batch_row(task->batch, i) * task->batch->width,
                        calm_batch_tokens(task->batch, i), (uint32_t)(task->batch->first + i), 0);
}

calm_status calm_capture_rows(calm_ctx *ctx, const calm_batch *batch, calm_act_acc **out)
{
    rows_task task = {.batch = batch};
    calm_arena_mark mark = calm_arena_save(ctx->scratch);
    CALM_TRY(new_accumulator(ctx, ctx->out, batch->width, batch->rows, out));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, task.parts, batch->n));
    for (size_t i = 0; i < batch->n; i++)
        CALM_TRY(new_accumulator(ctx, ctx->scratch, batch->width, calm_batch_tokens(batch, i), &task.parts[i]));
    CALM_TRY(calm_parallel_for(ctx, batch->n, add_rows, &task));
    for (size_t i = 0; i < batch->n; i++)
        CALM_TRY(calm_act_merge(ctx, *out, task.parts[i]));
    calm_arena_rewind(ctx->scratch, mark);
    return CALM_OK;
}
