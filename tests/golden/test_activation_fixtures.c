/* The activation statistics of every tensor in the numerics fixtures, as calm_actstat_acc computes them: over all
 * tokens at once, and in windows whose statistics are merged.
 *
 * Tolerances (fixtures/README.md): counts, extremes, medians and the 100 largest values are exact; quantiles are
 * within 1e-9 relative.  A sum of n values in double is within n u relative, below 1e-12 for these tensors.  A
 * token's ratio is stored as a float: 2^-24 relative, which holds for the mean of ratios too. */
#include "tests/support/harness.h"

#include <stdio.h>

#include "ptq/calib/activation.h"
#include "ptq/io/json.h"
#include "ptq/io/safetensors.h"

#define SUM_RELATIVE 1e-12
#define QUANTILE_RELATIVE 1e-9
#define RATIO_RELATIVE 0x1p-24

static const calm_tensor *find(const calm_safetensors *set, const char *name, const char *what)
{
    const calm_tensor *tensor = calm_safetensors_find(set, test_format("%s.%s", name, what));
    ck_assert_msg(tensor != NULL, "activations.safetensors lacks %s.%s", name, what);
    return tensor;
}

static int64_t integer_at(const calm_tensor *tensor, size_t i)
{
    int64_t value;
    memcpy(&value, tensor->data + i * sizeof value, sizeof value);
    return value;
}

static double number_at(const calm_tensor *tensor, size_t i)
{
    double value;
    memcpy(&value, tensor->data + i * sizeof value, sizeof value);
    return value;
}

static void check(const char *name, const calm_json *answer, const char *key, double found, double relative)
{
    double expected = calm_json_number(calm_json_get(answer, key), NAN);
    ck_assert_msg(fabs(found - expected) <= relative * fabs(expected), "%s: %s is %.17g, expected %.17g", name, key,
                  found, expected);
}

static void check_histogram(const char *name, const calm_safetensors *set, const calm_actstat_acc *acc)
{
    const calm_tensor *expected = find(set, name, "histogram");
    for (size_t k = 0; k < CALM_ACT_BINS; k++)
        ck_assert_msg(acc->histogram[k] == (uint64_t)integer_at(expected, k), "%s: bin %zu holds %lu, expected %ld",
                      name, k, acc->histogram[k], integer_at(expected, k));
}

/* Compares the largest values.  The fixture may have values of equal magnitude in any order, calm has them by
 * position. */
static void check_top(const char *name, const calm_safetensors *set, const calm_actstat_acc *acc,
                      size_t rows_per_window)
{
    const calm_tensor *index = find(set, name, "top100_index"), *values = find(set, name, "top100_value");
    float expected[CALM_ACT_TOP];
    size_t n = values->n_elements;
    ck_assert_uint_le(n, CALM_ACT_TOP);
    ck_assert_uint_ge(acc->n_top, n);
    ck_ok(calm_tensor_to_f32(ctx, values, expected));
    for (size_t i = 0; i < n; i++) {
        bool tie = (i > 0 && fabsf(expected[i]) == fabsf(expected[i - 1])) ||
                   (i + 1 < n && fabsf(expected[i]) == fabsf(expected[i + 1]));
        ck_assert_msg(fabsf(acc->top[i].value) == fabsf(expected[i]), "%s: place %zu holds %g, expected %g", name, i,
                      (double)acc->top[i].value, (double)expected[i]);
        if (tie)
            continue;
        ck_assert(acc->top[i].value == expected[i]);
        ck_assert_uint_eq(acc->top[i].window * rows_per_window + acc->top[i].token, (size_t)integer_at(index, 2 * i));
        ck_assert_uint_eq(acc->top[i].channel, (size_t)integer_at(index, 2 * i + 1));
    }
}

static void check_summary(const char *name, const calm_safetensors *set, const calm_json *answer,
                          const calm_actstat_acc *acc)
{
    static const char *const quantiles[] = {"q25", "median", "q75", "q90", "q99", "q99.9"};
    const calm_tensor *ratios = find(set, name, "token_ratio");
    calm_actstat_summary s;
    calm_actstat_summarize(acc, &s);
    check(name, answer, "count", (double)s.count, 0);
    check(name, answer, "zeros", (double)s.zeros, 0);
    check(name, answer, "massive_tokens", (double)s.n_massive, 0);
    check(name, answer, "max", s.max, 0);
    check(name, answer, "min", s.min, 0);
    check(name, answer, "absmax", s.max_abs, 0);
    check(name, answer, "rms", s.rms, SUM_RELATIVE);
    check(name, answer, "std", s.std, SUM_RELATIVE);
    check(name, answer, "abs_mean", s.mean_abs, SUM_RELATIVE);
    double mean = calm_json_number(calm_json_get(answer, "mean"), NAN);
    ck_near(s.mean, mean, SUM_RELATIVE * s.mean_abs);    /* values of both signs cancel in the mean */
    check(name, answer, "ratio_max", s.ratio_max, RATIO_RELATIVE);
    check(name, answer, "ratio_mean", s.ratio_mean, RATIO_RELATIVE);
    for (size_t i = 0; i < CALM_ACT_QUANTILES; i++)
        check(name, calm_json_get(answer, "histogram_quantiles"), quantiles[i], s.quantile[i], QUANTILE_RELATIVE);
    ck_assert_uint_eq(ratios->n_elements, acc->n_tokens);
    for (size_t t = 0; t < acc->n_tokens; t++)
        ck_near(acc->ratio[t], number_at(ratios, t), RATIO_RELATIVE * number_at(ratios, t));
}

/* Accumulates each window of `rows` tokens separately and merges the windows in order. */
static void accumulate(const float *x, size_t n, size_t d, size_t rows, calm_actstat_acc *out)
{
    ck_ok(calm_actstat_init(ctx, ctx->out, d, n, out));
    for (size_t first = 0; first < n; first += rows) {
        calm_actstat_acc part;
        size_t count = n - first < rows ? n - first : rows;
        ck_ok(calm_actstat_init(ctx, ctx->out, d, count, &part));
        ck_ok(calm_actstat_add(ctx, &part, x + first * d, count, (uint32_t)(first / rows), 0));
        ck_ok(calm_actstat_merge(ctx, out, &part));
    }
}

/* Checks a file of activation statistics, recognised by "tensors" in its JSON; returns the number of tensors. */
static size_t check_file(const char *stem)
{
    calm_json *answers;
    calm_safetensors *set;
    ck_ok(calm_json_read(ctx, test_format("%s.json", stem), 16 << 20, &answers));
    if (!calm_json_get(answers, "tensors")) {
        calm_json_free(answers);
        return 0;
    }
    ck_ok(calm_safetensors_open(ctx, test_format("%s.safetensors", stem), &set));
    const calm_json *tensors = calm_json_get(answers, "tensors"), *answer;
    void *iter = NULL;
    const char *name;
    size_t n_cases = 0;
    while (calm_json_next(tensors, &iter, &name, &answer)) {
        const calm_tensor *tensor = find(set, name, "x");
        size_t n = tensor->shape[0], d = tensor->shape[1], windows[] = {n, 7};
        float *x;
        ck_ok(CALM_NEW(ctx, ctx->out, x, tensor->n_elements));
        ck_ok(calm_tensor_to_f32(ctx, tensor, x));
        for (int i = 0; i < 2; i++) {
            calm_actstat_acc acc;
            accumulate(x, n, d, windows[i], &acc);
            check_histogram(name, set, &acc);
            check_top(name, set, &acc, windows[i]);
            check_summary(name, set, answer, &acc);
        }
        n_cases++;
    }
    calm_safetensors_close(set);
    calm_json_free(answers);
    return n_cases;
}

TEST(every_activation_tensor)
{
    const char *root = fixtures_root();
    size_t n_cases = 0;
    if (!root)
        return;
    for (char **file = fixture_entries("numerics", ".json"); *file; file++)
        n_cases += check_file(test_format("%s/numerics/%.*s", root, (int)(strlen(*file) - strlen(".json")), *file));
    printf("activations: %zu tensors\n", n_cases);
    ck_assert_msg(n_cases > 0, "no numerics file has activation statistics");
}
END_OF_TEST

int main(void)
{
    return run_tests("activation_fixtures", (const TTest *[]){every_activation_tensor, NULL});
}
