/* Scale search shared by the grids mse, hmse, ls and hls. */
#ifndef CALM_ALGORITHMS_SEARCH_H
#define CALM_ALGORITHMS_SEARCH_H

#include "algorithms/part.h"

/* Options of these grids. */
typedef struct calm_search {
    bool both_signs;    /* try negative scales too           */
    long long rounds;   /* of least squares after the search */
} calm_search;

/* "signed" alone, for a search without least squares; "signed" and "rounds". */
extern const calm_option calm_search_options[], calm_search_ls_options[];

/* The grid of least sum_j (w_j - s q_j)^2, or sum_j h_j (w_j - s q_j)^2 with h = diag H, among those tried; for parts
 * whose options are a calm_search. */
calm_status calm_search_plain(calm_ctx *ctx, const calm_group *group, const void *search, calm_grid *out);
calm_status calm_search_weighted(calm_ctx *ctx, const calm_group *group, const void *search, calm_grid *out);

#endif
