/* Tensors of a block outside of its sublayers: those of residual streams (streams.h) and of the tail (tail.h).
 *
 * They stay float.  llm-compressor's published recipes for Gemma 3n do not quantize them (re:.*altup.*, re:.*laurel.*,
 * the gate and projection of per-layer inputs), engines expect that, most have too few columns for a group (4 streams,
 * rank 64 of the branch), and they are only 2 % of the linears in a block of Gemma 3n E2B. */
#pragma once

#include "ptq/arch/config.h"

/* One of these: a linear or norm NAME.weight, or a tensor NAME. */
typedef struct calm_extra_tensor {
    enum { CALM_EXTRA_TENSOR, CALM_EXTRA_LINEAR, CALM_EXTRA_NORM } form;
    const char *name;
    bool outer;              /* true: of the model, after the prefix; false: within each block */
    size_t rows, cols;       /* cols 0: a vector */
    size_t copies;           /* names NAME.0 .. NAME.copies - 1; 0: only NAME */
} calm_extra_tensor;

#define CALM_EXTRA_TENSORS 17

/* Lists all that the model has, and returns their number. */
size_t calm_extra_tensors(const calm_config *config, calm_extra_tensor list[CALM_EXTRA_TENSORS]);
