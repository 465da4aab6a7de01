/* Plans for a target engine: every plan of a small mixture by brute force, with the rules written down
 * independently. */
#include "ptq/plan/solve.h"

#include <stdio.h>

#include "ptq/base/rng.h"
#include "tests/support/harness.h"

/* A word that is typed as the pool has it. */
#define WORD(text) {text, text}

enum { N_JOBS = 10, N_SCHEMES = 3, N_PLANS = 59049 };    /* 3^10 */

enum { W3, W4, W8A8 };

static const char *const schemes[N_SCHEMES] = {"w3a16_g32", "w4a16_g32", "w8a8"};
static const char *const targets[] = {"any", "vllm", "sglang", "llamacpp", "mlx", "transformers"};

/* Two blocks with a dense job and two experts of two jobs each.  The dense job of block 1 may have an odd width. */
typedef struct bench {
    calm_pool_entry entries[N_SCHEMES];
    calm_pool_job jobs[N_JOBS];
    calm_pool_cell rows[N_JOBS * N_SCHEMES];
    calm_scheme schemes[N_SCHEMES];
    calm_pool pool;
    double weights;
} bench;

static void make(uint64_t seed, bool odd, bench *b)
{
    static const char *const roles[5] = {"qkv", "experts.0.gate_up", "experts.0.down", "experts.1.gate_up",
                                         "experts.1.down"};
    memset(b, 0, sizeof *b);
    for (size_t i = 0; i < N_SCHEMES; i++) {
        b->entries[i] = (calm_pool_entry){.algorithm = "rtn", .chain = "rtn", .of_scheme = i};
        ck_ok(calm_scheme_parse(ctx, schemes[i], &b->entries[i].scheme));
        b->entries[i].scheme_name = schemes[i];
        b->entries[i].name = test_format("rtn %s", schemes[i]);
        b->schemes[i] = b->entries[i].scheme;
    }
    for (size_t j = 0; j < N_JOBS; j++) {
        const char *role = roles[j % 5], *name = test_format("model.layers.%zu.%s", j / 5, role);
        b->jobs[j] = (calm_pool_job){.id = (int64_t)j + 1, .name = name, .unit = name, .role = role, .crest = NAN,
                                      .block = j / 5, .expert = j % 5 != 0, .down = j % 5 % 2 == 0 && j % 5,
                                      .out = 128 * (1 + j % 2), .in = odd && j == 5 ? 96 : 128 * (1 + j / 5)};
        b->weights += (double)(b->jobs[j].out * b->jobs[j].in);
        for (size_t i = 0; i < N_SCHEMES; i++)
            b->rows[j * N_SCHEMES + i] = (calm_pool_cell){
                .id = (int64_t)(j * N_SCHEMES + i) + 1, .key = test_format("%03zu", j * N_SCHEMES + i), .blob = "b",
                .metric = calm_rng_uniform(seed, 0, j * N_SCHEMES + i) + 0.01, .tie = 0.5,
                .probe = i ? NAN : calm_rng_uniform(seed, 1, j)};
    }
    b->pool = (calm_pool){.entries = b->entries, .n_entries = N_SCHEMES, .n_schemes = N_SCHEMES, .jobs = b->jobs,
                                .n_jobs = N_JOBS, .cells = b->rows, .schemes = b->schemes, .numbered = true,
                                .unit = CALM_UNIT_JOB, .metric = "cka_token",
                                .remedy = "measure it"};
    ck_ok(calm_pool_index(ctx, &b->pool));
}

/* ---- the rules again, on plans ---- */

static bool is_expert(size_t job)
{
    return job % 5 != 0;
}

/* Tells whether all of these jobs have one scheme. */
static bool equal(const size_t *plan, const size_t *jobs, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (plan[jobs[i]] != plan[jobs[0]])
            return false;
    return true;
}

static bool experts_equal(const char *target, const size_t *plan)
{
    static const size_t block0[] = {1, 2, 3, 4}, block1[] = {6, 7, 8, 9}, all[] = {1, 2, 3, 4, 6, 7, 8, 9};
    static const size_t projections[4][2] = {{1, 3}, {2, 4}, {6, 8}, {7, 9}};
    if (strcmp(target, "vllm") == 0 || strcmp(target, "sglang") == 0)
        return equal(plan, block0, 4) && equal(plan, block1, 4);
    if (strcmp(target, "transformers") == 0)
        return equal(plan, all, 8);
    for (size_t i = 0; i < 4; i++)
        if (!equal(plan, projections[i], 2))
            return false;
    return true;
}

static bool is_legal(const char *target, const bench *b, const size_t *plan)
{
    const bool unpadded = strcmp(target, "sglang") == 0;
    const bool weights_only = strcmp(target, "llamacpp") == 0 || strcmp(target, "mlx") == 0;
    if (strcmp(target, "any") == 0)
        return true;
    for (size_t j = 0; j < N_JOBS; j++) {
        if (weights_only && plan[j] == W8A8)
            return false;
        if (unpadded && (plan[j] == W3 || (plan[j] != W8A8 && b->jobs[j].in % 128)))
            return false;
        if ((unpadded || strcmp(target, "transformers") == 0) && is_expert(j) && plan[j] == W8A8)
            return false;
    }
    return experts_equal(target, plan);
}

static void measure(const bench *b, const size_t *plan, double *loss, double *bits)
{
    *loss = *bits = 0;
    for (size_t j = 0; j < N_JOBS; j++) {
        const calm_pool_cell *rows = &b->rows[j * N_SCHEMES];
        *loss += rows[0].probe / rows[0].metric * rows[plan[j]].metric;
        *bits += (double)(b->jobs[j].out * b->jobs[j].in) *
                 calm_scheme_bits_per_weight(&b->entries[plan[j]].scheme, b->jobs[j].out, b->jobs[j].in);
    }
}

static void decode(size_t code, size_t *plan)
{
    for (size_t j = 0; j < N_JOBS; j++, code /= N_SCHEMES)
        plan[j] = code % N_SCHEMES;
}

/* Loss and size of every plan of a bench, and whether the target takes it. */
static double losses[N_PLANS], sizes[N_PLANS];
static bool legal[N_PLANS];

static void measure_all(const char *target, const bench *b)
{
    for (size_t code = 0; code < N_PLANS; code++) {
        size_t plan[N_JOBS];
        decode(code, plan);
        measure(b, plan, &losses[code], &sizes[code]);
        legal[code] = is_legal(target, b, plan);
    }
}

/* Returns the least loss of a legal plan within this many bits, and of any plan; NaN: there is none. */
static double best_of(double bits, double *free_loss)
{
    double best = NAN;
    *free_loss = NAN;
    for (size_t code = 0; code < N_PLANS; code++) {
        if (sizes[code] > bits + 1e-6)
            continue;
        *free_loss = fmin(*free_loss, losses[code]);
        if (legal[code])
            best = fmin(best, losses[code]);
    }
    return best;
}

/* Returns the bits of the widest legal plan. */
static double widest(void)
{
    double most = 0;
    for (size_t code = 0; code < N_PLANS; code++)
        most = legal[code] ? fmax(most, sizes[code]) : most;
    return most;
}

static size_t n_solved, n_held;

/* Compares a plan with those that measure_all() listed. */
static void check_plan(const char *target, bench *b, double budget)
{
    const calm_requests requests = {.budget = budget, .engine = calm_engine_find(target)};
    double free_loss, loss, bits, best = best_of(floor(budget * b->weights + 0.5), &free_loss);
    calm_solution found;
    if (isnan(best)) {
        ck_assert_int_eq(calm_solve(ctx, &b->pool, &requests, &found), CALM_EARG);
        calm_ctx_clear_failure(ctx);
        return;
    }
    if (floor(budget * b->weights + 0.5) > widest()) {    /* the same message as without a target */
        ck_fails(calm_solve(ctx, &b->pool, &requests, &found), CALM_EARG, "the given schemes take from");
        return;
    }
    ck_ok(calm_solve(ctx, &b->pool, &requests, &found));
    n_solved++;
    measure(b, found.choice, &loss, &bits);
    ck_assert_msg(is_legal(target, b, found.choice), "%s at %g bits", target, budget);
    ck_assert(bits <= budget * b->weights + 1);
    /* Ten losses added in another order: a few units in the last place. */
    ck_near(loss, best, 1e-13 * (1 + best));
    ck_near(found.total.loss, best, 1e-13 * (1 + best));
    ck_near(found.total.unconstrained, free_loss, 1e-13 * (1 + free_loss));
    ck_assert((found.cost == NULL) == (strcmp(target, "any") == 0));
    n_held += found.total.held > 0;
    if (found.total.held == 0)
        ck_near(best, free_loss, 1e-13 * (1 + best));
    else
        ck_assert(best > free_loss && strstr(found.cost, "held back, predicted KL"));
}

TEST(plans_are_the_best_legal_ones)
{
    for (size_t t = 0; t < sizeof targets / sizeof *targets; t++)
        for (uint64_t seed = 0; seed < 4; seed++) {
            bench b;
            make(seed, seed % 2, &b);
            measure_all(targets[t], &b);
            for (double budget = 3.5; budget <= 8; budget += 0.75)
                check_plan(targets[t], &b, budget);
        }
    ck_assert_msg(n_solved > 80 && n_held > 30, "%zu solved, %zu held", n_solved, n_held);
}
END_OF_TEST

/* Each target takes plans that another refuses, so the brute force tells them apart. */
TEST(targets_differ)
{
    size_t n[6] = {0}, plan[N_JOBS];
    bench b;
    make(1, true, &b);
    for (size_t code = 0; code < N_PLANS; code++) {
        decode(code, plan);
        for (size_t t = 0; t < 6; t++)
            n[t] += is_legal(targets[t], &b, plan);
    }
    ck_assert_uint_eq(n[0], N_PLANS);
    ck_assert_uint_eq(n[1], 3 * 3 * 3 * 3);       /* of any width: dense jobs, the experts of a block */
    ck_assert_uint_eq(n[2], 2 * 1 * 1 * 1);       /* dense 2, odd dense 1, experts of a block 1 each */
    ck_assert_uint_eq(n[3], 2 * 2 * 16);          /* four projections of 2 */
    ck_assert_uint_eq(n[4], 2 * 2 * 16);
    ck_assert_uint_eq(n[5], 3 * 3 * 2);           /* the experts of the model */
}
END_OF_TEST

/* ---- without a budget, pins, messages ---- */

TEST(several_schemes_without_a_budget)
{
    bench b;
    double loss, bits, free_loss;
    for (size_t t = 1; t < 6; t++) {
        const calm_requests requests = {.budget = NAN, .engine = calm_engine_find(targets[t])};
        calm_solution found;
        make(7, true, &b);
        measure_all(targets[t], &b);
        ck_ok(calm_solve(ctx, &b.pool, &requests, &found));
        measure(&b, found.choice, &loss, &bits);
        ck_assert(is_legal(targets[t], &b, found.choice));
        ck_near(loss, best_of(INFINITY, &free_loss), 1e-12);
    }
}
END_OF_TEST

TEST(a_pin_ties_the_others)
{
    const calm_pin pins[] = {{"model.layers.0.experts.1.down", WORD("rtn w4a16_g32"), 1},
                                   {"model.layers.0.experts.0.down", WORD("rtn w8a8"), 1},
                                   {"model.layers.0.experts.0.down", WORD("rtn w3a16_g32"), 1}};
    calm_requests requests = {.budget = NAN, .pins = pins, .n_pins = 1, .engine = calm_engine_find("sglang")};
    calm_solution found;
    bench b;
    make(3, false, &b);
    ck_ok(calm_solve(ctx, &b.pool, &requests, &found));
    for (size_t j = 1; j < 5; j++)
        ck_assert_uint_eq(found.choice[j], W4);
    requests.n_pins = 2;
    requests.engine = calm_engine_find("vllm");
    ck_fails(calm_solve(ctx, &b.pool, &requests, &found), CALM_EARG,
             "`target` vllm: all experts of a block share a scheme, and none is left to them: "
             "model.layers.0.experts.0.down not w3a16_g32 (another is pinned), "
             "model.layers.0.experts.0.down not w4a16_g32 (another is pinned), "
             "model.layers.0.experts.1.down not w8a8 (another is pinned)");
    requests.engine = calm_engine_find("sglang");
    requests.pins = &pins[1];
    requests.n_pins = 1;
    ck_fails(calm_solve(ctx, &b.pool, &requests, &found), CALM_EARG,
             "`target` sglang takes no w8a8 for model.layers.0.experts.0.down");
    requests.pins = &pins[2];
    ck_fails(calm_solve(ctx, &b.pool, &requests, &found), CALM_EARG,
             "`target` sglang takes no w3a16_g32 for model.layers.0.experts.0.down");
    requests.pins = &pins[0];
    requests.n_pins = 2;
    requests.engine = calm_engine_find("any");
    ck_ok(calm_solve(ctx, &b.pool, &requests, &found));
}
END_OF_TEST

TEST(what_nothing_fits)
{
    const calm_word forbid[] = {WORD("rtn w8a8")};
    const calm_requests requests = {.budget = NAN, .forbid = forbid, .n_forbid = 1,
                                    .engine = calm_engine_find("sglang")};
    calm_solution found;
    bench b;
    make(3, true, &b);
    ck_fails(
        calm_solve(ctx, &b.pool, &requests, &found), CALM_EARG,
        "`target` sglang takes no w3a16_g32 for model.layers.1.qkv [256, 96]: it takes weights of 4 or 8 bits, not 3; "
        "`schemes` w8a8 would do");
}
END_OF_TEST

/* Experts whose candidates failed at different widths have no common scheme. */
TEST(failures_that_leave_no_scheme)
{
    const calm_requests requests = {.budget = 8, .engine = calm_engine_find("llamacpp")};
    calm_solution found;
    bench b;
    make(3, false, &b);
    b.rows[1 * N_SCHEMES + W3].failure = "broke";
    b.rows[3 * N_SCHEMES + W4].failure = "broke";
    ck_fails(calm_solve(ctx, &b.pool, &requests, &found), CALM_EARG, "`choice.budget` 8");
    ck_fails(calm_solve(ctx, &b.pool, &(calm_requests){.budget = 4, .engine = requests.engine}, &found), CALM_ENUMERIC,
             "have none in common");
}
END_OF_TEST

/* A unit of two jobs joins both projections: units of a set are merged over their jobs. */
TEST(units_of_several_jobs)
{
    const calm_requests requests = {.budget = NAN, .engine = calm_engine_find("llamacpp")};
    calm_solution found;
    bench b;
    make(3, false, &b);
    for (size_t j = 0; j < N_JOBS; j++)
        if (is_expert(j))
            b.jobs[j].unit = test_format("model.layers.%zu.experts.%zu", j / 5, (j % 5 - 1) / 2);
    b.pool.unit = CALM_UNIT_SUBLAYER;
    ck_ok(calm_pool_index(ctx, &b.pool));
    ck_ok(calm_solve(ctx, &b.pool, &requests, &found));
    ck_assert_uint_eq(b.pool.n_units, 6);
    ck_assert(found.choice[1] == found.choice[2] && found.choice[4] == found.choice[5]);
}
END_OF_TEST

int main(void)
{
    return run_tests("limits", (const TTest *[]){plans_are_the_best_legal_ones, targets_differ,
                                                     several_schemes_without_a_budget, a_pin_ties_the_others,
                                                     what_nothing_fits, failures_that_leave_no_scheme,
                                                     units_of_several_jobs, NULL});
}
