/* The choice of OpenBLAS kernels, for every CPU, every choice of OpenBLAS and every wish of the user. */
#include "ptq/tensor/blas_family.h"

#include <stdlib.h>

#include "ptq/tensor/linalg.h"
#include "tests/support/harness.h"

#define N(array) (sizeof(array) / sizeof *(array))

/* CPUs, from old to new. */
#define PENRYN 0u
#define NEHALEM CALM_CPU_SSE42
#define SANDYBRIDGE (NEHALEM | CALM_CPU_AVX)
#define BULLDOZER (SANDYBRIDGE | CALM_CPU_AMD | CALM_CPU_FMA4)
#define PILEDRIVER (BULLDOZER | CALM_CPU_FMA)
#define EXCAVATOR (PILEDRIVER | CALM_CPU_AVX2)
#define HASWELL (SANDYBRIDGE | CALM_CPU_FMA | CALM_CPU_AVX2)
#define ZEN (HASWELL | CALM_CPU_AMD)
#define SKYLAKEX (HASWELL | CALM_CPU_AVX512)
#define COOPERLAKE (SKYLAKEX | CALM_CPU_AVX512_BF16)
#define ZEN4 (COOPERLAKE | CALM_CPU_AMD)

TEST(the_choice)
{
    static const struct {
        unsigned features;
        const char *loaded, *wish, *variable, *expected;
    } rows[] = {
        /* OpenBLAS does not know the CPU: the best family that the CPU runs. */
        {COOPERLAKE, "Prescott", NULL, NULL, "SkylakeX"},
        {SKYLAKEX, "Prescott", NULL, NULL, "SkylakeX"},
        {ZEN4, "Prescott", NULL, NULL, "SkylakeX"},
        {HASWELL, "Prescott", NULL, NULL, "Haswell"},
        {ZEN, "Prescott", NULL, NULL, "Zen"},
        {SANDYBRIDGE, "Prescott", NULL, NULL, "Sandybridge"},
        {NEHALEM, "Prescott", NULL, NULL, "Nehalem"},
        {PENRYN, "Prescott", NULL, NULL, "Prescott"},
        /* OpenBLAS chose an older relative of the CPU. */
        {SKYLAKEX, "Haswell", NULL, NULL, "SkylakeX"},
        {ZEN4, "Zen", NULL, NULL, "SkylakeX"},
        {HASWELL, "Sandybridge", NULL, NULL, "Haswell"},
        {HASWELL, "Nehalem", NULL, NULL, "Haswell"},
        {ZEN, "Barcelona", NULL, NULL, "Zen"},
        {ZEN, "Bulldozer", NULL, NULL, "Zen"},
        {SANDYBRIDGE, "Core2", NULL, NULL, "Sandybridge"},
        {NEHALEM, "Atom", NULL, NULL, "Nehalem"},
        /* OpenBLAS' choice is as good. */
        {SKYLAKEX, "SkylakeX", NULL, NULL, "SkylakeX"},
        {COOPERLAKE, "Cooperlake", NULL, NULL, "Cooperlake"},
        {COOPERLAKE, "SapphireRapids", NULL, NULL, "SapphireRapids"},
        {ZEN, "Haswell", NULL, NULL, "Haswell"},
        {HASWELL, "Zen", NULL, NULL, "Zen"},
        {BULLDOZER, "Bulldozer", NULL, NULL, "Bulldozer"},
        {PILEDRIVER, "Piledriver", NULL, NULL, "Piledriver"},
        {EXCAVATOR, "Excavator", NULL, NULL, "Excavator"},
        {PENRYN, "Penryn", NULL, NULL, "Penryn"},
        {PENRYN, "Opteron_SSE3", NULL, NULL, "Opteron_SSE3"},
        /* Names in either case. */
        {HASWELL, "prescott", NULL, NULL, "Haswell"},
        {HASWELL, "HASWELL", NULL, NULL, "HASWELL"},
        /* Unknown names: another architecture, a newer OpenBLAS. */
        {0, "NEOVERSEN1", NULL, NULL, "NEOVERSEN1"},
        {ZEN4, "Zen9", NULL, NULL, "Zen9"},
        /* A wish has precedence, also for slower kernels. */
        {COOPERLAKE, "Prescott", "Haswell", NULL, "Haswell"},
        {COOPERLAKE, "SkylakeX", "Prescott", NULL, "Prescott"},
        {COOPERLAKE, "Haswell", "Nehalem", "Haswell", "Nehalem"},
        {HASWELL, "Prescott", "SkylakeX", NULL, "SkylakeX"},
        /* The environment variable is a wish that OpenBLAS has read; an empty one is not. */
        {COOPERLAKE, "Prescott", NULL, "Prescott", "Prescott"},
        {COOPERLAKE, "Haswell", NULL, "Haswell", "Haswell"},
        {COOPERLAKE, "Prescott", NULL, "Bogus", "Prescott"},
        {COOPERLAKE, "Prescott", NULL, "", "SkylakeX"},
    };
    for (size_t i = 0; i < N(rows); i++) {
        const char *found = calm_blas_choose(rows[i].features, rows[i].loaded, rows[i].wish, rows[i].variable);
        ck_assert_msg(strcmp(found, rows[i].expected) == 0, "row %zu (%s loaded): %s, expected %s", i, rows[i].loaded,
                      found, rows[i].expected);
    }
}
END_OF_TEST

/* The chosen family needs no second choice: with the variable set to it, no other is wanted. */
TEST(a_choice_is_final)
{
    static const unsigned cpus[] = {PENRYN,    NEHALEM, SANDYBRIDGE, BULLDOZER, PILEDRIVER, EXCAVATOR,
                                    HASWELL, ZEN,     SKYLAKEX,    COOPERLAKE, ZEN4};
    static const char *const names[] = {"Prescott", "Core2", "Nehalem", "Sandybridge", "Haswell", "Zen", "SkylakeX"};
    for (size_t c = 0; c < N(cpus); c++)
        for (size_t i = 0; i < N(names); i++) {
            const char *chosen = calm_blas_choose(cpus[c], names[i], NULL, NULL);
            ck_assert_msg(calm_blas_runs(cpus[c], chosen) || strcmp(chosen, names[i]) == 0, "cpu %zu: %s", c, chosen);
            ck_assert_str_eq(calm_blas_choose(cpus[c], chosen, NULL, chosen), chosen);
            ck_assert_str_eq(calm_blas_choose(cpus[c], chosen, NULL, NULL), chosen);
            /* Also if OpenBLAS does not know the name and keeps its choice. */
            ck_assert_str_eq(calm_blas_choose(cpus[c], names[i], NULL, chosen), names[i]);
        }
}
END_OF_TEST

TEST(what_a_cpu_runs)
{
    static const struct {
        unsigned features;
        const char *name;
        bool runs;
    } rows[] = {
        {PENRYN, "Prescott", true},      {PENRYN, "Nehalem", false},      {NEHALEM, "nehalem", true},
        {NEHALEM, "Sandybridge", false}, {SANDYBRIDGE, "Haswell", false}, {SANDYBRIDGE, "Bulldozer", false},
        {BULLDOZER, "Bulldozer", true},  {BULLDOZER, "Piledriver", false}, {PILEDRIVER, "Haswell", false},
        {HASWELL, "Bulldozer", false},   {HASWELL, "Zen", true},          {HASWELL, "SKYLAKEX", false},
        {SKYLAKEX, "SkylakeX", true},    {SKYLAKEX, "Cooperlake", false}, {ZEN4, "Cooperlake", true},
        {PENRYN, "Bogus", true},
    };
    for (size_t i = 0; i < N(rows); i++)
        ck_assert_msg(calm_blas_runs(rows[i].features, rows[i].name) == rows[i].runs, "row %zu: %s", i, rows[i].name);
}
END_OF_TEST

TEST(columns_of_a_product)
{
    ck_assert(calm_blas_any_columns("SkylakeX") && calm_blas_any_columns("cooperlake"));
    ck_assert(!calm_blas_any_columns("Haswell") && !calm_blas_any_columns("Zen"));
    ck_assert(!calm_blas_any_columns("Bogus"));
}
END_OF_TEST

/* The loaded kernels run on this machine, and a wish is returned. */
TEST(this_machine)
{
    const char *loaded = calm_linalg_kernels();
    ck_assert(calm_blas_runs(calm_cpu_features(), calm_linalg_wanted(NULL)));
    ck_assert_str_eq(calm_linalg_wanted("Nehalem"), "Nehalem");
    ck_assert_int_eq(setenv(CALM_BLAS_VARIABLE, loaded, 1), 0);
    ck_assert_str_eq(calm_linalg_wanted(NULL), loaded);
}
END_OF_TEST

int main(void)
{
    return run_tests("blas_family",
                     (const TTest *[]){the_choice, a_choice_is_final, what_a_cpu_runs, columns_of_a_product,
                                       this_machine, NULL});
}
