/* Shrunken spans, least sum (w - s q)^2 (scale_search.c has the candidates). */
#include "algorithms/scale_search.h"

const calm_part calm_grid_mse = {
    .name = "mse",
    .revision = 1,
    .summary = "shrunken span of least squared error",
    .reference = "-",
    .kind = CALM_KIND_GRID,
    .opts_size = sizeof(calm_search),
    .opts = calm_search_options,
    .run.grid = calm_search_plain,
};
