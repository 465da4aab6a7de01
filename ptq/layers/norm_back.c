/* Backward pass of norms. */
#include "ptq/layers/norm_back.h"

#include <string.h>

#include "ptq/base/scope.h"
#include "ptq/base/threads.h"
#include "ptq/tensor/vector.h"
#include "ptq/tensor/vector_back.h"

typedef struct norm_task {
    const calm_norm *norm;
    calm_norm_rows_of rows;
    const float *x, *dy;
    float *dx;
    float *dweight, *dbias; /* [tasks, width] sums over each task's own rows; NULL: not wanted */
} norm_task;

static void back_rows(size_t first, size_t n, void *user)
{
    const norm_task *task = user;
    const calm_norm *norm = task->norm;
    const size_t width = norm->width, own = first / CALM_ROWS_OF_TASK * width;
    float *dweight = task->dweight ? task->dweight + own : NULL, *dbias = task->dbias ? task->dbias + own : NULL;
    for (size_t t = first; t < first + n; t++)
        for (size_t part = 0; part < task->rows.parts; part++) {
            const size_t at = t * task->rows.stride + part * width;
            const float *x = task->x + at, *dy = task->dy + at;
            float *dx = task->dx ? task->dx + at : NULL;
            /* Without a norm the gradient passes through. */
            if (!norm->w && dx != dy)
                memcpy(dx, dy, width * sizeof *dx);
            else if (norm->w && norm->kind == CALM_NORM_LAYER)
                calm_vec_layernorm_back(width, x, norm->w, norm->eps, dy, dweight, dbias, dx);
            else if (norm->w)
                calm_vec_rmsnorm_back(width, x, norm->w, norm->eps, dy, dweight, dx);
        }
}

static size_t n_tasks(size_t n)
{
    return (n + CALM_ROWS_OF_TASK - 1) / CALM_ROWS_OF_TASK;
}

calm_status calm_norm_back(calm_ctx *ctx, const calm_norm *norm, calm_norm_rows_of rows, const float *x,
                           const float *dy, float *dweight, float *dbias, float *dx)
{
    /* Gradients of weights are sums over rows: each task sums its own rows. */
    norm_task task = {norm, rows, x, dy, dx, NULL, NULL};
    const size_t tasks = n_tasks(rows.n), width = norm->width;
    /* Without a norm the rows were not changed. */
    if (!norm->w && (!dx || dx == dy))
        return CALM_OK;
    CALM_SCOPED_SCRATCH(ctx);
    if (norm->w && dweight)
        CALM_TRY(CALM_NEW(ctx, ctx->scratch, task.dweight, tasks * width));
    if (norm->w && dbias)
        CALM_TRY(CALM_NEW(ctx, ctx->scratch, task.dbias, tasks * width));
    calm_parallel_each_rows(ctx, rows.n, back_rows, &task);
    /* The tasks' sums are added in the order of rows. */
    for (size_t i = 0; i < tasks; i++) {
        if (task.dweight)
            calm_vec_add(width, task.dweight + i * width, dweight);
        if (task.dbias)
            calm_vec_add(width, task.dbias + i * width, dbias);
    }
    return CALM_OK;
}

size_t calm_norm_back_scratch_bytes(size_t width, size_t n)
{
    return 2 * CALM_BYTES(float, n_tasks(n) * width);
}
