/* Adam over the logarithms of factors - of group scales and of norms - and over terms, for learners.
 *
 *   x -= rate m^ / (sqrt(v^) + eps),  m and v the running means of the gradient and of its square (.9 and .95),
 *   ^: divided by 1 - beta^t;  the factor is e^x, 1 at first, what is added to a term unit x
 *
 * Kingma, Ba 2015, arXiv 1412.6980. */
#pragma once

#include "algorithms/learner.h"

/* Of n factors; all zero at first. */
typedef struct calm_adam {
    double *x, *m, *v;
    double rate, correct1, correct2;    /* of the step: 1 - beta^t */
} calm_adam;

/* In `arena`, and the bytes that this takes. */
calm_status calm_adam_new(calm_ctx *ctx, calm_arena *arena, size_t n, calm_adam *out);
size_t calm_adam_bytes(size_t n);

/* Step t, counted from 1, begins. */
void calm_adam_begin_step(calm_adam *adam, double rate, size_t t);

/* How many groups of a row, from g on, have scales that are rounded together: 1, or those of a super-block. */
size_t calm_adam_together(const calm_learn_linear *linear, size_t g);

/* scales [n] = start [n] e^x of this many groups of a row from g on, as the linear's type stores them next to its
 * minima, which stay; `row`: one row, or the first of those that share them.  They may be where `start` does. */
void calm_adam_scales(const calm_adam *adam, const calm_learn_linear *linear, size_t row, size_t g, size_t n,
                      const float *start, float *scales);

/* The same after a step of their factors by the gradient through the weights that linear->effective holds.
 * CALM_ENUMERIC: the type cannot hold one. */
calm_status calm_adam_step_scales(calm_ctx *ctx, const calm_adam *adam, const calm_learn_linear *linear, size_t row,
                                  size_t g, size_t n, const float *start, float *scales);

/* vector->values = start [n] e^x, or where the vector has a unit start + unit x, storable, after a step.
 * CALM_ENUMERIC: one is not finite. */
calm_status calm_adam_step_vector(calm_ctx *ctx, const calm_adam *adam, const float *start, calm_learn_vector *vector);
