/* Checks that several export formats share, before anything is written; each message begins with the format's name. */
#pragma once

#include "ptq/export/export.h"

/* Groups divide the columns of every linear: else the nearest usual group that does is proposed.  CALM_EUNSUPPORTED. */
calm_status calm_check_groups(calm_ctx *ctx, const char *format, const calm_export_input *input);

/* All linears of the experts of a block have one scheme, or are float, as readers fuse them.  CALM_EUNSUPPORTED. */
calm_status calm_check_experts(calm_ctx *ctx, const char *format, const calm_export_input *input);

/* Formats of weights alone: no quantized activations, bits among `bits` (as "2, 3, 4 or 8"), and something is
 * quantized. CALM_EUNSUPPORTED with the job and its scheme. */
calm_status calm_check_weight_only(calm_ctx *ctx, const char *format, const calm_export_input *input, const char *bits);

/* Codes fill whole 32-bit words along the columns and, with `rows`, along the rows of each linear.
 * CALM_EUNSUPPORTED. */
calm_status calm_check_words(calm_ctx *ctx, const char *format, const calm_export_input *input, bool columns,
                             bool rows);
