/* Twins: a model's tensors under other factors, in other pieces or next to new ones, written as a checkpoint. */
#ifndef CALM_TESTS_TOOLS_TWIN_H
#define CALM_TESTS_TOOLS_TWIN_H

#include "ptq/model/arch.h"
#include "ptq/model/model.h"

/* One tensor of the twin: rows first_row .. + n_rows - 1 and columns first_column .. + n_columns - 1 of `from`, row i
 * of the piece times rows[i], column j divided by columns[j], all times `factor`; or `values` as they are. */
typedef struct twin_piece {
    const char *name;
    const calm_tensor *from;
    size_t first_row, n_rows, first_column, n_columns;
    const double *rows, *columns;    /* NULL: all 1                                           */
    double factor;
    bool plus_one;                   /* a norm that is stored less 1                          */
    float *values;                   /* [n_rows, n_columns] instead of `from`                 */
    const float *extra_row;          /* [n_columns] is added to row `extra_at` of the piece   */
    size_t extra_at;
} twin_piece;

/* What is typed. */
typedef struct twin_arguments {
    const char *model, *output, *first_token;
    long long seed, split_mlp;
    double shrink;
    bool even;
} twin_arguments;

typedef struct twin {
    const twin_arguments *args;
    const calm_model *model;
    const calm_config *config;
    twin_piece *pieces;    /* of every tensor that stays, in the order of the model's; then new ones */
    size_t n, room;
    calm_json *json;       /* config.json as it will be written                                      */
    calm_json *tokenizer;  /* tokenizer.json likewise; NULL: copied                                   */
} twin;

/* Begin with the model's own tensors, whole, and its config.json. */
calm_status twin_begin(calm_ctx *ctx, twin *it, const twin_arguments *args, const calm_model *model);

/* The piece of that name, which is there: CALM_ENOTFOUND. */
calm_status twin_find(calm_ctx *ctx, const twin *it, const char *name, twin_piece **out);

/* Append a piece; its name, and all it points to, live in ctx->out. */
calm_status twin_add(calm_ctx *ctx, twin *it, const twin_piece *piece);

/* Take the piece of that name out. */
calm_status twin_remove(calm_ctx *ctx, twin *it, const char *name);

/* "model.layers.3.mlp.up_proj" and the like, and that with ".weight" behind it. */
calm_status twin_module(calm_ctx *ctx, const twin *it, size_t block, calm_role role, char **out);
calm_status twin_norm(calm_ctx *ctx, const twin *it, size_t block, calm_sublayer sublayer, char **out);

/* Write it to args->output, which appears when it is whole. */
calm_status twin_write(calm_ctx *ctx, const twin *it);

/* Free what twin_begin holds next to the arenas. */
void twin_clear(twin *it);

/* The kinds, each in its file. */
calm_status twin_outliers(calm_ctx *ctx, twin *it);
calm_status twin_split(calm_ctx *ctx, twin *it);
calm_status twin_first_token(calm_ctx *ctx, twin *it);

#endif
