/* Integer matrix products: activations of 8 bits by weights of 4 or 8 bits, with exact sums.
 *
 *   y[t, o] = s_t (sum over groups g of s_og N_tog) + bias_o
 *   N_tog   = sum over the columns i of g of (a_ti - z_t) (c_oi - z_og)
 *
 * N is computed in int32 and is exact: a group has at most CALM_INT_COLUMNS columns, each term is at most 255^2, and
 * 255^2 2^15 < 2^31.  A sum on the way may pass 2^31, which a remainder of 2^32 forgives.  Rows with one scale of
 * longer sums count as groups of that many columns with the same scale.  The sum over groups has the order of the
 * groups, and each float operation is rounded alone, so the bytes are the same for every instruction set, tile and
 * number of threads. */
#pragma once

#include <stdint.h>

#include "ptq/base/context.h"

/* Columns of one exact sum at most. */
#define CALM_INT_COLUMNS ((size_t)1 << 15)
/* Columns of a group are a multiple of this, but for a group that holds all of them. */
#define CALM_INT_STEP ((size_t)8)
/* Rows of a weight that are packed side by side. */
#define CALM_INT_PANEL ((size_t)16)

/* A weight [out, in] as it is stored: w = (code - zero) scale. */
typedef struct calm_int_source {
    size_t out, in;
    int bits;                /* 4 or 8: of a code                                                */
    size_t group;            /* columns per scale, a multiple of CALM_INT_STEP; 0 or >= in: all  */
    const uint8_t *codes;    /* [out, in] below 2^bits                                           */
    const float *scales;     /* [out, ceil(in / group)]; what is not finite comes out so         */
    const uint8_t *zeros;    /* like scales; NULL: `zero` in all groups                          */
    int zero;                /* 0 to 255                                                         */
} calm_int_source;

/* The same as kernels read it: panels of 16 rows.  All of it is in the memory that it was packed into. */
typedef struct calm_int_weight {
    size_t out, in;
    int bits;
    size_t group, n_groups;    /* columns per sum                                                    */
    size_t stride;             /* columns with those that fill groups up to CALM_INT_STEP            */
    size_t panel;              /* bytes of the codes of a panel                                      */
    int zero;                  /* of all groups; -1: each has its own                                */
    const uint8_t *codes;      /* panels of [stride / 4, 16, 4]; of 4 bits [stride / 8, 16, 4], where the low half of
                                  a byte is of the first four columns and the high half of the next  */
    const float *scales;       /* [panels, n_groups, 16], 0 below the last row                       */
    const int32_t *zeros;      /* the same, or NULL where all are one                                */
    const int32_t *sums;       /* the same: sum of code - zero over the group                        */
} calm_int_weight;

/* Can a weight of that shape be packed?  The bits are 4 or 8, and the columns of its groups as they must be. */
bool calm_int_packs(const calm_int_source *source);

/* Bytes that calm_int_pack writes, for a source that packs, from an address that 64 divides. */
size_t calm_int_weight_bytes(const calm_int_source *source);

/* Pack a weight into `to`; once for any number of products. */
void calm_int_pack(const calm_int_source *source, void *to, calm_int_weight *out);

/* Activations [n, stride of the weight]: a = (code - zero) scale. */
typedef struct calm_int_rows {
    size_t n, stride, n_groups;
    int8_t *codes;     /* [n, stride], 0 where columns fill up: calm_int_rows_place                      */
    float *scales;     /* [n]; NaN: the row is not finite, and what comes of it is not either           */
    int32_t *zeros;    /* [n], -128 to 127                                                              */
    int32_t *sums;     /* [n, n_groups] sum of the codes of a group: calm_int_rows_finish               */
} calm_int_rows;

/* Bytes of the arrays for n rows. */
size_t calm_int_rows_bytes(const calm_int_weight *weight, size_t n);

/* Place the arrays for n rows in `memory`, from an address that 64 divides. */
void calm_int_rows_init(const calm_int_weight *weight, size_t n, void *memory, calm_int_rows *out);

/* After the caller has written the codes [in] of row t from its beginning, its scale and its zero: move them to the
 * columns that the weight has for them, and add up their groups. */
void calm_int_rows_finish(const calm_int_weight *weight, calm_int_rows *rows, size_t t);

/* Which instructions multiply, from the slowest. */
typedef enum calm_int_set {
    CALM_INT_PLAIN,
    CALM_INT_AVX2,
    CALM_INT_AVX_VNNI,
    CALM_INT_AVX512,
    CALM_INT_AMX,
    CALM_N_INT_SETS
} calm_int_set;

/* The variable of the environment that names one of them, and its values. */
#define CALM_INT_VARIABLE "CALM_SIMD"
extern const char *const calm_int_set_names[CALM_N_INT_SETS];

/* The set that computes here: the fastest, or the one that the variable names ("avx2": of AVX alone).  CALM_EARG: it
 * names none.  CALM_EUNSUPPORTED: the CPU does not have it. */
calm_status calm_int_choose(calm_ctx *ctx, calm_int_set *out);

/* y [rows, out] = the product on ctx's threads; bias [out] or NULL.  The rows were placed for this weight. */
void calm_int_product(calm_ctx *ctx, calm_int_set set, const calm_int_weight *weight, const calm_int_rows *rows,
                      const float *bias, float *y);
