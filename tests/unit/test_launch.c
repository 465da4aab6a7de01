/* What launchers' environment variables say of a process. */
#include "ptq/cluster/launch.h"

#include "tests/support/harness.h"

static void clear(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "SLURM_PROCID",
                                        "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "PMI_RANK", "PMI_SIZE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
}

static void check(const char *by, int rank, int ranks)
{
    const calm_launch found = calm_launch_read();
    ck_assert_pstr_eq(found.by, by);
    ck_assert_int_eq(found.rank, rank);
    ck_assert_int_eq(found.ranks, ranks);
}

TEST(launchers)
{
    clear();
    check(NULL, 0, 1);
    setenv("OMPI_COMM_WORLD_RANK", "2", 1);
    setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
    check("mpirun", 2, 4);
    clear();
    setenv("SLURM_PROCID", "1", 1);
    setenv("SLURM_STEP_NUM_TASKS", "2", 1);
    check("srun", 1, 2);
    clear();
    setenv("PMI_RANK", "0", 1);
    setenv("PMI_SIZE", "1", 1);
    check("mpirun", 0, 1);
}
END_OF_TEST

/* A batch script has its job's variables and is one process; invalid numbers count as unset. */
TEST(no_launchers)
{
    clear();
    setenv("SLURM_PROCID", "0", 1);
    setenv("SLURM_NTASKS", "8", 1);
    check(NULL, 0, 1);
    clear();
    static const char *const pairs[][2] = {{"4", "4"},  {"-1", "4"}, {"", "4"},
                                           {"1x", "4"}, {"0", "0"},  {"0", "9999999999"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        setenv("OMPI_COMM_WORLD_RANK", pairs[i][0], 1);
        setenv("OMPI_COMM_WORLD_SIZE", pairs[i][1], 1);
        check(NULL, 0, 1);
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("launch", (const TTest *[]){launchers, no_launchers, NULL});
}
