/* AMX tiles: eight registers of 16 rows of 64 bytes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "ptq/tensor/blas_family.h"

/* Returns whether the CPU has AMX tiles and these features, and the system lets this process use the tile
 * registers. */
bool calm_amx_available(unsigned features);

/* Configures all eight tile registers of this thread, until _tile_release: 0 to 3 hold sums of `rows` by 16 words,
 * 4 and 5 the left operands (`rows` rows of `bytes` bytes), 6 and 7 the right operands (bytes / 4 rows of 16
 * words).  Requires calm_amx_available. */
void calm_amx_begin(size_t rows, size_t bytes);

/* Does the same, and fills registers 4 to 7 with bfloat16 numbers of magnitude 1 to 2 and both signs: a CPU
 * multiplies zeros faster than real data. */
void calm_amx_begin_filled(size_t rows, size_t bytes);
