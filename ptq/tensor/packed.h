/* Operands that are packed once, for many products.
 *
 * Kernels of AMX read both operands in their own order, split into bfloat16 (bf16_amx.c).  For a hundred rows of C
 * packing takes longer than the product.  Where one matrix has many products, its owner packs it once; all threads read
 * it.  The bytes are those of calm_multiply. */
#pragma once

#include <stdint.h>

#include "ptq/tensor/product.h"

/* Lines of an operand, rows of op(A) or columns of op(B), with their terms. */
typedef struct calm_packed {
    bool right;                 /* columns of op(B)                                                     */
    size_t terms;               /* of a line there is room for                                          */
    uint32_t *first, *rest;     /* both parts; rest NULL: there is one                                  */
    bool any_rest;              /* has a second part that is not 0                                      */
} calm_packed;

/* What begins inside a packed operand begins at a multiple of this many lines or terms, and ends at one or with all. */
#define CALM_PACKED_STEP ((size_t)32)

/* Are there packed operands for products of such numbers here, and are n lines or terms whole steps? */
bool calm_packed_fits(calm_operands operands, size_t n);

/* Bytes of an operand: of two parts and whole steps as many as in float32. */
size_t calm_packed_bytes(calm_operands operands, size_t lines, size_t terms);

/* Room for an operand of products as ctx->operands says, in `memory` of calm_packed_bytes, aligned to 64; nothing is
 * packed yet. */
void calm_packed_in(const calm_ctx *ctx, bool right, size_t lines, size_t terms, void *memory, calm_packed *out);

/* The same in ctx->scratch. */
calm_status calm_packed_new(calm_ctx *ctx, bool right, size_t lines, size_t terms, calm_packed *out);

/* Pack x [n, n_terms], row stride ldx, as lines from `line` on and terms from `term` on.  Threads may pack different
 * parts at once. */
void calm_packed_put(calm_packed *to, size_t line, size_t n, size_t term, size_t n_terms, const float *x, size_t ldx);

/* The same of x [n_terms, n], whose columns are lines, of op(B). */
void calm_packed_put_columns(calm_packed *to, size_t line, size_t n, size_t term, size_t n_terms, const float *x,
                             size_t ldx);

/* From where on an operand is read. */
typedef struct calm_packed_part {
    const calm_packed *of;
    size_t line, term;
} calm_packed_part;

/* C [m, n] = m lines of a, a left operand, times n of b, a right one, over k terms, + beta C, on this thread.  n is
 * above 16 and k above 4: below, calm_multiply multiplies in float32.  Holds of ctx->scratch no more than
 * calm_multiply_scratch_bytes. */
calm_status calm_packed_multiply(calm_ctx *ctx, size_t m, size_t n, size_t k, calm_packed_part a, calm_packed_part b,
                                 float beta, float *c, size_t ldc);
