/* Capture of two batches of the same windows in lockstep. */
#include <string.h>

#include "ptq/calib/capture.h"
#include "tests/support/harness.h"
#include "tests/support/same_capture.h"
#include "tests/support/tiny_model.h"

#define N_WINDOWS 5

static const size_t lengths[N_WINDOWS] = {9, 17, 2, 30, 12};

/* Windows after quantized blocks, in lockstep with those after float blocks: statistics of the former, products with
 * the latter, and the outputs of the latter as the candidates' reference. */
static void in_lockstep(float *const *factors)
{
    calm_windows windows = tiny_windows(lengths, N_WINDOWS);
    calm_capture_options options = {.jobs = CALM_CAPTURE_ALL_JOBS, .grams = true, .samples = true, .score_windows = 2,
                                    .held_windows = 1, .factors = factors};
    calm_capture found[CALM_N_SUBLAYERS], alone[CALM_N_SUBLAYERS], plain[CALM_N_SUBLAYERS];
    calm_batch exact, moved, again;
    calm_block block;
    calm_model *model;
    calm_rope rope;
    ck_ok(calm_model_open(ctx, tiny_model_write(&tiny_default), &model));
    ck_ok(calm_rope_init(ctx, calm_model_config(model), 30, &rope));
    ck_ok(calm_model_load_block(ctx, model, 0, &block));
    ctx->n_threads = 2;
    ck_ok(calm_batch_embed(ctx, model, &windows, 0, N_WINDOWS, ctx->out, NULL, &exact));
    ck_ok(calm_batch_copy(ctx, &exact, N_WINDOWS, ctx->out, NULL, &moved));
    for (size_t i = 0; i < 70 * 32; i++)
        moved.hidden.data[i] += (float)(i % 7) / 50;
    ck_ok(calm_batch_copy(ctx, &moved, N_WINDOWS, ctx->out, NULL, &again));
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++) {
        calm_batch both;
        ck_ok(calm_batch_copy(ctx, &exact, N_WINDOWS, ctx->out, NULL, &both));
        ck_ok(calm_capture_sublayer(ctx, &block, s, CALM_NO_EXPERT, &rope, &exact, &options, &plain[s]));
        ck_ok(calm_capture_sublayer(ctx, &block, s, CALM_NO_EXPERT, &rope, &again, &options, &alone[s]));
        calm_capture_options lockstep = options;
        lockstep.exact = &both;
        lockstep.crosses = true;
        ck_ok(calm_capture_sublayer(ctx, &block, s, CALM_NO_EXPERT, &rope, &moved, &lockstep, &found[s]));
        ck_assert(memcmp(found[s].score_output, plain[s].score_output, found[s].score_rows * 32 * sizeof(float)) == 0);
        ck_assert(memcmp(both.hidden.data, exact.hidden.data, 70 * 32 * sizeof(float)) == 0);
    }
    for (calm_job_kind kind = 0; kind < TINY_N_JOBS; kind++) {
        const calm_sublayer s = calm_job_sublayer(kind);
        const calm_job_capture *of = &found[s].job[kind], *x = &alone[s].job[kind], *y = &plain[s].job[kind];
        const size_t n = of->stats.n_samples;
        ck_assert_uint_eq(n, 70 - lengths[0]);    /* every row is kept, in order */
        same_job(x, of, found[s].score_rows);
        for (size_t i = 0; i < of->width; i++)
            for (size_t j = 0; j < of->width; j++) {
                double sum = 0, size = 0;
                for (size_t t = 0; t < n; t++) {
                    const double term =
                        (double)x->stats.samples[t * of->width + i] * (double)y->stats.samples[t * of->width + j];
                    sum += term;
                    size += fabs(term);
                }
                /* A float32 product of 61 rows, whose terms are rounded once each and added in some order. */
                ck_near(of->stats.cross[i * of->width + j], sum, size * 70 * 0x1p-24);
            }
    }
    ck_assert(memcmp(moved.hidden.data, again.hidden.data, 70 * 32 * sizeof(float)) == 0);
    calm_model_close(model);
}

TEST(two_batches_in_lockstep)
{
    float of_rows[70], *const factors[CALM_N_JOBS] = {of_rows, NULL, of_rows, of_rows};
    in_lockstep(NULL);
    for (size_t t = 0; t < 70; t++)
        of_rows[t] = (float)(1 + t % 5) / 3;
    in_lockstep(factors);
}
END_OF_TEST

int main(void)
{
    return run_tests("capture_lockstep", (const TTest *[]){two_batches_in_lockstep, NULL});
}
