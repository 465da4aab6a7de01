/* Sums over the rows of an input, channel by channel. */
#include "ptq/calib/channel_sums.h"

#include <math.h>

#include "ptq/base/simd.h"
#include "ptq/base/threads.h"

calm_status calm_channel_sums_new(calm_ctx *ctx, calm_arena *arena, size_t width, calm_channel_sums *sums)
{
    CALM_TRY(CALM_NEW(ctx, arena, sums->absmax, width));
    CALM_TRY(CALM_NEW(ctx, arena, sums->sum, width));
    CALM_TRY(CALM_NEW(ctx, arena, sums->sumsq, width));
    return CALM_NEW(ctx, arena, sums->sumabs, width);
}

size_t calm_channel_sums_bytes(size_t width)
{
    return CALM_BYTES(float, width) + 3 * CALM_BYTES(double, width);
}

/* Channels of one task. */
#define SUMS_OF_TASK ((size_t)256)

typedef struct sums_task {
    const float *x, *weight;
    size_t n, width;
    calm_channel_sums *sums;
} sums_task;

/* Rows outside, channels inside: each channel adds in row order whatever the width of vectors. */
CALM_VECTORIZE static void add_channels(const sums_task *task, size_t first, size_t end)
{
    const float *x = task->x;
    const size_t width = task->width;
    calm_channel_sums *sums = task->sums;
    for (size_t t = 0; t < task->n; t++) {
        const float factor = task->weight ? task->weight[t] : 1;    /* times 1 changes no bit */
        for (size_t i = first; i < end; i++) {
            const float plain = fabsf(x[t * width + i]), value = factor * x[t * width + i], magnitude = fabsf(value);
            sums->absmax[i] = plain > sums->absmax[i] ? plain : sums->absmax[i];
            sums->sum[i] += (double)value;
            sums->sumsq[i] += (double)value * (double)value;
            sums->sumabs[i] += (double)magnitude;
        }
    }
}

static calm_status add_some_channels(calm_ctx *ctx, size_t index, void *user)
{
    const sums_task *task = user;
    (void)ctx;
    add_channels(task, index * SUMS_OF_TASK, calm_size_min((index + 1) * SUMS_OF_TASK, task->width));
    return CALM_OK;
}

calm_status calm_channel_sums_add(calm_ctx *ctx, const float *x, size_t n, size_t width, const float *weight,
                                  calm_channel_sums *sums)
{
    sums_task task = {x, weight, n, width, sums};
    return calm_parallel_for(ctx, (width + SUMS_OF_TASK - 1) / SUMS_OF_TASK, add_some_channels, &task);
}
