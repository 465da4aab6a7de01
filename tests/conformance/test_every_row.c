/* What every row of schemes.def must do, whichever it is, with whole super-blocks: a new row is tested by its line
 * there. */
#include "algorithms/part.h"
#include "ptq/quant/qjob.h"
#include "ptq/quant/super_block.h"
#include "tests/conformance/sample_job.h"

#define OUT ((size_t)9)
#define IN ((size_t)512)    /* two super-blocks */
#define ROWS ((size_t)96)

/* Plain, with scales from statistics, with error feedback and refit, by coordinate descent, on rescaled channels. */
static const char *const chains[] = {"rtn", "mse+nearest", "mkq-full", "absmax+cd+ls", "smooth+hmse+gptq+channel",
                                     "awq+ls+nearest"};
#define N_CHAINS (sizeof chains / sizeof *chains)

/* The name of a row's weights alone. */
static const char *name_of(int family)
{
    return test_format("%s%s", calm_families[family].name, calm_families[family].act_bits ? "a16" : "");
}

static calm_status run(const char *chain, const calm_job *job, int n_threads, calm_qjob *out)
{
    calm_algorithm *algorithm;
    ctx->n_threads = n_threads;
    CALM_TRY(calm_algorithm_parse(ctx, chain, &algorithm));
    return calm_algorithm_run(ctx, algorithm, job, out);
}

/* Scales and minima are what a file of the type holds, together too: rounding them again changes none. */
static void check_scales(const char *what, const calm_qjob *q)
{
    const size_t super = calm_scheme_family(&q->scheme)->super;
    for (size_t i = 0; i < q->out * q->n_groups; i += super) {
        float scales[CALM_SUPER_MAX], mins[CALM_SUPER_MAX];
        calm_super_block parts;
        const float *had = q->mins ? q->mins + i : NULL;
        memcpy(scales, q->scales + i, super * sizeof *scales);
        if (had)
            memcpy(mins, had, super * sizeof *mins);
        calm_scales_round(&q->scheme, q->global, super, scales, had ? mins : NULL);
        ck_assert_msg(memcmp(scales, q->scales + i, super * sizeof *scales) == 0, "%s: scale %zu", what, i);
        ck_assert_msg(!had || memcmp(mins, had, super * sizeof *mins) == 0, "%s: minimum %zu", what, i);
        ck_assert_msg(super == 1 || calm_super_split(&q->scheme, super, q->scales + i, had, &parts),
                      "%s: super-block of scale %zu", what, i);
    }
}

/* Weights that stand on their grid stay there, bit for bit; codes are in range. */
static void check_codes(const char *what, const calm_qjob *q)
{
    float *w, again[512];
    double wide[512];
    uint8_t codes[512];
    ck_assert_uint_le(q->group, 512);
    ck_ok(CALM_NEW(ctx, ctx->out, w, q->out * q->in));
    calm_qjob_dequantize(q, w);
    for (size_t i = 0; i < q->out * q->in; i++)
        ck_assert_msg(q->codes[i] >= calm_code_min(&q->scheme) && q->codes[i] <= calm_code_max(&q->scheme),
                      "%s: code %u", what, q->codes[i]);
    for (size_t cell = 0; cell < q->out * q->n_groups; cell++) {
        const calm_grid grid = calm_qjob_grid(q, cell);
        const float *group = w + cell * q->group;
        for (size_t j = 0; j < q->group; j++)
            wide[j] = (double)group[j];
        calm_grid_encode(&q->scheme, grid, wide, q->group, codes);
        calm_grid_decode(&q->scheme, grid, codes, q->group, again);
        for (size_t j = 0; j < q->group; j++)
            ck_assert_msg(again[j] == group[j], "%s: %a becomes %a", what, (double)group[j], (double)again[j]);
    }
}

TEST(storable_idempotent_and_the_same_for_any_number_of_threads)
{
    for (int family = 1; family < CALM_N_FAMILIES; family++) {
        sample s;
        make_sample(&s, OUT, IN, ROWS, name_of(family));
        for (size_t c = 0; c < N_CHAINS; c++) {
            const char *what = test_format("%s %s", chains[c], name_of(family));
            calm_qjob one, four;
            ck_ok(run(chains[c], &s.job, 4, &four));
            ck_ok(run(chains[c], &s.job, 1, &one));
            ck_assert_msg(one.scheme.family == family, "%s: became another scheme", what);
            check_scales(what, &one);
            check_codes(what, &one);
            ck_assert_mem_eq(one.codes, four.codes, OUT * IN);
            ck_assert_mem_eq(one.scales, four.scales, OUT * one.n_groups * sizeof *one.scales);
        }
    }
}
END_OF_TEST

/* Of outputs, in double from codes and grids: the loss that awq compares, but for the order of sums. */
static double loss_of(const sample *s, const calm_qjob *q)
{
    double loss = 0;
    for (size_t i = 0; i < q->out; i++) {
        const float *w = i < s->linears[0].out ? s->w[0] + i * IN : s->w[1] + (i - s->linears[0].out) * IN;
        double e[IN];
        for (size_t j = 0; j < IN; j++) {
            const calm_grid grid = calm_qjob_grid(q, i * q->n_groups + j / q->group);
            const double level = calm_level_value(&q->scheme, grid.zero, q->codes[i * IN + j]);
            const double in_scale = q->in_scale ? (double)q->in_scale[j] : 1;
            e[j] = (double)w[j] - ((double)grid.scale * level + (double)grid.min) / in_scale;
        }
        for (size_t t = 0; t < s->rows; t++) {
            double y = 0;
            for (size_t j = 0; j < IN; j++)
                y += (double)s->x[t * IN + j] * e[j];
            loss += y * y;
        }
    }
    return loss;
}

/* One of the exponents that awq tries leaves the channels as they are: it finds no worse, whatever shares a scale. */
TEST(awq_does_not_lose)
{
    size_t n_better = 0;
    for (int family = 1; family < CALM_N_FAMILIES; family++) {
        sample s;
        calm_qjob plain, scaled;
        make_sample(&s, OUT, IN, ROWS, name_of(family));
        ck_ok(run("mse+nearest", &s.job, 1, &plain));
        ck_ok(run("awq+mse+nearest", &s.job, 1, &scaled));
        ck_assert_ptr_nonnull(scaled.in_scale);
        const double found = loss_of(&s, &scaled), bound = loss_of(&s, &plain);
        /* Sums in double of at most ROWS OUT IN^2 products, which cancel by less than 1e4. */
        ck_assert_msg(found <= bound * (1 + 1e-8), "%s: %g, was %g", name_of(family), found, bound);
        n_better += found < bound;
    }
    ck_assert_uint_gt(n_better, 0);
}
END_OF_TEST

/* Fits to quantized activations, behind channel scales, of every row that has some. */
TEST(fits_to_quantized_inputs)
{
    size_t n = 0;
    for (int family = 1; family < CALM_N_FAMILIES; family++) {
        sample s;
        calm_qjob q;
        if (!calm_families[family].act_bits)
            continue;
        make_sample(&s, OUT, 256, 2048, calm_families[family].name);
        ck_ok(run("smoothquant-actfit", &s.job, 4, &q));
        check_scales(calm_families[family].name, &q);
        check_codes(calm_families[family].name, &q);
        n++;
    }
    ck_assert_uint_gt(n, 0);
}
END_OF_TEST

TEST(not_a_number_is_refused)
{
    for (int family = 1; family < CALM_N_FAMILIES; family++) {
        sample s;
        calm_qjob q;
        make_sample(&s, OUT, IN, ROWS, name_of(family));
        s.w[1][2 * IN + 300] = NAN;
        for (size_t c = 0; c < N_CHAINS; c++)
            ck_fails(run(chains[c], &s.job, 1, &q), CALM_ENUMERIC, "second.weight[2, 300] is nan");
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("every_row", (const TTest *[]){storable_idempotent_and_the_same_for_any_number_of_threads,
                                                    awq_does_not_lose, fits_to_quantized_inputs,
                                                    not_a_number_is_refused, NULL});
}
