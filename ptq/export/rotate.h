/* Rotate: writes a float model as another model with the same function whose activations have no outlier channels
 * (QuaRot, arXiv 2404.00456; SpinQuant, 2405.16406).
 *
 *   R1   rotates the residual stream: weights that read it become W diag(norm) Q, weights that add to it Q^T W, and the
 *        norms ones
 *   R2   rotates each key head between v and o: rows of v, columns of o
 *   R4   rotates the input of down: its weight becomes W H.  No weight can absorb the other H, so the forward pass
 *        multiplies by it (calm_model_use_hadamard; transform_config in compressed-tensors files)
 *
 *   inputs  rotates the input of every linear, and nothing else: W becomes W H, and the forward pass multiplies by the
 *           other H.  It needs no RMSNorm.  QuIP# (2402.04396) and llm-compressor's QuIPModifier do the same with "v"
 *
 * R1 rotates the embedding and the head differently, so a tied head becomes a separate tensor.  All products are in
 * double and every value is rounded once, to the dtype of its tensor. */
#pragma once

#include "ptq/model/model.h"

typedef enum calm_rotate_kind {
    CALM_ROTATE_NONE,
    CALM_ROTATE_R1,
    CALM_ROTATE_R1R2,
    CALM_ROTATE_R1R2R4,
    CALM_ROTATE_INPUTS
} calm_rotate_kind;

#define CALM_ROTATE_NAMES "none|r1|r1r2|r1r2r4|inputs"    /* in the order of calm_rotate_kind, for option tables */

/* Return the name of a kind, "r1"; and find the kind of a name, false if there is none. */
const char *calm_rotate_name(calm_rotate_kind kind);
bool calm_rotate_find(const char *name, calm_rotate_kind *out);

/* Does the rotation change the residual stream (R1)?  And does a part of it stay in the forward pass (R4, inputs)? */
bool calm_rotate_turns_stream(calm_rotate_kind kind);
bool calm_rotate_is_online(calm_rotate_kind kind);

/* Checks that the model can be rotated, and gives it the Hadamard matrices of an online rotation.  CALM_EUNSUPPORTED,
 * with the family and the reason: its norms do not commute with a rotation of the residual stream, the checkpoint is
 * quantized, or calm_model_use_hadamard fails. */
calm_status calm_rotate_allow(calm_ctx *ctx, calm_model *model, calm_rotate_kind kind);

typedef struct calm_rotate_options {
    calm_rotate_kind kind;
    uint64_t seed;
    calm_dtype dtype;    /* dtype of the written floats; CALM_N_DTYPES: each tensor's own */
} calm_rotate_options;

/* Writes the rotated model into the existing empty directory `dir`: weights, config.json, tokenizer.  An online
 * rotation needs a model that calm_rotate_allow has prepared, before and after writing.  Memory holds one tensor at a
 * time, as float32 at most.  CALM_ENUMERIC: a weight is not finite, or is too large for float16; CALM_EUNSUPPORTED as
 * calm_rotate_allow. */
calm_status calm_rotate_write(calm_ctx *ctx, const calm_model *model, const calm_rotate_options *options,
                              const char *dir);

/* Writes the rotated model as the directory `output`, under a temporary name until it is complete.  CALM_EEXIST and
 * CALM_EARG as calm_export_destination. */
calm_status calm_rotate(calm_ctx *ctx, const char *model_dir, const calm_model_how *how,
                        const calm_rotate_options *options, const char *output,
                        bool force);
