/* Products of bfloat16 in blocks, and their kernel for CPUs without bfloat16 instructions. */
#include "ptq/tensor/bf16_product.h"

#include <stdint.h>
#include <string.h>

#include "ptq/base/scope.h"
#include "ptq/tensor/bf16_amx.h"
#include "ptq/tensor/bf16_kernel.h"
#include "ptq/tensor/dtype.h"
#include "ptq/tensor/linalg.h"

/* ---- rounded operands, multiplied in float32 ---- */

/* Rounds a block of an operand to bfloat16 in its order: `lines` of `n` values each. */
static void round_lines(size_t lines, size_t n, const float *in, size_t stride, float *out)
{
    for (size_t i = 0; i < lines; i++)
        memcpy(out + i * n, in + i * stride, n * sizeof *out);
    calm_dtype_round_all(CALM_BF16, out, lines * n);
}

static void round_rows(calm_product_form form, size_t rows, size_t terms, const float *a, size_t lda, void *out)
{
    if (form == CALM_PRODUCT_TN)
        round_lines(terms, rows, a, lda, out);
    else
        round_lines(rows, terms, a, lda, out);
}

static void round_cols(calm_product_form form, size_t cols, size_t terms, const float *b, size_t ldb, void *out)
{
    if (form == CALM_PRODUCT_NT)
        round_lines(cols, terms, b, ldb, out);
    else
        round_lines(terms, cols, b, ldb, out);
}

static void multiply_rounded(calm_product_form form, size_t rows, size_t cols, size_t terms, const void *a,
                             const void *b, float beta, ptrdiff_t least, float *c, size_t ldc)
{
    /* If the block is a whole X^T X, half of the work is enough. */
    if (least == 0 && rows == cols)
        calm_ssyrk_t(rows, terms, 1, a, rows, beta, c, ldc);
    else
        calm_sgemm(form, rows, cols, terms, a, form == CALM_PRODUCT_TN ? rows : terms, b,
                   form == CALM_PRODUCT_NT ? terms : cols, beta, c, ldc);
}

/* All rows at once: BLAS has other kernels for few rows, which add in another order (calm_product_rows). */
static const calm_bf16_kernel rounded = {SIZE_MAX, CALM_BF16_TERMS * sizeof(float), sizeof(float), round_rows,
                                         round_cols, multiply_rounded};

/* ---- instructions ---- */

/* Instructions for products of bfloat16. */
typedef enum instructions { NONE, AVX512_BF16, AMX } instructions;

/* Returns the CPU's instructions if OpenBLAS's kernels are those of such a CPU, else NONE. */
static instructions instructions_here(void)
{
    const char *family = calm_linalg_kernels();
    const bool all = strcmp(family, "SapphireRapids") == 0 || strcmp(family, "SkylakeX") == 0;
    if (all && calm_bf16_amx_available())
        return AMX;
    return (all || strcmp(family, "Cooperlake") == 0) && calm_bf16_native() ? AVX512_BF16 : NONE;
}

bool calm_bf16_is_fast(calm_operands operands)
{
    return operands != CALM_OPERANDS_F32 &&
           instructions_here() >= (operands == CALM_OPERANDS_BF16X2 ? AMX : AVX512_BF16);
}

calm_operands calm_bf16_auto(void)
{
    return calm_bf16_is_fast(CALM_OPERANDS_BF16X2) ? CALM_OPERANDS_BF16X2 : CALM_OPERANDS_F32;
}

calm_operands calm_bf16_of_steps(calm_operands operands)
{
    return operands == CALM_OPERANDS_BF16X2 && calm_bf16_is_fast(operands) ? CALM_OPERANDS_BF16 : operands;
}

const char *calm_bf16_instructions(void)
{
    static const char *const names[] = {"float32", "AVX512-BF16", "AMX"};
    return names[instructions_here()];
}

static size_t n_parts(calm_operands operands)
{
    return operands == CALM_OPERANDS_BF16X2 ? 2 : 1;
}

static const calm_bf16_kernel *kernel(void)
{
    return instructions_here() == NONE ? &rounded : calm_bf16_native();
}

static size_t rows_bytes(const calm_bf16_kernel *use, size_t rows)
{
    return rows * use->row_bytes;
}

static size_t cols_bytes(const calm_bf16_kernel *use, size_t cols, size_t terms)
{
    return cols * ((terms + 1) / 2 * 2) * use->term_bytes;
}

size_t calm_bf16_scratch_bytes(calm_operands operands, size_t rows)
{
    if (instructions_here() == AMX)
        return calm_bf16_amx_scratch_bytes(n_parts(operands), rows);
    const calm_bf16_kernel *use = kernel();
    return CALM_BYTES(char, rows_bytes(use, calm_product_side(rows, use->rows, CALM_BF16_ROW_STEP))) +
           CALM_BYTES(char, cols_bytes(use, CALM_BF16_COLS, CALM_BF16_TERMS));
}

/* ---- in blocks ---- */

static bool is_small(size_t n, size_t k)
{
    return n <= CALM_BF16_FEW_COLS || k <= CALM_BF16_FEW_TERMS;
}

/* Computes C = op(A) op(B) + beta C block by block; with `upper`, elements below the diagonal are not needed. */
static calm_status multiply_blocks(calm_ctx *ctx, calm_product_form form, bool upper, size_t m, size_t n, size_t k,
                                   const float *a, size_t lda, const float *b, size_t ldb, float beta, float *c,
                                   size_t ldc)
{
    const calm_bf16_kernel *use = kernel();
    char *rows, *cols;
    CALM_SCOPED_SCRATCH(ctx);
    if (m == 0 || n == 0)
        return CALM_OK;
    if (ctx->operands == CALM_OPERANDS_BF16X2 && is_small(n, k)) {
        calm_sgemm(form, m, n, k, a, lda, b, ldb, beta, c, ldc);
        return CALM_OK;
    }
    if (instructions_here() == AMX)
        return calm_bf16_amx_product(ctx, n_parts(ctx->operands), form, upper, m, n, k, a, lda, b, ldb, beta, c, ldc);
    const size_t row_side = calm_product_side(m, use->rows, CALM_BF16_ROW_STEP),
                 col_side = calm_product_side(n, CALM_BF16_COLS, CALM_BF16_COL_STEP),
                 term_side = calm_product_side(k, CALM_BF16_TERMS, 2);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, rows, rows_bytes(use, row_side)));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, cols, cols_bytes(use, col_side, term_side)));
    for (size_t j = 0; j < n; j += col_side) {
        const size_t n_cols = calm_size_min(col_side, n - j);
        /* For k = 0 this runs once, to compute beta C. */
        for (size_t t = 0; t == 0 || t < k; t += term_side) {
            const size_t terms = calm_size_min(term_side, k - t);
            use->pack_cols(form, n_cols, terms, form == CALM_PRODUCT_NT ? b + j * ldb + t : b + t * ldb + j, ldb, cols);
            for (size_t i = 0; i < m; i += row_side) {
                const size_t n_rows = calm_size_min(row_side, m - i);
                use->pack_rows(form, n_rows, terms, form == CALM_PRODUCT_TN ? a + t * lda + i : a + i * lda + t, lda,
                               rows);
                use->multiply(form, n_rows, n_cols, terms, rows, cols, t == 0 ? beta : 1,
                              upper ? (ptrdiff_t)i - (ptrdiff_t)j : PTRDIFF_MIN, c + i * ldc + j, ldc);
            }
        }
    }
    return CALM_OK;
}

calm_status calm_bf16_product(calm_ctx *ctx, calm_product_form form, size_t m, size_t n, size_t k, const float *a,
                              size_t lda, const float *b, size_t ldb, float beta, float *c, size_t ldc)
{
    return multiply_blocks(ctx, form, false, m, n, k, a, lda, b, ldb, beta, c, ldc);
}

calm_status calm_bf16_product_upper(calm_ctx *ctx, size_t n, size_t k, const float *x, size_t ldx, float *c, size_t ldc)
{
    return multiply_blocks(ctx, CALM_PRODUCT_TN, true, n, n, k, x, ldx, x, ldx, 0, c, ldc);
}
