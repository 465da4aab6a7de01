/* Seconds of algorithms: operations that follow from the shape, and time per weight. */
#include "ptq/state/forecast_fit.h"

#include <math.h>

/* The share of dgemm's rate that products within algorithms reach, which have tall slices and wait for memory: measured
 * for gptq, mkq-once and mkq-full on 256 x 512 to 2048 x 2048 and 256 x 8192 (docs/evidence/chain_shapes.csv). */
#define CHAIN_SHARE 0.6
/* The share of dgemm's rate that a factorization reaches at a width far above FACTOR_NARROW, at which half of its time
 * is panels and copies; measured for gptq and mkq-full on few rows of 512 to 8192 inputs. */
#define FACTOR_SHARE  0.75
#define FACTOR_NARROW 1024.0

double calm_forecast_factor_operations(size_t in)
{
    const double width = (double)in;
    return 2.0 / 3.0 * width * width * width;
}

double calm_forecast_factor_seconds(size_t in, double rate)
{
    return calm_forecast_factor_operations(in) * (1 + FACTOR_NARROW / (double)in) / (FACTOR_SHARE * rate);
}

/* Returns the seconds of the operations that follow from the shape. */
static double shape_seconds(const calm_fit *fit, size_t out, size_t in, double rate)
{
    const double operations = fit->products * 2 * (double)out * (double)in * (double)in;
    return operations / (CHAIN_SHARE * rate) + fit->factors * calm_forecast_factor_seconds(in, rate);
}

calm_fit calm_forecast_fit(const calm_algorithm *algorithm, double seconds, size_t out, size_t in, double rate,
                           double gain)
{
    calm_fit fit = {.products = calm_algorithm_products(algorithm, gain),
                    .factors = calm_algorithm_factors(algorithm, gain)};
    double known = shape_seconds(&fit, out, in, rate);
    if (calm_algorithm_caps(algorithm) & CALM_NEEDS_INVERSE)
        known += calm_forecast_factor_seconds(in, rate);
    /* Products of a small job may be slower than the rate, which must not give negative time per weight. */
    fit.weight = fmax(seconds - known, 0) / ((double)out * (double)in);
    return fit;
}

double calm_forecast_fit_seconds(const calm_fit *fit, size_t out, size_t in, double rate)
{
    return shape_seconds(fit, out, in, rate) + fit->weight * (double)out * (double)in;
}
