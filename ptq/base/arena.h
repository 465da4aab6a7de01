/* Arena: memory that is freed together.
 *
 * Algorithms contain no `free`: results go to `ctx->out`, temporaries to `ctx->scratch`, and the code that runs the
 * work clears both.  Blocks are 64-byte aligned (one cache line, one AVX-512 vector).  Under
 * AddressSanitizer everything outside a live allocation is poisoned, with a redzone after each. */
#pragma once

#include "ptq/base/memory.h"

/* An arena takes memory from the system in pieces of this many bytes; a larger request than a quarter has a separate
 * piece. */
#define CALM_ARENA_CHUNK ((size_t)64 * 1024)

typedef struct calm_arena_chunk calm_arena_chunk;

typedef struct calm_arena {
    calm_arena_chunk *top;    /* newest chunk of small requests, linked to the older ones            */
    calm_arena_chunk *large;  /* newest of the large requests, likewise                              */
    calm_memory *memory;      /* account that its next chunk is taken from; NULL: not counted             */
    size_t used_bytes;        /* sum over live allocations, for reports                              */
    size_t most_bytes;        /* the largest it was, for tests                                       */
    long fail_in;             /* tests: > 0 counts down at each allocation, the one reaching 0 fails */
} calm_arena;

/* A place to return to: everything allocated after it is released by calm_arena_rewind. */
typedef struct calm_arena_mark {
    calm_arena_chunk *chunk, *large;
    size_t chunk_used, used_bytes;
} calm_arena_mark;

/* An arena without memory or account; calm_alloc gives it the account of the context that first uses it. */
void calm_arena_init(calm_arena *arena);

/* Release all memory; the arena is then as after init (account and fail_in kept). */
void calm_arena_clear(calm_arena *arena);

/* Remember a place; release everything allocated since. */
calm_arena_mark calm_arena_save(const calm_arena *arena);
void calm_arena_rewind(calm_arena *arena, calm_arena_mark mark);

/* `count` objects of `size` bytes, 64-byte aligned, not initialised.
 * NULL when count * size overflows or the system has no memory; never NULL for zero bytes. */
void *calm_arena_alloc(calm_arena *arena, size_t count, size_t size);

/* The same, filled with zero bytes. */
void *calm_arena_zalloc(calm_arena *arena, size_t count, size_t size);

/* What calm_arena_alloc takes of an arena for `count` objects of `size` bytes: rounded up to 64, and 64 for none.
 * SIZE_MAX on overflow. */
size_t calm_arena_bytes(size_t count, size_t size);

/* The same for `count` objects of a type: what CALM_NEW takes.
 *
 * A module that allocates says beforehand how much, next to the allocation: calm_NAME_bytes(shape) is what calm_NAME
 * leaves in ctx->out, calm_NAME_scratch_bytes(shape) the most it holds in ctx->scratch, of its workers too where the
 * shape has their number.  What an arena takes from the system is up to a chunk more, and up to a third more of what
 * is small. */
#define CALM_BYTES(type, count) calm_arena_bytes((count), sizeof(type))

/* The smaller and the larger of two sizes. */
static inline size_t calm_size_min(size_t a, size_t b)
{
    return a < b ? a : b;
}
static inline size_t calm_size_max(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* out = a * b; false on overflow. */
bool calm_size_mul(size_t *out, size_t a, size_t b);

/* out = a + b; false on overflow. */
bool calm_size_add(size_t *out, size_t a, size_t b);
