/* Stored scores of a candidate: metrics, and the point at which each was measured.
 *
 *   job        the sublayer's output with this job alone quantized
 *   sublayer   the same output with all jobs of the sublayer (or expert) quantized by the same entry
 *   block      the block's output with all its jobs quantized by the same entry
 *   delta      the block's output minus its input; stored under unit "block" as "delta_cka", ...
 *
 * cka/cka.h has the metrics that compare two outputs.  Three scores do not: cka_linear (cka/linear.h; of a job);
 * probe_kl, the mean KL(float || quantized) per token of the model with only that unit quantized (of an encoder: 1 -
 * cosine); gradient_kl, the estimate of probe_kl from gradients. */
#pragma once

#include "cka/cka.h"
#include "ptq/arch/layout.h"

typedef enum calm_point {
    CALM_POINT_JOB,
    CALM_POINT_SUBLAYER,
    CALM_POINT_BLOCK,
    CALM_POINT_DELTA,
    CALM_N_POINTS
} calm_point;

enum { CALM_SCORE_CKA_LINEAR = CALM_N_METRICS, CALM_SCORE_PROBE_KL, CALM_SCORE_GRADIENT_KL, CALM_N_SCORES };

/* The scores of one candidate; NaN: not measured. */
typedef struct calm_score_set {
    double value[CALM_N_POINTS][CALM_N_SCORES];
} calm_score_set;

/* Sets all scores to NaN. */
void calm_score_set_clear(calm_score_set *set);

/* Returns true if the metrics of outputs were measured at this point. */
bool calm_score_set_has(const calm_score_set *set, calm_point point);

/* Stores the metrics of outputs of a point. */
void calm_score_set_put(calm_score_set *set, calm_point point, const calm_scores *scores);

/* Return the unit whose choice reads a point, and the point of a unit's output. */
calm_unit calm_point_unit(calm_point point);
calm_point calm_unit_point(calm_unit unit);

/* Returns true if the score of that name is the logarithm of an error ("log_rel_mse", "delta_log_rel_mse"), so that
 * errors are compared by differences of values instead of ratios.  NULL: false. */
bool calm_score_is_log(const char *name);

/* Converts a score to a loss that grows with the square of the error, as the KL divergence does: exp of a logarithm,
 * the square of rel_mae; the other scores are quadratic already. */
double calm_score_loss(const char *name, double value);

/* Returns "cka_token", "delta_cka_token", "probe_kl" (static); NULL: there is no such score at this point. */
const char *calm_score_name(calm_point point, int score);

/* Finds the point and score of a name for a unit; false: the unit has no such score (only jobs have cka_linear, only
 * blocks have delta_...). */
bool calm_score_find(calm_unit unit, const char *name, calm_point *point, int *score);

/* Does the same for a name that a user typed as --metric.  CALM_EARG: unknown; the message has the nearest name. */
calm_status calm_score_need(calm_ctx *ctx, calm_unit unit, const char *name, calm_point *point, int *score);
