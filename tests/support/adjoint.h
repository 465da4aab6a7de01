/* Checks that a gradient is the transpose of a derivative: <J u, v> = <u, J^T v>, with arithmetic in double
 * (tests/support/doubled.h).
 *
 * J u comes from the forward pass at four points, -2, -1, 1 and 2 steps along u; this slope is exact to the fourth
 * power of a step: with u as long as the values and steps of 1e-3 the remainder is about 1e-11 of it, and rounding
 * about 1e-13 of the values.  Both sides must agree within 1e-7 of the larger of the slope and the gradient's length,
 * plus the rounding error if all terms cancel: values are sums of some hundred products up to 100, exact to 1e-12,
 * divided by a step.  Two constants of gelu have seven digits (3e-8). */
#ifndef CALM_TESTS_ADJOINT_H
#define CALM_TESTS_ADJOINT_H

#include <stddef.h>
#include <stdint.h>

/* Fills x [n] with normal numbers of this standard deviation, drawn from `stream`; adjoint_filled returns such x in
 * ctx->out. */
void adjoint_fill(double *x, size_t n, double spread, uint64_t stream);
double *adjoint_filled(size_t n, double spread, uint64_t stream);

/* Returns the sum of a[i] b[i]. */
double adjoint_dot(size_t n, const double *a, const double *b);

/* Returns <f, v> at the current values. */
typedef double adjoint_value_fn(void *state);

/* Checks that `gradient` [n] is J^T v at x [n], which `value` reads, along a random direction and along the gradient,
 * both as long as x.
 * */
void adjoint_check(const char *name, adjoint_value_fn *value, void *state, double *x, const double *gradient, size_t n);

#endif
