/* Test harness: Check, a context with two arenas, fixtures, temporary folders; the only file that includes check.h.
 *
 *   TEST(name) { ctx is ready ... }          defines a Check case with an empty context `ctx`
 *   int main(void) { return run_tests("file", (const TTest *[]){name, ..., NULL}); } */
#ifndef CALM_TESTS_HARNESS_H
#define CALM_TESTS_HARNESS_H

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ptq/base/context.h"
#include "ptq/base/option.h"

/* Check writes the place of each assertion into a file, for the message about a test that crashes.  That takes three
 * system calls per assertion, most of the time of a test with millions, so each place writes once in a process. */
void test_mark(const char *file, int line);
#define _mark_point(file, line) test_mark((file), (line))

/* The context of the running test; the harness clears it before and after each test. */
extern calm_ctx *const ctx;

#define TEST START_TEST
#define END_OF_TEST END_TEST

/* Runs Check cases (NULL-terminated) and returns the process's exit status.  A case whose name begins with `memory`
 * measures how much memory calls take, not numbers: CK_EXCLUDE_TAGS=memory leaves it out. */
int run_tests(const char *name, const TTest *const *tests);

/* Returns the name of a status without its prefix, "EFORMAT"; never NULL, even for unknown values. */
const char *calm_status_name(calm_status status);

/* Checks that the call succeeds; otherwise prints the context's message. */
#define ck_ok(expr)                                                                                          \
    do {                                                                                                     \
        calm_status ck_status_ = (expr);                                                                     \
        ck_assert_msg(ck_status_ == CALM_OK, "%s: %s: %s", #expr, calm_status_name(ck_status_), ctx->message); \
    } while (0)

/* Checks that the call fails with this status and a message that contains `text`; then forgives the failure. */
#define ck_fails(expr, expected, text)                                                                       \
    do {                                                                                                     \
        calm_status ck_status_ = (expr);                                                                     \
        ck_assert_msg(ck_status_ == (expected), "%s: %s, expected %s (%s)", #expr,                           \
                      calm_status_name(ck_status_), calm_status_name(expected), ctx->message);               \
        ck_assert_msg(strstr(ctx->message, (text)) != NULL, "%s: message \"%s\" lacks \"%s\"", #expr,         \
                      ctx->message, (text));                                                                 \
        calm_ctx_clear_failure(ctx);                                                                               \
    } while (0)

/* Checks |a - b| <= tol; NaN fails.  The message shows the values. */
#define ck_near(a, b, tol)                                                                                   \
    do {                                                                                                     \
        double ck_a_ = (a), ck_b_ = (b), ck_t_ = (tol);                                                      \
        ck_assert_msg(fabs(ck_a_ - ck_b_) <= ck_t_, "%s = %.17g, %s = %.17g, tolerance %g", #a, ck_a_, #b,    \
                      ck_b_, ck_t_);                                                                         \
    } while (0)

/* Returns the larger of two errors; NaN if one is NaN, so that no bound holds (fmax would return the other). */
double test_worse(double worst, double error);

/* ---- memory that calls take ---- */

/* Memory that ctx's arenas held between test_memory_begin and test_memory_end. */
typedef struct test_memory {
    size_t out;        /* bytes in ctx->out at the end                                              */
    size_t scratch;    /* peak bytes in ctx->scratch                                                */
    size_t most;       /* peak bytes that all arenas, workers' too, took from the system, in chunks */
} test_memory;

/* Returns the peak resident bytes of this process; getrusage would also count the program before exec. */
size_t test_resident_peak(void);

/* Gives ctx new arenas, whose results live until the next begin; test_memory_end restores its arenas. */
void test_memory_begin(void);
test_memory test_memory_end(void);

/* Checks that the call, which has no workers, succeeds, leaves exactly `left` bytes in ctx->out, and holds at its
 * peak exactly `held` bytes in ctx->scratch. */
#define ck_memory(expr, left, held)                                                                          \
    do {                                                                                                     \
        const size_t ck_left_ = (left), ck_held_ = (held);                                                   \
        test_memory_begin();                                                                                 \
        ck_ok(expr);                                                                                         \
        const test_memory ck_memory_ = test_memory_end();                                                    \
        ck_assert_msg(ck_memory_.out == ck_left_, "%s: left %zu bytes, said %zu", #expr, ck_memory_.out, ck_left_); \
        ck_assert_msg(ck_memory_.scratch == ck_held_, "%s: held %zu bytes, said %zu", #expr, ck_memory_.scratch, \
                      ck_held_);                                                                             \
    } while (0)

/* The same for a call with workers, which hold `held` bytes together with ctx->scratch.  Arenas take memory in
 * chunks, so they take up to `n_chunks` chunks more than `left + held`: one per arena, and one for every three that
 * small requests fill.  They take up to `less` bytes less if not all is held at the same time. */
#define ck_memory_of_workers(expr, left, held, n_chunks, less)                                               \
    do {                                                                                                     \
        const size_t ck_left_ = (left), ck_all_ = ck_left_ + (held);                                         \
        test_memory_begin();                                                                                 \
        ck_ok(expr);                                                                                         \
        const test_memory ck_memory_ = test_memory_end();                                                    \
        ck_assert_msg(ck_memory_.out == ck_left_, "%s: left %zu bytes, said %zu", #expr, ck_memory_.out, ck_left_); \
        ck_assert_msg(ck_memory_.most + (less) >= ck_all_ &&                                                 \
                          ck_memory_.most <= ck_all_ + (n_chunks) * CALM_ARENA_CHUNK,                        \
                      "%s: held %zu bytes, said %zu", #expr, ck_memory_.most, ck_all_);                      \
    } while (0)

/* ---- memory that is not there ---- */

/* Repeats the call while the k-th allocation of an arena fails for k = 1, 2, ...: it must fail cleanly at least
 * `least` times, and then succeed. */
#define ck_allocations(arena, least, expr)                                                                   \
    do {                                                                                                     \
        long ck_failures_ = -1;                                                                              \
        bool ck_refused_;                                                                                    \
        do {                                                                                                 \
            (arena)->fail_in = ++ck_failures_ + 1;                                                           \
            ck_refused_ = test_refused(#expr, (expr));                                                       \
            (arena)->fail_in = 0;                                                                            \
        } while (ck_refused_);                                                                               \
        ck_assert_msg(ck_failures_ >= (least), "%s: %ld failures", #expr, ck_failures_);                     \
    } while (0)

/* The same for all arenas together, workers' too, under memory limits that rise by `bytes`. */
#define ck_limits(bytes, least, expr)                                                                        \
    do {                                                                                                     \
        long ck_failures_ = -1;                                                                              \
        do                                                                                                   \
            test_memory_limit((bytes) * (size_t)(++ck_failures_ + 1));                                       \
        while (test_refused(#expr, (expr)));                                                                 \
        test_memory_limit(0);                                                                                \
        ck_assert_msg(ck_failures_ >= (least), "%s: %ld failures", #expr, ck_failures_);                     \
    } while (0)

/* Did the call `what` fail for lack of memory?  Forgives that failure; other failures fail the test. */
bool test_refused(const char *what, calm_status status);

/* Limits the memory that all arenas together may take in addition from now on; 0: no limit. */
void test_memory_limit(size_t bytes);

/* Returns the root of the reference fixtures: $CALM_FIXTURES, else ../shared/fixtures next to the checkout.  NULL if
 * it is missing, after a SKIP line: then return from the test. */
const char *fixtures_root(void);

/* Returns the names of the directories (or, with `suffix`, of files that end so) in root/sub, sorted,
 * NULL-terminated; the harness owns them until the end of the test.  The list is empty, after a SKIP line, if there
 * are no fixtures at all; if only these are missing, the test fails, so that no loop over them passes without a
 * turn. */
char **fixture_entries(const char *sub, const char *suffix);

/* Splits a comma list into items, or "a=b,c=d" into pairs; NULL: none.  They live until the end of the test. */
calm_words test_words(const char *list);
calm_pairs test_pairs(const char *list);

/* Formats as printf into memory that lives until the end of the test. */
char *test_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Makes an empty directory, which the harness removes after the test. */
const char *test_directory(void);

/* Returns the path of tests/data/NAME in the source tree. */
const char *test_data(const char *name);

#endif
