/* cd against the sum over all other columns at every step, from codes rounded one by one.  The weights are random, so
 * no value is within 1e-9 of a rounding tie and codes must be equal. */
#include "tests/support/slow_parts.h"

/* O crosses a chunk of 128 rows and a tile of 32, I a block of 128 columns. */
static void check_cd(const char *scheme, const char *grid, int sweeps)
{
    slow_problem p;
    slow_problem_new(&p, 131, 150, 500, scheme);
    calm_qjob qjob = slow_run(&p, test_format("%s+cd(sweeps=%d)", grid, sweeps));
    calm_qjob nearest = slow_run(&p, test_format("%s+nearest", grid));
    double *h = slow_damped(&p), *q = slow_doubles(p.out * p.in);
    ck_assert_mem_eq(qjob.scales, nearest.scales, qjob.out * qjob.n_groups * sizeof *qjob.scales);
    for (size_t r = 0; r < p.out; r++) {
        const float *w = p.w + r * p.in, *scale = qjob.scales + r * qjob.n_groups;
        double *row = q + r * p.in;
        for (size_t j = 0; j < p.in; j++)
            row[j] = slow_rounded(&qjob.scheme, w[j] / (double)scale[j / qjob.group],
                                  slow_zero(&qjob, r, j / qjob.group));
        double before = slow_loss(h, w, row, scale, p.in, qjob.group);
        for (int sweep = 0; sweep < sweeps; sweep++)
            slow_sweep(&qjob, r, h, w, row, scale);
        ck_assert(slow_loss(h, w, row, scale, p.in, qjob.group) < before);
    }
    slow_check_codes(&qjob, q);
}

TEST(one_sweep)
{
    check_cd("w4a16_g32", "absmax", 1);
    check_cd("w3a16_g48_asym", "mse", 1);
    check_cd("w2a16", "hls(signed=true)", 1);
    check_cd("w8a16_g64", "absmax", 1);
}
END_OF_TEST

TEST(several_sweeps)
{
    check_cd("w4a16_g32", "hls", 3);
    check_cd("w3a16_asym", "absmax", 7);
}
END_OF_TEST

int main(void)
{
    return run_tests("round_cd", (const TTest *[]){one_sweep, several_sweeps, NULL});
}
