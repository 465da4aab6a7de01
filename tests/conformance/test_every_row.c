/* Properties that every row of schemes.def must have, with whole super-blocks.  The tests loop over schemes.def,
 * presets.def and parts.def: a new row, preset or part is tested without a change here. */
#include "ptq/base/scope.h"
#include "ptq/quant/qjob.h"
#include "ptq/quant/super_block.h"
#include "tests/conformance/all_chains.h"
#include "tests/conformance/sample_job.h"

#define OUT ((size_t)9)
#define IN ((size_t)512)    /* two super-blocks */
#define MANY ((size_t)200)  /* rows that form two chunks */
#define ROWS ((size_t)96)

/* Schemes of the table's first row, which are spelled out: with a scale per group, per row, and with zero points. */
static const char *const integers[] = {"w4a16_g32", "w8a16", "w3a16_g64_asym"};
#define N_INTEGERS (sizeof integers / sizeof *integers)

/* Writes the name of scheme `index`: those above, then every row of the table; false past the last one. */
static bool scheme_at(size_t index, char name[CALM_SCHEME_NAME_MAX])
{
    if (index >= N_INTEGERS)
        return name_of_row(index - N_INTEGERS, name);
    snprintf(name, CALM_SCHEME_NAME_MAX, "%s", integers[index]);
    return true;
}

/* Checks that a file of the type can hold the scales and minima: rounding them once more changes none. */
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

/* Checks that codes are in range, and that weights on their grid keep their codes and values bit for bit. */
static void check_codes(const char *what, const calm_qjob *q)
{
    float *w, again[IN];
    double wide[IN];
    uint8_t codes[IN];
    ck_assert_uint_le(q->group, IN);
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

/* A chain at a scheme, on one thread and on four. */
static void check_run(const char *chain, const char *scheme, size_t out, size_t in)
{
    const char *what = test_format("%s %s", chain, scheme);
    sample s;
    calm_qjob one, four;
    make_sample(&s, out, in, enough_rows(chain, ROWS, in), scheme);
    ctx->n_threads = 4;
    ck_ok(try(chain, &s.job, &four));
    ctx->n_threads = 1;
    ck_ok(try(chain, &s.job, &one));
    ck_assert_msg(one.scheme.family == s.job.scheme.family, "%s: became another scheme", what);
    check_scales(what, &one);
    check_codes(what, &one);
    check_equal(what, &one, &four);
}

/* Every preset and part that reaches the scheme, on rows of one super-block. */
TEST(storable_and_idempotent_by_every_chain)
{
    char scheme[CALM_SCHEME_NAME_MAX];
    for (const char **chain = all_chains(); *chain; chain++) {
        size_t n = 0;
        for (size_t i = 0; scheme_at(i, scheme); i++) {
            CALM_SCOPED_ARENA(arena);
            CALM_SCOPED_OUT(ctx, &arena);
            if (!reaches(*chain, scheme))
                continue;
            check_run(*chain, scheme, OUT, IN / 2);
            n++;
        }
        ck_assert_msg(n > 0, "%s reaches no row", *chain);
    }
}
END_OF_TEST

/* Several super-blocks, and rows of several chunks: plain rounding, scales from statistics, error feedback with a
 * refit, and coordinate descent. */
TEST(the_same_for_any_number_of_threads)
{
    static const char *const chains[] = {"rtn", "mse+nearest", "mkq-full", "absmax+cd+ls"};
    char scheme[CALM_SCHEME_NAME_MAX];
    for (size_t c = 0; c < sizeof chains / sizeof *chains; c++)
        for (size_t i = 0; scheme_at(i, scheme); i++) {
            CALM_SCOPED_ARENA(arena);
            CALM_SCOPED_OUT(ctx, &arena);
            check_run(chains[c], scheme, c < 2 ? MANY : OUT, IN);
        }
}
END_OF_TEST

/* Returns the squared error of the outputs, in double from codes and grids: the loss that awq compares, up to the
 * order of sums. */
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

/* One of the exponents that awq tries leaves the channels unscaled, so its best loss is never above the plain one. */
TEST(awq_does_not_lose)
{
    size_t n_better = 0;
    char scheme[CALM_SCHEME_NAME_MAX];
    ctx->n_threads = 1;
    for (size_t i = 0; name_of_row(i, scheme); i++) {
        sample s;
        calm_qjob plain, scaled;
        make_sample(&s, OUT, IN, ROWS, scheme);
        ck_ok(try("mse+nearest", &s.job, &plain));
        ck_ok(try("awq+mse+nearest", &s.job, &scaled));
        ck_assert_ptr_nonnull(scaled.in_scale);
        const double found = loss_of(&s, &scaled), bound = loss_of(&s, &plain);
        /* The tolerance: sums in double of at most ROWS OUT IN^2 products, which cancel by less than 1e4. */
        ck_assert_msg(found <= bound * (1 + 1e-8), "%s: %g, was %g", scheme, found, bound);
        n_better += found < bound;
    }
    ck_assert_uint_gt(n_better, 0);
}
END_OF_TEST

/* Fits to quantized activations behind channel scales, for every row with quantized activations. */
TEST(fits_to_quantized_inputs)
{
    size_t n = 0;
    for (int family = 1; family < CALM_N_FAMILIES; family++) {
        sample s;
        calm_qjob q;
        if (!calm_families[family].act_bits)
            continue;
        make_sample(&s, OUT, 256, 2048, calm_families[family].name);
        ck_ok(try("smoothquant-actfit", &s.job, &q));
        check_scales(calm_families[family].name, &q);
        check_codes(calm_families[family].name, &q);
        n++;
    }
    ck_assert_uint_gt(n, 0);
}
END_OF_TEST

TEST(not_a_number_is_refused)
{
    char scheme[CALM_SCHEME_NAME_MAX];
    for (size_t i = 0; scheme_at(i, scheme); i++) {
        sample s;
        calm_qjob q;
        make_sample(&s, OUT, IN / 2, ROWS, scheme);
        s.w[1][2 * IN / 2 + 200] = NAN;
        for (const char **chain = all_chains(); *chain; chain++)
            if (reaches(*chain, scheme) && s.rows >= enough_rows(*chain, ROWS, s.in))
                ck_fails(try(*chain, &s.job, &q), CALM_ENUMERIC, "second.weight[2, 200] is nan");
    }
}
END_OF_TEST

/* A scale out of the format's range is an error that names the row, by every grid; it does not saturate. */
TEST(out_of_range_is_refused)
{
    char scheme[CALM_SCHEME_NAME_MAX];
    for (size_t i = 0; scheme_at(i, scheme); i++) {
        sample s;
        calm_qjob q;
        make_sample(&s, OUT, IN / 2, ROWS, scheme);
        s.job.can_absorb = false;    /* a scale of the input could bring the weight into range */
        /* Rows that share their scales are reported by the first of them. */
        const size_t group = calm_scheme_group_size(&s.job.scheme, s.in), rows = calm_scheme_rows(&s.job.scheme);
        const char *place = test_format("second.weight: row %zu, group %zu: ", 2 / rows * rows, 200 / group);
        for (size_t k = 0; k < 2; k++) {
            s.w[1][2 * s.in + 200] = k ? -1e30f : 1e9f;
            for (const char **chain = all_chains(); *chain; chain++)
                if (reaches(*chain, scheme) && s.rows >= enough_rows(*chain, ROWS, s.in))
                    ck_fails(try(*chain, &s.job, &q), CALM_ENUMERIC, place);
        }
    }
}
END_OF_TEST

/* If scales are multiples of a global scale, one very large weight can make the scales of the others vanish. */
TEST(vanishing_scales_are_refused)
{
    char scheme[CALM_SCHEME_NAME_MAX];
    size_t n = 0;
    for (size_t i = 0; scheme_at(i, scheme); i++) {
        sample s;
        calm_qjob q;
        make_sample(&s, OUT, IN / 2, ROWS, scheme);
        for (size_t j = 0; j < s.linears[1].out * s.in; j++)
            s.w[1][j] *= 0.01f;
        s.w[1][2 * s.in + 200] = 1.5e5f;    /* the scale of this weight alone is in range */
        if (!calm_scheme_has_global(&s.job.scheme)) {
            ck_ok(try("rtn", &s.job, &q));
            continue;
        }
        ck_fails(try("rtn", &s.job, &q), CALM_ENUMERIC,
                 test_format("second.weight: row 2, group %zu: next to its largest weight, 150000, the scales of ",
                             200 / calm_scheme_group_size(&s.job.scheme, s.in)));
        for (size_t j = 0; j < s.linears[1].out * s.in; j++)    /* weights that round to 0 in any scheme do not count */
            s.w[1][j] *= j == 2 * s.in + 200 ? 1 : 1e-30f;
        for (size_t j = 0; j < s.linears[0].out * s.in; j++)
            s.w[0][j] *= 1e-30f;
        ck_ok(try("rtn", &s.job, &q));
        n++;
    }
    ck_assert_uint_ge(n, 2);
}
END_OF_TEST

int main(void)
{
    return run_tests("every_row", (const TTest *[]){
        storable_and_idempotent_by_every_chain, the_same_for_any_number_of_threads, awq_does_not_lose,
        fits_to_quantized_inputs, not_a_number_is_refused, out_of_range_is_refused, vanishing_scales_are_refused,
        NULL});
}
