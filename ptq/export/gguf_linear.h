/* Quantized linears as ggml's blocks, without a change of values: codes, zeros and scales are only rearranged.
 *
 *   (u - z) s     int2, int3, symmetric int4  -> Q4_0   code u - z + 8, d = s
 *                 asymmetric int4             -> Q4_1   code u, d = s, m = -z s rounded to float16
 *                 int5 to int7, symmetric int8 -> Q8_0  code u - z, d = s
 *   a family of schemes.def               -> its type  codes, and scales split as super_block.h describes
 * A block of 32 columns is within one group: groups have 32 n columns, or there is one per row. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/plan/assemble.h"
#include "ptq/io/gguf_write.h"
#include "ptq/arch/gguf_order.h"

/* The functions calm_exporter.refuses and calm_exporter.bits of gguf. */
const char *calm_export_gguf_refuses(const calm_scheme *scheme);
double calm_export_gguf_bits(const calm_scheme *scheme, size_t out, size_t in);

/* Returns the type for linear `module` with `in` columns.  CALM_EUNSUPPORTED, naming it: its scheme quantizes
 * activations, has groups that are not multiples of 32, or is asymmetric with 8 bits; or the type's blocks do not
 * divide the columns. */
calm_status calm_gguf_type_of(calm_ctx *ctx, const calm_scheme *scheme, const char *module, size_t in,
                              calm_ggml_type *out);

/* Writes row `row` of a linear as `type`, its scheme's own type or one that holds it, with its columns in the file's
 * order, which keeps blocks together.  CALM_ENUMERIC: the type cannot hold a scale or minimum. */
calm_status calm_gguf_put_row(calm_ctx *ctx, calm_gguf_writer *writer, const calm_qlinear *linear, const char *module,
                              size_t row, const calm_gguf_order *order, calm_ggml_type type);
