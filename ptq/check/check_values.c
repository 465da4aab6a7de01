/* Check: values of scales, codes and floats.  All threads read tensors in pieces, whose pages are released one by
 * one. */
#include <string.h>

#include "ptq/base/threads.h"
#include "ptq/check/check_scan.h"
#include "ptq/check/check_state.h"

#define PIECE ((size_t)4 << 20) /* bytes of a tensor that one task reads */

typedef enum look { LOOK_FLOATS, LOOK_SCALES, LOOK_CODES, LOOK_RANGE, LOOK_HOLES, LOOK_NOTHING } look;

typedef struct piece {
    size_t member, offset, bytes;
    look how;
    int limit;                          /* LOOK_RANGE */
    const calm_tensor *scales;          /* LOOK_HOLES of FP4 codes: their scales, one byte per group; else NULL */
    size_t group;                       /* columns per scale of `scales` */
    size_t counts[CALM_N_SCALE_FAULTS]; /* number of each fault of scales; for other values only counts[0] */
} piece;

typedef struct scan {
    const calm_checking *c;
    piece *pieces;
    size_t n;
} scan;

/* ---- which values ---- */

static look choose(const calm_check_module *module, const calm_check_member *at, int *limit)
{
    const calm_tensor *tensor = at->tensor;
    calm_qformat_part part;
    const bool known = calm_qformat_suffix_part(NULL, at->suffix, &part);
    *limit = 0;
    if (tensor->source)    /* stored as codes, not as floats: calm_check_sources */
        return LOOK_NOTHING;
    if (module->quantized && module->scheme.family && known && !calm_dtype_is_float(tensor->dtype))
        return part == CALM_QFORMAT_SCALES      ? LOOK_SCALES
               : tensor->dtype == CALM_F8_E4M3 ? LOOK_CODES
               : part == CALM_QFORMAT_CODES    ? LOOK_HOLES
                                               : LOOK_NOTHING;
    if (known && part == CALM_QFORMAT_SCALES && calm_dtype_is_float(tensor->dtype))
        return LOOK_SCALES;
    if (calm_dtype_is_float(tensor->dtype))
        return LOOK_FLOATS;
    if (tensor->dtype == CALM_I8 && module->quantized && module->scheme.bits < 8 && strcmp(at->suffix, "weight") == 0) {
        *limit = 1 << (module->scheme.bits - 1);
        return LOOK_RANGE;
    }
    const bool packed = known && part == CALM_QFORMAT_CODES && strcmp(at->suffix, "weight") != 0;
    return packed && module->quantized && module->scheme.symmetric ? LOOK_HOLES : LOOK_NOTHING;
}

/* Returns the scales of FP4 codes in whole groups, one byte each; NULL: there are none. */
static const calm_tensor *scales_of_fp4(const calm_checking *c, const calm_check_module *module, size_t *group)
{
    *group = calm_families[module->scheme.family].group;
    for (size_t i = module->first; i < module->first + module->n && *group && module->in; i++) {
        const calm_tensor *tensor = c->members[i].tensor;
        calm_qformat_part part;
        if (calm_qformat_suffix_part(NULL, c->members[i].suffix, &part) && part == CALM_QFORMAT_SCALES)
            return calm_dtype_bytes(tensor->dtype) == 1 && module->in % *group == 0 ? tensor : NULL;
    }
    return NULL;
}

/* Adds the pieces of one tensor, which tasks read. */
static void add_pieces(const calm_checking *c, const calm_check_module *module, size_t member, scan *out)
{
    const size_t bytes = c->members[member].tensor->bytes;
    piece next = {.member = member};
    next.how = choose(module, &c->members[member], &next.limit);
    if (next.how == LOOK_HOLES)
        next.scales = scales_of_fp4(c, module, &next.group);
    for (; next.offset < bytes && next.how != LOOK_NOTHING; next.offset += PIECE) {
        next.bytes = calm_size_min(bytes - next.offset, PIECE);
        out->pieces[out->n++] = next;
    }
}

static calm_status list_pieces(calm_checking *c, scan *out)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n_members; i++)
        n += c->members[i].tensor->bytes / PIECE + 1;
    CALM_TRY(CALM_NEW(c->ctx, c->ctx->scratch, out->pieces, n));
    for (size_t m = 0; m < c->n_modules; m++)
        for (size_t i = c->modules[m].first; i < c->modules[m].first + c->modules[m].n; i++)
            add_pieces(c, &c->modules[m], i, out);
    return CALM_OK;
}

/* Returns true if the FP4 codes of a page, all 0, are rows of zeros: their groups have equal scales, those of other
 * weights differ. */
static bool is_rows_of_zeros(const piece *p, size_t page)
{
    const size_t codes = 2 * CALM_SCAN_PAGE, first = 2 * page / calm_size_max(1, p->group);
    if (!p->scales || first > p->scales->bytes || p->scales->bytes - first < codes / p->group)
        return false;
    for (size_t i = 1; i < codes / p->group; i++)
        if (p->scales->data[first + i] != p->scales->data[first])
            return false;
    return true;
}

/* Counts pages of zeros among `bytes` from `at` on, except rows of zeros. */
static size_t count_holes(const piece *p, const calm_tensor *tensor, size_t at, size_t bytes)
{
    size_t holes = 0;
    for (size_t page = at; page + CALM_SCAN_PAGE <= at + bytes; page += CALM_SCAN_PAGE)
        holes += calm_scan_holes(tensor->data + page, CALM_SCAN_PAGE) && !is_rows_of_zeros(p, page);
    return holes;
}

/* Counts the faults in `bytes` of a piece's tensor from `at` on. */
static void look_at(const piece *p, const calm_tensor *tensor, size_t at, size_t bytes,
                    size_t counts[CALM_N_SCALE_FAULTS])
{
    const uint8_t *data = tensor->data + at;
    const size_t n = bytes / calm_dtype_bytes(tensor->dtype);
    if (p->how == LOOK_SCALES)
        calm_scan_scales(tensor->dtype, data, n, counts);
    else
        counts[0] += p->how == LOOK_FLOATS || p->how == LOOK_CODES ? calm_scan_nonfinite(tensor->dtype, data, n)
                     : p->how == LOOK_RANGE ? calm_scan_range(data, n, p->limit)
                                            : count_holes(p, tensor, at, bytes);
}

static void scan_piece(size_t index, void *user)
{
    scan *s = user;
    piece *p = &s->pieces[index];
    const calm_tensor *tensor = s->c->members[p->member].tensor;
    look_at(p, tensor, p->offset, p->bytes, p->counts);
    calm_safetensors_release_part(s->c->set, tensor, p->offset, p->bytes);
}

/* ---- findings ---- */

/* Returns the number of the first faulty element (for a hole: byte) in a piece that has one. */
static size_t first_bad(const piece *p, const calm_tensor *tensor, int fault)
{
    const size_t step = p->how == LOOK_HOLES ? CALM_SCAN_PAGE : calm_dtype_bytes(tensor->dtype);
    size_t at = 0, counts[CALM_N_SCALE_FAULTS] = {0};
    for (; at + step < p->bytes; at += step) {
        look_at(p, tensor, p->offset + at, step, counts);
        if (counts[fault])
            break;
    }
    return (p->offset + at) / (p->how == LOOK_HOLES ? 1 : step);
}

static bool is_bfloat16_model(const calm_checking *c)
{
    const char *dtype = calm_json_string(calm_json_get(c->config, "torch_dtype"), NULL);
    return strcmp(calm_json_string(calm_json_get(c->config, "dtype"), dtype ? dtype : ""), "bfloat16") == 0;
}

static const calm_check_rule rules[][CALM_N_SCALE_FAULTS] = {
    [LOOK_FLOATS] = {CALM_CHECK_RULE_FLOAT_NONFINITE},
    [LOOK_CODES] = {CALM_CHECK_RULE_CODE_NONFINITE},
    [LOOK_RANGE] = {CALM_CHECK_RULE_CODE_RANGE},
    [LOOK_HOLES] = {CALM_CHECK_RULE_CODE_HOLE},
    [LOOK_SCALES] = {CALM_CHECK_RULE_SCALE_NONFINITE, CALM_CHECK_RULE_SCALE_ZERO, CALM_CHECK_RULE_SCALE_MINUS_ZERO,
                     CALM_CHECK_RULE_SCALE_TINY, CALM_CHECK_RULE_SCALE_HUGE, CALM_CHECK_RULE_SCALE_ROUNDED,
                     CALM_CHECK_RULE_SCALE_SIGN}};

/* Reports the faults of one tensor, pieces begin .. end - 1. */
static calm_status judge(calm_checking *c, const piece *pieces, size_t begin, size_t end)
{
    const calm_tensor *tensor = c->members[pieces[begin].member].tensor;
    for (int fault = 0; fault < CALM_N_SCALE_FAULTS; fault++) {
        size_t sum = 0, first = end;
        for (size_t i = end; i-- > begin;) {
            sum += pieces[i].counts[fault];
            first = pieces[i].counts[fault] ? i : first;
        }
        if (!sum || (fault == CALM_SCALE_ROUNDED && !is_bfloat16_model(c)))
            continue;
        const bool holes = pieces[begin].how == LOOK_HOLES;
        CALM_TRY(calm_check_add(c, rules[pieces[begin].how][fault], tensor->name, "%zu of %zu%s, the first at %s%zu",
                                sum, holes ? tensor->bytes / CALM_SCAN_PAGE : tensor->n_elements, holes ? " pages" : "",
                                holes ? "byte " : "", first_bad(&pieces[first], tensor, fault)));
    }
    return CALM_OK;
}

/* ---- small tensors ---- */

static calm_status check_small(calm_checking *c)
{
    for (size_t i = 0; i < c->n_modules && c->resolved; i++) {
        const calm_check_module *module = &c->modules[i];
        CALM_SCOPED_SCRATCH(c->ctx);
        if (c->by_format->values && module->quantized && module->out && module->in)
            CALM_TRY(c->by_format->values(c, module));
    }
    return CALM_OK;
}

calm_status calm_check_values(calm_checking *c)
{
    scan s = {.c = c};
    CALM_TRY(check_small(c));
    CALM_TRY(list_pieces(c, &s));
    calm_parallel_each(c->ctx, s.n, scan_piece, &s);
    for (size_t begin = 0, end; begin < s.n; begin = end) {
        for (end = begin + 1; end < s.n && s.pieces[end].member == s.pieces[begin].member; end++)
            continue;
        CALM_TRY(judge(c, s.pieces, begin, end));
    }
    return CALM_OK;
}
