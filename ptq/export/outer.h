/* Quantization of the tables (embedding and head, outside the blocks) while they are written.
 *
 * The rows of a table are independent, and there is only one way to round them, so tables are not jobs of the pool: the
 * exporter asks for some rows at a time, and a function in the plan quantizes them.  Tied tables are one table, with
 * the same scheme twice. */
#pragma once

#include "ptq/model/model.h"
#include "ptq/plan/assemble.h"

typedef enum calm_outer { CALM_OUTER_EMBEDDING, CALM_OUTER_HEAD, CALM_N_OUTERS } calm_outer;

/* Quantizes rows first .. first + n - 1 of a table [V, D] to a scheme, in ctx->out. */
typedef calm_status calm_outer_rows_fn(void *user, calm_ctx *ctx, const calm_tensor *table, const calm_scheme *scheme,
                                       size_t first, size_t n, calm_qlinear *out);

typedef struct calm_outer_plan {
    calm_scheme scheme[CALM_N_OUTERS];    /* bits 0: the table stays float */
    calm_scheme asked[CALM_N_OUTERS];     /* the requested scheme, which `scheme` equals or replaces */
    calm_outer_rows_fn *rows;
    void *user;
} calm_outer_plan;

/* Returns "embedding" or "head". */
const char *calm_outer_name(calm_outer table);

/* Returns "embedding and head q6_k" or "embedding q4_k, head float", in ctx->out; NULL: both stay float. */
calm_status calm_outer_describe(calm_ctx *ctx, const calm_outer_plan *plan, const char **out);

/* Returns the scheme of a tensor of the checkpoint.  NULL: the tensor is not a table, stays float, or is a copy of the
 * tied embedding, which readers ignore.  A tied embedding is also the head. */
const calm_scheme *calm_outer_of(const calm_model *model, const calm_outer_plan *plan, const char *tensor);

/* Returns the scheme of an untied head; NULL: the head stays float, or is tied. */
const calm_scheme *calm_outer_own_head(const calm_model *model, const calm_outer_plan *plan);

/* Returns the number of rows to quantize at once: a few MB in float32, and at least as many as the table has columns,
 * so that matrices [D, D] are seldom computed again. */
size_t calm_outer_piece(size_t vocab, size_t width);
