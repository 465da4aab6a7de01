/* Integer products: packing, dispatch, and pieces for threads. */
#include "ptq/tensor/int_product.h"

#include <stdlib.h>
#include <string.h>

#include "ptq/base/simd.h"
#include "ptq/base/threads.h"
#include "ptq/tensor/amx.h"
#include "ptq/tensor/blas_family.h"
#include "ptq/tensor/int_kernel.h"

static size_t round_up(size_t n, size_t step)
{
    return (n + step - 1) / step * step;
}

/* ---- weights ---- */

bool calm_int_packs(const calm_int_source *source)
{
    const size_t group = source->group;
    const bool whole = group == 0 || group >= source->in;
    return (source->bits == 4 || source->bits == 8) && source->out && source->in &&
           (whole || (group % CALM_INT_STEP == 0 && group <= CALM_INT_COLUMNS));
}

/* Returns the shape of a packed weight. */
static calm_int_weight shape_of(const calm_int_source *source)
{
    calm_int_weight w = {.out = source->out, .in = source->in, .bits = source->bits, .zero = -1};
    w.stride = round_up(source->in, CALM_INT_STEP);
    w.group = source->group && source->group < source->in ? source->group : calm_size_min(w.stride, CALM_INT_COLUMNS);
    w.n_groups = (source->in + w.group - 1) / w.group;
    w.panel = w.stride * CALM_INT_PANEL * (size_t)source->bits / 8;
    return w;
}

static size_t panels_of(const calm_int_weight *w)
{
    return (w->out + CALM_INT_PANEL - 1) / CALM_INT_PANEL;
}

/* Returns the number of groups of all panels' rows. */
static size_t cells_of(const calm_int_weight *w)
{
    return panels_of(w) * w->n_groups * CALM_INT_PANEL;
}

/* Returns the zero point that all groups share, or -1 if they differ. */
static int common_zero(const calm_int_source *source, size_t n)
{
    if (!source->zeros)
        return source->zero;
    for (size_t i = 1; i < n; i++)
        if (source->zeros[i] != source->zeros[0])
            return -1;
    return source->zeros[0];
}

/* Returns the groups of a source's row: a row with one scale has one, even if it is summed in several groups. */
static size_t source_groups(const calm_int_source *source, const calm_int_weight *w)
{
    return source->group && source->group < source->in ? w->n_groups : 1;
}

size_t calm_int_weight_bytes(const calm_int_source *source)
{
    const calm_int_weight w = shape_of(source);
    return panels_of(&w) * w.panel + cells_of(&w) * (sizeof *w.scales + sizeof *w.sums + sizeof *w.zeros);
}

static void pack_row(const calm_int_weight *w, const uint8_t *codes, size_t row, uint8_t *panel)
{
    uint8_t *to = panel + row % CALM_INT_PANEL * 4;
    if (w->bits == 8)
        for (size_t i = 0; i < w->in; i++)
            to[i / 4 * 4 * CALM_INT_PANEL + i % 4] = codes[i];
    else
        for (size_t i = 0; i < w->in; i++)
            to[i / 8 * 4 * CALM_INT_PANEL + i % 4] |= (uint8_t)((codes[i] & 15) << (i % 8 / 4 * 4));
}

static int32_t sum_codes(const uint8_t *codes, size_t n)
{
    int32_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += codes[i];
    return sum;
}

void calm_int_pack(const calm_int_source *source, void *to, calm_int_weight *out)
{
    calm_int_weight w = shape_of(source);
    const size_t panels = panels_of(&w), cells = cells_of(&w), groups = source_groups(source, &w);
    uint8_t *codes = to;
    float *scales = (float *)(void *)(codes + panels * w.panel);
    int32_t *sums = (int32_t *)(void *)(scales + cells), *zeros = sums + cells;
    memset(to, 0, calm_int_weight_bytes(source));
    w.zero = common_zero(source, source->out * groups);
    for (size_t row = 0; row < w.out; row++) {
        const uint8_t *from = source->codes + row * w.in;
        pack_row(&w, from, row, codes + row / CALM_INT_PANEL * w.panel);
        for (size_t g = 0; g < w.n_groups; g++) {
            const size_t cell = (row / CALM_INT_PANEL * w.n_groups + g) * CALM_INT_PANEL + row % CALM_INT_PANEL;
            const size_t at = row * groups + (groups > 1 ? g : 0), n = calm_size_min(w.group, w.in - g * w.group);
            const int32_t zero = w.zero < 0 ? source->zeros[at] : w.zero;
            scales[cell] = source->scales[at];
            zeros[cell] = zero;
            sums[cell] = sum_codes(from + g * w.group, n) - zero * (int32_t)n;
        }
    }
    w.codes = codes;
    w.scales = scales;
    w.sums = sums;
    w.zeros = w.zero < 0 ? zeros : NULL;
    *out = w;
}

/* ---- activations ---- */

size_t calm_int_rows_bytes(const calm_int_weight *weight, size_t n)
{
    return round_up(n * weight->stride, sizeof(int32_t)) + n * (2 + weight->n_groups) * sizeof(int32_t);
}

void calm_int_rows_init(const calm_int_weight *weight, size_t n, void *memory, calm_int_rows *out)
{
    char *at = memory;
    *out = (calm_int_rows){.n = n, .stride = weight->stride, .n_groups = weight->n_groups, .codes = memory};
    at += round_up(n * weight->stride, sizeof(int32_t));
    out->scales = (float *)(void *)at;
    out->zeros = (int32_t *)(void *)(out->scales + n);
    out->sums = out->zeros + n;
}

/* Words of eight codes that are added before a 16-bit field may overflow: each word adds up to 2 * 255. */
#define WORDS_AT_ONCE ((size_t)128)

/* Returns the sum of n codes, n a multiple of 8, added in the fields of words, as compilers do not vectorize a sum
 * of bytes well.  Flipping the highest bit of a code adds 128 to it. */
CALM_VECTORIZE static int32_t sum_signed(const int8_t *codes, size_t n)
{
    const uint64_t even = 0x00ff00ff00ff00ff, turn = 0x8080808080808080;
    int32_t sum = -128 * (int32_t)n;
    for (size_t i = 0; i < n / sizeof even; i += WORDS_AT_ONCE) {
        const size_t end = calm_size_min(i + WORDS_AT_ONCE, n / sizeof even);
        uint64_t fields = 0, word;
        for (size_t w = i; w < end; w++) {
            memcpy(&word, codes + w * sizeof word, sizeof word);
            word ^= turn;
            fields += (word & even) + (word >> 8 & even);
        }
        for (; fields; fields >>= 16)
            sum += (int32_t)(fields & 0xffff);
    }
    return sum;
}

void calm_int_rows_finish(const calm_int_weight *weight, calm_int_rows *rows, size_t t)
{
    int8_t *codes = rows->codes + t * rows->stride;
    memset(codes + weight->in, 0, rows->stride - weight->in);
    for (size_t g = 0; g < weight->n_groups; g++)
        rows->sums[t * rows->n_groups + g] = sum_signed(codes + g * weight->group, calm_int_group_columns(weight, g));
}

/* ---- instruction sets ---- */

const char *const calm_int_set_names[CALM_N_INT_SETS] = {"plain", "avx2", "avxvnni", "avx512", "amx"};

static bool has(calm_int_set set)
{
    static const unsigned needs[CALM_N_INT_SETS] = {[CALM_INT_AVX2] = CALM_CPU_AVX2,
                                                    [CALM_INT_AVX_VNNI] = CALM_CPU_AVX_VNNI,
                                                    [CALM_INT_AVX512] = CALM_CPU_AVX512 | CALM_CPU_AVX512_VNNI,
                                                    [CALM_INT_AMX] = CALM_CPU_AVX512_VNNI};
    return (set != CALM_INT_AMX || calm_amx_available(CALM_CPU_AMX_INT8)) && (needs[set] & ~calm_cpu_features()) == 0;
}

calm_status calm_int_choose(calm_ctx *ctx, calm_int_set *out)
{
    const char *name = getenv(CALM_INT_VARIABLE);
    int set = CALM_N_INT_SETS - 1;
    if (name && *name) {
        while (set >= 0 && strcmp(calm_int_set_names[set], name) != 0)
            set--;
        if (set < 0)
            return calm_fail(ctx, CALM_EARG,
                             CALM_INT_VARIABLE "=%.40s: expected plain, avx2, avxvnni, avx512 or amx", name);
        if (!has((calm_int_set)set))
            return calm_fail(ctx, CALM_EUNSUPPORTED,
                             CALM_INT_VARIABLE "=%s: this CPU lacks these instructions; unset it", name);
    }
    while (!has((calm_int_set)set))
        set--;
    *out = (calm_int_set)set;
    return CALM_OK;
}

/* ---- pieces ---- */

/* Approximate maximum bytes of a weight's and of the rows' codes in a piece: parts of the L2 cache. */
#define WEIGHT_BYTES ((size_t)256 << 10)
#define ROWS_BYTES   ((size_t)64 << 10)
/* Panels and rows of a piece are multiples of these, for whole tiles. */
#define PANEL_STEP ((size_t)8)
#define ROW_STEP   ((size_t)16)

typedef struct product {
    calm_int_piece whole;
    calm_int_kernel *kernel;
    size_t panels, rows, across;    /* panels, rows of a piece; pieces per row of pieces */
} product;

static void multiply_piece(size_t index, void *user)
{
    const product *p = user;
    calm_int_piece piece = p->whole;
    piece.first_panel = index % p->across * p->panels;
    piece.first_row = index / p->across * p->rows;
    piece.end_panel = calm_size_min(piece.first_panel + p->panels, p->whole.end_panel);
    piece.end_row = calm_size_min(piece.first_row + p->rows, p->whole.end_row);
    p->kernel(&piece);
}

void calm_int_product(calm_ctx *ctx, calm_int_set set, const calm_int_weight *weight, const calm_int_rows *rows,
                      const float *bias, float *y)
{
    static calm_int_kernel *const kernels[CALM_N_INT_SETS] = {calm_int_plain, calm_int_avx2, calm_int_avx_vnni,
                                                              calm_int_avx512, calm_int_amx};
    product p = {.whole = {weight, rows, bias, y, 0, panels_of(weight), 0, rows->n}, .kernel = kernels[set]};
    if (rows->n == 0)
        return;
    p.panels = calm_size_max(WEIGHT_BYTES / weight->panel / PANEL_STEP, 1) * PANEL_STEP;
    p.rows = calm_size_max(ROWS_BYTES / weight->stride / ROW_STEP, 1) * ROW_STEP;
    if (set == CALM_INT_AMX)
        p.rows = CALM_INT_AMX_ROWS;
    p.across = (p.whole.end_panel + p.panels - 1) / p.panels;
    calm_parallel_each(ctx, (rows->n + p.rows - 1) / p.rows * p.across, multiply_piece, &p);
}
