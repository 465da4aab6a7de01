/* Limits of this process on its address space and its data. */
#include "ptq/base/memory.h"

#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

/* Returns the size of the address space of the process, or of its data; 0: the system does not say. */
static size_t used_bytes(bool data)
{
    size_t pages[6] = {0};
    FILE *stream = fopen("/proc/self/statm", "r");
    if (!stream)
        return 0;
    const int n = fscanf(stream, "%zu %zu %zu %zu %zu %zu", &pages[0], &pages[1], &pages[2], &pages[3], &pages[4],
                         &pages[5]);
    fclose(stream);
    return n == 6 ? pages[data ? 5 : 0] * (size_t)sysconf(_SC_PAGESIZE) : 0;
}

size_t calm_memory_left(size_t *limit_bytes, const char **option)
{
    static const struct {
        int resource;
        const char *option;
    } kinds[] = {{RLIMIT_AS, "ulimit -v"}, {RLIMIT_DATA, "ulimit -d"}};
    size_t least = SIZE_MAX;
    for (int i = 0; i < 2; i++) {
        struct rlimit limit;
        if (getrlimit(kinds[i].resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
            continue;
        const size_t used = used_bytes(i == 1), most = (size_t)limit.rlim_cur, left = most > used ? most - used : 0;
        if (left >= least)
            continue;
        least = left;
        *limit_bytes = most;
        *option = kinds[i].option;
    }
    return least;
}
