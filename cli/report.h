/* The report of a finished run, as text and as JSON (docs/json.md). */
#ifndef CALM_CLI_REPORT_H
#define CALM_CLI_REPORT_H

#include "ptq/run/result.h"

/* Tables and summary on stdout.  lock: path of the lock that is written beside; NULL: none. */
calm_status calm_report_print(calm_ctx *ctx, const calm_result *result, const char *lock);

/* The same as one JSON object on stdout. */
calm_status calm_report_json(calm_ctx *ctx, const calm_result *result, const char *lock);

#endif
