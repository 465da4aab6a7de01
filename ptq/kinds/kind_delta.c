/* Gated delta net: the mixer of Qwen3.5's and Qwen3-Next's blocks of "linear_attention".
 *
 *   [q | k | v] = act(conv(W_qkv h))    z = W_z h    beta = sigmoid(W_b h)    g = -exp(A_log) softplus(W_a h + dt_bias)
 *   y = W_out (RMSNorm(o) w silu(z)),    o the gated delta rule of q, k, v, g and beta (delta.h)
 *
 * Qwen3-Next has one matrix for q, k, v and z and one for b and a, with rows in the order of key heads: for each its q
 * and k, then v and z (b and a) of the value heads that it serves.
 *
 * References: arXiv 2412.06464; transformers' modeling_qwen3_next.py, modeling_qwen3_5.py. */
#include <string.h>

#include "ptq/arch/kind.h"
#include "ptq/base/scope.h"
#include "ptq/base/threads.h"
#include "ptq/layers/convolution.h"
#include "ptq/layers/delta_back.h"
#include "ptq/layers/mlp_back.h"
#include "ptq/layers/norm_back.h"
#include "ptq/layers/past.h"
#include "ptq/tensor/vector.h"
#include "ptq/tensor/vector_back.h"

/* Widths of a token's rows, over all heads. */
typedef struct widths {
    size_t key, value;    /* of q, and of k; of v, of z, and of o */
    size_t conv;          /* of q, k and v together */
} widths;

/* Returns the widths of a block's rows. */
static widths widths_of(const calm_config *config)
{
    const calm_delta_shape *shape = &config->delta;
    const size_t key = shape->n_key_heads * shape->key_dim, value = shape->n_value_heads * shape->value_dim;
    return (widths){key, value, 2 * key + value};
}

/* Values of one window between the steps, or their gradients; all in ctx->scratch. */
typedef struct rows {
    const calm_config *config;
    size_t n;
    float *z;                  /* [n, value], replaced by the input of out */
    float *beta, *decay;       /* [n, n_value_heads]                           */
    float *mixed;              /* [n, conv]: q, k and v before the convolution */
    float *qkvz, *ba;          /* outputs of fused matrices */
    bool back;                 /* they are gradients: copy from the parts into qkvz and ba */
} rows;

/* ---- fused projections ---- */

/* Copies `parts` pieces of `width` values, `stride` apart in `fused`, to contiguous ones in `apart`, or with `back`
 * from there; returns the end of `apart`. */
static float *gather(float *fused, size_t stride, size_t parts, size_t width, bool back, float *apart)
{
    for (size_t i = 0; i < parts; i++) {
        float *from = fused + i * stride, *to = apart + i * width;
        memcpy(back ? from : to, back ? to : from, width * sizeof *to);
    }
    return apart + parts * width;
}

/* Copies between fused rows and their six parts, in either direction. */
static void part_rows(size_t first, size_t n, void *user)
{
    const rows *r = user;
    const calm_delta_shape *shape = &r->config->delta;
    const widths w = widths_of(r->config);
    const size_t heads = shape->n_key_heads, d_k = shape->key_dim, group = shape->n_value_heads / heads;
    const size_t d_v = group * shape->value_dim, head = 2 * d_k + 2 * d_v;    /* of a key head: [q | k | v.. | z..] */
    for (size_t t = first; t < first + n; t++) {
        float *fused = r->qkvz + t * heads * head, *gates = r->ba + t * heads * 2 * group;
        float *apart = r->mixed + t * w.conv;
        apart = gather(fused, head, heads, d_k, r->back, apart);
        apart = gather(fused + d_k, head, heads, d_k, r->back, apart);
        gather(fused + 2 * d_k, head, heads, d_v, r->back, apart);
        gather(fused + 2 * d_k + d_v, head, heads, d_v, r->back, r->z + t * w.value);
        gather(gates, 2 * group, heads, group, r->back, r->beta + t * heads * group);
        gather(gates + group, 2 * group, heads, group, r->back, r->decay + t * heads * group);
    }
}

/* Allocates the rows of the fused matrices. */
static calm_status new_fused(calm_ctx *ctx, const calm_block *block, rows *r)
{
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, r->qkvz, r->n * block->weight[CALM_ROLE_DELTA_QKVZ].out));
    return CALM_NEW_RAW(ctx, ctx->scratch, r->ba, r->n * block->weight[CALM_ROLE_DELTA_BA].out);
}

/* Computes the two fused products and separates them; releases the fused rows. */
static calm_status project_fused(calm_ctx *ctx, const calm_block *block, const float *h, calm_apply_fn *apply, rows *r)
{
    const calm_weight *const weights[] = {&block->weight[CALM_ROLE_DELTA_QKVZ], &block->weight[CALM_ROLE_DELTA_BA]};
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(new_fused(ctx, block, r));
    CALM_TRY(calm_weight_apply_each(ctx, apply, 2, weights, h, r->n, (float *[]){r->qkvz, r->ba}));
    calm_parallel_each_rows(ctx, r->n, part_rows, r);
    return CALM_OK;
}

/* Are q, k, v and z stored in one matrix, and b and a in another? */
static bool is_fused(const calm_config *config)
{
    return calm_has_role(config, CALM_ROLE_DELTA_QKVZ);
}

/* Applies the linears to h: mixed, z, and beta and decay before their functions. */
static calm_status project(calm_ctx *ctx, const calm_block *block, const float *h, calm_apply_fn *apply, rows *r)
{
    const calm_weight *const weights[] = {&block->weight[CALM_ROLE_DELTA_QKV], &block->weight[CALM_ROLE_DELTA_Z],
                                          &block->weight[CALM_ROLE_DELTA_B], &block->weight[CALM_ROLE_DELTA_A]};
    if (is_fused(block->config))
        return project_fused(ctx, block, h, apply, r);
    return calm_weight_apply_each(ctx, apply, 4, weights, h, r->n, (float *[]){r->mixed, r->z, r->beta, r->decay});
}

/* Returns the block's convolution, with its activation function if `activated`. */
static calm_convolution convolution(const calm_block *block, bool activated)
{
    const calm_config *config = block->config;
    return (calm_convolution){.n_channels = widths_of(config).conv, .width = config->conv_width,
                              .w = block->plain[CALM_PLAIN_DELTA_CONV].w,
                              .activate = activated ? calm_activation_of(config->activation) : NULL};
}

/* Returns the elements of the state: the memories of all value heads, then the convolution's tail. */
static size_t state(const calm_config *config)
{
    return calm_delta_memory(&config->delta) + calm_convolution_tail(widths_of(config).conv, config->conv_width);
}

/* ---- run ---- */

/* Shows the observer x [n, width] at one of this kind's hook points. */
static calm_status observe(calm_ctx *ctx, const calm_observer *observer, const calm_span *span, calm_hook hook,
                           const float *x, size_t width)
{
    const calm_observation seen = {hook, CALM_NO_EXPERT, span->window, x, span->n_tokens, width, NULL};
    return calm_observe(observer, ctx, &seen);
}

/* Computes the inputs of the rule: q, k and v after the convolution, [n, conv]; z, decay and beta.  `memory` NULL: the
 * span is a whole window. */
static calm_status prepare(calm_ctx *ctx, const calm_block *block, const float *h, const calm_span *span,
                           const calm_observer *observer, rows *r, float *memory, float *convolved)
{
    const calm_config *config = block->config;
    const widths w = widths_of(config);
    const size_t heads = config->delta.n_value_heads;
    calm_convolution conv = convolution(block, true);
    conv.tail = memory ? memory + calm_delta_memory(&config->delta) : NULL;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, r->mixed, r->n * w.conv));
    CALM_TRY(project(ctx, block, h, calm_weight_apply, r));
    CALM_TRY(calm_convolution_run(ctx, &conv, r->mixed, w.conv, r->n, convolved));
    calm_delta_gates(ctx, r->n, heads, block->plain[CALM_PLAIN_DELTA_A_LOG].w,
                     block->plain[CALM_PLAIN_DELTA_DT].w, r->decay, r->beta);
    CALM_TRY(observe(ctx, observer, span, CALM_HOOK_DELTA_GATE, r->z, w.value));
    CALM_TRY(observe(ctx, observer, span, CALM_HOOK_DELTA_DECAY, r->decay, heads));
    return observe(ctx, observer, span, CALM_HOOK_DELTA_BETA, r->beta, heads);
}

/* Runs the sublayer; the order of tokens replaces a position embedding. */
static calm_status run(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, const float *h,
                       const calm_span *span, float *out, const calm_observer *observer)
{
    const calm_config *config = block->config;
    const calm_delta_shape *shape = &config->delta;
    const widths w = widths_of(config);
    const size_t n = span->n_tokens, heads = shape->n_value_heads;
    rows r = {.config = config, .n = n};
    float *convolved, *o, *norms, *memory = calm_past_state(block, span);
    (void)rope;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(observe(ctx, observer, span, CALM_HOOK_DELTA_IN, h, config->hidden));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, r.z, n * w.value));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, r.beta, n * heads));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, r.decay, n * heads));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, convolved, n * w.conv));
    CALM_TRY(prepare(ctx, block, h, span, observer, &r, memory, convolved));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, o, n * w.value));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, norms, n * heads));
    const calm_delta_rows in = {convolved, convolved + w.key, convolved + 2 * w.key, w.conv, n, r.decay, r.beta};
    /* The norms of the memory cost a few products of vectors, and only an observer reads them. */
    CALM_TRY(calm_delta_rule(ctx, shape, &in, CALM_DELTA_CHUNK, o, observer && observer->fn ? norms : NULL, NULL,
                             memory));
    CALM_TRY(observe(ctx, observer, span, CALM_HOOK_DELTA_STATE, norms, heads));
    calm_delta_norm(ctx, shape, n, block->plain[CALM_PLAIN_DELTA_NORM].w, config->norm_eps, o, r.z);
    CALM_TRY(observe(ctx, observer, span, CALM_HOOK_DELTA_OUT_IN, r.z, w.value));
    return calm_weight_apply(ctx, &block->weight[CALM_ROLE_DELTA_OUT], r.z, n, out);
}

/* Returns the operations per token: three products with the memory, those between the tokens of a chunk, the
 * convolution. */
static double operations(const calm_config *config, double window)
{
    const calm_delta_shape *shape = &config->delta;
    const double chunk = window < (double)CALM_DELTA_CHUNK ? window : (double)CALM_DELTA_CHUNK;
    const double memory = 6 * (double)(shape->n_value_heads * shape->key_dim * shape->value_dim);
    const double values = 3 * chunk * (double)(shape->n_value_heads * shape->value_dim);
    const double keys = 4 * chunk * (double)(shape->n_key_heads * shape->key_dim);
    return memory + values + keys + 2 * (double)(widths_of(config).conv * config->conv_width);
}

static size_t helper_bytes(const calm_config *config, size_t n_tokens)
{
    return calm_delta_rule_bytes(&config->delta, n_tokens, CALM_DELTA_CHUNK);
}

/* Returns the bytes of the fused products. */
static size_t fused_bytes(const calm_config *config, size_t n_tokens)
{
    const widths w = widths_of(config);
    return !is_fused(config) ? 0
                             : CALM_BYTES(float, n_tokens * (w.conv + w.value))
                                   + CALM_BYTES(float, 2 * n_tokens * config->delta.n_value_heads);
}

/* Returns the larger of the bytes before the rule, with the linears' products, and those after. */
static size_t scratch_bytes(const calm_config *config, size_t n_tokens, bool prepared)
{
    const widths w = widths_of(config);
    const size_t gates = CALM_BYTES(float, n_tokens * config->delta.n_value_heads);
    const size_t value = CALM_BYTES(float, n_tokens * w.value), conv = CALM_BYTES(float, n_tokens * w.conv);
    const size_t fused = fused_bytes(config, n_tokens);
    const size_t inputs = prepared ? calm_weight_apply_scratch_bytes(config->hidden, n_tokens) : 0;
    const size_t first = conv + calm_size_max(fused + inputs, calm_convolution_bytes(w.conv, config->conv_width));
    const size_t last = prepared ? calm_weight_apply_scratch_bytes(w.value, n_tokens) : 0;
    /* The rule's inputs are released before the norm begins. */
    const size_t second = value + gates + calm_size_max(helper_bytes(config, n_tokens), last);
    return value + 2 * gates + conv + calm_size_max(first, second);
}

/* ---- gradients ---- */

typedef struct delta_tape {
    rows rows;           /* z before silu */
    float *convolved;    /* [n, conv]                                             */
    float *states;       /* states of the delta rule, before each chunk */
    float *o, *y;        /* [n, value]: output of the rule; input of out */
} delta_tape;

/* Returns the operands of the rule: columns of the convolution's output. */
static calm_delta_rows rule_rows(const delta_tape *tape)
{
    const widths w = widths_of(tape->rows.config);
    return (calm_delta_rows){tape->convolved, tape->convolved + w.key, tape->convolved + 2 * w.key, w.conv,
                             tape->rows.n, tape->rows.decay, tape->rows.beta};
}

/* Allocates the tape, before the marks that release everything else. */
static calm_status new_tape(calm_ctx *ctx, const calm_config *config, size_t n, delta_tape *tape)
{
    const widths w = widths_of(config);
    const size_t heads = config->delta.n_value_heads;
    tape->rows = (rows){.config = config, .n = n};
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, tape->rows.z, n * w.value));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, tape->rows.beta, n * heads));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, tape->rows.decay, n * heads));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, tape->rows.mixed, n * w.conv));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, tape->convolved, n * w.conv));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, tape->states, calm_delta_states(&config->delta, n, CALM_DELTA_CHUNK)));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, tape->o, n * w.value));
    return CALM_NEW_RAW(ctx, ctx->scratch, tape->y, n * w.value);
}

/* Runs the sublayer and keeps the inputs of the backward pass. */
static calm_status forward(calm_ctx *ctx, const calm_kind_pass *pass, float *y, void *user)
{
    const calm_config *config = pass->block->config;
    const size_t n = pass->span->n_tokens, n_value = n * widths_of(config).value;
    delta_tape *t = user;
    float *normed;
    CALM_TRY(new_tape(ctx, config, n, t));
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(project(ctx, pass->block, pass->h, calm_weight_apply_tiled, &t->rows));
    const calm_convolution conv = convolution(pass->block, true);
    CALM_TRY(calm_convolution_run(ctx, &conv, t->rows.mixed, conv.n_channels, n, t->convolved));
    calm_delta_gates(ctx, n, config->delta.n_value_heads, pass->block->plain[CALM_PLAIN_DELTA_A_LOG].w,
                     pass->block->plain[CALM_PLAIN_DELTA_DT].w, t->rows.decay, t->rows.beta);
    const calm_delta_rows in = rule_rows(t);
    CALM_TRY(calm_delta_rule(ctx, &config->delta, &in, CALM_DELTA_CHUNK, t->o, NULL, t->states, NULL));
    /* The norm works in place, and both of its operands are needed later. */
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, normed, n_value));
    memcpy(normed, t->o, n_value * sizeof *normed);
    memcpy(t->y, t->rows.z, n_value * sizeof *t->y);
    calm_delta_norm(ctx, &config->delta, n, pass->block->plain[CALM_PLAIN_DELTA_NORM].w, config->norm_eps, normed,
                    t->y);
    return calm_weight_apply_tiled(ctx, &pass->block->weight[CALM_ROLE_DELTA_OUT], t->y, n, y);
}

typedef struct norm_task {
    const delta_tape *tape;
    const calm_norm *norm;
    float *dy, *dz;    /* dy becomes the gradient of the norm's output */
} norm_task;

/* Backward of y = norm(o) silu(z), row by row. */
static calm_status gate_rows(calm_ctx *ctx, size_t first, size_t n, void *user)
{
    const norm_task *task = user;
    const size_t width = widths_of(task->tape->rows.config).value, at = first * width, count = n * width;
    const float *z = task->tape->rows.z + at;
    float *dz = task->dz + at, *dy = task->dy + at, *silu;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, silu, count));
    calm_norm_rows(task->norm, task->tape->o + at, count / task->norm->width, dz);
    calm_vec_mul(count, dy, dz);
    calm_vec_silu_back(count, z, dz);
    memcpy(silu, z, count * sizeof *silu);
    calm_vec_silu(count, silu);
    calm_vec_mul(count, silu, dy);
    return CALM_OK;
}

/* Backward of the convolution and its activation function: overwrites dconvolved, writes r->mixed. */
static calm_status convolution_back(calm_ctx *ctx, const calm_block *block, const delta_tape *tape, float *dconvolved,
                                    float *dw, rows *r)
{
    const calm_convolution conv = convolution(block, false);
    const size_t n = r->n;
    /* The derivative needs the input of the activation function. */
    CALM_TRY(calm_convolution_run(ctx, &conv, tape->rows.mixed, conv.n_channels, n, r->mixed));
    calm_activate_back(block->config->activation, n * conv.n_channels, r->mixed, dconvolved);
    return calm_convolution_back(ctx, &conv, tape->rows.mixed, conv.n_channels, n, dconvolved, dw, NULL, r->mixed);
}

/* Backward of the linear of `role`, from dy. */
static calm_status linear_back(calm_ctx *ctx, const calm_block *block, calm_role role, const float *x, size_t n,
                               const float *dy, const calm_block_grads *grads, bool add, float *dx)
{
    return calm_weight_back(ctx, &block->weight[role], x, n, dy, grads->weight[role], grads->bias[role], add, dx);
}

/* Backward of the linears that read h. */
static calm_status projections_back(calm_ctx *ctx, const calm_block *block, const float *h, rows *r,
                                    const calm_block_grads *grads, float *dh)
{
    if (!is_fused(block->config)) {
        CALM_TRY(linear_back(ctx, block, CALM_ROLE_DELTA_QKV, h, r->n, r->mixed, grads, false, dh));
        CALM_TRY(linear_back(ctx, block, CALM_ROLE_DELTA_Z, h, r->n, r->z, grads, true, dh));
        CALM_TRY(linear_back(ctx, block, CALM_ROLE_DELTA_B, h, r->n, r->beta, grads, true, dh));
        return linear_back(ctx, block, CALM_ROLE_DELTA_A, h, r->n, r->decay, grads, true, dh);
    }
    CALM_TRY(new_fused(ctx, block, r));
    calm_parallel_each_rows(ctx, r->n, part_rows, r);
    CALM_TRY(linear_back(ctx, block, CALM_ROLE_DELTA_QKVZ, h, r->n, r->qkvz, grads, false, dh));
    return linear_back(ctx, block, CALM_ROLE_DELTA_BA, h, r->n, r->ba, grads, true, dh);
}

/* Writes the row lengths of the gradients of each job's outputs. */
static void write_lengths(const rows *r, const calm_block_grads *grads)
{
    const widths w = widths_of(r->config);
    const size_t heads = r->config->delta.n_value_heads;
    float *in = grads->lengths[CALM_JOB_DELTA_IN], *gates = grads->lengths[CALM_JOB_DELTA_BA];
    if (in) {
        calm_vec_lengths(r->n, w.conv, w.conv, r->mixed, false, in);
        calm_vec_lengths(r->n, w.value, w.value, r->z, true, in);
    }
    if (gates) {
        calm_vec_lengths(r->n, heads, heads, r->beta, false, gates);
        calm_vec_lengths(r->n, heads, heads, r->decay, true, gates);
    }
}

/* Runs the backward pass of `forward`'s steps in reverse order. */
static calm_status backward(calm_ctx *ctx, const calm_kind_pass *pass, const void *user, const float *dy,
                            const calm_block_grads *grads, float *dh, float *dx)
{
    (void)dx;
    const calm_config *config = pass->block->config;
    const widths w = widths_of(config);
    const delta_tape *t = user;
    const size_t n = pass->span->n_tokens, heads = config->delta.n_value_heads;
    const calm_norm *norm = &pass->block->plain[CALM_PLAIN_DELTA_NORM];
    rows r = {.config = config, .n = n, .back = true};
    float *dout, *dconvolved;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, r.z, n * w.value));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, r.beta, n * heads));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, r.decay, n * heads));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, r.mixed, n * w.conv));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, dout, n * w.value));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, dconvolved, n * w.conv));
    CALM_TRY(linear_back(ctx, pass->block, CALM_ROLE_DELTA_OUT, t->y, n, dy, grads, false, dout));
    CALM_TRY(calm_parallel_rows(ctx, n, gate_rows, &(norm_task){t, norm, dout, r.z}));
    CALM_TRY(calm_norm_back(ctx, norm, (calm_norm_rows_of){n, heads, w.value}, t->o, dout,
                            grads->plain[CALM_PLAIN_DELTA_NORM], NULL, dout));
    const calm_delta_rows in = rule_rows(t);
    const calm_delta_grads to = {dconvolved, dconvolved + w.key, dconvolved + 2 * w.key, r.decay, r.beta};
    CALM_TRY(calm_delta_rule_back(ctx, &config->delta, &in, CALM_DELTA_CHUNK, t->states, dout, &to));
    calm_delta_gates_back(n, heads, pass->block->plain[CALM_PLAIN_DELTA_A_LOG].w, t->rows.decay, t->rows.beta, r.decay,
                          r.beta, grads->plain[CALM_PLAIN_DELTA_A_LOG], grads->plain[CALM_PLAIN_DELTA_DT]);
    CALM_TRY(convolution_back(ctx, pass->block, t, dconvolved, grads->plain[CALM_PLAIN_DELTA_CONV], &r));
    write_lengths(&r, grads);
    return projections_back(ctx, pass->block, pass->h, &r, grads, dh);
}

/* Returns the bytes of new_tape(). */
static size_t kept_bytes(const calm_config *config, size_t n_tokens)
{
    const widths w = widths_of(config);
    return 3 * CALM_BYTES(float, n_tokens * w.value) + 2 * CALM_BYTES(float, n_tokens * w.conv)
           + 2 * CALM_BYTES(float, n_tokens * config->delta.n_value_heads)
           + CALM_BYTES(float, calm_delta_states(&config->delta, n_tokens, CALM_DELTA_CHUNK));
}

/* Returns the peak of the steps, which run one after the other; each worker of the rule has its own buffers. */
static size_t forward_bytes(const calm_config *config, size_t n_tokens, size_t n_threads)
{
    const widths w = widths_of(config);
    const size_t workers = calm_size_min(n_threads, config->delta.n_key_heads);
    const size_t rule = workers * helper_bytes(config, n_tokens), normed = CALM_BYTES(float, n_tokens * w.value);
    const size_t first = fused_bytes(config, n_tokens) + calm_weight_apply_scratch_bytes(config->hidden, n_tokens);
    return calm_size_max(calm_size_max(first, calm_convolution_bytes(w.conv, config->conv_width)),
                         calm_size_max(rule, normed + calm_weight_apply_scratch_bytes(w.value, n_tokens)));
}

/* Returns the bytes of gradients of everything in the tape except the states, and of the step that takes most. */
static size_t back_bytes(const calm_config *config, size_t n_tokens, size_t n_threads)
{
    const widths w = widths_of(config);
    const size_t own = 2 * CALM_BYTES(float, n_tokens * w.value) + 2 * CALM_BYTES(float, n_tokens * w.conv)
                        + 2 * CALM_BYTES(float, n_tokens * config->delta.n_value_heads);
    const size_t rule = calm_size_min(n_threads, config->delta.n_key_heads)
                        * calm_delta_rule_back_bytes(&config->delta, n_tokens, CALM_DELTA_CHUNK);
    const size_t silu = n_threads * CALM_BYTES(float, calm_size_min(n_tokens, CALM_ROWS_OF_TASK) * w.value);
    const size_t norm = calm_norm_back_scratch_bytes(config->delta.value_dim, n_tokens);
    const size_t taps = 2 * calm_convolution_bytes(w.conv, config->conv_width);
    const size_t linears = calm_size_max(calm_weight_back_scratch_bytes(w.value, n_tokens),
                                         fused_bytes(config, n_tokens)
                                             + calm_weight_back_scratch_bytes(config->hidden, n_tokens));
    return own + calm_size_max(calm_size_max(rule, silu), calm_size_max(calm_size_max(norm, taps), linears));
}

static const calm_kind_back back = {.tape_bytes = sizeof(delta_tape),
                                    .forward = forward,
                                    .back = backward,
                                    .kept_bytes = kept_bytes,
                                    .forward_bytes = forward_bytes,
                                    .back_bytes = back_bytes};

/* ---- table ---- */

/* Gives the rows and columns of each matrix; b and a have one row for each value head. */
static void shape(const calm_config *config, calm_role role, long expert, size_t *out, size_t *in)
{
    const widths w = widths_of(config);
    const size_t gates = config->delta.n_value_heads;
    (void)expert;
    *in = role == CALM_ROLE_DELTA_OUT ? w.value : config->hidden;
    switch ((int)role) {
    case CALM_ROLE_DELTA_QKV:
        *out = w.conv;
        break;
    case CALM_ROLE_DELTA_Z:
        *out = w.value;
        break;
    case CALM_ROLE_DELTA_QKVZ:
        *out = w.conv + w.value;
        break;
    case CALM_ROLE_DELTA_BA:
        *out = 2 * gates;
        break;
    case CALM_ROLE_DELTA_OUT:
        *out = config->hidden;
        break;
    default:
        *out = gates;
    }
}

/* Gives the shapes of vectors over heads or a head, and of the convolution's kernel. */
static void plain_shape(const calm_config *config, calm_plain plain, size_t dims[CALM_PLAIN_DIMS], int *n_dims)
{
    *n_dims = 1;
    dims[0] = plain == CALM_PLAIN_DELTA_NORM ? config->delta.value_dim : config->delta.n_value_heads;
    if (plain != CALM_PLAIN_DELTA_CONV)
        return;
    /* The shape of a depthwise convolution in torch: [channels, 1, width]. */
    *n_dims = 3;
    dims[0] = widths_of(config).conv;
    dims[1] = 1;
    dims[2] = config->conv_width;
}

/* z has a channel for each value; the other hook points one value for each head. */
static size_t hook_width(const calm_config *config, calm_hook hook, long expert)
{
    (void)expert;
    return hook == CALM_HOOK_DELTA_GATE ? widths_of(config).value : config->delta.n_value_heads;
}

/* No scale can be folded: that of in's input would also change b and a; out reads a product of two functions. */
static const calm_kind_job jobs[] = {
    {.job = CALM_JOB_DELTA_IN, .outer = true, .fused = "in_proj_qkvz", .fused_last = "linear_attn.in_proj_z"},
    /* Published recipes leave these few rows float, since decays over thousands of tokens depend on them. */
    {.job = CALM_JOB_DELTA_BA, .outer = true, .fused = "in_proj_ba", .fused_last = "linear_attn.in_proj_a",
     .stays_float = "the gates of a gated delta net are a few rows that act on every later token"},
    {.job = CALM_JOB_DELTA_OUT},
};

static const calm_kind_word words[] = {
    {.role = CALM_ROLE_DELTA_QKV, .form = CALM_GGUF_MIXED, .word = "attn_qkv"},
    {.role = CALM_ROLE_DELTA_Z, .form = CALM_GGUF_VALUES, .word = "attn_gate"},
    {.role = CALM_ROLE_DELTA_QKVZ, .form = CALM_GGUF_QKVZ_MIXED, .word = "attn_qkv"},
    {.role = CALM_ROLE_DELTA_QKVZ, .form = CALM_GGUF_QKVZ_GATE, .word = "attn_gate"},
    {.role = CALM_ROLE_DELTA_B, .form = CALM_GGUF_GATES, .word = "ssm_beta"},
    {.role = CALM_ROLE_DELTA_A, .form = CALM_GGUF_GATES, .word = "ssm_alpha"},
    {.role = CALM_ROLE_DELTA_BA, .word = "ssm_ba"},
    {.role = CALM_ROLE_DELTA_OUT, .form = CALM_GGUF_VALUE_COLUMNS, .word = "ssm_out"},
};

/* vLLM fuses both of a pair, so they need one scheme. */
static const calm_fusion fusions[] = {{{"in_proj_qkv", "in_proj_z", NULL}, "in_proj_qkvz"},
                                      {{"in_proj_b", "in_proj_a", NULL}, "in_proj_ba"}};

static const calm_kind_plain plains[] = {
    {.plain = CALM_PLAIN_DELTA_CONV, .form = CALM_PLAIN_TENSOR, .word = "ssm_conv1d.weight", .order = CALM_GGUF_MIXED,
     .taps = true},
    {.plain = CALM_PLAIN_DELTA_A_LOG, .form = CALM_PLAIN_TENSOR, .word = "ssm_a", .order = CALM_GGUF_GATES,
     .minus_exp = true},
    {.plain = CALM_PLAIN_DELTA_DT, .form = CALM_PLAIN_TENSOR, .word = "ssm_dt.bias", .order = CALM_GGUF_GATES},
    {.plain = CALM_PLAIN_DELTA_NORM, .form = CALM_PLAIN_RMS_NORM, .word = "ssm_norm"},
};

/* In the order in which a pass reaches them. */
static const calm_hook hooks[] = {CALM_HOOK_DELTA_GATE, CALM_HOOK_DELTA_DECAY, CALM_HOOK_DELTA_BETA,
                                  CALM_HOOK_DELTA_STATE};

const calm_kind calm_kind_delta = {
    .name = "delta",
    CALM_KIND_MIXER,
    CALM_KIND_LIST(hooks),
    .hook_width = hook_width,
    .state = state,
    .operations = operations,
    .helper_bytes = helper_bytes,
    CALM_KIND_LIST(fusions),
};
