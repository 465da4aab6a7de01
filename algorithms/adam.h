/* The Adam optimizer for learners (Kingma, Ba 2015, arXiv 1412.6980).  It updates factors (group scales, norms) through
 * their logarithms, and terms (biases).
 *
 *   x -= rate m^ / (sqrt(v^) + eps),  m and v the running means of the gradient and of its square (beta .9 and .95),
 *   m^ = m / (1 - beta^t), v^ likewise;  a factor is multiplied by e^x, to a term is added unit x;  x is 0 at first */
#pragma once

#include "algorithms/learner.h"

/* The state of n factors or terms; all zero at first. */
typedef struct calm_adam {
    double *x, *m, *v;                  /* [n] each                                       */
    double rate, correct1, correct2;    /* of the current step: rate, 1 - beta^t per beta */
} calm_adam;

/* Allocates the state in `arena`, calm_adam_bytes. */
calm_status calm_adam_new(calm_ctx *ctx, calm_arena *arena, size_t n, calm_adam *out);
size_t calm_adam_bytes(size_t n);

/* Sets the state of all n entries to zero. */
void calm_adam_reset(calm_adam *adam, size_t n);

/* Begins step t >= 1. */
void calm_adam_begin_step(calm_adam *adam, double rate, size_t t);

/* Returns the number of groups of a row, from g on, whose scales are rounded together: 1, or those of a super-block. */
size_t calm_adam_together(const calm_learn_linear *linear, size_t g);

/* Computes scales [n] = start [n] e^x for n groups of a row from g on, rounded as the scheme stores them; minima do not
 * change.  `row`: one row, or the first of the rows that share the scales.  `scales` may be `start`. */
void calm_adam_scales(const calm_adam *adam, const calm_learn_linear *linear, size_t row, size_t g, size_t n,
                      const float *start, float *scales);

/* Does one Adam step of these groups, from the gradient with respect to linear->effective, and then what
 * calm_adam_scales does.  CALM_ENUMERIC: the scheme cannot store a scale. */
calm_status calm_adam_step_scales(calm_ctx *ctx, const calm_adam *adam, const calm_learn_linear *linear, size_t row,
                                  size_t g, size_t n, const float *start, float *scales);

/* Does one Adam step of a vector, and sets vector->values = start [n] e^x, or start + unit x if the vector has a unit,
 * rounded to the stored dtype.  CALM_ENUMERIC: a value is not finite. */
calm_status calm_adam_step_vector(calm_ctx *ctx, const calm_adam *adam, const float *start, calm_learn_vector *vector);
