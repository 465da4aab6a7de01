/* Importance matrices of llama.cpp's llama-imatrix: of the inputs of each weight matrix the mean squares over a text.
 *
 *   GGUF     NAME.in_sum2 F32 [I, E], NAME.counts F32 [1, E]: sums of squares, tokens that were summed; E experts or 1
 *   .dat     i32 entries, then of each i32 length, name | i32 calls | i32 values | F32 values: calls times mean
 *            squares, of experts one after the other.  Behind them, in later files: i32 calls | i32 length, name of
 *            the text
 *
 * Little-endian.  Files are untrusted: every count, length and number is checked when a file is opened, which is mapped
 * from then on.  Source: llama.cpp, tools/imatrix/imatrix.cpp and tools/quantize/quantize.cpp. */
#pragma once

#include "ptq/base/context.h"

/* In GGUF files: general.type, and what names of tensors end in. */
#define CALM_IMATRIX_TYPE   "imatrix"
#define CALM_IMATRIX_SUMS   ".in_sum2"
#define CALM_IMATRIX_COUNTS ".counts"

/* What there is of one weight matrix; all borrowed from the file. */
typedef struct calm_imatrix_entry {
    const char *name;         /* "blk.0.attn_q.weight"                            */
    const void *sums;         /* F32 [n], any alignment: finite, >= 0             */
    const void *counts;       /* F32 [n_counts], any alignment; NULL: `calls`     */
    size_t n, n_counts;       /* I times E; E, in .dat files 1                    */
    int32_t calls;            /* > 0 in .dat files                                */
} calm_imatrix_entry;

typedef struct calm_imatrix calm_imatrix;

/* Open a file of either form; close releases all that it owns.  CALM_ENOTFOUND, CALM_EIO; CALM_EFORMAT: file, entry,
 * expected, found.  Another GGUF file, as a model, is refused by what it says of itself. */
calm_status calm_imatrix_open(calm_ctx *ctx, const char *path, calm_imatrix **out);
void calm_imatrix_close(calm_imatrix *file);

/* The path it was opened under. */
const char *calm_imatrix_path(const calm_imatrix *file);

/* Entries, sorted by name; by name, NULL when absent. */
size_t calm_imatrix_count(const calm_imatrix *file);
const calm_imatrix_entry *calm_imatrix_at(const calm_imatrix *file, size_t index);
const calm_imatrix_entry *calm_imatrix_find(const calm_imatrix *file, const char *name);

/* Mean squares [width] of the inputs of expert `part` of n_parts (0 of 1: of the only matrix); *seen false, and nothing
 * of use in out: no token reached that expert.  CALM_EFORMAT: the entry is not of n_parts matrices with `width` inputs,
 * or is of a matrix that is no expert's and saw no token. */
calm_status calm_imatrix_means(calm_ctx *ctx, const calm_imatrix *file, const calm_imatrix_entry *entry, size_t part,
                               size_t n_parts, size_t width, double *out, bool *seen);
