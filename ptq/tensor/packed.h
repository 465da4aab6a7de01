/* Operands that are packed once for many products.
 *
 * AMX kernels read both operands in a packed layout, split into bfloat16 (bf16_amx.c).  With a hundred rows of C,
 * packing takes longer than the product.  If one matrix is used in many products, its owner packs it once, and all
 * threads read it.  The bytes of results are those of calm_multiply. */
#pragma once

#include <stdint.h>

#include "ptq/tensor/product.h"

/* A packed operand: lines (rows of op(A) or columns of op(B)) of terms. */
typedef struct calm_packed {
    bool right;                 /* columns of op(B); else rows of op(A)                                 */
    size_t terms;               /* terms that a line has room for                                       */
    uint32_t *first, *rest;     /* both parts; rest NULL: one part                                      */
    bool any_rest;              /* some second part is not 0                                            */
} calm_packed;

/* Reads and writes inside a packed operand start at multiples of this many lines or terms, and end at one or at the
 * end. */
#define CALM_PACKED_STEP ((size_t)32)

/* Returns whether this CPU has packed products for the operand type, and n lines or terms are whole steps. */
bool calm_packed_fits(calm_operands operands, size_t n);

/* Returns the bytes of an operand; with two parts and whole steps as many as in float32. */
size_t calm_packed_bytes(calm_operands operands, size_t lines, size_t terms);

/* Places an operand of type ctx->operands in `memory` of calm_packed_bytes, 64-byte aligned; packs nothing yet. */
void calm_packed_in(const calm_ctx *ctx, bool right, size_t lines, size_t terms, void *memory, calm_packed *out);

/* Does the same in ctx->scratch. */
calm_status calm_packed_new(calm_ctx *ctx, bool right, size_t lines, size_t terms, calm_packed *out);

/* Packs x [n, n_terms], row stride ldx, as lines from `line` on and terms from `term` on.  Threads may pack
 * different parts at the same time. */
void calm_packed_store(calm_packed *to, size_t line, size_t n, size_t term, size_t n_terms, const float *x, size_t ldx);

/* Packs x [n_terms, n], whose columns are lines, likewise. */
void calm_packed_put_columns(calm_packed *to, size_t line, size_t n, size_t term, size_t n_terms, const float *x,
                             size_t ldx);

/* Position at which an operand is read. */
typedef struct calm_packed_part {
    const calm_packed *of;
    size_t line, term;
} calm_packed_part;

/* Computes C [m, n] = product of m lines of the left operand a and n lines of the right operand b over k terms, +
 * beta C, on this thread.  Requires n > 16 and k > 4: calm_multiply uses float32 for smaller ones.  Peak of
 * ctx->scratch: at most calm_multiply_scratch_bytes. */
calm_status calm_packed_multiply(calm_ctx *ctx, size_t m, size_t n, size_t k, calm_packed_part a, calm_packed_part b,
                                 float beta, float *c, size_t ldc);
