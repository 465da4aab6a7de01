/* Quantizes the tables (embedding and head, outside the blocks) while they are written.
 *
 * Rows of a table do not depend on each other and nothing chooses between ways to round them, so that they are no
 * jobs of the pool: the exporter asks for rows, some at a time, and the code that gives the plan quantizes them.  A
 * tied table is one: its two schemes are the same. */
#pragma once

#include "ptq/model/model.h"
#include "ptq/plan/assemble.h"

typedef enum calm_outer { CALM_OUTER_EMBEDDING, CALM_OUTER_HEAD, CALM_N_OUTERS } calm_outer;

/* Rows first .. first + n - 1 of a table [V, D] at a scheme, in ctx->out. */
typedef calm_status calm_outer_rows_fn(void *user, calm_ctx *ctx, const calm_tensor *table, const calm_scheme *scheme,
                                       size_t first, size_t n, calm_qlinear *out);

typedef struct calm_outer_plan {
    calm_scheme scheme[CALM_N_OUTERS];    /* bits 0: it stays float */
    calm_scheme asked[CALM_N_OUTERS];     /* in whose place it stands, the same or another */
    calm_outer_rows_fn *rows;
    void *user;
} calm_outer_plan;

/* "embedding", "head". */
const char *calm_outer_name(calm_outer table);

/* "embedding and head q6_k", "embedding q4_k, head float", in ctx->out; NULL: both stay float. */
calm_status calm_outer_describe(calm_ctx *ctx, const calm_outer_plan *plan, const char **out);

/* The scheme of a tensor of the checkpoint; NULL: it is no table, stays float, or is a copy of the embedding that
 * readers do not look at.  Where they are tied, the embedding is both. */
const calm_scheme *calm_outer_of(const calm_model *model, const calm_outer_plan *plan, const char *tensor);

/* The scheme of a head that is its own linear; NULL: it stays float, or is the embedding. */
const calm_scheme *calm_outer_own_head(const calm_model *model, const calm_outer_plan *plan);

/* Rows that are quantized at once: a few MB in float32, and as many as the table has columns, so that what a piece
 * takes besides is made seldom. */
size_t calm_outer_piece(size_t vocab, size_t width);
