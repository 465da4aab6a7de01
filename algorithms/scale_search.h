/* Scale search shared by the grids mse, hmse, ls and hls. */
#pragma once

#include "algorithms/part.h"

/* The weight of an error in column j: H_jj (DIAGONAL), or 1 / [H^-1]_jj (INVERSE) for GPTQ, which compensates errors in
 * later columns.  With other roundings, and while a transform searches, the weight is always H_jj. */
enum { CALM_WEIGHTS_DIAGONAL, CALM_WEIGHTS_INVERSE };

/* Options of these grids. */
typedef struct calm_search {
    bool both_signs;    /* try negative scales, too                        */
    long long rounds;   /* rounds of least squares after the search        */
    int weights;        /* CALM_WEIGHTS_*                                  */
} calm_search;

/* Option tables: `signed` for mse and hmse; `signed` and `rounds` for ls; `signed`, `rounds` and `weights` for hls. */
extern const calm_option calm_search_options[], calm_search_ls_options[], calm_search_hls_options[];

/* Find, among the grids tried, the one of least sum_j (w_j - s q_j)^2 (plain) or sum_j h_j (w_j - s q_j)^2 (weighted).
 * `search` is a calm_search, the options of the part. */
calm_status calm_search_plain(calm_ctx *ctx, const calm_group *group, const void *search, calm_grid *out);
calm_status calm_search_weighted(calm_ctx *ctx, const calm_group *group, const void *search, calm_grid *out);
