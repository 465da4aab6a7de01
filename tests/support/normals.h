/* Normal numbers for models and jobs of tests. */
#ifndef CALM_TESTS_NORMALS_H
#define CALM_TESTS_NORMALS_H

#include <stddef.h>
#include <stdint.h>

/* Returns the first n values of calm_rng_normal(seed, stream, ...), valid until the next call.  A process computes
 * each value once: loops over families fill many models from the same streams, and a logarithm and a cosine per
 * weight would take most of the test's time.  Only one thread may call it. */
const double *test_normals(uint64_t seed, uint64_t stream, size_t n);

#endif
