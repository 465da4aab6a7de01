/* What the writers of tables share. */
#pragma once

#include "ptq/text/table.h"

/* A table or text that ran out of memory holds less than it was given, and nothing out of bounds: writers continue and
 * report it here.  CALM_ENOMEM. */
calm_status calm_table_check(calm_ctx *ctx, const calm_table *table, const calm_text *out);
