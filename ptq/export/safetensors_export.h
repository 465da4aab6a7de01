/* The walk of the safetensors exporters over the float checkpoint: tensors outside the blocks first, then block by
 * block, by name; one group assembled at a time.
 *
 *   a quantized linear's weight    the tensors that the format makes of it (calm_export_form)
 *   norms, biases, float weights   as assembly left them (assemble.h): input scales are folded into some
 *   everything else                copied
 *
 * The order is that of the files, so one block is in memory at a time, and the same for all formats. */
#pragma once

#include "ptq/plan/assemble.h"
#include "ptq/export/export.h"
#include "ptq/io/shards.h"

#define CALM_EXPORT_TENSORS 4    /* most that a linear's weight becomes */

/* One of the tensors that a quantized weight becomes. */
typedef struct calm_export_tensor {
    const char *suffix;    /* stands in place of "weight": "weight_packed" */
    calm_dtype dtype;
    int n_dims;
    size_t shape[2];
} calm_export_tensor;

/* A format of safetensors and config.json.  calm_exporter_write writes the weights (model.safetensors, or shards with
 * their index), config.json - the float model's, every byte as it was, with the entry added - and the companions. */
struct calm_export_form {
    /* The tensors of a weight [out, in] in the file's order; their number. */
    size_t (*tensors)(const calm_scheme *scheme, size_t out, size_t in, calm_export_tensor list[CALM_EXPORT_TENSORS]);
    /* Bytes of number `which` of them, with calm_shards_put or one of the functions below; `asymmetric` says whether
     * any weight of the plan has zero points.  Of ctx->scratch it holds that tensor and one byte per weight at most. */
    calm_status (*put)(calm_ctx *ctx, calm_shards_writer *writer, const calm_qlinear *linear, size_t which,
                       bool asymmetric);
    /* Scales of the scheme are stored as float16: codes are fitted to those before `put` (calm_export_fit_f16); NULL:
     * never. */
    bool (*stores_f16)(const calm_scheme *scheme);
    /* The module that holds all experts of a block, in place of "experts": each tensor is then that of all experts, [E,
     * ...].  NULL: every expert has its own. */
    const char *stack;
    /* Experts that the checkpoint has in one tensor stay in it where none of the block's is quantized, which all
     * readers of the family take; false: every expert has its own. */
    bool whole;
    /* Fill in the quantization entry, an empty object. */
    calm_status (*entry)(calm_ctx *ctx, const calm_export_input *input, calm_json *entry);
    const char *keys[2];    /* members of config.json that are the entry; NULL: no second one */
    const char *entry_file; /* a file that holds the entry alone; NULL: none                  */
};

/* Round scales of an assembled linear that float16 does not hold exactly, which are below 2^-17, and choose the codes
 * of their groups again, in ctx->out; one note with the size of the loss.  Nothing is done where all are exact. */
calm_status calm_export_fit_f16(calm_ctx *ctx, const char *name, calm_qlinear *linear);

/* A calm_export_form.stores_f16 that is always true. */
bool calm_export_always_f16(const calm_scheme *scheme);

/* "model.layers.0.mlp.experts.3.gate_proj" and "switch_mlp" -> "model.layers.0.mlp.switch_mlp.gate_proj", in ctx->out;
 * what follows stays. */
calm_status calm_export_stack_name(calm_ctx *ctx, const calm_export_input *input, const char *name, const char *stack,
                                   char **out);

/* Does any weight that is written have zero points? */
bool calm_export_is_asymmetric(const calm_export_input *input);

/* A tensor of the checkpoint as dtype. */
calm_status calm_export_put_tensor(calm_ctx *ctx, calm_shards_writer *writer, calm_dtype dtype,
                                   const calm_tensor *tensor);

/* Floats [n] as dtype, one after another. */
calm_status calm_export_put_floats(calm_ctx *ctx, calm_shards_writer *writer, calm_dtype dtype, const float *values,
                                   size_t n);

/* The same, [rows, columns], in float16, which must hold every value as it is.  CALM_ENUMERIC with tensor, row and
 * column. */
calm_status calm_export_put_f16(calm_ctx *ctx, calm_shards_writer *writer, const float *values, size_t rows,
                                size_t columns);

/* The scales of a linear in float16, transposed: [G, out]. */
calm_status calm_export_put_scales(calm_ctx *ctx, calm_shards_writer *writer, const calm_qlinear *linear);

/* *out [cols, rows] = in [rows, cols], column c to row order[c] (NULL: c), in ctx->scratch; without `in` every element
 * is `constant` (zeros of symmetric schemes). */
calm_status calm_export_transpose(calm_ctx *ctx, const uint8_t *in, uint8_t constant, size_t rows, size_t cols,
                                  const uint32_t *order, uint8_t **out);

/* Codes [rows, cols] in 32-bit words: each row by itself, or each column (calm_pack_rows, calm_pack_columns). */
calm_status calm_export_put_packed(calm_ctx *ctx, calm_shards_writer *writer, const uint8_t *codes, size_t rows,
                                   size_t cols, int bits, bool by_column);
