/* Embeddings and heads of checkpoints in a quantized format: a tensor of floats that is widened when it is read. */
#pragma once

#include "ptq/model/qformat.h"

typedef struct calm_quantized_table {
    calm_tensor floats;               /* [rows, in] F32; name NULL: the table is not quantized */
    const char *module;
    calm_qformat_scheme scheme;
    const calm_qformat_reader *stored;
    const calm_safetensors *set;
    calm_tensor_source source;        /* of the floats: `out` stays where it is while they are read */
} calm_quantized_table;

/* Is MODULE.weight [rows, in] stored in the format, not as floats?  Names go to `arena`.  CALM_EFORMAT: its tensors are
 * missing, or of another shape. */
calm_status calm_quantized_table_find(calm_ctx *ctx, calm_arena *arena, const calm_qformat_reader *stored,
                                      const calm_safetensors *set, const char *module, size_t rows, size_t in,
                                      calm_quantized_table *out);

/* The table as a linear whose input stays float: with ctx->decode in codes where these pack (int_linear.h), else in w
 * [rows, in] as floats; weight->w is w.  Fails as calm_qformat_load. */
calm_status calm_quantized_table_load(calm_ctx *ctx, const calm_quantized_table *table, float *w, calm_weight *weight);
