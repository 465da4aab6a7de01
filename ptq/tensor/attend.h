/* Attention of one head in 16-bit integers: twice the rate of float32, and the same bytes for every instruction
 * set.
 *
 *   z_tj = scale log2(e) q_t . k_j
 *   context_t = sum_j p_tj v_j / sum_j p_tj,   p_tj = round(P 2^(z_tj - max_j z_tj))
 *
 * q and k are integer codes of magnitude <= L = floor(sqrt((2^31 - 1) / d)), at most 2^15 - 1, with one scale per
 * row; P = 2^14 - 1; v has codes of magnitude <= V = 2047 with one scale per channel and 64 consecutive keys.  Sums
 * of codes are exact in int32: d L^2 and 64 P V are below 2^31.  The rest is float32, each operation rounded
 * separately.  With E the largest error of z,
 *
 *   |error of z_tj| <= scale log2(e) (|q_t|_1 |k_j|_max + |k_j|_1 |q_t|_max + d |q_t|_max |k_j|_max / 2L) / 2L
 *   |error of context| <= (2 (2^E - 1) + (n + 1) / P) |v|_max + |v|_max / 2V
 *
 * plus a few float32 roundings.  If a row is not finite, or exceeds CALM_ATTEND_MOST, the results that depend on it
 * are NaN: for a query its own context, for a key or a value all contexts. */
#pragma once

#include "ptq/tensor/int_product.h"

/* Largest magnitude that counts as finite, so that products of scales stay finite. */
#define CALM_ATTEND_MOST 1e15f
/* Queries per block, and keys per exact sum. */
#define CALM_ATTEND_ROWS ((size_t)8)
#define CALM_ATTEND_KEYS ((size_t)64)

/* Packed keys and values of one head, and buffers for a block of queries.  A 32-bit word holds the codes of two
 * channels of a key, or of two keys in a channel. */
typedef struct calm_attend_keys {
    size_t n, d;              /* number of keys; head dimension                                         */
    size_t n_padded;          /* n rounded up to a multiple of CALM_ATTEND_KEYS; codes beyond n are 0   */
    size_t k_width, v_width;  /* d rounded up to a multiple of 2 and of 32                              */
    int limit;                /* L, the largest magnitude of codes of q and k                           */
    bool finite;
    int16_t *k;               /* panels of 16 keys: [n_padded / 16, k_width / 2, 16, 2]                 */
    int16_t *v;               /* [n_padded / 64, v_width / 16, 64 / 2, 16, 2]                           */
    float *k_scale;           /* [n_padded]                                                             */
    float *v_scale;           /* [n_padded / 64, v_width]                                               */
    int16_t *q, *p;           /* codes of a block: [8, k_width], [8, n_padded]                          */
    float *z, *context;       /* [8, n_padded], [8, v_width]                                            */
} calm_attend_keys;

/* Returns the bytes of all these arrays, for n keys of width d. */
size_t calm_attend_bytes(size_t n, size_t d);

/* Places the arrays in `memory`, which is 64-byte aligned, and packs k and v [n, stride]. */
void calm_attend_pack(size_t n, size_t d, const float *k, const float *v, size_t stride, void *memory,
                      calm_attend_keys *out);

/* A block of queries. */
typedef struct calm_attend_queries {
    size_t n;                 /* up to CALM_ATTEND_ROWS                                                 */
    const float *q;           /* [n, q_stride]                                                          */
    size_t q_stride;
    float scale;              /* scale of attention scores                                              */
    size_t first[CALM_ATTEND_ROWS], end[CALM_ATTEND_ROWS];    /* range of keys that each query attends to, at least
                                                               * one */
    float *context;           /* [n, stride]                                                            */
    size_t stride;
} calm_attend_queries;

/* Computes the context of a block of queries with one instruction set. */
void calm_attend(calm_int_set set, const calm_attend_keys *keys, const calm_attend_queries *queries);
