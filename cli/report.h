/* The report of a finished run: tables and a summary for people, one JSON object for programs. */
#ifndef CALM_CLI_REPORT_H
#define CALM_CLI_REPORT_H

#include "ptq/run/result.h"

/* Tables and summary on stdout.  lock: path of the lock that is written beside; NULL: none. */
calm_status calm_report_print(calm_ctx *ctx, const calm_result *result, const char *lock);

/* The same as one JSON object on stdout: run, result, bits_per_weight, bytes, float, quantized, guard, units, paths. */
calm_status calm_report_json(calm_ctx *ctx, const calm_result *result, const char *lock);

#endif
