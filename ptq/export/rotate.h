/* Rotate: writes a float model as another model with the same function whose activations have no outlier channels
 * (QuaRot, arXiv 2404.00456; SpinQuant, 2405.16406).
 *
 *   R1   of the residual stream: what reads it, W diag(norm) Q, and what adds to it, Q^T W; the norms become ones
 *   R2   of each key head, between v and o: rows of v, columns of o
 *   R4   of down's input, W H: no matrix before it takes in the other H, so that the model's reader multiplies by it
 *        (calm_model_use_hadamard), as transform_config of compressed-tensors says of a quantized one
 *
 * The embedding and the head are rotated apart from each other, so that a tied head becomes its own tensor.  All
 * products are in double and every value is rounded once, to the dtype of its tensor. */
#pragma once

#include "ptq/model/model.h"

typedef enum calm_rotate_kind {
    CALM_ROTATE_NONE,
    CALM_ROTATE_R1,
    CALM_ROTATE_R1R2,
    CALM_ROTATE_R1R2R4
} calm_rotate_kind;

#define CALM_ROTATE_NAMES "none|r1|r1r2|r1r2r4"    /* in the order of calm_rotate_kind, for option tables */

/* "r1"; and the kind of a name, false: none has it. */
const char *calm_rotate_name(calm_rotate_kind kind);
bool calm_rotate_find(const char *name, calm_rotate_kind *out);

/* May the model be rotated?  CALM_EUNSUPPORTED, with the family and the reason: its norms do not commute with a
 * rotation; the checkpoint is quantized. */
calm_status calm_rotate_check(calm_ctx *ctx, const calm_model *model);

typedef struct calm_rotate_options {
    calm_rotate_kind kind;
    uint64_t seed;
    calm_dtype dtype;    /* of the floats that are written; CALM_N_DTYPES: each tensor's own */
} calm_rotate_options;

/* Write the rotated model, by R4 one that uses a Hadamard matrix before down, into the existing empty directory `dir`:
 * weights, config.json, tokenizer.  One tensor is in memory at a time, as float32 at most.  CALM_ENUMERIC: a weight is
 * not finite, or does not fit float16 any more; CALM_EUNSUPPORTED as above. */
calm_status calm_rotate_write(calm_ctx *ctx, const calm_model *model, const calm_rotate_options *options,
                              const char *dir);

/* The same as the directory `output`, written under a temporary name until it is whole.  CALM_EEXIST and CALM_EARG as
 * calm_export_destination. */
calm_status calm_rotate(calm_ctx *ctx, const char *model_dir, const calm_model_how *how,
                        const calm_rotate_options *options, const char *output,
                        bool force);
