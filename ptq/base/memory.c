/* Accounts of memory, and what the system says. */
#include "ptq/base/memory.h"

#include <malloc.h>
#include <stdio.h>
#include <string.h>

/* Blocks from this size on are mapped one by one.  Tasks take and give back the same few megabytes over and over: those
 * are kept instead of asking the system each time.  Fixed, or the C library would raise it. */
#define MAPPED_BYTES (16 * 1024 * 1024)
/* What may lie free at the end of a heap.  With holes that is up to a fifth of what was taken, as measured. */
#define TRIM_BYTES (2 * MAPPED_BYTES)
#define HOLES      5

void calm_memory_set_limit(calm_memory *memory, size_t bytes)
{
    if (memory)
        atomic_store(&memory->limit, bytes);
}

size_t calm_memory_limit(const calm_memory *memory)
{
    return memory ? atomic_load(&memory->limit) : 0;
}

size_t calm_memory_used(const calm_memory *memory)
{
    return memory ? atomic_load(&memory->used) : 0;
}

size_t calm_memory_peak(const calm_memory *memory)
{
    return memory ? atomic_load(&memory->peak) : 0;
}

void calm_memory_restart(calm_memory *memory)
{
    if (memory)
        atomic_store(&memory->peak, atomic_load(&memory->used));
}

bool calm_memory_take(calm_memory *memory, size_t bytes)
{
    if (!memory)
        return true;
    const size_t limit = atomic_load(&memory->limit);
    size_t used = atomic_load(&memory->used), now;
    do {    /* in one step: a request that is refused must not be seen by another that would fit */
        now = used + bytes;
        if (now < used || (limit && now > limit))
            return false;
    } while (!atomic_compare_exchange_weak(&memory->used, &used, now));
    size_t peak = atomic_load(&memory->peak);
    while (now > peak && !atomic_compare_exchange_weak(&memory->peak, &peak, now))
        continue;
    return true;
}

void calm_memory_give(calm_memory *memory, size_t bytes)
{
    if (memory)
        atomic_fetch_sub(&memory->used, bytes);
}

void calm_memory_setup(void)
{
    mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES);
    mallopt(M_TRIM_THRESHOLD, TRIM_BYTES);
}

size_t calm_memory_kept(size_t bytes, size_t n_threads)
{
    const size_t most = (n_threads + 1) * TRIM_BYTES;
    return bytes / HOLES < most ? bytes / HOLES : most;
}

/* ---- what the system says ---- */

/* The number after `key` in a file of lines, times `unit`; 0 when it is not there. */
static size_t read_number(const char *path, const char *key, size_t unit)
{
    char line[256];
    size_t value = 0;
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    while (fgets(line, sizeof line, file))
        if (strncmp(line, key, strlen(key)) == 0 && sscanf(line + strlen(key), "%zu", &value) == 1)
            break;
    fclose(file);
    return value * unit;
}

size_t calm_memory_resident(void)
{
    return read_number("/proc/self/status", "VmRSS:", 1024);
}

size_t calm_memory_available(void)
{
    const size_t system = read_number("/proc/meminfo", "MemAvailable:", 1024);
    const size_t group_limit = read_number("/sys/fs/cgroup/memory.max", "", 1);    /* "max" is no number: 0 */
    const size_t group_used = read_number("/sys/fs/cgroup/memory.current", "", 1);
    if (group_limit == 0)
        return system;
    const size_t group = group_limit > group_used ? group_limit - group_used : 0;
    return system && system < group ? system : group;
}
