/* Backward pass of a mixture over one window.
 *
 *   y_t = sum_k w_tk E_k(h_t) + s_t E_s(h_t)      dw_tk = dy_t . E_k(h_t),  dE_k = w_tk dy_t
 *   y_t = sum_k E_k(w_tk h_t), weighs_input       dw_tk = h_t . dE_k,  dh_t += w_tk dE_k, dE_k of the expert's input
 *   y_t = C sum_k w_tk E_k(B h_t), latent         C^T dy_t and B h_t replace dy_t and h_t; dh_t += B^T times the
 *                                                 gradient of B h_t
 *   w_k                                           router.h
 *   s_t = sigmoid(h_t . g)                        d(h_t . g) = s_t (1 - s_t) dy_t . E_s(h_t)
 *
 * Gemma 4's mixture has norms before the router, before and after the experts, and after the shared expert.  Those
 * before the router and the experts read x: their gradients bypass the norm of the sublayer.
 *
 * Activations of experts are recomputed, since their weights must be read again anyway. */
#include "ptq/layers/moe_back.h"

#include <string.h>

#include "ptq/arch/layout.h"
#include "ptq/base/scope.h"
#include "ptq/base/threads.h"
#include "ptq/layers/mlp_back.h"
#include "ptq/layers/moe_impl.h"
#include "ptq/layers/norm_back.h"
#include "ptq/layers/router.h"
#include "ptq/tensor/product.h"
#include "ptq/tensor/vector.h"

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

/* Returns the norm of the shared expert's output; NULL: none. */
static const calm_norm *shared_norm(const calm_block *block)
{
    const calm_norm *norm = &block->plain[CALM_PLAIN_SHARED_OUT_NORM];
    return norm->w ? norm : NULL;
}

/* ---- forward ---- */

/* Computes y [T, D], the weighted sum of the experts, for all rows of the batch. */
static calm_status sum_experts(calm_ctx *ctx, const calm_block *block, const calm_batch *batch, calm_routing *routing,
                               float *y)
{
    const size_t width = calm_expert_width(block->config, 0);
    const calm_weight out = calm_moe_latent_linear(block, CALM_PLAIN_EXPERTS_OUT);
    float *narrow = y;
    /* The experts add directly to y, or to routing->sum, which the backward pass reads. */
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

/* Applies the norm after the experts in place, and keeps its input. */
static calm_status norm_sum(calm_ctx *ctx, const calm_block *block, size_t n, float *y, calm_routing *routing)
{
    const calm_norm *norm = &block->plain[CALM_PLAIN_EXPERTS_OUT_NORM];
    if (!norm->w)
        return CALM_OK;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, routing->given, n * norm->width));
    /* A copy, since the caller's y is overwritten. */
    memcpy(routing->given, y, n * norm->width * sizeof *y);
    calm_norm_all(ctx, norm, y, n, y);
    return CALM_OK;
}

calm_status calm_moe_forward_tape(calm_ctx *ctx, const calm_block *block, const float *x, const float *h,
                                  const calm_span *span, float *y, calm_routing *routing)
{
    const size_t n = span->n_tokens, width = block->config->hidden;
    size_t begin[2] = {0, n};
    const calm_windows windows = {.begin = begin, .n = 1, .longest = n};
    /* Routing and experts only read the hidden states. */
    const calm_row_store rows = {n, width, (float *)(uintptr_t)x, -1};
    const calm_batch batch = {.windows = &windows, .n = 1, .rows = n, .width = width, .hidden = rows};
    CALM_SCOPED_OUT(ctx, ctx->scratch);
    CALM_TRY(calm_moe_route(ctx, block, &batch, NULL, routing));
    CALM_TRY(sum_experts(ctx, block, &batch, routing, y));
    CALM_TRY(norm_sum(ctx, block, n, y, routing));
    CALM_SCOPED_SCRATCH(ctx);
    if (!block->moe.shared[CALM_ROLE_DOWN].w)
        return CALM_OK;
    shared_tape shared;
    CALM_TRY(run_shared(ctx, block, h, n, &shared));
    if (shared_norm(block))
        calm_norm_all(ctx, shared_norm(block), shared.y, n, shared.y);
    for (size_t t = 0; t < n; t++)
        calm_vec_axpy(width, shared.gate[t], shared.y + t * width, y + t * width);
    return CALM_OK;
}

/* ---- experts ---- */

typedef struct moe_task {
    const calm_block *block;
    const calm_routing *routing;
    const float *x, *h, *dy;
    const calm_block_grads *grads;
    size_t width;         /* W: width of experts' inputs and outputs */
    const float *read;    /* [T, W] input of the experts */
    const float *dsum;    /* [T, W] gradient of their sum */
    float *dread;         /* [T, W] gradient of `read` */
    size_t first, n;      /* experts of the wave                                     */
    float **rows;         /* [n] gradient of each expert's rows [its tokens, W] */
    float *dweight;       /* [T top_k] gradient of the weights, by expert */
    float *dh;
    float *past;          /* [T, D] gradient that reaches x past h; NULL: none */
} moe_task;

/* Computes the gradients of one expert over its tokens. */
static calm_status expert_rows_back(calm_ctx *ctx, const moe_task *task, size_t expert, const calm_weight *weight,
                                    float *rows)
{
    static const calm_expert_grads none = {.weight = {NULL}};
    /* All tokens at once: one window has at most a few hundred. */
    const size_t begin = task->routing->begin[expert], n = task->routing->begin[expert + 1] - begin;
    const size_t width = task->width;
    const calm_expert_grads *grads = task->grads->experts ? &task->grads->experts[expert] : &none;
    const uint32_t *token = task->routing->token + begin;
    const float *input = task->routing->input;
    float *h, *y;
    calm_mlp_tape tape;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, h, n * width));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, y, n * width));
    /* An expert's tokens are scattered over the window; products need contiguous rows. */
    for (size_t i = 0; i < n; i++) {
        memcpy(h + i * width, task->read + token[i] * width, width * sizeof *h);
        if (input)
            calm_vec_scale(width, input[begin + i], h + i * width);
    }
    CALM_TRY(calm_mlp_forward_tape(ctx, task->block->config, weight, h, n, y, &tape));
    for (size_t i = 0; i < n; i++) {
        const float *dy = task->dsum + token[i] * width;
        task->dweight[begin + i] = (float)calm_vec_dot(width, dy, y + i * width);
        /* From here on y holds the gradient of the expert's output. */
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
    /* The loader writes to ctx->out: an arena of this task, which releases the weights at its end. */
    CALM_SCOPED_ARENA(arena);
    CALM_SCOPED_OUT(ctx, &arena);
    CALM_TRY(moe->load(moe->user, ctx, task->block->index, expert, weight));
    return expert_rows_back(ctx, task, expert, weight, task->rows[index]);
}

/* Adds the gradients of the wave's experts to these rows, by increasing expert. */
static void add_experts(size_t first, size_t n, void *user)
{
    const moe_task *task = user;
    const size_t width = task->width;
    for (size_t i = 0; i < task->n; i++) {
        const size_t begin = task->routing->begin[task->first + i], end = task->routing->begin[task->first + i + 1];
        for (size_t at = begin; at < end; at++) {
            const size_t token = task->routing->token[at];
            if (token >= first && token - first < n)
                calm_vec_add(width, task->rows[i] + (at - begin) * width, task->dread + token * width);
        }
    }
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
    /* Rows are kept for the whole wave and added afterwards, as in the forward pass: the order of additions must not
     * depend on which expert ends first. */
    CALM_TRY(calm_parallel_for(ctx, task->n, expert_back, task));
    calm_parallel_each_rows(ctx, routing->begin[task->block->config->moe.n_experts] / task->block->config->moe.top_k,
                            add_experts, task);
    return CALM_OK;
}

/* ---- router ---- */

typedef struct router_task {
    const moe_task *moe;
    const calm_route *routes; /* [T, top_k]                                       */
    const float *dweight; /* [T, top_k] in the order of the routes              */
    float *p, *dlogits;   /* [T, n_experts]; p holds logits at first            */
} router_task;

static void route_back(size_t first, size_t n, void *user)
{
    const router_task *task = user;
    const calm_moe_config *moe = &task->moe->block->config->moe;
    for (size_t t = first; t < first + n; t++)
        calm_router_back(moe, task->routes + t * moe->top_k, task->dweight + t * moe->top_k,
                         task->p + t * moe->n_experts, task->dlogits + t * moe->n_experts);
}

/* Reorders dweight from the order of experts to that of routes, where a row's weights are contiguous. */
static void sort_back(const moe_task *moe, float *dweight)
{
    const calm_routing *routing = moe->routing;
    const size_t n_experts = moe->block->config->moe.n_experts, top_k = moe->block->config->moe.top_k;
    for (size_t e = 0; e < n_experts; e++)
        for (size_t at = routing->begin[e]; at < routing->begin[e + 1]; at++) {
            const size_t row = routing->token[at];
            size_t k = 0;
            while (routing->routes[row * top_k + k].expert != e)
                k++;
            dweight[row * top_k + k] = moe->dweight[at];
        }
}

/* Backward of the experts' factors, which multiply the weights last: turns dweight [T, top_k] into the gradient of the
 * weights before the factors, and *routes into routes with those weights.  Does not change `logits` [T, E]. */
static calm_status factors_back(calm_ctx *ctx, const moe_task *moe, size_t n, const float *logits, float *dweight,
                                const calm_route **routes)
{
    const float *factor = moe->block->plain[CALM_PLAIN_EXPERT_SCALE].w;
    const calm_moe_config *config = &moe->block->config->moe;
    float *dfactor = moe->grads->plain[CALM_PLAIN_EXPERT_SCALE], *s;
    calm_route *plain;
    if (!factor)
        return CALM_OK;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, plain, n * config->top_k));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, s, config->n_experts));
    for (size_t t = 0; t < n; t++) {
        memcpy(s, logits + t * config->n_experts, config->n_experts * sizeof *s);
        calm_router_unscaled(config, *routes + t * config->top_k, s, plain + t * config->top_k);
    }
    /* Row by row on this thread: the order of each factor's sum is fixed. */
    for (size_t i = 0; i < n * config->top_k; i++) {
        if (dfactor)
            dfactor[plain[i].expert] += dweight[i] * plain[i].weight;
        dweight[i] *= factor[plain[i].expert];
    }
    *routes = plain;
    return CALM_OK;
}

/* Backward of the router's linear: from dlogits [T, E] to the router's weights and its input. */
static calm_status logits_back(calm_ctx *ctx, const moe_task *moe, size_t n, const float *reads, const float *dlogits)
{
    const calm_block *block = moe->block;
    const size_t n_experts = block->config->moe.n_experts, width = block->config->hidden;
    const bool own = calm_moe_has_router_norm(block);
    float *drows = moe->dh, scale, *dbias = moe->grads->plain[CALM_PLAIN_ROUTER_BIAS];
    const calm_norm norm = calm_moe_router_norm(block, &scale);
    for (size_t t = 0; dbias && t < n; t++)
        calm_vec_add(n_experts, dlogits + t * n_experts, dbias);
    if (moe->grads->router)
        CALM_TRY(calm_product(ctx, CALM_PRODUCT_TN, n_experts, width, n, dlogits, n_experts, reads, width, 1,
                              moe->grads->router, width));
    /* With a separate norm the rows are only the router's input, else also the experts'. */
    if (own)
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, drows, n * width));
    CALM_TRY(calm_product(ctx, CALM_PRODUCT_NN, n, width, n_experts, dlogits, n_experts, block->moe.router, width,
                          own ? 0 : 1, drows, width));
    if (!own)
        return CALM_OK;
    calm_vec_scale(n * width, scale, drows);
    CALM_TRY(calm_norm_back(ctx, &norm, (calm_norm_rows_of){n, 1, width}, moe->x, drows,
                            moe->grads->plain[CALM_PLAIN_ROUTER_SCALE], NULL, drows));
    calm_vec_add(n * width, drows, moe->past);
    return CALM_OK;
}

/* Backward of routing, through the weights of the chosen experts: adds to the router's gradients, and to dh or
 * `past`. */
static calm_status router_back(calm_ctx *ctx, const moe_task *moe, size_t n)
{
    const calm_block *block = moe->block;
    const size_t n_experts = block->config->moe.n_experts;
    float *dweight, *reads;
    router_task task = {.moe = moe, .routes = moe->routing->routes};
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, dweight, n * block->config->moe.top_k));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, task.p, n * n_experts));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, task.dlogits, n * n_experts));
    const float *h = moe->h;
    if (calm_moe_has_router_norm(block)) {
        CALM_TRY(calm_moe_router_rows(ctx, block, moe->x, n, &reads));
        h = reads;
    }
    sort_back(moe, dweight);
    task.dweight = dweight;
    /* Recomputed rather than kept: 2 E of the 6 top_k M operations of a channel. */
    calm_router_logits(block, h, n, task.p);
    CALM_TRY(factors_back(ctx, moe, n, task.p, dweight, &task.routes));
    calm_parallel_each_rows(ctx, n, route_back, &task);
    return logits_back(ctx, moe, n, h, task.dlogits);
}

/* ---- shared expert ---- */

static calm_status shared_back(calm_ctx *ctx, const moe_task *task, size_t n)
{
    const calm_block *block = task->block;
    const calm_expert_grads *grads = &task->grads->shared;
    const size_t width = block->config->hidden;
    const calm_norm *norm = shared_norm(block);
    shared_tape shared;
    float *dlogit, *dh, *normed;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(run_shared(ctx, block, task->h, n, &shared));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, normed, norm ? width : 0));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, dlogit, n));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, dh, n * width));
    /* Without a gate the factor is 1, and gate (1 - gate) is 0. */
    for (size_t t = 0; t < n; t++) {
        const float gate = shared.gate[t], *dy = task->dy + t * width;
        float *y = shared.y + t * width;
        if (norm)
            calm_norm_rows(norm, y, 1, normed);
        dlogit[t] = gate * (1 - gate) * (float)calm_vec_dot(width, dy, norm ? normed : y);
        memcpy(dh + t * width, dy, width * sizeof *dh);
        calm_vec_scale(width, gate, dh + t * width);
    }
    if (norm)
        CALM_TRY(calm_norm_back(ctx, norm, (calm_norm_rows_of){n, 1, width}, shared.y, dh,
                                task->grads->plain[CALM_PLAIN_SHARED_OUT_NORM], NULL, dh));
    /* From here on y holds the gradient of the shared expert's output. */
    memcpy(shared.y, dh, n * width * sizeof *dh);
    CALM_TRY(
        calm_mlp_back(ctx, block->config, block->moe.shared, &shared.mlp, shared.y, grads->weight, grads->bias, NULL,
                      dh));
    /* Added after the experts and the router, like in the forward pass. */
    calm_vec_add(n * width, dh, task->dh);
    for (size_t t = 0; block->moe.shared_gate && t < n; t++) {
        calm_vec_axpy(width, dlogit[t], block->moe.shared_gate, task->dh + t * width);
        if (task->grads->shared_gate)
            calm_vec_axpy(width, dlogit[t], task->h + t * width, task->grads->shared_gate);
    }
    return CALM_OK;
}

/* Runs the backward pass of all waves, from task->dsum to task->dread. */
static calm_status waves_back(calm_ctx *ctx, moe_task *task, size_t n)
{
    const calm_moe_config *moe = &task->block->config->moe;
    /* Rows that no expert of a wave reads stay zero. */
    memset(task->dread, 0, n * task->width * sizeof *task->dread);
    for (task->first = 0; task->first < moe->n_experts; task->first += task->n) {
        task->n = calm_moe_wave(task->block, task->routing, task->first, CALM_MOE_WAVE_BYTES);
        CALM_TRY(wave_back(ctx, task));
    }
    return CALM_OK;
}

/* Backward of the experts and the linears around their latent space: from dsum [T, D] to dread [T, D], the gradient of
 * B's input. */
static calm_status latents_back(calm_ctx *ctx, moe_task *task, size_t n)
{
    const calm_weight in = calm_moe_latent_linear(task->block, CALM_PLAIN_EXPERTS_IN);
    const calm_weight out = calm_moe_latent_linear(task->block, CALM_PLAIN_EXPERTS_OUT);
    const float *wide = task->read;
    float *dwide = task->dread, *dsum;
    if (!task->block->config->moe.latent)
        return waves_back(ctx, task, n);
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, dsum, n * task->width));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, task->dread, n * task->width));
    CALM_TRY(calm_weight_back(ctx, &out, task->routing->sum, n, task->dsum, task->grads->plain[CALM_PLAIN_EXPERTS_OUT],
                              NULL, false, dsum));
    /* From here on rows are as wide as the latent. */
    task->dsum = dsum;
    task->read = task->routing->latent;
    CALM_TRY(waves_back(ctx, task, n));
    return calm_weight_back(ctx, &in, wide, n, task->dread, task->grads->plain[CALM_PLAIN_EXPERTS_IN], NULL, false,
                            dwide);
}

/* Backward of the experts and the norms around them: writes dh, and adds to the gradients of their parameters. */
static calm_status experts_back(calm_ctx *ctx, moe_task *task, size_t n)
{
    const calm_norm *before = &task->block->plain[CALM_PLAIN_EXPERTS_NORM],
                    *behind = &task->block->plain[CALM_PLAIN_EXPERTS_OUT_NORM];
    const size_t width = task->block->config->hidden;
    const calm_norm_rows_of rows = {n, 1, width};
    float *read, *dsum;
    CALM_SCOPED_SCRATCH(ctx);
    task->width = calm_expert_width(task->block->config, 0);
    task->read = task->h;
    task->dsum = task->dy;
    task->dread = task->dh;
    if (behind->w) {
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, dsum, n * width));
        CALM_TRY(calm_norm_back(ctx, behind, rows, task->routing->given, task->dy,
                                task->grads->plain[CALM_PLAIN_EXPERTS_OUT_NORM], NULL, dsum));
        task->dsum = dsum;
    }
    if (!before->w)
        return latents_back(ctx, task, n);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, read, n * width));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, task->dread, n * width));
    calm_norm_all(ctx, before, task->x, n, read);
    task->read = read;
    float *dread = task->dread;
    CALM_TRY(latents_back(ctx, task, n));
    CALM_TRY(calm_norm_back(ctx, before, rows, task->x, dread, task->grads->plain[CALM_PLAIN_EXPERTS_NORM], NULL,
                            dread));
    calm_vec_add(n * width, dread, task->past);
    /* With a separate norm the experts do not read h. */
    memset(task->dh, 0, n * width * sizeof *task->dh);
    return CALM_OK;
}

/* Does a norm of the mixture read x? */
static bool has_past(const calm_block *block)
{
    return calm_moe_has_router_norm(block) || block->plain[CALM_PLAIN_EXPERTS_NORM].w;
}

calm_status calm_moe_back(calm_ctx *ctx, const calm_block *block, const calm_routing *routing, const float *x,
                          const float *h, size_t n_tokens, const float *dy, const calm_block_grads *grads, float *dh,
                          float *dx)
{
    moe_task task = {.block = block, .routing = routing, .x = x, .h = h, .dy = dy, .grads = grads, .dh = dh};
    const size_t count = n_tokens * block->config->hidden;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, task.dweight, n_tokens * block->config->moe.top_k));
    if (has_past(block))
        CALM_TRY(CALM_NEW(ctx, ctx->scratch, task.past, count));
    CALM_TRY(experts_back(ctx, &task, n_tokens));
    CALM_TRY(router_back(ctx, &task, n_tokens));
    if (block->moe.shared[CALM_ROLE_DOWN].w)
        CALM_TRY(shared_back(ctx, &task, n_tokens));
    /* dx is written last, since it may be dy. */
    if (task.past)
        calm_vec_add(count, task.past, dx);
    return CALM_OK;
}

/* ---- memory ---- */

/* Does the family have this norm or factor? */
static bool names_plain(const calm_config *config, calm_plain plain)
{
    return config->arch->names->plain[plain] != NULL;
}

size_t calm_moe_tape_bytes(const calm_config *config, size_t n_tokens)
{
    return calm_moe_route_bytes(config, n_tokens, 1)
           + (config->moe.latent ? CALM_BYTES(float, n_tokens * config->moe.latent) : 0)
           + (names_plain(config, CALM_PLAIN_EXPERTS_OUT_NORM) ? CALM_BYTES(float, n_tokens * config->hidden) : 0);
}

/* Returns the bytes of the shared expert's output, gate and tape, and of the larger of its forward pass and
 * `besides`. */
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
    const size_t most = calm_moe_busiest_tokens(&config->moe, n_tokens);
    const size_t experts = calm_moe_all_experts_bytes(
        config, n_tokens, expert_bytes + calm_moe_expert_scratch_bytes(config, most), n_threads);
    const size_t shared = shared_bytes(config, n_tokens, 0), route = calm_moe_route_scratch_bytes(config, n_tokens);
    return calm_size_max(route, calm_size_max(experts, shared));
}

size_t calm_moe_back_bytes(const calm_config *config, size_t n_tokens, size_t expert_bytes, size_t n_threads)
{
    const calm_moe_config *moe = &config->moe;
    const size_t most = calm_moe_busiest_tokens(moe, n_tokens), rows = CALM_BYTES(float, n_tokens * config->hidden);
    const size_t weights = CALM_BYTES(float, n_tokens * moe->top_k);
    const size_t expert = 2 * CALM_BYTES(float, most * calm_expert_width(config, 0))
                          + calm_mlp_tape_bytes(config, 0, most)
                          + calm_size_max(calm_mlp_forward_tape_bytes(config, 0, most),
                                          calm_mlp_back_bytes(config, 0, most));
    const size_t experts = (moe->latent ? 2 * CALM_BYTES(float, n_tokens * moe->latent) : 0)
                           + calm_moe_all_experts_bytes(config, n_tokens, expert_bytes + expert, n_threads);
    const size_t norm = calm_norm_back_scratch_bytes(config->hidden, n_tokens);
    const bool own = names_plain(config, CALM_PLAIN_ROUTER_SCALE);
    const bool factors = names_plain(config, CALM_PLAIN_EXPERT_SCALE);
    const size_t router = weights + 2 * CALM_BYTES(float, n_tokens * moe->n_experts)
                          + (factors ? CALM_BYTES(calm_route, n_tokens * moe->top_k) : 0)
                          + (factors ? CALM_BYTES(float, moe->n_experts) : 0) + (own ? 2 * rows + norm : 0);
    /* Norms around the experts, and the gradient that bypasses the sublayer's norm. */
    const bool before = names_plain(config, CALM_PLAIN_EXPERTS_NORM),
               behind = names_plain(config, CALM_PLAIN_EXPERTS_OUT_NORM);
    const size_t around = (before ? 2 : 0) * rows + (behind ? rows : 0), past = own || before ? rows : 0;
    const size_t shared = shared_bytes(config, n_tokens,
                                       CALM_BYTES(float, n_tokens) + rows
                                           + (behind ? CALM_BYTES(float, config->hidden) : 0)
                                           + calm_size_max(calm_mlp_back_bytes(config, CALM_SHARED_EXPERT, n_tokens),
                                                           behind ? norm : 0));
    const size_t all = around + calm_size_max(experts, before || behind ? norm : 0);
    return weights + past + calm_size_max(all, calm_size_max(router, shared));
}
