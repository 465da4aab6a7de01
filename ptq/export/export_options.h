/* Options of exporters; each format reads only some. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "ptq/layers/kv_cache.h"
#include "ptq/quant/job_importance.h"
#include "ptq/quant/scheme.h"

/* Type of matrices that are not quantized, for formats that allow several types. */
typedef enum calm_export_float {
    CALM_EXPORT_AS_STORED,    /* the dtype of the checkpoint */
    CALM_EXPORT_F16, CALM_EXPORT_BF16, CALM_EXPORT_F32
} calm_export_float;

/* The names of calm_export_float in order, as the values of an option. */
#define CALM_EXPORT_FLOAT_NAMES "stored|f16|bf16|f32"

/* Zeros are the defaults. */
typedef struct calm_export_options {
    size_t max_shard_bytes;              /* tensor bytes per file; 0: CALM_SHARD_BYTES (safetensors), one file (GGUF) */
    bool asymmetric;                     /* write asymmetric weights even if some readers fail on them              */
    const char *gguf_pre;                /* llama.cpp's name of the pre-tokenizer; NULL: found from the pattern     */
    calm_export_float gguf_float;        /* GGUF: type of matrices that stay float                                  */
    const calm_scheme *embed, *head;     /* schemes for tables (outer.h), bits 0: float; NULL: the format's default */
    const calm_importance *importance;   /* only for imatrix, which needs it                                        */
    const calm_kv_scales *kv;            /* [n_blocks] scales of an 8-bit KV cache (compressed-tensors); NULL: float */
} calm_export_options;
