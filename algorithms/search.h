/* Scale search shared by the grids mse, hmse, ls and hls. */
#ifndef CALM_ALGORITHMS_SEARCH_H
#define CALM_ALGORITHMS_SEARCH_H

#include "algorithms/part.h"

typedef struct calm_search {
    bool weighted;    /* errors count by diag H, else alike */
    bool both_signs;  /* try negative scales too            */
    int rounds;       /* of least squares after the search  */
} calm_search;

/* The grid of least sum_j h_j (w_j - s q_j)^2 among those tried. */
calm_status calm_search_grid(calm_ctx *ctx, const calm_group *group, const calm_search *search, calm_grid *out);

#endif
