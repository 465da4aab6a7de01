/* Every CKA case of the numerics files, discovered: similarities in the general form and, for matrices of one width,
 * the losses of calm_score.
 *
 * The stored values are exact for the stored inputs (fixtures/README.md).  Tolerances from there: 1e-10 absolute for
 * the similarity; relative 1e-5 for 1 - CKA >= 1e-8.  Below 1e-8 (a scaled copy) 1e-13: no more than double can mean.
 * The debiased form subtracts terms of the size of the biased one, so it may lose the ratio of the two in digits;
 * with a massive row that is some 1e4, hence 1e-9 absolute, and relative 1e-5 of 1 - CKA as for the biased one. */
#include "tests/support/harness.h"

#include <stdio.h>

#include "cka/cka.h"
#include "ptq/io/json.h"
#include "ptq/io/safetensors.h"

#define SIMILARITY_TOLERANCE 1e-10
#define DEBIASED_TOLERANCE 1e-9
#define LOSS_RELATIVE 1e-5
#define LOSS_SMALLEST 1e-8
#define LOSS_ABSOLUTE 1e-13

/* A matrix of a case, in both precisions; `single` is what was stored when dtype is F32. */
typedef struct matrix {
    size_t n, d;
    bool is_single;
    double *values;
    float *single;
} matrix;

static matrix read_matrix(const calm_safetensors *set, const char *name, const char *which)
{
    matrix m = {0};
    const calm_tensor *tensor = calm_safetensors_find(set, test_format("%s.%s", name, which));
    ck_assert_msg(tensor != NULL && tensor->n_dims == 2, "cka.safetensors lacks %s.%s", name, which);
    m.n = tensor->shape[0];
    m.d = tensor->shape[1];
    m.is_single = tensor->dtype == CALM_F32;
    ck_ok(CALM_NEW(ctx, ctx->out, m.values, tensor->n_elements));
    ck_ok(CALM_NEW(ctx, ctx->out, m.single, tensor->n_elements));
    if (!m.is_single) {
        ck_assert_uint_eq(tensor->bytes, tensor->n_elements * sizeof(double));
        memcpy(m.values, tensor->data, tensor->bytes);
        return m;
    }
    ck_ok(calm_tensor_to_f32(ctx, tensor, m.single));
    for (size_t i = 0; i < tensor->n_elements; i++)
        m.values[i] = m.single[i];
    return m;
}

static double member(const calm_json *answer, const char *key)
{
    const calm_json *value = calm_json_get(answer, key);
    ck_assert_msg(value != NULL, "no %s", key);
    return calm_json_number(value, NAN);
}

/* NaN is a value that the fixture leaves open (null: the debiased form has no square root). */
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
    ck_ok(calm_score_prepare(ctx, y->single, y->n, y->d, &ref));
    ck_ok(calm_score(ctx, ref, z->single, &scores));
    check(name, "1 - cka", scores.value[CALM_METRIC_CKA], cka, loss_tolerance(cka));
    check(name, "1 - debiased cka", scores.value[CALM_METRIC_CKA_DEBIASED], debiased, loss_tolerance(debiased));
}

/* The members of a file that are CKA cases: they have an answer, and the file beside it their matrices.  `n_losses`
 * counts those that have losses as well. */
static size_t check_file(const char *stem, size_t *n_losses)
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
        matrix x = read_matrix(set, name, "X"), y = read_matrix(set, name, "Y");
        double cka, debiased;
        ck_assert_uint_eq(x.n, y.n);
        ck_ok(calm_cka_general(ctx, x.values, x.d, y.values, y.d, x.n, &cka, &debiased));
        check(name, "cka", cka, member(answer, "cka"), SIMILARITY_TOLERANCE);
        check(name, "debiased cka", debiased, member(answer, "cka_debiased"), DEBIASED_TOLERANCE);
        if (x.is_single && y.is_single && x.d == y.d) {
            check_losses(name, answer, &x, &y);
            ++*n_losses;
        }
        calm_safetensors_close(set);
        n_cases++;
    }
    calm_json_free(answers);
    return n_cases;
}

TEST(every_cka_case)
{
    const char *root = fixtures_root();
    size_t n_cases = 0, n_losses = 0;
    if (!root)
        return;
    for (char **file = fixture_entries("numerics", ".json"); *file; file++)
        n_cases += check_file(test_format("%s/numerics/%.*s", root, (int)(strlen(*file) - strlen(".json")), *file),
                              &n_losses);
    printf("CKA: %zu cases, the losses of %zu\n", n_cases, n_losses);
    ck_assert_msg(n_cases > 0, "no numerics file has a CKA case");
    ck_assert_msg(n_losses > 0, "no CKA case has two matrices of one width");
}
END_OF_TEST

int main(void)
{
    return run_tests("cka_fixtures", (const TTest *[]){every_cka_case, NULL});
}
