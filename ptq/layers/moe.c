/* Mixture of experts over a batch. */
#include "ptq/layers/moe_impl.h"
#include "ptq/arch/layout.h"
#include "ptq/layers/router.h"

#include <math.h>
#include <string.h>

#include "ptq/arch/arch.h"
#include "ptq/base/threads.h"
#include "ptq/layers/tail.h"
#include "ptq/tensor/linalg.h"
#include "ptq/tensor/vector.h"

/* ---- routing ---- */

typedef struct route_task {
    const calm_block *block;
    const calm_batch *batch;
    const calm_observer *observer;
    calm_route *routes;
    float *latent;    /* [rows, W] input of the experts, or NULL */
} route_task;

/* Computes h [n, D] = IN norm of x, the input of the router and the experts, in ctx->scratch. */
static calm_status normalised(calm_ctx *ctx, const calm_block *block, const float *x, size_t n, float **h)
{
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, *h, n * block->config->hidden));
    calm_norm_all(ctx, &block->norm[CALM_SUBLAYER_MLP][CALM_NORM_IN], x, n, *h);
    return CALM_OK;
}

/* A family whose experts do not read the MLP's IN norm has their norm as a plain tensor. */
const calm_norm *calm_moe_experts_norm(const calm_block *block)
{
    const calm_norm *own = &block->plain[CALM_PLAIN_EXPERTS_NORM];
    return own->w ? own : &block->norm[CALM_SUBLAYER_MLP][CALM_NORM_IN];
}

bool calm_moe_has_router_norm(const calm_block *block)
{
    return block->plain[CALM_PLAIN_ROUTER_SCALE].w != NULL;
}

calm_norm calm_moe_router_norm(const calm_block *block, float *scale)
{
    const size_t width = block->config->hidden;
    /* Gemma 4: RMSNorm(x) times the router's weight and D^-1/2. */
    *scale = (float)(1 / sqrt((double)width));
    return (calm_norm){CALM_NORM_RMS, block->config->norm_eps, width, block->plain[CALM_PLAIN_ROUTER_SCALE].w, NULL};
}

calm_status calm_moe_router_rows(calm_ctx *ctx, const calm_block *block, const float *x, size_t n, float **h)
{
    const size_t width = block->config->hidden;
    float scale;
    const calm_norm norm = calm_moe_router_norm(block, &scale);
    /* In most families the router shares the IN norm. */
    if (!calm_moe_has_router_norm(block))
        return normalised(ctx, block, x, n, h);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, *h, n * width));
    calm_norm_all(ctx, &norm, x, n, *h);
    calm_vec_scale(n * width, scale, *h);
    return CALM_OK;
}

calm_latent_side calm_moe_latent_side(const calm_names *names, const char *tensor)
{
    const char *in = names->plain[CALM_PLAIN_EXPERTS_IN], *out = names->plain[CALM_PLAIN_EXPERTS_OUT];
    if (in && strcmp(tensor, in) == 0)
        return CALM_LATENT_IN;
    return out && strcmp(tensor, out) == 0 ? CALM_LATENT_OUT : CALM_LATENT_NONE;
}

calm_weight calm_moe_latent_linear(const calm_block *block, calm_plain plain)
{
    const size_t hidden = block->config->hidden, latent = block->config->moe.latent;
    const bool in = plain == CALM_PLAIN_EXPERTS_IN;
    /* Published recipes leave both float. */
    return (calm_weight){.name = block->config->arch->names->plain[plain], .out = in ? latent : hidden,
                         .in = in ? hidden : latent, .w = block->plain[plain].w};
}

/* Routes of the rows of one window. */
static calm_status route_window(calm_ctx *ctx, size_t i, void *user)
{
    const route_task *task = user;
    const calm_moe_config *moe = &task->block->config->moe;
    const size_t row = calm_batch_row(task->batch, i), n = calm_batch_tokens(task->batch, i);
    float *x, *h, *logits;
    CALM_TRY(calm_row_store_get(ctx, &task->batch->hidden, row, n, &x));
    /* The normalised rows are computed again for each expert rather than kept for all tokens. */
    CALM_TRY(calm_moe_router_rows(ctx, task->block, x, n, &h));
    if (task->latent) {
        const calm_weight in = calm_moe_latent_linear(task->block, CALM_PLAIN_EXPERTS_IN);
        CALM_TRY(calm_weight_apply(ctx, &in, h, n, task->latent + row * moe->latent));
    }
    calm_observation seen = {
        CALM_HOOK_GATE_UP_IN, CALM_NO_EXPERT, task->batch->first + i, h, n, task->block->config->hidden, NULL};
    CALM_TRY(calm_observe(task->observer, ctx, &seen));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, logits, n * moe->n_experts));
    calm_router_logits(task->block, h, n, logits);
    seen.hook = CALM_HOOK_ROUTER_LOGITS;
    seen.x = logits;
    seen.width = moe->n_experts;
    CALM_TRY(calm_observe(task->observer, ctx, &seen));
    return calm_router_choose(ctx, task->block, logits, n, task->routes + row * moe->top_k);
}

/* Sorts all routes by expert (counting sort); rows increase within an expert. */
static void sort_routes(const calm_moe_config *moe, const calm_batch *batch, calm_routing *out)
{
    const size_t n = batch->rows * moe->top_k, stride = out->n_windows + 1;
    for (size_t i = 0; i < n; i++)
        out->begin[out->routes[i].expert + 1]++;
    for (size_t e = 0; e < moe->n_experts; e++)
        out->begin[e + 1] += out->begin[e];
    /* window[e][w + 1] counts up while window w is filled in; window[e][w] is its first route. */
    for (size_t e = 0; e < moe->n_experts; e++)
        out->window[e * stride] = out->begin[e];
    /* A second pass in the order of rows makes the sort stable: an expert sees its tokens in the order of windows and
     * tokens, whatever the number of threads. */
    for (size_t w = 0; w < out->n_windows; w++) {
        for (size_t e = 0; e < moe->n_experts; e++)
            out->window[e * stride + w + 1] = out->window[e * stride + w];
        const size_t first = calm_batch_row(batch, w);
        for (size_t row = first; row < first + calm_batch_tokens(batch, w); row++)
            for (size_t k = 0; k < moe->top_k; k++) {
                const calm_route *route = &out->routes[row * moe->top_k + k];
                const size_t at = out->window[route->expert * stride + w + 1]++;
                out->token[at] = (uint32_t)row;
                /* The weight is applied once: to the expert's input, or to its output. */
                out->weight[at] = out->input ? 1 : route->weight;
                if (out->input)
                    out->input[at] = route->weight;
            }
    }
}

size_t calm_moe_route_bytes(const calm_config *config, size_t rows, size_t n_windows)
{
    const calm_moe_config *moe = &config->moe;
    const size_t n = rows * moe->top_k;
    return CALM_BYTES(calm_route, n) + CALM_BYTES(size_t, moe->n_experts + 1) + CALM_BYTES(uint32_t, n) +
           (moe->weighs_input ? 2 : 1) * CALM_BYTES(float, n) + CALM_BYTES(size_t, moe->n_experts * (n_windows + 1)) +
           (moe->latent ? CALM_BYTES(float, rows * moe->latent) : 0);
}

size_t calm_moe_route_scratch_bytes(const calm_config *config, size_t n_tokens)
{
    const size_t n_experts = config->moe.n_experts;
    return CALM_BYTES(float, n_tokens * config->hidden) + CALM_BYTES(float, n_tokens * n_experts) +
           calm_router_choose_bytes(&config->moe);
}

calm_status calm_moe_route(calm_ctx *ctx, const calm_block *block, const calm_batch *batch,
                           const calm_observer *observer, calm_routing *out)
{
    const calm_moe_config *moe = &block->config->moe;
    route_task task = {block, batch, observer, NULL, NULL};
    *out = (calm_routing){.n_windows = batch->n};
    /* Rows are 32-bit numbers in `token`, half of what size_t would take for every route. */
    if (batch->rows > UINT32_MAX)
        return calm_fail(ctx, CALM_EARG, "%zu tokens are too many for a mixture of experts", batch->rows);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, out->routes, batch->rows * moe->top_k));
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->begin, moe->n_experts + 1));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, out->token, batch->rows * moe->top_k));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, out->weight, batch->rows * moe->top_k));
    if (moe->weighs_input)
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, out->input, batch->rows * moe->top_k));
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->window, moe->n_experts * (batch->n + 1)));
    /* The latent is computed once per row, not once per expert. */
    if (moe->latent)
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, out->latent, batch->rows * moe->latent));
    task.latent = out->latent;
    task.routes = out->routes;
    /* Routing is parallel, sorting is one thread: it is a few passes over rows times top_k. */
    CALM_TRY(calm_parallel_for(ctx, batch->n, route_window, &task));
    sort_routes(moe, batch, out);
    return CALM_OK;
}

/* ---- experts ---- */

typedef struct wave {
    const calm_block *block;
    const calm_batch *batch;
    const calm_routing *routing;
    const calm_observer *observer;
    calm_moe_sum *sum;
    size_t first, n;
    float **outputs;    /* [n] each expert's output [its tokens, W] */
} wave;

/* Computes h [W], the experts' input for a token: its latent, or its normalised row of the batch. */
static calm_status expert_row(calm_ctx *ctx, const wave *w, size_t token, size_t width, float *h)
{
    CALM_SCOPED_SCRATCH(ctx);
    float *x;
    /* Routing has computed the latents of all tokens. */
    if (w->routing->latent) {
        memcpy(h, w->routing->latent + token * width, width * sizeof *h);
        return CALM_OK;
    }
    CALM_TRY(calm_batch_get_row(ctx, w->batch, token, &x));
    calm_norm_rows(calm_moe_experts_norm(w->block), x, 1, h);
    return CALM_OK;
}

/* Computes the expert's input h [n, W] for n routed tokens from `first` on. */
static calm_status gather(calm_ctx *ctx, const wave *w, size_t first, size_t n, float *h)
{
    const size_t width = calm_expert_width(w->block->config, 0);
    const calm_routing *routing = w->routing;
    for (size_t i = 0; i < n; i++) {
        CALM_TRY(expert_row(ctx, w, routing->token[first + i], width, h + i * width));
        if (routing->input)
            calm_vec_scale(width, routing->input[first + i], h + i * width);
    }
    return CALM_OK;
}

/* Computes out [tokens, W], the expert's unweighted output for all tokens routed to it. */
static calm_status run_rows(calm_ctx *ctx, const wave *w, size_t expert, const calm_weight *weight, float *out)
{
    /* A popular expert may have most tokens of the batch; pieces bound the memory of its MLP. */
    const size_t begin = w->routing->begin[expert], total = w->routing->begin[expert + 1] - begin;
    const size_t width = calm_expert_width(w->block->config, 0);
    for (size_t at = 0; at < total; at += CALM_MOE_ROWS) {
        const size_t n = total - at < CALM_MOE_ROWS ? total - at : CALM_MOE_ROWS;
        const uint32_t *tokens = w->routing->token + begin + at;
        calm_observation seen = {
            .hook = CALM_HOOK_MLP_OUT, .expert = (long)expert, .n_rows = n, .width = width, .rows = tokens};
        CALM_SCOPED_SCRATCH(ctx);
        float *h;
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, h, n * width));
        CALM_TRY(gather(ctx, w, begin + at, n, h));
        CALM_TRY(calm_mlp_run(ctx, w->block->config, weight, h, n, out + at * width, w->observer, &seen));
        seen.x = out + at * width;
        CALM_TRY(calm_observe(w->observer, ctx, &seen));
    }
    return CALM_OK;
}

/* Loads one expert of the wave, runs it over its tokens, releases it. */
static calm_status run_expert(calm_ctx *ctx, size_t index, void *user)
{
    const wave *w = user;
    const size_t expert = w->first + index;
    calm_weight weight[CALM_N_ROLES] = {{0}};
    if (w->routing->begin[expert + 1] == w->routing->begin[expert])
        return CALM_OK;    /* no token was routed to it */
    /* The loader writes to ctx->out: an arena of this task, which releases the weights at its end. */
    CALM_SCOPED_ARENA(arena);
    CALM_SCOPED_OUT(ctx, &arena);
    CALM_TRY(w->block->moe.load(w->block->moe.user, ctx, w->block->index, expert, weight));
    return run_rows(ctx, w, expert, weight, w->outputs[index]);
}

/* Adds the outputs of the wave to the sum, for the tokens of one window. */
static calm_status add_window(calm_ctx *ctx, size_t i, void *user)
{
    const wave *w = user;
    const size_t width = w->sum->rows.width, stride = w->routing->n_windows + 1;
    const size_t row = calm_batch_row(w->batch, i), n = calm_batch_tokens(w->batch, i);
    /* Each window has its own rows of the sum, so windows are independent; within one, the order of experts fixes the
     * order of additions. */
    float *sum;
    CALM_TRY(calm_row_store_get(ctx, &w->sum->rows, row, n, &sum));
    for (size_t e = w->first; e < w->first + w->n; e++) {
        const size_t *window = w->routing->window + e * stride + i;
        for (size_t at = window[0]; at < window[1]; at++) {
            const float *y = w->outputs[e - w->first] + (at - w->routing->begin[e]) * width;
            calm_vec_axpy(width, w->routing->weight[at], y, sum + (w->routing->token[at] - row) * width);
        }
    }
    return calm_row_store_put(ctx, &w->sum->rows, row, n, sum);
}

size_t calm_moe_experts_scratch_bytes(const calm_config *config, size_t n, size_t tokens)
{
    return CALM_BYTES(float *, n) + n * CALM_BYTES(float, tokens * calm_expert_width(config, 0));
}

size_t calm_moe_expert_scratch_bytes(const calm_config *config, size_t tokens)
{
    const size_t n = calm_size_min(tokens, CALM_MOE_ROWS);
    return CALM_BYTES(float, n * calm_expert_width(config, 0)) + calm_mlp_run_scratch_bytes(config, 0, n, false);
}

calm_status calm_moe_experts(calm_ctx *ctx, const calm_block *block, const calm_batch *batch,
                             const calm_routing *routing, size_t first, size_t n, const calm_observer *observer,
                             calm_moe_sum *sum)
{
    /* Outputs are kept for the whole wave and added afterwards: adding while experts run would make the order of
     * additions depend on which expert ends first. */
    wave w = {block, batch, routing, observer, sum, first, n, NULL};
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, w.outputs, n));
    for (size_t i = 0; i < n; i++) {
        const size_t tokens = routing->begin[first + i + 1] - routing->begin[first + i];
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, w.outputs[i], tokens * calm_expert_width(block->config, 0)));
    }
    CALM_TRY(calm_parallel_for(ctx, n, run_expert, &w));
    return calm_parallel_for(ctx, batch->n, add_window, &w);
}

/* An estimate for memory plans: eight times the mean number of tokens of an expert. */
size_t calm_moe_busiest_tokens(const calm_moe_config *moe, size_t rows)
{
    return calm_size_min(rows, 8 * rows * moe->top_k / moe->n_experts + 1);
}

size_t calm_moe_wave(const calm_block *block, const calm_routing *routing, size_t first, size_t most_bytes)
{
    const size_t row_bytes = calm_expert_width(block->config, 0) * sizeof(float);
    /* A wave has at least one expert, even above the limit: the limit must not stop the run. */
    size_t n = 1;
    while (first + n < block->config->moe.n_experts &&
           (routing->begin[first + n + 1] - routing->begin[first]) * row_bytes <= most_bytes)
        n++;
    return n;
}

/* ---- the sublayer ---- */

/* Zeroes the sum of one window: a sum in a file has no memory to clear at once. */
static calm_status clear_window(calm_ctx *ctx, size_t i, void *user)
{
    const wave *w = user;
    const size_t row = calm_batch_row(w->batch, i), n = calm_batch_tokens(w->batch, i);
    float *sum;
    CALM_TRY(calm_row_store_get(ctx, &w->sum->rows, row, n, &sum));
    memset(sum, 0, n * w->sum->rows.width * sizeof *sum);
    return calm_row_store_put(ctx, &w->sum->rows, row, n, sum);
}

calm_status calm_moe_begin(calm_ctx *ctx, const calm_config *config, const calm_batch *batch, calm_arena *arena,
                           calm_moe_sum *out)
{
    wave w = {.batch = batch, .sum = out};
    /* The sum is as large as the hidden states: if those are in a file, so is the sum. */
    CALM_TRY(calm_row_store_open(ctx, arena, batch->rows, calm_expert_width(config, 0),
                                 batch->hidden.file < 0 ? NULL : batch->spill_dir, &out->rows));
    const calm_status status = calm_parallel_for(ctx, batch->n, clear_window, &w);
    if (status != CALM_OK)
        calm_row_store_close(&out->rows);
    return status;
}

calm_status calm_moe_shared(calm_ctx *ctx, const calm_block *block, const float *x, const calm_span *span,
                            const calm_observer *observer, float **h, float **y)
{
    calm_observation seen = {.hook = CALM_HOOK_MLP_OUT, .expert = CALM_SHARED_EXPERT, .window = span->window,
                             .n_rows = span->n_tokens, .width = block->config->hidden};
    CALM_TRY(normalised(ctx, block, x, span->n_tokens, h));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, *y, span->n_tokens * seen.width));
    CALM_TRY(calm_mlp_run(ctx, block->config, block->moe.shared, *h, span->n_tokens, *y, observer, &seen));
    seen.x = *y;
    return calm_observe(observer, ctx, &seen);
}

void calm_shared_gate_rows(const calm_block *block, const float *h, size_t n, float *gate)
{
    const size_t width = block->config->hidden;
    for (size_t t = 0; t < n; t++) {
        float logit;
        gate[t] = 1;
        if (!block->moe.shared_gate)
            continue;
        calm_sgemm_nt(1, 1, width, 1.0f, h + t * width, width, block->moe.shared_gate, width, 0.0f, &logit, 1);
        gate[t] = 1.0f / (1.0f + expf(-logit));
    }
}

calm_status calm_moe_shared_gate(calm_ctx *ctx, const calm_block *block, const float *x, size_t n, float *gate)
{
    CALM_SCOPED_SCRATCH(ctx);
    float *h;
    CALM_TRY(normalised(ctx, block, x, n, &h));
    calm_shared_gate_rows(block, h, n, gate);
    return CALM_OK;
}

/* sum += sigmoid(h . g) shared(h). */
static calm_status add_shared(calm_ctx *ctx, const calm_block *block, const float *x, const calm_span *span, float *sum,
                              const calm_observer *observer)
{
    const size_t width = block->config->hidden, n = span->n_tokens;
    float *h, *y;
    CALM_TRY(calm_moe_shared(ctx, block, x, span, observer, &h, &y));
    calm_norm_all(ctx, &block->plain[CALM_PLAIN_SHARED_OUT_NORM], y, n, y);
    for (size_t t = 0; t < n; t++) {
        float gate;
        calm_shared_gate_rows(block, h + t * width, 1, &gate);
        calm_vec_axpy(width, gate, y + t * width, sum + t * width);
    }
    return CALM_OK;
}

/* Applies the linear C (moe.h) where experts have another width than the model: *sum [T, D] in ctx->scratch. */
static calm_status leave_latent(calm_ctx *ctx, const calm_block *block, size_t n, float **sum)
{
    const calm_weight out = calm_moe_latent_linear(block, CALM_PLAIN_EXPERTS_OUT);
    /* The row store's rows are not changed. */
    const float *narrow = *sum;
    if (!block->config->moe.latent)
        return CALM_OK;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, *sum, n * block->config->hidden));
    return calm_weight_apply(ctx, &out, narrow, n, *sum);
}

/* x += OUT norm of (sum + shared expert), for the rows of one window. */
static calm_status end_window(calm_ctx *ctx, size_t i, void *user)
{
    const wave *w = user;
    const calm_span span = calm_batch_span(w->batch, i);
    const size_t row = calm_batch_row(w->batch, i);
    float *x, *sum;
    CALM_TRY(calm_row_store_get(ctx, &w->batch->hidden, row, span.n_tokens, &x));
    CALM_TRY(calm_row_store_get(ctx, &w->sum->rows, row, span.n_tokens, &sum));
    CALM_TRY(leave_latent(ctx, w->block, span.n_tokens, &sum));
    calm_norm_all(ctx, &w->block->plain[CALM_PLAIN_EXPERTS_OUT_NORM], sum, span.n_tokens, sum);
    if (w->block->moe.shared[CALM_ROLE_DOWN].w)
        CALM_TRY(add_shared(ctx, w->block, x, &span, sum, w->observer));
    CALM_TRY(calm_block_add(ctx, w->block, CALM_SUBLAYER_MLP, sum, x, &span, w->observer));
    return calm_row_store_put(ctx, &w->batch->hidden, row, span.n_tokens, x);
}

size_t calm_moe_end_scratch_bytes(const calm_config *config, size_t n_tokens)
{
    const size_t tail = calm_tail_scratch_bytes(config, n_tokens);
    const size_t wide = config->moe.latent ? CALM_BYTES(float, n_tokens * config->hidden) : 0;
    /* The shared expert's buffers are still allocated while the tail runs. */
    return tail + wide + (config->moe.shared_inner
                       ? 2 * CALM_BYTES(float, n_tokens * config->hidden) +
                             calm_mlp_run_scratch_bytes(config, CALM_SHARED_EXPERT, n_tokens, false)
                       : 0);
}

calm_status calm_moe_end(calm_ctx *ctx, const calm_block *block, calm_batch *batch, const calm_observer *observer,
                         calm_moe_sum *sum)
{
    wave w = {.block = block, .batch = batch, .observer = observer, .sum = sum};
    const calm_status status = calm_parallel_for(ctx, batch->n, end_window, &w);
    calm_row_store_close(&sum->rows);
    return status;
}

size_t calm_moe_all_experts_bytes(const calm_config *config, size_t rows, size_t worker_bytes, size_t n_threads)
{
    const calm_moe_config *moe = &config->moe;
    const size_t most = calm_moe_busiest_tokens(moe, rows), width = calm_expert_width(config, 0);
    /* A wave stays below the limit unless a single expert exceeds it; all routes together bound both. */
    const size_t outputs = calm_size_min(CALM_BYTES(float, rows * moe->top_k * width),
                                         calm_size_max(CALM_BYTES(float, most * width), CALM_MOE_WAVE_BYTES));
    return CALM_BYTES(float *, moe->n_experts) + outputs + calm_size_min(moe->n_experts, n_threads) * worker_bytes;
}

size_t calm_moe_run_scratch_bytes(const calm_config *config, size_t n_windows, size_t longest, size_t expert_bytes,
                                  size_t n_threads)
{
    const size_t rows = n_windows * longest, width = calm_expert_width(config, 0);
    const size_t experts = calm_moe_all_experts_bytes(
        config, rows, expert_bytes + calm_moe_expert_scratch_bytes(config, calm_moe_busiest_tokens(&config->moe, rows)),
        n_threads);
    const size_t workers = calm_size_min(n_windows, n_threads);
    const size_t sum = calm_row_store_bytes(rows, width), end = workers * calm_moe_end_scratch_bytes(config, longest);
    return calm_moe_route_bytes(config, rows, n_windows) +
           calm_size_max(workers * calm_moe_route_scratch_bytes(config, longest), sum + calm_size_max(experts, end));
}

calm_status calm_moe_all_experts(calm_ctx *ctx, const calm_block *block, const calm_batch *batch,
                                 const calm_routing *routing, const calm_observer *observer, calm_moe_sum *sum)
{
    for (size_t first = 0, n; first < block->config->moe.n_experts; first += n) {
        n = calm_moe_wave(block, routing, first, CALM_MOE_WAVE_BYTES);
        CALM_TRY(calm_moe_experts(ctx, block, batch, routing, first, n, observer, sum));
    }
    return CALM_OK;
}

calm_status calm_moe_run(calm_ctx *ctx, const calm_block *block, calm_batch *batch, const calm_observer *observer)
{
    calm_routing routing;
    CALM_SCOPED_ARENA(arena);
    CALM_SCOPED_OUT(ctx, &arena);
    CALM_SCOPED_MOE_SUM(sum);
    CALM_TRY(calm_moe_route(ctx, block, batch, observer, &routing));
    CALM_TRY(calm_moe_begin(ctx, block->config, batch, &arena, &sum));
    CALM_TRY(calm_moe_all_experts(ctx, block, batch, &routing, observer, &sum));
    return calm_moe_end(ctx, block, batch, observer, &sum);
}

bool calm_moe_has_shared(const calm_block *block)
{
    return block->moe.shared[CALM_ROLE_DOWN].w;
}
