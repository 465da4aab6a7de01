/* Attention of one head in 16-bit integers: twice the rate of float32, and the same bytes for every instruction set.
 *
 *   z_tj = scale log2(e) q_t . k_j
 *   context_t = sum_j p_tj v_j / sum_j p_tj,   p_tj = round(P 2^(z_tj - max_j z_tj))
 *
 * q and k are codes up to L = floor(sqrt((2^31 - 1) / d)), at most 2^15 - 1, with a scale of each row; P = 2^14 - 1; v
 * is codes up to V = 2047 with a scale for each channel of 64 keys in a row.  Sums of codes are exact in int32: d L^2
 * and 64 P V are below 2^31.  The rest is float32, each operation rounded alone.  With E the largest error of z,
 *
 *   |error of z_tj| <= scale log2(e) (|q_t|_1 |k_j|_max + |k_j|_1 |q_t|_max + d |q_t|_max |k_j|_max / 2L) / 2L
 *   |error of context| <= (2 (2^E - 1) + (n + 1) / P) |v|_max + |v|_max / 2V
 *
 * and some float32 roundings.  A row that is not finite, or above CALM_ATTEND_MOST, makes NaN of what it comes into: a
 * query of its context, a key or a value of all. */
#pragma once

#include "ptq/tensor/int_product.h"

/* Numbers that are taken for finite, so that products of scales are. */
#define CALM_ATTEND_MOST 1e15f
/* Queries of a block, and keys of a sum. */
#define CALM_ATTEND_ROWS ((size_t)8)
#define CALM_ATTEND_KEYS ((size_t)64)

/* Keys and values of one head, and room for a block of queries.  Codes of two channels of a key, or of two keys in a
 * channel, are one word of 32 bits. */
typedef struct calm_attend_keys {
    size_t n, d;              /* keys; width of one                                                     */
    size_t n_padded;          /* n up to a multiple of CALM_ATTEND_KEYS; codes behind n are 0           */
    size_t k_width, v_width;  /* d up to a multiple of 2 and of 32                                      */
    int limit;                /* L                                                                      */
    bool finite;
    int16_t *k;               /* panels of 16 keys: [n_padded / 16, k_width / 2, 16, 2]                 */
    int16_t *v;               /* [n_padded / 64, v_width / 16, 64 / 2, 16, 2]                           */
    float *k_scale;           /* [n_padded]                                                             */
    float *v_scale;           /* [n_padded / 64, v_width]                                               */
    int16_t *q, *p;           /* of a block: [8, k_width], [8, n_padded]                                */
    float *z, *context;       /* [8, n_padded], [8, v_width]                                            */
} calm_attend_keys;

/* Bytes of all that, for n keys of width d. */
size_t calm_attend_bytes(size_t n, size_t d);

/* Place it in `memory`, from an address that 64 divides, and pack k and v [n, stride]. */
void calm_attend_pack(size_t n, size_t d, const float *k, const float *v, size_t stride, void *memory,
                      calm_attend_keys *out);

/* A block of queries. */
typedef struct calm_attend_queries {
    size_t n;                 /* up to CALM_ATTEND_ROWS                                                 */
    const float *q;           /* [n, q_stride]                                                          */
    size_t q_stride;
    float scale;              /* of scores                                                              */
    size_t first[CALM_ATTEND_ROWS], end[CALM_ATTEND_ROWS];    /* keys that each sees, one at least      */
    float *context;           /* [n, stride]                                                            */
    size_t stride;
} calm_attend_queries;

/* Write their context. */
void calm_attend(calm_int_set set, const calm_attend_keys *keys, const calm_attend_queries *queries);
