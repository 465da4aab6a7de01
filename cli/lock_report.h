/* Differences from a lock, as a table and as JSON. */
#pragma once

#include <stdio.h>

#include "ptq/lock/lock.h"

/* Print a table of the differences; of digests their first digits. */
calm_status calm_lock_print(calm_ctx *ctx, const calm_differences *differences, FILE *stream);

/* [{"kind", "name", "expected", "found"}]: whole digests, null for what is not there.  Freed by
 * the caller; NULL after a failure, which ctx has. */
calm_json *calm_lock_report_json(calm_ctx *ctx, const calm_differences *differences);
