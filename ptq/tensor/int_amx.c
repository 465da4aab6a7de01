/* Integer products with AMX: TDPBSUD adds the products of 16 rows of signed codes and 16 columns of unsigned codes,
 * over 64 codes, to 256 int32 sums.
 *
 * A register loads a panel of a weight, and rows of activations, in their layout in memory.  Two panels by two times
 * 16 rows are summed at once.  Up to 512 columns are processed together, for all rows of a piece, so both operands stay
 * in the L1 cache and 4-bit codes are unpacked once.  The integer sums stay in memory meanwhile, without rounding. */
#include "ptq/tensor/int_kernel.h"

#if defined(__x86_64__) && defined(__GNUC__) && defined(__linux__)
#include <assert.h>
#include <immintrin.h>
#include <string.h>

#include "ptq/tensor/amx.h"

#define TARGET __attribute__((target("amx-tile,amx-int8,avx512f,avx512bw,avx512vl,avx512dq")))
#define INLINE TARGET __attribute__((always_inline)) static inline

enum { LANES = 16, SIDE = 2 * LANES, ROWS = CALM_INT_AMX_ROWS };
/* Columns processed at a time; codes of a row of a register. */
#define COLUMNS ((size_t)512)
#define CODES   ((size_t)64)
/* AMX takes as long for fewer rows as for 32, so vectors are faster with few: up to 16 rows where the weight comes from
 * memory, up to 24 where it stays in the L2 cache. */
#define FEWEST_ROWS        ((size_t)17)
#define FEWEST_CACHED_ROWS ((size_t)25)
#define CACHED_BYTES       ((size_t)2 << 20)

/* Rows of a piece by two panels.  A slot is 16 rows; the last slot ends with the rows, so it may share some with the
 * slot before it. */
typedef struct part {
    const calm_int_piece *piece;
    size_t first_row, n_rows, n_slots;
    size_t panels[2];
    size_t codes;                          /* codes of a row of a register; divides all groups           */
    _Alignas(64) int32_t sums[ROWS][SIDE]; /* of the current group, [slots, 16, columns of both panels]  */
    _Alignas(64) float totals[ROWS][SIDE]; /* of the groups before it                                    */
    _Alignas(64) uint8_t wide[2][COLUMNS * LANES];
} part;

static size_t slot_row(const part *p, size_t slot)
{
    const size_t row = slot * LANES;
    return p->first_row + calm_size_min(row, p->n_rows - LANES);
}

/* Returns the largest number of codes of a register's row that divides all groups, or 0 if it is less than half a
 * register. */
static size_t codes_of(const calm_int_weight *weight)
{
    for (size_t codes = CODES; codes >= CODES / 2; codes /= 2)
        if (weight->stride % codes == 0 && (weight->n_groups == 1 || weight->group % codes == 0))
            return codes;
    return 0;
}

/* ---- weights ---- */

/* Unpacks the 4-bit codes of n columns of a panel to [n / 4, 16, 4]. */
TARGET static void widen(const uint8_t *from, size_t n, uint8_t *to)
{
    const __m512i low = _mm512_set1_epi8(15);
    for (size_t i = 0; i < n; i += CALM_INT_STEP, from += CODES, to += 2 * CODES) {
        const __m512i both = _mm512_loadu_si512(from);
        _mm512_store_si512(to, _mm512_and_si512(both, low));
        _mm512_store_si512(to + CODES, _mm512_and_si512(_mm512_srli_epi16(both, 4), low));
    }
}

/* Returns columns `first` to first + n of a panel in a register's layout. */
TARGET static const uint8_t *panel_codes(part *p, size_t side, size_t first, size_t n)
{
    const calm_int_weight *weight = p->piece->weight;
    const uint8_t *panel = weight->codes + p->panels[side] * weight->panel;
    if (weight->bits == 8)
        return panel + first * LANES;
    widen(panel + first * LANES / 2, n, p->wide[side]);
    return p->wide[side];
}

/* ---- sums ---- */

/* Adds the products of n columns from `first` on to the sums of two slots by both panels, or sets them if `begins`. */
TARGET static void add_columns(part *p, size_t slot, const uint8_t *const codes[2], size_t first, size_t n, bool begins)
{
    const calm_int_rows *rows = p->piece->rows;
    const size_t other = slot + 1 < p->n_slots ? slot + 1 : slot, line = SIDE * sizeof(int32_t);
    const int8_t *a = rows->codes + slot_row(p, slot) * rows->stride + first,
                 *b = rows->codes + slot_row(p, other) * rows->stride + first;
    int32_t *x = p->sums[slot * LANES], *y = p->sums[other * LANES];
    if (begins) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    } else {
        _tile_loadd(0, x, line);
        _tile_loadd(1, x + LANES, line);
        _tile_loadd(2, y, line);
        _tile_loadd(3, y + LANES, line);
    }
    for (size_t i = 0; i < n; i += p->codes) {
        _tile_loadd(4, a + i, rows->stride);
        _tile_loadd(6, codes[0] + i * LANES, CODES);
        _tile_loadd(7, codes[1] + i * LANES, CODES);
        _tile_loadd(5, b + i, rows->stride);
        _tile_dpbsud(0, 4, 6);
        _tile_dpbsud(1, 4, 7);
        _tile_dpbsud(2, 5, 6);
        _tile_dpbsud(3, 5, 7);
    }
    _tile_stored(0, x, line);
    _tile_stored(1, x + LANES, line);
    _tile_stored(2, y, line);
    _tile_stored(3, y + LANES, line);
}

/* ---- groups ---- */

/* One panel's side of a group: its scales, zero points (0 if all panels share one) and sums of codes. */
typedef struct side {
    __m512 scale;
    __m512i zero, sum;
} side;

INLINE side side_of(const part *p, size_t panel, size_t g)
{
    const calm_int_weight *weight = p->piece->weight;
    const size_t cell = (panel * weight->n_groups + g) * CALM_INT_PANEL;
    return (side){_mm512_loadu_ps(weight->scales + cell),
                  weight->zeros ? _mm512_loadu_si512(weight->zeros + cell) : _mm512_setzero_si512(),
                  _mm512_loadu_si512(weight->sums + cell)};
}

/* The corrections of a row's sums of a group for zero points. */
typedef struct correction {
    bool own_zeros;    /* each panel has its zero points            */
    __m512i codes;     /* sum of the row's codes                    */
    __m512i shared;    /* that times the zero point of all panels   */
    int32_t zero;      /* zero point of the row                     */
} correction;

/* Returns a row's sums of a group by a panel, corrected, with the weight's scale. */
INLINE __m512 scaled(const int32_t *sums, const correction *of, const side *by)
{
    __m512i exact = _mm512_load_si512(sums);
    if (of->own_zeros)
        exact = _mm512_sub_epi32(exact, _mm512_mullo_epi32(by->zero, of->codes));
    else
        exact = _mm512_sub_epi32(exact, of->shared);
    if (of->zero)
        exact = _mm512_sub_epi32(exact, _mm512_mullo_epi32(_mm512_set1_epi32(of->zero), by->sum));
    return _mm512_mul_ps(_mm512_cvtepi32_ps(exact), by->scale);
}

/* Adds group g, which is summed, to the totals of a slot. */
TARGET static void add_group(part *p, size_t slot, size_t g)
{
    const calm_int_rows *all = p->piece->rows;
    const size_t row = slot_row(p, slot), step = all->n_groups;
    const int32_t *codes = all->sums + row * step + g, *zeros = all->zeros + row;
    const bool own_zeros = p->piece->weight->zeros;
    const uint32_t shared = own_zeros ? 0 : (uint32_t)p->piece->weight->zero;
    const side by[2] = {side_of(p, p->panels[0], g), side_of(p, p->panels[1], g)};
    for (size_t r = 0; r < LANES; r++) {
        const int32_t *sums = p->sums[slot * LANES + r];
        float *totals = p->totals[slot * LANES + r];
        const uint32_t of_row = (uint32_t)codes[r * step];
        const correction of = {own_zeros, _mm512_set1_epi32((int32_t)of_row),
                               _mm512_set1_epi32((int32_t)(of_row * shared)), zeros[r]};
        __m512 a = scaled(sums, &of, &by[0]), b = scaled(sums + LANES, &of, &by[1]);
        if (g) {
            a = _mm512_add_ps(_mm512_load_ps(totals), a);
            b = _mm512_add_ps(_mm512_load_ps(totals + LANES), b);
        }
        _mm512_store_ps(totals, a);
        _mm512_store_ps(totals + LANES, b);
    }
}

/* Writes 16 columns of y from `column` on, in the rows of a slot whose totals are complete. */
TARGET static void put_side(const part *p, size_t slot, size_t at, size_t column)
{
    const calm_int_piece *piece = p->piece;
    const size_t out = piece->weight->out, row = slot_row(p, slot);
    const __mmask16 there = (__mmask16)((1u << calm_size_min(LANES, out - column)) - 1);
    const __m512 bias = piece->bias ? _mm512_maskz_loadu_ps(there, piece->bias + column) : _mm512_setzero_ps();
    const bool biased = piece->bias;
    const float *scales = piece->rows->scales + row, *totals = p->totals[slot * LANES] + at;
    float *y = piece->y + row * out + column;
    for (size_t r = 0; r < LANES; r++) {
        const __m512 product = _mm512_mul_ps(_mm512_load_ps(totals + r * SIDE), _mm512_set1_ps(scales[r]));
        _mm512_mask_storeu_ps(y + r * out, there, biased ? _mm512_add_ps(product, bias) : product);
    }
}

/* Takes the sums of group g, which are complete, from slots `slot` and slot + 1. */
TARGET static void take_sums(part *p, size_t slot, size_t g)
{
    for (size_t i = slot; i < calm_size_min(slot + 2, p->n_slots); i++) {
        add_group(p, i, g);
        if (g + 1 < p->piece->weight->n_groups)
            continue;
        put_side(p, i, 0, p->panels[0] * LANES);
        if (p->panels[1] != p->panels[0])
            put_side(p, i, LANES, p->panels[1] * LANES);
    }
}

/* ---- the product ---- */

/* Multiplies columns first .. first + n - 1 of two slots by both panels. */
TARGET static void multiply_slots(part *p, size_t slot, const uint8_t *const codes[2], size_t first, size_t n)
{
    const calm_int_weight *weight = p->piece->weight;
    for (size_t at = first, end; at < first + n; at = end) {
        const size_t g = at / weight->group, begin = g * weight->group,
                     stop = begin + calm_int_group_columns(weight, g);
        end = calm_size_min(stop, first + n);
        add_columns(p, slot, (const uint8_t *[]){codes[0] + (at - first) * LANES, codes[1] + (at - first) * LANES}, at,
                    end - at, at == begin);
        /* Taken at once: the CPU multiplies the next columns meanwhile, and sums and totals stay in its L1 cache. */
        if (end == stop)
            take_sums(p, slot, g);
    }
}

TARGET static void multiply_panels(part *p)
{
    const calm_int_weight *weight = p->piece->weight;
    const size_t group = weight->group;
    for (size_t first = 0, n; first < weight->stride; first += n) {
        /* Some whole groups, or a part of one. */
        n = group < COLUMNS ? COLUMNS / group * group : calm_size_min(COLUMNS, group - first % group);
        n = calm_size_min(n, weight->stride - first);
        const uint8_t *const codes[2] = {panel_codes(p, 0, first, n), panel_codes(p, 1, first, n)};
        for (size_t slot = 0; slot < p->n_slots; slot += 2)
            multiply_slots(p, slot, codes, first, n);
    }
}

TARGET static void multiply(const calm_int_piece *piece, size_t codes)
{
    part p;
    p.piece = piece;
    p.codes = codes;
    p.first_row = piece->first_row;
    p.n_rows = piece->end_row - piece->first_row;
    p.n_slots = (p.n_rows + LANES - 1) / LANES;
    assert(p.n_rows >= LANES && p.n_rows <= ROWS);
    calm_amx_begin(LANES, codes);
    for (size_t panel = piece->first_panel; panel < piece->end_panel; panel += 2) {
        p.panels[0] = panel;
        p.panels[1] = calm_size_min(panel + 1, piece->end_panel - 1);
        multiply_panels(&p);
    }
    _tile_release();
}

TARGET void calm_int_amx_spin(size_t times)
{
    if (!calm_amx_available(CALM_CPU_AMX_INT8))
        return;
    calm_amx_begin_filled(LANES, CODES);
    for (size_t i = 0; i < times; i += 4) {
        _tile_dpbsud(0, 4, 6);
        _tile_dpbsud(1, 4, 7);
        _tile_dpbsud(2, 5, 6);
        _tile_dpbsud(3, 5, 7);
    }
    _tile_release();
}

static size_t fewest_rows(const calm_int_weight *weight)
{
    return weight->out * weight->stride * weight->bits / 8 <= CACHED_BYTES ? FEWEST_CACHED_ROWS : FEWEST_ROWS;
}

void calm_int_amx(const calm_int_piece *piece)
{
    const size_t codes = codes_of(piece->weight);
    if (codes == 0 || piece->end_row - piece->first_row < fewest_rows(piece->weight))
        calm_int_avx512(piece);
    else
        multiply(piece, codes);
}

#else

void calm_int_amx_spin(size_t times)
{
    (void)times;
}

void calm_int_amx(const calm_int_piece *piece)
{
    calm_int_plain(piece);
}

#endif
