/* Where a model differs from its reference: quantiles of the KL divergence over predicted tokens, and its mean by
 * position in the window. */
#pragma once

#include "ptq/data/windows.h"

/* X(name, share): the quantiles; of n values it is the value of rank ceil(share n) */
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

/* The predicted tokens at positions begin .. end - 1 of their windows; token 0 of a window is not predicted. */
typedef struct calm_eval_bin {
    size_t begin, end, tokens;
    double kl;    /* mean divergence */
} calm_eval_bin;

/* Shares of the quantiles [CALM_N_EVAL_QUANTILES], in order. */
extern const double calm_eval_shares[];

typedef struct calm_eval_detail {
    double quantile[CALM_N_EVAL_QUANTILES];    /* of the divergence; NaN without a token */
    size_t n_bins;
    calm_eval_bin *bins;                       /* [n_bins] positions 1, 2 .. 3, 4 .. 7, ...; in ctx->out */
} calm_eval_detail;

/* Computes the detail from kl, the divergences of all predicted tokens in order, as calm_evaluate_worst returns
 * them. */
calm_status calm_evaluate_detail(calm_ctx *ctx, const calm_windows *windows, const double *kl, calm_eval_detail *out);

/* Returns the peak bytes of ctx->scratch for n_kl tokens. */
size_t calm_evaluate_detail_scratch_bytes(size_t n_kl);
