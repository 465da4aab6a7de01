/* Files of sentence embeddings: NumPy's .npy, and JSON lines.
 *
 *   .npy     version 1.0, float32 in C order, shape (n, width); numpy.load reads it
 *   .jsonl   {"embedding": [...]} per sentence; the digits read back as the same float32
 *
 * Format of .npy: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html */
#pragma once

#include "ptq/eval/encode.h"

/* Returns true if `path` ends in a suffix that calm_embeddings_write knows. */
bool calm_embeddings_named(const char *path);

/* Divides each embedding by its length; an embedding of zeros stays. */
void calm_embeddings_normalize(calm_embeddings *embeddings);

/* Writes all embeddings to `path` in the format of its suffix, under a temporary name until the file is complete.
 * CALM_EARG: another suffix.  Fails as writing files does. */
calm_status calm_embeddings_write(calm_ctx *ctx, const calm_embeddings *embeddings, const char *path);
