/* Whether a gradient is the transpose of a derivative: <J u, v> = <u, J^T v>, with the arithmetic in double
 * (tests/support/doubled.h).
 *
 * J u comes from the forward pass at four points, -2, -1, 1 and 2 steps along u, whose slope is exact to the fourth
 * power of a step: with u as long as the values and steps of 1e-3 what is left is some 1e-11 of it, and rounding 1e-13
 * of the values.  Both sides are to agree within 1e-7 of the larger of the slope and the gradient's length, and of
 * what is left where all cancels: values are sums of some hundred products up to 100, good to 1e-12, over a step.  Two
 * constants of gelu have seven digits (3e-8). */
#ifndef CALM_TESTS_ADJOINT_H
#define CALM_TESTS_ADJOINT_H

#include <stddef.h>
#include <stdint.h>

/* x [n] = normal numbers of this spread, by stream; and the same in ctx->out. */
void adjoint_fill(double *x, size_t n, double spread, uint64_t stream);
double *adjoint_filled(size_t n, double spread, uint64_t stream);

/* sum of a[i] b[i]. */
double adjoint_dot(size_t n, const double *a, const double *b);

/* <f, v> at the values as they are. */
typedef double adjoint_value_fn(void *state);

/* `gradient` [n] is J^T v of x [n], which `value` reads: along a random direction and along itself, of the spread of x.
 */
void adjoint_check(const char *name, adjoint_value_fn *value, void *state, double *x, const double *gradient, size_t n);

#endif
