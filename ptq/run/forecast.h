/* Forecast: memory, disk and time that a run would take, and the size of its result, without running it. */
#ifndef CALM_RUN_FORECAST_H
#define CALM_RUN_FORECAST_H

#include "ptq/run/memory_plan.h"
#include "ptq/run/replay.h"
#include "ptq/run/result.h"

typedef struct calm_forecast {
    calm_memory_plan memory;
    calm_memory_plan divided;               /* of each of several ranks                                       */
    double seconds;                         /* the sum of `costs`                                             */
    calm_replay_costs costs;                /* of the steps, on the threads of one rank                       */
    double learn_seconds;                   /* of those; 0: nothing is learned                                */
    double tie_seconds;                     /* besides, at most, where hybrid and one uniform run are within an error:
                                             * what the guard measures both on then                           */
    double bytes_before, bytes_after;       /* of the checkpoint                                              */
    double bits_per_weight;                 /* of the quantized linears                                       */
    double store_bytes;                     /* that candidates take while it runs                             */
    double kept_bytes;                      /* at most of those when it has ended                             */
    size_t n_candidates;
    size_t score_rows, eval_windows;        /* that they are scored on; that float model and result are measured on */
    double sgemm_flops, dgemm_flops;        /* measured: per second, all threads; multiply-adds count two      */
} calm_forecast;

/* Seconds that learning of a result takes or would take on this machine, whose products are measured for a moment. */
calm_status calm_forecast_learning(calm_ctx *ctx, const calm_result *result, double *seconds);

/* What is not taken from this machine: its cores and its memory are not those of the ranks that are foreseen. */
typedef struct calm_forecast_elsewhere {
    double sgemm_flops;    /* of all threads of a rank; 0: so many times what one thread does here */
} calm_forecast_elsewhere;

/* Open the run of a recipe, measure this machine for a second (matrix products, and each algorithm on a small job), and
 * add up.  Candidates that the store has already are not taken into account.  `elsewhere` NULL: the run is to be on
 * this machine; else memory is what the recipe allows, or without limit, and rates are what one thread does in its CPU
 * time, times the number of threads, in proportion to that of sgemm.  Fails as opening the run does. */
calm_status calm_forecast_make(calm_ctx *ctx, const calm_recipe *recipe, const calm_forecast_elsewhere *elsewhere,
                               calm_forecast *out);

#endif
