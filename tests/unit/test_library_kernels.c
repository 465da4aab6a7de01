/* The library on a CPU that OpenBLAS does not know: one warning, with the variable to set. */
#include <stdio.h>
#include <stdlib.h>

#include "calm.h"
#include "ptq/tensor/blas_family.h"
#include "tests/support/harness.h"

char *__wrap_openblas_get_corename(void);

/* The kernels that OpenBLAS reports as loaded (linked with --wrap). */
static char loaded[32];

char *__wrap_openblas_get_corename(void)
{
    return loaded;
}

typedef struct said {
    size_t n;
    calm_log_level level;
    char line[512];
} said;

static void note(void *user, calm_log_level level, const char *line)
{
    said *all = user;
    all->n++;
    all->level = level;
    snprintf(all->line, sizeof all->line, "%s", line);
}

/* Returns the lines that a new context logs; the log is set twice. */
static said of_new_context(const char *kernels)
{
    said all = {0};
    calm_ctx *library;
    snprintf(loaded, sizeof loaded, "%s", kernels);
    ck_assert_int_eq(calm_start(&library), CALM_OK);
    ck_assert_int_eq(calm_set_log(library, NULL, NULL), CALM_OK);
    ck_assert_int_eq(calm_set_log(library, note, &all), CALM_OK);
    ck_assert_int_eq(calm_set_log(library, note, &all), CALM_OK);
    calm_stop(&library);
    return all;
}

TEST(slow_kernels_are_told_once)
{
    ck_assert_int_eq(unsetenv(CALM_BLAS_VARIABLE), 0);
    const char *best = calm_blas_choose(calm_cpu_features(), "Prescott", NULL, NULL);
    const said all = of_new_context("Prescott");
    ck_assert_uint_eq(all.n, strcmp(best, "Prescott") != 0);
    if (all.n) {
        ck_assert_int_eq(all.level, CALM_LOG_WARNING);
        ck_assert_ptr_nonnull(strstr(all.line, "has loaded its Prescott kernels"));
        ck_assert_ptr_nonnull(strstr(all.line, test_format("start the process with OPENBLAS_CORETYPE=%s", best)));
    }
    ck_assert_uint_eq(of_new_context("Prescott").n, 0);    /* a process has one OpenBLAS: the next context is silent */
}
END_OF_TEST

TEST(kernels_that_were_asked_for_are_fine)
{
    ck_assert_int_eq(setenv(CALM_BLAS_VARIABLE, "Prescott", 1), 0);
    ck_assert_uint_eq(of_new_context("Prescott").n, 0);
    ck_assert_int_eq(unsetenv(CALM_BLAS_VARIABLE), 0);
    ck_assert_uint_eq(of_new_context(calm_blas_choose(calm_cpu_features(), "Prescott", NULL, NULL)).n, 0);
}
END_OF_TEST

int main(void)
{
    return run_tests("library_kernels",
                     (const TTest *[]){slow_kernels_are_told_once, kernels_that_were_asked_for_are_fine, NULL});
}
