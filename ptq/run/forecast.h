/* Forecast: what a run would need - memory, disk, time - and give, without doing it. */
#ifndef CALM_RUN_FORECAST_H
#define CALM_RUN_FORECAST_H

#include "ptq/run/memory_plan.h"

typedef struct calm_forecast {
    calm_memory_plan memory;
    double seconds;
    double bytes_before, bytes_after;       /* of the checkpoint                                              */
    double bits_per_weight;                 /* of the quantized linears                                       */
    double store_bytes;                     /* that candidates take                                           */
    size_t n_candidates;
    double sgemm_flops, dgemm_flops;        /* measured: per second, all threads; multiply-adds count two      */
} calm_forecast;

/* Open the run of a recipe, measure this machine for a second (matrix products, and each algorithm on a small job), and
 * add up. What the store has already is not known.  Fails as the beginning of the run would. */
calm_status calm_forecast_make(calm_ctx *ctx, const calm_recipe *recipe, calm_forecast *out);

#endif
