/* A quantized job as a blob of the store.
 *
 *   "CALMQJ01" | u64 out, in, group, n_groups
 *   | i32 bits, symmetric, act_bits, scale_dtype, extras, act_form | f64 damp
 *   | f32 scales [O, G] | f32 in_scale [I] if any | f32 bias_delta [O] if any
 *   | u8 zeros [O, G] unless symmetric, padded to 4 | u32 codes [O, words]
 * Families of schemes.def, and static activations under no family's name, begin with "CALMQJ02", have char family[16]
 * | f32 global, act_global after damp, and f32 mins [O, G] before the codes where the family has some.
 * extras is the sum of 1 for in_scale and 2 for bias_delta (CALM_QJOB_SCALED, CALM_QJOB_BIASED);
 * act_form is the sum of 1 for asymmetric activations, 2 for those by vLLM's rule, 4 for static ones and 8 for FP8 next
 * to whole numbers.  All
 * little-endian; codes as a dense bit stream per row (ptq/quant/pack.h). */
#pragma once

#include "ptq/base/context.h"
#include "ptq/quant/qjob.h"

/* Bytes of a blob in ctx->out. */
calm_status calm_qblob_encode(calm_ctx *ctx, const calm_qjob *qjob, void **bytes, size_t *n_bytes);

/* Bytes of the blob of a job; `extras` is what it has besides (CALM_QJOB_SCALED, CALM_QJOB_BIASED). */
size_t calm_qblob_bytes(const calm_scheme *scheme, size_t out, size_t in, unsigned extras);

/* What calm_qblob_encode takes of ctx->out. */
size_t calm_qblob_encode_bytes(const calm_scheme *scheme, size_t out, size_t in, unsigned extras);

/* The quantized job of a blob, copied into ctx->out.  CALM_EFORMAT when lengths, codes or scales are not possible;
 * `name` stands in the message. */
calm_status calm_qblob_decode(calm_ctx *ctx, const char *name, const void *bytes, size_t n_bytes, calm_qjob *out);

/* What that holds of ctx->scratch at most; what it leaves in ctx->out is calm_qjob_bytes. */
size_t calm_qblob_decode_scratch_bytes(const calm_scheme *scheme, size_t out, size_t in);
