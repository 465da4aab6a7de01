/* Integer matrix products: 8-bit activations by weights of 4 or 8 bits, with exact sums.
 *
 *   y[t, o] = s_t (sum over groups g of s_og N_tog) + bias_o
 *   N_tog   = sum over the columns i of g of (a_ti - z_t) (c_oi - z_og)
 *
 * N is computed in int32 and is exact: a group has at most CALM_INT_COLUMNS columns, each term is at most 255^2,
 * and 255^2 2^15 < 2^31.  Intermediate sums may exceed 2^31: they wrap modulo 2^32.  A longer row with one scale is
 * divided into groups of that many columns with equal scales.  Groups are added in order, and each float operation
 * is rounded separately, so the bytes are the same for every instruction set, tile and number of threads. */
#pragma once

#include <stdint.h>

#include "ptq/base/context.h"

/* Largest number of columns of one exact sum. */
#define CALM_INT_COLUMNS ((size_t)1 << 15)
/* Group sizes are a multiple of this, unless one group has all columns. */
#define CALM_INT_STEP ((size_t)8)
/* Rows of a weight that are packed together. */
#define CALM_INT_PANEL ((size_t)16)

/* A weight [out, in] in its stored format: w = (code - zero) scale. */
typedef struct calm_int_source {
    size_t out, in;
    int bits;                /* bits of a code: 4 or 8                                           */
    size_t group;            /* columns per scale, a multiple of CALM_INT_STEP; 0 or >= in: all  */
    const uint8_t *codes;    /* [out, in] below 2^bits                                           */
    const float *scales;     /* [out, ceil(in / group)]; a scale that is not finite gives results that are not */
    const uint8_t *zeros;    /* like scales; NULL: `zero` for all groups                         */
    int zero;                /* 0 to 255                                                         */
} calm_int_source;

/* A packed weight in panels of 16 rows, as kernels read it.  The arrays are in the memory that calm_int_pack was
 * given. */
typedef struct calm_int_weight {
    size_t out, in;
    int bits;
    size_t group, n_groups;    /* columns per group (exact sum)                                      */
    size_t stride;             /* columns including the padding of groups to CALM_INT_STEP           */
    size_t panel;              /* bytes of codes per panel                                           */
    int zero;                  /* zero of all groups; -1: each group has its own                     */
    const uint8_t *codes;      /* panels of [stride / 4, 16, 4]; for 4 bits [stride / 8, 16, 4], where the low half
                                * of a byte belongs to the first four columns and the high half to the next */
    const float *scales;       /* [panels, n_groups, 16], 0 beyond the last row                      */
    const int32_t *zeros;      /* [panels, n_groups, 16]; NULL: all groups have the same zero        */
    const int32_t *sums;       /* [panels, n_groups, 16]: sum of code - zero over the group          */
} calm_int_weight;

/* Returns whether the weight can be packed: bits are 4 or 8, and the group size satisfies the conditions above. */
bool calm_int_packs(const calm_int_source *source);

/* Returns the bytes that calm_int_pack writes to 64-byte aligned memory, for a source that calm_int_packs accepts. */
size_t calm_int_weight_bytes(const calm_int_source *source);

/* Packs a weight into `to`, once for any number of products. */
void calm_int_pack(const calm_int_source *source, void *to, calm_int_weight *out);

/* Quantized activations [n, stride of the weight]: a = (code - zero) scale. */
typedef struct calm_int_rows {
    size_t n, stride, n_groups;
    int8_t *codes;     /* [n, stride], 0 in padding columns (calm_int_rows_finish)                       */
    float *scales;     /* [n]; NaN: the row is not finite, and neither are its results                  */
    int32_t *zeros;    /* [n], -128 to 127                                                              */
    int32_t *sums;     /* [n, n_groups] sum of the codes of a group (calm_int_rows_finish)              */
} calm_int_rows;

/* Returns the bytes of the arrays for n rows. */
size_t calm_int_rows_bytes(const calm_int_weight *weight, size_t n);

/* Places the arrays for n rows in `memory`, which is 64-byte aligned. */
void calm_int_rows_init(const calm_int_weight *weight, size_t n, void *memory, calm_int_rows *out);

/* Completes row t after the caller has written its codes [in] contiguously, its scale and its zero: moves the codes
 * to the columns of the packed weight, and computes the sums of groups. */
void calm_int_rows_finish(const calm_int_weight *weight, calm_int_rows *rows, size_t t);

/* Instruction sets, from the slowest. */
typedef enum calm_int_set {
    CALM_INT_PLAIN,
    CALM_INT_AVX2,
    CALM_INT_AVX_VNNI,
    CALM_INT_AVX512,
    CALM_INT_AMX,
    CALM_N_INT_SETS
} calm_int_set;

/* Environment variable that selects an instruction set, and its values. */
#define CALM_INT_VARIABLE "CALM_SIMD"
extern const char *const calm_int_set_names[CALM_N_INT_SETS];

/* Returns the instruction set to use: the fastest, or the one that the variable names.  CALM_EARG: the value is not
 * a name.  CALM_EUNSUPPORTED: the CPU does not have it. */
calm_status calm_int_choose(calm_ctx *ctx, calm_int_set *out);

/* Computes y [rows, out] on ctx's threads; bias [out] or NULL.  The rows were placed for this weight. */
void calm_int_product(calm_ctx *ctx, calm_int_set set, const calm_int_weight *weight, const calm_int_rows *rows,
                      const float *bias, float *y);
