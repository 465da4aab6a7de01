/* smooth by its definition: s from maxima, then what channel_scale.c makes of it.
 *
 * The chain stores s as float32 and its own exp, log and pow may be off by a unit or two: 1e-6 relative. */
#include "tests/support/slow_parts.h"

static void new_problem(slow_problem *p, size_t out, size_t in)
{
    slow_problem_new(p, out, in, 100, "w4a16_g32");
    p->job.can_absorb = true;
}

/* The input scale that `chain` finds; NULL fails. */
static const float *scale_of(const slow_problem *p, const char *chain)
{
    const calm_qjob qjob = slow_run(p, chain);
    ck_assert_ptr_nonnull(qjob.in_scale);
    return qjob.in_scale;
}

/* The input divided, the weights multiplied by s. */
static void apply_scale(slow_problem *p, const float *s)
{
    for (size_t i = 0; i < p->out * p->in; i++)
        p->w[i] *= s[i % p->in];
    for (size_t i = 0; i < p->rows * p->in; i++)
        p->x[i] /= s[i % p->in];
    slow_problem_measure(p);
}

/* After another transform the input is the one that it has left. */
TEST(after_another_transform)
{
    static const char *const first[] = {"awq", "smooth(alpha=0.3)", "smooth(alpha=1)"};
    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
        for (size_t in = 60; in < 70; in++) {
            slow_problem p;
            new_problem(&p, 5, in);
            const float *both = scale_of(&p, test_format("%s+smooth(alpha=0.7)+absmax+nearest", first[i]));
            const float *before = scale_of(&p, test_format("%s+absmax+nearest", first[i]));
            apply_scale(&p, before);
            const float *after = scale_of(&p, "smooth(alpha=0.7)+absmax+nearest");
            for (size_t j = 0; j < in; j++)
                ck_near(both[j], before[j] * after[j], 2e-6 * both[j]);
        }
}
END_OF_TEST

/* At alpha 1/2 maxima of input and weights are equal in every channel afterwards: nothing is left to smooth. */
TEST(twice_is_once)
{
    slow_problem p;
    new_problem(&p, 5, 64);
    const float *once = scale_of(&p, "smooth+absmax+nearest"), *twice = scale_of(&p, "smooth+smooth+absmax+nearest");
    for (size_t j = 0; j < p.in; j++)
        ck_near(twice[j], once[j], 2e-6 * once[j]);
}
END_OF_TEST

int main(void)
{
    return run_tests("transform_smooth", (const TTest *[]){after_another_transform, twice_is_once, NULL});
}
