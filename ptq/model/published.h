/* Published sources: checkpoints whose weights were published as small floats with scales, read as float checkpoints.
 *
 *   fp8      NAME F8_E4M3 [.., out, in]       NAME_scale_inv or NAME_scale: of rows [.., out, 1], one number, or of
 *                                             blocks [.., ceil(out / b0), ceil(in / b1)]
 *   mxfp4    NAME_blocks U8 [E, out, G, 16]   NAME_scales U8 [E, out, G]; groups of 32
 *   compressed-tensors of floats (ptq/model/qformat.h reads those that calm computes with as what they are)
 *            as fp8; NAME_packed U8 [out, in / 2] and NAME_scale U8 or F8_E4M3 [out, G], NAME_global_scale
 *
 * The value of a weight is its codes times their scales, rounded to the model's dtype; those are the bits that
 * transformers gets with dequantize=True.  Which tensors are stored so, their own dtypes say: what config.json lists
 * under modules_to_not_convert is there as floats. */
#pragma once

#include "ptq/io/json.h"
#include "ptq/io/safetensors.h"

typedef enum calm_published_kind {
    CALM_PUBLISHED_NOT,    /* float, or quantized otherwise */
    CALM_PUBLISHED_FP8,
    CALM_PUBLISHED_MXFP4,
    CALM_PUBLISHED_COMPRESSED
} calm_published_kind;

/* What config.json says. */
typedef struct calm_published {
    calm_published_kind kind;
    char text[96];       /* "fp8 in blocks of 128 x 128": for people, cards and keys; "": of CALM_PUBLISHED_NOT */
    size_t block[2];     /* rows and columns of weights that share a scale; 0: one scale for a weight, or a row */
    bool block_known;    /* else that may be so too                                                            */
} calm_published;

/* Read the quantization_config of `config`, the config.json at `path`, or of its text_config.  Files of
 * compressed-tensors are sources where all is of floats and `floats` asks for it, or where calm computes with them in
 * no other way.
 * CALM_EFORMAT: a key, found and expected.  CALM_EUNSUPPORTED: a form of these formats that calm does not read. */
calm_status calm_published_read(calm_ctx *ctx, const char *path, const calm_json *config, bool floats,
                                calm_published *out);

/* In `set` put float tensors of `dtype` in place of such weights and leave out what belongs to them, scales of inputs
 * too.  Names and entries go to ctx->out and must outlive the set.  The tensors of mxfp4 are [E, out, in] here, of
 * transformers [E, in, out].  *n (may be NULL): weights.
 * CALM_ENOTFOUND: half of a pair is missing.  CALM_EFORMAT: tensor, found and expected. */
calm_status calm_published_widen(calm_ctx *ctx, const calm_published *from, calm_dtype dtype, calm_safetensors *set,
                                 size_t *n);

/* Is it a tensor of quantized inputs or of a cache ("model.layers.0.self_attn.k_scale"), which no float model has? */
bool calm_published_of_inputs(const char *name);

/* Remove its entry from config.json. */
void calm_published_drop_entry(calm_json *config);
