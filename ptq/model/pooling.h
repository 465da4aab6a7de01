/* From hidden rows to the embedding of a sentence, as sentence-transformers' modules.json lists it: a weighted sum of
 * the rows, then dense layers and divisions by the length.
 *
 *   pooled   sum of w_t x_t over the tokens t = 1 .. T
 *            mean 1 / T    mean_sqrt_len 1 / sqrt T    weightedmean t / (1 + ... + T)    cls, lasttoken one row
 *   dense    f(W y + b)    normalize y / |y|
 *
 * In double.  Without modules.json the embedding is the mean.  The prompt that config_sentence_transformers.json names
 * as the default one is part of each text. */
#pragma once

#include "ptq/model/config.h"

typedef enum calm_pooling_mode {
    CALM_POOLING_MEAN, CALM_POOLING_CLS, CALM_POOLING_LAST, CALM_POOLING_MEAN_SQRT, CALM_POOLING_WEIGHTED
} calm_pooling_mode;

/* Functions whose slope follows from their value. */
typedef enum calm_dense_function {
    CALM_DENSE_IDENTITY, CALM_DENSE_TANH, CALM_DENSE_RELU, CALM_DENSE_SIGMOID
} calm_dense_function;

typedef struct calm_pooling_step {
    bool dense;                 /* else: y / |y| */
    size_t in, out;
    calm_dense_function function;
    bool biased;
    const char *dir;            /* of its model.safetensors           */
    const float *w, *b;         /* [out, in], [out] once it is loaded */
} calm_pooling_step;

#define CALM_POOLING_STEPS ((size_t)8)

struct calm_pooling {
    calm_pooling_mode mode;
    size_t hidden, width;       /* of a row, of the embedding */
    const char *prompt;         /* stands before each sentence; NULL: nothing does */
    size_t n_steps;
    calm_pooling_step steps[CALM_POOLING_STEPS];
};

/* Width of a sentence's embedding. */
size_t calm_pooling_width(const calm_config *config);

/* What stands before each sentence; NULL: nothing. */
const char *calm_pooling_prompt(const calm_config *config);

/* Has it the length 1: is the last step y / |y|? */
bool calm_pooling_is_unit(const calm_config *config);

/* What modules.json of a model directory says, checked against config->hidden, in ctx->out; *out NULL: there is none,
 * or it has no module that pools.  CALM_EUNSUPPORTED: a module, mode or function that is not known, several modes at
 * once.  CALM_EFORMAT: sizes that do not fit.  CALM_ENOTFOUND: a file or tensor is missing. */
calm_status calm_pooling_read(calm_ctx *ctx, const char *dir, const calm_config *config, const calm_pooling **out);

/* With the weights of its layers in ctx->out; a plain mean where the model says nothing. */
calm_status calm_pooling_load(calm_ctx *ctx, const calm_config *config, calm_pooling *out);
size_t calm_pooling_load_bytes(const calm_config *config);

/* The same of one layer alone: its w and b, where they are not in memory. */
calm_status calm_pooling_load_step(calm_ctx *ctx, calm_pooling_step *step);
size_t calm_pooling_step_bytes(const calm_pooling_step *step);

/* Numbers that calm_pooling_run keeps for the way back: of every stage, the pooled row first. */
size_t calm_pooling_room(const calm_pooling *pooling);

/* What row t of n counts. */
double calm_pooling_weight(calm_pooling_mode mode, size_t n, size_t t);

/* room [calm_pooling_room] = all stages of n >= 1 rows x [n, hidden]; the result, the last of them, is returned. */
const double *calm_pooling_run(const calm_pooling *pooling, const float *x, size_t n, double *room);

/* dy [width] of the result and dx [hidden] of the pooled row; d_room is room of the same size. */
void calm_pooling_back(const calm_pooling *pooling, const double *room, const double *dy, double *d_room, double *dx);
