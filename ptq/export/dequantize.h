/* Dequantize: converts a quantized directory or GGUF file to plain floats in safetensors. */
#pragma once

#include "ptq/model/model.h"
#include "ptq/base/context.h"
#include "ptq/tensor/dtype.h"

typedef struct calm_dequantize_options {
    calm_model_how how;     /* with an adapter, the model is float, and is written with the adapter merged */
    const char *output;
    calm_dtype dtype;       /* CALM_F32, CALM_F16, CALM_BF16; CALM_N_DTYPES: the checkpoint's own */
    size_t max_shard_bytes; /* 0: CALM_SHARD_BYTES */
    bool force;
    calm_tick_fn *tick; /* called after each tensor; may be NULL */
    void *tick_user;
} calm_dequantize_options;

typedef struct calm_dequantize_result {
    const char *format; /* "gguf", "gptq", ... */
    calm_dtype dtype;   /* written dtype of the weights that were quantized */
    size_t n_tensors, n_dequantized;
} calm_dequantize_result;

/* Writes the model at `path` to options->output, one tensor in memory at a time, under a temporary name until it is
 * complete.  CALM_EEXIST and CALM_EARG as calm_export_destination; CALM_EUNSUPPORTED: nothing is quantized, or calm
 * does not read the format; CALM_ENUMERIC: a weight is not finite, or too large for float16; CALM_EFORMAT,
 * CALM_ENOTFOUND. */
calm_status calm_dequantize(calm_ctx *ctx, const char *path, const calm_dequantize_options *options,
                            calm_dequantize_result *out);
