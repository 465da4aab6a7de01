/* What every test shares: Check, a context over two arenas, fixtures, temporary folders; the one user of check.h.
 *
 *   TEST(name) { ctx is ready ... }          defines a Check case with a fresh context `ctx`
 *   int main(void) { return run_tests("file", (const TTest *[]){name, ..., NULL}); } */
#ifndef CALM_TESTS_HARNESS_H
#define CALM_TESTS_HARNESS_H

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ptq/base/context.h"
#include "ptq/base/option.h"

/* Check writes where each assertion is into a file, for the message about a test that crashes: three system calls for
 * every assertion that holds, most of the time of a test with millions.  Each place writes once in a process. */
void test_mark(const char *file, int line);
#define _mark_point(file, line) test_mark((file), (line))

/* The context of the running test; cleared before and after each one. */
extern calm_ctx *const ctx;

#define TEST START_TEST
#define END_OF_TEST END_TEST

/* Run Check cases (NULL-terminated); the process's exit status.  A case whose name begins with `memory` is about how
 * much of it calls take, whatever the numbers are: CK_EXCLUDE_TAGS=memory leaves it out. */
int run_tests(const char *name, const TTest *const *tests);

/* Name of a status without its prefix ("EFORMAT"); never NULL, also for values outside the list. */
const char *calm_status_name(calm_status status);

/* The call must succeed; prints the context's message otherwise. */
#define ck_ok(expr)                                                                                          \
    do {                                                                                                     \
        calm_status ck_status_ = (expr);                                                                     \
        ck_assert_msg(ck_status_ == CALM_OK, "%s: %s: %s", #expr, calm_status_name(ck_status_), ctx->message); \
    } while (0)

/* The call must fail with this status, and the message must contain `text`; the failure is then forgiven. */
#define ck_fails(expr, expected, text)                                                                       \
    do {                                                                                                     \
        calm_status ck_status_ = (expr);                                                                     \
        ck_assert_msg(ck_status_ == (expected), "%s: %s, expected %s (%s)", #expr,                           \
                      calm_status_name(ck_status_), calm_status_name(expected), ctx->message);               \
        ck_assert_msg(strstr(ctx->message, (text)) != NULL, "%s: message \"%s\" lacks \"%s\"", #expr,         \
                      ctx->message, (text));                                                                 \
        calm_ctx_forgive(ctx);                                                                               \
    } while (0)

/* |a - b| <= tol, or both NaN-free message with the values. */
#define ck_near(a, b, tol)                                                                                   \
    do {                                                                                                     \
        double ck_a_ = (a), ck_b_ = (b), ck_t_ = (tol);                                                      \
        ck_assert_msg(fabs(ck_a_ - ck_b_) <= ck_t_, "%s = %.17g, %s = %.17g, tolerance %g", #a, ck_a_, #b,    \
                      ck_b_, ck_t_);                                                                         \
    } while (0)

/* The larger of two errors; NaN where one is, which no bound holds for (fmax would forget it). */
double test_worse(double worst, double error);

/* ---- memory that calls take ---- */

/* What ctx's arenas held between test_memory_begin and test_memory_end. */
typedef struct test_memory {
    size_t out;        /* bytes that are in ctx->out                                                      */
    size_t scratch;    /* bytes that were in ctx->scratch at most                                         */
    size_t most;       /* that all arenas, those of workers too, took from the system at most, in chunks  */
} test_memory;

/* The most bytes of this process that were resident; getrusage also counts what ran before exec. */
size_t test_resident_peak(void);

/* Fresh arenas for ctx, whose results live until the next begin; and back to those it had. */
void test_memory_begin(void);
test_memory test_memory_end(void);

/* The call, which has no workers, must succeed, leave exactly `left` bytes in ctx->out, and hold exactly `held`
 * bytes of ctx->scratch at most. */
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

/* The same of a call with workers, which hold `held` together with ctx->scratch.  Arenas take memory in chunks, so what
 * was taken is up to `n_chunks` chunks more than `left + held`: one per arena, and one for every three that small
 * requests fill.  It is less by up to `less` where not everything is held at one time. */
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

/* The call, again and again, the k-th allocation of an arena failing for k = 1, 2, ...: it fails cleanly at least
 * `least` times, and then succeeds. */
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

/* The same of all arenas together, those of workers too, whose account is full at limits that rise by `bytes`. */
#define ck_limits(bytes, least, expr)                                                                        \
    do {                                                                                                     \
        long ck_failures_ = -1;                                                                              \
        do                                                                                                   \
            test_memory_limit((bytes) * (size_t)(++ck_failures_ + 1));                                       \
        while (test_refused(#expr, (expr)));                                                                 \
        test_memory_limit(0);                                                                                \
        ck_assert_msg(ck_failures_ >= (least), "%s: %ld failures", #expr, ck_failures_);                     \
    } while (0)

/* Was the call `what` refused for lack of memory?  Other failures fail the test; that one is forgiven. */
bool test_refused(const char *what, calm_status status);

/* From here on all arenas together may take so much more than they have; 0: any. */
void test_memory_limit(size_t bytes);

/* Root of the reference fixtures: $CALM_FIXTURES, else ../shared/fixtures next to the checkout.
 * NULL where absent, after a SKIP line: return from the test. */
const char *fixtures_root(void);

/* The names of the directories (or, with `suffix`, files ending so) under root/sub, sorted, NULL-terminated; owned by
 * the harness until the end of the test.  Empty where there are no fixtures at all, after a SKIP line; fixtures that
 * lack these fail the test, so that no loop over them passes without a turn. */
char **fixture_entries(const char *sub, const char *suffix);

/* A comma list as items; "a=b,c=d" as pairs.  NULL: none.  They live until the test ends. */
calm_words test_words(const char *list);
calm_pairs test_pairs(const char *list);

/* printf into memory that lives until the end of the test. */
char *test_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A fresh directory, removed after the test. */
const char *test_directory(void);

/* tests/data/NAME in the source tree. */
const char *test_data(const char *name);

#endif
