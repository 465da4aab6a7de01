/* Arena: memory that is freed together.
 *
 * Algorithms contain no `free`: results go to `ctx->out`, temporaries to `ctx->scratch`, and the caller clears
 * both.  Allocations are 64-byte aligned (one cache line, one AVX-512 vector).  Under AddressSanitizer everything
 * outside a live allocation is poisoned, with a redzone after each. */
#pragma once

#include "ptq/base/memory.h"

/* Bytes of a chunk that an arena requests from the system; a request larger than a quarter of it gets a separate
 * chunk. */
#define CALM_ARENA_CHUNK ((size_t)64 * 1024)

typedef struct calm_arena_chunk calm_arena_chunk;

typedef struct calm_arena {
    calm_arena_chunk *top;    /* newest chunk of small requests, linked to the older ones            */
    calm_arena_chunk *large;  /* newest chunk of a large request, linked likewise                    */
    calm_memory *memory;      /* account that the next chunk is charged to; NULL: not counted             */
    size_t used_bytes;        /* sum over live allocations, for reports                              */
    size_t most_bytes;        /* maximum of used_bytes, for tests                                    */
    long fail_in;             /* tests: counts down at each allocation if > 0; the one that reaches 0 fails */
} calm_arena;

/* A position in an arena: calm_arena_rewind releases everything allocated after it. */
typedef struct calm_arena_mark {
    calm_arena_chunk *chunk, *large;
    size_t chunk_used, used_bytes;
} calm_arena_mark;

/* Makes an arena without memory or account; calm_alloc assigns the account of the first context that uses it. */
void calm_arena_init(calm_arena *arena);

/* Releases all memory; account and fail_in stay. */
void calm_arena_clear(calm_arena *arena);

/* calm_arena_save returns the current position; calm_arena_rewind releases everything allocated since `mark`. */
calm_arena_mark calm_arena_save(const calm_arena *arena);
void calm_arena_rewind(calm_arena *arena, calm_arena_mark mark);

/* Returns uninitialised memory for `count` objects of `size` bytes, 64-byte aligned; NULL when count * size
 * overflows or the system has no memory; never NULL for zero bytes. */
void *calm_arena_alloc(calm_arena *arena, size_t count, size_t size);

/* Does the same, and fills the memory with zero bytes. */
void *calm_arena_zalloc(calm_arena *arena, size_t count, size_t size);

/* Returns the bytes by which calm_arena_alloc(arena, count, size) raises used_bytes: rounded up to 64, and 64 for
 * none.  SIZE_MAX on overflow. */
size_t calm_arena_bytes(size_t count, size_t size);

/* Returns the bytes that CALM_NEW allocates for `count` objects of a type.
 *
 * Memory estimates stand next to the allocations: calm_NAME_bytes(shape) returns what calm_NAME leaves in ctx->out,
 * and calm_NAME_scratch_bytes(shape) its peak in ctx->scratch, which includes its workers if the shape has their
 * number.  An arena requests up to one chunk more from the system, and for small allocations up to a third more. */
#define CALM_BYTES(type, count) calm_arena_bytes((count), sizeof(type))

/* Return the smaller and the larger of two sizes. */
static inline size_t calm_size_min(size_t a, size_t b)
{
    return a < b ? a : b;
}
static inline size_t calm_size_max(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Computes out = a * b; returns false on overflow. */
bool calm_size_mul(size_t *out, size_t a, size_t b);

/* Computes out = a + b; returns false on overflow. */
bool calm_size_add(size_t *out, size_t a, size_t b);
