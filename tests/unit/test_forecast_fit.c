/* Estimated seconds of algorithms on wide jobs from those of a small job, on invented machines. */
#include "ptq/state/forecast_fit.h"

#include "tests/support/harness.h"

#define RATE 2e10

static calm_algorithm *named(const char *name)
{
    calm_algorithm *out;
    ck_ok(calm_algorithm_parse(ctx, name, &out));
    return out;
}

/* Returns the seconds of an algorithm with these products, factors and seconds per weight: products run at .6 of the
 * rate, factors at .75 of it, and at half of that at a width of 1,024. */
static double seconds_of(double products, double factors, double weight, size_t out, size_t in)
{
    const double o = (double)out, i = (double)in;
    return 2 * products * o * i * i / (0.6 * RATE) + factors * 2 / 3 * i * i * (i + 1024) / (0.75 * RATE) +
           weight * o * i;
}

/* A machine that takes what the operations need is estimated exactly for every shape, up to a few roundings. */
TEST(wide_jobs)
{
    static const struct {
        const char *name;
        double products, own;
        bool factor;
    } rows[] = {{"rtn", 0, 0, false}, {"mkq", 0, 0, false}, {"gptq", 0.5, 0, true}, {"gptq-hls", 0.5, 0, true},
                {"absmax+cd", 2, 0, false}, {"mkq-once", 3, 0, true}, {"mkq-full", 7, 2, true}};
    static const size_t shapes[][2] = {{256, 512}, {4096, 1024}, {6144, 4096}, {4096, 12288}, {5120, 25600}};
    for (size_t a = 0; a < sizeof rows / sizeof *rows; a++) {
        const double weight = 3e-9, made = rows[a].own + (rows[a].factor ? 1 : 0),
                     small = seconds_of(rows[a].products, made, weight, 256, 512);
        const calm_fit fit = calm_forecast_fit(named(rows[a].name), small, 256, 512, RATE, 1);
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            const size_t out = shapes[s][0], in = shapes[s][1];
            const double expected = seconds_of(rows[a].products, rows[a].own, weight, out, in);
            ck_near(calm_forecast_fit_seconds(&fit, out, in, RATE), expected, 1e-9 * expected);
        }
        ck_near(fit.products, rows[a].products, 0);
        ck_near(fit.factors, rows[a].own, 0);
    }
}
END_OF_TEST

/* A small job whose products were faster than the rate leaves no time per weight, and no negative time. */
TEST(faster_than_the_rate)
{
    const calm_fit fit = calm_forecast_fit(named("gptq"), 1e-6, 256, 512, RATE, 1);
    ck_assert(fit.weight == 0);
    ck_near(calm_forecast_fit_seconds(&fit, 1024, 2048, RATE), seconds_of(0.5, 0, 0, 1024, 2048), 1e-12);
}
END_OF_TEST

/* Products in float take less time with faster operands, those in double do not: half of one in mkq-full. */
TEST(faster_operands)
{
    static const struct {
        const char *name;
        double in_double, in_float, factors;
    } rows[] = {{"rtn", 0, 0, 0}, {"gptq", 0.5, 0, 0}, {"absmax+cd", 0, 2, 0}, {"mkq-full", 0.5, 6.5, 2}};
    for (size_t a = 0; a < sizeof rows / sizeof *rows; a++) {
        const calm_algorithm *algorithm = named(rows[a].name);
        const bool inverse = calm_algorithm_caps(algorithm) & CALM_NEEDS_INVERSE;
        const double products = rows[a].in_double + rows[a].in_float / 4, factors = rows[a].factors / 4,
                     small = seconds_of(products, factors + inverse, 3e-9, 256, 512),
                     expected = seconds_of(products, factors, 3e-9, 4096, 12288);
        const calm_fit fit = calm_forecast_fit(algorithm, small, 256, 512, RATE, 4);
        ck_near(fit.products, products, 0);
        ck_near(fit.factors, factors, 0);
        ck_near(calm_forecast_fit_seconds(&fit, 4096, 12288, RATE), expected, 1e-9 * expected);
    }
}
END_OF_TEST

/* The factor of a wide input takes more time than the updates that use it, and grows independently of them. */
TEST(factors)
{
    ck_near(calm_forecast_factor_operations(3000), 1.8e10, 1);
    ck_near(calm_forecast_factor_operations(6000) / calm_forecast_factor_operations(3000), 8, 1e-12);
    ck_near(calm_forecast_factor_seconds(3000, RATE), seconds_of(0, 1, 0, 1, 3000), 1e-12);
}
END_OF_TEST

int main(void)
{
    return run_tests("forecast_fit",
                     (const TTest *[]){wide_jobs, faster_than_the_rate, faster_operands, factors, NULL});
}
