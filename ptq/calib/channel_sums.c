/* Sums over the rows of an input, per channel.
 *
 * The rows do not fit the cache and are read once; adding them one by one would read and write all sums for every row,
 * so several rows are added at once. */
#include "ptq/calib/channel_sums.h"

#include <math.h>
#include <string.h>

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

/* The most channels of one task; with more threads each takes fewer, a multiple of SUMS_STEP. */
#define SUMS_OF_TASK ((size_t)256)
#define SUMS_STEP ((size_t)64)

typedef struct sums_task {
    const float *x, *weight;
    size_t n, width, of_task;
    calm_channel_sums *sums;
} sums_task;

/* Rows that are added in one pass over the channels. */
enum { ROWS = 8 };

/* Adds n rows of x, each times its factor, to channels `first` .. `end` - 1; a channel adds in row order for every
 * vector width. */
static inline void add_rows(const sums_task *task, const float *restrict x, const float *restrict factor, size_t n,
                            size_t first, size_t end)
{
    const size_t width = task->width;
    float *restrict absmax = task->sums->absmax;
    double *restrict sum = task->sums->sum, *restrict sumsq = task->sums->sumsq, *restrict sumabs = task->sums->sumabs;
    for (size_t i = first; i < end; i++) {
        /* With a constant n, as below, the compiler unrolls the loop over rows and vectorizes that over channels. */
        float largest = absmax[i];
        double a = sum[i], b = sumsq[i], c = sumabs[i];
        for (size_t t = 0; t < n; t++) {
            const float plain = fabsf(x[t * width + i]), value = factor[t] * x[t * width + i];
            largest = plain > largest ? plain : largest;
            a += (double)value;
            b += (double)value * (double)value;
            c += (double)fabsf(value);
        }
        absmax[i] = largest;
        sum[i] = a;
        sumsq[i] = b;
        sumabs[i] = c;
    }
}

CALM_VECTORIZE static void add_channels(const sums_task *task, size_t first, size_t end)
{
    float factor[ROWS] = {1, 1, 1, 1, 1, 1, 1, 1};    /* multiplying by 1 changes no bit */
    size_t t = 0;
    for (; t + ROWS <= task->n; t += ROWS) {
        if (task->weight)
            memcpy(factor, task->weight + t, sizeof factor);
        add_rows(task, task->x + t * task->width, factor, ROWS, first, end);
    }
    for (; t < task->n; t++)
        add_rows(task, task->x + t * task->width, task->weight ? task->weight + t : factor, 1, first, end);
}

static void add_some_channels(size_t index, void *user)
{
    const sums_task *task = user;
    add_channels(task, index * task->of_task, calm_size_min((index + 1) * task->of_task, task->width));
}

void calm_channel_sums_add(calm_ctx *ctx, const float *x, size_t n, size_t width, const float *weight,
                           calm_channel_sums *sums)
{
    const size_t each = (width / (size_t)ctx->n_threads + SUMS_STEP - 1) / SUMS_STEP * SUMS_STEP;
    sums_task task = {x, weight, n, width, calm_size_min(calm_size_max(each, SUMS_STEP), SUMS_OF_TASK), sums};
    calm_parallel_each(ctx, (width + task.of_task - 1) / task.of_task, add_some_channels, &task);
}
