/* Quantized linears as ggml's blocks, bit for bit: every type only rearranges codes, zeros and scales.
 *
 *   (u - z) s     int2, int3, symmetric int4  -> Q4_0   code u - z + 8, d = s
 *                 asymmetric int4             -> Q4_1   code u, d = s, m = -z s rounded to float16
 *                 int5 to int7, symmetric int8 -> Q8_0  code u - z, d = s
 *   a family of schemes.def               -> its type  codes, and scales taken apart (super_block.h)
 * Blocks of 32 columns are within a group: groups of 32 n columns, or one per row. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/plan/assemble.h"
#include "ptq/io/gguf_write.h"
#include "ptq/model/gguf_order.h"

/* For calm_exporter.refuses. */
const char *calm_export_gguf_refuses(const calm_scheme *scheme);

/* The type for linear `module` with `in` columns.  CALM_EUNSUPPORTED, naming it: its scheme quantizes activations, has
 * groups that blocks of 32 do not fit into, or is asymmetric with 8 bits; or the type's blocks do not divide the
 * columns. */
calm_status calm_gguf_type_of(calm_ctx *ctx, const calm_scheme *scheme, const char *module, size_t in,
                              calm_ggml_type *out);

/* Put row `row` of a linear as `type`, which its scheme has or fits, with its columns in the file's order; blocks stay
 * together.  CALM_ENUMERIC: a scale or minimum is none that the type can hold. */
calm_status calm_gguf_put_row(calm_ctx *ctx, calm_gguf_writer *writer, const calm_qlinear *linear, const char *module,
                              size_t row, const calm_gguf_order *order, calm_ggml_type type);
