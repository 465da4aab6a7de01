/* Seconds of algorithms: operations that follow from the shape, and work per weight. */
#include "ptq/state/forecast_fit.h"

#include <math.h>

double calm_forecast_factor_operations(size_t in)
{
    const double width = (double)in;
    return 2.0 / 3.0 * width * width * width;
}

static double product_operations(double products, size_t out, size_t in)
{
    return products * 2 * (double)out * (double)in * (double)in;
}

calm_fit calm_forecast_fit(const calm_algorithm *algorithm, double seconds, size_t out, size_t in, double rate)
{
    calm_fit fit = {.products = calm_algorithm_products(algorithm)};
    double operations = product_operations(fit.products, out, in);
    if (fit.products > 0)    /* others read the matrix and not its inverse */
        operations += calm_forecast_factor_operations(in);
    /* Products of a small job may be slower than the rate, never faster than no time. */
    fit.weight = fmax(seconds - operations / rate, 0) / ((double)out * (double)in);
    return fit;
}

double calm_forecast_fit_seconds(const calm_fit *fit, size_t out, size_t in, double rate)
{
    return product_operations(fit->products, out, in) / rate + fit->weight * (double)out * (double)in;
}
