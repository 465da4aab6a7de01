/* Sentence embeddings from hidden states, as sentence-transformers' modules.json describes them: a weighted sum of the
 * rows, then dense layers and divisions by the length.
 *
 *   pooled   sum of w_t x_t over the tokens t = 1 .. T
 *            mean 1 / T    mean_sqrt_len 1 / sqrt T    weightedmean t / (1 + ... + T)    cls, lasttoken one row
 *   dense    f(W y + b)    normalize y / |y|
 *
 * Computed in double.  Without modules.json the embedding is the mean.  The default prompt of
 * config_sentence_transformers.json is part of each text. */
#pragma once

#include "ptq/arch/config.h"

typedef enum calm_pooling_mode {
    CALM_POOLING_MEAN, CALM_POOLING_CLS, CALM_POOLING_LAST, CALM_POOLING_MEAN_SQRT, CALM_POOLING_WEIGHTED
} calm_pooling_mode;

/* Activation functions of dense layers; the derivative of each follows from its value. */
typedef enum calm_dense_function {
    CALM_DENSE_IDENTITY, CALM_DENSE_TANH, CALM_DENSE_RELU, CALM_DENSE_SIGMOID
} calm_dense_function;

typedef struct calm_pooling_step {
    bool dense;                 /* true: a dense layer; false: y / |y| */
    size_t in, out;
    calm_dense_function function;
    bool biased;
    const char *dir;            /* folder of its model.safetensors    */
    const float *w, *b;         /* [out, in], [out] once it is loaded */
} calm_pooling_step;

#define CALM_POOLING_STEPS ((size_t)8)

struct calm_pooling {
    calm_pooling_mode mode;
    size_t hidden, width;       /* widths of a hidden row and of the embedding */
    const char *prompt;         /* text put before each sentence; NULL: none */
    size_t n_steps;
    calm_pooling_step steps[CALM_POOLING_STEPS];
};

/* Returns the width of a sentence embedding. */
size_t calm_pooling_width(const calm_config *config);

/* Returns the text put before each sentence; NULL: none. */
const char *calm_pooling_prompt(const calm_config *config);

/* Do embeddings have the length 1, because the last step is y / |y|? */
bool calm_pooling_is_unit(const calm_config *config);

/* Reads modules.json of a model directory into ctx->out and checks it against config->hidden; *out NULL: there is no
 * such file, or it has no pooling module.  CALM_EUNSUPPORTED: an unknown module, mode or function, several modes at
 * once.  CALM_EFORMAT: sizes that do not match.  CALM_ENOTFOUND: a file or tensor is missing. */
calm_status calm_pooling_read(calm_ctx *ctx, const char *dir, const calm_config *config, const calm_pooling **out);

/* Copies the model's pooling and loads the weights of its layers into ctx->out; a plain mean where the model has none.
 * calm_pooling_load_bytes returns the bytes that this allocates. */
calm_status calm_pooling_load(calm_ctx *ctx, const calm_config *config, calm_pooling *out);
size_t calm_pooling_load_bytes(const calm_config *config);

/* Loads w and b of one layer into ctx->out, unless they are in memory; and returns the bytes that this allocates. */
calm_status calm_pooling_load_step(calm_ctx *ctx, calm_pooling_step *step);
size_t calm_pooling_step_bytes(const calm_pooling_step *step);

/* Returns the number of values that calm_pooling_run keeps for the backward pass: those of every stage, the pooled row
 * first. */
size_t calm_pooling_room(const calm_pooling *pooling);

/* Returns the weight of row t of n in the pooled row. */
double calm_pooling_weight(calm_pooling_mode mode, size_t n, size_t t);

/* Computes all stages for n >= 1 rows x [n, hidden] into room [calm_pooling_room]; returns the last one, the
 * embedding. */
const double *calm_pooling_run(const calm_pooling *pooling, const float *x, size_t n, double *room);

/* Backward: dx [hidden], the gradient of the pooled row, from dy [width], that of the embedding; d_room is scratch
 * memory of the size of `room`. */
void calm_pooling_back(const calm_pooling *pooling, const double *room, const double *dy, double *d_room, double *dx);
