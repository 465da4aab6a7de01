/* The report of a finished run, as text and as JSON (docs/json.md). */
#pragma once

#include "cli/stages.h"
#include "ptq/stored/stored.h"

/* Prints tables and summary to stdout.  forecast: of this run; NULL: none was made.  lock: path of the run's lock file;
 * NULL: none. */
calm_status calm_report_print(calm_ctx *ctx, const calm_result *result, const calm_forecast *forecast,
                              const char *lock);

/* Prints the same as one JSON object to stdout. */
calm_status calm_report_json(calm_ctx *ctx, const calm_result *result, const calm_forecast *forecast,
                             const char *lock);

/* Appends a summary for calm assemble and calm export: the run, its choices and its bits per weight. */
void calm_report_assembly(const calm_assembly *assembly, calm_text *out);

/* Appends `before` and the command that evaluates the checkpoint in `output`: with several formats the first that is a
 * checkpoint, in its folder.  Appends nothing if there is none. */
calm_status calm_report_evaluation(calm_ctx *ctx, const calm_formats *formats, const char *output,
                                   const char *reference, const char *before, calm_text *out);
