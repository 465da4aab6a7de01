/* Quantiles of the KL divergence, and its mean by position. */
#include "ptq/eval/detail.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ptq/base/array.h"
#include "ptq/base/scope.h"

const double calm_eval_shares[] = {
#define CALM_EVAL_SHARE(name, share) share,
    CALM_EVAL_QUANTILES(CALM_EVAL_SHARE)
#undef CALM_EVAL_SHARE
};

static calm_status find_quantiles(calm_ctx *ctx, const double *kl, size_t n, calm_eval_detail *out)
{
    CALM_SCOPED_SCRATCH(ctx);
    double *sorted;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, sorted, n ? n : 1));
    memcpy(sorted, kl, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, calm_compare_doubles);
    /* A measured value, never one between two: with few tokens an interpolated tail would be invented. */
    for (size_t q = 0; q < CALM_N_EVAL_QUANTILES; q++)
        out->quantile[q] = n ? sorted[(size_t)ceil(calm_eval_shares[q] * (double)n) - 1] : NAN;
    return CALM_OK;
}

/* Returns the bin of a position.  Bins double in width: the first tokens of a window differ much more than later
 * ones. */
static size_t bin_of(size_t position)
{
    size_t bin = 0;
    while (position >>= 1)
        bin++;
    return bin;
}

calm_status calm_evaluate_detail(calm_ctx *ctx, const calm_windows *windows, const double *kl, calm_eval_detail *out)
{
    size_t n = 0;
    *out = (calm_eval_detail){.n_bins = windows->longest > 1 ? bin_of(windows->longest - 1) + 1 : 0};
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->bins, out->n_bins ? out->n_bins : 1));
    for (size_t w = 0; w < windows->n; w++)
        for (size_t t = 1; t < windows->begin[w + 1] - windows->begin[w]; t++) {
            calm_eval_bin *bin = &out->bins[bin_of(t)];
            bin->kl += kl[n++];
            bin->tokens++;
        }
    for (size_t b = 0; b < out->n_bins; b++) {
        calm_eval_bin *bin = &out->bins[b];
        bin->begin = (size_t)1 << b;
        bin->end = calm_size_min((size_t)2 << b, windows->longest);
        bin->kl /= (double)bin->tokens;    /* > 0: the longest window has a token in each bin */
    }
    return find_quantiles(ctx, kl, n, out);
}

size_t calm_evaluate_detail_scratch_bytes(size_t n_kl)
{
    return CALM_BYTES(double, n_kl ? n_kl : 1);
}
