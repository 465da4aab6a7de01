/* Gram matrices on CPUs with packed products (ptq/tensor/packed.h), and what gram.c shares with them. */
#pragma once

#include "ptq/calib/gram.h"

/* Returns whether calm_gram_add_packed computes this addition with operands of that type. */
bool calm_gram_packs(calm_operands operands, const calm_gram_job *job);

/* Computes one addition of calm_gram_add, on all threads. */
calm_status calm_gram_add_packed(calm_ctx *ctx, const calm_gram_job *job);

/* Returns its peak bytes of ctx->scratch, of all workers together; 0 for a width that is not packed. */
size_t calm_gram_packed_scratch_bytes(calm_operands operands, size_t width, size_t n_threads);

/* Adds in [n] to out [n]. */
void calm_gram_add_row(size_t n, const float *restrict in, double *restrict out);

/* Returns the rows of a job's shortest chunk. */
size_t calm_gram_least_chunk(const calm_gram_job *job);
