/* Ranks on machines and cores, and what is logged about them. */
#include "ptq/cluster/seat.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/support/harness.h"

/* The logged lines, each after its level. */
static char said[2048];

static void keep(void *user, calm_log_level level, const char *line)
{
    const size_t used = strlen(said);
    (void)user;
    snprintf(said + used, sizeof said - used, "%s%s\n", level == CALM_LOG_WARNING ? "! " : "", line);
}

/* Returns a rank on `host`, which has 8 cores, with cores first .. first + n - 1. */
static calm_seat seat(const char *host, int first, int n, int threads)
{
    calm_seat p = {.n_cores = 8, .threads = threads};
    snprintf(p.host, sizeof p.host, "%s", host);
    CPU_ZERO(&p.cores);
    for (int i = first; i < first + n; i++)
        CPU_SET(i, &p.cores);
    return p;
}

static void judge(const calm_seat *seats, size_t n, const char *expected)
{
    said[0] = '\0';
    ctx->log = keep;
    calm_seat_judge(ctx, seats, n);
    ctx->log = NULL;
    ck_assert_str_eq(said, expected);
}

#define REMEDY "`mpirun --map-by slot:PE=N` and `srun --cpus-per-task=N` give each rank N separate ones\n"

TEST(this_process)
{
    const calm_seat p = calm_seat_here("here", 3);
    ck_assert_str_eq(p.host, "here");
    ck_assert_int_eq(p.threads, 3);
    ck_assert_int_eq(p.n_cores, (int)sysconf(_SC_NPROCESSORS_ONLN));
    ck_assert_int_ge(CPU_COUNT(&p.cores), 1);
    ck_assert_int_le(CPU_COUNT(&p.cores), p.n_cores);
}
END_OF_TEST

TEST(ranks_of_a_machine)
{
    const calm_seat seats[] = {seat("a", 0, 8, 1), seat("b", 0, 8, 1), seat("a", 0, 8, 1)};
    ck_assert_int_eq(calm_seat_neighbours(seats, 3, 0), 2);
    ck_assert_int_eq(calm_seat_neighbours(seats, 3, 1), 1);
    ck_assert_int_eq(calm_seat_neighbours(seats, 3, 2), 2);
}
END_OF_TEST

/* Separate cores for every rank; the same numbers on another machine are other cores. */
TEST(nothing_to_say)
{
    const calm_seat apart[] = {seat("a", 0, 4, 4), seat("a", 4, 4, 4), seat("b", 0, 8, 8)};
    judge(apart, 3, "");
}
END_OF_TEST

TEST(more_threads_than_cores)
{
    const calm_seat seats[] = {seat("a", 0, 8, 8), seat("b", 0, 8, 5), seat("b", 0, 8, 4), seat("b", 0, 8, 4)};
    judge(seats, 4, "! 3 ranks (1, 2 ...) with 13 threads on b, which has 8 cores: fewer ranks or threads would be "
                    "faster\n");
}
END_OF_TEST

/* Overlapping sets of cores, also via a third, are too few although the machine has enough. */
TEST(too_few_cores_of_enough)
{
    const calm_seat same[] = {seat("a", 0, 2, 2), seat("a", 0, 2, 2), seat("a", 4, 4, 4)};
    judge(same, 3, "! 2 ranks (0, 1) with 4 threads on a may use 2 of its 8 cores: " REMEDY);
    const calm_seat chain[] = {seat("a", 0, 2, 2), seat("a", 1, 2, 2), seat("a", 2, 2, 2)};
    judge(chain, 3, "! 3 ranks (0, 1 ...) with 6 threads on a may use 4 of its 8 cores: " REMEDY);
    const calm_seat alone[] = {seat("a", 0, 4, 4), seat("a", 4, 1, 4)};
    judge(alone, 2, "! rank 1 with 4 threads on a may use 1 of its 8 cores: " REMEDY);
}
END_OF_TEST

TEST(not_kept_apart)
{
    const calm_seat seats[] = {seat("a", 0, 8, 4), seat("a", 0, 8, 4)};
    judge(seats, 2, "2 ranks (0, 1) on a may use the same cores: " REMEDY);
}
END_OF_TEST

TEST(idle_cores)
{
    const calm_seat seats[] = {seat("a", 0, 1, 1), seat("a", 1, 1, 1)};
    judge(seats, 2, "2 ranks (0, 1) with 2 threads on a, which has 8 cores: mpirun binds a rank to one core unless "
                    "told otherwise (--bind-to none, --map-by slot:PE=N)\n");
}
END_OF_TEST

/* A system that does not tell which cores a process may use. */
TEST(cores_not_known)
{
    const calm_seat seats[] = {seat("a", 0, 0, 4), seat("a", 0, 0, 4)};
    judge(seats, 2, "");
}
END_OF_TEST

int main(void)
{
    return run_tests("seat", (const TTest *[]){this_process, ranks_of_a_machine, nothing_to_say,
                                                    more_threads_than_cores, too_few_cores_of_enough, not_kept_apart,
                                                    idle_cores, cores_not_known, NULL});
}
