/* Rows of embeddings and heads, quantized as they are written. */
#ifndef CALM_RUN_OUTER_ROWS_H
#define CALM_RUN_OUTER_ROWS_H

#include "algorithms/algorithm.h"
#include "ptq/export/outer.h"

/* A calm_outer_rows_fn: every row by itself, its scales those of the least squared error.  `user` is not read.
 * CALM_ENUMERIC: a weight that is not finite, a scale out of range. */
calm_status calm_outer_rows(void *user, calm_ctx *ctx, const calm_tensor *table, const calm_scheme *scheme,
                            size_t first, size_t n, calm_qlinear *out);

/* All rows rounded so, out [V, D] in float16: what a reader multiplies by up to that.  Fails likewise. */
calm_status calm_outer_rows_round(calm_ctx *ctx, const calm_tensor *table, const calm_scheme *scheme, uint16_t *out);

/* The chain that does it, in ctx->out. */
calm_status calm_outer_algorithm(calm_ctx *ctx, calm_algorithm **out);

/* What that takes of ctx->out and ctx->scratch for one piece of a table [vocab, width], at most. */
size_t calm_outer_rows_bytes(const calm_algorithm *algorithm, size_t vocab, size_t width, size_t n_threads);

#endif
