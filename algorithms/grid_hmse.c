/* Shrunken spans, least sum h (w - s q)^2 with h = diag H (search.c has the candidates). */
#include <stddef.h>

#include "algorithms/search.h"

typedef struct hmse_options {
    bool both_signs;
} hmse_options;

static const calm_option hmse_table[] = {
    {.name = "signed", .help = "try negative scales too", .offset = offsetof(hmse_options, both_signs),
     .type = CALM_OPTION_BOOL, .fallback = "false"},
    {.name = NULL},
};

static calm_status hmse(calm_ctx *ctx, const calm_group *group, const void *opts, calm_grid *out)
{
    const hmse_options *options = opts;
    calm_search search = {.weighted = true, .both_signs = options->both_signs};
    return calm_search_grid(ctx, group, &search, out);
}

const calm_part calm_grid_hmse = {
    .name = "hmse",
    .revision = 1,
    .summary = "shrunken span of least input-weighted squared error",
    .reference = "-",
    .kind = CALM_KIND_GRID,
    .caps = CALM_NEEDS_GRAM,
    .opts_size = sizeof(hmse_options),
    .opts = hmse_table,
    .run.grid = hmse,
};
