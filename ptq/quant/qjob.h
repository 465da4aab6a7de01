/* Quantized jobs: codes, scales, zeros and minima of all linear layers of a job, one byte per code.
 *
 * Algorithms create them, the store keeps them, assembly and the exporters rearrange them. */
#pragma once

#include <stdint.h>

#include "ptq/quant/grid.h"

/* Optional arrays of a job, as bits of a set: in_scale, bias_delta. */
enum { CALM_QJOB_SCALED = 1, CALM_QJOB_BIASED = 2 };

/* Allocates the arrays of a job in ctx->out, filled with zeros, for the shape and scheme that qjob has: codes,
 * scales, zeros or minima if the scheme has them, and the optional arrays `extras`.  CALM_ENOMEM. */
calm_status calm_qjob_new(calm_ctx *ctx, unsigned extras, calm_qjob *qjob);

/* Returns the bytes that calm_qjob_new allocates in ctx->out. */
size_t calm_qjob_bytes(const calm_scheme *scheme, size_t out, size_t in, unsigned extras);

/* Returns the grid of group `cell` = row * n_groups + group. */
calm_grid calm_qjob_grid(const calm_qjob *qjob, size_t cell);

/* Returns a view of rows first .. first + n - 1 of a job, with the values that all rows share. */
calm_qjob calm_qjob_rows(const calm_qjob *qjob, size_t first, size_t n);

/* Returns the set of optional arrays that a job has. */
unsigned calm_qjob_extras(const calm_qjob *qjob);

/* Computes w [O, I] as calm_grid_decode does, not divided by in_scale: the weights that a checkpoint reader
 * computes. */
void calm_qjob_dequantize(const calm_qjob *qjob, float *w);
