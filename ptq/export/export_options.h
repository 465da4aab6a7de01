/* Options of exporters; each format reads those that concern it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "ptq/model/kv_cache.h"
#include "ptq/quant/job_importance.h"
#include "ptq/quant/scheme.h"

/* Type of matrices that are not quantized, where a format allows several. */
typedef enum calm_export_float {
    CALM_EXPORT_AS_STORED,    /* the dtype of the checkpoint */
    CALM_EXPORT_F16, CALM_EXPORT_BF16, CALM_EXPORT_F32
} calm_export_float;

/* Their names in that order, as the values of an option. */
#define CALM_EXPORT_FLOAT_NAMES "stored|f16|bf16|f32"

/* Zeros are the defaults. */
typedef struct calm_export_options {
    size_t max_shard_bytes;              /* of tensors in a file; 0: CALM_SHARD_BYTES of safetensors, one GGUF file */
    bool asymmetric;                     /* write asymmetric weights also where some readers fail on them           */
    const char *gguf_pre;                /* llama.cpp's name of the pre-tokenizer; NULL: found from the pattern     */
    calm_export_float gguf_float;
    const calm_scheme *embed, *head;     /* asked of the tables (outer.h), bits 0: float; NULL: the format's own   */
    const calm_importance *importance;   /* for imatrix alone, which needs it                                       */
    const calm_kv_scales *kv;            /* [n_blocks] of a cache of 8 bits, for compressed-tensors; NULL: float     */
} calm_export_options;
