/* Quantized jobs: codes, scales, zeros and minima of all linears of a job, one byte per code.
 *
 * Algorithms make them, the store keeps them, assembly and the exporters rearrange them. */
#pragma once

#include <stdint.h>

#include "ptq/quant/grid.h"

/* What a job may have besides, as a set of bits: in_scale, bias_delta. */
enum { CALM_QJOB_SCALED = 1, CALM_QJOB_BIASED = 2 };

/* Codes, scales, zeros or minima where the scheme has them, and what is in the set `extras`, all zero, in ctx->out, for
 * the shape and scheme that qjob has.  CALM_ENOMEM. */
calm_status calm_qjob_new(calm_ctx *ctx, unsigned extras, calm_qjob *qjob);

/* What that takes of ctx->out. */
size_t calm_qjob_bytes(const calm_scheme *scheme, size_t out, size_t in, unsigned extras);

/* The grid of group `cell` = row * n_groups + group. */
calm_grid calm_qjob_grid(const calm_qjob *qjob, size_t cell);

/* Rows first .. first + n - 1 of a job: a view of its arrays, with what all rows share. */
calm_qjob calm_qjob_rows(const calm_qjob *qjob, size_t first, size_t n);

/* The set of what a job has. */
unsigned calm_qjob_extras(const calm_qjob *qjob);

/* w [O, I] = as calm_grid_decode, not divided by in_scale: what a checkpoint reader computes. */
void calm_qjob_dequantize(const calm_qjob *qjob, float *w);
