/* Activation sparsity by a Gaussian's quantile. */
#include "ptq/layers/gaussian_top_k.h"

#include <math.h>

#include "ptq/base/threads.h"

/* Returns z with Phi(z) = share, the quantile of the normal distribution. */
static double quantile(double share)
{
    /* Beyond 40 the function is 0 or 1 in double; each step halves the interval, so 64 steps leave one number. */
    double low = -40, high = 40;
    for (int i = 0; i < 64; i++) {
        const double middle = (low + high) / 2;
        /* erfc keeps small values that 1 + erf would lose. */
        *(erfc(-middle * sqrt(0.5)) / 2 < share ? &low : &high) = middle;
    }
    return (low + high) / 2;
}

typedef struct cut_task {
    double z;
    size_t width;
    float *x;
} cut_task;

static void cut_rows(size_t first, size_t n, void *user)
{
    const cut_task *task = user;
    for (size_t t = first; t < first + n; t++) {
        float *x = task->x + t * task->width;
        double mean = 0, square = 0;
        for (size_t i = 0; i < task->width; i++)
            mean += (double)x[i];
        mean /= (double)task->width;
        for (size_t i = 0; i < task->width; i++)
            square += ((double)x[i] - mean) * ((double)x[i] - mean);
        /* The standard deviation divides by the number of values, not by one less. */
        const float cut = (float)(mean + task->z * sqrt(square / (double)task->width));
        for (size_t i = 0; i < task->width; i++)
            x[i] = x[i] > cut ? x[i] - cut : 0;
    }
}

void calm_gaussian_top_k(calm_ctx *ctx, float share, size_t n_rows, size_t width, float *x)
{
    calm_parallel_each_rows(ctx, n_rows, cut_rows,
                            &(cut_task){quantile((double)share), width, x});
}
