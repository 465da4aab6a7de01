/* Capture of one sublayer, window by window. */
#include "ptq/calib/capture.h"

#include <string.h>

#include "ptq/arch/kind.h"
#include "ptq/base/rng.h"
#include "ptq/base/threads.h"
#include "ptq/calib/gram.h"

/* The statistics of one window, until they are merged in window order. */
typedef struct window_part {
    calm_channel_sums sums[CALM_N_JOBS];
    calm_actstat_acc *activations[CALM_N_HOOKS];
} window_part;

typedef struct capture_state {
    const calm_block *block;
    const calm_rope *rope;
    const calm_capture_options *options;
    calm_batch *batch;
    calm_capture *out;
    size_t first, n, rows;                 /* windows of the batch that are run now, and their rows */
    size_t *row_begin;                     /* [n + 1] first row of each window in the group         */
    size_t held;                           /* held-out rows of the batch, the first ones            */
    float *gate;                           /* [tokens] gates of a shared expert, which weight its rows; or NULL */
    float *score_gate;                     /* [n] gates of the scoring rows                         */
    float *inputs[CALM_N_JOBS], *exact[CALM_N_JOBS];    /* [rows, I] for X^T X; behind float blocks, for X^T Y */
    calm_job_sums sums[CALM_N_JOBS];
    window_part *parts;                    /* [n]                                                 */
} capture_state;

/* ---- shared pieces ---- */

void calm_job_rows_weigh(const float *x, size_t n, size_t width, const float *weight, float *out)
{
    for (size_t t = 0; t < n; t++) {
        const float factor = weight ? weight[t] : 1;
        for (size_t i = 0; i < width; i++)
            out[t * width + i] = factor * x[t * width + i];
    }
}

typedef struct weigh_task {
    const float *x, *weight;
    size_t width;
    float *out;
} weigh_task;

static void weigh_rows(size_t first, size_t n, void *user)
{
    const weigh_task *task = user;
    const size_t at = first * task->width;
    calm_job_rows_weigh(task->x + at, n, task->width, task->weight ? task->weight + first : NULL, task->out + at);
}

/* Computes calm_job_rows_weigh on ctx's threads. */
static void weigh_all(calm_ctx *ctx, const float *x, size_t n, size_t width, const float *weight, float *out)
{
    calm_parallel_each_rows(ctx, n, weigh_rows, &(weigh_task){x, weight, width, out});
}

/* The least rows that are kept, if there are as many. */
#define SAMPLES_LEAST ((size_t)8192)
#define SAMPLES_PER_INPUT ((size_t)8)
/* The seed of the draw; any would do, and every run uses the same. */
#define SAMPLES_SEED 0

/* A fit of I inputs solves I equations: it gets eight rows for each, and at least as many as narrow layers need. */
static size_t samples_wanted(size_t width)
{
    return calm_size_max(SAMPLES_PER_INPUT * width, SAMPLES_LEAST);
}

/* Returns k: one of k rows is kept. */
static size_t sample_step(size_t rows, size_t width)
{
    const size_t wanted = samples_wanted(width);
    return rows > wanted ? rows / wanted : 1;
}

size_t calm_sample_most(size_t rows, size_t width)
{
    /* The step rises from 1 to 2 at twice the wanted rows: just below that the most rows are kept. */
    return calm_size_min(rows, 2 * samples_wanted(width) - 1);
}

size_t calm_sample_count(size_t rows, size_t width)
{
    const size_t step = sample_step(rows, width);
    return rows / step + (rows % step != 0);
}

/* Returns the row that is kept of rows group * step .. + step - 1.  It is drawn at random: a fixed place would be the
 * same place in every window if the step divides their length, such as the first token, whose activations are unlike
 * others. */
static size_t kept_row(const calm_job_sums *sums, size_t group)
{
    const size_t begin = group * sums->step, n = calm_size_min(sums->step, sums->rows - begin);
    return begin + (size_t)(calm_rng_uniform(SAMPLES_SEED, 0, group) * (double)n);
}

void calm_job_samples_keep(const calm_job_sums *sums, size_t first, const float *x, size_t n, size_t width,
                           const float *weight)
{
    if (!sums->samples)
        return;
    /* Which rows are kept depends only on their numbers, not on how they are divided into calls. */
    for (size_t group = first / sums->step; group * sums->step < first + n; group++) {
        const size_t row = kept_row(sums, group);
        if (row >= first && row < first + n)
            calm_job_rows_weigh(x + (row - first) * width, 1, width, weight ? weight + (row - first) : NULL,
                            sums->samples + group * width);
    }
}

/* Returns true if statistics or scoring rows of a job's input are kept. */
static bool is_kept(const calm_capture_options *options, const calm_config *config, calm_sublayer sublayer,
                    calm_job_kind kind)
{
    return (options->jobs | options->inputs) & 1u << kind && calm_slot_has_job(config, sublayer, kind);
}

/* Returns true if the sublayer reads keys and values that an earlier block computed (calm_span.carried). */
static bool reads_carried(const calm_config *config, calm_sublayer sublayer)
{
    return sublayer == CALM_SUBLAYER_ATTENTION && config->kv == CALM_KV_SHARED;
}

calm_status calm_job_captures_new(calm_ctx *ctx, const calm_config *config, const calm_capture_options *options,
                                  calm_capture *out, calm_job_sums *sums)
{
    for (calm_job_kind kind = 0; kind < CALM_N_JOBS; kind++) {
        calm_job_capture *job = &out->job[kind];
        if (!is_kept(options, config, out->sublayer, kind))
            continue;
        /* Kept but not used: only scoring rows, no statistics. */
        job->used = options->jobs & 1u << kind;
        job->width = calm_hook_width(config, calm_job_input(kind), out->expert);
        if (out->score_rows)
            /* Raw: every row is written by exactly one window. */
            CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, job->score_input, out->score_rows * job->width));
        if (!job->used)
            continue;
        CALM_TRY(calm_channel_sums_new(ctx, ctx->out, job->width, &sums[kind].total));
        if (options->grams && out->rows)
            /* Zeroed: calm_gram_add adds to it. */
            CALM_TRY(CALM_NEW(ctx, ctx->out, sums[kind].gram, job->width * job->width));
        if (options->crosses && out->rows)
            CALM_TRY(CALM_NEW(ctx, ctx->out, sums[kind].cross, job->width * job->width));
        if (options->samples && out->rows) {
            sums[kind].rows = out->rows;
            sums[kind].step = sample_step(out->rows, job->width);
            const size_t n_kept = calm_sample_count(out->rows, job->width);
            CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, sums[kind].samples, n_kept * job->width));
        }
    }
    if (out->score_rows)
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, out->score_output,
                              out->score_rows * calm_expert_width(config, out->expert)));
    if (out->score_rows && reads_carried(config, out->sublayer))
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, out->score_carried, out->score_rows * config->carried));
    return CALM_OK;
}

size_t calm_job_captures_bytes(const calm_capture_shape *shape, const calm_capture_options *options)
{
    const size_t rows = shape->rows - shape->held_rows;
    const size_t output = calm_expert_width(shape->config, shape->expert);
    size_t bytes = shape->score_rows ? CALM_BYTES(float, shape->score_rows * output) : 0;
    if (shape->score_rows && reads_carried(shape->config, shape->sublayer))
        bytes += CALM_BYTES(float, shape->score_rows * shape->config->carried);
    for (calm_job_kind kind = 0; kind < CALM_N_JOBS; kind++) {
        const size_t width = calm_hook_width(shape->config, calm_job_input(kind), shape->expert);
        if (!is_kept(options, shape->config, shape->sublayer, kind))
            continue;
        bytes += shape->score_rows ? CALM_BYTES(float, shape->score_rows * width) : 0;
        if (!(options->jobs & 1u << kind))
            continue;
        bytes += calm_channel_sums_bytes(width);
        bytes += options->grams && rows ? calm_gram_bytes(width) : 0;
        bytes += options->crosses && rows ? calm_gram_bytes(width) : 0;
        /* An expert's number of tokens is not known, and fewer rows may keep more of them. */
        const size_t kept = (shape->expert < 0 ? calm_sample_count : calm_sample_most)(rows, width);
        bytes += options->samples && rows ? CALM_BYTES(float, kept * width) : 0;
    }
    return bytes;
}

void calm_job_captures_finish(calm_ctx *ctx, calm_capture *out, const calm_job_sums *sums)
{
    for (calm_job_kind kind = 0; kind < CALM_N_JOBS; kind++) {
        const calm_channel_sums *total = &sums[kind].total;
        calm_job_capture *job = &out->job[kind];
        /* The products fill only upper triangles; algorithms read both. */
        if (sums[kind].gram)
            calm_gram_mirror(ctx, job->width, sums[kind].gram);
        if (job->used)
            job->stats = (calm_stats){.rows = out->rows, .gram = sums[kind].gram, .absmax = total->absmax,
                                      .sum = total->sum, .sumsq = total->sumsq, .sumabs = total->sumabs,
                                      .samples = sums[kind].samples, .cross = sums[kind].cross,
                                      .n_samples = sums[kind].samples ? calm_sample_count(out->rows, job->width) : 0};
    }
}

/* ---- one window ---- */

/* Returns the number of scoring rows before window `window` of the batch. */
static size_t score_row(const calm_batch *batch, const calm_capture_options *options, size_t window)
{
    const size_t n = calm_size_min(calm_size_min(window, options->score_windows), batch->n);
    size_t rows = 0;
    for (size_t w = 0; w < n; w++)
        rows += options->score_tokens ? calm_size_min(calm_batch_tokens(batch, w), options->score_tokens)
                                      : calm_batch_tokens(batch, w);
    return rows;
}

/* Copies a window's scoring rows, if it has any, to their place in `kept`. */
static void keep_rows(calm_ctx *ctx, float *kept, const capture_state *state, const calm_observation *seen,
                      const float *weight)
{
    const size_t window = seen->window - state->batch->first;
    const size_t row = score_row(state->batch, state->options, window),
                 end = score_row(state->batch, state->options, window + 1);
    if (!kept || row >= end)
        return;
    weigh_all(ctx, seen->x, end - row, seen->width, weight, kept + row * seen->width);
}

/* The observer: runs in the worker of a window, and writes only the data of this window. */
static calm_status observe_window(void *user, calm_ctx *ctx, const calm_observation *seen)
{
    capture_state *state = user;
    const size_t window = seen->window - state->batch->first, index = window - state->first;
    const size_t row = calm_batch_row(state->batch, window);
    const float *gate = state->gate ? state->gate + row : NULL, *weight;
    window_part *part = &state->parts[index];
    for (calm_job_kind kind = 0; kind < CALM_N_JOBS; kind++) {
        calm_job_capture *job = &state->out->job[kind];
        if (calm_job_input(kind) != seen->hook)
            continue;
        keep_rows(ctx, job->score_input, state, seen, NULL);
        if (!job->used || row < state->held)    /* no statistics, or the window is held out */
            continue;
        CALM_SCOPED_SCRATCH(ctx);
        CALM_TRY(calm_job_row_factors(ctx, state->options, kind, gate, row, NULL, seen->n_rows, &weight));
        /* Gram matrices are computed after all windows of the group have run: a product over many rows, in one
         * order. */
        if (state->inputs[kind])
            weigh_all(ctx, seen->x, seen->n_rows, seen->width, weight,
                      state->inputs[kind] + state->row_begin[index] * seen->width);
        calm_channel_sums_add(ctx, seen->x, seen->n_rows, seen->width, weight, &part->sums[kind]);
        calm_job_samples_keep(&state->sums[kind], row - state->held, seen->x, seen->n_rows, seen->width, weight);
    }
    /* The sublayer's output is what candidates are compared with. */
    if (seen->hook == calm_sublayer_output(state->out->sublayer) && !state->options->exact)
        keep_rows(ctx, state->out->score_output, state, seen, gate);
    if (part->activations[seen->hook])
        return calm_actstat_add(ctx, part->activations[seen->hook], seen->x, seen->n_rows, (uint32_t)seen->window, 0);
    return CALM_OK;
}

/* The observer of the same window behind float blocks: keeps inputs for X^T Y, and the output that candidates are
 * compared with. */
static calm_status observe_exact(void *user, calm_ctx *ctx, const calm_observation *seen)
{
    capture_state *state = user;
    const size_t window = seen->window - state->batch->first, index = window - state->first;
    const size_t row = calm_batch_row(state->batch, window);
    const float *weight;
    for (calm_job_kind kind = 0; kind < CALM_N_JOBS; kind++) {
        if (calm_job_input(kind) != seen->hook || !state->exact[kind] || row < state->held)
            continue;
        /* With the factors of the rows of X. */
        CALM_TRY(calm_job_row_factors(ctx, state->options, kind, NULL, row, NULL, seen->n_rows, &weight));
        weigh_all(ctx, seen->x, seen->n_rows, seen->width, weight,
                  state->exact[kind] + state->row_begin[index] * seen->width);
    }
    if (seen->hook == calm_sublayer_output(state->out->sublayer))
        keep_rows(ctx, state->out->score_output, state, seen, NULL);
    return CALM_OK;
}

/* Copies a window's keys and values of earlier blocks for its scoring rows. */
static void keep_carried(const capture_state *state, size_t window, const calm_span *span)
{
    const size_t row = score_row(state->batch, state->options, window),
                 end = score_row(state->batch, state->options, window + 1), width = state->block->config->carried;
    if (state->out->score_carried && end > row)
        memcpy(state->out->score_carried + row * width, span->carried, (end - row) * width * sizeof *span->carried);
}

/* Runs and observes one window of a batch; its hidden states are changed unless options->stay is set. */
static calm_status run_rows(calm_ctx *ctx, capture_state *state, calm_batch *batch, size_t window,
                            const calm_observer *observer)
{
    calm_span span;
    float *x, *copy;
    CALM_SCOPED_SCRATCH(ctx);
    /* Includes the rows that both sublayers share, if the family has them. */
    CALM_TRY(calm_batch_get(ctx, batch, window, &span, &x));
    if (batch == state->batch)
        keep_carried(state, window, &span);
    if (!state->options->stay) {
        CALM_TRY(calm_block_sublayer(ctx, state->block, state->out->sublayer, state->rope, x, &span, observer));
        return calm_batch_put(ctx, batch, window, &span, x);
    }
    /* On a copy: the caller runs the same rows again, with other weights. */
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, copy, span.n_tokens * batch->width));
    memcpy(copy, x, span.n_tokens * batch->width * sizeof *x);
    span.carried = calm_batch_carried(batch, &span, copy);
    return calm_block_sublayer(ctx, state->block, state->out->sublayer, state->rope, copy, &span, observer);
}

/* Task: runs one window of each batch. */
static calm_status run_window(calm_ctx *ctx, size_t i, void *user)
{
    capture_state *state = user;
    const size_t window = state->first + i, row = calm_batch_row(state->batch, window);
    const calm_observer observer = {observe_window, state}, exact = {observe_exact, state};
    float *x, *h, *y;
    CALM_TRY(state->options->exact ? run_rows(ctx, state, state->options->exact, window, &exact) : CALM_OK);
    if (state->out->expert != CALM_SHARED_EXPERT)
        return run_rows(ctx, state, state->batch, window, &observer);
    const calm_span span = calm_batch_span(state->batch, window);    /* a shared expert: only observed */
    CALM_TRY(calm_row_store_get(ctx, &state->batch->hidden, row, span.n_tokens, &x));
    if (state->gate)
        CALM_TRY(calm_moe_shared_gate(ctx, state->block, x, span.n_tokens, state->gate + row));
    return calm_moe_shared(ctx, state->block, x, &span, &observer, &h, &y);
}

/* ---- buffers ---- */

/* Returns true if statistics of this hook point are collected. */
static bool watched(const capture_state *state, calm_hook hook)
{
    return state->options->activations && calm_hook_in_slot(state->block->config, state->out->sublayer,
                                                            state->out->expert, hook);
}

/* Allocates results in ctx->out. */
static calm_status new_results(calm_ctx *ctx, capture_state *state)
{
    const calm_config *config = state->block->config;
    const calm_capture_options *options = state->options;
    calm_capture *out = state->out;
    out->tokens = state->batch->rows;
    state->held = calm_batch_row(state->batch, calm_size_min(options->held_windows, state->batch->n));
    out->rows = out->tokens - state->held;
    out->score_rows = score_row(state->batch, options, state->batch->n);
    CALM_TRY(calm_job_captures_new(ctx, config, options, out, state->sums));
    if (out->expert == CALM_SHARED_EXPERT && !options->unweighted)
        /* Raw: each window writes its gates before its rows are observed. */
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, state->gate, out->tokens));
    if (state->gate && out->score_rows)
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, state->score_gate, out->score_rows));
    out->score_weight = state->score_gate;
    for (calm_hook hook = 0; hook < CALM_N_HOOKS; hook++) {
        const size_t width = calm_hook_width(config, hook, out->expert);
        if (!watched(state, hook))
            continue;
        CALM_TRY(calm_actstat_new(ctx, ctx->out, width, state->batch->rows, &out->activations[hook]));
        CALM_TRY(calm_actstat_texts_new(ctx, ctx->out, state->batch, width, &out->of_text[hook]));
    }
    return CALM_OK;
}

/* Returns the number of rows before a window that are not held out. */
static size_t fitted_row(const capture_state *state, size_t window)
{
    return calm_size_max(calm_batch_row(state->batch, window), state->held) - state->held;
}

/* Allocates the buffers of a group in ctx->scratch. */
static calm_status new_group(calm_ctx *ctx, capture_state *state)
{
    const calm_config *config = state->block->config;
    const calm_batch *batch = state->batch;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, state->row_begin, state->n + 1));
    for (size_t i = 0; i <= state->n; i++)
        /* Chunks of a Gram matrix end at windows, so its bits do not depend on the division into groups. */
        state->row_begin[i] = fitted_row(state, state->first + i) - fitted_row(state, state->first);
    state->rows = state->row_begin[state->n];
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, state->parts, state->n));
    for (calm_job_kind kind = 0; kind < CALM_N_JOBS; kind++) {
        const size_t cells = state->rows * state->out->job[kind].width;
        if (state->sums[kind].gram)
            CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, state->inputs[kind], cells));
        if (state->sums[kind].cross)
            CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, state->exact[kind], cells));
    }
    for (size_t w = 0; w < state->n; w++) {
        /* One part per window, although there are fewer workers: merged by window number, sums do not depend on which
         * worker ran which window. */
        window_part *part = &state->parts[w];
        for (calm_job_kind kind = 0; kind < CALM_N_JOBS; kind++)
            if (state->out->job[kind].used)
                CALM_TRY(calm_channel_sums_new(ctx, ctx->scratch, state->out->job[kind].width, &part->sums[kind]));
        for (calm_hook hook = 0; hook < CALM_N_HOOKS; hook++)
            if (watched(state, hook))
                CALM_TRY(calm_actstat_new(ctx, ctx->scratch, calm_hook_width(config, hook, state->out->expert),
                                      calm_batch_tokens(batch, state->first + w), &part->activations[hook]));
    }
    return CALM_OK;
}

/* ---- merging, in window order ---- */

/* Adds `from` to `into`, channel by channel. */
static void merge_sums(calm_channel_sums *into, const calm_channel_sums *from, size_t width)
{
    for (size_t i = 0; i < width; i++) {
        into->absmax[i] = from->absmax[i] > into->absmax[i] ? from->absmax[i] : into->absmax[i];
        into->sum[i] += from->sum[i];
        into->sumsq[i] += from->sumsq[i];
        into->sumabs[i] += from->sumabs[i];
    }
}

/* Adds the group's parts to the totals, in window order. */
static calm_status merge_group(calm_ctx *ctx, capture_state *state)
{
    for (size_t w = 0; w < state->n; w++) {
        const window_part *part = &state->parts[w];
        for (calm_job_kind kind = 0; kind < CALM_N_JOBS; kind++)
            if (state->out->job[kind].used)
                merge_sums(&state->sums[kind].total, &part->sums[kind], state->out->job[kind].width);
        for (calm_hook hook = 0; hook < CALM_N_HOOKS; hook++) {
            if (!part->activations[hook])
                continue;
            CALM_TRY(calm_actstat_merge(ctx, state->out->activations[hook], part->activations[hook]));
            CALM_TRY(calm_actstat_texts_add(ctx, state->batch, state->first + w, part->activations[hook],
                                            state->out->of_text[hook]));
        }
    }
    return CALM_OK;
}

/* Computes all matrices of the group together, so that tiles of small ones fill idle threads. */
static calm_status add_grams(calm_ctx *ctx, capture_state *state)
{
    calm_gram_job jobs[2 * CALM_N_JOBS];
    size_t n = 0, rows = state->rows;
    for (calm_job_kind kind = 0; kind < CALM_N_JOBS; kind++) {
        const calm_job_sums *sums = &state->sums[kind];
        const size_t width = state->out->job[kind].width;
        const float *x = state->inputs[kind], *y = state->exact[kind];
        if (sums->gram)
            jobs[n++] = (calm_gram_job){sums->gram, x, rows, width, state->row_begin, state->n, NULL};
        if (sums->cross)
            jobs[n++] = (calm_gram_job){sums->cross, x, rows, width, state->row_begin, state->n, y};
    }
    CALM_SCOPED_TIME(state->options->times, CALM_TIME_GRAM);
    return n ? calm_gram_add(ctx, jobs, n) : CALM_OK;
}

/* Copies the gates of the scoring rows, after all windows have run. */
static void keep_gates(const capture_state *state)
{
    for (size_t w = 0; state->score_gate && w < state->batch->n; w++) {
        const size_t row = score_row(state->batch, state->options, w),
                     end = score_row(state->batch, state->options, w + 1);
        memcpy(state->score_gate + row, state->gate + calm_batch_row(state->batch, w),
               (end - row) * sizeof *state->gate);
    }
}

/* Runs one group of windows; the next group uses its memory again. */
static calm_status run_group(calm_ctx *ctx, capture_state *state)
{
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(new_group(ctx, state));
    CALM_TRY(calm_parallel_for(ctx, state->n, run_window, state));
    CALM_TRY(add_grams(ctx, state));
    return merge_group(ctx, state);
}

/* Threads that one long window keeps busy; with more threads several windows run in parallel. */
#define THREADS_OF_WINDOW ((size_t)8)

/* Returns the windows of a group; width: floats kept per token.  The result changes no bytes. */
static size_t windows_at_once(size_t n_windows, size_t longest, size_t width, const calm_capture_options *options,
                              size_t n_threads)
{
    if (options->group_bytes)
        return calm_batch_count(n_windows, longest, width, options->group_bytes);
    return calm_size_max(calm_batch_count(n_windows, longest, width, CALM_CAPTURE_GROUP_BYTES),
                         (n_threads + THREADS_OF_WINDOW - 1) / THREADS_OF_WINDOW);
}

calm_status calm_capture_sublayer(calm_ctx *ctx, const calm_block *block, calm_sublayer sublayer, long expert,
                                  const calm_rope *rope, calm_batch *batch, const calm_capture_options *options,
                                  calm_capture *out)
{
    capture_state state = {.block = block, .rope = rope, .options = options, .batch = batch, .out = out};
    *out = (calm_capture){.sublayer = sublayer, .expert = expert,
                          .weight = expert == CALM_SHARED_EXPERT ? block->moe.shared : block->weight};
    CALM_TRY(new_results(ctx, &state));
    /* Floats per token of all kept inputs; at least 1, because windows_at_once divides by it. */
    size_t width = 1;
    for (calm_job_kind kind = 0; kind < CALM_N_JOBS; kind++)
        width += out->job[kind].width;
    const size_t most = windows_at_once(batch->windows->n, batch->windows->longest, width, options,
                                        (size_t)ctx->n_threads);
    for (state.first = 0; state.first < batch->n; state.first += state.n) {
        state.n = batch->n - state.first < most ? batch->n - state.first : most;
        CALM_TRY(run_group(ctx, &state));
    }
    keep_gates(&state);
    calm_job_captures_finish(ctx, out, state.sums);
    return CALM_OK;
}

/* ---- memory ---- */

/* Returns the number of hook points whose statistics are collected. */
static size_t count_watched(const calm_capture_shape *shape, const calm_capture_options *options)
{
    size_t n = 0;
    for (calm_hook hook = 0; hook < CALM_N_HOOKS; hook++)
        n += options->activations && calm_hook_in_slot(shape->config, shape->sublayer, shape->expert, hook);
    return n;
}

size_t calm_capture_bytes(const calm_capture_shape *shape, const calm_capture_options *options)
{
    const bool gated = shape->expert == CALM_SHARED_EXPERT && !options->unweighted;
    return calm_job_captures_bytes(shape, options)
           + (gated ? CALM_BYTES(float, shape->rows) : 0)
           + (gated && shape->score_rows ? CALM_BYTES(float, shape->score_rows) : 0)
           + count_watched(shape, options) * (calm_actstat_new_bytes(shape->rows) +
                                              calm_actstat_texts_bytes(shape->n_texts, shape->rows));
}

/* Scratch bytes of a worker with one window. */
static size_t window_scratch_bytes(const calm_capture_shape *shape, const calm_capture_options *options)
{
    const calm_config *config = shape->config;
    const size_t tokens = shape->longest, rows = calm_row_store_bytes(tokens, calm_batch_width(config));
    const size_t read = shape->in_file ? rows + calm_batch_share_bytes(config, tokens) : 0;
    const size_t copy = options->stay ? rows : 0;
    if (shape->expert == CALM_SHARED_EXPERT)
        return read + 2 * rows + calm_mlp_run_scratch_bytes(config, CALM_SHARED_EXPERT, tokens, false) +
               (options->factors ? CALM_BYTES(float, tokens) : 0);
    return read + copy + calm_block_sublayer_scratch_bytes(config, shape->sublayer, tokens, false);
}

size_t calm_capture_sublayer_scratch_bytes(const calm_capture_shape *shape, const calm_capture_options *options,
                                           size_t n_threads)
{
    /* The same loop as in new_group: what it allocates, in the same order. */
    size_t widths[CALM_N_JOBS], n_grams = 0, width = 1, sums = 0, inputs = 0;
    for (calm_job_kind kind = 0; kind < CALM_N_JOBS; kind++) {
        if (!is_kept(options, shape->config, shape->sublayer, kind))
            continue;
        widths[n_grams] = calm_hook_width(shape->config, calm_job_input(kind), shape->expert);
        width += widths[n_grams];
        if (!(options->jobs & 1u << kind))
            continue;
        sums += calm_channel_sums_bytes(widths[n_grams]);
        n_grams += options->grams && shape->rows > shape->held_rows;
    }
    /* The division into groups of calm_capture_sublayer. */
    const size_t fitting = windows_at_once(shape->n_windows, shape->longest, width, options, n_threads);
    const size_t n = calm_size_min(shape->n_windows, fitting);
    const size_t rows = calm_size_min(shape->rows - shape->held_rows, n * shape->longest);
    for (size_t i = 0; i < n_grams; i++)
        inputs += (options->crosses ? 2 : 1) * CALM_BYTES(float, rows * widths[i]);
    const size_t each = sums + count_watched(shape, options) * calm_actstat_new_bytes(shape->longest);
    /* Threads without a window help with the attention heads of others. */
    const size_t workers = calm_size_min(n, n_threads);
    const size_t helper = calm_block_sublayer_helper_bytes(shape->config, shape->sublayer, shape->longest);
    /* Either the windows run or the matrices are multiplied, not both. */
    return CALM_BYTES(size_t, n + 1) + CALM_BYTES(window_part, n) + inputs + n * each +
           calm_size_max(workers * window_scratch_bytes(shape, options) + (n_threads - workers) * helper,
                         calm_gram_add_scratch_bytes(shape->operands, widths, n_grams, options->crosses,
                                                     n_threads));
}
