/* Norms over rows. */
#include "ptq/layers/norm.h"

#include <string.h>

#include "ptq/base/threads.h"
#include "ptq/tensor/vector.h"

void calm_norm_rows(const calm_norm *norm, const float *x, size_t n, float *out)
{
    const size_t width = norm->width;
    /* The family has no norm in this place. */
    if (!norm->w && x != out)
        memcpy(out, x, n * width * sizeof *out);
    for (size_t t = 0; t < n && norm->w; t++) {
        /* Norms that multiply by 1 + w are plain RMSNorms here, since loading has added the 1. */
        if (norm->kind == CALM_NORM_LAYER)
            calm_vec_layernorm(width, x + t * width, norm->w, norm->b, norm->eps, out + t * width);
        else
            calm_vec_rmsnorm(width, x + t * width, norm->w, norm->eps, out + t * width);
    }
}

typedef struct norm_task {
    const calm_norm *norm;
    const float *x;
    float *out;
} norm_task;

static void norm_some(size_t first, size_t n, void *user)
{
    const norm_task *task = user;
    const size_t at = first * task->norm->width;
    calm_norm_rows(task->norm, task->x + at, n, task->out + at);
}

/* Without a norm nothing is to be done in place. */
void calm_norm_all(calm_ctx *ctx, const calm_norm *norm, const float *x, size_t n, float *out)
{
    if (norm->w || x != out)
        calm_parallel_each_rows(ctx, n, norm_some, &(norm_task){norm, x, out});
}
