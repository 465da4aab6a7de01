/* mse, then alternately codes and least-squares scale: the zero of MKQ-BERT's scale gradient sum (s q - w) q
 * (Tang et al. 2022, arXiv 2203.13483), unweighted. */
#include <stddef.h>

#include "algorithms/search.h"

typedef struct ls_options {
    bool both_signs;
    long long rounds;
} ls_options;

static const calm_option ls_table[] = {
    {.name = "signed", .help = "try negative scales too", .offset = offsetof(ls_options, both_signs),
     .type = CALM_OPTION_BOOL, .fallback = "false"},
    {.name = "rounds", .help = "of least squares at most", .offset = offsetof(ls_options, rounds),
     .type = CALM_OPTION_INT, .fallback = "8", .min = 1, .max = 1000},
    {.name = NULL},
};

static calm_status ls(calm_ctx *ctx, const calm_group *group, const void *opts, calm_grid *out)
{
    const ls_options *options = opts;
    calm_search search = {.weighted = false, .both_signs = options->both_signs, .rounds = (int)options->rounds};
    return calm_search_grid(ctx, group, &search, out);
}

const calm_part calm_grid_ls = {
    .name = "ls",
    .revision = 1,
    .summary = "mse, then least-squares scales",
    .reference = "Tang et al. 2022, arXiv 2203.13483",
    .kind = CALM_KIND_GRID,
    .opts_size = sizeof(ls_options),
    .opts = ls_table,
    .run.grid = ls,
};
