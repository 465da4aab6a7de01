/* Tiles of AMX: eight registers of 16 rows of 64 bytes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "ptq/tensor/blas_family.h"

/* Has the CPU tiles and these features, too, and does the system let this process use the registers? */
bool calm_amx_is_there(unsigned features);

/* Configure all eight registers of this thread, until _tile_release: 0 to 3 are sums of `rows` by 16 words, 4 and 5 the
 * left operands, `rows` of `bytes`, 6 and 7 the right ones, bytes / 4 rows of 16 words.  Needs calm_amx_is_there. */
void calm_amx_begin(size_t rows, size_t bytes);

/* The same, and fill registers 4 to 7 with numbers between 1 and 2 of both signs (as bfloat16): a CPU multiplies zeros
 * faster than what a model has. */
void calm_amx_begin_filled(size_t rows, size_t bytes);
