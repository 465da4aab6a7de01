/* The rate at which this machine reads memory, which bounds products with one row. */
#pragma once

#include "ptq/base/context.h"

/* Bytes per second that ctx's threads together read, best of some passes over memory that no cache holds; takes a few
 * tenths of a second.  CALM_ENOMEM. */
calm_status calm_read_rate(calm_ctx *ctx, double *out);
