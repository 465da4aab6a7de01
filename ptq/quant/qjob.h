/* Quantized jobs: codes, scales and zeros of all linears of a job, one byte per code.
 *
 * Algorithms make them, the store keeps them, assembly and the exporters rearrange them. */
#ifndef CALM_QUANT_QJOB_H
#define CALM_QUANT_QJOB_H

#include <stdint.h>

#include "ptq/quant/scheme.h"

/* Codes, scales, unless the scheme is symmetric zeros, and with `scaled` an input scale, all zero, in ctx->out, for
 * the shape and scheme that qjob has.  CALM_ENOMEM. */
calm_status calm_qjob_new(calm_ctx *ctx, bool scaled, calm_qjob *qjob);

/* What that takes of ctx->out. */
size_t calm_qjob_bytes(const calm_scheme *scheme, size_t out, size_t in, bool scaled);

/* w [O, I] = (codes - zeros) * scales in float32, not divided by in_scale: what a checkpoint reader computes. */
void calm_qjob_dequantize(const calm_qjob *qjob, float *w);

#endif
