/* Time by stage, of a run or of a forecast, as text and JSON. */
#pragma once

#include "cli/print.h"
#include "ptq/forecast/forecast.h"
#include "ptq/run/run.h"

/* Appends a table of the times of a run, or of its forecast if `result` is NULL; nothing if the sum is below a minute.
 * `forecast` NULL: the table has no column for it.  Stages below a hundredth of the sum share one row. */
calm_status calm_stages_print(calm_ctx *ctx, const calm_result *result, const calm_forecast *forecast, calm_text *out);

/* Returns the same as [{stage, seconds, cpu_seconds, forecast_seconds}] with a row for every stage; forecast_seconds
 * only if there is a result, null without a forecast.  NULL after a failure, which ctx holds. */
calm_json *calm_stages_json(calm_ctx *ctx, const calm_result *result, const calm_forecast *forecast);

/* Forecasts a run that has ended, to compare, and keeps the forecast in the run's store.  *out is NULL if the run
 * took less than a minute, had several ranks or budgets, or found candidates in the store, which a forecast does not
 * know. */
calm_status calm_stages_forecast(calm_ctx *ctx, const calm_run *run, calm_forecast **out);
