/* Rates of this machine: of matrix products and of activation statistics.
 *
 * The time of statistics is proportional to the number of values, that of products also to the width: in a model with a
 * few hundred channels both take about as long. */
#include "ptq/forecast/forecast_impl.h"

#include "ptq/base/rng.h"
#include "ptq/base/threads.h"
#include "ptq/base/times.h"
#include "ptq/calib/capture.h"
#include "ptq/tensor/linalg.h"
#include "ptq/tensor/product.h"

/* Side of the products: large enough for the rate that a kernel reaches on the matrices of a model. */
#define PRODUCT_SIDE ((size_t)768)
/* Rows and channels of a sample whose statistics are computed again and again. */
#define SAMPLE_ROWS ((size_t)512)
#define SAMPLE_WIDTH ((size_t)1024)
#define MEASURE_SECONDS 0.02

/* ---- products ---- */

/* Operands that all workers share; each worker has a separate result. */
typedef struct products {
    float *a, *c;
    double *da, *dc;
    bool in_double;
    calm_operands operands;    /* dtype of products in float */
} products;

static calm_status multiply(calm_ctx *ctx, size_t index, void *user)
{
    const products *p = user;
    const size_t n = PRODUCT_SIDE;
    if (p->in_double) {
        calm_dgemm_nt(n, n, n, 1, p->da, n, p->da, n, 0, p->dc + index * n * n, n);
        return CALM_OK;
    }
    CALM_SCOPED_OPERANDS(ctx, p->operands);
    return calm_multiply(ctx, CALM_PRODUCT_NT, n, n, n, p->a, n, p->a, n, 0, p->c + index * n * n, n);
}

/* Measures operations per second with every thread at work, one product per worker, as in a run. */
static calm_status product_rate(calm_ctx *ctx, products *p, double seconds, double *out)
{
    const size_t workers = (size_t)ctx->n_threads;
    const double begun = calm_time_busy(ctx->n_threads), n = (double)PRODUCT_SIDE;
    double spent;
    size_t rounds = 0;
    do {
        CALM_TRY(calm_parallel_for(ctx, workers, multiply, p));
        rounds++;
        spent = calm_time_busy(ctx->n_threads) - begun;
    } while (spent < seconds);    /* whole rounds, in which no worker is idle */
    *out = 2 * n * n * n * (double)(rounds * workers) / spent;
    return CALM_OK;
}

calm_status calm_rates_products(calm_ctx *ctx, double seconds, double *in_float, calm_operands operands,
                                double *of_operands, double *in_double)
{
    const size_t cells = PRODUCT_SIDE * PRODUCT_SIDE, workers = (size_t)ctx->n_threads;
    CALM_SCOPED_SCRATCH(ctx);
    products p = {0};
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, p.a, cells));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, p.da, cells));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, p.c, workers * cells));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, p.dc, workers * cells));
    /* Random, not zeros: kernels may be faster on zeros, and denormal results are slower. */
    for (size_t i = 0; i < cells; i++)
        p.a[i] = (float)(p.da[i] = calm_rng_uniform(1, 0, i) - 0.5);
    if (in_float)
        CALM_TRY(product_rate(ctx, &p, seconds, in_float));
    p.operands = operands;
    if (of_operands)
        CALM_TRY(product_rate(ctx, &p, seconds, of_operands));
    p.in_double = true;
    return in_double ? product_rate(ctx, &p, seconds, in_double) : CALM_OK;
}

/* ---- activations ---- */

/* Computes the statistics of all rows once. */
static calm_status look(calm_ctx *ctx, const float *x, calm_channel_sums *sums)
{
    calm_actstat_acc *acc;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(calm_actstat_new(ctx, ctx->scratch, SAMPLE_WIDTH, SAMPLE_ROWS, &acc));
    calm_channel_sums_add(ctx, x, SAMPLE_ROWS, SAMPLE_WIDTH, NULL, sums);
    return calm_actstat_add(ctx, acc, x, SAMPLE_ROWS, 0, 0);
}

calm_status calm_rates_value_seconds(calm_ctx *ctx, double *out)
{
    float *x;
    calm_channel_sums sums;
    size_t n = 0;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, x, SAMPLE_ROWS * SAMPLE_WIDTH));
    CALM_TRY(calm_channel_sums_new(ctx, ctx->scratch, SAMPLE_WIDTH, &sums));
    for (size_t i = 0; i < SAMPLE_ROWS * SAMPLE_WIDTH; i++)
        x[i] = (float)calm_rng_normal(3, 0, i);
    const double begun = calm_time_busy(ctx->n_threads);
    double spent;
    do {
        CALM_TRY(look(ctx, x, &sums));
        n += SAMPLE_ROWS * SAMPLE_WIDTH;
        spent = calm_time_busy(ctx->n_threads) - begun;
    } while (spent < MEASURE_SECONDS);
    *out = spent / (double)n;
    return CALM_OK;
}
