/* Rows of embeddings and heads, quantized as they are written. */
#pragma once

#include "algorithms/algorithm.h"
#include "ptq/base/sha256.h"
#include "ptq/data/windows.h"
#include "ptq/export/outer.h"
#include "ptq/recipe/formats.h"

/* What the rows of a head are fitted to, or how all tables are rounded. */
typedef struct calm_outer_fit {
    const char *algorithm;    /* its name (calm_recipe_head_algorithm); NULL: to nothing       */
    const char *head;         /* the tensor: the embedding's where that is the head            */
    calm_stats stats;         /* of what it reads; gram NULL: not collected                    */
} calm_outer_fit;

/* Is there an algorithm that reads what the head reads? */
calm_status calm_outer_fit_reads(calm_ctx *ctx, const calm_outer_fit *fit, bool *out);

/* Collect them over calibration windows, into ctx->out; nothing is done where the algorithm reads none or they are
 * there.
 * A row of a table that is embedding and head meets the head's input when it is the head, and is as a whole added to
 * the hidden rows when it is the embedding: the identity times the Gram matrix's mean diagonal is added to that matrix,
 * the share that measures best (docs/evidence/head_fit.csv). */
calm_status calm_outer_fit_collect(calm_ctx *ctx, const calm_model *model, const calm_windows *windows,
                                   calm_outer_fit *fit);

/* A calm_outer_rows_fn: every row by itself.  `user`: a calm_outer_fit.  An algorithm that reads data is for the head
 * that it was collected for, one that does not for all tables; else scales are those of the least squared error.
 * CALM_ENUMERIC: a weight that is not finite, a scale out of range. */
calm_status calm_outer_rows(void *user, calm_ctx *ctx, const calm_tensor *table, const calm_scheme *scheme,
                            size_t first, size_t n, calm_qlinear *out);

/* All rows rounded so, out [V, D] in float16: what a reader multiplies by up to that.  Fails likewise. */
calm_status calm_outer_rows_round(calm_ctx *ctx, const calm_outer_fit *fit, const calm_tensor *table,
                                  const calm_scheme *scheme, uint16_t *out);

/* The algorithm of that name, NULL: the one that needs no data; in ctx->out. */
calm_status calm_outer_algorithm(calm_ctx *ctx, const char *name, calm_algorithm **out);

/* calm_recipe_head_algorithm of a stored run when it is written in `formats`, valid as long as the run's `recipe`:
 * what the recipe says; where the run's own files have float tables, what it would say with these formats, so that
 * `calm export` writes what `calm quantize` does. */
calm_status calm_outer_stored_algorithm(calm_ctx *ctx, const calm_json *recipe, const calm_formats *formats,
                                        const char **out);

/* Digest over what a fit depends on: its algorithm, with all options, and the calibration of this key. */
calm_status calm_outer_fit_key(calm_ctx *ctx, const calm_outer_fit *fit, const char *calibration,
                               char key[CALM_SHA256_HEX]);

/* What that takes of ctx->out and ctx->scratch for one piece of a table [vocab, width], at most. */
size_t calm_outer_rows_bytes(const calm_algorithm *algorithm, calm_operands operands, size_t vocab, size_t width,
                             size_t n_threads);
