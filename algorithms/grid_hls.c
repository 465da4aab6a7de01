/* hmse, then alternately codes and least-squares scale: the zero of MKQ-BERT's scale gradient sum h (s q - w) q,
 *
 *   q = round(w / s),  s = sum h w q / sum h q^2,  h = diag H
 *
 * (Tang et al. 2022, arXiv 2203.13483).  The paper descends along this gradient during training, without h.  Solving
 * for the zero needs no training, and h weights the error of a weight by its effect on the output.
 *
 * weights=inverse: before gptq h_j = 1 / [Hd^-1]_jj, Hd with gptq's damping: the share of an error in column j that
 * remains after all other columns compensate it, as GPTQ does with later columns. */
#include "algorithms/scale_search.h"

const calm_part calm_grid_hls = {
    .name = "hls",
    .revision = 2,
    .summary = "hmse, then input-weighted least-squares scales",
    .reference = "Tang et al. 2022, arXiv 2203.13483",
    .kind = CALM_KIND_GRID,
    .caps = CALM_NEEDS_GRAM | CALM_GRAM_INVERSE,
    .opts_size = sizeof(calm_search),
    .opts = calm_search_hls_options,
    .run.grid = calm_search_weighted,
};
