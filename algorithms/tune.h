/* Tuning of a block's group scales and norms by gradients of a loss of the whole model; codes stay as they are.
 *
 *   s = bf16(S e^a)   p = bf16(p0 e^b),  a and b by Adam (adam.h)
 *
 * The state of a block is small compared with its codes: a few numbers per group.  So memory holds the states of all
 * blocks of a model, but decoded weights and their gradients of only one block at a time. */
#pragma once

#include "algorithms/learner.h"

/* The state of one block; opaque. */
typedef struct calm_tune calm_tune;

/* Creates the state of linears [n_linears] and vectors [n_vectors] in ctx->out, with their present values as start and
 * as best values.  The arrays are borrowed; linears without `grad` are not tuned.  CALM_ENOMEM. */
calm_status calm_tune_new(calm_ctx *ctx, calm_learn_linear *linears, size_t n_linears, calm_learn_vector *vectors,
                          size_t n_vectors, calm_tune **out);
size_t calm_tune_new_bytes(const calm_learn_linear *linears, size_t n_linears, const calm_learn_vector *vectors,
                           size_t n_vectors);

/* Does step t >= 1 with the gradients in `grad`: changes scales and values, but not the decoded weights in
 * `effective`.  CALM_ENUMERIC: a value cannot be stored.  The result does not depend on the number of threads. */
calm_status calm_tune_step(calm_ctx *ctx, calm_tune *tune, double rate, size_t t);

/* calm_tune_keep remembers the current scales and values as the best; calm_tune_restore sets the best ones again. */
void calm_tune_keep(calm_tune *tune);
void calm_tune_restore(calm_tune *tune);

/* Makes the best scales and values the new start; the next step is step 1. */
void calm_tune_restart(calm_tune *tune);
