/* Predicts how long an algorithm takes on a job from its time on a small job.
 *
 * Operations in double follow from the shape (products of weights and Gram matrix, factors of the Gram matrix); their
 * time follows from the rate of dgemm.  The rest of the small job's time is work per weight: grids, searches, codes. */
#pragma once

#include <stddef.h>

#include "algorithms/algorithm.h"

typedef struct calm_fit {
    double products;    /* products W H, in units of calm_algorithm_products */
    double factors;     /* factorizations besides the shared one (calm_algorithm_factors) */
    double weight;      /* further seconds of one thread per weight */
} calm_fit;

/* Returns the operations to factor the inverse of a Gram matrix [in, in], which the candidates of a job share: a
 * Cholesky factorization and a triangular inverse. */
double calm_forecast_factor_operations(size_t in);

/* Returns the seconds of one thread for that factor; rate (here and below): operations per second of dgemm on one
 * thread. */
double calm_forecast_factor_seconds(size_t in, double rate);

/* Fits the time of an algorithm that took `seconds` of one thread on [out, in], with the shared factor; gain: speed of
 * float products, as calm_algorithm_products has it. */
calm_fit calm_forecast_fit(const calm_algorithm *algorithm, double seconds, size_t out, size_t in, double rate,
                           double gain);

/* Returns the predicted seconds of one thread on [out, in], without the shared factor. */
double calm_forecast_fit_seconds(const calm_fit *fit, size_t out, size_t in, double rate);
