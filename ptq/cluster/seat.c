/* Cores of ranks: a group is the ranks of one machine whose sets of cores meet, directly or by way of others.  Groups
 * take no cores of each other; within one, threads go where the kernel puts them. */
#include "ptq/cluster/seat.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

calm_seat calm_seat_here(const char *host, int threads)
{
    calm_seat seat = {.n_cores = (int)sysconf(_SC_NPROCESSORS_ONLN), .threads = threads};
    snprintf(seat.host, sizeof seat.host, "%s", host);
    if (sched_getaffinity(0, sizeof seat.cores, &seat.cores) != 0)
        CPU_ZERO(&seat.cores);    /* not known: it meets no other */
    return seat;
}

static bool on_one_machine(const calm_seat *a, const calm_seat *b)
{
    return strcmp(a->host, b->host) == 0;
}

int calm_seat_neighbours(const calm_seat *seats, size_t n, size_t rank)
{
    int count = 0;
    for (size_t r = 0; r < n; r++)
        count += on_one_machine(&seats[r], &seats[rank]);
    return count;
}

/* Some ranks of one machine. */
typedef struct group {
    const calm_seat *first;
    size_t a, b;          /* the first two of them        */
    int ranks, threads;
    cpu_set_t cores;      /* of all of them               */
} group;

static void join(group *g, const calm_seat *seats, size_t rank)
{
    if (g->ranks++ == 0) {
        g->first = &seats[rank];
        g->a = rank;
        CPU_ZERO(&g->cores);
    } else if (g->ranks == 2) {
        g->b = rank;
    }
    g->threads += seats[rank].threads;
    CPU_OR(&g->cores, &g->cores, &seats[rank].cores);
}

/* All ranks on the machine of `rank`. */
static group machine_of(const calm_seat *seats, size_t n, size_t rank)
{
    group g = {.ranks = 0};
    for (size_t r = 0; r < n; r++)
        if (on_one_machine(&seats[r], &seats[rank]))
            join(&g, seats, r);
    return g;
}

/* The ranks whose cores meet those of `rank`; none where its cores are not known. */
static group group_of(const calm_seat *seats, size_t n, size_t rank)
{
    group g = {.ranks = 0};
    cpu_set_t reach = seats[rank].cores, met;
    /* Until no rank adds a core. */
    for (int before = -1; before != CPU_COUNT(&reach);) {
        before = CPU_COUNT(&reach);
        for (size_t r = 0; r < n; r++) {
            CPU_AND(&met, &reach, &seats[r].cores);
            if (on_one_machine(&seats[r], &seats[rank]) && CPU_COUNT(&met) > 0)
                CPU_OR(&reach, &reach, &seats[r].cores);
        }
    }
    for (size_t r = 0; r < n; r++) {
        CPU_AND(&met, &reach, &seats[r].cores);
        if (on_one_machine(&seats[r], &seats[rank]) && CPU_COUNT(&met) > 0)
            join(&g, seats, r);
    }
    return g;
}

typedef struct faults {
    group crowded, squeezed, loose, idle;    /* the first of each kind; no ranks: none */
} faults;

static void note(group *first, const group *g, bool holds)
{
    if (holds && !first->ranks)
        *first = *g;
}

static faults find(const calm_seat *seats, size_t n)
{
    faults found = {.crowded.ranks = 0};
    for (size_t r = 0; r < n; r++) {
        const group all = machine_of(seats, n, r), met = group_of(seats, n, r);
        const bool crowded = all.threads > all.first->n_cores, tight = met.threads > CPU_COUNT(&met.cores);
        note(&found.crowded, &all, crowded);
        note(&found.idle, &all, all.threads * 2 <= all.first->n_cores);
        /* Where there are too few cores, that is all there is to say. */
        note(&found.squeezed, &met, !crowded && met.ranks && tight);
        note(&found.loose, &met, !crowded && met.ranks > 1 && !tight);
    }
    return found;
}

/* "3 ranks (0, 1 ...)", "rank 2" */
static void name(const group *g, char *out, size_t size)
{
    if (g->ranks == 1)
        snprintf(out, size, "rank %zu", g->a);
    else
        snprintf(out, size, "%d ranks (%zu, %zu%s)", g->ranks, g->a, g->b, g->ranks > 2 ? " ..." : "");
}

void calm_seat_judge(calm_ctx *ctx, const calm_seat *seats, size_t n)
{
    const faults f = find(seats, n);
    const char *remedy = "`mpirun --map-by slot:PE=N` and `srun --cpus-per-task=N` give each rank N separate ones";
    char who[64];
    name(&f.crowded, who, sizeof who);
    if (f.crowded.ranks)
        calm_log(ctx, CALM_LOG_WARNING, "%s with %d threads on %s, which has %d cores: fewer ranks or threads would be "
                 "faster", who, f.crowded.threads, f.crowded.first->host, f.crowded.first->n_cores);
    name(&f.squeezed, who, sizeof who);
    if (f.squeezed.ranks)
        calm_log(ctx, CALM_LOG_WARNING, "%s with %d threads on %s may use %d of its %d cores: %s", who,
                 f.squeezed.threads, f.squeezed.first->host, CPU_COUNT(&f.squeezed.cores), f.squeezed.first->n_cores,
                 remedy);
    name(&f.loose, who, sizeof who);
    if (f.loose.ranks)
        calm_log(ctx, CALM_LOG_INFO, "%s on %s may use the same cores: %s", who, f.loose.first->host, remedy);
    name(&f.idle, who, sizeof who);
    if (f.idle.ranks && !f.squeezed.ranks)
        calm_log(ctx, CALM_LOG_INFO, "%s with %d threads on %s, which has %d cores: mpirun binds a rank to one core "
                 "unless told otherwise (--bind-to none, --map-by slot:PE=N)", who, f.idle.threads, f.idle.first->host,
                 f.idle.first->n_cores);
}
