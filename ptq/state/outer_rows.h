/* Rows of embeddings and heads, quantized while they are written. */
#pragma once

#include "algorithms/algorithm.h"
#include "ptq/base/sha256.h"
#include "ptq/data/windows.h"
#include "ptq/export/outer.h"
#include "ptq/recipe/formats.h"

/* How the rows of embedding and head are quantized, and the data that the head is fitted to. */
typedef struct calm_outer_fit {
    const char *algorithm;    /* name from calm_recipe_head_algorithm; NULL: no data, least squared error */
    const char *head;         /* tensor of the head; for a tied head the embedding's */
    calm_stats stats;         /* statistics of the head's inputs; gram NULL: not collected */
} calm_outer_fit;

/* Sets *out to whether the algorithm needs statistics of the head's inputs. */
calm_status calm_outer_fit_reads(calm_ctx *ctx, const calm_outer_fit *fit, bool *out);

/* Collects these statistics over calibration windows into ctx->out; does nothing if the algorithm needs none or they
 * are there.
 * A row of a table that is both embedding and head is multiplied by the head's input, and as embedding it is added as a
 * whole to the hidden states.  For the latter, the identity times the Gram matrix's mean diagonal is added to the Gram
 * matrix, which measures best (docs/evidence/head_fit.csv). */
calm_status calm_outer_fit_collect(calm_ctx *ctx, const calm_model *model, const calm_windows *windows,
                                   calm_outer_fit *fit);

/* Quantizes n rows of a table from row `first`, each row separately (calm_outer_rows_fn; user: a calm_outer_fit).  An
 * algorithm that reads data is used only for its head; an algorithm that reads none is used for all tables.  Otherwise
 * scales minimize the squared error.  CALM_ENUMERIC: a weight is not finite, or a scale is out of range. */
calm_status calm_outer_rows(void *user, calm_ctx *ctx, const calm_tensor *table, const calm_scheme *scheme,
                            size_t first, size_t n, calm_qlinear *out);

/* Quantizes all rows in this way and dequantizes them: out [V, D] in float16.  Fails likewise. */
calm_status calm_outer_rows_round(calm_ctx *ctx, const calm_outer_fit *fit, const calm_tensor *table,
                                  const calm_scheme *scheme, uint16_t *out);

/* Returns the algorithm of that name, or for NULL the one that needs no data; in ctx->out. */
calm_status calm_outer_algorithm(calm_ctx *ctx, const char *name, calm_algorithm **out);

/* Returns calm_recipe_head_algorithm for a stored run that is written in `formats`; it points into `recipe`.  It is the
 * recipe's algorithm; if the run's files have float tables, it is the one that the recipe would have with these
 * formats, so that `calm export` writes the same as `calm quantize`. */
calm_status calm_outer_stored_algorithm(calm_ctx *ctx, const calm_json *recipe, const calm_formats *formats,
                                        const char **out);

/* Computes the digest of what a fit depends on: its algorithm with all options, and the calibration key. */
calm_status calm_outer_fit_key(calm_ctx *ctx, const calm_outer_fit *fit, const char *calibration,
                               char key[CALM_SHA256_HEX]);

/* Returns the peak bytes of ctx->out and ctx->scratch while one piece of a table [vocab, width] is quantized. */
size_t calm_outer_rows_bytes(const calm_algorithm *algorithm, calm_operands operands, size_t vocab, size_t width,
                             size_t n_threads);
