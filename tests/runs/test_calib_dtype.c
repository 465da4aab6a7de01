/* Runs with `calibration.dtype` bf16 and bf16x2, whose products have bfloat16 operands: the same bytes for any
 * number of threads, keys apart from those of float32, and figures near those of float32. */
#include <stdlib.h>
#include <string.h>

#include "algorithms/learner.h"
#include "ptq/tensor/bf16_product.h"
#include "tests/support/play.h"

/* Makes a run with windows of more than one chunk of rows and widths that the kernel's steps do not divide. */
static play rounded(const char *family, const char *scheme, const char *algorithms)
{
    const tiny_model spec = tiny_of(family);
    play run = play_new(&spec, scheme, algorithms);
    run.recipe.calib_windows = 12;
    run.recipe.operands = CALM_OPERANDS_BF16;
    return run;
}

static double number(const play *run, const char *statement)
{
    return strtod(play_text(run, statement), NULL);
}

/* Another number of threads gives the same bytes.  A float32 run in the same store has other keys, other codes and
 * another recipe.  Evaluations are in float32 whatever the calibration has: the float model's figures on the guard's
 * windows are equal to the last bit in stores of either kind. */
static void compare_dtypes(const char *family, const char *scheme, const char *algorithms, calm_prefix prefix)
{
    play first = rounded(family, scheme, algorithms);
    first.recipe.prefix = prefix;
    play again = play_elsewhere(&first, "again"), plain = play_elsewhere(&first, "plain"), alone;
    again.threads = first.threads == 1 ? 3 : 1;
    plain.recipe.operands = CALM_OPERANDS_F32;
    alone = play_elsewhere(&plain, "alone");
    plain.recipe.store = first.recipe.store;
    const outcome said = play_must_run(&first);
    play_must_run(&again);
    play_must_run(&alone);
    ck_assert_str_eq(play_digest(first.recipe.output), play_digest(again.recipe.output));
    ck_assert_uint_eq(play_must_run(&plain).cached, 0);
    ck_assert_int_gt(play_sql(&first, "SELECT count(*) FROM candidate a JOIN candidate b USING (job_id, algorithm_id)"
                                      " WHERE a.id < b.id AND a.blob <> b.blob"), 0);
    ck_assert_int_eq(play_sql(&first, "SELECT count(*) FROM run WHERE json_extract(recipe, '$.calibration.dtype') ="
                                      " 'bf16' AND id = 1"), 1);
    ck_assert_int_eq(play_sql(&first, "SELECT json_extract(recipe, '$.calibration.dtype') IS NULL FROM run"
                                      " WHERE id = 2"), 1);
    static const char nll[] = "SELECT printf('%.17g', coalesce(nll, 0)) FROM evaluation WHERE subject = 'float'";
    ck_assert_str_eq(play_text(&again, nll), play_text(&alone, nll));
    /* One warning if the kernels are not faster with bfloat16. */
    ck_assert_int_eq(strstr(said.log, "there are no products of bfloat16") != NULL,
                     !calm_bf16_is_fast(CALM_OPERANDS_BF16));
}

TEST(rounded_runs)
{
    compare_dtypes("qwen3", "w3a16_g16", "rtn,gptq", CALM_PREFIX_FLOAT);
    compare_dtypes("qwen3", "w4a8_g16", "gptq", CALM_PREFIX_ASYMMETRIC);
    compare_dtypes("qwen2_moe", "w4a16_g8", "gptq", CALM_PREFIX_FLOAT);
    compare_dtypes("bert", "w4a16_g16", "gptq", CALM_PREFIX_FLOAT);
}
END_OF_TEST

/* With two bfloat16 parts every stage gives the same bytes for any number of threads, and figures near float32's.
 * Tolerance: some fifteen products follow one another, each off by 3 * 2^-18 of the magnitude of its terms, which
 * leaves logits of magnitude below 16 within .003.  On CPUs that do not multiply such operands figures are equal. */
static void compare_two_parts(const char *family, const char *scheme, const char *algorithms)
{
    play run = rounded(family, scheme, algorithms);
    run.recipe.operands = CALM_OPERANDS_BF16X2;
    if (strcmp(family, "bert") != 0) {
        run.recipe.learn = CALM_LEARN_BLOCKS;
        run.recipe.learn_steps = 50;
        ck_ok(calm_learner_parse(ctx, "learn(steps=50,tokens=1)", &run.recipe.learner));
    }
    play again = play_elsewhere(&run, "again"), plain = play_elsewhere(&run, "plain");
    again.threads = run.threads == 1 ? 3 : 1;
    plain.recipe.operands = CALM_OPERANDS_F32;
    const outcome said = play_must_run(&run);
    play_must_run(&again);
    play_must_run(&plain);
    ck_assert_str_eq(play_digest(run.recipe.output), play_digest(again.recipe.output));
    static const char figures[] = "SELECT count(*), sum(coalesce(nll, 0)), sum(coalesce(error, 0)) FROM evaluation",
                      nll[] = "SELECT printf('%.17g', coalesce(nll, error)) FROM evaluation WHERE subject = 'float'";
    ck_assert_str_eq(play_text(&run, figures), play_text(&again, figures));
    const bool fast = calm_bf16_is_fast(CALM_OPERANDS_BF16X2);
    ck_near(number(&run, nll), number(&plain, nll), fast ? 0.003 : 0);
    ck_assert_int_eq(strstr(said.log, "there is no AMX") != NULL, !fast);
    /* Results of one dtype are never taken for the other's. */
    play beside = play_elsewhere(&plain, "beside");
    beside.recipe.store = run.recipe.store;
    ck_assert_uint_eq(play_must_run(&beside).cached, 0);
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM evaluation WHERE subject = 'float'"), 2);
}

TEST(runs_of_two_parts)
{
    compare_two_parts("qwen3", "w3a16_g16", "rtn,mkq-full");
    compare_two_parts("qwen2_moe", "w4a16_g8", "gptq");
    compare_two_parts("bert", "w4a16_g16", "mkq-full");
}
END_OF_TEST

/* Statistics with bfloat16 operands: a product rounds both operands by 2^-9 relative, so its result is off by at
 * most 2^-8 of the sum of its terms' magnitudes; in a model of two blocks with random weights that is below a tenth
 * of the largest value. */
TEST(statistics)
{
    play run = rounded("llama", "w4a16_g16", "gptq"), plain = play_elsewhere(&run, "plain");
    static const char largest[] = "SELECT max(max_abs) FROM activation";
    plain.recipe.operands = CALM_OPERANDS_F32;
    play_must_run(&run);
    play_must_run(&plain);
    const double a = number(&run, largest), b = number(&plain, largest);
    ck_assert_double_gt(b, 0);
    ck_assert_double_ne(a, b);
    ck_near(a, b, b / 10);
}
END_OF_TEST

int main(void)
{
    return run_tests("calib_dtype", (const TTest *[]){rounded_runs, runs_of_two_parts, statistics, NULL});
}
