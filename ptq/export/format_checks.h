/* Checks of several export formats before anything is written; each message begins with the format's name. */
#pragma once

#include "ptq/export/export.h"

/* Checks that the group size divides the columns of every linear.  CALM_EUNSUPPORTED: it does not; the message proposes
 * the nearest usual group size that does. */
calm_status calm_check_groups(calm_ctx *ctx, const char *format, const calm_export_input *input);

/* Checks that all linears of a block's experts have one scheme, or all are float, because readers fuse them.
 * CALM_EUNSUPPORTED. */
calm_status calm_check_experts(calm_ctx *ctx, const char *format, const calm_export_input *input);

/* Functions for calm_exporter.refuses of weight-only formats: with 4 bits; with 2, 3, 4 or 8 bits. */
const char *calm_export_refuses_but_4_bits(const calm_scheme *scheme);
const char *calm_export_refuses_activations(const calm_scheme *scheme);

/* Checks that the plan quantizes a job.  CALM_EUNSUPPORTED. */
calm_status calm_export_check_quantized(calm_ctx *ctx, const char *format, const calm_export_input *input);

/* Checks that the codes of each linear fill whole 32-bit words along the columns and, with `rows`, along the rows.
 * CALM_EUNSUPPORTED. */
calm_status calm_check_words(calm_ctx *ctx, const char *format, const calm_export_input *input, bool columns,
                             bool rows);
