/* Evaluations in parts, as several ranks make them, or from given rows: equal to the evaluation of all windows. */
#include "ptq/eval/evaluate.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

/* Parts measured separately, with the worst positions, and joined: the bits of a single evaluation. */
TEST(parts_are_the_whole)
{
    enum { WINDOWS = 200, LENGTH = 300, RANKS = 4 };
    size_t each[WINDOWS];
    for (size_t w = 0; w < WINDOWS; w++)
        each[w] = w % 3 == 1 ? 20 : LENGTH;    /* a part may have only short windows */
    const calm_windows windows = tiny_windows(each, WINDOWS);
    tiny_model spec = tiny_default;
    calm_model *model, *other;
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &model));
    spec.seed = 5;
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &other));
    const calm_config *config = calm_model_config(model);
    const calm_subject reference = {.model = model}, subject = {.model = other};
    calm_eval_result ref, result, refs[RANKS], results[RANKS], joined;
    calm_eval_worst worst, worsts[RANKS], all;
    size_t n_windows[RANKS], n = 0, at = 0;
    ck_ok(calm_evaluate_worst(ctx, &reference, &ref, &subject, &result, &windows, 7, NULL, NULL, &worst));
    for (size_t r = 0; r < RANKS; r++) {
        calm_windows part;
        size_t first;
        ck_ok(calm_evaluation_part(ctx, config, &windows, r, RANKS, &part, &first));
        ck_assert_uint_eq(first, at);
        ck_assert_uint_eq(first % calm_evaluation_batch(config, WINDOWS, LENGTH), 0);
        at += part.n;
        if (!part.n)
            continue;
        ck_ok(calm_evaluate_worst(ctx, &reference, &refs[n], &subject, &results[n], &part, 7, NULL, NULL, &worsts[n]));
        n_windows[n++] = part.n;
    }
    ck_assert_uint_eq(at, WINDOWS);
    ck_assert_uint_eq(n, 3);    /* batches for four ranks */
    ck_ok(calm_evaluate_join(ctx, results, n_windows, n, true, &joined));
    ck_assert(joined.kl == result.kl && joined.nll == result.nll && joined.top1 == result.top1 && result.kl > 0);
    ck_assert_mem_eq(joined.windows, result.windows, WINDOWS * sizeof *result.windows);
    ck_ok(calm_evaluate_join(ctx, refs, n_windows, n, true, &joined));
    ck_assert(joined.nll == ref.nll && joined.ppl == ref.ppl && joined.tokens == ref.tokens);
    ck_ok(calm_evaluate_worst_join(ctx, worsts, n_windows, n, &all));
    ck_assert(all.n == 7 && all.n_kl == worst.n_kl);
    ck_assert_mem_eq(all.kl, worst.kl, worst.n_kl * sizeof *worst.kl);
    ck_assert_mem_eq(all.each, worst.each, 7 * sizeof *worst.each);
    calm_model_close(model);
    calm_model_close(other);
}
END_OF_TEST

/* Writes the rows after the last block for all windows to a file, from row `first` on. */
static void pass(const calm_model *model, const calm_windows *windows, size_t first, const calm_row_store *file)
{
    calm_batch batch;
    calm_rope rope;
    ck_ok(calm_rope_init(ctx, calm_model_config(model), calm_windows_reach(windows), &rope));
    ck_ok(calm_batch_embed(ctx, model, windows, 0, windows->n, ctx->out, NULL, &batch));
    for (size_t b = 0; b < calm_model_config(model)->n_blocks; b++)
        ck_ok(calm_batch_load_block(ctx, model, &rope, b, NULL, NULL, &batch));
    ck_ok(calm_row_store_put(ctx, file, first, batch.rows, batch.hidden.data));
}

static calm_status count(void *user, calm_ctx *task, size_t index, calm_block *block)
{
    size_t *blocks = user;
    (void)task, (void)index, (void)block;
    ++*blocks;
    return CALM_OK;
}

/* With given rows no block is run, and all figures have the same bits.  There are so many windows that they form
 * several batches. */
TEST(rows_that_have_passed)
{
    enum { WINDOWS = 90, LENGTH = 300, ROWS = WINDOWS * LENGTH };
    size_t each[WINDOWS], blocks = 0;
    for (size_t w = 0; w < WINDOWS; w++)
        each[w] = LENGTH;
    const calm_windows windows = tiny_windows(each, WINDOWS);
    tiny_model spec = tiny_default;
    calm_model *model, *other;
    calm_row_store file;
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &model));
    spec.seed = 5;
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &other));
    ck_assert_uint_lt(calm_evaluation_batch(calm_model_config(model), WINDOWS, LENGTH), WINDOWS);
    ck_ok(calm_row_store_create(ctx, test_format("%s/rows", test_directory()), 3 + 2 * ROWS,
                                calm_model_config(model)->hidden, &file));
    pass(model, &windows, 3, &file);
    pass(other, &windows, 3 + ROWS, &file);
    /* Rows of the same model: a subject cannot begin at a block of a reference whose rows are given. */
    const calm_subject run[] = {{.model = other, .override = count, .user = &blocks},
                                {.model = model, .override = count, .user = &blocks, .first_block = 1}};
    calm_subject passed[] = {run[0], run[1]}, reference = {.model = model};
    calm_eval_result refs[3], results[3][2];
    ck_ok(calm_evaluate(ctx, &reference, &refs[0], run, 2, results[0], &windows, NULL, NULL));
    ck_assert_uint_gt(blocks, 0);
    passed[0].passed = reference.passed = &file;
    reference.passed_first = 3;
    passed[0].passed_first = 3 + ROWS;
    ck_ok(calm_evaluate(ctx, &reference, &refs[1], passed, 2, results[1], &windows, NULL, NULL));
    passed[1].passed = &file;
    passed[1].passed_first = 3;
    blocks = 0;
    ck_ok(calm_evaluate(ctx, &reference, &refs[2], passed, 2, results[2], &windows, NULL, NULL));
    ck_assert_uint_eq(blocks, 0);
    for (size_t i = 1; i < 3; i++) {
        ck_assert(refs[i].nll == refs[0].nll && results[i][0].kl == results[0][0].kl && results[i][0].kl > 0.01);
        for (size_t m = 0; m < 2; m++)
            ck_assert_mem_eq(results[i][m].windows, results[0][m].windows, WINDOWS * sizeof *results[0][m].windows);
    }
    calm_row_store_close(&file);
    calm_model_close(model);
    calm_model_close(other);
}
END_OF_TEST

int main(void)
{
    return run_tests("evaluate parts", (const TTest *[]){parts_are_the_whole, rows_that_have_passed, NULL});
}
