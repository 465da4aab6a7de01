/* shared_h.c: the candidates of a job share one factor of the Hessian, for any knobs of memory, and the bytes are
 * the same.  The linker wraps the two functions that compute factors, and the test counts their calls. */
#include <stdatomic.h>
#include <string.h>

#include "ptq/tensor/inverse_root.h"
#include "tests/support/play.h"

#define N_JOBS 8        /* 2 blocks of qkv, o, gate_up, down */
#define RESTARTS 8      /* orders of restarts, each with a factor */

static atomic_int n_factors;

calm_status __wrap_calm_dinverse_root(calm_ctx *c, size_t n, double *a, size_t lda);
calm_status __real_calm_dinverse_root(calm_ctx *c, size_t n, double *a, size_t lda);
calm_status __wrap_calm_sroot(calm_ctx *c, size_t n, float *a, size_t lda);
calm_status __real_calm_sroot(calm_ctx *c, size_t n, float *a, size_t lda);

calm_status __wrap_calm_dinverse_root(calm_ctx *c, size_t n, double *a, size_t lda)
{
    atomic_fetch_add(&n_factors, 1);
    return __real_calm_dinverse_root(c, n, a, lda);
}

calm_status __wrap_calm_sroot(calm_ctx *c, size_t n, float *a, size_t lda)
{
    atomic_fetch_add(&n_factors, 1);
    return __real_calm_sroot(c, n, a, lda);
}

/* Returns the number of factors that a run computes. */
static int factors_of(const play *run, int n_threads, const calm_knobs *knobs)
{
    const calm_run_options options = {.command = "calm test"};
    play made = *run;
    calm_run *finished = NULL;
    made.recipe.knobs = knobs;
    ctx->n_threads = n_threads;
    atomic_store(&n_factors, 0);
    ck_ok(calm_run_quantize(ctx, &made.recipe, &options, &finished));
    calm_run_close(&finished);
    return atomic_load(&n_factors);
}

/* Checks the factors per job if candidates are processed at once, and if one at a time. */
static void check_pool(const char *pool, int at_once, int one_by_one)
{
    static const calm_knobs knobs[] = {{.candidates_at_once = 1, .experts_at_once = 1},
                                       {.candidates_at_once = 1, .experts_at_once = 1, .slices = true},
                                       {.candidates_at_once = 2, .experts_at_once = 1, .slices = true},
                                       {.experts_at_once = 1}};
    const play run = play_new(NULL, "w4a16_g16", pool);
    ck_assert_int_eq(factors_of(&run, 1, NULL), N_JOBS * one_by_one);
    const char *expected = play_digest(run.recipe.output);
    for (size_t i = 0; i < sizeof knobs / sizeof *knobs; i++) {
        const play other = play_elsewhere(&run, test_format("with%zu", i));
        const int found = factors_of(&other, 2, &knobs[i]);
        const int expected_n = N_JOBS * (knobs[i].candidates_at_once == 1 ? one_by_one : at_once);
        ck_assert_msg(found == expected_n, "%s, knobs %zu: %d factors, expected %d", pool, i, found, expected_n);
        ck_assert_str_eq(play_digest(other.recipe.output), expected);
        ck_assert_str_eq(play_text(&other, "SELECT key || blob FROM candidate ORDER BY id"),
                         play_text(&run, "SELECT key || blob FROM candidate ORDER BY id"));
    }
}

TEST(one_factor_a_job)
{
    check_pool("gptq,gptq-hls", 1, 1);
    check_pool("rtn,gptq,mkq,gptq-hls,mkq-full", 1 + RESTARTS, 1 + RESTARTS);
}
END_OF_TEST

/* One candidate at a time: restarts overwrite the first factor, which is computed again after them. */
TEST(another_after_those_of_other_orders)
{
    check_pool("mkq-full,gptq", 1 + RESTARTS, 2 + RESTARTS);
}
END_OF_TEST

/* Another damping needs another factor; one candidate at a time it replaces the first. */
TEST(one_of_each_damping)
{
    check_pool("gptq,absmax+gptq(damp=0.02),gptq-hls", 2, 3);
}
END_OF_TEST

int main(void)
{
    return run_tests("shared_h", (const TTest *[]){one_factor_a_job, another_after_those_of_other_orders,
                                                   one_of_each_damping, NULL});
}
