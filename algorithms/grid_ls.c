/* mse, then alternately codes and least-squares scale: the zero of MKQ-BERT's scale gradient sum (s q - w) q
 * (Tang et al. 2022, arXiv 2203.13483), unweighted. */
#include "algorithms/scale_search.h"

const calm_part calm_grid_ls = {
    .name = "ls",
    .revision = 2,
    .summary = "mse, then least-squares scales",
    .reference = "Tang et al. 2022, arXiv 2203.13483",
    .kind = CALM_KIND_GRID,
    .opts_size = sizeof(calm_search),
    .opts = calm_search_ls_options,
    .run.grid = calm_search_plain,
};
