/* hmse, then alternately codes and least-squares scale: the zero of MKQ-BERT's scale gradient sum h (s q - w) q,
 *
 *   q = round(w / s),  s = sum h w q / sum h q^2,  h = diag H
 *
 * (Tang et al. 2022, arXiv 2203.13483).  The paper descends on that gradient while training and without h; a solved
 * zero needs no training, and h is what the output sees of a weight's error. */
#include <stddef.h>

#include "algorithms/search.h"

typedef struct hls_options {
    bool both_signs;
    long long rounds;
} hls_options;

static const calm_option hls_table[] = {
    {.name = "signed", .help = "try negative scales too", .offset = offsetof(hls_options, both_signs),
     .type = CALM_OPTION_BOOL, .fallback = "false"},
    {.name = "rounds", .help = "of least squares at most", .offset = offsetof(hls_options, rounds),
     .type = CALM_OPTION_INT, .fallback = "8", .min = 1, .max = 1000},
    {.name = NULL},
};

static calm_status hls(calm_ctx *ctx, const calm_group *group, const void *opts, calm_grid *out)
{
    const hls_options *options = opts;
    calm_search search = {.weighted = true, .both_signs = options->both_signs, .rounds = (int)options->rounds};
    return calm_search_grid(ctx, group, &search, out);
}

const calm_part calm_grid_hls = {
    .name = "hls",
    .revision = 1,
    .summary = "hmse, then input-weighted least-squares scales",
    .reference = "Tang et al. 2022, arXiv 2203.13483",
    .kind = CALM_KIND_GRID,
    .caps = CALM_NEEDS_GRAM,
    .opts_size = sizeof(hls_options),
    .opts = hls_table,
    .run.grid = hls,
};
