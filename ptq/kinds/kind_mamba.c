/* Mamba-2: the mixer of blocks of "mamba" or "linear_attention" of Granite 4 and Nemotron-H.
 *
 *   [z | xBC | dt] = W_in h    [x | B | C] = act(conv(xBC) + b)    step = softplus(dt + dt_bias) within limits
 *   y = W_out (RMSNorm(o silu(z)) w),    o the scan of x, B, C, step and decay = -exp(A_log) step (mamba.h)
 *
 * The norm is over groups of channels, as many as B and C have.
 *
 * References: arXiv 2405.21060; transformers' modeling_granitemoehybrid.py, modeling_nemotron_h.py. */
#include <string.h>

#include "ptq/arch/kind.h"
#include "ptq/base/scope.h"
#include "ptq/layers/block.h"
#include "ptq/layers/delta_back.h"
#include "ptq/layers/mamba_back.h"
#include "ptq/layers/mlp_back.h"
#include "ptq/layers/past.h"
#include "ptq/tensor/vector_back.h"

/* Widths of a token's rows. */
typedef struct widths {
    size_t value;    /* of z, of x and of o */
    size_t group;    /* of B over all groups, and of C */
    size_t conv;     /* x, B and C together                   */
    size_t all;      /* rows of the first linear */
} widths;

static widths widths_of(const calm_config *config)
{
    const calm_mamba_shape *shape = &config->mamba.shape;
    const size_t value = shape->n_heads * shape->head_dim, group = shape->n_groups * shape->state_dim;
    return (widths){value, group, value + 2 * group, 2 * value + 2 * group + shape->n_heads};
}

/* Values of one window between the steps; all in ctx->scratch. */
typedef struct rows {
    float *all;               /* [n, all]: output of the first linear */
    float *convolved;         /* [n, conv]                               */
    float *step, *decay;      /* [n, n_heads]                            */
    float *y, *norms;         /* [n, value]; [n, n_heads]                */
} rows;

static calm_status new_rows(calm_ctx *ctx, const calm_config *config, size_t n, rows *r)
{
    const widths w = widths_of(config);
    const size_t gates = n * config->mamba.shape.n_heads;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, r->all, n * w.all));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, r->convolved, n * w.conv));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, r->step, gates));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, r->decay, gates));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, r->norms, gates));
    return CALM_NEW_RAW(ctx, ctx->scratch, r->y, n * w.value);
}

/* Shows the observer x [n, width] at one of this kind's hook points. */
static calm_status observe(calm_ctx *ctx, const calm_observer *observer, const calm_span *span, calm_hook hook,
                           const float *x, size_t width)
{
    const calm_observation seen = {hook, CALM_NO_EXPERT, span->window, x, span->n_tokens, width, NULL};
    return calm_observe(observer, ctx, &seen);
}

/* Shows the observer the columns of z, copied to contiguous rows. */
static calm_status observe_gate(calm_ctx *ctx, const calm_observer *observer, const calm_span *span, const rows *r,
                                const widths *w)
{
    float *z;
    CALM_SCOPED_SCRATCH(ctx);
    if (!observer || !observer->fn)
        return CALM_OK;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, z, span->n_tokens * w->value));
    for (size_t t = 0; t < span->n_tokens; t++)
        memcpy(z + t * w->value, r->all + t * w->all, w->value * sizeof *z);
    return observe(ctx, observer, span, CALM_HOOK_MAMBA_GATE, z, w->value);
}

static calm_convolution convolution(const calm_block *block, bool activated)
{
    const calm_config *config = block->config;
    return (calm_convolution){.n_channels = widths_of(config).conv, .width = config->conv_width,
                              .w = block->plain[CALM_PLAIN_MAMBA_CONV].w,
                              .bias = block->plain[CALM_PLAIN_MAMBA_CONV_BIAS].w,
                              .activate = activated ? calm_activation_of(config->mamba.activation) : NULL};
}

/* Returns the elements of the state: the memories of all heads, then the convolution's tail. */
static size_t state(const calm_config *config)
{
    return calm_mamba_memory(&config->mamba.shape) + calm_convolution_tail(widths_of(config).conv, config->conv_width);
}

/* Computes the scan's inputs: x, B and C after the convolution, steps and decays.  `memory` NULL: the span is a whole
 * window. */
static calm_status prepare(calm_ctx *ctx, const calm_block *block, const calm_span *span,
                           const calm_observer *observer, float *memory, const rows *r)
{
    const calm_config *config = block->config;
    const calm_mamba_config *mamba = &config->mamba;
    const widths w = widths_of(config);
    const size_t n = span->n_tokens, heads = mamba->shape.n_heads;
    calm_convolution conv = convolution(block, true);
    conv.tail = memory ? memory + calm_mamba_memory(&mamba->shape) : NULL;
    CALM_TRY(observe_gate(ctx, observer, span, r, &w));
    CALM_TRY(calm_convolution_run(ctx, &conv, r->all + w.value, w.all, n, r->convolved));
    calm_mamba_steps(ctx, n, heads, r->all + w.value + w.conv, w.all, block->plain[CALM_PLAIN_MAMBA_A_LOG].w,
                     block->plain[CALM_PLAIN_MAMBA_DT].w, mamba->limits, r->step, r->decay);
    CALM_TRY(observe(ctx, observer, span, CALM_HOOK_MAMBA_STEP, r->step, heads));
    return observe(ctx, observer, span, CALM_HOOK_MAMBA_DECAY, r->decay, heads);
}

/* Returns the operands of the scan: columns of the convolution's output. */
static calm_mamba_rows scan_rows(const calm_block *block, const rows *r, size_t n)
{
    const widths w = widths_of(block->config);
    return (calm_mamba_rows){r->convolved, r->convolved + w.value, r->convolved + w.value + w.group, w.conv, n, r->step,
                             r->decay, block->plain[CALM_PLAIN_MAMBA_SKIP].w};
}

/* Runs the sublayer; the order of tokens replaces a position embedding. */
static calm_status run(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, const float *h,
                       const calm_span *span, float *out, const calm_observer *observer)
{
    const calm_config *config = block->config;
    const calm_mamba_shape *shape = &config->mamba.shape;
    const widths w = widths_of(config);
    const size_t n = span->n_tokens;
    float *memory = calm_past_state(block, span);
    rows r;
    (void)rope;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(observe(ctx, observer, span, CALM_HOOK_MAMBA_IN, h, config->hidden));
    CALM_TRY(new_rows(ctx, config, n, &r));
    CALM_TRY(calm_weight_apply(ctx, &block->weight[CALM_ROLE_MAMBA_IN], h, n, r.all));
    CALM_TRY(prepare(ctx, block, span, observer, memory, &r));
    const calm_mamba_rows in = scan_rows(block, &r, n);
    /* The norms of the memory cost a few products of vectors, and only an observer reads them. */
    CALM_TRY(calm_mamba_scan(ctx, shape, &in, CALM_MAMBA_CHUNK, r.y, observer && observer->fn ? r.norms : NULL, NULL,
                             memory));
    CALM_TRY(observe(ctx, observer, span, CALM_HOOK_MAMBA_STATE, r.norms, shape->n_heads));
    calm_mamba_norm(ctx, shape, n, block->plain[CALM_PLAIN_MAMBA_NORM].w, config->norm_eps, r.all, w.all,
                    r.y);
    CALM_TRY(observe(ctx, observer, span, CALM_HOOK_MAMBA_OUT_IN, r.y, w.value));
    return calm_weight_apply(ctx, &block->weight[CALM_ROLE_MAMBA_OUT], r.y, n, out);
}

/* Returns the operations per token: two products with the memory, those between the tokens of a chunk, the
 * convolution. */
static double operations(const calm_config *config, double window)
{
    const calm_mamba_shape *shape = &config->mamba.shape;
    const widths w = widths_of(config);
    const double chunk = window < (double)CALM_MAMBA_CHUNK ? window : (double)CALM_MAMBA_CHUNK;
    const double memory = 4 * (double)(w.value * shape->state_dim);
    return memory + 2 * chunk * (double)(w.value + w.group) + 2 * (double)(w.conv * config->conv_width);
}

static size_t helper_bytes(const calm_config *config, size_t n_tokens)
{
    return calm_mamba_head_bytes(&config->mamba.shape, n_tokens, CALM_MAMBA_CHUNK);
}

/* Returns the bytes of new_rows(). */
static size_t rows_bytes(const calm_config *config, size_t n_tokens)
{
    const widths w = widths_of(config);
    return CALM_BYTES(float, n_tokens * w.all) + CALM_BYTES(float, n_tokens * w.conv)
           + CALM_BYTES(float, n_tokens * w.value) + 3 * CALM_BYTES(float, n_tokens * config->mamba.shape.n_heads);
}

/* Returns the bytes of all rows and of the step that takes most. */
static size_t scratch_bytes(const calm_config *config, size_t n_tokens, bool prepared)
{
    const widths w = widths_of(config);
    const size_t own = rows_bytes(config, n_tokens);
    const size_t gate = CALM_BYTES(float, n_tokens * w.value);
    const size_t scan = calm_mamba_scan_bytes(&config->mamba.shape, n_tokens, CALM_MAMBA_CHUNK)
                        + helper_bytes(config, n_tokens);
    const size_t inputs =
        prepared ? calm_size_max(calm_weight_apply_scratch_bytes(config->hidden, n_tokens),
                                 calm_weight_apply_scratch_bytes(w.value, n_tokens)) : 0;
    return own + calm_size_max(calm_size_max(gate, scan),
                               calm_size_max(inputs, calm_convolution_bytes(w.conv, config->conv_width)));
}

/* ---- gradients ---- */

typedef struct mamba_tape {
    rows rows;        /* y is the input of out */
    float *o;         /* [n, value]: output of the scan */
    float *states;    /* states of the scan, before each chunk */
} mamba_tape;

/* Allocates the tape, before the marks that release everything else. */
static calm_status new_tape(calm_ctx *ctx, const calm_config *config, size_t n, mamba_tape *tape)
{
    CALM_TRY(new_rows(ctx, config, n, &tape->rows));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, tape->o, n * widths_of(config).value));
    return CALM_NEW_RAW(ctx, ctx->scratch, tape->states,
                        calm_mamba_states(&config->mamba.shape, n, CALM_MAMBA_CHUNK));
}

/* Runs the sublayer and keeps the inputs of the backward pass. */
static calm_status forward(calm_ctx *ctx, const calm_kind_pass *pass, float *y, void *user)
{
    const calm_config *config = pass->block->config;
    const calm_mamba_shape *shape = &config->mamba.shape;
    const widths w = widths_of(config);
    const size_t n = pass->span->n_tokens;
    mamba_tape *t = user;
    float *z;
    CALM_TRY(new_tape(ctx, config, n, t));
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(calm_weight_apply_tiled(ctx, &pass->block->weight[CALM_ROLE_MAMBA_IN], pass->h, n, t->rows.all));
    CALM_TRY(prepare(ctx, pass->block, pass->span, NULL, NULL, &t->rows));
    const calm_mamba_rows in = scan_rows(pass->block, &t->rows, n);
    CALM_TRY(calm_mamba_scan(ctx, shape, &in, CALM_MAMBA_CHUNK, t->o, NULL, t->states, NULL));
    /* The norm overwrites both of its operands, which are needed later. */
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, z, n * w.value));
    for (size_t i = 0; i < n; i++)
        memcpy(z + i * w.value, t->rows.all + i * w.all, w.value * sizeof *z);
    memcpy(t->rows.y, t->o, n * w.value * sizeof *t->o);
    calm_mamba_norm(ctx, shape, n, pass->block->plain[CALM_PLAIN_MAMBA_NORM].w, config->norm_eps, z, w.value,
                    t->rows.y);
    return calm_weight_apply_tiled(ctx, &pass->block->weight[CALM_ROLE_MAMBA_OUT], t->rows.y, n, y);
}

/* Backward of the convolution and its activation function: overwrites dconvolved, writes columns of dall. */
static calm_status convolution_back(calm_ctx *ctx, const calm_block *block, const mamba_tape *tape, size_t n,
                                    const calm_block_grads *grads, float *dconvolved, float *dall)
{
    const calm_convolution conv = convolution(block, false);
    const widths w = widths_of(block->config);
    const float *x = tape->rows.all + w.value;
    float *before;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, before, n * w.conv));
    /* The derivative needs the input of the activation function. */
    CALM_TRY(calm_convolution_run(ctx, &conv, x, w.all, n, before));
    calm_activate_back(block->config->mamba.activation, n * w.conv, before, dconvolved);
    return calm_convolution_back(ctx, &conv, x, w.all, n, dconvolved, grads->plain[CALM_PLAIN_MAMBA_CONV],
                                 grads->plain[CALM_PLAIN_MAMBA_CONV_BIAS], dall + w.value);
}

/* Computes dall [n, all], the gradient of the first linear's output, from dout, that of the last linear's input. */
static calm_status inner_back(calm_ctx *ctx, const calm_block *block, const mamba_tape *t, size_t n,
                              const calm_block_grads *grads, float *dout, float *dall)
{
    const calm_mamba_config *mamba = &block->config->mamba;
    const widths w = widths_of(block->config);
    const size_t heads = mamba->shape.n_heads, steps = w.value + w.conv;
    calm_norm norm = block->plain[CALM_PLAIN_MAMBA_NORM];
    float *dconvolved, *dstep, *ddecay;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, dconvolved, n * w.conv));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, dstep, n * heads));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, ddecay, n * heads));
    norm.eps = block->config->norm_eps;
    CALM_TRY(calm_mamba_norm_back(ctx, &mamba->shape, n, &norm, t->o, t->rows.all, w.all, dout,
                                  grads->plain[CALM_PLAIN_MAMBA_NORM], dall));
    const calm_mamba_rows in = scan_rows(block, &t->rows, n);
    const calm_mamba_grads to = {dconvolved, dconvolved + w.value, dconvolved + w.value + w.group, dstep, ddecay,
                                 grads->plain[CALM_PLAIN_MAMBA_SKIP]};
    CALM_TRY(calm_mamba_scan_back(ctx, &mamba->shape, &in, CALM_MAMBA_CHUNK, t->states, dout, &to));
    calm_mamba_steps_back(n, heads, t->rows.all + steps, w.all, block->plain[CALM_PLAIN_MAMBA_A_LOG].w,
                          block->plain[CALM_PLAIN_MAMBA_DT].w, mamba->limits, dstep, ddecay, dall + steps,
                          grads->plain[CALM_PLAIN_MAMBA_A_LOG], grads->plain[CALM_PLAIN_MAMBA_DT]);
    return convolution_back(ctx, block, t, n, grads, dconvolved, dall);
}

/* Runs the backward pass of `forward`'s steps in reverse order. */
static calm_status backward(calm_ctx *ctx, const calm_kind_pass *pass, const void *user, const float *dy,
                            const calm_block_grads *grads, float *dh, float *dx)
{
    (void)dx;
    const widths w = widths_of(pass->block->config);
    const mamba_tape *t = user;
    const size_t n = pass->span->n_tokens;
    float *dout, *dall, *lengths = grads->lengths[CALM_JOB_MAMBA_IN];
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, dout, n * w.value));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, dall, n * w.all));
    CALM_TRY(calm_weight_back(ctx, &pass->block->weight[CALM_ROLE_MAMBA_OUT], t->rows.y, n, dy,
                              grads->weight[CALM_ROLE_MAMBA_OUT], grads->bias[CALM_ROLE_MAMBA_OUT], false, dout));
    CALM_TRY(inner_back(ctx, pass->block, t, n, grads, dout, dall));
    if (lengths)
        calm_vec_lengths(n, w.all, w.all, dall, false, lengths);
    return calm_weight_back(ctx, &pass->block->weight[CALM_ROLE_MAMBA_IN], pass->h, n, dall,
                            grads->weight[CALM_ROLE_MAMBA_IN], grads->bias[CALM_ROLE_MAMBA_IN], false, dh);
}

/* Returns the bytes of new_tape(). */
static size_t kept_bytes(const calm_config *config, size_t n_tokens)
{
    return rows_bytes(config, n_tokens) + CALM_BYTES(float, n_tokens * widths_of(config).value)
           + CALM_BYTES(float, calm_mamba_states(&config->mamba.shape, n_tokens, CALM_MAMBA_CHUNK));
}

/* Returns the peak of the steps, which run one after the other; each worker of the scan has its own buffers. */
static size_t forward_bytes(const calm_config *config, size_t n_tokens, size_t n_threads)
{
    const calm_mamba_shape *shape = &config->mamba.shape;
    const widths w = widths_of(config);
    const size_t workers = calm_size_min(n_threads, shape->n_heads);
    const size_t scan = calm_mamba_scan_bytes(shape, n_tokens, CALM_MAMBA_CHUNK) +
                        workers * helper_bytes(config, n_tokens);
    const size_t last = CALM_BYTES(float, n_tokens * w.value) + calm_weight_apply_scratch_bytes(w.value, n_tokens);
    return calm_size_max(calm_size_max(calm_weight_apply_scratch_bytes(config->hidden, n_tokens),
                                       calm_convolution_bytes(w.conv, config->conv_width)),
                         calm_size_max(scan, last));
}

/* Returns the bytes of the gradients of linears' outputs and inputs, and of the step that takes most. */
static size_t back_bytes(const calm_config *config, size_t n_tokens, size_t n_threads)
{
    const calm_mamba_shape *shape = &config->mamba.shape;
    const widths w = widths_of(config);
    const size_t conv = CALM_BYTES(float, n_tokens * w.conv), workers = calm_size_min(n_threads, shape->n_heads);
    const size_t own = CALM_BYTES(float, n_tokens * w.value) + CALM_BYTES(float, n_tokens * w.all);
    const size_t scan = calm_mamba_scan_back_bytes(shape, n_tokens, CALM_MAMBA_CHUNK) +
                        workers * calm_mamba_head_back_bytes(shape, n_tokens, CALM_MAMBA_CHUNK);
    const size_t taps = conv + 2 * calm_convolution_bytes(w.conv, config->conv_width);
    const size_t inner = conv + 2 * CALM_BYTES(float, n_tokens * shape->n_heads)
                         + calm_size_max(calm_size_max(scan, taps),
                                         calm_mamba_norm_back_bytes(shape, n_tokens, n_threads));
    return own + calm_size_max(inner, calm_size_max(calm_weight_back_scratch_bytes(w.value, n_tokens),
                                                    calm_weight_back_scratch_bytes(config->hidden, n_tokens)));
}

static const calm_kind_back back = {.tape_bytes = sizeof(mamba_tape),
                                    .forward = forward,
                                    .back = backward,
                                    .kept_bytes = kept_bytes,
                                    .forward_bytes = forward_bytes,
                                    .back_bytes = back_bytes};

/* ---- table ---- */

static void shape(const calm_config *config, calm_role role, long expert, size_t *out, size_t *in)
{
    const widths w = widths_of(config);
    (void)expert;
    *out = role == CALM_ROLE_MAMBA_IN ? w.all : config->hidden;
    *in = role == CALM_ROLE_MAMBA_IN ? config->hidden : w.value;
}

/* Returns the keys of both families. */
static const char *keys(calm_role role)
{
    return role == CALM_ROLE_MAMBA_IN
               ? "mamba_n_heads (mamba_num_heads), mamba_d_head (mamba_head_dim), mamba_n_groups (n_groups) and "
                 "mamba_d_state (ssm_state_size)"
               : "mamba_n_heads (mamba_num_heads) and mamba_d_head (mamba_head_dim)";
}

/* Gives the shapes of the convolution's kernel and bias, of the norm, and of vectors over heads. */
static void plain_shape(const calm_config *config, calm_plain plain, size_t dims[CALM_PLAIN_DIMS], int *n_dims)
{
    const widths w = widths_of(config);
    *n_dims = 1;
    dims[0] = plain == CALM_PLAIN_MAMBA_NORM ? w.value : config->mamba.shape.n_heads;
    if (plain == CALM_PLAIN_MAMBA_CONV_BIAS) {
        dims[0] = w.conv;
        *n_dims = config->mamba.conv_bias;
    } else if (plain == CALM_PLAIN_MAMBA_CONV) {
        /* The shape of a depthwise convolution in torch: [channels, 1, width]. */
        dims[0] = w.conv;
        dims[1] = 1;
        dims[2] = config->conv_width;
        *n_dims = 3;
    }
}

/* z has a channel for each one of the output; the other hook points one value for each head. */
static size_t hook_width(const calm_config *config, calm_hook hook, long expert)
{
    (void)expert;
    return hook == CALM_HOOK_MAMBA_GATE ? widths_of(config).value : config->mamba.shape.n_heads;
}

static const calm_kind_job jobs[] = {
    {.job = CALM_JOB_MAMBA_IN, .outer = true, .fold = CALM_FOLD_NORM},
    /* The norm before it is over groups of channels, and its weight could take a scale. */
    {.job = CALM_JOB_MAMBA_OUT,
     .stays_float = "fused kernels of Mamba-2 read the weight of its last linear as floats"},
};

static const calm_kind_word words[] = {{.role = CALM_ROLE_MAMBA_IN, .word = "ssm_in"},
                                       {.role = CALM_ROLE_MAMBA_OUT, .word = "ssm_out"}};

static const calm_kind_plain plains[] = {
    {.plain = CALM_PLAIN_MAMBA_CONV, .form = CALM_PLAIN_TENSOR, .word = "ssm_conv1d.weight", .taps = true},
    {.plain = CALM_PLAIN_MAMBA_CONV_BIAS, .form = CALM_PLAIN_TENSOR, .word = "ssm_conv1d.bias"},
    {.plain = CALM_PLAIN_MAMBA_A_LOG, .form = CALM_PLAIN_TENSOR, .word = "ssm_a", .order = CALM_GGUF_COLUMN,
     .minus_exp = true},
    {.plain = CALM_PLAIN_MAMBA_DT, .form = CALM_PLAIN_TENSOR, .word = "ssm_dt.bias"},
    {.plain = CALM_PLAIN_MAMBA_SKIP, .form = CALM_PLAIN_TENSOR, .word = "ssm_d", .order = CALM_GGUF_COLUMN},
    {.plain = CALM_PLAIN_MAMBA_NORM, .form = CALM_PLAIN_RMS_NORM, .word = "ssm_norm", .order = CALM_GGUF_GROUPS},
};

/* In the order in which a pass reaches them. */
static const calm_hook hooks[] = {CALM_HOOK_MAMBA_GATE, CALM_HOOK_MAMBA_STEP, CALM_HOOK_MAMBA_DECAY,
                                  CALM_HOOK_MAMBA_STATE};

const calm_kind calm_kind_mamba = {
    .name = "mamba",
    CALM_KIND_MIXER,
    CALM_KIND_LIST(hooks),
    .keys = keys,
    .hook_width = hook_width,
    .state = state,
    .operations = operations,
    .helper_bytes = helper_bytes,
};
