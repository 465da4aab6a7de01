/* The short causal convolution: workers share the tokens, vectors run along channels. */
#include "ptq/layers/convolution.h"

#include <string.h>

#include "ptq/base/scope.h"
#include "ptq/base/threads.h"
#include "ptq/tensor/vector.h"

typedef struct convolve_task {
    const calm_convolution *conv;
    const float *taps; /* [width, n_channels] */
    const float *x;
    size_t stride;
    float *out;
} convolve_task;

/* Computes all channels of one token, one tap at a time, so that loops run along memory. */
static void convolve_token(const convolve_task *task, size_t t)
{
    const calm_convolution *conv = task->conv;
    const size_t n = conv->n_channels, before = conv->width - 1;
    float *out = task->out + t * n;
    if (conv->bias)
        memcpy(out, conv->bias, n * sizeof *out);
    else
        memset(out, 0, n * sizeof *out);
    /* Inputs before the first token: row t + j of the tail belongs to tap j. */
    for (size_t j = 0; conv->tail && t + j < before; j++)
        calm_vec_mul_add(n, conv->tail + (t + j) * n, task->taps + j * n, out);
    for (size_t j = t < before ? before - t : 0; j < conv->width; j++)
        calm_vec_mul_add(n, task->x + (t + j - before) * task->stride, task->taps + j * n, out);
    if (conv->activate)
        conv->activate(n, out);
}

static void convolve_rows(size_t first, size_t n, void *user)
{
    for (size_t t = first; t < first + n; t++)
        convolve_token(user, t);
}

/* Keeps the inputs of the last tokens for later ones. */
static void keep_tail(const calm_convolution *conv, const float *x, size_t stride, size_t n_tokens)
{
    const size_t n = conv->n_channels, rows = conv->width - 1, old = n_tokens < rows ? rows - n_tokens : 0;
    if (!conv->tail)
        return;
    /* A span shorter than the tail keeps the newest of the old rows. */
    memmove(conv->tail, conv->tail + (rows - old) * n, old * n * sizeof *x);
    for (size_t i = old; i < rows; i++)
        memcpy(conv->tail + i * n, x + (n_tokens + i - rows) * stride, n * sizeof *x);
}

calm_status calm_convolution_run(calm_ctx *ctx, const calm_convolution *conv, const float *x, size_t stride,
                                 size_t n_tokens, float *out)
{
    CALM_SCOPED_SCRATCH(ctx);
    float *taps;
    /* Checkpoints store a channel's taps next to each other; the loops over channels need one tap of all channels. */
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, taps, conv->width * conv->n_channels));
    for (size_t c = 0; c < conv->n_channels; c++)
        for (size_t j = 0; j < conv->width; j++)
            taps[j * conv->n_channels + c] = conv->w[c * conv->width + j];
    calm_parallel_each_rows(ctx, n_tokens, convolve_rows, &(convolve_task){conv, taps, x, stride, out});
    keep_tail(conv, x, stride, n_tokens);
    return CALM_OK;
}

size_t calm_convolution_tail(size_t n_channels, size_t width)
{
    return (width - 1) * n_channels;
}

size_t calm_convolution_bytes(size_t n_channels, size_t width)
{
    return CALM_BYTES(float, n_channels * width);
}
