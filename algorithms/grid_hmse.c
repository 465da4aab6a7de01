/* Shrunken spans, least sum h (w - s q)^2 with h = diag H (search.c has the candidates). */
#include "algorithms/search.h"

static calm_status hmse(calm_ctx *ctx, const calm_group *group, const void *opts, calm_grid *out)
{
    return calm_search_grid(ctx, group, opts, true, out);
}

const calm_part calm_grid_hmse = {
    .name = "hmse",
    .revision = 1,
    .summary = "shrunken span of least input-weighted squared error",
    .reference = "-",
    .kind = CALM_KIND_GRID,
    .caps = CALM_NEEDS_GRAM,
    .opts_size = sizeof(calm_search),
    .opts = calm_search_options,
    .run.grid = hmse,
};
