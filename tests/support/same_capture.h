/* Captures that must be the same to the bit, and Gram matrices that must be near naive ones. */
#ifndef CALM_TESTS_SAME_CAPTURE_H
#define CALM_TESTS_SAME_CAPTURE_H

#include "ptq/calib/capture.h"

/* Fail the test unless both are NULL, or the same in every figure, histogram and place. */
void same_accumulators(const calm_actstat_acc *a, const calm_actstat_acc *b);

/* The same for a job's statistics (NULL Gram matrices allowed in both) and its first `score_rows` inputs. */
void same_job(const calm_job_capture *a, const calm_job_capture *b, size_t score_rows);

/* The same for all jobs and hook points, and for the scored output, `width` columns. */
void same_expert_capture(const calm_capture *a, const calm_capture *b, size_t width);

/* Fail the test unless gram [width, width] is symmetric and X^T X of x [n, width], as far as float32 products of at
 * most 30 rows at a time, added in double, allow. */
void near_gram(const double *gram, const float *x, size_t n, size_t width);

#endif
