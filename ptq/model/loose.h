/* Tensors of a block that belong to no sublayer: those of streams (streams.h) and of the block's tail (tail.h).
 *
 * They stay float.  Published recipes of llm-compressor for Gemma 3n leave them (re:.*altup.*, re:.*laurel.*, the gate
 * and projection of per-layer inputs), engines take that, most have too few columns for a group (4 streams, 64 of the
 * branch), and of the linears in a block of Gemma 3n E2B they are 2 %. */
#pragma once

#include "ptq/model/config.h"

/* A linear or norm NAME.weight, or a tensor NAME. */
typedef struct calm_loose_part {
    enum { CALM_LOOSE_TENSOR, CALM_LOOSE_LINEAR, CALM_LOOSE_NORM } form;
    const char *name;
    bool outer;              /* of the whole model, behind the prefix; else within each block */
    size_t rows, cols;       /* cols 0: a vector */
    size_t copies;           /* NAME.0 .. NAME.copies - 1; 0: NAME alone */
} calm_loose_part;

#define CALM_LOOSE_PARTS 17

/* All that the model has; their number. */
size_t calm_loose_parts(const calm_config *config, calm_loose_part list[CALM_LOOSE_PARTS]);
