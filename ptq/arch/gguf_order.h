/* Orders of rows and columns in GGUF files that differ from a checkpoint's, and tensors that are split in two.
 *
 *   q, k        rows of a head of width d, for rotary embeddings of neighbours: new row 2 j + t = old row t d / 2 + j
 *   delta net   value heads are ordered round robin over key heads, as llama.cpp repeats those: new head j K + k = old
 *               head k V / K + j for K key heads and V value heads; rows of q, k before them stay.  Fused q, k, v, z,
 *               stored key head by key head in a checkpoint, become one tensor of q, k and v of all heads and one of z.
 *   gate, up    rows of one matrix, the first half and the last, are two tensors
 *   positions   rows of the padding token and those before it are left out
 *   scans       decays and skips of Mamba-2's heads are columns, one element a row; the weight of the norm behind the
 *               scan has a row for each group of channels
 *   kv_b        each head has nope rows of keys, then rows of values: transposed keys are one tensor of three
 *               dimensions, values are another
 *
 * Source: llama.cpp's convert_hf_to_gguf.py (LlamaModel.permute, _LinearAttentionVReorderBase, Qwen3NextModel,
 * DeepseekV2Model, GraniteMoeModel, Mamba2Model). */
#pragma once

#include "ptq/base/context.h"

/* The part of a checkpoint's tensor that a file's tensor holds, and its order. */
typedef enum calm_gguf_form {
    CALM_GGUF_AS_IS,
    CALM_GGUF_Q,                /* rows of heads of q and of k, permuted in some families (calm_gguf_arch)      */
    CALM_GGUF_K,
    CALM_GGUF_MIXED,            /* q, k and v of a delta net                                                   */
    CALM_GGUF_VALUES,           /* rows of a delta net's value heads                                           */
    CALM_GGUF_GATES,            /* one row or element for each value head                                      */
    CALM_GGUF_VALUE_COLUMNS,    /* columns of value heads                                                      */
    CALM_GGUF_QKVZ_MIXED,       /* the rows q, k, v of a fused matrix                                          */
    CALM_GGUF_QKVZ_GATE,        /* the rows z of the same matrix                                               */
    CALM_GGUF_KV_KEYS,          /* the rows of keys in kv_b: transposed, head by head                          */
    CALM_GGUF_KV_VALUES,        /* the rows of values in kv_b                                                  */
    CALM_GGUF_FIRST_HALF,       /* the first half of the rows of gate and up                                   */
    CALM_GGUF_LAST_HALF,        /* the last half                                                               */
    CALM_GGUF_COLUMN,           /* a vector, stored as a matrix of one column                                  */
    CALM_GGUF_GROUPS,           /* a vector, stored as a matrix with a row for each of Mamba-2's groups        */
    CALM_GGUF_LATER_ROWS,       /* all rows after those of padding                                             */
} calm_gguf_form;

/* Numbers and widths of heads that the orders depend on; 0 where a model has no such heads. */
typedef struct calm_gguf_widths {
    size_t key_heads, value_heads, key_dim, value_dim;    /* of delta nets    */
    size_t heads, nope, value;                            /* of latent attention: heads, rows of keys and values */
    size_t groups;                                        /* of Mamba-2 */
} calm_gguf_widths;

/* The order of one tensor. */
typedef struct calm_gguf_order {
    calm_gguf_form form;
    size_t head_dim;                   /* rows of a head of q or k           */
    const calm_gguf_widths *widths;    /* borrowed                           */
    size_t half;                       /* rows of gate in a fused matrix of gate and up */
    size_t skipped;                    /* leading rows that the file leaves out */
} calm_gguf_order;

/* Makes an order; its form becomes CALM_GGUF_AS_IS where no row moves, because each key head serves one value head. */
calm_gguf_order calm_gguf_order_of(calm_gguf_form form, size_t head_dim, const calm_gguf_widths *widths);

/* Does the form hold one of two parts of a checkpoint's tensor?  *first: it is the part with the first rows. */
bool calm_gguf_order_is_part(calm_gguf_form form, bool *first);

/* Is it the form of a vector that a file stores as a matrix? */
bool calm_gguf_order_is_vector(calm_gguf_form form);

/* Gives the sizes in the file, fastest dimension first, of the checkpoint's matrix [rows, cols], or of its vector
 * [rows] with cols 1; returns their number. */
int calm_gguf_order_dims(const calm_gguf_order *order, size_t rows, size_t cols, size_t dims[3]);

/* Returns the checkpoint's row (element, of a vector) that the file's row `row` holds.  Not for CALM_GGUF_KV_KEYS. */
size_t calm_gguf_order_row(const calm_gguf_order *order, size_t row);

/* Returns the file's row that holds the checkpoint's row `row`; *other: it is in the second of two parts.  For
 * CALM_GGUF_KV_KEYS the result is a column, of head row / (nope + value). */
size_t calm_gguf_order_find(const calm_gguf_order *order, size_t row, bool *other);

/* Return the checkpoint's column that the file's column `column` holds, and the file's column for a checkpoint's. */
size_t calm_gguf_order_column(const calm_gguf_order *order, size_t column);
size_t calm_gguf_order_find_column(const calm_gguf_order *order, size_t column);
