/* calm rounds no row of schemes.def worse than the tool that made the format, in the weighted sum of squared errors
 * that the tool minimises.  The tools weight each weight, calm's grids weight columns; so each row of weights is a
 * separate job, and the power of its inputs equals the tool's weights. */
#include "algorithms/part.h"
#include "ptq/quant/qjob.h"
#include "tests/conformance/sample_job.h"
#include "tests/support/naive_rounding.h"

#define IN ((size_t)256)
#define N_ROWS ((size_t)16)

/* Schemes whose names spell out bits, group and zero points: those of compressed-tensors and, with float16 scales,
 * GGUF's. */
static const char *const whole_numbers[] = {
    "w2a16_g64",      "w3a16_g128",     "w4a16_g32",      "w4a16_g128_asym", "w8a16",
    "w2a16_g64_asym", "w3a16_g32_asym", "w4a16_g32_f16s", "w8a16_g32_f16s",
};
#define N_WHOLE (sizeof whole_numbers / sizeof *whole_numbers)

/* Returns sum weight (w - w^)^2 of a row. */
static double error_of(const float *w, const float *rounded, const float *weight)
{
    double sum = 0;
    for (size_t i = 0; i < IN; i++) {
        const double e = (double)w[i] - (double)rounded[i];
        sum += (double)weight[i] * e * e;
    }
    return sum;
}

/* Runs a chain on the job, and returns its grid and its weights in `mine` [IN]. */
static calm_qjob run(const char *chain, const sample *s, float *mine)
{
    calm_algorithm *algorithm;
    calm_qjob q;
    ck_ok(calm_algorithm_parse(ctx, chain, &algorithm));
    ck_ok(calm_algorithm_run(ctx, algorithm, &s->job, &q));
    calm_qjob_dequantize(&q, mine);
    return q;
}

static double error_under(const char *chain, const sample *s, const float *weight)
{
    float mine[IN];
    run(chain, s, mine);
    return error_of(s->w[0], mine, weight);
}

/* Returns how much error_of() may change between two programs that use the same codes.  A value code * scale + minimum
 * takes at most four float32 roundings (a scale of two factors, the product, the sum), each of 2^-24 of numbers up to
 * twice the largest value m of the row: d = 2^-21 m.  An error e becomes e + d at most: 2 |e| d + d^2 per weight. */
static double slack_of(const float *w, const float *rounded, const float *weight)
{
    double largest = 0, sum = 0;
    for (size_t i = 0; i < IN; i++)
        largest = fmax(largest, fabs((double)rounded[i]));
    const double d = 0x1p-21 * largest;
    for (size_t i = 0; i < IN; i++)
        sum += (double)weight[i] * (2 * fabs((double)w[i] - (double)rounded[i]) * d + d * d);
    return sum;
}

/* calm does not use the code -128: rounds values below -127 steps of rtn's scale to -127 steps. */
static void without_lowest(const sample *s, float *rounded)
{
    float mine[IN];
    const calm_qjob q = run("rtn", s, mine);
    ck_assert_uint_eq(q.n_groups, 1);
    for (size_t i = 0; i < IN; i++)
        rounded[i] = fmaxf(rounded[i], -127 * q.scales[0]);
}

/* Compares sums over rows; groups of 16 weights have different magnitudes, as in models.  rtn is the tool's rounding if
 * the tool does not search: it has the same codes, and the sums differ by float32 roundings alone. */
static void check_scheme(const char *name, bool gguf)
{
    sample s;
    const char *tool = NULL;
    double naive = 0, searched = 0, plain = 0, of_plain = 0, slack = 0;
    make_sample(&s, 3, IN, 1, name);
    s.job.n_linears = s.linears[0].out = 1;
    for (size_t row = 0; row < N_ROWS; row++) {
        float rounded[IN], weight[IN];
        for (size_t i = 0; i < IN; i++)
            s.w[0][i] = (float)(0.05 * calm_rng_normal(11, row, i) * exp(0.5 * calm_rng_normal(12, row, i / 16)));
        tool = naive_round(&s.job.scheme, gguf, s.w[0], 1, IN, rounded, weight);
        for (size_t i = 0; i < IN; i++)
            s.gram[i * IN + i] = (double)weight[i];
        naive += error_of(s.w[0], rounded, weight);
        searched += error_under("hls(signed=true)+nearest", &s, weight);
        plain += error_under("rtn", &s, weight);
        if (s.job.scheme.bits == 8 && s.job.scheme.symmetric && !s.job.scheme.family && *tool != 'l')
            without_lowest(&s, rounded);
        of_plain += error_of(s.w[0], rounded, weight);
        slack += slack_of(s.w[0], rounded, weight);
    }
    ck_assert_msg(naive > 0 && searched <= naive, "%s: %g, %s %g", name, searched, tool, naive);
    ck_assert_msg(*tool == 'l' || fabs(plain - of_plain) <= slack, "%s: rtn %.9g, %s %.9g, slack %g", name, plain, tool,
                  of_plain, slack);
}

TEST(no_row_is_worse_than_its_tool)
{
    for (size_t i = 0; i < N_WHOLE; i++)
        check_scheme(whole_numbers[i], false);
    for (int family = 1; family < CALM_N_FAMILIES; family++)
        check_scheme(test_format("%s%s", calm_families[family].name, calm_families[family].act_bits ? "a16" : ""),
                     false);
    check_scheme("mxfp4a16", true);
}
END_OF_TEST

/* MLX: the chain rtn-mlx has the stored scales and minima of mlx-lm, which lose less than rtn's at 2 and 3 bits.  Its
 * codes are the nearest ones on the stored grid, MLX's are those of the scale before it is stored, so that calm's error
 * is not larger beyond float32 roundings. */
TEST(mlx_affine)
{
    static const char *const schemes[] = {"w2a16_g32_asym", "w3a16_g32_asym", "w4a16_g64_asym", "w8a16_g128_asym"};
    for (size_t k = 0; k < 4; k++) {
        sample s;
        double naive = 0, mine = 0, plain = 0, slack = 0;
        make_sample(&s, 3, IN, 1, schemes[k]);
        s.job.n_linears = s.linears[0].out = 1;
        for (size_t row = 0; row < N_ROWS; row++) {
            float rounded[IN], ones[IN];
            for (size_t i = 0; i < IN; i++) {
                s.w[0][i] = (float)(0.05 * calm_rng_normal(11, row, i) * exp(0.5 * calm_rng_normal(12, row, i / 16)));
                ones[i] = 1;
            }
            for (size_t i = 0; i < IN; i += s.job.scheme.group)
                naive_round_mlx(s.job.scheme.bits, s.w[0] + i, s.job.scheme.group, rounded + i);
            naive += error_of(s.w[0], rounded, ones);
            slack += slack_of(s.w[0], rounded, ones);
            mine += error_under("rtn-mlx", &s, ones);
            plain += error_under("rtn", &s, ones);
        }
        ck_assert_msg(naive > 0 && mine <= naive + slack, "%s: %g, mlx %g", schemes[k], mine, naive);
        ck_assert_msg(k > 1 || mine < plain, "%s: %g, rtn %g", schemes[k], mine, plain);
    }
}
END_OF_TEST

/* Weights -3, ..., 4 at 2 bits: the end of larger magnitude and 0 are levels.  By hand: the step 7 / 3 becomes 4 / 2
 * = 2. */
TEST(end_is_a_level)
{
    sample s;
    float rounded[IN], mine[IN];
    calm_algorithm *algorithm;
    calm_qjob q;
    make_sample(&s, 3, IN, 1, "w2a16_g32_asym");
    s.job.n_linears = s.linears[0].out = 1;
    ck_ok(calm_algorithm_parse(ctx, "rtn-mlx", &algorithm));
    for (int sign = -1; sign <= 1; sign += 2) {
        for (size_t i = 0; i < IN; i++)
            s.w[0][i] = (float)sign * ((float)(i % 8) - 3);
        ck_ok(calm_algorithm_run(ctx, algorithm, &s.job, &q));
        calm_qjob_dequantize(&q, mine);
        naive_round_mlx(2, s.w[0], 32, rounded);
        ck_assert_float_eq(mine[7], (float)sign * 4);
        ck_assert_float_eq(rounded[7], (float)sign * 4);
        ck_assert(mine[3] == 0 && fabsf(mine[0]) == 2 && q.scales[0] == 2);
    }
}
END_OF_TEST

/* Computed by hand: Q4_0, Q8_0 and MXFP4 of llama.cpp, and Q4_1 by its minimum and maximum, of 0, 1, ..., 31.  Float16
 * has 11 bits, so 31 / 127 is stored as 2000 / 8192 and 31 / 15 as 1058 / 512; a code times such a scale is exact. */
TEST(naive_rules)
{
    static const struct {
        const char *scheme;
        bool gguf;
        float first, last, step;    /* results for 1 and 31; distance of levels */
    } cases[] = {{"w4a16_g32_f16s", true, 0, 31, 3.875f},
                 {"w8a16_g32_f16s", true, 4 * 0.244140625f, 127 * 0.244140625f, 0.244140625f},
                 {"mxfp4a16", true, 0, 24, 2},
                 {"mxfp4a16", false, 0, 32, 4},
                 {"q4_1", true, 0, 15 * 2.06640625f, 2.06640625f}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        calm_scheme scheme;
        float w[256], out[256], weight[256];
        ck_ok(calm_scheme_parse(ctx, cases[i].scheme, &scheme));
        for (size_t j = 0; j < 256; j++)
            w[j] = (float)(j % 32);
        naive_round(&scheme, cases[i].gguf, w, 1, 256, out, weight);
        ck_assert_msg(out[1] == cases[i].first && out[31] == cases[i].last, "%s: %g %g", cases[i].scheme,
                      (double)out[1], (double)out[31]);
        for (size_t j = 0; j < 32; j++)
            ck_assert_msg(remainderf(out[j], cases[i].step) == 0, "%s: %g", cases[i].scheme, (double)out[j]);
        ck_assert(weight[7] == 1);
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("naive_rounding", (const TTest *[]){no_row_is_worse_than_its_tool, mlx_affine, end_is_a_level,
                                                         naive_rules, NULL});
}
