/* --dry-run: print the forecast of a run (ptq/forecast/forecast.h). */
#pragma once

#include "ptq/recipe/recipe.h"
#include "ptq/recipe/spec.h"

/* Prints the forecast of a recipe, and the time of its spec under the other presets, as text, or as JSON:
 *   {"memory": {"peak_bytes", "limit_bytes", "stages": {capture, quantize, score, evaluate, assemble},
 *               "spilled", "job_by_job", "candidates_at_once", "experts_at_once"},
 *    "disk": {"output_bytes", "store_bytes", "store_kept_bytes", "spill_bytes"},
 *    "time": {"seconds", "sgemm_gflops", "dgemm_gflops"},
 *    "result": {"bytes_before", "bytes_after", "bits_per_weight"}, "presets": [{"name", "seconds", "asked"}],
 *    "candidates"}
 * Fails as calm_forecast_make does. */
calm_status calm_dry_run(calm_ctx *ctx, const calm_recipe_spec *spec, const calm_recipe *recipe, bool json);
