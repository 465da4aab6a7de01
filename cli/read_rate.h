/* Memory rate: how fast this machine reads memory, which bounds products with one row. */
#pragma once

#include "ptq/base/context.h"

/* Measures the bytes per second that ctx's threads read together: the best of some passes over memory larger than the
 * caches.  It takes a few tenths of a second.  CALM_ENOMEM. */
calm_status calm_read_rate(calm_ctx *ctx, double *out);
