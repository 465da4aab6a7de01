/* Arena: a list of chunks, allocation by bumping a cursor in the newest one.
 *
 * A chunk has 64 KiB; a request larger than that gets a chunk of its own.  Rewinding frees the chunks begun since,
 * so that a task's peak is given back to the system. */
#include "ptq/base/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "ptq/base/memory.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define POISON(p, n) ASAN_POISON_MEMORY_REGION((p), (n))
#define UNPOISON(p, n) ASAN_UNPOISON_MEMORY_REGION((p), (n))
#define REDZONE 64
#else
#define POISON(p, n) ((void)(p), (void)(n))
#define UNPOISON(p, n) ((void)(p), (void)(n))
#define REDZONE 0
#endif

#define ALIGNMENT ((size_t)64)

struct calm_arena_chunk {
    calm_arena_chunk *older;
    size_t used, capacity;    /* of data [capacity], which begins ALIGNMENT bytes after the chunk */
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

static void pop_chunk(calm_arena *arena)
{
    calm_arena_chunk *chunk = arena->top;
    arena->top = chunk->older;
    UNPOISON(chunk_data(chunk), chunk->capacity);
    calm_memory_give(chunk->capacity);
    free(chunk);
}

void calm_arena_clear(calm_arena *arena)
{
    while (arena->top)
        pop_chunk(arena);
    arena->used_bytes = 0;
}

calm_arena_mark calm_arena_save(const calm_arena *arena)
{
    return (calm_arena_mark){arena->top, arena->top ? arena->top->used : 0, arena->used_bytes};
}

void calm_arena_rewind(calm_arena *arena, calm_arena_mark mark)
{
    while (arena->top != mark.chunk)
        pop_chunk(arena);
    if (arena->top) {
        arena->top->used = mark.chunk_used;
        POISON(chunk_data(arena->top) + mark.chunk_used, arena->top->capacity - mark.chunk_used);
    }
    arena->used_bytes = mark.used_bytes;
}

static calm_arena_chunk *push_chunk(calm_arena *arena, size_t need)
{
    size_t capacity = need > CALM_ARENA_CHUNK ? need : CALM_ARENA_CHUNK;
    size_t bytes;
    if (!calm_size_add(&bytes, capacity, 2 * ALIGNMENT))
        return NULL;
    if (!calm_memory_take(capacity))
        return NULL;
    calm_arena_chunk *chunk = aligned_alloc(ALIGNMENT, bytes / ALIGNMENT * ALIGNMENT);
    if (!chunk) {
        calm_memory_give(capacity);
        return NULL;
    }
    *chunk = (calm_arena_chunk){arena->top, 0, capacity};
    POISON(chunk_data(chunk), capacity);
    arena->top = chunk;
    return chunk;
}

void *calm_arena_alloc(calm_arena *arena, size_t count, size_t size)
{
    size_t bytes, padded;
    if (arena->fail_in > 0 && --arena->fail_in == 0)
        return NULL;
    if (!calm_size_mul(&bytes, count, size) || !calm_size_add(&padded, bytes, ALIGNMENT - 1 + REDZONE))
        return NULL;
    padded = padded / ALIGNMENT * ALIGNMENT;
    if (padded == 0)
        padded = ALIGNMENT;
    calm_arena_chunk *chunk = arena->top;
    if (!chunk || chunk->capacity - chunk->used < padded)
        chunk = push_chunk(arena, padded);
    if (!chunk)
        return NULL;
    void *block = chunk_data(chunk) + chunk->used;
    chunk->used += padded;
    arena->used_bytes += padded;
    UNPOISON(block, bytes);
    return block;
}

void *calm_arena_zalloc(calm_arena *arena, size_t count, size_t size)
{
    void *block = calm_arena_alloc(arena, count, size);
    if (block)
        memset(block, 0, count * size);
    return block;
}
