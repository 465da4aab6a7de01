/* Properties that every algorithm must have.  The tests loop over the presets of presets.def and, each in the
 * shortest chain that contains it, the parts of parts.def: a new preset or part is tested without a change here. */
#include "algorithms/part.h"
#include "ptq/base/scope.h"
#include "ptq/tensor/product.h"
#include "tests/conformance/all_chains.h"
#include "tests/conformance/sample_job.h"

/* Integer and FP8 schemes that are spelled out; list_schemes() appends the rows of schemes.def. */
static const char *const integers[] = {"w4a16_g16", "w3a16_g16_asym", "w2a16_g64", "w8a8", "w8a8_asymact",
                                       "w8a8_static", "w8a16_asym", "w4a4_g16_f16s", "w4afp8_g16", "fp8_static",
                                       "fp8_tensor_static"};
#ifdef CALM_SANITIZED
#define SANITIZED_STEP 3    /* every third scheme of a chain: all would take longer than the rest of this file */
#else
#define SANITIZED_STEP 1
#endif
#define N_INTEGERS (sizeof integers / sizeof *integers)

static char schemes[N_INTEGERS + 2 * CALM_N_FAMILIES][CALM_SCHEME_NAME_MAX];
static size_t n_schemes;

static void list_schemes(void)
{
    for (; n_schemes < N_INTEGERS; n_schemes++)
        snprintf(schemes[n_schemes], sizeof *schemes, "%s", integers[n_schemes]);
    while (name_of_row(n_schemes - N_INTEGERS, schemes[n_schemes]))
        n_schemes++;
}

/* Returns `scheme`, or a scheme with quantized activations if the chain needs those. */
static const char *within_reach(const char *chain, const char *scheme)
{
    return reaches(chain, scheme) ? scheme : "w4a4_g16";
}

/* Tells whether within_reach() replaces `scheme` as it did an earlier one; `*replaced` is false at first. */
static bool is_repeated(const char *chain, const char *scheme, bool *replaced)
{
    const bool before = *replaced, now = !reaches(chain, scheme);
    *replaced |= now;
    return before && now;
}

/* Checks that codes, scales, minima, zeros and channel scales are values that a checkpoint can store. */
static void check_result(const char *chain, const calm_qjob *q)
{
    for (size_t i = 0; i < q->out * q->in; i++)
        ck_assert_msg(q->codes[i] >= calm_code_min(&q->scheme) && q->codes[i] <= calm_code_max(&q->scheme),
                      "%s: code %u", chain, q->codes[i]);
    for (size_t i = 0; i < q->out * q->n_groups; i++) {
        float scale = q->scales[i];
        if (calm_scheme_folds(&q->scheme))
            ck_assert_msg(fabsf(scale) >= 0x1p-126f && fabsf(scale) <= 65280, "%s: scale %g", chain, scale);
        ck_assert_msg(isfinite(scale) && scale != 0, "%s: scale %g", chain, scale);
        /* Engines fuse the linears of a job and keep only the largest of their scales, so all must be equal. */
        ck_assert_msg(!calm_scheme_is_whole(&q->scheme) || scale == q->scales[0], "%s: scale %g of one for all", chain,
                      scale);
        ck_assert(!q->mins || calm_min_round(&q->scheme, q->mins[i]) == q->mins[i]);
        ck_assert(calm_scale_round(&q->scheme, q->global, scale) == scale);
        ck_assert(!q->zeros || q->zeros[i] <= calm_code_max(&q->scheme));
    }
    ck_assert(!q->zeros == q->scheme.symmetric);
    ck_assert(!q->mins == !calm_scheme_has_mins(&q->scheme));
    ck_assert(!(q->global > 0) == !(calm_scale_global(&q->scheme, 1) > 0));
    for (size_t j = 0; q->in_scale && j < q->in; j++)
        ck_assert_msg(isfinite(q->in_scale[j]) && q->in_scale[j] > 0, "%s: in_scale %g", chain, q->in_scale[j]);
}

/* Runs every chain under every scheme that it reaches, on a job that `spoil` has changed. */
static void check_all(size_t out, size_t in, size_t rows, void (*spoil)(sample *))
{
    for (const char **chain = all_chains(); *chain; chain++)
        for (size_t k = 0; k < n_schemes; k++) {
            sample s;
            calm_qjob q;
            if (!reaches(*chain, schemes[k]))
                continue;
            make_sample(&s, out, in, enough_rows(*chain, rows, in), schemes[k]);
            if (spoil)
                spoil(&s);
            ck_ok(try(*chain, &s.job, &q));
            ck_assert_uint_eq(q.out, out);
            ck_assert_uint_eq(q.in, in);
            check_result(*chain, &q);
        }
}

/* ---- shapes and hard inputs ---- */

TEST(results_are_storable) { check_all(9, 37, 60, NULL); }
END_OF_TEST

TEST(one_input) { check_all(9, 1, 20, NULL); }
END_OF_TEST

TEST(one_row_of_weights) { check_all(1, 33, 20, NULL); }
END_OF_TEST

static void zero_row_and_columns(sample *s)
{
    memset(s->w[0], 0, s->in * sizeof *s->w[0]);
    for (size_t i = 0; i < s->linears[1].out; i++)
        s->w[1][i * s->in + 3] = 0;
    for (size_t t = 0; t < s->rows; t++)
        s->x[t * s->in + 7] = 0;
    measure(s);
}

TEST(zero_row_zero_column_dead_input) { check_all(9, 37, 60, zero_row_and_columns); }
END_OF_TEST

static void all_zero(sample *s)
{
    for (size_t l = 0; l < 2; l++)
        memset(s->w[l], 0, s->linears[l].out * s->in * sizeof *s->w[l]);
}

TEST(zero_weights_stay_zero)
{
    for (const char **chain = all_chains(); *chain; chain++)
        for (size_t k = 0; k < n_schemes; k++) {
            sample s;
            calm_qjob q;
            float *w;
            if (!reaches(*chain, schemes[k]))
                continue;
            make_sample(&s, 6, 20, enough_rows(*chain, 30, 20), schemes[k]);
            all_zero(&s);
            ck_ok(try(*chain, &s.job, &q));
            check_result(*chain, &q);
            ck_ok(CALM_NEW(ctx, ctx->out, w, q.out * q.in));
            calm_qjob_effective(&q, w);
            /* Without a level 0: at most the largest level, 127, times the least scale, as gptq compensates errors. */
            const bool has_zero = calm_level_value(&q.scheme, calm_symmetric_zero(&q.scheme),
                                                   calm_symmetric_zero(&q.scheme)) == 0;
            const double least = q.scheme.symmetric && !has_zero ? 127 * CALM_SCALE_MIN : 0;
            for (size_t i = 0; i < q.out * q.in; i++)
                ck_assert_msg(fabsf(w[i]) <= least, "%s: %g", *chain, w[i]);
        }
}
END_OF_TEST

static void huge_outliers(sample *s)
{
    s->w[1][s->in + 2] = 3e4f;
    s->x[0] = -1e6f;
    measure(s);
}

TEST(huge_outliers_in_weights_and_inputs) { check_all(9, 37, 60, huge_outliers); }
END_OF_TEST

static void tiny(sample *s)
{
    for (size_t i = 0; i < s->linears[1].out * s->in; i++)
        s->w[1][i] *= 1e-30f;
}

TEST(tiny_weights) { check_all(9, 37, 60, tiny); }
END_OF_TEST

/* Without calibration rows no input is known to be unused, so no weight may be dropped; fits are refused. */
TEST(no_calibration_rows)
{
    sample s;
    calm_qjob rtn, gptq, q;
    for (const char **chain = all_chains(); *chain; chain++)
        for (size_t k = 0; k < n_schemes; k++) {
            if (!reaches(*chain, schemes[k]))
                continue;
            make_sample(&s, 9, 37, 0, schemes[k]);
            s.stats.samples = NULL;
            if (caps_of(*chain) & CALM_NEEDS_SAMPLES) {
                ck_fails(try(*chain, &s.job, &q), CALM_ENUMERIC,
                         "job: actfit has 0 kept rows for 37 inputs, needs 296");
                continue;
            }
            ck_ok(try(*chain, &s.job, &q));
            check_result(*chain, &q);
        }
    make_sample(&s, 9, 37, 0, "w4a16_g16");
    ck_ok(try("rtn", &s.job, &rtn));
    ck_ok(try("gptq", &s.job, &gptq));
    ck_assert_mem_eq(rtn.codes, gptq.codes, rtn.out * rtn.in);
}
END_OF_TEST

/* ---- quality ---- */

/* Returns |X W^T - Qa(X / s) W^^T|^2 with activations quantized by the scheme, or |W - W^|^2 if `x` is false. */
static double error_of(const sample *s, const calm_qjob *q, bool x)
{
    size_t in = s->in;
    float *w, *input;
    double sum = 0;
    ck_ok(CALM_NEW(ctx, ctx->out, w, q->out * in));
    ck_ok(CALM_NEW(ctx, ctx->out, input, in));
    calm_qjob_dequantize(q, w);
    for (size_t t = 0; t < (x ? s->rows : 0); t++) {
        for (size_t j = 0; j < in; j++)
            input[j] = s->x[t * in + j] / (q->in_scale ? q->in_scale[j] : 1);
        if (q->scheme.act_bits)
            calm_actquant_rows(input, 1, in, q->scheme.act_bits, q->scheme.act_asymmetric,
                                   q->scheme.act_rule, q->act_global, input);
        for (size_t i = 0; i < q->out; i++) {
            const float *row = i < s->linears[0].out ? s->w[0] + i * in : s->w[1] + (i - s->linears[0].out) * in;
            double y = 0;
            for (size_t j = 0; j < in; j++)
                y += (double)s->x[t * in + j] * row[j] - (double)input[j] * w[i * in + j];
            sum += y * y;
        }
    }
    for (size_t i = 0; !x && i < q->out * in; i++) {
        const float *row = i / in < s->linears[0].out ? s->w[0] : s->w[1] - s->linears[0].out * in;
        sum += pow((double)row[i] - w[i], 2);
    }
    return sum;
}

/* Tells whether the chain chooses scales by the diagonal of the Hessian and then rounds to nearest. */
static bool weighs_diagonal(const char *chain)
{
    calm_algorithm *algorithm;
    ck_ok(calm_algorithm_parse(ctx, chain, &algorithm));
    const char *text = calm_algorithm_canonical(algorithm), *nearest = strstr(text, "nearest");
    return (strstr(text, "hls") || strstr(text, "hmse")) && nearest && !strchr(nearest, '+');
}

/* No chain loses more than rtn in what it optimises: outputs if it uses the Gram matrix, outputs from quantized
 * activations if it rescales channels or fits to these, else weights.  `edge` does not search: test_naive_rounding
 * compares it with the tool that it follows. */
TEST(not_worse_than_rtn)
{
    for (const char **chain = all_chains(); *chain; chain++) {
        if (strcmp(*chain, "edge+nearest") == 0 || strcmp(*chain, "rtn-mlx") == 0)
            continue;
        unsigned caps = caps_of(*chain);
        for (size_t k = 0; k < n_schemes; k++) {
            sample s;
            calm_qjob q, rtn;
            const unsigned input = CALM_SETS_IN_SCALE | CALM_FITS_INPUT;
            const char *scheme = caps & input ? "w4a4_g16" : schemes[k];
            if (!reaches(*chain, scheme) || (caps & input && k > 0))
                continue;
            make_sample(&s, 30, 70, enough_rows(*chain, 400, 70), scheme);
            /* Weighing errors by diag H lowers the outputs' error on the average over groups; two are too few. */
            if (calm_scheme_rows(&s.job.scheme) > 1 && weighs_diagonal(*chain))
                continue;
            ck_ok(try(*chain, &s.job, &q));
            ck_ok(try("rtn", &s.job, &rtn));
            bool x = caps & (CALM_NEEDS_GRAM | input);
            if (!(caps & input))
                q.scheme.act_bits = rtn.scheme.act_bits = 0;
            double found = error_of(&s, &q, x), bound = error_of(&s, &rtn, x);
            ck_assert_msg(found <= bound, "%s %s: error %g, rtn %g", *chain, scheme, found, bound);
        }
    }
}
END_OF_TEST

/* A refit may not increase the loss that it minimises, which has the damped Gram matrix: the error of the outputs
 * plus 0.01 of the mean diagonal times the error of the weights. */
TEST(refits_never_lose)
{
    size_t n, n_checked = 0;
    const calm_part *const *parts = calm_parts(&n);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; parts[i]->kind == CALM_KIND_REFIT && k < n_schemes; k++, n_checked++) {
            sample s;
            calm_qjob before, after;
            make_sample(&s, 30, 70, 400, schemes[k]);
            double mean = 0;
            for (size_t j = 0; j < s.in; j++)
                mean += s.gram[j * s.in + j] / (double)s.in;
            ck_ok(try("gptq-hls", &s.job, &before));
            ck_ok(try(test_format("hls(signed=true,weights=inverse)+gptq+%s", parts[i]->name), &s.job, &after));
            before.scheme.act_bits = after.scheme.act_bits = 0;
            double found = error_of(&s, &after, true) + 0.01 * mean * error_of(&s, &after, false);
            double bound = error_of(&s, &before, true) + 0.01 * mean * error_of(&s, &before, false);
            /* Codes times scales of 8 or 11 bits are exact in float32; the tolerance is for the order of sums. */
            ck_assert_msg(found <= bound * (1 + 1e-9), "%s %s: %g, was %g", parts[i]->name, schemes[k], found, bound);
        }
    ck_assert_uint_gt(n_checked, 0);
}
END_OF_TEST

/* Each preset for quantized activations ends with the same refit as mkq-full, which lowers the loss. */
TEST(activation_presets_are_refitted)
{
    static const char *const chains[][2] = {
        {"smoothquant-gptq", "smooth+"}, {"actfit", "actfit+"}, {"smoothquant-actfit", "smooth+actfit+"}};
    for (size_t i = 0; i < 3; i++) {
        sample s;
        calm_qjob before, after;
        make_sample(&s, 30, 70, 600, "w3a8_g16");
        ck_ok(try(test_format("%shls(signed=true,weights=inverse)+gptq", chains[i][1]), &s.job, &before));
        ck_ok(try(chains[i][0], &s.job, &after));
        ck_assert_double_lt(error_of(&s, &after, true), error_of(&s, &before, true));
    }
}
END_OF_TEST

/* ---- refusals ---- */

TEST(bad_numbers_are_named)
{
    for (const char **chain = all_chains(); *chain; chain++) {
        unsigned caps = caps_of(*chain);
        sample s;
        calm_qjob q;
        make_sample(&s, 9, 37, enough_rows(*chain, 60, 37), within_reach(*chain, "w4a16_g16"));
        s.w[1][2 * s.in + 5] = NAN;
        ck_fails(try(*chain, &s.job, &q), CALM_ENUMERIC, "second.weight[2, 5] is nan");
        s.w[1][2 * s.in + 5] = -INFINITY;
        ck_fails(try(*chain, &s.job, &q), CALM_ENUMERIC, "second.weight[2, 5] is -inf");
        s.w[1][2 * s.in + 5] = 1e9f;
        if (!s.job.can_absorb || !(caps & CALM_SETS_IN_SCALE))
            ck_fails(try(*chain, &s.job, &q), CALM_ENUMERIC, "second.weight: row 2, group 0: the scale is beyond");
        s.w[1][2 * s.in + 5] = 1;
        s.gram[3 * s.in + 4] = NAN;
        if (caps & CALM_NEEDS_GRAM)
            ck_fails(try(*chain, &s.job, &q), CALM_ENUMERIC, "job: Gram matrix [3, 4] is nan");
        measure(&s);
        s.gram[3 * s.in + 3] = -1;
        if (caps & CALM_NEEDS_GRAM)
            ck_fails(try(*chain, &s.job, &q), CALM_ENUMERIC, "job: Gram matrix [3, 3] is -1");
        measure(&s);
        s.absmax[6] = INFINITY;
        if (caps & CALM_NEEDS_ABSMAX)
            ck_fails(try(*chain, &s.job, &q), CALM_ENUMERIC, "job: max|x| of input 6 is inf");
        measure(&s);
        s.sumabs[6] = -1;
        if (caps & CALM_NEEDS_SUMS)
            ck_fails(try(*chain, &s.job, &q), CALM_ENUMERIC, "job: the sum of |x| of input 6 is -1");
        measure(&s);
        s.x[5 * s.in + 6] = NAN;
        if (caps & CALM_NEEDS_SAMPLES)
            ck_fails(try(*chain, &s.job, &q), CALM_ENUMERIC, "job: kept row 5, input 6 is nan");
    }
}
END_OF_TEST

TEST(missing_statistics_and_float_are_refused)
{
    for (const char **chain = all_chains(); *chain; chain++) {
        unsigned caps = caps_of(*chain);
        sample s;
        calm_qjob q;
        const char *scheme = within_reach(*chain, "w4a16_g16");
        make_sample(&s, 9, 37, 60, scheme);
        s.stats = (calm_stats){.rows = 60};
        if (caps & (CALM_NEEDS_GRAM | CALM_NEEDS_ABSMAX | CALM_NEEDS_SUMS | CALM_NEEDS_SAMPLES | CALM_SETS_BIAS))
            ck_fails(try(*chain, &s.job, &q), CALM_EARG, "which calibration did not collect");
        else
            ck_ok(try(*chain, &s.job, &q));
        ck_ok(calm_scheme_parse(ctx, "float", &s.job.scheme));
        ck_fails(try(*chain, &s.job, &q), CALM_EUNSUPPORTED, "the scheme is float");
        make_sample(&s, 9, 37, 60, scheme);
        s.linears[1].in = 36;
        ck_fails(try(*chain, &s.job, &q), CALM_EARG, "36 inputs, but first of the same job has 37");
    }
}
END_OF_TEST

/* A scheme that a chain cannot reach with any calibration is refused before any work, with the chain's name. */
TEST(schemes_out_of_reach)
{
    static const char *const fits[] = {"actfit", "smoothquant-actfit", "actfit(lambda=0.1)+absmax+nearest"};
    calm_algorithm *algorithm;
    calm_scheme scheme;
    sample s;
    calm_qjob q;
    for (size_t i = 0; i < sizeof fits / sizeof *fits; i++) {
        const char *message = test_format("%s cannot reach w4a16_g16: its transform actfit: activations stay float",
                                          fits[i]);
        make_sample(&s, 9, 37, 300, "w4a16_g16");
        ck_ok(calm_algorithm_parse(ctx, fits[i], &algorithm));
        ck_fails(calm_algorithm_reaches(ctx, algorithm, &s.job.scheme), CALM_EUNSUPPORTED, message);
        ck_fails(calm_algorithm_run(ctx, algorithm, &s.job, &q), CALM_EUNSUPPORTED, message);
        ck_assert(reaches(fits[i], "w4a4_g16") && reaches(fits[i], "w8a8_asymact") && !reaches(fits[i], "float"));
    }
    ck_ok(calm_scheme_parse(ctx, "float", &scheme));
    for (const char **chain = all_chains(); *chain; chain++) {
        ck_ok(calm_algorithm_parse(ctx, *chain, &algorithm));
        ck_fails(calm_algorithm_reaches(ctx, algorithm, &scheme), CALM_EUNSUPPORTED, "cannot reach float");
    }
    /* A grid that tries both signs gains nothing from an asymmetric scheme, but it is not refused. */
    ck_assert(reaches("gptq-hls", "w4a16_g16_asym"));
}
END_OF_TEST

TEST(fits_need_eight_rows_per_input)
{
    static const size_t kept[] = {295, 296};
    sample s;
    calm_qjob q;
    for (size_t i = 0; i < 2; i++) {
        make_sample(&s, 9, 37, kept[i], "w4a4_g16");
        if (i == 0)
            ck_fails(try("actfit", &s.job, &q), CALM_ENUMERIC,
                     "job: actfit has 295 kept rows for 37 inputs, needs 296: more calibration windows");
        else
            ck_ok(try("actfit", &s.job, &q));
    }
}
END_OF_TEST

/* Makes allocation k of the arena fail, for k = 1, 2, ... until the run succeeds; returns the number of failures. */
static long fail_each_allocation(const char *chain, const calm_job *job, calm_arena *arena)
{
    for (long k = 1;; k++) {
        calm_qjob q;
        ck_assert_msg(k < 10000, "%s: no end", chain);
        arena->fail_in = k;
        calm_status status = try(chain, job, &q);
        bool used = arena->fail_in == 0;
        arena->fail_in = 0;
        if (status == CALM_OK && !used)
            return k - 1;
        ck_assert_msg(status == CALM_ENOMEM, "%s: allocation %ld: %s", chain, k, calm_status_name(status));
        ck_assert_str_ne(ctx->message, "");
        calm_ctx_clear_failure(ctx);
    }
}

TEST(any_memory_may_be_missing)
{
    for (const char **chain = all_chains(); *chain; chain++) {
        sample s;
        make_sample(&s, 9, 37, enough_rows(*chain, 60, 37), within_reach(*chain, "w3a16_g16_asym"));
        ck_assert_int_gt(fail_each_allocation(*chain, &s.job, ctx->out), 0);
        ck_assert_int_gt(fail_each_allocation(*chain, &s.job, ctx->scratch), 0);
    }
}
END_OF_TEST

/* ---- same bytes ---- */

static void check_threads(const char *chain, const char *scheme, size_t out)
{
    sample s;
    calm_qjob one, four;
    make_sample(&s, out, 70, enough_rows(chain, 100, 70), within_reach(chain, scheme));
    ctx->n_threads = 1;
    ck_ok(try(chain, &s.job, &one));
    ctx->n_threads = 4;
    ck_ok(try(chain, &s.job, &four));
    check_equal(chain, &one, &four);
}

/* The rows form several chunks; one scheme has zero points and one has none. */
TEST(threads_do_not_matter)
{
    for (const char **chain = all_chains(); *chain; chain++) {
        bool replaced = false;
        for (size_t k = 0; k < 2; k++)
            if (!is_repeated(*chain, schemes[k], &replaced))
                check_threads(*chain, schemes[k], 400);
    }
}
END_OF_TEST

/* Schemes with levels, on a whole and a short chunk of rows.  Products are those of the test above, so tests/run
 * --kernels-all need not repeat them.  With sanitizers each scheme runs with a third of the chains. */
TEST(levels_do_not_matter_to_threads)
{
    size_t n = 0;
    for (const char **chain = all_chains(); *chain; chain++, n++) {
        bool replaced = !reaches(*chain, schemes[0]) || !reaches(*chain, schemes[1]);
        for (size_t k = N_INTEGERS; k < n_schemes; k++)
            if (!is_repeated(*chain, schemes[k], &replaced) && (n + k) % SANITIZED_STEP == 0)
                check_threads(*chain, schemes[k], CALM_ROW_CHUNK + 2);
    }
}
END_OF_TEST

/* ---- channel scales ---- */

TEST(channel_scales_are_shared_or_left_out)
{
    for (const char **chain = all_chains(); *chain; chain++) {
        sample s;
        calm_qjob q;
        uint32_t share[37];
        make_sample(&s, 9, 37, enough_rows(*chain, 60, 37), within_reach(*chain, "w4a16_g16"));
        for (size_t j = 0; j < 37; j++)
            share[j] = (uint32_t)(j % 5);
        s.job.absorb_group = share;
        s.job.n_absorb_groups = 5;
        ck_ok(try(*chain, &s.job, &q));
        ck_assert(!q.in_scale == !(caps_of(*chain) & CALM_SETS_IN_SCALE));
        for (size_t j = 5; q.in_scale && j < 37; j++)
            ck_assert(q.in_scale[j] == q.in_scale[j - 5]);
        s.job.can_absorb = false;
        ck_ok(try(*chain, &s.job, &q));
        ck_assert(!q.in_scale);
    }
}
END_OF_TEST

/* ---- memory ---- */

/* The estimate of a chain's memory holds: exactly for the bytes of the result; for the peak with a chunk each for
 * the result, the caller and every worker.  With one worker everything is held at one time, but for the input scale
 * (made after the search) and the result, so the peak is not below the scratch estimate either. */
static void check_memory(const char *chain, const char *scheme, size_t out, size_t in, bool absorbs, size_t n_threads)
{
    static uint32_t groups[256];
    sample s;
    calm_algorithm *algorithm;
    calm_qjob q;
    make_sample(&s, out, in, enough_rows(chain, 300, in), scheme);
    ck_ok(calm_algorithm_parse(ctx, chain, &algorithm));
    calm_job_shape shape = calm_job_shape_of(&s.job.scheme, out, in);
    shape.n_samples = s.rows;
    shape.n_threads = n_threads;
    shape.biased = true;
    shape.operands = ctx->operands;
    for (size_t j = 0; absorbs && j < in; j++)
        groups[j] = (uint32_t)j / 2;
    s.job.absorb_group = absorbs ? groups : NULL;
    s.job.n_absorb_groups = shape.n_absorb_groups = absorbs ? (in + 1) / 2 : 0;
    const size_t left = calm_algorithm_run_bytes(algorithm, &shape);
    const size_t held = calm_algorithm_run_scratch_bytes(algorithm, &shape);
    /* A run counts the scratch memory of products once for all of its products. */
    const size_t products = n_threads * calm_multiply_scratch_bytes(ctx->operands, 192);
    ctx->n_threads = (int)n_threads;
    test_memory_begin();
    ck_ok(calm_algorithm_run(ctx, algorithm, &s.job, &q));
    const test_memory found = test_memory_end();
    ck_assert_msg(found.out == left, "%s, %s: left %zu, said %zu", chain, scheme, found.out, left);
    ck_assert_msg(found.most <= left + held + products + (2 + n_threads) * CALM_ARENA_CHUNK,
                  "%s, %s: took %zu, said %zu", chain, scheme, found.most, left + held);
    ck_assert_msg(n_threads > 1 || found.most + CALM_BYTES(float, in) >= held, "%s, %s: took %zu, said %zu", chain,
                  scheme, found.most, held);
}

/* GPTQ halves its chunks of rows if there are more threads than chunks; the products here are on both sides of the
 * size below which BLAS has other kernels. */
TEST(halves_of_chunks_do_not_matter)
{
    static const char *const cut[] = {"gptq", "absmax+gptq(groups=sequential,order=none)"};
    for (size_t i = 0; i < 2; i++) {
        sample s;
        calm_qjob one, many;
        make_sample(&s, 256, 356, 400, "w4a16_g64");
        ctx->n_threads = 1;
        ck_ok(try(cut[i], &s.job, &one));
        ctx->n_threads = 4;
        ck_ok(try(cut[i], &s.job, &many));
        check_equal(cut[i], &one, &many);
    }
    check_memory("gptq", "w4a16_g64", 256, 356, false, 8);
}
END_OF_TEST

/* Operands that are packed as bfloat16 pairs, if the CPU has these, are counted; some widths have none. */
TEST(packed_operands_are_counted)
{
    static const char *const packing[] = {"mkq-full", "absmax+cd", "absmax+nearest+mkq"};
    CALM_SCOPED_OPERANDS(ctx, CALM_OPERANDS_BF16X2);
    for (size_t i = 0; i < sizeof packing / sizeof *packing; i++)
        for (size_t n_threads = 1; n_threads < 4; n_threads += 2) {
            check_memory(packing[i], "w4a16_g64", 300, 320, false, n_threads);
            check_memory(packing[i], "w4a16_g32", 100, 200, false, n_threads);
        }
    check_memory("absmax+nearest+mkq", "w4a16_g32", 4200, 96, false, 1);    /* in larger chunks */
}
END_OF_TEST

TEST(memory_is_what_it_says)
{
    /* Schemes with minima, with super-blocks of two widths, and with a global scale. */
    static const char *const rows[] = {"q4_1", "q4_k", "q6_k", "nvfp4a16"};
    static const size_t shapes[][2] = {{300, 200}, {60, 256}};
    for (const char **chain = all_chains(), **first = chain; *chain; chain++) {
        bool replaced[4] = {0};    /* four cases, each with two schemes */
        for (size_t i = 0; i < 8; i++) {
            const char *scheme = i < 4 ? integers[i] : rows[i - 4];
            if (!is_repeated(*chain, scheme, &replaced[i % 4]) && (size_t)(chain - first + i) % SANITIZED_STEP == 0)
                check_memory(*chain, within_reach(*chain, scheme), shapes[i / 2 % 2][0], shapes[i / 2 % 2][1], i & 1,
                             i & 1 ? 1 : 2);
        }
    }
}
END_OF_TEST

int main(void)
{
    list_schemes();
    return run_tests("algorithms", (const TTest *[]){
        results_are_storable, one_input, one_row_of_weights, zero_row_zero_column_dead_input, zero_weights_stay_zero,
        huge_outliers_in_weights_and_inputs, tiny_weights, no_calibration_rows, not_worse_than_rtn, refits_never_lose,
        activation_presets_are_refitted, bad_numbers_are_named, missing_statistics_and_float_are_refused,
        schemes_out_of_reach, fits_need_eight_rows_per_input, any_memory_may_be_missing,
        threads_do_not_matter, levels_do_not_matter_to_threads, halves_of_chunks_do_not_matter,
        channel_scales_are_shared_or_left_out,
        packed_operands_are_counted, memory_is_what_it_says, NULL});
}
