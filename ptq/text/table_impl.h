/* Shared by the writers of tables. */
#pragma once

#include "ptq/text/table.h"

/* Fails with CALM_ENOMEM if the table or the text ran out of memory; writers continue until here, since a failed
 * table or text is incomplete but valid. */
calm_status calm_table_check(calm_ctx *ctx, const calm_table *table, const calm_text *out);
