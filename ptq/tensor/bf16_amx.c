/* Products of bfloat16 with AMX: TDPBF16PS adds the products of 16 rows of A and 16 columns of B, over 32 terms, to
 * 256 float32 sums in a tile register.
 *
 * Four registers hold 32 rows by 32 columns of sums, four hold operands.  Memory traffic limits the rate: packed
 * columns and the sums of a block are contiguous in the L2 cache, and the sums are written to C after the last term
 * (rows of C that are a power of two apart share few cache sets, so sums in C would be evicted after every block of
 * terms).  Packed rows are streamed, one panel at a time: each multiplies all columns of a block. */
#include "ptq/tensor/bf16_amx.h"

#if defined(__x86_64__) && defined(__GNUC__) && defined(__linux__)

#include "ptq/base/scope.h"
#include "ptq/tensor/amx.h"
#include "ptq/tensor/bf16_pack.h"

/* Maximum rows and columns of C, and terms, of a block; blocks of terms whose rows of A are packed together.
 * A panel of 32 rows with both parts takes two thirds of the L1 cache.  Columns are packed again for every block of
 * rows, which takes a tenth of the block's time; C is read and written once per N_BLOCKS blocks of terms. */
#define BLOCK_ROWS  ((size_t)1024)
#define BLOCK_COLS  ((size_t)256)
#define BLOCK_TERMS ((size_t)256)
#define N_BLOCKS    ((size_t)16)

#define TILES __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))
#define TILE  16                  /* rows of A, columns of B, and pairs, of a register */
#define SIDE  ((size_t)2 * TILE)
#define CACHE_LINE ((size_t)64)
/* Distance in values at which a row is prefetched while it is packed. */
#define ROW_AHEAD ((size_t)128)

static size_t pairs_of(size_t terms)
{
    return (terms + 2 * TILE - 1) / (2 * TILE) * TILE;
}

/* Rounds the rows or columns up to whole panels. */
static size_t whole_panels(size_t lines)
{
    return (lines + SIDE - 1) / SIDE * SIDE;
}

/* ---- packing ---- */

/* Returns the offset of a row's pairs in the panels of 32 rows of A: each 16 pairs have the 16 rows of one
 * register, then those of the other. */
INLINE size_t place_of_row(size_t row, size_t pair_index, size_t pairs)
{
    return row / SIDE * (SIDE * pairs) + pair_index / TILE * (SIDE * TILE) + row % SIDE * TILE;
}

/* Packed blocks of A and B. A second part is NULL if it is zero everywhere or does not exist. */
typedef struct block {
    size_t rows, cols, pairs;
    size_t a_pairs, b_pairs;    /* pairs for which a panel of A, B has room: distance of panels             */
    const pair *a, *a_rest, *b, *b_rest;
    float *sums;        /* [..][32][32] tiles of sums                                               */
    ptrdiff_t least;    /* only sums with column - row >= least are needed                                    */
} block;

/* Packs rows of a [n, terms].  A panel has room for `across` pairs; its written part is contiguous. */
INLINE bool pack_rows_as_rows(size_t n, size_t terms, size_t across, const float *a, size_t lda, pair *out, pair *rest)
{
    const size_t pairs = pairs_of(terms), rows = whole_panels(n);
    parts both = {.any = _mm512_setzero_si512()};
    for (size_t first = 0; first < rows; first += SIDE)
        for (size_t p = 0; p < pairs; p += TILE)
            for (size_t i = first; i < first + SIDE; i++) {
                const size_t to = place_of_row(i, p, across);
                both.first = both.rest = _mm512_setzero_si512();
                if (i < n) {
                    fetch_values(a + i * lda + 2 * p + ROW_AHEAD, 2 * TILE);
                    round_pairs(a + i * lda + 2 * p, calm_size_min(terms - 2 * p, 2 * TILE), rest != NULL, &both);
                }
                _mm512_store_si512(out + to, both.first);
                if (rest)
                    _mm512_store_si512(rest + to, both.rest);
            }
    return any_rest(&both);
}

/* Packs the columns of a [terms, n] as rows: sixteen pairs of sixteen rows at a time, transposed. */
INLINE bool pack_columns_as_rows(size_t n, size_t terms, size_t across, const float *a, size_t lda, pair *out,
                                 pair *rest)
{
    const size_t pairs = pairs_of(terms), rows = whole_panels(n);
    parts both = {.any = _mm512_setzero_si512()};
    for (size_t p = 0; p < pairs; p += TILE)
        for (size_t i = 0; i < rows; i += TILE) {
            const size_t to = place_of_row(i, p, across);
            __m512i x[TILE], y[TILE];
            for (size_t q = 0; q < TILE; q++) {
                round_columns(a + i, lda, i < n ? terms : 0, p + q, i < n ? n - i : 0, rest != NULL, &both);
                x[q] = both.first;
                y[q] = rest ? both.rest : both.first;
            }
            put_transposed(x, TILE, out + to, TILE);
            if (rest)
                put_transposed(y, TILE, rest + to, TILE);
        }
    return any_rest(&both);
}

/* ---- a block ---- */

#define TILES_INLINE TILES __attribute__((always_inline)) static inline

/* Adds the product of 32 rows in registers 4 and 5 and 32 columns in 6 and 7 to registers 0 to 3. */
TILES_INLINE void add_tiles(void)
{
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
}

TILES void calm_bf16_amx_spin(size_t times)
{
    if (!calm_bf16_amx_available())
        return;
    calm_amx_begin_filled(TILE, TILE * sizeof(pair));
    for (size_t i = 0; i < times; i += 4)
        add_tiles();
    _tile_release();
}

TILES_INLINE void load_rows(const pair *a)
{
    _tile_loadd(4, a, TILE * sizeof(pair));
    _tile_loadd(5, a + TILE * TILE, TILE * sizeof(pair));
}

/* Loads columns without keeping them in the L1 cache, where the panel of rows remains. */
TILES_INLINE void load_cols(const pair *b)
{
    _tile_stream_loadd(6, b, COLS * sizeof(pair));
    _tile_stream_loadd(7, b + TILE, COLS * sizeof(pair));
}

/* Memory to prefetch during a multiplication: of each part, `lines` cache lines per 16 pairs. */
typedef struct coming {
    const char *part[2];    /* NULL: no prefetch */
    size_t lines;
} coming;

INLINE void fetch_coming(const coming *next, size_t step)
{
    for (size_t i = 0; i < 2; i++)
        for (size_t l = 0; next->part[i] && l < next->lines; l++)
            _mm_prefetch(next->part[i] + (step * next->lines + l) * CACHE_LINE, _MM_HINT_T0);
}

/* Adds the product of a panel of 32 rows and one of 32 columns to registers 0 to 3.  All products of 16 pairs are
 * computed together, in an order that loads each part once: a load takes as long as a product. */
TILES_INLINE void add_products(const pair *a, const pair *a_rest, const pair *b, const pair *b_rest, size_t pairs,
                               const coming *next)
{
    for (size_t p = 0; p < pairs * SIDE; p += TILE * SIDE) {
        load_rows(a + p);
        fetch_coming(next, p / (TILE * SIDE));
        if (b_rest) {
            load_cols(b_rest + p);
            add_tiles();
        }
        load_cols(b + p);
        add_tiles();
        if (a_rest) {
            load_rows(a_rest + p);
            add_tiles();
        }
    }
}

/* Computes sums [32][32] = panel of rows from row i on times panel of columns from column j on. */
TILES_INLINE void sum_tiles(const block *of, size_t i, size_t j, const coming *next, float *sums)
{
    const size_t pairs = of->pairs, line = SIDE * sizeof(float), row = i * of->a_pairs, panel = j * of->b_pairs;
    const pair *a = of->a + row, *b = of->b + panel;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    if (of->a_rest && of->b_rest)
        add_products(a, of->a_rest + row, b, of->b_rest + panel, pairs, next);
    else if (of->a_rest)
        add_products(a, of->a_rest + row, b, NULL, pairs, next);
    else if (of->b_rest)
        add_products(a, NULL, b, of->b_rest + panel, pairs, next);
    else
        add_products(a, NULL, b, NULL, pairs, next);
    _tile_stored(0, sums, line);
    _tile_stored(1, sums + TILE, line);
    _tile_stored(2, sums + TILE * SIDE, line);
    _tile_stored(3, sums + TILE * SIDE + TILE, line);
}

/* Returns whether any of the 32 by 32 sums at this row and column is needed. */
INLINE bool is_wanted(const block *of, size_t row, size_t col)
{
    return (ptrdiff_t)(col + SIDE - 1) - (ptrdiff_t)row >= of->least;
}

/* Returns the 32 by 32 sums at this row and column. */
INLINE float *sums_of(const block *of, size_t row, size_t col)
{
    return of->sums + (row / SIDE * (whole_panels(of->cols) / SIDE) + col / SIDE) * (SIDE * SIDE);
}

/* Destination of a block's sums with its last terms: C = sums + beta C. */
typedef struct target {
    float beta, *c;    /* c is NULL before the last terms */
    size_t ldc;
} target;

/* Computes out [32][32] = a + b; out may be a or b. */
INLINE void add_sums(const float *a, const float *b, float *out)
{
    for (size_t i = 0; i < SIDE * SIDE; i += LANES)
        _mm512_store_ps(out + i, _mm512_add_ps(_mm512_load_ps(a + i), _mm512_load_ps(b + i)));
}

/* Prefetches the part of C that these sums are written to: C is far larger than the cache. */
INLINE void fetch_target(const block *of, size_t row, size_t col, const target *to)
{
    const size_t rows = calm_size_min(of->rows - row, SIDE);
    const float *c = to->c + row * to->ldc + col;
    for (size_t r = 0; r < rows; r++, c += to->ldc) {
        __builtin_prefetch(c, 1);
        __builtin_prefetch(c + LANES, 1);
    }
}

/* Writes the sums [32][32] at this row and column of a block to C. */
INLINE void put_sums(const block *of, size_t row, size_t col, const float *sums, const target *to)
{
    const size_t rows = calm_size_min(of->rows - row, SIDE), cols = calm_size_min(of->cols - col, SIDE);
    float *c = to->c + row * to->ldc + col;
    for (size_t r = 0; r < rows; r++, c += to->ldc, sums += SIDE) {
        put_line(_mm512_load_ps(sums), cols, to->beta, c);
        if (cols > LANES)
            put_line(_mm512_load_ps(sums + LANES), cols - LANES, to->beta, c + LANES);
    }
}

/* Adds the product of the panels of rows i and columns j to the block's sums, or sets them for the `first` terms;
 * writes them to C with the last terms.  Adding sums of few terms has a smaller rounding error than one long sum. */
TILES_INLINE void multiply_panels(const block *of, size_t i, size_t j, const coming *next, bool first, const target *to)
{
    _Alignas(64) float some[SIDE * SIDE];
    float *so_far = sums_of(of, i, j), *sums = first && !to->c ? so_far : some;
    sum_tiles(of, i, j, next, sums);
    if (!first)
        add_sums(so_far, some, to->c ? some : so_far);
    if (to->c)
        put_sums(of, i, j, some, to);
}

/* Returns what to prefetch while the panels of one row of tiles are multiplied, of which this is the tile `at` of
 * `n`: a share of the panel that begins at `next` of both parts. */
INLINE coming coming_share(const block *of, const pair *part, const pair *rest, size_t next, size_t at, size_t n)
{
    const size_t lines = (2 * TILE + n - 1) / n, byte = at * (of->pairs / TILE) * lines * CACHE_LINE;
    return (coming){{(const char *)(part + next) + byte, rest ? (const char *)(rest + next) + byte : NULL}, lines};
}

/* Returns a share of the next panel of rows, which is not in the L2 cache. */
INLINE coming coming_rows(const block *of, size_t i, size_t j)
{
    if (i + SIDE >= of->rows)
        return (coming){.lines = 0};
    return coming_share(of, of->a, of->a_rest, (i + SIDE) * of->a_pairs, j / SIDE, whole_panels(of->cols) / SIDE);
}

/* Multiplies all panels of a block whose sums are needed. */
TILES static void multiply(const block *of, bool first, const target *to)
{
    calm_amx_begin(TILE, TILE * sizeof(pair));
    for (size_t i = 0; i < of->rows; i += SIDE)
        for (size_t j = 0; j < of->cols; j += SIDE)
            if (is_wanted(of, i, j)) {
                const coming next = coming_rows(of, i, j);
                if (to->c)
                    fetch_target(of, i, j, to);
                multiply_panels(of, i, j, &next, first, to);
            }
    _tile_release();
}

/* ---- the product ---- */

/* Packed operands of a product: rows with the terms of up to N_BLOCKS contiguous blocks, the columns of one block,
 * and the sums of a block. */
typedef struct packed {
    pair *rows, *rows_rest, *cols, *cols_rest;    /* second parts: NULL if operands have one part */
    bool any_rest[N_BLOCKS];
    float *sums;
} packed;

/* Returns the bytes of one part of `lines` rows or columns, in whole panels. */
static size_t part_bytes(size_t lines, size_t terms)
{
    return whole_panels(lines) * terms * sizeof(uint16_t);
}

static size_t sums_bytes(size_t rows, size_t cols)
{
    return whole_panels(rows) * whole_panels(cols) * sizeof(float);
}

static calm_status new_room(calm_ctx *ctx, size_t n_bytes, pair **out)
{
    char *bytes;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, bytes, n_bytes));
    *out = (pair *)(void *)bytes;
    return CALM_OK;
}

/* Allocates packed operands: rows with `all_terms` terms, columns with the `terms` of a block. */
static calm_status new_packed(calm_ctx *ctx, size_t n_parts, size_t rows, size_t all_terms, size_t cols, size_t terms,
                              packed *out)
{
    pair *sums;
    *out = (packed){0};
    CALM_TRY(new_room(ctx, sums_bytes(rows, cols), &sums));
    out->sums = (float *)(void *)sums;
    CALM_TRY(new_room(ctx, part_bytes(rows, all_terms), &out->rows));
    CALM_TRY(new_room(ctx, part_bytes(cols, terms), &out->cols));
    if (n_parts < 2)
        return CALM_OK;
    CALM_TRY(new_room(ctx, part_bytes(rows, all_terms), &out->rows_rest));
    return new_room(ctx, part_bytes(cols, terms), &out->cols_rest);
}

size_t calm_bf16_amx_scratch_bytes(size_t n_parts, size_t rows)
{
    const size_t side = calm_product_side(rows, BLOCK_ROWS, SIDE);
    return CALM_BYTES(char, sums_bytes(side, BLOCK_COLS)) +
           n_parts * (CALM_BYTES(char, part_bytes(side, N_BLOCKS * BLOCK_TERMS)) +
                      CALM_BYTES(char, part_bytes(BLOCK_COLS, BLOCK_TERMS)));
}

/* Arguments of a product whose operands are packed block by block. */
typedef struct product {
    calm_product_form form;
    bool upper;
    size_t m, n, k, terms, row_side, col_side;    /* of a block */
    const float *a, *b;
    size_t lda, ldb;
    float beta, *c;
    size_t ldc;
} product;

/* Returns the offset of block `at` of the packed rows. */
static size_t place_of_block(const product *p, size_t rows, size_t at)
{
    return at * whole_panels(rows) * pairs_of(p->terms);
}

/* Packs rows i to i + rows with the terms from `first` on, as contiguous blocks.  Rows of A are read completely, one
 * panel of rows at a time. */
TARGET static void pack_all_rows(const product *p, size_t i, size_t rows, size_t first, packed *to)
{
    const size_t step = p->form == CALM_PRODUCT_TN ? rows : SIDE;
    memset(to->any_rest, 0, sizeof to->any_rest);
    for (size_t r = 0; r < rows; r += step)
        for (size_t at = 0; at < N_BLOCKS && first + at * p->terms < p->k; at++) {
            const size_t t = first + at * p->terms, terms = calm_size_min(p->terms, p->k - t),
                         place = place_of_block(p, rows, at) + r * pairs_of(terms), n = calm_size_min(step, rows - r);
            pair *rest = to->rows_rest ? to->rows_rest + place : NULL;
            to->any_rest[at] |=
                p->form == CALM_PRODUCT_TN
                    ? pack_columns_as_rows(n, terms, pairs_of(terms), p->a + t * p->lda + i, p->lda, to->rows + place,
                                           rest)
                    : pack_rows_as_rows(n, terms, pairs_of(terms), p->a + (i + r) * p->lda + t, p->lda,
                                        to->rows + place, rest);
        }
}

/* Computes C [i .. i + rows, j .. j + cols] = the product over the packed terms from `first` on + beta C. */
TARGET static void multiply_terms(const product *p, size_t i, size_t rows, size_t j, size_t cols, size_t first,
                                  packed *of)
{
    block now = {.rows = rows, .cols = cols, .b = of->cols, .sums = of->sums,
                 .least = p->upper ? (ptrdiff_t)i - (ptrdiff_t)j : PTRDIFF_MIN};
    for (size_t at = 0; at == 0 || (at < N_BLOCKS && first + at * p->terms < p->k); at++) {
        const size_t t = first + at * p->terms, terms = calm_size_min(p->terms, p->k - t),
                     place = place_of_block(p, rows, at);
        const float *b = p->form == CALM_PRODUCT_NT ? p->b + j * p->ldb + t : p->b + t * p->ldb + j;
        now.pairs = now.a_pairs = now.b_pairs = pairs_of(terms);
        const bool rest = pack_panels(p->form, cols, terms, now.pairs, now.pairs, b, p->ldb, of->cols, of->cols_rest);
        now.a = of->rows + place;
        now.a_rest = of->rows_rest && of->any_rest[at] ? of->rows_rest + place : NULL;
        now.b_rest = rest ? of->cols_rest : NULL;
        const bool last = at + 1 == N_BLOCKS || t + terms == p->k;
        multiply(&now, at == 0, &(target){first == 0 ? p->beta : 1, last ? p->c + i * p->ldc + j : NULL, p->ldc});
    }
}

calm_status calm_bf16_amx_product(calm_ctx *ctx, size_t n_parts, calm_product_form form, bool upper, size_t m,
                                  size_t n, size_t k, const float *a, size_t lda, const float *b, size_t ldb,
                                  float beta, float *c, size_t ldc)
{
    const size_t row_side = calm_product_side(m, BLOCK_ROWS, SIDE), col_side = calm_product_side(n, BLOCK_COLS, COLS);
    const product p = {form, upper, m, n, k, calm_product_side(k, BLOCK_TERMS, 2 * TILE), row_side, col_side, a, b,
                       lda, ldb, beta, c, ldc};
    packed room;
    CALM_SCOPED_SCRATCH(ctx);
    const size_t n_blocks = calm_size_min(N_BLOCKS, (k + p.terms - 1) / p.terms);
    CALM_TRY(new_packed(ctx, n_parts, row_side, n_blocks * p.terms, col_side, p.terms, &room));
    for (size_t i = 0; i < m; i += row_side) {
        const size_t rows = calm_size_min(row_side, m - i);
        /* For k = 0 this runs once, to compute beta C. */
        for (size_t first = 0; first == 0 || first < k; first += N_BLOCKS * p.terms) {
            pack_all_rows(&p, i, rows, first, &room);
            for (size_t j = upper ? i / col_side * col_side : 0; j < n; j += col_side)
                multiply_terms(&p, i, rows, j, calm_size_min(col_side, n - j), first, &room);
        }
    }
    return CALM_OK;
}

/* ---- packed operands ---- */

/* Returns a share of the next panel of columns, or, behind the last panel, of the first panel's next terms. */
INLINE coming coming_columns(const block *of, size_t i, size_t j)
{
    const size_t next = j + SIDE < of->cols ? (j + SIDE) * of->b_pairs : of->pairs * SIDE;
    return coming_share(of, of->b, of->b_rest, next, i / SIDE, whole_panels(of->rows) / SIDE);
}

/* Multiplies as multiply() does, but keeps each panel of columns in the L1 cache for all rows: for few rows and
 * columns that are not in the cache. */
TILES static void multiply_columns(const block *of, bool first, const target *to)
{
    calm_amx_begin(TILE, TILE * sizeof(pair));
    for (size_t j = 0; j < of->cols; j += SIDE)
        for (size_t i = 0; i < of->rows; i += SIDE) {
            const coming next = coming_columns(of, i, j);
            if (to->c)
                fetch_target(of, i, j, to);
            multiply_panels(of, i, j, &next, first, to);
        }
    _tile_release();
}

TARGET bool calm_bf16_amx_pack_rows(calm_product_form form, size_t n, size_t terms, size_t across, const float *x,
                                    size_t ldx, uint32_t *first, uint32_t *rest)
{
    return form == CALM_PRODUCT_TN ? pack_columns_as_rows(n, terms, across, x, ldx, first, rest)
                                   : pack_rows_as_rows(n, terms, across, x, ldx, first, rest);
}

TARGET bool calm_bf16_amx_pack_cols(calm_product_form form, size_t n, size_t terms, size_t across, const float *x,
                                    size_t ldx, uint32_t *first, uint32_t *rest)
{
    return pack_panels(form, n, terms, pairs_of(terms), across, x, ldx, first, rest);
}

/* Returns the address of line `line` and term `term` in a part of packed panels. */
static const pair *part_at(const pair *part, size_t across, size_t line, size_t term)
{
    return part ? part + line * across + term / 2 * SIDE : NULL;
}

calm_status calm_bf16_amx_packed(calm_ctx *ctx, size_t m, size_t n, size_t k, const calm_bf16_panels *a,
                                 const calm_bf16_panels *b, float beta, float *c, size_t ldc)
{
    const size_t row_side = calm_product_side(m, BLOCK_ROWS, SIDE), col_side = calm_product_side(n, BLOCK_COLS, COLS),
                 side = calm_product_side(k, BLOCK_TERMS, 2 * TILE);
    block now = {.a_pairs = a->across, .b_pairs = b->across, .least = PTRDIFF_MIN};
    pair *sums;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(new_room(ctx, k > side ? sums_bytes(row_side, col_side) : 0, &sums));
    now.sums = (float *)(void *)sums;
    for (size_t i = 0; i < m; i += row_side)
        for (size_t j = 0; j < n; j += col_side)
            for (size_t t = 0; t < k; t += side) {
                /* The sums are written to C after N_BLOCKS blocks, as in multiply_terms. */
                const size_t at = t / side % N_BLOCKS, terms = calm_size_min(side, k - t);
                const bool last = at + 1 == N_BLOCKS || t + terms == k;
                now.rows = calm_size_min(row_side, m - i);
                now.cols = calm_size_min(col_side, n - j);
                now.pairs = pairs_of(terms);
                now.a = part_at(a->first, a->across, i, t);
                now.a_rest = part_at(a->rest, a->across, i, t);
                now.b = part_at(b->first, b->across, j, t);
                now.b_rest = part_at(b->rest, b->across, j, t);
                multiply_columns(&now, at == 0,
                                 &(target){t < N_BLOCKS * side ? beta : 1, last ? c + i * ldc + j : NULL, ldc});
            }
    return CALM_OK;
}

bool calm_bf16_amx_available(void)
{
    return calm_amx_available(CALM_CPU_AMX_BF16 | CALM_CPU_AVX512_BF16);
}

#else

bool calm_bf16_amx_available(void)
{
    return false;
}

void calm_bf16_amx_spin(size_t times)
{
    (void)times;
}

calm_status calm_bf16_amx_product(calm_ctx *ctx, size_t n_parts, calm_product_form form, bool upper, size_t m,
                                  size_t n, size_t k, const float *a, size_t lda, const float *b, size_t ldb,
                                  float beta, float *c, size_t ldc)
{
    (void)n_parts, (void)form, (void)upper, (void)m, (void)n, (void)k, (void)a, (void)lda, (void)b, (void)ldb,
        (void)beta, (void)c, (void)ldc;
    return calm_fail(ctx, CALM_EUNSUPPORTED, "this CPU has no AMX");
}

size_t calm_bf16_amx_scratch_bytes(size_t n_parts, size_t rows)
{
    (void)n_parts, (void)rows;
    return 0;
}

bool calm_bf16_amx_pack_rows(calm_product_form form, size_t n, size_t terms, size_t across, const float *x,
                             size_t ldx, uint32_t *first, uint32_t *rest)
{
    (void)form, (void)n, (void)terms, (void)across, (void)x, (void)ldx, (void)first, (void)rest;
    return false;
}

bool calm_bf16_amx_pack_cols(calm_product_form form, size_t n, size_t terms, size_t across, const float *x, size_t ldx,
                             uint32_t *first, uint32_t *rest)
{
    (void)form, (void)n, (void)terms, (void)across, (void)x, (void)ldx, (void)first, (void)rest;
    return false;
}

calm_status calm_bf16_amx_packed(calm_ctx *ctx, size_t m, size_t n, size_t k, const calm_bf16_panels *a,
                                 const calm_bf16_panels *b, float beta, float *c, size_t ldc)
{
    (void)m, (void)n, (void)k, (void)a, (void)b, (void)beta, (void)c, (void)ldc;
    return calm_fail(ctx, CALM_EUNSUPPORTED, "this CPU has no AMX");
}

#endif
