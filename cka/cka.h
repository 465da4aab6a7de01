/* Scores: how far a candidate's output Z lies from the float output Y.
 *
 *   Y, Z  [n, d]  rows are tokens, row-major, float32; all sums in double.
 * Every metric is a loss: 0 means equal.  METHOD.md section 3 has the formulas; Kornblith et al. 1905.00414 for
 * linear CKA.  cka/ sees two matrices and does not know what quantization is. */
#ifndef CALM_CKA_CKA_H
#define CALM_CKA_CKA_H

#include "ptq/base/context.h"

/* X(field, "name", "what it is") - one place for names, order and help of all metrics */
#define CALM_METRIC_LIST(X)                                                                                  \
    X(CKA, "cka", "1 - linear CKA, columns centred")                                                         \
    X(CKA_DEBIASED, "cka_debiased", "1 - debiased linear CKA (n >= 4; may exceed 1)")                        \
    X(CKA_TOKEN, "cka_token", "1 - CKA of rows divided by the float row's norm: every token counts alike")   \
    X(CKA_DROP, "cka_drop", "1 - CKA without rows whose float norm is above 6 medians")                      \
    X(REL_MSE, "rel_mse", "sum |z-y|^2 / sum |y - mean y|^2")                                                \
    X(LOG_REL_MSE, "log_rel_mse", "mean over tokens of log(|z-y|^2 / |y|^2)")                                \
    X(COSINE, "cosine", "mean over tokens of 1 - cos(y, z)")                                                 \
    X(REL_MAE, "rel_mae", "sum |z-y| / sum |y|")

typedef enum calm_metric {
#define CALM_METRIC_ENUM(field, name, help) CALM_METRIC_##field,
    CALM_METRIC_LIST(CALM_METRIC_ENUM)
#undef CALM_METRIC_ENUM
    CALM_N_METRICS
} calm_metric;

const char *calm_metric_name(calm_metric metric);
const char *calm_metric_help(calm_metric metric);
/* CALM_N_METRICS when unknown. */
calm_metric calm_metric_find(const char *name);

typedef struct calm_scores {
    double value[CALM_N_METRICS];
    size_t n_rows, n_dropped;    /* rows scored; rows cka_drop left out */
} calm_scores;

/* What depends on Y alone, computed once per sublayer and shared by all its candidates; read-only afterwards,
 * so threads may share it.  Lives in the arena it was made in; `y` is borrowed. */
typedef struct calm_score_ref calm_score_ref;

/* Prepare Y [n, d] in ctx->out.  CALM_ENUMERIC when Y holds a value that is not finite; CALM_EARG for n < 4. */
calm_status calm_score_prepare(calm_ctx *ctx, const float *y, size_t n, size_t d, calm_score_ref **out);

/* All metrics of Z [n, d] against a prepared Y.  CALM_ENUMERIC when Z holds a value that is not finite, with row
 * and column: such a candidate is rejected. */
calm_status calm_score(calm_ctx *ctx, const calm_score_ref *ref, const float *z, calm_scores *out);

/* Linear CKA of two matrices of different widths (X [n, d1], Y [n, d2]), the general form that the fixtures
 * state: *cka and *debiased receive the similarities themselves (not 1 - ...); either may be NULL. */
calm_status calm_cka_general(calm_ctx *ctx, const float *x, size_t d1, const float *y, size_t d2, size_t n,
                             double *cka, double *debiased);

#endif
