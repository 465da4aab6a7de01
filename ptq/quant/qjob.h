/* Quantized jobs: codes, scales and zeros of all linears of a job, one byte per code.
 *
 * Algorithms make them, the store keeps them, assembly and the exporters rearrange them. */
#ifndef CALM_QUANT_QJOB_H
#define CALM_QUANT_QJOB_H

#include <stdint.h>

#include "ptq/quant/scheme.h"

/* A quantized job: W^ = (codes - zeros) * scales approximates W diag(in_scale). */
typedef struct calm_qjob {
    size_t out, in, n_groups, group;   /* O, I, G, columns per group                                */
    calm_scheme scheme;
    uint8_t *codes;      /* [O, I], below 2^bits                                                    */
    float *scales;       /* [O, G], already rounded to the scheme's scale_dtype; may be negative     */
    uint8_t *zeros;      /* [O, G]; NULL when symmetric (zero = 2^(bits-1))                         */
    float *in_scale;     /* [I] > 0: the input is divided by it; NULL = ones                        */
    double damp;         /* damping that the Cholesky factorisation needed, relative; 0 = not used  */
} calm_qjob;

/* Codes, scales, unless the scheme is symmetric zeros, and with `scaled` an input scale, all zero, in ctx->out, for
 * the shape and scheme that qjob has.  CALM_ENOMEM. */
calm_status calm_qjob_new(calm_ctx *ctx, bool scaled, calm_qjob *qjob);

/* What that takes of ctx->out. */
size_t calm_qjob_bytes(const calm_scheme *scheme, size_t out, size_t in, bool scaled);

/* w [O, I] = (codes - zeros) * scales in float32, not divided by in_scale: what a checkpoint reader computes. */
void calm_qjob_dequantize(const calm_qjob *qjob, float *w);

/* w [O, I] = the same divided by in_scale: what replaces W when the input is left as it is. */
void calm_qjob_effective(const calm_qjob *qjob, float *w);

#endif
