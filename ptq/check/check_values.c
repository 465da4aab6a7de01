/* Check: scales, codes and floats.  Tensors are read in pieces by all threads and their pages given back piece by
 * piece. */
#include <stdio.h>
#include <string.h>

#include "ptq/base/threads.h"
#include "ptq/check/check_scan.h"
#include "ptq/check/check_state.h"
#include "ptq/quant/pack.h"

#define PIECE ((size_t)4 << 20) /* bytes of a tensor that one task reads */

typedef enum look { LOOK_FLOATS, LOOK_SCALES, LOOK_RANGE, LOOK_HOLES, LOOK_NOTHING } look;

typedef struct piece {
    size_t member, offset, bytes;
    look how;
    int limit;                          /* LOOK_RANGE */
    size_t counts[CALM_N_SCALE_FAULTS]; /* of scales; else counts[0] */
} piece;

typedef struct scan {
    const calm_checking *c;
    piece *pieces;
    size_t n;
} scan;

/* ---- what to look for ---- */

static look choose(const calm_check_module *module, const calm_check_member *at, int *limit)
{
    static const char *const scales[] = {"weight_scale", "scales"}, *const words[] = {"weight_packed", "qweight"};
    const calm_tensor *tensor = at->tensor;
    *limit = 0;
    if (calm_check_listed(at->suffix, scales, 2) && calm_dtype_is_float(tensor->dtype))
        return LOOK_SCALES;
    if (calm_dtype_is_float(tensor->dtype))
        return LOOK_FLOATS;
    if (tensor->dtype == CALM_I8 && module->quantized && module->scheme.bits < 8 && strcmp(at->suffix, "weight") == 0) {
        *limit = 1 << (module->scheme.bits - 1);
        return LOOK_RANGE;
    }
    const bool packed = calm_check_listed(at->suffix, words, 2);
    return packed && module->quantized && module->scheme.symmetric ? LOOK_HOLES : LOOK_NOTHING;
}

static calm_status list_pieces(calm_checking *c, scan *out)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n_members; i++)
        n += c->members[i].tensor->bytes / PIECE + 1;
    CALM_TRY(CALM_NEW(c->ctx, c->ctx->scratch, out->pieces, n));
    for (size_t m = 0; m < c->n_modules; m++)
        for (size_t i = c->modules[m].first; i < c->modules[m].first + c->modules[m].n; i++) {
            const size_t bytes = c->members[i].tensor->bytes;
            int limit;
            const look how = choose(&c->modules[m], &c->members[i], &limit);
            for (size_t at = 0; at < bytes && how != LOOK_NOTHING; at += PIECE)
                out->pieces[out->n++] = (piece){i, at, bytes - at < PIECE ? bytes - at : PIECE, how, limit, {0}};
        }
    return CALM_OK;
}

static calm_status scan_piece(calm_ctx *ctx, size_t index, void *user)
{
    scan *s = user;
    piece *p = &s->pieces[index];
    const calm_tensor *tensor = s->c->members[p->member].tensor;
    const uint8_t *data = tensor->data + p->offset;
    const size_t n = p->bytes / calm_dtype_bytes(tensor->dtype);
    (void)ctx;
    if (p->how == LOOK_FLOATS)
        p->counts[0] = calm_scan_nonfinite(tensor->dtype, data, n);
    else if (p->how == LOOK_SCALES)
        calm_scan_scales(tensor->dtype, data, n, p->counts);
    else
        p->counts[0] = p->how == LOOK_RANGE ? calm_scan_range(data, n, p->limit) : calm_scan_holes(data, p->bytes);
    calm_safetensors_release_part(s->c->set, tensor, p->offset, p->bytes);
    return CALM_OK;
}

/* ---- what was found ---- */

static bool is_bad(const piece *p, const calm_tensor *tensor, const uint8_t *at, int fault)
{
    if (p->how == LOOK_SCALES)
        return calm_scan_scale(tensor->dtype, at) >> fault & 1;
    if (p->how == LOOK_RANGE)
        return calm_scan_range(at, 1, p->limit) != 0;
    return p->how == LOOK_HOLES ? calm_scan_holes(at, 4096) != 0 : calm_scan_nonfinite(tensor->dtype, at, 1) != 0;
}

/* Number of the first bad element (byte, of a hole) in a piece that has one. */
static size_t first_bad(const piece *p, const calm_tensor *tensor, int fault)
{
    const size_t step = p->how == LOOK_HOLES ? 4096 : calm_dtype_bytes(tensor->dtype);
    size_t at = 0;
    while (at + step < p->bytes && !is_bad(p, tensor, tensor->data + p->offset + at, fault))
        at += step;
    return (p->offset + at) / (p->how == LOOK_HOLES ? 1 : step);
}

static bool is_bfloat16_model(const calm_checking *c)
{
    const char *dtype = calm_json_string(calm_json_get(c->config, "torch_dtype"), NULL);
    return strcmp(calm_json_string(calm_json_get(c->config, "dtype"), dtype ? dtype : ""), "bfloat16") == 0;
}

static calm_rule rule_of(const piece *p, int fault)
{
    static const calm_rule scales[CALM_N_SCALE_FAULTS] = {CALM_RULE_SCALE_NONFINITE,  CALM_RULE_SCALE_ZERO,
                                                          CALM_RULE_SCALE_MINUS_ZERO, CALM_RULE_SCALE_TINY,
                                                          CALM_RULE_SCALE_HUGE,       CALM_RULE_SCALE_ROUNDED};
    static const calm_rule others[] = {[LOOK_FLOATS] = CALM_RULE_FLOAT_NONFINITE,
                                       [LOOK_RANGE] = CALM_RULE_CODE_RANGE,
                                       [LOOK_HOLES] = CALM_RULE_CODE_HOLE};
    return p->how == LOOK_SCALES ? scales[fault] : others[p->how];
}

/* The pieces of one tensor, begin .. end - 1. */
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
        CALM_TRY(calm_check_say(c, rule_of(&pieces[begin], fault), tensor->name, "%zu of %zu%s, the first at %s%zu",
                                sum, holes ? tensor->bytes / 4096 : tensor->n_elements, holes ? " pages" : "",
                                holes ? "byte " : "", first_bad(&pieces[first], tensor, fault)));
    }
    return CALM_OK;
}

/* ---- small tensors ---- */

/* Bits behind the codes of every row of words. */
static calm_status check_padding(calm_checking *c, const calm_tensor *tensor, size_t rows, size_t words,
                                 size_t used_bits)
{
    const uint32_t mask = used_bits % 32 ? ~0u << used_bits % 32 : 0;
    size_t bad = 0, first = 0;
    if (!mask || tensor->dtype != CALM_I32 || tensor->n_elements != rows * words || !words)
        return CALM_OK;
    for (size_t r = rows; r-- > 0;) {
        uint32_t word;
        memcpy(&word, tensor->data + 4 * (r * words + words - 1), sizeof word);
        if (word & mask) {
            bad++;
            first = r;
        }
    }
    calm_safetensors_release(c->set, tensor);
    return bad ? calm_check_say(c, CALM_RULE_CODE_PADDING, tensor->name, "%zu of %zu rows, the first is %zu", bad, rows,
                                first)
               : CALM_OK;
}

/* The last row of words [rows, cols], packed along rows. */
static calm_status check_last_row(calm_checking *c, const calm_tensor *tensor, size_t rows, size_t cols,
                                  size_t used_bits)
{
    const uint32_t mask = used_bits % 32 ? ~0u << used_bits % 32 : 0;
    size_t bad = 0;
    if (!mask || tensor->dtype != CALM_I32 || tensor->n_elements != rows * cols || !rows)
        return CALM_OK;
    for (size_t i = 0; i < cols; i++) {
        uint32_t word;
        memcpy(&word, tensor->data + 4 * ((rows - 1) * cols + i), sizeof word);
        bad += (word & mask) != 0;
    }
    return bad ? calm_check_say(c, CALM_RULE_CODE_PADDING, tensor->name, "%zu of %zu words of the last row", bad, cols)
               : CALM_OK;
}

static calm_status check_ct(calm_checking *c, const calm_check_module *module)
{
    const calm_tensor *packed = calm_check_part(c, module, "weight_packed"),
                      *zeros = calm_check_part(c, module, "weight_zero_point");
    const size_t bits = (size_t)module->scheme.bits;
    if (packed && packed->n_dims == 2)
        CALM_TRY(check_padding(c, packed, packed->shape[0], packed->shape[1], module->in * bits));
    if (zeros && zeros->n_dims == 2)
        return check_last_row(c, zeros, zeros->shape[0], zeros->shape[1], module->out * bits);
    return CALM_OK;
}

/* Zeros of GPTQ: those of a symmetric weight are all the middle; v1 stores them less one. */
static calm_status check_qzeros(calm_checking *c, const calm_check_module *module, const calm_tensor *zeros)
{
    const calm_json *entry = calm_json_get(c->config, "quantization_config");
    const bool v2 = strcmp(calm_json_string(calm_json_get(entry, "checkpoint_format"), "gptq"), "gptq_v2") == 0;
    const int bits = module->scheme.bits;
    const size_t words = calm_pack_words(module->out, bits), rows = zeros->n_dims == 2 ? zeros->shape[0] : 0;
    const uint8_t middle = (uint8_t)((1 << (bits - 1)) - !v2), most = (uint8_t)((1 << bits) - 1);
    uint8_t *codes;
    uint32_t *row;
    size_t other = 0, wraps = 0;
    if (zeros->dtype != CALM_I32 || zeros->n_elements != rows * words || !rows)
        return CALM_OK;
    CALM_TRY(CALM_NEW(c->ctx, c->ctx->scratch, codes, module->out));
    CALM_TRY(CALM_NEW(c->ctx, c->ctx->scratch, row, words));
    for (size_t r = 0; r < rows; r++) {
        memcpy(row, zeros->data + 4 * r * words, 4 * words);
        calm_unpack_row(row, module->out, bits, codes);
        for (size_t i = 0; i < module->out; i++) {
            other += codes[i] != middle;
            wraps += codes[i] == most;
        }
    }
    calm_safetensors_release(c->set, zeros);
    if (module->scheme.symmetric && other)
        return calm_check_say(c, CALM_RULE_SYMMETRIC_ZEROS, module->name, "%zu of %zu zeros are not stored as %d",
                              other, rows * module->out, middle);
    return !v2 && wraps ? calm_check_say(c, CALM_RULE_ZERO_WRAPS, module->name, "%zu of %zu", wraps, rows * module->out)
                        : CALM_OK;
}

static calm_status check_index(calm_checking *c, const calm_check_module *module, const calm_tensor *index)
{
    const calm_json *entry = calm_json_get(c->config, "quantization_config");
    const size_t group = module->scheme.group ? module->scheme.group : module->in,
                 groups = (module->in + group - 1) / group;
    size_t order = 0, range = 0;
    if (index->dtype != CALM_I32 || index->n_elements != module->in)
        return CALM_OK;
    for (size_t i = 0; i < module->in; i++) {
        int32_t value;
        memcpy(&value, index->data + 4 * i, sizeof value);
        order += value != (int32_t)(i / group);
        range += value < 0 || (size_t)value >= groups;
    }
    if (range)
        return calm_check_say(c, CALM_RULE_INDEX_RANGE, module->name, "%zu of %zu columns; there are %zu groups", range,
                              module->in, groups);
    if (order && !calm_json_bool(calm_json_get(entry, "desc_act"), false))
        return calm_check_say(c, CALM_RULE_INDEX_ORDER, module->name, "%zu of %zu columns", order, module->in);
    return CALM_OK;
}

static calm_status check_gptq(calm_checking *c, const calm_check_module *module)
{
    const calm_tensor *zeros = calm_check_part(c, module, "qzeros"), *index = calm_check_part(c, module, "g_idx");
    const calm_tensor *codes = calm_check_part(c, module, "qweight");
    if (zeros)
        CALM_TRY(check_qzeros(c, module, zeros));
    if (index)
        CALM_TRY(check_index(c, module, index));
    if (codes && codes->n_dims == 2)
        return check_last_row(c, codes, codes->shape[0], codes->shape[1], module->in * (size_t)module->scheme.bits);
    return CALM_OK;
}

static calm_status check_small(calm_checking *c)
{
    for (size_t i = 0; i < c->n_modules && c->resolved; i++) {
        const calm_check_module *module = &c->modules[i];
        calm_arena_mark mark = calm_arena_save(c->ctx->scratch);
        if (!module->quantized || !module->out || !module->in)
            continue;
        if (strcmp(c->format->name, "gptq") == 0)
            CALM_TRY(check_gptq(c, module));
        else if (strcmp(c->format->name, "compressed_tensors") == 0)
            CALM_TRY(check_ct(c, module));
        calm_arena_rewind(c->ctx->scratch, mark);
    }
    return CALM_OK;
}

calm_status calm_check_values(calm_checking *c)
{
    scan s = {.c = c};
    CALM_TRY(check_small(c));
    CALM_TRY(list_pieces(c, &s));
    CALM_TRY(calm_parallel_for(c->ctx, s.n, scan_piece, &s));
    for (size_t begin = 0, end; begin < s.n; begin = end) {
        for (end = begin + 1; end < s.n && s.pieces[end].member == s.pieces[begin].member; end++)
            continue;
        CALM_TRY(judge(c, s.pieces, begin, end));
    }
    return CALM_OK;
}
