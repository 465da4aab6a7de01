/* Writes the safetensors formats: goes through the float checkpoint's tensors outside the blocks first, then block by
 * block, by name, and assembles one block at a time.
 *
 *   a quantized linear's weight    becomes the tensors of the format (calm_export_form)
 *   norms, biases, float weights   are written as assembled (assemble.h): input scales are folded into some
 *   everything else                is copied
 *
 * All formats have this order in their files, so that memory holds one block at a time. */
#pragma once

#include "ptq/plan/assemble.h"
#include "ptq/export/export.h"
#include "ptq/io/shards.h"

#define CALM_EXPORT_TENSORS 4    /* largest number of tensors per quantized weight */

/* One of the tensors that a quantized weight becomes. */
typedef struct calm_export_tensor {
    const char *suffix;    /* replaces "weight" in the name: "weight_packed" */
    calm_dtype dtype;
    int n_dims;
    size_t shape[2];
} calm_export_tensor;

/* Returns the bytes of its elements. */
static inline size_t calm_export_tensor_bytes(const calm_export_tensor *tensor)
{
    const size_t elements = tensor->shape[0] * (tensor->n_dims > 1 ? tensor->shape[1] : 1);
    return elements * calm_dtype_bytes(tensor->dtype);
}

/* A format of safetensors and config.json.  calm_exporter_write writes the weights (model.safetensors, or shards with
 * their index), the float model's config.json with the quantization entry added, and the companions. */
struct calm_export_form {
    /* Lists the tensors of a weight [out, in] in the file's order; returns their number. */
    size_t (*tensors)(const calm_scheme *scheme, size_t out, size_t in, calm_export_tensor list[CALM_EXPORT_TENSORS]);
    /* Writes tensor `which` of this list, with calm_shards_put or one of the functions below; `asymmetric`: a weight of
     * the plan has zero points.  Peak of ctx->scratch: the tensor and one byte per weight. */
    calm_status (*put)(calm_ctx *ctx, calm_shards_writer *writer, const calm_qlinear *linear, size_t which,
                       bool asymmetric);
    /* Does the format store the scheme's scales as float16?  Then codes are fitted to the float16 scales before `put`
     * (calm_export_fit_f16).  NULL: never. */
    bool (*stores_f16)(const calm_scheme *scheme);
    /* Name of the module that holds all experts of a block, in place of "experts"; each of its tensors has a first
     * dimension E.  NULL: every expert has its own tensors. */
    const char *stack;
    /* If the checkpoint has a block's experts in one tensor and none of them is quantized, write that tensor, which all
     * readers of the family accept; false: every expert gets its own. */
    bool whole;
    /* Fills in the quantization entry, an empty object. */
    calm_status (*entry)(calm_ctx *ctx, const calm_export_input *input, calm_json *entry);
    const char *keys[2];    /* members of config.json that get the entry; NULL: no second one */
    const char *entry_file; /* a file that holds only the entry; NULL: none                   */
};

/* Rounds those scales of an assembled linear that float16 does not hold exactly, which are below 2^-17, and computes
 * the codes of their groups again, in ctx->out; logs one note with the loss.  Does nothing if all scales are exact. */
calm_status calm_export_fit_f16(calm_ctx *ctx, const char *name, calm_qlinear *linear);

/* A calm_export_form.stores_f16 that is always true. */
bool calm_export_always_f16(const calm_scheme *scheme);

/* Turns "model.layers.0.mlp.experts.3.gate_proj" and "switch_mlp" into "model.layers.0.mlp.switch_mlp.gate_proj", in
 * ctx->out; what follows in the name stays. */
calm_status calm_export_stack_name(calm_ctx *ctx, const calm_export_input *input, const char *name, const char *stack,
                                   char **out);

/* Does a weight of the plan have zero points? */
bool calm_export_is_asymmetric(const calm_export_input *input);

/* Writes a tensor of the checkpoint as dtype. */
calm_status calm_export_put_tensor(calm_ctx *ctx, calm_shards_writer *writer, calm_dtype dtype,
                                   const calm_tensor *tensor);

/* Writes floats [n] as dtype. */
calm_status calm_export_put_floats(calm_ctx *ctx, calm_shards_writer *writer, calm_dtype dtype, const float *values,
                                   size_t n);

/* Writes floats [rows, columns] as float16, which must hold every value exactly.  CALM_ENUMERIC with tensor, row and
 * column. */
calm_status calm_export_put_f16(calm_ctx *ctx, calm_shards_writer *writer, const float *values, size_t rows,
                                size_t columns);

/* Writes the scales of a linear as float16, transposed to [G, out]. */
calm_status calm_export_put_scales(calm_ctx *ctx, calm_shards_writer *writer, const calm_qlinear *linear);

/* Transposes in [rows, cols] to *out [cols, rows], column c to row order[c] (NULL: c), in ctx->scratch; `in` NULL:
 * every element is `constant` (zeros of symmetric schemes). */
calm_status calm_export_transpose(calm_ctx *ctx, const uint8_t *in, uint8_t constant, size_t rows, size_t cols,
                                  const uint32_t *order, uint8_t **out);

/* Writes codes [rows, cols] in 32-bit words, packed along rows or along columns (calm_pack_rows, calm_pack_columns). */
calm_status calm_export_put_packed(calm_ctx *ctx, calm_shards_writer *writer, const uint8_t *codes, size_t rows,
                                   size_t cols, int bits, bool by_column);
