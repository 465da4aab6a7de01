/* Tiles of AMX: eight registers of 16 rows of 64 bytes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "ptq/tensor/blas_family.h"

/* Has the CPU tiles and these features, too, and does the system let this process use the registers? */
bool calm_amx_is_there(unsigned features);

/* What LDTILECFG reads (Intel's manual, volume 1, chapter 18): bytes of a row and rows of each register. */
typedef struct calm_amx_shapes {
    unsigned char palette, start, reserved[14];
    unsigned short bytes[16];
    unsigned char rows[16];
} calm_amx_shapes;
