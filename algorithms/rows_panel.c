/* H in float32, which products of rows under refit read.  Made once for all chunks of rows: a chunk reads all of H in
 * every product, and to round it each time took a seventh of a refit of 2,048 inputs. */
#include "algorithms/rows.h"

#include "ptq/base/simd.h"

CALM_VECTORIZE
static void to_float(const double *restrict x, size_t n, double unit, float *restrict out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (float)(x[i] * unit);
}

typedef struct panel_job {
    const double *h;
    size_t in;
    double unit;
    float *panel;
} panel_job;

static calm_status convert_rows(calm_ctx *ctx, size_t index, void *user)
{
    const panel_job *job = user;
    const size_t first = index * CALM_SWEEP_BLOCK, n = calm_size_min(job->in - first, CALM_SWEEP_BLOCK);
    (void)ctx;
    to_float(job->h + first * job->in, n * job->in, job->unit, job->panel + first * job->in);
    return CALM_OK;
}

calm_status calm_rows_panel(calm_ctx *ctx, const double *h, size_t in, double unit, float **panel)
{
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, *panel, in * in));
    panel_job job = {h, in, unit, *panel};
    return calm_parallel_for(ctx, (in + CALM_SWEEP_BLOCK - 1) / CALM_SWEEP_BLOCK, convert_rows, &job);
}

size_t calm_rows_panel_bytes(const calm_job_shape *shape)
{
    return CALM_BYTES(float, shape->in * shape->in);
}
