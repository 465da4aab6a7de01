/* Capture of the experts of a mixture, each over the tokens routed to it. */
#include <string.h>

#include "ptq/arch/kind.h"
#include "ptq/calib/capture.h"
#include "ptq/calib/gram.h"

/* The capture of one expert; only its worker writes here. */
typedef struct expert_state {
    calm_capture *out;
    const calm_capture_options *options;
    const calm_batch *batch;
    const float *weight;                   /* [N] router weights of the expert's rows; or NULL */
    calm_job_sums sums[CALM_N_JOBS];
    size_t held;                           /* held-out rows, the first ones */
    size_t at[CALM_N_HOOKS], kept[CALM_N_HOOKS];    /* rows seen at each hook point; scoring rows kept */
} expert_state;

typedef struct experts_state {
    expert_state *experts;    /* [n] */
    size_t first, n;
    calm_weight (*weight)[CALM_N_ROLES];    /* [n] */
} experts_state;

/* ---- observing ---- */

/* Finds window and token of rows of the batch. */
static calm_status find_places(calm_ctx *ctx, const calm_batch *batch, const uint32_t *rows, size_t n,
                               calm_actstat_place **out)
{
    size_t window = 0;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, *out, n));
    for (size_t i = 0; i < n; i++) {
        /* An expert's rows are in rising order, so one walk over the windows finds all. */
        while (rows[i] >= calm_batch_row(batch, window) + calm_batch_tokens(batch, window))
            window++;
        (*out)[i] = (calm_actstat_place){(uint32_t)(batch->first + window),
                                         (uint32_t)(rows[i] - calm_batch_row(batch, window))};
    }
    return CALM_OK;
}

/* Returns true if a row is a scoring row; rows must be asked in rising order, *window is 0 at first. */
static bool is_scored(const expert_state *state, size_t *window, size_t row)
{
    const size_t n = calm_size_min(state->options->score_windows, state->batch->n);
    while (*window < n && row >= calm_batch_row(state->batch, *window) + calm_batch_tokens(state->batch, *window))
        ++*window;
    return *window < n && (!state->options->score_tokens ||
                           row - calm_batch_row(state->batch, *window) < state->options->score_tokens);
}

/* Appends the scoring rows among the observed rows to `to`. */
static void keep(float *to, expert_state *state, const calm_observation *seen, const float *weight)
{
    size_t *kept = &state->kept[seen->hook], window = 0;
    for (size_t i = 0; to && i < seen->n_rows; i++)
        if (is_scored(state, &window, seen->rows[i])) {
            const float *factor = weight ? weight + i : NULL;
            calm_job_rows_weigh(seen->x + i * seen->width, 1, seen->width, factor, to + *kept * seen->width);
            ++*kept;
        }
}

/* Counts an expert's scoring rows, and copies their router weights (if any) to ctx->out. */
static calm_status score_rows(calm_ctx *ctx, const expert_state *state, const uint32_t *rows, size_t n,
                              calm_capture *out)
{
    size_t window = 0, at = 0;
    float *weight;
    for (size_t i = 0; i < n; i++)
        out->score_rows += is_scored(state, &window, rows[i]);
    if (!state->weight || !out->score_rows)
        return CALM_OK;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, weight, out->score_rows));
    window = 0;
    for (size_t i = 0; i < n; i++)
        if (is_scored(state, &window, rows[i]))
            weight[at++] = state->weight[i];
    out->score_weight = weight;
    return CALM_OK;
}

/* Adds X^T X of the weighted observed rows, as one part: rows come in pieces of fixed size (CALM_MOE_ROWS). */
static calm_status add_gram(calm_ctx *ctx, double *gram, const calm_observation *seen, const float *weight)
{
    const size_t rows[2] = {0, seen->n_rows};
    float *x;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, x, seen->n_rows * seen->width));
    calm_job_rows_weigh(seen->x, seen->n_rows, seen->width, weight, x);
    const calm_gram_job job = {gram, x, seen->n_rows, seen->width, rows, 1, NULL};
    return calm_gram_add(ctx, &job, 1);
}

/* Adds the observed rows, which are the expert's rows from `at` on, to the statistics, except held-out rows. */
static calm_status add_fitted(calm_ctx *ctx, expert_state *state, calm_job_kind kind, size_t at,
                              const calm_observation *seen)
{
    const size_t out = state->held > at ? calm_size_min(state->held - at, seen->n_rows) : 0;
    const float *weight = state->weight ? state->weight + at + out : NULL;
    calm_job_sums *sums = &state->sums[kind];
    calm_observation fitted = *seen;
    CALM_SCOPED_SCRATCH(ctx);
    fitted.x += out * seen->width;
    fitted.rows += out;
    fitted.n_rows -= out;
    if (!fitted.n_rows)
        return CALM_OK;
    CALM_TRY(calm_job_row_factors(ctx, state->options, kind, weight, 0, fitted.rows, fitted.n_rows, &weight));
    calm_channel_sums_add(ctx, fitted.x, fitted.n_rows, fitted.width, weight, &sums->total);
    calm_job_samples_keep(sums, at + out - state->held, fitted.x, fitted.n_rows, fitted.width, weight);
    return sums->gram ? add_gram(ctx, sums->gram, &fitted, weight) : CALM_OK;
}

/* The observer; an expert is run by one worker, so its state needs no lock. */
static calm_status observe_expert(void *user, calm_ctx *ctx, const calm_observation *seen)
{
    expert_state *state = &((experts_state *)user)->experts[(size_t)seen->expert - ((experts_state *)user)->first];
    CALM_SCOPED_SCRATCH(ctx);
    /* Pieces come in order: this one starts behind the rows seen before. */
    const size_t at = state->at[seen->hook];
    const float *weight = state->weight ? state->weight + at : NULL;
    state->at[seen->hook] += seen->n_rows;
    for (calm_job_kind kind = 0; kind < CALM_N_JOBS; kind++) {
        if (calm_job_input(kind) != seen->hook || !state->out->job[kind].used)
            continue;
        keep(state->out->job[kind].score_input, state, seen, NULL);
        CALM_TRY(add_fitted(ctx, state, kind, at, seen));
    }
    if (seen->hook == CALM_HOOK_MLP_OUT)
        keep(state->out->score_output, state, seen, weight);
    if (state->out->activations[seen->hook]) {
        calm_actstat_place *places;
        CALM_TRY(find_places(ctx, state->batch, seen->rows, seen->n_rows, &places));
        CALM_TRY(calm_actstat_add_places(ctx, state->out->activations[seen->hook], seen->x, seen->n_rows, places));
    }
    return CALM_OK;
}

/* ---- results ---- */

/* Returns the expert's number of rows in the first n_windows windows. */
static size_t count_rows(const calm_batch *batch, const calm_routing *routing, size_t expert, size_t n_windows)
{
    const size_t windows = n_windows < batch->n ? n_windows : batch->n;
    return routing->window[expert * (routing->n_windows + 1) + windows] - routing->begin[expert];
}

/* The hook points at the inputs of an expert's jobs. */
static const calm_hook watched[] = {CALM_HOOK_GATE_UP_IN, CALM_HOOK_DOWN_IN};
#define N_WATCHED (sizeof watched / sizeof *watched)

/* Allocates the buffers of one expert for its number of tokens, in ctx->out. */
static calm_status new_results(calm_ctx *ctx, const calm_block *block, expert_state *state)
{
    const calm_config *config = block->config;
    calm_capture *out = state->out;
    CALM_TRY(calm_job_captures_new(ctx, config, state->options, out, state->sums));
    for (size_t i = 0; i < N_WATCHED && state->options->activations; i++)
        CALM_TRY(calm_actstat_new(ctx, ctx->out, calm_hook_width(config, watched[i], out->expert), out->tokens,
                              &out->activations[watched[i]]));
    return CALM_OK;
}

/* Loads an expert's weights into ctx->out. */
static calm_status load(calm_ctx *ctx, const calm_block *block, size_t expert, const calm_capture_options *options,
                        calm_weight weight[CALM_N_ROLES])
{
    CALM_SCOPED_TIME(options->times, CALM_TIME_READ);
    return block->moe.load(block->moe.user, ctx, block->index, expert, weight);
}

/* A calm_moe loader that returns weights that are loaded already. */
static calm_status hand_out(void *user, calm_ctx *ctx, size_t block, size_t expert, calm_weight weight[CALM_N_ROLES])
{
    const experts_state *state = user;
    (void)ctx;
    (void)block;
    /* calm_moe_experts asks for the weights of each expert; they were loaded before, because candidates need them
     * longer. */
    memcpy(weight, state->weight[expert - state->first], sizeof *state->weight);
    return CALM_OK;
}

calm_status calm_capture_experts(calm_ctx *ctx, const calm_block *block, calm_batch *batch, const calm_routing *routing,
                                 size_t first, size_t n, const calm_capture_options *options, calm_moe_sum *sum,
                                 calm_capture *out)
{
    experts_state state = {.first = first, .n = n};
    calm_block loaded = *block;
    const calm_observer observer = {observe_expert, &state};
    CALM_TRY(CALM_NEW(ctx, ctx->out, state.weight, n));
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, state.experts, n));
    for (size_t i = 0; i < n; i++) {
        const size_t expert = first + i, held = count_rows(batch, routing, expert, options->held_windows),
                     tokens = routing->begin[expert + 1] - routing->begin[expert];
        /* In this thread, not in the workers: results and weights go to ctx->out, which workers do not have. */
        CALM_TRY(load(ctx, block, expert, options, state.weight[i]));
        out[i] = (calm_capture){.sublayer = CALM_SUBLAYER_MLP, .expert = (long)expert, .weight = state.weight[i],
                                .rows = tokens - held, .tokens = tokens};
        state.experts[i] = (expert_state){.out = &out[i], .options = options, .batch = batch, .held = held,
                                          .weight = options->unweighted ? NULL
                                                                        : routing->weight + routing->begin[expert]};
        CALM_TRY(score_rows(ctx, &state.experts[i], routing->token + routing->begin[expert], tokens, &out[i]));
        CALM_TRY(new_results(ctx, block, &state.experts[i]));
    }
    /* A copy of the block with another loader; the caller's block stays unchanged. */
    loaded.moe.load = hand_out;
    loaded.moe.user = &state;
    CALM_TRY(calm_moe_experts(ctx, &loaded, batch, routing, first, n, &observer, sum));
    for (size_t i = 0; i < n; i++)
        calm_job_captures_finish(ctx, &out[i], state.experts[i].sums);
    return CALM_OK;
}

size_t calm_capture_experts_bytes(const calm_capture_shape *shape, const calm_capture_options *options, size_t n)
{
    const size_t one = calm_job_captures_bytes(shape, options) +
                       (options->unweighted || !shape->score_rows ? 0 : CALM_BYTES(float, shape->score_rows)) +
                       (options->activations ? N_WATCHED * calm_actstat_new_bytes(shape->rows) : 0);
    return CALM_BYTES(calm_weight[CALM_N_ROLES], n) + n * one;
}

/* Scratch bytes of observe_expert at one hook point: a weighted copy and its Gram product, or the places of rows. */
static size_t observer_scratch_bytes(const calm_capture_shape *shape, const calm_capture_options *options)
{
    size_t most = options->activations ? CALM_BYTES(calm_actstat_place, calm_size_min(shape->most_rows, CALM_MOE_ROWS))
                                       : 0;
    for (calm_job_kind kind = 0; kind < CALM_N_JOBS; kind++) {
        const size_t width = calm_hook_width(shape->config, calm_job_input(kind), shape->expert);
        if (options->grams && options->jobs & 1u << kind && calm_slot_has_job(shape->config, CALM_SUBLAYER_MLP, kind))
            most = calm_size_max(most, CALM_BYTES(float, calm_size_min(shape->most_rows, CALM_MOE_ROWS) * width) +
                                           calm_gram_add_scratch_bytes(shape->operands, &width, 1, false, 1));
    }
    return most + (options->factors ? CALM_BYTES(float, calm_size_min(shape->most_rows, CALM_MOE_ROWS)) : 0);
}

size_t calm_capture_experts_scratch_bytes(const calm_capture_shape *shape, const calm_capture_options *options,
                                          size_t n, size_t n_threads)
{
    const calm_config *config = shape->config;
    const size_t gathered = shape->in_file ? calm_row_store_bytes(1, config->hidden) : 0;
    const size_t added = shape->in_file ? calm_row_store_bytes(shape->longest, calm_expert_width(config, 0)) : 0;
    const size_t expert =
        calm_moe_expert_scratch_bytes(config, shape->most_rows) + gathered + observer_scratch_bytes(shape, options);
    return CALM_BYTES(expert_state, n) + calm_moe_experts_scratch_bytes(config, n, shape->rows) +
           calm_size_max(calm_size_min(n, n_threads) * expert, calm_size_min(shape->n_windows, n_threads) * added);
}

/* ---- the block as a whole ---- */

static const calm_hook block_hooks[] = {CALM_HOOK_GATE_UP_IN, CALM_HOOK_ROUTER_LOGITS, CALM_HOOK_MLP_OUT,
                                        CALM_HOOK_BLOCK_OUT};
#define N_BLOCK_HOOKS (sizeof block_hooks / sizeof *block_hooks)

struct calm_moe_watch {
    const calm_batch *batch;
    calm_actstat_acc **parts[CALM_N_HOOKS];    /* [n] by window */
};

size_t calm_moe_watch_bytes(size_t rows, size_t n_windows, size_t longest, size_t n_texts)
{
    return CALM_BYTES(calm_moe_watch, 1) +
           N_BLOCK_HOOKS * (calm_actstat_parts_bytes(n_windows, longest) + calm_actstat_new_bytes(rows) +
                            calm_actstat_texts_bytes(n_texts, rows));
}

calm_status calm_moe_watch_begin(calm_ctx *ctx, const calm_config *config, const calm_batch *batch,
                                 calm_moe_watch **out)
{
    CALM_TRY(CALM_NEW(ctx, ctx->out, *out, 1));
    (*out)->batch = batch;
    for (size_t h = 0; h < N_BLOCK_HOOKS; h++)
        CALM_TRY(calm_actstat_parts_new(ctx, ctx->out, batch, calm_hook_width(config, block_hooks[h], CALM_NO_EXPERT),
                                        &(*out)->parts[block_hooks[h]]));
    return CALM_OK;
}

/* Observes rows of the block as a whole; each expert has a separate capture. */
static calm_status observe_block(void *user, calm_ctx *ctx, const calm_observation *seen)
{
    const calm_moe_watch *watch = user;
    if (seen->expert != CALM_NO_EXPERT || !watch->parts[seen->hook])
        return CALM_OK;
    return calm_actstat_add(ctx, watch->parts[seen->hook][seen->window - watch->batch->first], seen->x, seen->n_rows,
                        (uint32_t)seen->window, 0);
}

calm_observer calm_moe_watch_observer(calm_moe_watch *watch)
{
    /* Without activation statistics there is no observer. */
    return (calm_observer){watch ? observe_block : NULL, watch};
}

calm_status calm_moe_watch_end(calm_ctx *ctx, calm_moe_watch *watch, calm_capture *out)
{
    *out = (calm_capture){.sublayer = CALM_SUBLAYER_MLP, .expert = CALM_NO_EXPERT, .rows = watch->batch->rows};
    for (size_t h = 0; h < N_BLOCK_HOOKS; h++)
        CALM_TRY(calm_actstat_parts_merge(ctx, watch->batch, watch->parts[block_hooks[h]],
                                      &out->activations[block_hooks[h]], &out->of_text[block_hooks[h]]));
    return CALM_OK;
}

/* ---- number of observed values ---- */

/* Values per token at the hook points of a dense slot, or of the shared expert. */
static size_t slot_values(const calm_config *config, calm_sublayer slot, long expert)
{
    size_t values = 0;
    for (calm_hook hook = 0; hook < CALM_N_HOOKS; hook++)
        if (calm_hook_in_slot(config, slot, expert, hook))
            values += calm_hook_width(config, hook, expert);
    return values;
}

/* Values per token at the hook points of a mixture, of the experts that the token is routed to, and of the shared
 * expert. */
static size_t mixture_values(const calm_config *config)
{
    size_t values = config->moe.shared_inner ? slot_values(config, CALM_SUBLAYER_MLP, CALM_SHARED_EXPERT) : 0;
    for (size_t h = 0; h < N_BLOCK_HOOKS; h++)
        values += calm_hook_width(config, block_hooks[h], CALM_NO_EXPERT);
    for (size_t i = 0; i < N_WATCHED; i++)
        values += config->moe.top_k * calm_hook_width(config, watched[i], 0);
    return values;
}

size_t calm_capture_token_values(const calm_config *model, size_t block)
{
    const calm_config *config = calm_config_at(model, block);
    const bool sparse = model->moe.sparse[block];
    return slot_values(config, CALM_SUBLAYER_ATTENTION, CALM_NO_EXPERT) +
           (sparse ? mixture_values(config) : slot_values(config, CALM_SUBLAYER_MLP, CALM_NO_EXPERT));
}
