/* Memory accounts, and the system's memory figures. */
#include "ptq/base/memory.h"

#include <malloc.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* malloc threshold of separate mappings.  Set explicitly, since the C library would raise it dynamically. */
#define MAPPED_BYTES (16 * 1024 * 1024)
/* Free memory that the C library keeps in a heap, where arenas only have chunks below a megabyte: tasks allocate
 * and free the same few chunks repeatedly.  At most a fifth of the allocated bytes, as measured. */
#define TRIM_BYTES (8 * 1024 * 1024)
#define HOLES      5
/* Spare pages in addition to the most that arenas held: requests of other sizes leave fragments that no request
 * fits, and without this room each window of a forward pass causes its page faults again (4 % of its time). */
#define ROOM_BYTES ((size_t)32 * 1024 * 1024)
#define ROOM       8

void calm_memory_set_limit(calm_memory *memory, size_t bytes)
{
    if (!memory)
        return;
    atomic_store(&memory->limit, bytes);
    /* Spare pages of the time before may exceed the new limit. */
    calm_memory_release(memory);
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

static void raise_to(atomic_size_t *most, size_t bytes)
{
    size_t before = atomic_load(most);
    while (bytes > before && !atomic_compare_exchange_weak(most, &before, bytes))
        continue;
}

bool calm_memory_take(calm_memory *memory, size_t bytes)
{
    if (!memory)
        return true;
    const size_t limit = atomic_load(&memory->limit);
    size_t used = atomic_load(&memory->used), now;
    do {    /* one atomic step: a concurrent request that fits must not see one that is refused  */
        now = used + bytes;
        if (now < used || (limit && now > limit))
            return false;
    } while (!atomic_compare_exchange_weak(&memory->used, &used, now));
    raise_to(&memory->peak, now);
    raise_to(&memory->most, now);
    return true;
}

void calm_memory_give(calm_memory *memory, size_t bytes)
{
    if (memory)
        atomic_fetch_sub(&memory->used, bytes);
}

/* ---- spare pages ---- */

size_t calm_memory_room(size_t bytes)
{
    return bytes / ROOM < ROOM_BYTES ? bytes / ROOM : ROOM_BYTES;
}

/* Returns the most bytes that arenas and spare pages may hold together. */
static size_t most_held(const calm_memory *memory)
{
    const size_t limit = atomic_load(&memory->limit), most = atomic_load(&memory->most),
                 held = most + calm_memory_room(most);
    return !limit || held < limit ? held : limit;
}

/* Header at the beginning of spare pages. */
struct calm_spare_pages {
    calm_spare_pages *older;
    size_t bytes;
};

/* Enters a critical section by a spin lock: each has a handful of instructions, which are not worth a mutex. */
static void enter(calm_memory *memory)
{
    while (atomic_exchange_explicit(&memory->busy, true, memory_order_acquire))
        sched_yield();
}

static void leave(calm_memory *memory)
{
    atomic_store_explicit(&memory->busy, false, memory_order_release);
}

/* Removes an entry from the list.  The caller holds the lock, as for the functions below. */
static calm_spare_pages *unlink_spare(calm_memory *memory, calm_spare_pages **at)
{
    calm_spare_pages *found = *at;
    *at = found->older;
    memory->spare_bytes -= found->bytes;
    return found;
}

static void link_spare(calm_memory *memory, void *pages, size_t bytes)
{
    calm_spare_pages *spare = pages;
    *spare = (calm_spare_pages){memory->spare, bytes};
    memory->spare = spare;
    memory->spare_bytes += bytes;
}

/* Takes `bytes` from the smallest spare pages that are large enough; the rest stays spare.  NULL: none are. */
static void *take_spare(calm_memory *memory, size_t bytes)
{
    calm_spare_pages **best = NULL;
    for (calm_spare_pages **at = &memory->spare; *at; at = &(*at)->older)
        if ((*at)->bytes >= bytes && (!best || (*at)->bytes < (*best)->bytes))
            best = at;
    if (!best)
        return NULL;
    calm_spare_pages *found = unlink_spare(memory, best);
    if (found->bytes > bytes)
        link_spare(memory, (char *)found + bytes, found->bytes - bytes);
    return found;
}

/* Adds spare pages and merges them with adjacent ones, so that many small ones can serve a large request. */
static void put_spare(calm_memory *memory, char *pages, size_t bytes)
{
    for (calm_spare_pages **at = &memory->spare; *at;) {
        const bool before = (char *)*at + (*at)->bytes == pages;
        if (!before && pages + bytes != (char *)*at) {
            at = &(*at)->older;
            continue;
        }
        calm_spare_pages *joined = unlink_spare(memory, at);
        pages = before ? (char *)joined : pages;
        bytes += joined->bytes;
    }
    link_spare(memory, pages, bytes);
}

static calm_spare_pages *take_oldest(calm_memory *memory)
{
    calm_spare_pages **at = &memory->spare;
    while ((*at)->older)
        at = &(*at)->older;
    return unlink_spare(memory, at);
}


size_t calm_memory_whole_pages(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), rest = bytes % page;
    return rest && bytes < SIZE_MAX - page ? bytes + page - rest : bytes;
}

void calm_memory_trim(calm_memory *memory)
{
    for (calm_spare_pages *oldest = NULL; memory; oldest = NULL) {
        enter(memory);
        if (memory->spare_bytes && atomic_load(&memory->used) + memory->spare_bytes > most_held(memory))
            oldest = take_oldest(memory);
        leave(memory);
        if (!oldest)
            return;
        munmap(oldest, oldest->bytes);
    }
}

void calm_memory_release(calm_memory *memory)
{
    if (memory)
        atomic_store(&memory->most, atomic_load(&memory->used));
    calm_memory_trim(memory);
}

void *calm_memory_map(calm_memory *memory, size_t bytes, bool *zero)
{
    void *pages = NULL;
    if (memory) {
        enter(memory);
        pages = take_spare(memory, bytes);
        leave(memory);
        calm_memory_trim(memory);
    }
    *zero = !pages;
    if (pages)
        return pages;
    pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED)
        return NULL;
    madvise(pages, bytes, MADV_HUGEPAGE);    /* best effort: small pages work, too */
    return pages;
}

void calm_memory_unmap(calm_memory *memory, void *pages, size_t bytes)
{
    bool kept = false;
    if (memory) {
        enter(memory);
        kept = atomic_load(&memory->used) + memory->spare_bytes + bytes <= most_held(memory);
        if (kept)
            put_spare(memory, pages, bytes);
        leave(memory);
    }
    if (!kept)
        munmap(pages, bytes);
}

void calm_memory_setup(void)
{
    mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES);
    mallopt(M_TRIM_THRESHOLD, TRIM_BYTES);
}

size_t calm_memory_kept(size_t bytes, size_t n_threads)
{
    const size_t most = n_threads * TRIM_BYTES;
    return bytes / HOLES < most ? bytes / HOLES : most;
}

/* ---- figures of the system ---- */

/* Returns the number after `key` in a text file, times `unit`; 0 if it is missing. */
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
    size_t limit;
    const char *option;
    const size_t here = read_number("/proc/meminfo", "MemAvailable:", 1024), left = calm_memory_left(&limit, &option);
    const size_t system = here && left < here ? left : here;
    const size_t group_limit = read_number("/sys/fs/cgroup/memory.max", "", 1);    /* "max" is not a number: 0 */
    const size_t group_used = read_number("/sys/fs/cgroup/memory.current", "", 1);
    if (group_limit == 0)
        return system;
    const size_t group = group_limit > group_used ? group_limit - group_used : 0;
    return system && system < group ? system : group;
}
