/* Normal numbers that tests fill models and jobs with. */
#ifndef CALM_TESTS_NORMALS_H
#define CALM_TESTS_NORMALS_H

#include <stddef.h>
#include <stdint.h>

/* The first n values of calm_rng_normal(seed, stream, ...), valid until the next call.  A process computes each once:
 * loops over families fill one model after the other from the same streams, and a logarithm and a cosine per weight
 * would take most of the test's time.  Not for several threads. */
const double *test_normals(uint64_t seed, uint64_t stream, size_t n);

#endif
