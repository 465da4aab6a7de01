/* Rows and columns that a GGUF file has in another order than a checkpoint, and tensors that it has in two.
 *
 *   q, k        rows of a head of width d, for rotary embeddings of neighbours: new row 2 j + t = old row t d / 2 + j
 *   delta net   value heads take turns among key heads, as llama.cpp repeats those: new head j K + k = old head
 *               k V / K + j for K key heads and V value heads; rows of q, k before them stay.  Of fused q, k, v, z,
 *               which a checkpoint has key head by key head, q, k and v of all heads are one tensor and z is another.
 *   gate, up    rows of one matrix, the first half and the last, are two tensors
 *   positions   rows of the padding token and those before it are left out
 *   scans       decays and skips of Mamba-2's heads are columns, one element a row; the weight of the norm behind the
 *               scan has a row for each group of channels
 *   kv_b        of each head [nope rows of keys | value rows of values]: keys transposed are one tensor of three
 *               dimensions, values are another
 *
 * Source: llama.cpp's convert_hf_to_gguf.py (LlamaModel.permute, _LinearAttentionVReorderBase, Qwen3NextModel,
 * DeepseekV2Model, GraniteMoeModel, Mamba2Model). */
#pragma once

#include "ptq/base/context.h"

/* What of a checkpoint's tensor a file's tensor holds, and in which order. */
typedef enum calm_gguf_form {
    CALM_GGUF_AS_IS,
    CALM_GGUF_Q,                /* rows of heads of q and of k, in families whose writers permute them         */
    CALM_GGUF_K,
    CALM_GGUF_MIXED,            /* q, k and v of a delta net                                                   */
    CALM_GGUF_VALUES,           /* rows of its value heads                                                     */
    CALM_GGUF_GATES,            /* one row or element a value head                                             */
    CALM_GGUF_VALUE_COLUMNS,    /* columns of value heads                                                      */
    CALM_GGUF_QKVZ_MIXED,       /* the part q, k, v of a fused matrix                                          */
    CALM_GGUF_QKVZ_GATE,        /* and the part z                                                              */
    CALM_GGUF_KV_KEYS,          /* the part of kv_b that makes keys: transposed, head by head                  */
    CALM_GGUF_KV_VALUES,        /* and the part that makes values                                              */
    CALM_GGUF_FIRST_HALF,       /* the first half of the rows of gate and up                                   */
    CALM_GGUF_LAST_HALF,        /* and the last                                                                */
    CALM_GGUF_COLUMN,           /* a vector, each element a row                                                */
    CALM_GGUF_GROUPS,           /* a vector, a row for each of Mamba-2's groups                                */
    CALM_GGUF_LATER_ROWS,       /* without the first rows, those of padding                                    */
} calm_gguf_form;

/* Numbers and widths of heads that orders depend on; 0 where a model has none of the kind. */
typedef struct calm_gguf_widths {
    size_t key_heads, value_heads, key_dim, value_dim;    /* of delta nets    */
    size_t heads, nope, value;                            /* of latent attention: heads, rows of each */
    size_t groups;                                        /* of Mamba-2 */
} calm_gguf_widths;

/* The order of one tensor. */
typedef struct calm_gguf_order {
    calm_gguf_form form;
    size_t head_dim;                   /* rows of a head of q or k           */
    const calm_gguf_widths *widths;    /* borrowed                           */
    size_t half;                       /* rows of gate, of one matrix with up */
    size_t skipped;                    /* rows in front that the file has not */
} calm_gguf_order;

/* The same with CALM_GGUF_AS_IS where nothing moves: each key head serves one value head. */
calm_gguf_order calm_gguf_order_of(calm_gguf_form form, size_t head_dim, const calm_gguf_widths *widths);

/* Is it one of the two parts of a checkpoint's tensor; which holds its first rows? */
bool calm_gguf_order_is_part(calm_gguf_form form, bool *first);

/* Is it a vector that is a matrix there? */
bool calm_gguf_order_is_vector(calm_gguf_form form);

/* The file's sizes of a matrix [rows, cols] of the checkpoint, or of a vector [rows] with 1 for cols, the fastest
 * first; their number. */
int calm_gguf_order_dims(const calm_gguf_order *order, size_t rows, size_t cols, size_t dims[3]);

/* The checkpoint's row (element, of a vector) that stands in the file's row `row`.  Not of CALM_GGUF_KV_KEYS. */
size_t calm_gguf_order_row(const calm_gguf_order *order, size_t row);

/* The way back: the file's row, in *other of the two parts: false the first one, true the second.  Of
 * CALM_GGUF_KV_KEYS it is the column, of head row / (nope + value). */
size_t calm_gguf_order_find(const calm_gguf_order *order, size_t row, bool *other);

/* The checkpoint's column that stands in the file's column `column`, and the way back. */
size_t calm_gguf_order_column(const calm_gguf_order *order, size_t column);
size_t calm_gguf_order_find_column(const calm_gguf_order *order, size_t column);
