/* Adam over the logarithms of factors - of group scales and of norms - and over terms, for learners.
 *
 *   x -= rate m^ / (sqrt(v^) + eps),  m and v the running means of the gradient and of its square (.9 and .95),
 *   ^: divided by 1 - beta^t;  the factor is e^x, 1 at first, what is added to a term unit x
 *
 * Kingma, Ba 2015, arXiv 1412.6980. */
#ifndef CALM_ALGORITHMS_ADAM_H
#define CALM_ALGORITHMS_ADAM_H

#include "algorithms/learner.h"

/* Of n factors; all zero at first. */
typedef struct calm_adam {
    double *x, *m, *v;
    double rate, correct1, correct2;    /* of the step: 1 - beta^t */
} calm_adam;

/* In `arena`, and what that takes of it. */
calm_status calm_adam_new(calm_ctx *ctx, calm_arena *arena, size_t n, calm_adam *out);
size_t calm_adam_bytes(size_t n);

/* Step t, counted from 1, begins. */
void calm_adam_begin_step(calm_adam *adam, double rate, size_t t);

/* *scale = start e^x, storable in the linear's type, after a step of the factor of group g of a row, or of the rows
 * from `row` on that share it, by the gradient through the weights that linear->effective holds.  CALM_ENUMERIC: the
 * type cannot hold it. */
calm_status calm_adam_step_scale(calm_ctx *ctx, const calm_adam *adam, const calm_learn_linear *linear, size_t row,
                                 size_t g, float start, float *scale);

/* vector->values = start [n] e^x, or where the vector has a unit start + unit x, storable, after a step.
 * CALM_ENUMERIC: one is not finite. */
calm_status calm_adam_step_vector(calm_ctx *ctx, const calm_adam *adam, const float *start, calm_learn_vector *vector);

#endif
