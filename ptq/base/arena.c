/* Arena: a list of chunks; allocation advances a cursor in the newest one.
 *
 * A chunk has 64 KiB; a request larger than a quarter of that gets a separate chunk in a second list, so that a
 * large request between two small ones does not end their chunk.  An arena requests from the system the allocated
 * bytes, at most a third more for small requests, and one chunk.  Rewinding frees the chunks that were added since,
 * which returns a task's peak memory. */
#include "ptq/base/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define POISON(p, n) ASAN_POISON_MEMORY_REGION((p), (n))
#define UNPOISON(p, n) ASAN_UNPOISON_MEMORY_REGION((p), (n))
#define REDZONE 64
#define MAPPED  SIZE_MAX    /* the sanitizer only tracks the heap                */
#else
#define POISON(p, n) ((void)(p), (void)(n))
#define UNPOISON(p, n) ((void)(p), (void)(n))
#define REDZONE 0
/* Chunks from this size on are separate mappings, with huge pages if the system has them (one page fault per 2 MiB
 * instead of 512): they leave no holes in the heap, and new ones are zeroed. */
#define MAPPED ((size_t)1 << 20)
#endif

#define ALIGNMENT ((size_t)64)
#define LARGE     (CALM_ARENA_CHUNK / 4)    /* larger requests get a separate chunk    */

struct calm_arena_chunk {
    calm_arena_chunk *older;
    calm_memory *memory;      /* account that it is charged to; the arena's may be set later         */
    size_t mapped;            /* bytes of the mapping; 0: allocated on the heap */
    bool zero;                /* data is new and zeroed                 */
    size_t used, capacity;    /* bytes of the data, which begins ALIGNMENT bytes after the chunk  */
};

static unsigned char *chunk_data(calm_arena_chunk *chunk)
{
    return (unsigned char *)chunk + ALIGNMENT;
}

bool calm_size_mul(size_t *out, size_t a, size_t b)
{
    return !__builtin_mul_overflow(a, b, out);
}

bool calm_size_add(size_t *out, size_t a, size_t b)
{
    return !__builtin_add_overflow(a, b, out);
}

void calm_arena_init(calm_arena *arena)
{
    memset(arena, 0, sizeof *arena);
}

static void pop_chunk(calm_arena_chunk **list)
{
    calm_arena_chunk *chunk = *list;
    *list = chunk->older;
    UNPOISON(chunk_data(chunk), chunk->capacity);
    calm_memory_give(chunk->memory, chunk->mapped ? chunk->mapped : chunk->capacity);
    if (chunk->mapped)
        calm_memory_unmap(chunk->memory, chunk, chunk->mapped);
    else
        free(chunk);
}

void calm_arena_clear(calm_arena *arena)
{
    calm_arena_rewind(arena, (calm_arena_mark){NULL, NULL, 0, 0});
    arena->used_bytes = arena->most_bytes = 0;
}

calm_arena_mark calm_arena_save(const calm_arena *arena)
{
    return (calm_arena_mark){arena->top, arena->large, arena->top ? arena->top->used : 0, arena->used_bytes};
}

void calm_arena_rewind(calm_arena *arena, calm_arena_mark mark)
{
    while (arena->large != mark.large)
        pop_chunk(&arena->large);
    while (arena->top != mark.chunk)
        pop_chunk(&arena->top);
    if (arena->top) {
        arena->top->used = mark.chunk_used;
        POISON(chunk_data(arena->top) + mark.chunk_used, arena->top->capacity - mark.chunk_used);
    }
    arena->used_bytes = mark.used_bytes;
}

/* Allocates a chunk of exactly this size on the heap. */
static calm_arena_chunk *heap_chunk(calm_memory *memory, size_t bytes)
{
    calm_memory_trim(memory);
    return aligned_alloc(ALIGNMENT, bytes / ALIGNMENT * ALIGNMENT);
}

static calm_arena_chunk *push_chunk(calm_memory *memory, calm_arena_chunk **list, size_t capacity)
{
    size_t bytes;
    bool zero = false;
    if (!calm_size_add(&bytes, capacity, 2 * ALIGNMENT))
        return NULL;
    const bool mapped = capacity >= MAPPED;
    bytes = mapped ? calm_memory_whole_pages(bytes) : bytes;    /* spare pages are whole pages     */
    const size_t counted = mapped ? bytes : capacity;
    if (!calm_memory_take(memory, counted))
        return NULL;
    calm_arena_chunk *chunk = mapped ? calm_memory_map(memory, bytes, &zero) : heap_chunk(memory, bytes);
    if (!chunk) {
        calm_memory_give(memory, counted);
        return NULL;
    }
    *chunk = (calm_arena_chunk){*list, memory, mapped ? bytes : 0, zero, 0, capacity};
    POISON(chunk_data(chunk), capacity);
    *list = chunk;
    return chunk;
}

size_t calm_arena_bytes(size_t count, size_t size)
{
    size_t bytes, padded;
    if (!calm_size_mul(&bytes, count, size) || !calm_size_add(&padded, bytes, ALIGNMENT - 1 + REDZONE))
        return SIZE_MAX;
    padded = padded / ALIGNMENT * ALIGNMENT;
    return padded ? padded : ALIGNMENT;
}

void *calm_arena_alloc(calm_arena *arena, size_t count, size_t size)
{
    const size_t padded = calm_arena_bytes(count, size);
    if (arena->fail_in > 0 && --arena->fail_in == 0)
        return NULL;
    if (padded == SIZE_MAX)
        return NULL;
    calm_arena_chunk *chunk = arena->top;
    if (padded > LARGE)
        chunk = push_chunk(arena->memory, &arena->large, padded);
    else if (!chunk || chunk->capacity - chunk->used < padded)
        chunk = push_chunk(arena->memory, &arena->top, CALM_ARENA_CHUNK);
    if (!chunk)
        return NULL;
    void *block = chunk_data(chunk) + chunk->used;
    chunk->used += padded;
    arena->used_bytes += padded;
    arena->most_bytes = calm_size_max(arena->most_bytes, arena->used_bytes);
    UNPOISON(block, count * size);
    return block;
}

void *calm_arena_zalloc(calm_arena *arena, size_t count, size_t size)
{
    void *block = calm_arena_alloc(arena, count, size);
    /* A large request has its own chunk. */
    const bool zero = block && calm_arena_bytes(count, size) > LARGE && arena->large->zero;
    if (block && !zero)
        memset(block, 0, count * size);
    return block;
}
