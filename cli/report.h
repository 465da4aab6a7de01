/* The report of a finished run, as text and as JSON (docs/json.md). */
#pragma once

#include "cli/stages.h"
#include "ptq/stored/stored.h"

/* Tables and summary on stdout.  forecast: of the run; NULL: none was made.
 * lock: path of the lock that is written next to; NULL: none. */
calm_status calm_report_print(calm_ctx *ctx, const calm_result *result, const calm_forecast *forecast,
                              const char *lock);

/* The same as one JSON object on stdout. */
calm_status calm_report_json(calm_ctx *ctx, const calm_result *result, const calm_forecast *forecast,
                             const char *lock);

/* Append what calm assemble and calm export wrote: of which run, what it chose and its bits. */
void calm_report_assembly(const calm_assembly *assembly, calm_text *out);

/* Append, behind `before`, the command that evaluates what was written to `output`: of several formats the first that
 * is a checkpoint, in its own folder.  Nothing where there is none. */
calm_status calm_report_evaluation(calm_ctx *ctx, const calm_formats *formats, const char *output,
                                   const char *reference, const char *before, calm_text *out);
