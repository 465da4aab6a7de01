/* Short convolution: the mixer of LFM2's blocks of "conv".
 *
 *   [B | C | x] = W_in h    y = W_out (C * conv(B * x)),    conv causal and depthwise (convolution.h)
 *
 * Reference: transformers' modeling_lfm2.py. */
#include <string.h>

#include "ptq/arch/kind.h"
#include "ptq/base/scope.h"
#include "ptq/base/threads.h"
#include "ptq/layers/block_back.h"
#include "ptq/layers/delta_back.h"
#include "ptq/layers/past.h"
#include "ptq/tensor/vector.h"
#include "ptq/tensor/vector_back.h"

/* Rows of one window. */
typedef struct rows {
    size_t width;    /* D */
    float *bcx;      /* [n, 3 D] */
    float *y;        /* [n, D]   */
} rows;

/* Multiplies x by B in place, row by row: the convolution's input. */
static void open_rows(size_t first, size_t n, void *user)
{
    const rows *r = user;
    for (size_t t = first; t < first + n; t++)
        calm_vec_mul(r->width, r->bcx + 3 * t * r->width, r->bcx + (3 * t + 2) * r->width);
}

/* Multiplies the convolution's output by C in place, row by row: the input of out. */
static void close_rows(size_t first, size_t n, void *user)
{
    const rows *r = user;
    for (size_t t = first; t < first + n; t++)
        calm_vec_mul(r->width, r->bcx + (3 * t + 1) * r->width, r->y + t * r->width);
}

/* Returns the block's convolution; some checkpoints have a bias. */
static calm_convolution convolution(const calm_block *block)
{
    return (calm_convolution){.n_channels = block->config->hidden, .width = block->config->conv_width,
                              .w = block->plain[CALM_PLAIN_CONV].w, .bias = block->plain[CALM_PLAIN_CONV_BIAS].w};
}

/* Returns the elements of the state: the convolution's tail. */
static size_t state(const calm_config *config)
{
    return calm_convolution_tail(config->hidden, config->conv_width);
}

/* Runs the sublayer with two buffers. */
static calm_status run(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, const float *h,
                       const calm_span *span, float *out, const calm_observer *observer)
{
    const calm_config *config = block->config;
    const size_t n = span->n_tokens, width = config->hidden;
    calm_convolution conv = convolution(block);
    calm_observation seen = {CALM_HOOK_CONV_IN, CALM_NO_EXPERT, span->window, h, n, width, NULL};
    rows r = {.width = width};
    (void)rope;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(calm_observe(observer, ctx, &seen));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, r.bcx, n * 3 * width));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, r.y, n * width));
    CALM_TRY(calm_weight_apply(ctx, &block->weight[CALM_ROLE_CONV_IN], h, n, r.bcx));
    calm_parallel_each_rows(ctx, n, open_rows, &r);
    /* The convolution keeps its input B x as the state. */
    conv.tail = calm_past_state(block, span);
    CALM_TRY(calm_convolution_run(ctx, &conv, r.bcx + 2 * width, 3 * width, n, r.y));
    calm_parallel_each_rows(ctx, n, close_rows, &r);
    seen.hook = CALM_HOOK_CONV_OUT_IN;
    seen.x = r.y;
    CALM_TRY(calm_observe(observer, ctx, &seen));
    return calm_weight_apply(ctx, &block->weight[CALM_ROLE_CONV_OUT], r.y, n, out);
}

/* Returns the bytes of both buffers, and of the larger of a prepared input and the convolution's scratch. */
static size_t scratch_bytes(const calm_config *config, size_t n_tokens, bool prepared)
{
    const size_t width = config->hidden;
    const size_t inputs = prepared ? calm_weight_apply_scratch_bytes(width, n_tokens) : 0;
    return CALM_BYTES(float, 3 * n_tokens * width) + CALM_BYTES(float, n_tokens * width)
           + calm_size_max(inputs, calm_convolution_bytes(width, config->conv_width));
}

/* ---- gradients ---- */

typedef struct conv_tape {
    float *bcx;          /* [n, 3 D] output of W_in */
    float *bx, *conv;    /* [n, D]: B x, and the convolution's output */
    float *y;            /* [n, D] input of out                             */
} conv_tape;

typedef struct back_rows_task {
    size_t width;
    const conv_tape *tape;
    float *dbcx, *dy;    /* [n, 3 D]; [n, D] of y, then of the convolution's output */
} back_rows_task;

/* Computes B x in a separate array, since the backward pass reads B and x. */
static void multiply_rows(size_t first, size_t n, void *user)
{
    const back_rows_task *task = user;
    const size_t width = task->width;
    for (size_t t = first; t < first + n; t++) {
        memcpy(task->tape->bx + t * width, task->tape->bcx + 3 * t * width, width * sizeof *task->tape->bx);
        calm_vec_mul(width, task->tape->bcx + (3 * t + 2) * width, task->tape->bx + t * width);
    }
}

/* Runs the sublayer and keeps the inputs of the backward pass. */
static calm_status forward(calm_ctx *ctx, const calm_kind_pass *pass, float *y, void *user)
{
    const size_t n = pass->span->n_tokens, width = pass->block->config->hidden;
    const calm_convolution conv = convolution(pass->block);
    conv_tape *t = user;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, t->bcx, n * 3 * width));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, t->bx, n * width));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, t->conv, n * width));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, t->y, n * width));
    CALM_TRY(calm_weight_apply_tiled(ctx, &pass->block->weight[CALM_ROLE_CONV_IN], pass->h, n, t->bcx));
    calm_parallel_each_rows(ctx, n, multiply_rows, &(back_rows_task){.width = width, .tape = t});
    CALM_TRY(calm_convolution_run(ctx, &conv, t->bx, width, n, t->conv));
    memcpy(t->y, t->conv, n * width * sizeof *t->y);
    calm_parallel_each_rows(ctx, n, close_rows, &(rows){width, t->bcx, t->y});
    return calm_weight_apply_tiled(ctx, &pass->block->weight[CALM_ROLE_CONV_OUT], t->y, n, y);
}

/* Computes dC, and turns dy in place into the gradient of the convolution's output. */
static void open_back(size_t first, size_t n, void *user)
{
    const back_rows_task *task = user;
    const size_t width = task->width;
    for (size_t t = first; t < first + n; t++) {
        float *dc = task->dbcx + (3 * t + 1) * width, *dy = task->dy + t * width;
        memcpy(dc, dy, width * sizeof *dc);
        calm_vec_mul(width, task->tape->conv + t * width, dc);
        calm_vec_mul(width, task->tape->bcx + (3 * t + 1) * width, dy);
    }
}

/* Computes dB and dx from the gradient of B x, which is stored in dx's place. */
static void close_back(size_t first, size_t n, void *user)
{
    const back_rows_task *task = user;
    const size_t width = task->width;
    for (size_t t = first; t < first + n; t++) {
        float *db = task->dbcx + 3 * t * width, *dx = db + 2 * width;
        memcpy(db, dx, width * sizeof *db);
        calm_vec_mul(width, task->tape->bcx + (3 * t + 2) * width, db);
        calm_vec_mul(width, task->tape->bcx + 3 * t * width, dx);
    }
}

/* Runs the backward pass of `forward`'s steps in reverse order. */
static calm_status backward(calm_ctx *ctx, const calm_kind_pass *pass, const void *user, const float *dy,
                            const calm_block_grads *grads, float *dh, float *dx)
{
    (void)dx;
    const size_t n = pass->span->n_tokens, width = pass->block->config->hidden;
    const calm_convolution conv = convolution(pass->block);
    const conv_tape *t = user;
    back_rows_task task = {.width = width, .tape = t};
    float *dbx;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, task.dbcx, n * 3 * width));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, task.dy, n * width));
    CALM_TRY(calm_weight_back(ctx, &pass->block->weight[CALM_ROLE_CONV_OUT], t->y, n, dy,
                              grads->weight[CALM_ROLE_CONV_OUT], grads->bias[CALM_ROLE_CONV_OUT], false, task.dy));
    calm_parallel_each_rows(ctx, n, open_back, &task);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, dbx, n * width));
    CALM_TRY(calm_convolution_back(ctx, &conv, t->bx, width, n, task.dy, grads->plain[CALM_PLAIN_CONV],
                                   grads->plain[CALM_PLAIN_CONV_BIAS], dbx));
    for (size_t i = 0; i < n; i++)
        memcpy(task.dbcx + (3 * i + 2) * width, dbx + i * width, width * sizeof *dbx);
    calm_parallel_each_rows(ctx, n, close_back, &task);
    if (grads->lengths[CALM_JOB_CONV_IN])
        calm_vec_lengths(n, 3 * width, 3 * width, task.dbcx, false, grads->lengths[CALM_JOB_CONV_IN]);
    return calm_weight_back(ctx, &pass->block->weight[CALM_ROLE_CONV_IN], pass->h, n, task.dbcx,
                            grads->weight[CALM_ROLE_CONV_IN], grads->bias[CALM_ROLE_CONV_IN], false, dh);
}

static size_t kept_bytes(const calm_config *config, size_t n_tokens)
{
    return CALM_BYTES(float, 3 * n_tokens * config->hidden) + 3 * CALM_BYTES(float, n_tokens * config->hidden);
}

static size_t forward_bytes(const calm_config *config, size_t n_tokens, size_t n_threads)
{
    (void)n_threads;
    return calm_size_max(calm_weight_apply_scratch_bytes(config->hidden, n_tokens),
                         calm_convolution_bytes(config->hidden, config->conv_width));
}

static size_t back_bytes(const calm_config *config, size_t n_tokens, size_t n_threads)
{
    const size_t one = CALM_BYTES(float, n_tokens * config->hidden);
    (void)n_threads;
    return CALM_BYTES(float, 3 * n_tokens * config->hidden) + 2 * one
           + calm_size_max(2 * calm_convolution_bytes(config->hidden, config->conv_width),
                           calm_weight_back_scratch_bytes(config->hidden, n_tokens));
}

static const calm_kind_back back = {.tape_bytes = sizeof(conv_tape),
                                    .forward = forward,
                                    .back = backward,
                                    .kept_bytes = kept_bytes,
                                    .forward_bytes = forward_bytes,
                                    .back_bytes = back_bytes};

/* ---- table ---- */

/* Gives the shape of a role: B, C and x have the width of the hidden states. */
static void shape(const calm_config *config, calm_role role, long expert, size_t *out, size_t *in)
{
    (void)expert;
    *out = (role == CALM_ROLE_CONV_IN ? 3 : 1) * config->hidden;
    *in = config->hidden;
}

/* Gives the shapes of the kernel and of its bias, which exists where the linears have one. */
static void plain_shape(const calm_config *config, calm_plain plain, size_t dims[CALM_PLAIN_DIMS], int *n_dims)
{
    dims[0] = config->hidden;
    dims[1] = 1;
    dims[2] = config->conv_width;
    *n_dims = plain == CALM_PLAIN_CONV ? 3 : config->bias[CALM_ROLE_CONV_IN] ? 1 : 0;
}

/* Gives the rows of C: each channel of out's input is a channel of C times a factor that does not depend on C. */
static bool feed(const calm_config *config, calm_job_kind job, long expert, calm_feed *out)
{
    (void)job;
    (void)expert;
    *out = (calm_feed){.role = CALM_ROLE_CONV_IN, .first = config->hidden, .heads = 1, .width = config->hidden,
                       .readers = 1};
    return true;
}

static const calm_kind_job jobs[] = {
    {.job = CALM_JOB_CONV_IN, .outer = true, .fold = CALM_FOLD_NORM},
    {.job = CALM_JOB_CONV_OUT, .fold = CALM_FOLD_ROWS},
};

static const calm_kind_word words[] = {{.role = CALM_ROLE_CONV_IN, .word = "shortconv.in_proj"},
                                       {.role = CALM_ROLE_CONV_OUT, .word = "shortconv.out_proj"}};

static const calm_kind_plain plains[] = {
    {.plain = CALM_PLAIN_CONV, .form = CALM_PLAIN_TENSOR, .word = "shortconv.conv.weight", .taps = true},
    {.plain = CALM_PLAIN_CONV_BIAS, .form = CALM_PLAIN_TENSOR},
};

const calm_kind calm_kind_conv = {
    .name = "conv",
    CALM_KIND_MIXER,
    .feed = feed,
    .state = state,
};
