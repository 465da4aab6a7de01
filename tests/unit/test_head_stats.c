/* Statistics of the head's input: the sums of a naive run over the same windows, for any number of threads. */
#include "ptq/calib/head_stats.h"

#include <math.h>

#include "ptq/model/forward.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_plan.h"

/* Returns the Gram sums of the rows after the final norm, for windows from `first` on, one at a time; in `sizes` the
 * same sums of magnitudes. */
static double *run_naive(const calm_model *model, const calm_windows *windows, size_t first, double **sizes)
{
    const size_t width = calm_model_config(model)->hidden;
    calm_rope rope;
    calm_head head;
    calm_batch batch;
    double *gram;
    float *x;
    ck_ok(calm_rope_init(ctx, calm_model_config(model), calm_windows_reach(windows), &rope));
    ck_ok(calm_model_load_head(ctx, model, &head));
    ck_ok(calm_batch_forward(ctx, model, &rope, &head, windows, first, windows->n - first, NULL, NULL, ctx->out,
                             &batch));
    ck_ok(CALM_NEW(ctx, ctx->out, gram, width * width));
    ck_ok(CALM_NEW(ctx, ctx->out, *sizes, width * width));
    ck_ok(calm_row_store_get(ctx, &batch.hidden, 0, batch.rows, &x));
    for (size_t t = 0; t < batch.rows; t++)
        for (size_t i = 0; i < width; i++)
            for (size_t j = 0; j < width; j++) {
                const double product = (double)x[t * width + i] * (double)x[t * width + j];
                gram[i * width + j] += product;
                (*sizes)[i * width + j] += fabs(product);
            }
    return gram;
}

/* The rows have the same bits in both runs.  Each window is a float32 product, which rounds sums of at most 12 terms 12
 * times; windows are added in double, with fewer roundings than 12 2^-24 leaves for the first term. */
static void check_family(const char *family)
{
    static const size_t lengths[] = {9, 5, 12, 7, 3};
    const tiny_model spec = tiny_of(family);
    const calm_windows windows = tiny_windows(lengths, 5);
    double *one, *four, *sizes;
    size_t rows;
    calm_model *model;
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &model));
    const size_t width = calm_model_config(model)->hidden;
    ctx->n_threads = 1;
    const double *naive = run_naive(model, &windows, 1, &sizes);    /* a quarter of 5 is 1 */
    ck_ok(calm_head_stats_collect(ctx, model, &windows, &one, &rows));
    ck_assert_uint_eq(rows, 5 + 12 + 7 + 3);
    ctx->n_threads = 4;
    ck_ok(calm_head_stats_collect(ctx, model, &windows, &four, &rows));
    for (size_t i = 0; i < width; i++)
        for (size_t j = 0; j < width; j++) {
            const double got = one[i * width + j], expected = naive[i * width + j];
            const double error = (double)windows.longest * 0x1p-24 * sizes[i * width + j];
            ck_assert_msg(fabs(got - expected) <= error, "%s [%zu, %zu]: %g, expected %g", family, i, j, got,
                          expected);
            ck_assert(four[i * width + j] == got && one[j * width + i] == got);
        }
    calm_model_close(model);
}

TEST(sums)
{
    check_family("qwen3");
    check_family("qwen2_moe");
    check_family("gemma2");
}
END_OF_TEST

/* 16 rows per column, at least 16384; the first quarter is left out unless there are fewer than four windows. */
TEST(which_windows)
{
    size_t begin[101];
    for (size_t i = 0; i <= 100; i++)
        begin[i] = 1000 * i;
    const calm_windows hundred = {.n = 100, .begin = begin, .longest = 1000}, three = {.n = 3, .begin = begin};
    ck_assert_uint_eq(calm_head_stats_first(&hundred, 64), 100 - 17);
    ck_assert_uint_eq(calm_head_stats_first(&hundred, 2000), 100 - 32);
    ck_assert_uint_eq(calm_head_stats_first(&hundred, 20000), 25);
    ck_assert_uint_eq(calm_head_stats_first(&three, 64), 0);
}
END_OF_TEST

/* Hidden states of a batch, the weights of a block, and its smallest tiles. */
TEST(memory)
{
    const tiny_model spec = tiny_of("qwen3_moe");
    calm_model *model;
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &model));
    const size_t width = calm_model_config(model)->hidden;
    ck_assert_uint_eq(calm_head_stats_bytes(width), CALM_BYTES(double, width * width));
    ck_assert_uint_gt(calm_head_stats_scratch_bytes(model, CALM_OPERANDS_F32, 4, 12, 2),
                      48 * width * sizeof(float) + calm_model_load_sublayer_bytes(model, 0, 0));
    ck_assert_uint_gt(calm_head_stats_scratch_bytes(model, CALM_OPERANDS_F32, 8, 12, 2),
                      calm_head_stats_scratch_bytes(model, CALM_OPERANDS_F32, 4, 12, 2));
    calm_model_close(model);
}
END_OF_TEST

int main(void)
{
    return run_tests("head_stats", (const TTest *[]){sums, which_windows, memory, NULL});
}
