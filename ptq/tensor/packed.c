/* Operands of products that are packed once. */
#include "ptq/tensor/packed.h"

#include <assert.h>

#include "ptq/tensor/bf16_amx.h"
#include "ptq/tensor/bf16_product.h"

_Static_assert(CALM_PACKED_STEP == CALM_BF16_AMX_SIDE, "panels");

bool calm_packed_fits(calm_operands operands, size_t n)
{
    /* Two parts are fast with AMX only. */
    return operands != CALM_OPERANDS_F32 && calm_bf16_is_fast(CALM_OPERANDS_BF16X2) && n % CALM_PACKED_STEP == 0;
}

static size_t whole_steps(size_t n)
{
    return (n + CALM_PACKED_STEP - 1) / CALM_PACKED_STEP * CALM_PACKED_STEP;
}

/* Returns the words of one part: a word has two terms. */
static size_t part_words(size_t lines, size_t terms)
{
    return whole_steps(lines) * whole_steps(terms) / 2;
}

static size_t all_words(calm_operands operands, size_t lines, size_t terms)
{
    return (operands == CALM_OPERANDS_BF16X2 ? 2 : 1) * part_words(lines, terms);
}

size_t calm_packed_bytes(calm_operands operands, size_t lines, size_t terms)
{
    return CALM_BYTES(uint32_t, all_words(operands, lines, terms));
}

void calm_packed_in(const calm_ctx *ctx, bool right, size_t lines, size_t terms, void *memory, calm_packed *out)
{
    *out = (calm_packed){.right = right, .terms = whole_steps(terms), .first = memory};
    if (ctx->operands == CALM_OPERANDS_BF16X2)
        out->rest = out->first + part_words(lines, terms);
}

calm_status calm_packed_new(calm_ctx *ctx, bool right, size_t lines, size_t terms, calm_packed *out)
{
    uint32_t *words;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, words, all_words(ctx->operands, lines, terms)));
    calm_packed_in(ctx, right, lines, terms, words, out);
    return CALM_OK;
}

/* Returns the offset of line `line` and term `term` in a part. */
static size_t place_of(const calm_packed *of, size_t line, size_t term)
{
    assert(line % CALM_PACKED_STEP == 0 && term % CALM_PACKED_STEP == 0);
    return line * (of->terms / 2) + term / 2 * CALM_PACKED_STEP;
}

/* Records that some numbers have second parts; threads may store the same value concurrently. */
static void note_rest(calm_packed *to, bool any)
{
    if (any)
        __atomic_store_n(&to->any_rest, true, __ATOMIC_RELAXED);
}

/* Packs lines that are columns or rows of x. */
static void put_lines(calm_packed *to, bool columns, size_t line, size_t n, size_t term, size_t n_terms, const float *x,
                      size_t ldx)
{
    const size_t at = place_of(to, line, term), across = to->terms / 2;
    const calm_product_form form = columns == to->right ? CALM_PRODUCT_NN
                                   : to->right          ? CALM_PRODUCT_NT
                                                        : CALM_PRODUCT_TN;
    uint32_t *first = to->first + at, *rest = to->rest ? to->rest + at : NULL;
    note_rest(to, to->right ? calm_bf16_amx_pack_cols(form, n, n_terms, across, x, ldx, first, rest)
                            : calm_bf16_amx_pack_rows(form, n, n_terms, across, x, ldx, first, rest));
}

void calm_packed_store(calm_packed *to, size_t line, size_t n, size_t term, size_t n_terms, const float *x, size_t ldx)
{
    put_lines(to, false, line, n, term, n_terms, x, ldx);
}

void calm_packed_put_columns(calm_packed *to, size_t line, size_t n, size_t term, size_t n_terms, const float *x,
                             size_t ldx)
{
    put_lines(to, true, line, n, term, n_terms, x, ldx);
}

static calm_bf16_panels panels_of(calm_packed_part part)
{
    const calm_packed *of = part.of;
    const size_t at = place_of(of, part.line, part.term);
    const bool rest = of->rest && __atomic_load_n(&of->any_rest, __ATOMIC_RELAXED);
    return (calm_bf16_panels){of->first + at, rest ? of->rest + at : NULL, of->terms / 2};
}

calm_status calm_packed_multiply(calm_ctx *ctx, size_t m, size_t n, size_t k, calm_packed_part a, calm_packed_part b,
                                 float beta, float *c, size_t ldc)
{
    const calm_bf16_panels left = panels_of(a), right = panels_of(b);
    assert(!a.of->right && b.of->right);
    assert(m == 0 || (n > CALM_BF16_FEW_COLS && k > CALM_BF16_FEW_TERMS));
    return m ? calm_bf16_amx_packed(ctx, m, n, k, &left, &right, beta, c, ldc) : CALM_OK;
}
