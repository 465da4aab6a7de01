/* Stored scores of a candidate: the metric of each, and where it was measured.
 *
 *   job        the sublayer's output with this job alone quantized
 *   sublayer   the same with all jobs of the sublayer (or expert) quantized by the same entry of the pool
 *   block      the block's output with all its jobs quantized so
 *   delta      the block's output minus its input; stored under unit "block" as "delta_cka", ...
 *
 * The metrics of two outputs are those of cka/cka.h.  Two more are not of outputs: cka_linear (cka/linear.h; of a job)
 * and probe_kl, the mean KL(float || .) per token of the model with that unit alone quantized (of an encoder: 1 -
 * cosine).  gradient_kl is what gradients predict probe_kl to be. */
#pragma once

#include "cka/cka.h"
#include "ptq/model/layout.h"

typedef enum calm_point {
    CALM_POINT_JOB,
    CALM_POINT_SUBLAYER,
    CALM_POINT_BLOCK,
    CALM_POINT_DELTA,
    CALM_N_POINTS
} calm_point;

enum { CALM_SCORE_CKA_LINEAR = CALM_N_METRICS, CALM_SCORE_PROBE_KL, CALM_SCORE_GRADIENT_KL, CALM_N_SCORES };

/* The scores of one candidate; NaN where one was not measured. */
typedef struct calm_score_set {
    double value[CALM_N_POINTS][CALM_N_SCORES];
} calm_score_set;

/* A set without a value. */
void calm_score_set_clear(calm_score_set *set);

/* Are the metrics of outputs known at this point? */
bool calm_score_set_has(const calm_score_set *set, calm_point point);

/* Put the metrics of outputs at a point. */
void calm_score_set_put(calm_score_set *set, calm_point point, const calm_scores *scores);

/* The unit whose choice reads a point, and the point of a unit's output. */
calm_unit calm_point_unit(calm_point point);
calm_point calm_unit_point(calm_unit unit);

/* Is the score of that name a logarithm of an error ("log_rel_mse", "delta_log_rel_mse")?  Then differences of values
 * compare errors; of the others ratios do.  NULL is none. */
bool calm_score_is_log(const char *name);

/* A score as a loss that grows with the square of the error, as the divergence does: of a logarithm its exponential, of
 * rel_mae its square; the others are of squares. */
double calm_score_loss(const char *name, double value);

/* "cka_token", "delta_cka_token", "probe_kl"; static storage; NULL: there is no such score at this point. */
const char *calm_score_name(calm_point point, int score);

/* The point and score of a name for a unit; false when that unit has no such score (cka_linear is of jobs, delta_... of
 * blocks). */
bool calm_score_find(calm_unit unit, const char *name, calm_point *point, int *score);

/* The same for a name that was typed as --metric.  CALM_EARG, naming the nearest. */
calm_status calm_score_need(calm_ctx *ctx, calm_unit unit, const char *name, calm_point *point, int *score);
