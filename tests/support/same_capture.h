/* Checks that captures are equal to the bit, and that Gram matrices are near naive ones. */
#ifndef CALM_TESTS_SAME_CAPTURE_H
#define CALM_TESTS_SAME_CAPTURE_H

#include "ptq/calib/capture.h"

/* Fails the test unless both are NULL, or equal in every figure, histogram and place. */
void same_accumulators(const calm_actstat_acc *a, const calm_actstat_acc *b);

/* The same for a job's statistics (NULL Gram matrices allowed in both) and its first `score_rows` inputs. */
void same_job(const calm_job_capture *a, const calm_job_capture *b, size_t score_rows);

/* The same for all jobs and hook points, and for the scored output, `width` columns. */
void same_expert_capture(const calm_capture *a, const calm_capture *b, size_t width);

/* Fails the test unless gram [width, width] is symmetric and equals X^T X of x [n, width] within the error of float32
 * products of at most 30 rows, added in double. */
void near_gram(const double *gram, const float *x, size_t n, size_t width);

#endif
