/* Tuning of a block's group scales and norms by gradients of a loss of the whole model; codes stay as they are.
 *
 *   s = bf16(S e^a)   p = bf16(p0 e^b),  a and b by Adam (adam.h)
 *
 * The state of a block is small next to its codes: a few numbers for each group.  So all blocks of a model have one at
 * once, while decoded weights and their gradients are there for one block at a time. */
#pragma once

#include "algorithms/learner.h"

/* The state of one block; opaque. */
typedef struct calm_tune calm_tune;

/* Make the state of linears [n_linears] and vectors [n_vectors] in ctx->out; their start is the best state so far.  The
 * arrays are borrowed; linears without `grad` are left out.  CALM_ENOMEM. */
calm_status calm_tune_new(calm_ctx *ctx, calm_learn_linear *linears, size_t n_linears, calm_learn_vector *vectors,
                          size_t n_vectors, calm_tune **out);
size_t calm_tune_new_bytes(const calm_learn_linear *linears, size_t n_linears, const calm_learn_vector *vectors,
                           size_t n_vectors);

/* Do step t, from 1 on, with the gradients in `grad` at the weights in `effective`: scales and values change,
 * decoded weights do not.  CALM_ENUMERIC: a value cannot be stored.  The same bytes for any number of threads. */
calm_status calm_tune_step(calm_ctx *ctx, calm_tune *tune, double rate, size_t t);

/* Remember the current scales and values as the best; set the best ones again. */
void calm_tune_keep(calm_tune *tune);
void calm_tune_restore(calm_tune *tune);

/* The best ones are the start now, and step 1 comes next. */
void calm_tune_restart(calm_tune *tune);
