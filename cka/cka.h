/* Scores: how far a candidate's output Z lies from the float output Y.
 *
 *   Y, Z  [n, d]  rows are tokens, row-major, float32; all sums in double.
 * Every metric is a loss: 0 means equal.  docs/method.md section 3 has the formulas; Kornblith et al. 1905.00414 for
 * linear CKA.  cka/ sees two matrices and does not know what quantization is.
 *
 * Where a formula has no value, so that none is ever NaN or infinite:
 *   - a constant Z (Gram norm at most 1e-12 of Y's) gives 1 in every CKA; of a constant Y it is 0 where Z is
 *     constant too, else 1;
 *   - a zero row of Y is a zero row of both matrices in cka_token;
 *   - log_rel_mse: a row's |z-y|^2 / |y|^2 is held within [2^-64, 2^64] (2^-48 is the square of float32's rounding
 *     unit), so equal outputs give -44.4, the only metric whose best value is not 0;
 *   - cosine: a zero row against a zero row gives 0, against another 1;
 *   - rel_mse, rel_mae: 0/0 is 0, and both are cut off at 2^64. */
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

/* The name ("cka"); static storage. */
const char *calm_metric_name(calm_metric metric);

typedef struct calm_scores {
    double value[CALM_N_METRICS];
    size_t n_rows, n_dropped;    /* rows scored; rows cka_drop left out */
    bool constant;               /* Z is the same in all rows, by cka.h's rule, and Y is not: a dead candidate */
} calm_scores;

/* What depends on Y alone, computed once per sublayer and shared by all its candidates; read-only afterwards,
 * so threads may share it.  Lives in the arena it was made in; `y` is borrowed. */
typedef struct calm_score_ref calm_score_ref;

/* Prepare Y [n, d] in ctx->out, which keeps a few [d, d] matrices of doubles, or two [n, n] where n <= 2 d.
 * CALM_ENUMERIC when Y holds a value that is not finite, with row and column; CALM_EARG for n < 4 or d = 0. */
calm_status calm_score_prepare(calm_ctx *ctx, const float *y, size_t n, size_t d, calm_score_ref **out);

/* Bytes that calm_score_prepare leaves in ctx->out, and the most it holds of ctx->scratch.  Not monotonic in n: they
 * fall where n passes calm_score_square_rows(d). */
size_t calm_score_prepare_bytes(size_t n, size_t d);
size_t calm_score_prepare_scratch_bytes(size_t n, size_t d);

/* The most rows whose [n, n] matrices are kept instead of [d, d] ones. */
size_t calm_score_square_rows(size_t d);

/* All metrics of Z [n, d] against a prepared Y.  CALM_ENUMERIC when Z holds a value that is not finite, with row
 * and column: such a candidate is rejected.  Temporaries in ctx->scratch, released on return.  Runs on the calling
 * thread, and gives the same bits on any. */
calm_status calm_score(calm_ctx *ctx, const calm_score_ref *ref, const float *z, calm_scores *out);

/* What it holds of ctx->scratch at most. */
size_t calm_score_scratch_bytes(size_t n, size_t d);

#endif
