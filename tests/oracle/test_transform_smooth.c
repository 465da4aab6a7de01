/* The transform `smooth` against its definition: s from the maxima, and the rules of channel_scale.c. */
#include "tests/support/slow_parts.h"

static void new_problem(slow_problem *p, size_t out, size_t in)
{
    slow_problem_new(p, out, in, 100, "w4a16_g32");
    p->job.can_absorb = true;
}

/* Returns the input scale of `chain`, which must have one. */
static const float *scale_of(const slow_problem *p, const char *chain)
{
    const calm_qjob qjob = slow_run(p, chain);
    ck_assert_ptr_nonnull(qjob.in_scale);
    return qjob.in_scale;
}

/* Divides the inputs and multiplies the weights by s. */
static void apply_scale(slow_problem *p, const float *s)
{
    for (size_t i = 0; i < p->out * p->in; i++)
        p->w[i] *= s[i % p->in];
    for (size_t i = 0; i < p->rows * p->in; i++)
        p->x[i] /= s[i % p->in];
    slow_problem_measure(p);
}

/* After another transform the input is the one that the transform leaves: quotients and products of float32, which are
 * rounded alike here. */
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
                ck_assert_float_eq(both[j], before[j] * after[j]);
        }
}
END_OF_TEST

/* With alpha 1/2 the maxima of input and weights become equal in every channel, so a second smoothing changes nothing
 * but units: two by s in either maximum and two by their rounding, of which a root is half; as many by the mean of all;
 * one by the second s, and one by the product. */
TEST(twice_is_once)
{
    slow_problem p;
    new_problem(&p, 5, 64);
    const float *once = scale_of(&p, "smooth+absmax+nearest"), *twice = scale_of(&p, "smooth+smooth+absmax+nearest");
    for (size_t j = 0; j < p.in; j++)
        ck_near(twice[j], once[j], (2 + 2 + 1 + 1) * SLOW_SCALE_ERROR * once[j]);
}
END_OF_TEST

/* Computes s by the definition: from maxima shared within absorb groups, divided by the factor that makes the
 * product of all 1; both steps leave out dead channels. */
static void slow_scale(const slow_problem *p, double alpha, double *s)
{
    double *raw = slow_doubles(p->in);
    for (size_t j = 0; j < p->in; j++) {
        double most = 0;
        for (size_t i = 0; i < p->out; i++)
            most = fmax(most, fabs((double)p->w[i * p->in + j]));
        if (p->stats.absmax[j] > 0 && most > 0)
            raw[j] = fmax(pow(p->stats.absmax[j], alpha) / pow(fmax(most, 1e-5), 1 - alpha), 1e-5);
    }
    slow_channel_scales(p, raw, s);
}

static void check_smooth(const slow_problem *p, double alpha)
{
    double *expected = slow_doubles(p->in);
    const float *found = scale_of(p, test_format("smooth(alpha=%.17g)+absmax+nearest", alpha));
    slow_scale(p, alpha, expected);
    for (size_t j = 0; j < p->in; j++)
        ck_near(found[j], expected[j], SLOW_SCALE_ERROR * expected[j]);
}

/* A channel without input and one without weights, without groups and with: in a group that is alive and in a dead
 * group.  Dead channels do not change the scales of the others. */
TEST(live_channels_decide)
{
    slow_problem p;
    uint32_t share[70];
    new_problem(&p, 20, 70);
    check_smooth(&p, 0.5);
    check_smooth(&p, 0.8);
    for (size_t t = 0; t < p.rows; t++)
        p.x[t * p.in + 7] = p.x[t * p.in + 19] = p.x[t * p.in + 39] = p.x[t * p.in + 59] = 0;
    for (size_t i = 0; i < p.out; i++)
        p.w[i * p.in + 30] = 0;
    slow_problem_measure(&p);
    check_smooth(&p, 0.5);
    check_smooth(&p, 1);
    for (size_t j = 0; j < p.in; j++)
        share[j] = (uint32_t)(j % 20);
    p.job.absorb_group = share;
    p.job.n_absorb_groups = 20;
    check_smooth(&p, 0.5);
    check_smooth(&p, 0.3);
    ck_assert(scale_of(&p, "smooth+absmax+nearest")[19] == 1);
}
END_OF_TEST

int main(void)
{
    return run_tests("transform_smooth",
                     (const TTest *[]){after_another_transform, twice_is_once, live_channels_decide, NULL});
}
