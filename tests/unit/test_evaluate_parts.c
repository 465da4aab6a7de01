/* Evaluations in parts, as several ranks make them: joined they are the evaluation of all windows. */
#include "ptq/eval/evaluate.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

/* Parts that are measured alone, with the worst positions, and joined: the same bits as all at once. */
TEST(parts_are_the_whole)
{
    enum { WINDOWS = 200, LENGTH = 300, RANKS = 4 };
    size_t each[WINDOWS];
    for (size_t w = 0; w < WINDOWS; w++)
        each[w] = w % 3 == 1 ? 20 : LENGTH;    /* a part may have short ones alone: it has the batches of all */
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

int main(void)
{
    return run_tests("evaluate parts", (const TTest *[]){parts_are_the_whole, NULL});
}
