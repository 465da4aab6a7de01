/* Backward pass of a mixture over one window.
 *
 *   y_t = sum_k w_tk E_k(h_t) + s_t E_s(h_t)      dw_tk = dy_t . E_k(h_t),  dE_k = w_tk dy_t
 *   y_t = sum_k E_k(w_tk h_t), of some            dw_tk = h_t . dE_k,  dh_t += w_tk dE_k, dE_k of the expert's rows
 *   y_t = C sum_k w_tk E_k(B h_t), of some        C^T dy_t and B h_t in place of dy_t and h_t; dh_t += B^T of what
 *                                                 comes back
 *   w_k of the router's rules                        router.h
 *   s_t = sigmoid(h_t . g)                           d(h_t . g) = s_t (1 - s_t) dy_t . E_s(h_t)
 *
 * What an expert computes is computed again: its weights are read again anyway. */
#include "ptq/model/moe_back.h"

#include <string.h>

#include "ptq/base/scope.h"
#include "ptq/base/threads.h"
#include "ptq/model/mlp_back.h"
#include "ptq/model/moe_impl.h"
#include "ptq/model/router.h"
#include "ptq/tensor/product.h"
#include "ptq/tensor/vector.h"
#include "ptq/tensor/vector_back.h"

/* The shared expert over all rows: its tape, its output y [T, D] and gate [T], all in ctx->scratch. */
typedef struct shared_tape {
    calm_mlp_tape mlp;
    float *y, *gate;
} shared_tape;

static calm_status run_shared(calm_ctx *ctx, const calm_block *block, const float *h, size_t n, shared_tape *out)
{
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, out->y, n * block->config->hidden));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, out->gate, n));
    calm_shared_gate_rows(block, h, n, out->gate);
    return calm_mlp_forward_tape(ctx, block->config, block->moe.shared, h, n, out->y, &out->mlp);
}

/* ---- forward ---- */

/* y [T, D] = the weighted sum of the experts, in all rows of the batch. */
static calm_status sum_experts(calm_ctx *ctx, const calm_block *block, const calm_batch *batch, calm_routing *routing,
                               float *y)
{
    const size_t width = calm_expert_width(block->config, 0);
    const calm_weight out = calm_moe_latent_linear(block, CALM_PLAIN_EXPERTS_OUT);
    float *narrow = y;
    /* The sum of the experts is made where it is wanted: no copy of it is closed and released. */
    if (block->config->moe.latent) {
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, narrow, batch->rows * width));
        routing->sum = narrow;
    }
    calm_moe_sum sum = {.rows = {batch->rows, width, narrow, -1}};
    memset(narrow, 0, batch->rows * width * sizeof *narrow);
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(calm_moe_all_experts(ctx, block, batch, routing, NULL, &sum));
    return narrow == y ? CALM_OK : calm_weight_apply(ctx, &out, narrow, batch->rows, y);
}

calm_status calm_moe_forward_tape(calm_ctx *ctx, const calm_block *block, const float *x, const float *h,
                                  const calm_span *span, float *y, calm_routing *routing)
{
    const size_t n = span->n_tokens, width = block->config->hidden;
    size_t begin[2] = {0, n};
    const calm_windows windows = {.begin = begin, .n = 1, .longest = n};
    /* Routing and experts read the hidden rows and write none. */
    const calm_row_store rows = {n, width, (float *)(uintptr_t)x, -1};
    const calm_batch batch = {.windows = &windows, .n = 1, .rows = n, .width = width, .hidden = rows};
    CALM_SCOPED_OUT(ctx, ctx->scratch);
    CALM_TRY(calm_moe_route(ctx, block, &batch, NULL, routing));
    CALM_TRY(sum_experts(ctx, block, &batch, routing, y));
    CALM_SCOPED_SCRATCH(ctx);
    if (!block->moe.shared[CALM_ROLE_DOWN].w)
        return CALM_OK;
    shared_tape shared;
    CALM_TRY(run_shared(ctx, block, h, n, &shared));
    for (size_t t = 0; t < n; t++)
        calm_vec_axpy(width, shared.gate[t], shared.y + t * width, y + t * width);
    return CALM_OK;
}

/* ---- experts ---- */

typedef struct moe_task {
    const calm_block *block;
    const calm_routing *routing;
    const float *h, *dy;
    const calm_block_grads *grads;
    size_t width;         /* W of experts                                            */
    const float *read;    /* [T, W] what they read                                   */
    const float *dsum;    /* [T, W] of their sum                                     */
    float *dread;         /* [T, W] what goes back to what they read                 */
    size_t first, n;      /* experts of the wave                                     */
    float **rows;         /* [n] of each: what goes back to its rows [its tokens, W] */
    float *dweight;       /* [T top_k] of the weights, experts one after the other   */
    float *dh;
} moe_task;

/* Gradients of one expert over its tokens. */
static calm_status expert_rows_back(calm_ctx *ctx, const moe_task *task, size_t expert, const calm_weight *weight,
                                    float *rows)
{
    static const calm_expert_grads none = {.weight = {NULL}};
    /* All of them at once: one window has at most a few hundred. */
    const size_t begin = task->routing->begin[expert], n = task->routing->begin[expert + 1] - begin;
    const size_t width = task->width;
    const calm_expert_grads *grads = task->grads->experts ? &task->grads->experts[expert] : &none;
    const uint32_t *token = task->routing->token + begin;
    const float *input = task->routing->input;
    float *h, *y;
    calm_mlp_tape tape;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, h, n * width));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, y, n * width));
    /* An expert's tokens lie anywhere in the window; its products want them one after the other. */
    for (size_t i = 0; i < n; i++) {
        memcpy(h + i * width, task->read + token[i] * width, width * sizeof *h);
        if (input)
            calm_vec_scale(width, input[begin + i], h + i * width);
    }
    CALM_TRY(calm_mlp_forward_tape(ctx, task->block->config, weight, h, n, y, &tape));
    for (size_t i = 0; i < n; i++) {
        const float *dy = task->dsum + token[i] * width;
        task->dweight[begin + i] = (float)calm_vec_dot(width, dy, y + i * width);
        /* From here on y holds what goes back to the expert's output. */
        memcpy(y + i * width, dy, width * sizeof *y);
        calm_vec_scale(width, task->routing->weight[begin + i], y + i * width);
    }
    CALM_TRY(calm_mlp_back(ctx, task->block->config, weight, &tape, y, grads->weight, grads->bias, NULL, rows));
    for (size_t i = 0; input && i < n; i++) {
        task->dweight[begin + i] = (float)calm_vec_dot(width, rows + i * width, task->read + token[i] * width);
        calm_vec_scale(width, input[begin + i], rows + i * width);
    }
    return CALM_OK;
}

static calm_status expert_back(calm_ctx *ctx, size_t index, void *user)
{
    const moe_task *task = user;
    const calm_mixture *moe = &task->block->moe;
    const size_t expert = task->first + index;
    calm_weight weight[CALM_N_ROLES] = {{0}};
    if (task->routing->begin[expert + 1] == task->routing->begin[expert])
        return CALM_OK; /* no token was routed to it */
    /* The loader writes to ctx->out: an arena of this task, so that the weights go when the expert is done. */
    CALM_SCOPED_ARENA(arena);
    CALM_SCOPED_OUT(ctx, &arena);
    CALM_TRY(moe->load(moe->user, ctx, task->block->index, expert, weight));
    return expert_rows_back(ctx, task, expert, weight, task->rows[index]);
}

/* What the experts of the wave give back to these rows, by rising expert. */
static calm_status add_experts(calm_ctx *ctx, size_t first, size_t n, void *user)
{
    const moe_task *task = user;
    const size_t width = task->width;
    (void)ctx;
    for (size_t i = 0; i < task->n; i++) {
        const size_t begin = task->routing->begin[task->first + i], end = task->routing->begin[task->first + i + 1];
        for (size_t at = begin; at < end; at++) {
            const size_t token = task->routing->token[at];
            if (token >= first && token - first < n)
                calm_vec_add(width, task->rows[i] + (at - begin) * width, task->dread + token * width);
        }
    }
    return CALM_OK;
}

static calm_status wave_back(calm_ctx *ctx, moe_task *task)
{
    const calm_routing *routing = task->routing;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, task->rows, task->n));
    for (size_t i = 0; i < task->n; i++) {
        const size_t tokens = routing->begin[task->first + i + 1] - routing->begin[task->first + i];
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, task->rows[i], tokens * task->width));
    }
    /* Kept for the whole wave and added afterwards, as in the forward pass: the order of the sum must not be that in
     * which experts end. */
    CALM_TRY(calm_parallel_for(ctx, task->n, expert_back, task));
    return calm_parallel_rows(ctx, routing->begin[task->block->config->moe.n_experts] / task->block->config->moe.top_k,
                              add_experts, task);
}

/* ---- router ---- */

typedef struct router_task {
    const moe_task *moe;
    const float *dweight; /* [T, top_k] in the order of the routes              */
    float *p, *dlogits;   /* [T, n_experts]; p holds logits at first            */
} router_task;

static calm_status route_back(calm_ctx *ctx, size_t first, size_t n, void *user)
{
    const router_task *task = user;
    const calm_moe_config *moe = &task->moe->block->config->moe;
    (void)ctx;
    for (size_t t = first; t < first + n; t++)
        calm_router_back(moe, task->moe->routing->routes + t * moe->top_k, task->dweight + t * moe->top_k,
                         task->p + t * moe->n_experts, task->dlogits + t * moe->n_experts);
    return CALM_OK;
}

/* Gradients through the weights of the chosen experts: router and dh are added to. */
static calm_status router_back(calm_ctx *ctx, const moe_task *moe, size_t n)
{
    const size_t n_experts = moe->block->config->moe.n_experts, top_k = moe->block->config->moe.top_k;
    const size_t width = moe->block->config->hidden;
    float *dweight;
    router_task task = {.moe = moe};
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, dweight, n * top_k));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, task.p, n * n_experts));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, task.dlogits, n * n_experts));
    /* From the order of experts back to that of the routes, in which a row's weights stand together. */
    for (size_t e = 0; e < n_experts; e++)
        for (size_t at = moe->routing->begin[e]; at < moe->routing->begin[e + 1]; at++) {
            const size_t row = moe->routing->token[at];
            size_t k = 0;
            while (moe->routing->routes[row * top_k + k].expert != e)
                k++;
            dweight[row * top_k + k] = moe->dweight[at];
        }
    task.dweight = dweight;
    /* Again rather than kept: 2 E of the 6 top_k M operations of a channel. */
    calm_router_logits(moe->block, moe->h, n, task.p);
    CALM_TRY(calm_parallel_rows(ctx, n, route_back, &task));
    float *dbias = moe->grads->plain[CALM_PLAIN_ROUTER_BIAS];
    for (size_t t = 0; dbias && t < n; t++)
        calm_vec_add(n_experts, task.dlogits + t * n_experts, dbias);
    if (moe->grads->router)
        CALM_TRY(calm_product(ctx, CALM_PRODUCT_TN, n_experts, width, n, task.dlogits, n_experts, moe->h, width, 1,
                              moe->grads->router, width));
    return calm_product(ctx, CALM_PRODUCT_NN, n, width, n_experts, task.dlogits, n_experts, moe->block->moe.router,
                        width, 1, moe->dh, width);
}

/* ---- shared expert ---- */

static calm_status shared_back(calm_ctx *ctx, const moe_task *task, size_t n)
{
    const calm_block *block = task->block;
    const calm_expert_grads *grads = &task->grads->shared;
    const size_t width = block->config->hidden;
    shared_tape shared;
    float *dlogit, *dh;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(run_shared(ctx, block, task->h, n, &shared));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, dlogit, n));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, dh, n * width));
    /* Without a gate it is 1, whose slope gate (1 - gate) is 0. */
    for (size_t t = 0; t < n; t++) {
        const float gate = shared.gate[t], *dy = task->dy + t * width;
        float *y = shared.y + t * width;
        dlogit[t] = gate * (1 - gate) * (float)calm_vec_dot(width, dy, y);
        memcpy(y, dy, width * sizeof *y);
        calm_vec_scale(width, gate, y);
    }
    CALM_TRY(
        calm_mlp_back(ctx, block->config, block->moe.shared, &shared.mlp, shared.y, grads->weight, grads->bias, NULL,
                      dh));
    /* Behind the experts and the router, as the forward pass adds it last. */
    calm_vec_add(n * width, dh, task->dh);
    for (size_t t = 0; block->moe.shared_gate && t < n; t++) {
        calm_vec_axpy(width, dlogit[t], block->moe.shared_gate, task->dh + t * width);
        if (task->grads->shared_gate)
            calm_vec_axpy(width, dlogit[t], task->h + t * width, task->grads->shared_gate);
    }
    return CALM_OK;
}

/* The experts, wave by wave: dh is written, and gradients of what they have added to. */
static calm_status experts_back(calm_ctx *ctx, moe_task *task, size_t n)
{
    const calm_block *block = task->block;
    const calm_weight in = calm_moe_latent_linear(block, CALM_PLAIN_EXPERTS_IN);
    const calm_weight out = calm_moe_latent_linear(block, CALM_PLAIN_EXPERTS_OUT);
    const bool latent = block->config->moe.latent > 0;
    float *dsum;
    CALM_SCOPED_SCRATCH(ctx);
    task->width = calm_expert_width(block->config, 0);
    task->read = latent ? task->routing->latent : task->h;
    task->dsum = task->dy;
    task->dread = task->dh;
    if (latent) {
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, dsum, n * task->width));
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, task->dread, n * task->width));
        CALM_TRY(calm_weight_back(ctx, &out, task->routing->sum, n, task->dy,
                                  task->grads->plain[CALM_PLAIN_EXPERTS_OUT], NULL, false, dsum));
        task->dsum = dsum;
    }
    memset(task->dread, 0, n * task->width * sizeof *task->dread);
    for (task->first = 0; task->first < block->config->moe.n_experts; task->first += task->n) {
        task->n = calm_moe_wave(block, task->routing, task->first, CALM_MOE_WAVE_BYTES);
        CALM_TRY(wave_back(ctx, task));
    }
    if (!latent)
        return CALM_OK;
    return calm_weight_back(ctx, &in, task->h, n, task->dread, task->grads->plain[CALM_PLAIN_EXPERTS_IN], NULL, false,
                            task->dh);
}

calm_status calm_moe_back(calm_ctx *ctx, const calm_block *block, const calm_routing *routing, const float *h,
                          size_t n_tokens, const float *dy, const calm_block_grads *grads, float *dh)
{
    moe_task task = {.block = block, .routing = routing, .h = h, .dy = dy, .grads = grads, .dh = dh};
    const calm_moe_config *moe = &block->config->moe;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, task.dweight, n_tokens * moe->top_k));
    CALM_TRY(experts_back(ctx, &task, n_tokens));
    CALM_TRY(router_back(ctx, &task, n_tokens));
    return block->moe.shared[CALM_ROLE_DOWN].w ? shared_back(ctx, &task, n_tokens) : CALM_OK;
}

/* ---- memory ---- */

size_t calm_moe_tape_bytes(const calm_config *config, size_t n_tokens)
{
    return calm_moe_route_bytes(config, n_tokens, 1)
           + (config->moe.latent ? CALM_BYTES(float, n_tokens * config->moe.latent) : 0);
}

/* The shared expert's output, gate and tape, and what making them holds besides. */
static size_t shared_bytes(const calm_config *config, size_t n, size_t besides)
{
    if (!config->moe.shared_inner)
        return 0;
    return CALM_BYTES(float, n * config->hidden) + CALM_BYTES(float, n)
           + calm_mlp_tape_bytes(config, CALM_SHARED_EXPERT, n)
           + calm_size_max(calm_mlp_forward_tape_bytes(config, CALM_SHARED_EXPERT, n), besides);
}

size_t calm_moe_forward_tape_bytes(const calm_config *config, size_t n_tokens, size_t expert_bytes, size_t n_threads)
{
    const size_t most = calm_moe_most_tokens(&config->moe, n_tokens);
    const size_t experts = calm_moe_all_experts_bytes(
        config, n_tokens, expert_bytes + calm_moe_expert_scratch_bytes(config, most), n_threads);
    const size_t shared = shared_bytes(config, n_tokens, 0), route = calm_moe_route_scratch_bytes(config, n_tokens);
    return calm_size_max(route, calm_size_max(experts, shared));
}

size_t calm_moe_back_bytes(const calm_config *config, size_t n_tokens, size_t expert_bytes, size_t n_threads)
{
    const calm_moe_config *moe = &config->moe;
    const size_t most = calm_moe_most_tokens(moe, n_tokens), rows = CALM_BYTES(float, n_tokens * config->hidden);
    const size_t weights = CALM_BYTES(float, n_tokens * moe->top_k);
    const size_t expert = 2 * CALM_BYTES(float, most * calm_expert_width(config, 0))
                          + calm_mlp_tape_bytes(config, 0, most)
                          + calm_size_max(calm_mlp_forward_tape_bytes(config, 0, most),
                                          calm_mlp_back_bytes(config, 0, most));
    const size_t experts = (moe->latent ? 2 * CALM_BYTES(float, n_tokens * moe->latent) : 0)
                           + calm_moe_all_experts_bytes(config, n_tokens, expert_bytes + expert, n_threads);
    const size_t router = weights + 2 * CALM_BYTES(float, n_tokens * moe->n_experts);
    const size_t shared = shared_bytes(config, n_tokens,
                                       CALM_BYTES(float, n_tokens) + rows
                                           + calm_mlp_back_bytes(config, CALM_SHARED_EXPERT, n_tokens));
    return weights + calm_size_max(experts, calm_size_max(router, shared));
}
