/* Outlier models: writes a model's tensors with other factors, in other pieces or with new tensors, as a checkpoint. */
#ifndef CALM_TESTS_TOOLS_TWIN_H
#define CALM_TESTS_TOOLS_TWIN_H

#include "ptq/arch/arch.h"
#include "ptq/model/model.h"

/* One tensor of the twin: rows first_row .. + n_rows - 1 and columns first_column .. + n_columns - 1 of `from`, row i
 * of the piece times rows[i], column j divided by columns[j], all times `factor`; or `values` unchanged. */
typedef struct twin_piece {
    const char *name;
    const calm_tensor *from;
    size_t first_row, n_rows, first_column, n_columns;
    const double *rows, *columns;    /* NULL: all 1 */
    double factor;
    bool plus_one;                   /* a norm that is stored minus 1                       */
    float *values;                   /* [n_rows, n_columns] instead of `from`               */
    const float *extra_row;          /* [n_columns] is added to row `extra_at` of the piece */
    size_t extra_at;
} twin_piece;

/* Options, as typed. */
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
    twin_piece *pieces;    /* a piece per tensor that stays, in the model's order; then new ones */
    size_t n, room;
    calm_json *json;       /* config.json to write                  */
    calm_json *tokenizer;  /* tokenizer.json to write; NULL: a copy */
} twin;

/* Begins with the model's whole tensors and its config.json. */
calm_status twin_begin(calm_ctx *ctx, twin *it, const twin_arguments *args, const calm_model *model);

/* Finds the piece of that name.  CALM_ENOTFOUND. */
calm_status twin_find(calm_ctx *ctx, const twin *it, const char *name, twin_piece **out);

/* Appends a piece; its name and everything it points to live in ctx->out. */
calm_status twin_add(calm_ctx *ctx, twin *it, const twin_piece *piece);

/* Removes the piece of that name. */
calm_status twin_remove(calm_ctx *ctx, twin *it, const char *name);

/* Writes to ctx->out the name of a linear, "model.layers.3.mlp.up_proj", or of the tensor of a sublayer's input
 * norm. */
calm_status twin_module(calm_ctx *ctx, const twin *it, size_t block, calm_role role, char **out);
calm_status twin_norm(calm_ctx *ctx, const twin *it, size_t block, calm_sublayer sublayer, char **out);

/* Writes the model to args->output, which appears when it is complete. */
calm_status twin_write(calm_ctx *ctx, const twin *it);

/* Frees what twin_begin holds outside the arenas. */
void twin_clear(twin *it);

/* The kinds of changes, each in its file. */
calm_status twin_outliers(calm_ctx *ctx, twin *it);
calm_status twin_split(calm_ctx *ctx, twin *it);
calm_status twin_first_token(calm_ctx *ctx, twin *it);

#endif
