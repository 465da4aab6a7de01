/* Shrunken spans, least sum (w - s q)^2 (search.c has the candidates). */
#include <stddef.h>

#include "algorithms/search.h"

typedef struct mse_options {
    bool both_signs;
} mse_options;

static const calm_option mse_table[] = {
    {.name = "signed", .help = "try negative scales too", .offset = offsetof(mse_options, both_signs),
     .type = CALM_OPTION_BOOL, .fallback = "false"},
    {.name = NULL},
};

static calm_status mse(calm_ctx *ctx, const calm_group *group, const void *opts, calm_grid *out)
{
    const mse_options *options = opts;
    calm_search search = {.weighted = false, .both_signs = options->both_signs};
    return calm_search_grid(ctx, group, &search, out);
}

const calm_part calm_grid_mse = {
    .name = "mse",
    .revision = 1,
    .summary = "shrunken span of least squared error",
    .reference = "-",
    .kind = CALM_KIND_GRID,
    .opts_size = sizeof(mse_options),
    .opts = mse_table,
    .run.grid = mse,
};
