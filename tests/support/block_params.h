/* A block's parameters as values that a test may change, with memory for their gradients. */
#ifndef CALM_TESTS_BLOCK_PARAMS_H
#define CALM_TESTS_BLOCK_PARAMS_H

#include "ptq/layers/block_back.h"
#include "ptq/model/model.h"

typedef struct block_param {
    const char *name;    /* name of its tensor in the checkpoint */
    float *value, *grad; /* [n] grad is zero after loading       */
    size_t n;
} block_param;

typedef struct block_params {
    calm_block block; /* reads the values below, its experts too */
    calm_block_grads grads;
    block_param *all;
    size_t n;
    calm_weight (*experts)[CALM_N_ROLES]; /* [n_experts] */
} block_params;

/* Loads block `index` into ctx->out.  The block points into `out`, which must not move. */
void block_params_load(const calm_model *model, size_t index, block_params *out);

/* Sets the gradients to zero. */
void block_params_clear(block_params *params);

/* Returns all gradients in one array [*n], to compare bytes. */
float *block_params_gradients(const block_params *params, size_t *n);

#endif
