/* A block's parameters one by one, as values that a test may change and with room for their gradients. */
#ifndef CALM_TESTS_BLOCK_PARAMS_H
#define CALM_TESTS_BLOCK_PARAMS_H

#include "ptq/model/block_back.h"
#include "ptq/model/model.h"

typedef struct block_param {
    const char *name;    /* of its tensor in the checkpoint */
    float *value, *grad; /* [n] grad is zero at first       */
    size_t n;
} block_param;

typedef struct block_params {
    calm_block block; /* reads the values below, its experts too  */
    calm_block_grads grads;
    block_param *all;
    size_t n;
    calm_weight (*experts)[CALM_N_ROLES]; /* [n_experts] */
} block_params;

/* Load block `index`; everything lives in ctx->out.  The block refers to `out`, which stays where it is. */
void block_params_load(const calm_model *model, size_t index, block_params *out);

/* Zero the gradients. */
void block_params_clear(block_params *params);

/* All gradients one after the other, and how many there are: to compare bytes. */
float *block_params_gradients(const block_params *params, size_t *n);

#endif
