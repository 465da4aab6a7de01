/* What people read of a finished run: the table of units, the summary, the model card; and the same as JSON. */
#ifndef CALM_CLI_REPORT_H
#define CALM_CLI_REPORT_H

#include "cli/pipeline.h"

/* The table and the summary on stdout. */
calm_status calm_report_print(calm_ctx *ctx, const calm_pipeline *p);

/* The same as one JSON object on stdout: run, result, bits_per_weight, bytes, float, quantized, guard, units, paths. */
calm_status calm_report_json(calm_ctx *ctx, const calm_pipeline *p);

/* README.md of the checkpoint: no path, time or thread count, so that its bytes depend on the result alone. */
calm_status calm_report_card(calm_ctx *ctx, const calm_pipeline *p, calm_text *out);

#endif
