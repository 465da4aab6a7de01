/* Vector types of gcc and clang with LANES words: 4, 8 or 16, which the including file defines. */
#pragma once

#include <stdint.h>

typedef float real __attribute__((vector_size(4 * LANES)));
typedef uint32_t whole __attribute__((vector_size(4 * LANES)));
/* Types for loads and stores at any address. */
typedef float real_at __attribute__((vector_size(4 * LANES), aligned(1), may_alias));
typedef uint32_t whole_at __attribute__((vector_size(4 * LANES), aligned(1), may_alias));

#define LOAD_REAL(from)  (*(const real_at *)(const void *)(from))
#define LOAD_WHOLE(from) (*(const whole_at *)(const void *)(from))

/* Vectors that hold 16 floats. */
#define PARTS (16 / LANES)
