/* Derivatives of the kernels against central differences, in double, of functions written again in double.
 *
 * With step h the differences are off by h^2 / 6 times a third derivative, 1e-10 and less, and by 1e-16 / h.  eps =
 * 2^-24 is half a unit in the last place of a float32; each bound counts the roundings on the way. */
#include "ptq/tensor/vector_back.h"

#include "ptq/base/rng.h"
#include "ptq/tensor/vector.h"
#include "tests/support/harness.h"

#define EPS 0x1p-24
#define STEP 1e-5

enum { D = 131 }; /* several times the lanes, and a remainder */

static void fill(float *x, size_t n, double spread, uint64_t stream)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(spread * calm_rng_normal(12, stream, i));
}

/* ---- element by element ---- */

static double silu(double x)
{
    return x / (1 + exp(-x));
}

static double gelu(double x)
{
    return x / 2 * (1 + erf(x / sqrt(2)));
}

static double gelu_tanh(double x)
{
    return x / 2 * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
}

static double gelu_quick(double x)
{
    return x / (1 + exp(-1.702 * x));
}

static double relu(double x)
{
    return x > 0 ? x : 0;
}

/* Terms of the derivatives are 1 and factors like x f'' up to 2 |x| (1 + .13 x^2) of values good to 2 ulp; eight
 * roundings of those. */
TEST(activation_functions)
{
    static const struct {
        double (*value)(double x);
        void (*back)(size_t n, const float *x, float *dy);
    } all[] = {{silu, calm_vec_silu_back},
               {gelu, calm_vec_gelu_back},
               {gelu_tanh, calm_vec_gelu_tanh_back},
               {gelu_quick, calm_vec_gelu_quick_back},
               {relu, calm_vec_relu_back}};
    for (size_t f = 0; f < sizeof all / sizeof *all; f++) {
        float x[D], dy[D], found[D];
        fill(x, D, 3, 1);
        fill(dy, D, 1, 2);
        memcpy(found, dy, sizeof dy);
        all[f].back(D, x, found);
        for (size_t i = 0; i < D; i++) {
            const double at = (double)x[i], size = fabs((double)dy[i]);
            const double slope = (all[f].value(at + STEP) - all[f].value(at - STEP)) / (2 * STEP);
            const double bound = 8 * EPS * size * (1 + 2 * fabs(at) * (1 + 0.13 * at * at)) + 1e-9 * size;
            ck_assert_msg(fabs((double)found[i] - (double)dy[i] * slope) <= bound, "%zu: %g at %g, expected %g", f,
                          (double)found[i], at, (double)dy[i] * slope);
        }
    }
}
END_OF_TEST

/* Far from 0 the slopes are 0 (1e-38 times the factors) or exactly 1, and no factor overflows. */
TEST(activation_functions_far_out)
{
    void (*const all[])(size_t n, const float *x, float *dy) = {calm_vec_silu_back, calm_vec_gelu_back,
                                                                calm_vec_gelu_tanh_back, calm_vec_relu_back,
                                                                calm_vec_gelu_quick_back};
    for (size_t f = 0; f < sizeof all / sizeof *all; f++) {
        const float x[4] = {-1000, 0, 1000, 1e30f};
        float dy[4] = {2, 2, 2, 2};
        all[f](4, x, dy);
        ck_assert(fabsf(dy[0]) < 1e-30f && dy[1] == (f == 3 ? 0.0f : 1.0f) && dy[2] == 2 && dy[3] == 2);
    }
}
END_OF_TEST

static double clamped_glu(double gate, double up, double limit, double alpha)
{
    const double g = fmin(gate, limit), u = fmin(fmax(up, -limit), limit);
    return (u + 1) * g / (1 + exp(-alpha * g));
}

/* The terms of the two slopes are up to (limit + 1) (1 + 2 alpha |g|), each with some eight roundings and that of
 * the exponential's argument.  Clamped values have no slope; at a limit there are two, and no value is so near to
 * one. */
TEST(clamped_glus)
{
    const double limit = 2.5, alpha = 1.75;
    float gate[D], up[D], dy[D], dgate[D], dup[D];
    size_t cut[2] = {0, 0};
    fill(gate, D, 3, 7);
    fill(up, D, 3, 8);
    fill(dy, D, 1, 9);
    memcpy(dgate, dy, sizeof dy);
    calm_vec_clamped_glu_back(D, (float)limit, (float)alpha, gate, up, dgate, dup);
    for (size_t i = 0; i < D; i++) {
        const double g = (double)gate[i], u = (double)up[i], size = fabs((double)dy[i]);
        ck_assert(fabs(g - limit) > STEP && fabs(fabs(u) - limit) > STEP);
        const double of_gate =
            (clamped_glu(g + STEP, u, limit, alpha) - clamped_glu(g - STEP, u, limit, alpha)) / (2 * STEP);
        const double of_up =
            (clamped_glu(g, u + STEP, limit, alpha) - clamped_glu(g, u - STEP, limit, alpha)) / (2 * STEP);
        const double terms = (limit + 1) * (1 + 2 * alpha * fabs(g));
        const double bound = (8 + alpha * fabs(g)) * EPS * size * terms + 1e-8 * size;
        ck_near(dgate[i], (double)dy[i] * of_gate, bound);
        ck_near(dup[i], (double)dy[i] * of_up, bound);
        cut[0] += g > limit;
        cut[1] += fabs(u) > limit;
    }
    ck_assert(cut[0] > 5 && cut[1] > 5);
}
END_OF_TEST

/* scale (1 - tanh^2): t is good to 4 ulp, and 1 - t to 4 eps for any t; with t's argument off by 2 eps of up to 9.
 * The same from y, whose t is y / cap. */
TEST(soft_caps)
{
    const double cap = 3, scale = 0.7;
    float x[D], y[D], dy[D], found[D];
    fill(x, D, 6, 3);
    fill(dy, D, 1, 4);
    memcpy(found, dy, sizeof dy);
    calm_vec_soft_cap_back(D, (float)scale, (float)cap, x, found);
    for (size_t i = 0; i < D; i++) {
        const double t = tanh((double)(float)scale * (double)x[i] / cap), slope = (double)(float)scale * (1 - t * t);
        ck_near(found[i], (double)dy[i] * slope, 16 * EPS * fabs((double)dy[i]));
    }
    memcpy(y, x, sizeof y);
    memcpy(found, dy, sizeof dy);
    calm_vec_soft_cap(D, 1, (float)cap, y);
    calm_vec_soft_capped_back(D, (float)cap, y, found);
    for (size_t i = 0; i < D; i++) {
        const double t = tanh((double)x[i] / cap);
        ck_near(found[i], (double)dy[i] * (1 - t * t), 16 * EPS * fabs((double)dy[i]));
    }
}
END_OF_TEST

/* ---- rows ---- */

typedef struct row {
    double x[D], weight[D], bias[D];
} row;

static void softmax_row(const row *in, double *y)
{
    double sum = 0;
    for (size_t i = 0; i < D; i++)
        sum += y[i] = exp(in->x[i]);
    for (size_t i = 0; i < D; i++)
        y[i] /= sum;
}

static void rms_row(const row *in, double *y)
{
    double sum = 0;
    for (size_t i = 0; i < D; i++)
        sum += in->x[i] * in->x[i];
    for (size_t i = 0; i < D; i++)
        y[i] = in->x[i] / sqrt(sum / D + 1e-3) * in->weight[i];
}

static void layer_row(const row *in, double *y)
{
    double mean = 0, sum = 0;
    for (size_t i = 0; i < D; i++)
        mean += in->x[i] / D;
    for (size_t i = 0; i < D; i++)
        sum += (in->x[i] - mean) * (in->x[i] - mean);
    for (size_t i = 0; i < D; i++)
        y[i] = (in->x[i] - mean) / sqrt(sum / D + 1e-3) * in->weight[i] + in->bias[i];
}

/* Computes out [D] = d (dy . y) / d values, with `values` a part of `in`. */
static void differences(void (*function)(const row *in, double *y), row *in, double *values, const float *dy,
                        double *out)
{
    for (size_t i = 0; i < D; i++) {
        double y[2][D], sum = 0;
        const double kept = values[i];
        for (int side = 0; side < 2; side++) {
            values[i] = kept + (side ? -STEP : STEP);
            function(in, y[side]);
        }
        values[i] = kept;
        for (size_t j = 0; j < D; j++)
            sum += (double)dy[j] * (y[0][j] - y[1][j]);
        out[i] = sum / (2 * STEP);
    }
}

/* Compares a row: roundings of at most 2^-24, 2^-24 / 3 in the mean of squares, of which an element has three to
 * six. */
static void close_rows(const char *what, const float *found, const double *expected)
{
    double error = 0, size = 0;
    for (size_t i = 0; i < D; i++) {
        error += ((double)found[i] - expected[i]) * ((double)found[i] - expected[i]);
        size += expected[i] * expected[i];
    }
    ck_assert_msg(sqrt(error) <= 1e-7 * sqrt(size), "%s: %g of %g", what, sqrt(error), sqrt(size));
}

static void to_double(const float *x, double *out)
{
    for (size_t i = 0; i < D; i++)
        out[i] = (double)x[i];
}

TEST(norms)
{
    for (int layer = 0; layer < 2; layer++) {
        void (*const function)(const row *, double *) = layer ? layer_row : rms_row;
        float x[D], weight[D], dy[D], dweight[D] = {0}, dbias[D] = {0}, dx[D];
        row in = {{0}, {0}, {0}};
        double expected[D];
        fill(x, D, 2, 5);
        fill(weight, D, 1, 6);
        fill(dy, D, 1, 7);
        to_double(x, in.x);
        to_double(weight, in.weight);
        for (int in_place = 0; in_place < 2; in_place++) {
            memcpy(dx, dy, sizeof dx);
            if (layer)
                calm_vec_layernorm_back(D, x, weight, 1e-3f, in_place ? dx : dy, NULL, NULL, dx);
            else
                calm_vec_rmsnorm_back(D, x, weight, 1e-3f, in_place ? dx : dy, NULL, dx);
            differences(function, &in, in.x, dy, expected);
            close_rows("dx", dx, expected);
        }
        if (layer)
            calm_vec_layernorm_back(D, x, weight, 1e-3f, dy, dweight, dbias, NULL);
        else
            calm_vec_rmsnorm_back(D, x, weight, 1e-3f, dy, dweight, NULL);
        differences(function, &in, in.weight, dy, expected);
        close_rows("dweight", dweight, expected);
        differences(function, &in, in.bias, dy, expected);
        for (size_t i = 0; layer && i < D; i++)
            ck_near(dbias[i], expected[i], 1e-9);
    }
}
END_OF_TEST

/* The gradient of a row sums to 0, since adding a constant to the row changes nothing: D products, each rounded. */
TEST(softmax)
{
    float x[D], p[D], dy[D], found[D];
    row in = {{0}, {0}, {0}};
    double expected[D], exact[D], sum = 0, size = 0;
    fill(x, D, 1, 8);
    fill(dy, D, 1, 9);
    to_double(x, in.x);
    softmax_row(&in, exact);
    for (size_t i = 0; i < D; i++)
        p[i] = (float)exact[i];
    memcpy(found, dy, sizeof dy);
    calm_vec_softmax_back(D, p, found);
    differences(softmax_row, &in, in.x, dy, expected);
    close_rows("dx", found, expected);
    for (size_t i = 0; i < D; i++) {
        sum += (double)found[i];
        size += fabs((double)found[i]);
    }
    ck_near(sum, 0, 4 * EPS * size);
}
END_OF_TEST

/* Rows with gaps between them, alone and as a part of a longer row; D products in double, rounded once to float. */
TEST(lengths_of_rows)
{
    float x[3 * (D + 5)], alone[3], both[3] = {2, 0, 1};
    fill(x, sizeof x / sizeof *x, 1, 7);
    calm_vec_lengths(3, D, D + 5, x, false, alone);
    calm_vec_lengths(3, D, D + 5, x, true, both);
    for (size_t t = 0; t < 3; t++) {
        double sum = 0;
        for (size_t i = 0; i < D; i++)
            sum += (double)x[t * (D + 5) + i] * (double)x[t * (D + 5) + i];
        const double before = t == 0 ? 2 : t == 1 ? 0 : 1;
        ck_near(alone[t], sqrt(sum), 2 * EPS * sqrt(sum));
        ck_near(both[t], sqrt(before * before + sum), 2 * EPS * sqrt(before * before + sum));
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("vector_back", (const TTest *[]){activation_functions, activation_functions_far_out, clamped_glus,
                                                      soft_caps, norms, softmax, lengths_of_rows, NULL});
}
