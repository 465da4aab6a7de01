/* Checkpoints whose weights were published as small floats with scales, read as float checkpoints.
 *
 *   fp8      NAME F8_E4M3 [.., out, in]       NAME_scale_inv or NAME_scale: per row [.., out, 1], one number, or per
 *                                             block [.., ceil(out / b0), ceil(in / b1)]
 *   mxfp4    NAME_blocks U8 [E, out, G, 16]   NAME_scales U8 [E, out, G]; groups of 32
 *   compressed-tensors of floats (ptq/weights/qformat.h reads those that calm can compute with as quantized weights)
 *            like fp8; or NAME_packed U8 [out, in / 2], NAME_scale U8 or F8_E4M3 [out, G], NAME_global_scale
 *
 * The value of a weight is its code times its scale, rounded to the model's dtype: the same bits as transformers with
 * dequantize=True.  The dtypes of tensors tell which ones are stored so; modules under modules_to_not_convert of
 * config.json are stored as floats. */
#pragma once

#include "ptq/io/json.h"
#include "ptq/io/safetensors.h"

typedef enum calm_published_kind {
    CALM_PUBLISHED_NOT,    /* float, or in another quantized format */
    CALM_PUBLISHED_FP8,
    CALM_PUBLISHED_MXFP4,
    CALM_PUBLISHED_COMPRESSED
} calm_published_kind;

/* The format by config.json. */
typedef struct calm_published {
    calm_published_kind kind;
    char text[96];       /* "fp8 in blocks of 128 x 128": for messages, cards and keys; "": CALM_PUBLISHED_NOT */
    size_t block[2];     /* rows and columns of weights that share a scale; 0: one scale for a weight, or a row */
    bool block_known;    /* false: scales of weights or rows are possible instead of blocks                    */
} calm_published;

/* Reads the quantization_config of `config`, the config.json at `path`, or of its text_config.  compressed-tensors
 * count as published floats where all schemes are floats and `floats` is set, or where calm cannot compute with them
 * as they are.  CALM_EFORMAT: a key, found and expected.  CALM_EUNSUPPORTED: a variant that calm does not read. */
calm_status calm_published_read(calm_ctx *ctx, const char *path, const calm_json *config, bool floats,
                                calm_published *out);

/* Replaces such weights in `set` by float tensors of `dtype`, and removes their scales and those of inputs.  Names and
 * entries are in ctx->out and must outlive the set.  mxfp4 tensors become [E, out, in]; in transformers they are
 * [E, in, out].  *n (may be NULL): number of weights.
 * CALM_ENOTFOUND: codes without scales or scales without codes.  CALM_EFORMAT: tensor, found and expected. */
calm_status calm_published_widen(calm_ctx *ctx, const calm_published *from, calm_dtype dtype, calm_safetensors *set,
                                 size_t *n);

/* Is it a scale of quantized inputs or of a KV cache ("model.layers.0.self_attn.k_scale"), which no float model has? */
bool calm_published_of_inputs(const char *name);

/* Removes the quantization_config from config.json. */
void calm_published_drop_entry(calm_json *config);
