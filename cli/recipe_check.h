/* Faults of a recipe that can be found without reading a model. */
#ifndef CALM_CLI_RECIPE_CHECK_H
#define CALM_CLI_RECIPE_CHECK_H

#include "cli/quantize_options.h"
#include "ptq/io/json_schema.h"

/* All faults of the file at `path`: those of the schema, or when there are none those of names (model, schemes, algorithms,
 * metric, pins, gates, texts that do not exist).  At most CALM_SCHEMA_FAULTS, in ctx->out; none: *n = 0.
 * A file that cannot be read is an error, not a fault. */
calm_status calm_recipe_check_file(calm_ctx *ctx, const char *path, calm_json_fault **faults, size_t *n);

/* The faults of names of these options, appended to faults [CALM_SCHEMA_FAULTS]. */
calm_status calm_recipe_check_names(calm_ctx *ctx, const calm_quantize_options *opts, calm_json_fault *faults, size_t *n);

#endif
