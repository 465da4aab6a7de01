/* Time by stage, printed: of a run, of a forecast. */
#pragma once

#include "cli/print.h"
#include "ptq/forecast/forecast.h"
#include "ptq/run/run.h"

/* Append a table of what a run took, or `result` NULL, is forecast to take, where that is a minute or more: nothing
 * else.  `forecast` NULL: its column is left out.  Stages below a hundredth of all are one row. */
calm_status calm_stages_print(calm_ctx *ctx, const calm_result *result, const calm_forecast *forecast, calm_text *out);

/* The same as [{stage, seconds, cpu_seconds, forecast_seconds}], every stage with a row; forecast_seconds only next to
 * a result, null without a forecast. */
calm_json *calm_stages_json(calm_ctx *ctx, const calm_result *result, const calm_forecast *forecast);

/* What was forecast of a run that has ended, measured now, and kept in its store: *out NULL for one of less than a
 * minute, of several ranks or budgets, or that found candidates in the store, which a forecast knows nothing of. */
calm_status calm_stages_forecast(calm_ctx *ctx, const calm_run *run, calm_forecast **out);
