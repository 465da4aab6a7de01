/* Requests: words that name entries, pins that meet in a unit, and pools whose candidates are still to be computed. */
#include "ptq/plan/solve.h"

#include "tests/support/harness.h"

/* A word that is typed as the pool has it. */
#define WORD(text) {text, text}

enum { N_JOBS = 4, N_ENTRIES = 3 };    /* two blocks of qkv and down; rtn, mkq, mkq-full */

typedef struct bench {
    calm_pool_entry entries[N_ENTRIES];
    calm_pool_job jobs[N_JOBS];
    calm_pool_cell cells[N_JOBS * N_ENTRIES];
    calm_scheme scheme;
    calm_pool pool;
} bench;

static void make(bench *b)
{
    static const char *const algorithms[] = {"rtn", "mkq", "mkq-full"};
    memset(b, 0, sizeof *b);
    ck_ok(calm_scheme_parse(ctx, "w4a16_g128", &b->scheme));
    for (size_t i = 0; i < N_ENTRIES; i++) {
        b->entries[i] = (calm_pool_entry){.name = algorithms[i], .algorithm = algorithms[i], .scheme = b->scheme,
                                          .scheme_name = "w4a16_g128", .chain = test_format("%s@1(x=1)",
                                          algorithms[i])};
    }
    for (size_t j = 0; j < N_JOBS; j++) {
        const char *name = test_format("model.layers.%zu.%s", j / 2, j % 2 ? "down" : "qkv");
        b->jobs[j] = (calm_pool_job){.id = (int64_t)j + 1, .name = name, .unit = name, .role = j % 2 ? "down" : "qkv",
                                     .block = j / 2, .out = 128, .in = 128, .down = j % 2, .crest = NAN};
        for (size_t i = 0; i < N_ENTRIES; i++)
            b->cells[j * N_ENTRIES + i] = (calm_pool_cell){.id = (int64_t)(j * N_ENTRIES + i) + 1,
                                                           .key = "k",
                                                           .blob = "b",
                                                           .metric = 1 + (double)i,
                                                           .tie = 0,
                                                           .probe = NAN};
    }
    b->pool = (calm_pool){.entries = b->entries, .n_entries = N_ENTRIES, .schemes = &b->scheme, .n_schemes = 1,
                          .jobs = b->jobs, .n_jobs = N_JOBS, .cells = b->cells, .metric = "cka_token", .numbered = true,
                          .remedy = "measure it"};
    ck_ok(calm_pool_index(ctx, &b->pool));
}

/* ---- words ---- */

static size_t count_marks(bench *b, const char *said, const char *means)
{
    bool marks[N_ENTRIES];
    size_t n = 0;
    ck_ok(calm_word_entries(ctx, b->entries, N_ENTRIES, "choice.forbid", &(calm_word){said, means}, marks));
    for (size_t i = 0; i < N_ENTRIES; i++)
        n += marks[i];
    return n;
}

TEST(words_name_entries)
{
    bench b;
    bool marks[N_ENTRIES];
    make(&b);
    ck_assert_uint_eq(count_marks(&b, "mkq", "mkq"), 1);    /* not mkq-full, which only begins so */
    ck_assert_uint_eq(count_marks(&b, "mkq*", "mkq*"), 2);
    ck_assert_uint_eq(count_marks(&b, "*", "*"), 3);
    ck_assert_uint_eq(count_marks(&b, "mkq w4a16_g128", "mkq w4a16_g128"), 1);
    ck_assert_uint_eq(count_marks(&b, "mkq(x=1)", "mkq@1(x=1)"), 1);
    ck_assert_uint_eq(count_marks(&b, "mkq(x=1) w4a16_g128", "mkq@1(x=1) w4a16_g128"), 1);
    ck_fails(calm_word_entries(ctx, b.entries, N_ENTRIES, "choice.forbid", &(calm_word)WORD("mkq w3a16_g128"), marks),
             CALM_EARG, "`choice.forbid` mkq w3a16_g128: no candidate has that name");
    ck_fails(calm_word_entries(ctx, b.entries, N_ENTRIES, "choice.forbid", &(calm_word)WORD("gptq*"), marks), CALM_EARG,
             "there are rtn, mkq, mkq-full");
}
END_OF_TEST

/* ---- pins that meet ---- */

static calm_status open_pins(bench *b, const calm_pin *pins, size_t n, calm_scope *out)
{
    const calm_requests requests = {.pins = pins, .n_pins = n, .budget = NAN};
    return calm_scope_open(ctx, &b->pool, &requests, out);
}

/* Checks the entry that pins leave to each unit; N_ENTRIES: several. */
static void check_pinned(bench *b, const calm_pin *pins, size_t n, const size_t expected[N_JOBS])
{
    calm_scope scope;
    ck_ok(open_pins(b, pins, n, &scope));
    for (size_t u = 0; u < N_JOBS; u++) {
        size_t entry = N_ENTRIES;
        if (!calm_scope_only_entry(&b->pool, &scope, u, &entry))
            entry = N_ENTRIES;
        ck_assert_uint_eq(entry, expected[u]);
        ck_assert_int_eq(calm_scope_pins(&b->pool, &scope, u, 2), expected[u] == 2);
    }
}

TEST(an_exact_name_beats_a_pattern)
{
    const calm_pin either[][2] = {{{"*.down", WORD("rtn"), 0}, {"0.down", WORD("mkq"), 0}},
                                  {{"model.layers.0.down", WORD("mkq"), 0}, {"*.down", WORD("rtn"), 0}}};
    bench b;
    make(&b);
    for (size_t i = 0; i < 2; i++)
        check_pinned(&b, either[i], 2, (const size_t[N_JOBS]){N_ENTRIES, 1, N_ENTRIES, 0});
}
END_OF_TEST

TEST(patterns_that_disagree_are_refused)
{
    const calm_pin differ[] = {{"*.down", WORD("rtn"), 0}, {"*0.*", WORD("mkq"), 0}};
    const calm_pin agree[] = {{"*.down", WORD("rtn"), 0}, {"*0.*", WORD("rtn"), 0}};
    const calm_pin exact[] = {{"0.down", WORD("rtn"), 0}, {"model.layers.0.down", WORD("mkq"), 0}};
    calm_scope scope;
    bench b;
    make(&b);
    ck_fails(open_pins(&b, differ, 2, &scope), CALM_EARG, "model.layers.0.down is to be rtn (*.down) and mkq (*0.*)");
    ck_fails(open_pins(&b, exact, 2, &scope), CALM_EARG, "model.layers.0.down is to be rtn (0.down) and mkq");
    check_pinned(&b, agree, 2, (const size_t[N_JOBS]){0, 0, N_ENTRIES, 0});
}
END_OF_TEST

/* Later requests have precedence, a pattern also over an earlier exact name. */
TEST(later_rounds_count_more)
{
    const calm_pin pins[] = {{"0.down", WORD("rtn"), 0}, {"*.down", WORD("mkq"), 1}, {"1.*", WORD("mkq-full"), 2}};
    calm_scope scope;
    bench b;
    make(&b);
    check_pinned(&b, pins, 3, (const size_t[N_JOBS]){N_ENTRIES, 1, 2, 2});
    /* An overridden pin must name something too. */
    const calm_pin wrong[] = {{"0.dwon", WORD("rtn"), 0}, {"*.down", WORD("mkq"), 1}};
    ck_fails(open_pins(&b, wrong, 2, &scope), CALM_EARG, "did you mean \"0.down\"?");
}
END_OF_TEST

/* ---- pools that are not computed yet ---- */

TEST(a_pending_pool)
{
    const calm_pin number = {"0.down", WORD("#5"), 0}, name = {"0.down", WORD("mkq"), 0};
    calm_scope scope;
    bench b;
    make(&b);
    b.pool.pending = true;
    b.pool.numbered = false;
    for (size_t i = 0; i < N_JOBS * N_ENTRIES; i++)
        b.cells[i] = (calm_pool_cell){0};
    ck_ok(open_pins(&b, &number, 1, &scope));
    ck_assert(scope.pin[1] && calm_scope_pins(&b.pool, &scope, 1, 0));    /* it may be any of them */
    ck_ok(open_pins(&b, &name, 1, &scope));
    ck_assert(!calm_scope_pins(&b.pool, &scope, 1, 0) && calm_scope_pins(&b.pool, &scope, 1, 1));
    ck_ok(calm_budget_check(ctx, &b.pool, &scope, 4.125));
    ck_fails(calm_budget_check(ctx, &b.pool, &scope, 4.0), CALM_EARG, "take from 4.1250 to 4.1250 bits per weight");
    /* Once ids are known a number is checked, although nothing is computed. */
    b.pool.numbered = true;
    ck_fails(open_pins(&b, &number, 1, &scope), CALM_EARG, "#5: the run has no such candidate");
    b.cells[4].id = 5;
    ck_ok(open_pins(&b, &number, 1, &scope));
    ck_assert(!calm_scope_pins(&b.pool, &scope, 1, 0) && calm_scope_pins(&b.pool, &scope, 1, 1));
    b.pool.pending = false;
    b.cells[4].failure = "died";
    ck_fails(open_pins(&b, &number, 1, &scope), CALM_ENUMERIC, "has no such result: died");
}
END_OF_TEST

/* A pin to several entries leaves the choice among them to the rule, and a uniform plan what the pin allows. */
TEST(a_pin_to_several)
{
    const calm_pin pin = {"*.down", WORD("mkq*"), 0};
    const calm_requests requests = {.pins = &pin, .n_pins = 1, .budget = NAN};
    calm_solution found;
    calm_scope scope;
    bench b;
    make(&b);
    ck_ok(calm_solve(ctx, &b.pool, &requests, &found));
    ck_assert_uint_eq(found.choice[0], 0);
    ck_assert_uint_eq(found.choice[1], 1);
    ck_assert(strncmp(found.reasons[1], "pinned by the recipe; least", 27) == 0);
    ck_ok(calm_scope_open(ctx, &b.pool, &requests, &scope));
    ck_ok(calm_solve_uniform(ctx, &b.pool, &scope, 2, &found));
    ck_assert_uint_eq(found.choice[1], 2);
    ck_ok(calm_solve_uniform(ctx, &b.pool, &scope, 0, &found));
    ck_assert_uint_eq(found.choice[0], 0);
    ck_assert_uint_eq(found.choice[1], 1);
}
END_OF_TEST

int main(void)
{
    return run_tests("requests", (const TTest *[]){
        words_name_entries, an_exact_name_beats_a_pattern,
        patterns_that_disagree_are_refused, later_rounds_count_more, a_pending_pool, a_pin_to_several, NULL});
}
