/* Importance matrices of llama.cpp's llama-imatrix: mean squares of the inputs of each weight matrix over a text.
 *
 *   GGUF     NAME.in_sum2 F32 [I, E], NAME.counts F32 [1, E]: sums of squares, number of tokens; E experts or 1
 *   .dat     i32 entries, then of each i32 length, name | i32 calls | i32 values | F32 values: calls times mean
 *            squares, of all experts one after the other.  Later versions append i32 calls | i32 length, name of
 *            the text
 *
 * Little-endian.  Files are untrusted: every count, length and number is checked when a file is opened, and the
 * file stays mapped.  Source: llama.cpp, tools/imatrix/imatrix.cpp and tools/quantize/quantize.cpp. */
#pragma once

#include "ptq/base/context.h"

/* GGUF files: value of general.type, and suffixes of tensor names. */
#define CALM_IMATRIX_TYPE   "imatrix"
#define CALM_IMATRIX_SUMS   ".in_sum2"
#define CALM_IMATRIX_COUNTS ".counts"

/* Sums of one weight matrix; all pointers are borrowed from the file. */
typedef struct calm_imatrix_entry {
    const char *name;         /* "blk.0.attn_q.weight"                            */
    const void *sums;         /* F32 [n], any alignment: finite, >= 0             */
    const void *counts;       /* F32 [n_counts], any alignment; NULL: `calls`     */
    size_t n, n_counts;       /* I times E; E, or 1 in .dat files                 */
    int32_t calls;            /* > 0 in .dat files                                */
} calm_imatrix_entry;

typedef struct calm_imatrix calm_imatrix;

/* Opens a file of either form; calm_imatrix_close releases all that it owns.  CALM_ENOTFOUND, CALM_EIO;
 * CALM_EFORMAT: the message names file, entry, expected and found.  Another GGUF file, such as a model, is refused;
 * the message says what it is. */
calm_status calm_imatrix_open(calm_ctx *ctx, const char *path, calm_imatrix **out);
void calm_imatrix_close(calm_imatrix *file);

/* Returns the path that the file was opened with. */
const char *calm_imatrix_path(const calm_imatrix *file);

/* Entries sorted by name; calm_imatrix_find returns NULL when absent. */
size_t calm_imatrix_count(const calm_imatrix *file);
const calm_imatrix_entry *calm_imatrix_at(const calm_imatrix *file, size_t index);
const calm_imatrix_entry *calm_imatrix_find(const calm_imatrix *file, const char *name);

/* Computes the mean squares [width] of the inputs of expert `part` of n_parts (0 of 1: a matrix that is no
 * expert's). *seen false: no token reached that expert, and out is undefined.  CALM_EFORMAT: the entry does not
 * have n_parts matrices with `width` inputs, or a matrix that is no expert's saw no token. */
calm_status calm_imatrix_means(calm_ctx *ctx, const calm_imatrix *file, const calm_imatrix_entry *entry, size_t part,
                               size_t n_parts, size_t width, double *out, bool *seen);
