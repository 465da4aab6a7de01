/* Statistics of rows, over all texts and of each text. */
#include "ptq/calib/capture.h"

#include <math.h>

#include "tests/support/first_block.h"
#include "tests/support/harness.h"
#include "tests/support/same_capture.h"
#include "tests/support/tiny_model.h"

#define N_WINDOWS 5

/* Windows of three texts in turn, as calm_windows_join() leaves them. */
static const size_t lengths[N_WINDOWS] = {9, 17, 2, 30, 12}, tokens[] = {39, 17, 14};
static uint8_t text[N_WINDOWS] = {0, 1, 2, 0, 2};

static void capture(first_block *b, int threads, calm_capture out[CALM_N_SUBLAYERS])
{
    const calm_capture_options options = {.jobs = CALM_CAPTURE_ALL_JOBS, .activations = true};
    ctx->n_threads = threads;
    first_block_embed(b);
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++)
        ck_ok(calm_capture_sublayer(ctx, &b->block, s, CALM_NO_EXPERT, &b->rope, &b->batch, &options, &out[s]));
}

/* Checks the statistics of each text, for any number of threads: its tokens and windows, and together all of `all`. */
static void check_parts(const calm_actstat_acc *all, calm_actstat_acc *const *parts, calm_actstat_acc *const *again)
{
    float largest = 0;
    size_t n = 0;
    ck_assert((parts != NULL) == (all != NULL));
    for (size_t t = 0; parts && t < 3; t++) {
        same_accumulators(parts[t], again[t]);
        ck_assert_uint_eq(parts[t]->n_tokens, tokens[t]);
        ck_assert_uint_eq(text[parts[t]->top[0].window], t);
        largest = fmaxf(largest, fabsf(parts[t]->top[0].value));
        n += parts[t]->count;
    }
    ck_assert(!parts || (largest == fabsf(all->top[0].value) && n == all->count));
}

TEST(each_text_has_its_own_statistics)
{
    calm_capture one[CALM_N_SUBLAYERS], found[CALM_N_SUBLAYERS], again[CALM_N_SUBLAYERS];
    calm_actstat_acc *rows, **of_text, alone;
    float *x;
    first_block b = first_block_open(tiny_model_write(&tiny_default), lengths, N_WINDOWS);
    capture(&b, 2, one);
    b.windows.text = text;
    b.windows.n_texts = 3;
    capture(&b, 2, found);
    capture(&b, 1, again);
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++)
        for (calm_hook hook = 0; hook < CALM_N_HOOKS; hook++) {
            same_accumulators(one[s].activations[hook], found[s].activations[hook]);
            ck_assert_ptr_null(one[s].of_text[hook]);
            check_parts(found[s].activations[hook], found[s].of_text[hook], again[s].of_text[hook]);
        }
    /* Rows outside of the blocks: text 1 has one window, with the statistics of its rows. */
    ck_ok(calm_capture_rows(ctx, &b.batch, &rows, &of_text));
    ck_ok(calm_actstat_init(ctx, ctx->out, 32, 17, &alone));
    ck_ok(calm_row_store_get(ctx, &b.batch.hidden, 9, 17, &x));
    ck_ok(calm_actstat_add(ctx, &alone, x, 17, 1, 0));
    same_accumulators(&alone, of_text[1]);
    calm_model_close(b.model);
}
END_OF_TEST

/* The peak is at most the estimate, and not much less. */
TEST(memory_of_texts)
{
    const size_t said = calm_actstat_new_bytes(70) + calm_actstat_texts_bytes(3, 70);
    calm_actstat_acc *rows, **of_text;
    first_block b = first_block_open(tiny_model_write(&tiny_default), lengths, N_WINDOWS);
    b.windows.text = text;
    b.windows.n_texts = 3;
    first_block_embed(&b);
    test_memory_begin();
    ck_ok(calm_capture_rows(ctx, &b.batch, &rows, &of_text));
    const size_t taken = test_memory_end().out;
    ck_assert_msg(taken <= said && taken + 3 * calm_actstat_init_bytes(1) >= said, "took %zu, said %zu", taken, said);
    ck_assert_uint_eq(calm_actstat_texts_bytes(1, 70), 0);
    calm_model_close(b.model);
}
END_OF_TEST

int main(void)
{
    return run_tests("capture_rows", (const TTest *[]){each_text_has_its_own_statistics, memory_of_texts, NULL});
}
