/* Where a model differs from its reference: quantiles of the divergence over predicted tokens, and its mean by their
 * place in the window. */
#pragma once

#include "ptq/data/windows.h"

/* X(name, share): the quantiles; of n values the one of rank ceil(share n) */
#define CALM_EVAL_QUANTILES(X)                                                                                         \
    X(p50, 0.5)                                                                                                        \
    X(p90, 0.9)                                                                                                        \
    X(p99, 0.99)                                                                                                       \
    X(p999, 0.999)                                                                                                     \
    X(max, 1)

enum {
#define CALM_EVAL_QUANTILE(name, share) CALM_EVAL_##name,
    CALM_EVAL_QUANTILES(CALM_EVAL_QUANTILE)
#undef CALM_EVAL_QUANTILE
    CALM_N_EVAL_QUANTILES
};

/* Predicted tokens at positions begin .. end - 1 of their windows; the first token of a window, 0, is not predicted. */
typedef struct calm_eval_bin {
    size_t begin, end, tokens;
    double kl;    /* mean */
} calm_eval_bin;

/* Shares of the quantiles [CALM_N_EVAL_QUANTILES], in order. */
extern const double calm_eval_shares[];

typedef struct calm_eval_detail {
    double quantile[CALM_N_EVAL_QUANTILES];    /* of kl; NaN without a token                    */
    size_t n_bins;
    calm_eval_bin *bins;                       /* [n_bins] 1, 2 .. 3, 4 .. 7, ...; in ctx->out  */
} calm_eval_detail;

/* Of kl, the divergences of all predicted tokens of the windows, in order, as calm_evaluate_worst gives them. */
calm_status calm_evaluate_detail(calm_ctx *ctx, const calm_windows *windows, const double *kl, calm_eval_detail *out);

/* What it takes besides, of n_kl tokens. */
size_t calm_evaluate_detail_scratch_bytes(size_t n_kl);
