/* The Adam optimizer for learners: it updates the logarithms of factors (group scales, norms), and terms that are
 * added.
 *
 *   x -= rate m^ / (sqrt(v^) + eps),  m and v the running means of the gradient and of its square (.9 and .95),
 *   ^: divided by 1 - beta^t;  the factor is e^x, 1 at first, what is added to a term unit x
 *
 * Kingma, Ba 2015, arXiv 1412.6980. */
#pragma once

#include "algorithms/learner.h"

/* State of n factors; all zero at first. */
typedef struct calm_adam {
    double *x, *m, *v;
    double rate, correct1, correct2;    /* of the step: 1 - beta^t */
} calm_adam;

/* Make the state in `arena`; and the bytes that it takes. */
calm_status calm_adam_new(calm_ctx *ctx, calm_arena *arena, size_t n, calm_adam *out);
size_t calm_adam_bytes(size_t n);

/* The state [n] as it was at first. */
void calm_adam_reset(calm_adam *adam, size_t n);

/* Begin step t, counted from 1. */
void calm_adam_begin_step(calm_adam *adam, double rate, size_t t);

/* The number of groups of a row, from g on, whose scales are rounded together: 1, or those of a super-block. */
size_t calm_adam_together(const calm_learn_linear *linear, size_t g);

/* scales [n] = start [n] e^x for n groups of a row from g on, rounded as the linear's type stores them; minima stay.
 * row: one row, or the first of the rows that share the scales.  `scales` may be `start`. */
void calm_adam_scales(const calm_adam *adam, const calm_learn_linear *linear, size_t row, size_t g, size_t n,
                      const float *start, float *scales);

/* The same after one step of the factors, by the gradient with respect to the weights in linear->effective.
 * CALM_ENUMERIC: the type cannot hold a scale. */
calm_status calm_adam_step_scales(calm_ctx *ctx, const calm_adam *adam, const calm_learn_linear *linear, size_t row,
                                  size_t g, size_t n, const float *start, float *scales);

/* vector->values = start [n] e^x, or start + unit x if the vector has a unit, after one step and rounded to the stored
 * dtype.  CALM_ENUMERIC: a value is not finite. */
calm_status calm_adam_step_vector(calm_ctx *ctx, const calm_adam *adam, const float *start, calm_learn_vector *vector);
