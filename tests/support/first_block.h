/* The first block of a checkpoint, and windows to run it on. */
#ifndef CALM_TESTS_FIRST_BLOCK_H
#define CALM_TESTS_FIRST_BLOCK_H

#include "ptq/layers/batch.h"
#include "ptq/model/model.h"

typedef struct first_block {
    calm_model *model;
    calm_windows windows;
    calm_rope rope;        /* for the longest window */
    calm_block block;
    calm_batch batch;      /* first_block_embed fills it */
} first_block;

/* Opens the first block of the checkpoint in `dir`, with n windows of these lengths and tiny_windows' ids, in
 * ctx->out. */
first_block first_block_open(const char *dir, const size_t *lengths, size_t n);

/* Computes the embeddings of all windows into b->batch. */
void first_block_embed(first_block *b);

#endif
