/* Differences from a lock, as a table and as JSON. */
#pragma once

#include <stdio.h>

#include "ptq/lock/lock.h"

/* Prints a table of the differences, with the first digits of digests. */
calm_status calm_lock_print(calm_ctx *ctx, const calm_differences *differences, FILE *stream);

/* Returns [{"kind", "name", "expected", "found"}] with whole digests; null means missing.  The caller frees it.  NULL
 * after a failure, which ctx holds. */
calm_json *calm_lock_report_json(calm_ctx *ctx, const calm_differences *differences);
