/* The first block of a checkpoint, and windows to run it on. */
#ifndef CALM_TESTS_FIRST_BLOCK_H
#define CALM_TESTS_FIRST_BLOCK_H

#include "ptq/model/batch.h"
#include "ptq/model/model.h"

typedef struct first_block {
    calm_model *model;
    calm_windows windows;
    calm_rope rope;        /* of the longest window */
    calm_block block;
    calm_batch batch;      /* filled by first_block_embed */
} first_block;

/* Of the checkpoint in `dir`, with n windows of these lengths and tiny_windows' ids, in ctx->out. */
first_block first_block_open(const char *dir, const size_t *lengths, size_t n);

/* The embeddings of all windows. */
void first_block_embed(first_block *b);

#endif
