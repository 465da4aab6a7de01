/* ggml's tensor types: blocks of consecutive elements of a row, each with separate scales (docs/formats.md section
 * 6).
 *
 *   type   elements   bytes   value of element i in group g                scales and minima
 *   F32 F16 BF16  1   4 2 2
 *   Q4_0   32         18      d (u - 8)                                    d float16
 *   Q4_1   32         20      d u + m                                      d, m float16
 *   Q5_0   32         22      d (u - 16)
 *   Q5_1   32         24      d u + m
 *   Q8_0   32         34      d (u - 128)                                  u stored as int8
 *   Q2_K   256        84      (d s[g]) u - dmin m[g]                       16 groups, s and m of 4 bits
 *   Q3_K   256        110     (d (s[g] - 32)) (u - 4)                      16 groups, s of 6 bits
 *   Q4_K   256        144     (d s[g]) u - dmin m[g]                       8 groups, s and m of 6 bits
 *   Q5_K   256        176     (d s[g]) u - dmin m[g]                       8 groups, s and m of 6 bits
 *   Q6_K   256        210     (d (s[g] - 128)) (u - 32)                    16 groups, s stored as int8
 *   IQ4_NL 32         18      d level[u]
 *   IQ4_XS 256        136     (d (s[g] - 32)) level[u]                     8 groups, s of 6 bits
 *   MXFP4  32         17      2^(d - 128) level[u]                         d one byte
 *
 * u is the code of an element.  The other types have a name and sizes only: files with them can be listed and
 * checked. */
#pragma once

#include <stdint.h>

#include "ptq/base/context.h"
#include "ptq/tensor/dtype.h"

/* X(NAME, number in files, elements of a block, bytes of a block) */
#define CALM_GGML_TYPE_LIST(X)                                                                               \
    X(F32, 0, 1, 4) X(F16, 1, 1, 2) X(Q4_0, 2, 32, 18) X(Q4_1, 3, 32, 20) X(Q5_0, 6, 32, 22)                 \
    X(Q5_1, 7, 32, 24) X(Q8_0, 8, 32, 34) X(Q8_1, 9, 32, 36) X(Q2_K, 10, 256, 84) X(Q3_K, 11, 256, 110)      \
    X(Q4_K, 12, 256, 144) X(Q5_K, 13, 256, 176) X(Q6_K, 14, 256, 210) X(Q8_K, 15, 256, 292)                  \
    X(IQ2_XXS, 16, 256, 66) X(IQ2_XS, 17, 256, 74) X(IQ3_XXS, 18, 256, 98) X(IQ1_S, 19, 256, 50)             \
    X(IQ4_NL, 20, 32, 18) X(IQ3_S, 21, 256, 110) X(IQ2_S, 22, 256, 82) X(IQ4_XS, 23, 256, 136)               \
    X(I8, 24, 1, 1) X(I16, 25, 1, 2) X(I32, 26, 1, 4) X(I64, 27, 1, 8) X(F64, 28, 1, 8)                      \
    X(IQ1_M, 29, 256, 56) X(BF16, 30, 1, 2) X(TQ1_0, 34, 256, 54) X(TQ2_0, 35, 256, 66)                      \
    X(MXFP4, 39, 32, 17) X(NVFP4, 40, 64, 36) X(Q1_0, 41, 128, 18) X(Q2_0, 42, 64, 18)

typedef enum calm_ggml_type {
#define CALM_GGML_ENUM(name, number, elements, bytes) CALM_GGML_##name = (number),
    CALM_GGML_TYPE_LIST(CALM_GGML_ENUM)
#undef CALM_GGML_ENUM
    CALM_GGML_END    /* larger than all numbers, which rise in the list */
} calm_ggml_type;

typedef struct calm_ggml_info {
    const char *name;           /* "Q4_0" */
    size_t elements, bytes;     /* elements and bytes of a block */
} calm_ggml_info;

/* Returns the type with this number; NULL: it is not in the list. */
const calm_ggml_info *calm_ggml_find(uint32_t number);

/* Returns the dtype of a type of single numbers; CALM_N_DTYPES for block types. */
calm_dtype calm_ggml_dtype(calm_ggml_type type);
