/* Predicts how long an algorithm takes on a job from its time on a small job.
 *
 * Operations in double that follow from the shape - products of weights and Gram matrix, factors of the Gram matrix -
 * go by the rate of products; what is left of the small job is work per weight: grids, searches, codes. */
#pragma once

#include <stddef.h>

#include "algorithms/algorithm.h"

typedef struct calm_fit {
    double products;    /* W H that it takes (calm_algorithm_products)           */
    double factors;     /* besides the shared one (calm_algorithm_factors)       */
    double weight;      /* seconds of one thread per weight, besides             */
} calm_fit;

/* Operations of the factor of the inverse of a Gram matrix [in, in], which candidates of a job share: a Cholesky
 * factorization and a triangular inverse. */
double calm_forecast_factor_operations(size_t in);

/* Seconds of one thread for that factor; `rate`, here and below: what dgemm does in a second on one thread. */
double calm_forecast_factor_seconds(size_t in, double rate);

/* Of an algorithm that took `seconds` of one thread on [out, in], the shared factor included; `gain`: of products in
 * float, as calm_algorithm_products takes it. */
calm_fit calm_forecast_fit(const calm_algorithm *algorithm, double seconds, size_t out, size_t in, double rate,
                           double gain);

/* Seconds of one thread on [out, in], without the shared factor. */
double calm_forecast_fit_seconds(const calm_fit *fit, size_t out, size_t in, double rate);
