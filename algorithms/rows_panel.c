/* Rows of H in float32, which products of rows under refit read.  Each chunk of rows reads all of H in every product:
 * all is rounded once, but of the widest jobs, whose H is what a run's memory is for, a few rows at a time for each
 * chunk. */
#include "algorithms/rows.h"

#include "ptq/base/simd.h"
#include "ptq/base/threads.h"

#define KEPT_WIDTH ((size_t)14336)    /* of models of 8 billion parameters */

bool calm_rows_keeps(size_t in)
{
    return in <= KEPT_WIDTH;
}

CALM_VECTORIZE
static void to_float(const double *restrict x, size_t n, double unit, float *restrict out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (float)(x[i] * unit);
}

/* ---- all rows ---- */

typedef struct panel_job {
    const double *h;
    size_t in;
    double unit;
    float *panel;
} panel_job;

static calm_status round_rows(calm_ctx *ctx, size_t first, size_t n, void *user)
{
    const panel_job *job = user;
    (void)ctx;
    to_float(job->h + first * job->in, n * job->in, job->unit, job->panel + first * job->in);
    return CALM_OK;
}

calm_status calm_rows_round(calm_ctx *ctx, const double *h, size_t in, double unit, const float **rounded)
{
    float *panel;
    *rounded = NULL;
    if (!calm_rows_keeps(in))
        return CALM_OK;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, panel, in * in));
    panel_job job = {h, in, unit, panel};
    *rounded = panel;
    return calm_parallel_rows(ctx, in, round_rows, &job);
}

size_t calm_rows_round_bytes(size_t in)
{
    return calm_rows_keeps(in) ? CALM_BYTES(float, in * in) : 0;
}

/* ---- a few ---- */

size_t calm_rows_panel_bytes(size_t in)
{
    return calm_rows_keeps(in) ? 0 : CALM_BYTES(float, CALM_SWEEP_BLOCK * in);
}

const float *calm_rows_panel(calm_rows *rows, size_t start, size_t n, size_t from)
{
    const size_t in = rows->problem->in;
    if (rows->rounded)
        return rows->rounded + start * in + from;
    for (size_t k = 0; k < n; k++)
        to_float(rows->h + (start + k) * in + from, in - from, rows->unit_h, rows->panel + k * in + from);
    return rows->panel + from;
}
