/* ggml's tensor types: blocks of consecutive elements of a row, each with scales of its own (docs/formats.md section
 * 6).
 *
 *   type   elements   bytes   layout                          value (h: float16)
 *   F32 F16 BF16  1   4 2 2
 *   Q4_0   32         18      d h, qs[16]                     d (nib(i) - 8)
 *   Q4_1   32         20      d h, m h, qs[16]                d nib(i) + m
 *   Q5_0   32         22      d h, qh[4], qs[16]              d (nib(i) + 16 bit(qh, i) - 16)
 *   Q5_1   32         24      d h, m h, qh[4], qs[16]         d (nib(i) + 16 bit(qh, i)) + m
 *   Q8_0   32         34      d h, qs[32] int8                d qs[i]
 *
 * nib(i) is the low nibble of qs[i] for i < 16 and the high nibble of qs[i - 16] from there on.  The other types have
 * a name and sizes only: files with them can be listed and checked. */
#ifndef CALM_IO_GGML_TYPE_H
#define CALM_IO_GGML_TYPE_H

#include <stdint.h>

#include "ptq/base/context.h"
#include "ptq/tensor/dtype.h"

/* X(NAME, number in files, elements of a block, bytes of a block, readable) */
#define CALM_GGML_TYPE_LIST(X)                                                                               \
    X(F32, 0, 1, 4, true) X(F16, 1, 1, 2, true) X(Q4_0, 2, 32, 18, true)                                     \
    X(Q4_1, 3, 32, 20, true) X(Q5_0, 6, 32, 22, true) X(Q5_1, 7, 32, 24, true)                               \
    X(Q8_0, 8, 32, 34, true) X(Q8_1, 9, 32, 36, false) X(Q2_K, 10, 256, 84, false)                           \
    X(Q3_K, 11, 256, 110, false) X(Q4_K, 12, 256, 144, false) X(Q5_K, 13, 256, 176, false)                   \
    X(Q6_K, 14, 256, 210, false) X(Q8_K, 15, 256, 292, false) X(IQ2_XXS, 16, 256, 66, false)                 \
    X(IQ2_XS, 17, 256, 74, false) X(IQ3_XXS, 18, 256, 98, false) X(IQ1_S, 19, 256, 50, false)                \
    X(IQ4_NL, 20, 32, 18, false) X(IQ3_S, 21, 256, 110, false) X(IQ2_S, 22, 256, 82, false)                  \
    X(IQ4_XS, 23, 256, 136, false) X(I8, 24, 1, 1, false) X(I16, 25, 1, 2, false)                            \
    X(I32, 26, 1, 4, false) X(I64, 27, 1, 8, false) X(F64, 28, 1, 8, false)                                  \
    X(IQ1_M, 29, 256, 56, false) X(BF16, 30, 1, 2, true) X(TQ1_0, 34, 256, 54, false)                        \
    X(TQ2_0, 35, 256, 66, false) X(MXFP4, 39, 32, 17, false) X(NVFP4, 40, 64, 36, false)                     \
    X(Q1_0, 41, 128, 18, false) X(Q2_0, 42, 64, 18, false)

typedef enum calm_ggml_type {
#define CALM_GGML_ENUM(name, number, elements, bytes, readable) CALM_GGML_##name = (number),
    CALM_GGML_TYPE_LIST(CALM_GGML_ENUM)
#undef CALM_GGML_ENUM
} calm_ggml_type;

/* Elements of a block of the types that calm reads and writes, and bytes of the largest of them. */
#define CALM_GGML_BLOCK 32
#define CALM_GGML_BLOCK_BYTES 34

typedef struct calm_ggml_info {
    const char *name;           /* "Q4_0" */
    size_t elements, bytes;     /* of a block */
    bool readable;              /* calm_ggml_to_f32 knows it */
} calm_ggml_info;

/* The type with this number; NULL for one that is not in the list. */
const calm_ggml_info *calm_ggml_find(uint32_t number);

/* The dtype of a type of single floats; CALM_N_DTYPES for the others. */
calm_dtype calm_ggml_dtype(calm_ggml_type type);

/* Widen `n` elements, a whole number of blocks, from `in` (any alignment) to out [n].  CALM_EUNSUPPORTED for a type
 * that is not readable. */
calm_status calm_ggml_to_f32(calm_ctx *ctx, calm_ggml_type type, const void *in, size_t n, float *out);

/* One block of Q4_0, Q4_1 or Q8_0 from codes [32] (0 .. 15, or int8 as its two's complement), its scale and, in Q4_1,
 * its minimum, both as float16 bits; returns the bytes written to `out`. */
size_t calm_ggml_pack(calm_ggml_type type, const uint8_t codes[CALM_GGML_BLOCK], uint16_t scale, uint16_t minimum,
                      uint8_t out[CALM_GGML_BLOCK_BYTES]);

#endif
