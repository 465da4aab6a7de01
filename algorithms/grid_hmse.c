/* Shrunken spans, least sum h (w - s q)^2 with h = diag H (scale_search.c has the candidates). */
#include "algorithms/scale_search.h"

const calm_part calm_grid_hmse = {
    .name = "hmse",
    .revision = 1,
    .summary = "shrunken span of least input-weighted squared error",
    .reference = "-",
    .kind = CALM_KIND_GRID,
    .caps = CALM_NEEDS_GRAM | CALM_GRAM_INVERSE,
    .opts_size = sizeof(calm_search),
    .opts = calm_search_options,
    .run.grid = calm_search_weighted,
};
