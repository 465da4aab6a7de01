/* The losses of calm_score() for every CKA case of the numerics fixtures.  Two matrices of different widths are padded
 * with columns of zeros, which change no inner product of rows and therefore no CKA.
 *
 * The stored losses are exact for the stored inputs (fixtures/README.md), and the tolerances follow from there: 1e-5
 * relative for 1 - CKA >= 1e-8; below (a scaled copy) 1e-13 absolute, the resolution of double.  A case stored in
 * double is rounded to float: with 10 columns K = X X^T moves by at most 2 sqrt(10) 2^-24 of its norm, a cosine of
 * two such matrices by 8e-7, and the debiased cosine, whose norms are within a factor of 1.1 of the biased ones', by
 * 1e-6: less than 1e-5 of a loss of 0.4. */
#include "tests/support/harness.h"

#include <stdio.h>

#include "cka/cka.h"
#include "ptq/io/json.h"
#include "ptq/io/safetensors.h"

#define LOSS_RELATIVE 1e-5
#define LOSS_SMALLEST 1e-8
#define LOSS_ABSOLUTE 1e-13

typedef struct matrix {
    size_t n, d;
    float *values;
} matrix;

/* Reads a matrix and pads it with columns of zeros to `width`; width 0 leaves it as stored. */
static matrix read_matrix(const calm_safetensors *set, const char *name, const char *which, size_t width)
{
    const calm_tensor *tensor = calm_safetensors_find(set, test_format("%s.%s", name, which));
    ck_assert_msg(tensor != NULL && tensor->n_dims == 2, "cka.safetensors lacks %s.%s", name, which);
    const size_t stored = tensor->shape[1];
    matrix m = {tensor->shape[0], width ? width : stored, NULL};
    float *values;
    ck_ok(CALM_NEW(ctx, ctx->out, values, tensor->n_elements));
    ck_ok(CALM_NEW(ctx, ctx->out, m.values, m.n * m.d));
    ck_ok(calm_tensor_to_f32(ctx, tensor, values));
    for (size_t i = 0; i < tensor->n_elements; i++)
        m.values[i / stored * m.d + i % stored] = values[i];
    return m;
}

static double member(const calm_json *answer, const char *key)
{
    const calm_json *value = calm_json_get(answer, key);
    ck_assert_msg(value != NULL, "no %s", key);
    return calm_json_number(value, NAN);
}

/* Compares a value.  NaN means that the fixture leaves it open (null: the debiased form has no square root). */
static void check(const char *name, const char *what, double found, double expected, double tolerance)
{
    ck_assert_msg(isnan(expected) || fabs(found - expected) <= tolerance, "%s: %s is %.17g, expected %.17g within %g",
                  name, what, found, expected, tolerance);
}

static double loss_tolerance(double loss)
{
    return loss >= LOSS_SMALLEST ? LOSS_RELATIVE * loss : LOSS_ABSOLUTE;
}

static void check_losses(const char *name, const calm_json *answer, const matrix *y, const matrix *z)
{
    calm_score_ref *ref;
    calm_scores scores;
    double cka = member(answer, "one_minus_cka"), debiased = member(answer, "one_minus_cka_debiased");
    ck_ok(calm_score_prepare(ctx, y->values, y->n, y->d, &ref));
    ck_ok(calm_score(ctx, ref, z->values, &scores));
    check(name, "1 - cka", scores.value[CALM_METRIC_CKA], cka, loss_tolerance(cka));
    check(name, "1 - debiased cka", scores.value[CALM_METRIC_CKA_DEBIASED], debiased, loss_tolerance(debiased));
}

/* Checks the CKA cases of a file, recognised by their "cka"; their matrices are in the .safetensors file of the same
 * name. */
static size_t check_file(const char *stem)
{
    calm_json *answers;
    calm_safetensors *set;
    ck_ok(calm_json_read(ctx, test_format("%s.json", stem), 16 << 20, &answers));
    void *iter = NULL;
    const char *name;
    const calm_json *answer;
    size_t n_cases = 0;
    while (calm_json_next(answers, &iter, &name, &answer)) {
        if (!calm_json_get(answer, "cka"))
            continue;
        ck_ok(calm_safetensors_open(ctx, test_format("%s.safetensors", stem), &set));
        const size_t width = calm_size_max(read_matrix(set, name, "X", 0).d, read_matrix(set, name, "Y", 0).d);
        matrix x = read_matrix(set, name, "X", width), y = read_matrix(set, name, "Y", width);
        ck_assert_uint_eq(x.n, y.n);
        check_losses(name, answer, &x, &y);
        calm_safetensors_close(set);
        n_cases++;
    }
    calm_json_free(answers);
    return n_cases;
}

TEST(every_cka_case)
{
    const char *root = fixtures_root();
    size_t n_cases = 0;
    if (!root)
        return;
    for (char **file = fixture_entries("numerics", ".json"); *file; file++)
        n_cases += check_file(test_format("%s/numerics/%.*s", root, (int)(strlen(*file) - strlen(".json")), *file));
    printf("CKA: %zu cases\n", n_cases);
    ck_assert_msg(n_cases > 0, "no numerics file has a CKA case");
}
END_OF_TEST

int main(void)
{
    return run_tests("cka_fixtures", (const TTest *[]){every_cka_case, NULL});
}
