/* Distribution of the divergence from the reference: over tokens, and over positions in the window. */
#include <stdio.h>

#include "cli/eval.h"
#include "cli/print.h"
#include "ptq/eval/detail.h"

/* Fills both tables. */
static calm_status fill(calm_ctx *ctx, const calm_windows *windows, const calm_eval_worst *worst, calm_table *quantiles,
                        calm_table *positions)
{
    static const char *const names[] = {
#define CALM_EVAL_NAME(name, share) #name,
        CALM_EVAL_QUANTILES(CALM_EVAL_NAME)
#undef CALM_EVAL_NAME
    };
    calm_eval_detail detail;
    CALM_TRY(calm_evaluate_detail(ctx, windows, worst->kl, &detail));
    calm_table_columns(quantiles, "quantile|#kl");
    for (size_t q = 0; q < CALM_N_EVAL_QUANTILES; q++)
        CALM_CELLS(quantiles, CALM_TEXT(names[q]), CALM_FIXED(detail.quantile[q], 6));
    calm_table_columns(positions, "#begin|#end|#tokens|#kl");
    for (size_t b = 0; b < detail.n_bins; b++) {
        const calm_eval_bin *bin = &detail.bins[b];
        CALM_CELLS(positions, CALM_INT(bin->begin), CALM_INT(bin->end), CALM_INT(bin->tokens), CALM_FIXED(bin->kl, 6));
    }
    return CALM_OK;
}

calm_status calm_eval_detail_print(calm_ctx *ctx, const calm_windows *windows, const calm_eval_worst *worst)
{
    CALM_SCOPED_TABLE(quantiles);
    CALM_SCOPED_TABLE(positions);
    CALM_TRY(fill(ctx, windows, worst, &quantiles, &positions));
    printf("\n");
    CALM_TRY(calm_print_table(ctx, &quantiles, stdout));
    printf("\n");
    return calm_print_table(ctx, &positions, stdout);
}

calm_status calm_eval_detail_json(calm_ctx *ctx, const calm_windows *windows, const calm_eval_worst *worst,
                                  calm_json **out)
{
    CALM_SCOPED_TABLE(quantiles);
    CALM_SCOPED_TABLE(positions);
    CALM_TRY(fill(ctx, windows, worst, &quantiles, &positions));
    *out = CALM_OBJECT(CALM_KV("quantiles", calm_rows_json(ctx, &quantiles)),
                       CALM_KV("positions", calm_rows_json(ctx, &positions)));
    return CALM_OK;
}
