/* Calibration by products of bfloat16: runs with `calibration.dtype` bf16. */
#include <stdlib.h>
#include <string.h>

#include "algorithms/learner.h"
#include "ptq/tensor/bf16_product.h"
#include "tests/support/play.h"

/* Windows of more than one chunk of rows, and widths that are no multiple of what the kernel takes at once. */
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

/* Another number of threads: the same bytes.  In float: other keys and other codes in the same store, whose recipes
 * tell the runs apart.  What a model is measured by is of float whatever calibrated: the float model's figures on the
 * guard's windows, which each store has of its own run, are equal to the last bit. */
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
    /* Told once, where the kernels do not go with it. */
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

/* Of two bfloat16 every stage has the same bytes for any number of threads.  Figures are near those of float32: some
 * fifteen products follow each other, each off by 3 * 2^-18 of the sizes of its terms, which leaves logits below 16 in
 * size within .003; where no CPU multiplies such operands, figures are the same. */
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
    /* Their results never stand for each other. */
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

/* Statistics are those of the model to the eight bits that operands keep.  A product rounds two operands by 2^-9 of
 * themselves, so that what it gives is off by at most 2^-8 of the sum of the sizes of its terms; in a model of two
 * blocks with random weights that is below a tenth of its largest value. */
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
