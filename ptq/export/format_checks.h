/* Checks that several export formats share, before anything is written; each message begins with the format's name. */
#pragma once

#include "ptq/export/export.h"

/* Groups divide the columns of every linear: else the nearest usual group that does is proposed.  CALM_EUNSUPPORTED. */
calm_status calm_check_groups(calm_ctx *ctx, const char *format, const calm_export_input *input);

/* All linears of the experts of a block have one scheme, or are float, as readers fuse them.  CALM_EUNSUPPORTED. */
calm_status calm_check_experts(calm_ctx *ctx, const char *format, const calm_export_input *input);

/* For calm_exporter.refuses: formats of weights alone, of 4 bits, or of 2, 3, 4 and 8. */
const char *calm_export_refuses_but_4_bits(const calm_scheme *scheme);
const char *calm_export_refuses_activations(const calm_scheme *scheme);

/* Something is quantized.  CALM_EUNSUPPORTED. */
calm_status calm_export_check_quantized(calm_ctx *ctx, const char *format, const calm_export_input *input);

/* Codes fill whole 32-bit words along the columns and, with `rows`, along the rows of each linear.
 * CALM_EUNSUPPORTED. */
calm_status calm_check_words(calm_ctx *ctx, const char *format, const calm_export_input *input, bool columns,
                             bool rows);
