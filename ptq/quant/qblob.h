/* A quantized job as a blob of the store.
 *
 *   "CALMQJ01" | u64 out, in, group, n_groups
 *   | i32 bits, symmetric, act_bits, scale_dtype, extras, act_form | f64 damp
 *   | f32 scales [O, G] | f32 in_scale [I] if any | f32 bias_delta [O] if any
 *   | u8 zeros [O, G] unless symmetric, padded to 4 | u32 codes [O, words]
 *
 * Families of schemes.def, and static activations of other schemes, begin with "CALMQJ02", have char family[16] |
 * f32 global, act_global after damp, and f32 mins [O, G] before the codes if the family has minima.
 *
 * extras is the sum of 1 for in_scale and 2 for bias_delta (CALM_QJOB_SCALED, CALM_QJOB_BIASED); act_form is the
 * sum of 1 for asymmetric activations, 2 for vLLM's rule, 4 for static scales and 8 for FP8 activations of integer
 * weights.  All little-endian; codes are a dense bit stream per row (ptq/quant/pack.h). */
#pragma once

#include "ptq/base/context.h"
#include "ptq/quant/qjob.h"

/* Encodes a job as a blob in ctx->out. */
calm_status calm_qblob_encode(calm_ctx *ctx, const calm_qjob *qjob, void **bytes, size_t *n_bytes);

/* Returns the bytes of a job's blob; `extras` names its optional arrays (CALM_QJOB_SCALED, CALM_QJOB_BIASED). */
size_t calm_qblob_bytes(const calm_scheme *scheme, size_t out, size_t in, unsigned extras);

/* Returns the bytes that calm_qblob_encode allocates in ctx->out. */
size_t calm_qblob_encode_bytes(const calm_scheme *scheme, size_t out, size_t in, unsigned extras);

/* Decodes the job of a blob into ctx->out.  CALM_EFORMAT: impossible lengths, codes or scales; `name` appears in
 * the message. */
calm_status calm_qblob_decode(calm_ctx *ctx, const char *name, const void *bytes, size_t n_bytes, calm_qjob *out);

/* Returns the peak bytes of ctx->scratch of calm_qblob_decode; it leaves calm_qjob_bytes in ctx->out. */
size_t calm_qblob_decode_scratch_bytes(const calm_scheme *scheme, size_t out, size_t in);
