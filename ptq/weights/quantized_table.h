/* Embeddings and heads of checkpoints in a quantized format, as a float tensor that is decoded when it is read. */
#pragma once

#include "ptq/weights/qformat.h"

typedef struct calm_quantized_table {
    calm_tensor floats;               /* [rows, in] F32; name NULL: the table is not quantized */
    const char *module;
    calm_qformat_scheme scheme;
    const calm_qformat_reader *stored;
    const calm_safetensors *set;
    calm_tensor_source source;        /* source of `floats`; the struct must not move while they are read */
} calm_quantized_table;

/* Fills in *out if MODULE.weight [rows, in] is stored in the format, not as floats.  Names go to `arena`.
 * CALM_EFORMAT: its tensors are missing, or of another shape. */
calm_status calm_quantized_table_find(calm_ctx *ctx, calm_arena *arena, const calm_qformat_reader *stored,
                                      const calm_safetensors *set, const char *module, size_t rows, size_t in,
                                      calm_quantized_table *out);

/* Loads the table as a linear whose input stays float into w [rows, in]: with ctx->decode as packed codes where
 * possible (int_linear.h), else as floats; weight->w is w.  Fails as calm_qformat_load. */
calm_status calm_quantized_table_load(calm_ctx *ctx, const calm_quantized_table *table, float *w, calm_weight *weight);
