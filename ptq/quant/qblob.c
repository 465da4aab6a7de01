/* Encoding of quantized jobs as blobs. */
#include "ptq/quant/qblob.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ptq/base/scope.h"
#include "ptq/quant/act_levels.h"
#include "ptq/quant/grid.h"
#include "ptq/quant/pack.h"
#include "ptq/tensor/dtype.h"

static const char magic[8] = "CALMQJ01", family_magic[8] = "CALMQJ02";

/* Bits of act_form. */
enum { ASYMMETRIC = 1, VLLM = 2, STATIC = 4, FLOATS = 8, ORDERED = 16 };

typedef struct blob_head {
    char magic[8];
    uint64_t out, in, group, n_groups;
    int32_t bits, symmetric, act_bits, scale_dtype, extras, act_form;
    double damp;
} blob_head;

/* Follows the head for a family, and for static activations, whose scale is act_global. */
typedef struct blob_family {
    char name[16];
    float global, act_global;
} blob_family;

_Static_assert(sizeof(blob_head) == 72 && sizeof(blob_family) == 24, "the header is written as it is in memory");

/* Returns the act_form of a scheme.  For a family, the family itself says whether its activations are small floats. */
static int32_t form_of(const calm_scheme *scheme)
{
    return (scheme->act_asymmetric ? ASYMMETRIC : 0) | (scheme->act_rule == CALM_ACT_RULE_VLLM ? VLLM : 0) |
           (calm_act_rule_is_static(scheme->act_rule) ? STATIC : 0) |
           (!scheme->family && scheme->act_rule == CALM_ACT_RULE_FP8 ? FLOATS : 0) |
           (scheme->act_order ? ORDERED : 0);
}

/* Reverses form_of(). */
static calm_act_rule rule_of(const blob_head *head, int family)
{
    const calm_act_rule own = calm_scheme_family(&(calm_scheme){.family = family})->act_rule;
    if (head->act_form & STATIC)
        return family ? CALM_ACT_RULE_FP8_STATIC : CALM_ACT_RULE_STATIC;
    if (family)
        return head->act_bits ? own : CALM_ACT_RULE_COMPRESSED_TENSORS;
    return head->act_form & FLOATS ? CALM_ACT_RULE_FP8
           : head->act_form & VLLM ? CALM_ACT_RULE_VLLM
                                   : CALM_ACT_RULE_COMPRESSED_TENSORS;
}

/* Bytes of each section. */
typedef struct sections {
    size_t family, scales, in_scale, bias_delta, zeros, mins, order, codes, total;
} sections;

static bool measure(const blob_head *head, int family, sections *out)
{
    const calm_scheme scheme = {.family = family};
    size_t cells, words;
    const size_t rows = head->out, cols = head->in;
    if (!calm_size_mul(&cells, rows, head->n_groups) || !calm_size_mul(&out->scales, cells, sizeof(float)) ||
        !calm_size_mul(&words, rows, calm_pack_words(cols, head->bits)) || !calm_size_mul(&out->codes, words, 4) ||
        !calm_size_mul(&out->order, head->act_form & ORDERED ? cols : 0, sizeof(uint32_t)) ||
        !calm_size_mul(&out->in_scale, head->extras & CALM_QJOB_SCALED ? cols : 0, sizeof(float)) ||
        !calm_size_mul(&out->bias_delta, head->extras & CALM_QJOB_BIASED ? rows : 0, sizeof(float)))
        return false;
    out->zeros = head->symmetric ? 0 : (cells + 3) / 4 * 4;
    out->family = family || head->act_form & STATIC ? sizeof(blob_family) : 0;
    out->mins = calm_scheme_has_mins(&scheme) ? out->scales : 0;
    out->total = sizeof *head + out->family;
    return calm_size_add(&out->total, out->total, out->scales) && calm_size_add(&out->total, out->total, out->mins) &&
           calm_size_add(&out->total, out->total, out->in_scale) &&
           calm_size_add(&out->total, out->total, out->bias_delta) &&
           calm_size_add(&out->total, out->total, out->order) &&
           calm_size_add(&out->total, out->total, out->zeros) && calm_size_add(&out->total, out->total, out->codes);
}

/* Returns the sections of a job of this shape, or all zeros if their sizes overflow. */
static sections sections_of(const calm_scheme *scheme, size_t out, size_t in, unsigned extras)
{
    const blob_head head = {.out = out, .in = in, .n_groups = calm_scheme_groups(scheme, in), .bits = scheme->bits,
                            .symmetric = scheme->symmetric, .extras = (int32_t)extras,
                            .act_form = form_of(scheme)};
    sections size;
    return measure(&head, scheme->family, &size) ? size : (sections){0};
}

size_t calm_qblob_bytes(const calm_scheme *scheme, size_t out, size_t in, unsigned extras)
{
    return sections_of(scheme, out, in, extras).total;
}

size_t calm_qblob_encode_bytes(const calm_scheme *scheme, size_t out, size_t in, unsigned extras)
{
    return CALM_BYTES(uint8_t, calm_qblob_bytes(scheme, out, in, extras));
}

size_t calm_qblob_decode_scratch_bytes(const calm_scheme *scheme, size_t out, size_t in)
{
    return CALM_BYTES(uint8_t, sections_of(scheme, out, in, 0).codes) + (scheme->act_order ? CALM_BYTES(bool, in) : 0);
}

static void put_family(const calm_qjob *qjob, uint8_t *at, size_t bytes)
{
    blob_family family = {.global = qjob->global, .act_global = qjob->act_global};
    snprintf(family.name, sizeof family.name, "%s", calm_scheme_family(&qjob->scheme)->name);
    memcpy(at, &family, bytes);
}

calm_status calm_qblob_encode(calm_ctx *ctx, const calm_qjob *qjob, void **bytes, size_t *n_bytes)
{
    blob_head head = {.out = qjob->out, .in = qjob->in, .group = qjob->group, .n_groups = qjob->n_groups,
                      .bits = qjob->scheme.bits, .symmetric = qjob->scheme.symmetric, .act_bits = qjob->scheme.act_bits,
                      .scale_dtype = (int32_t)qjob->scheme.scale_dtype, .extras = (int32_t)calm_qjob_extras(qjob),
                      .act_form = form_of(&qjob->scheme), .damp = qjob->damp};
    sections size;
    uint8_t *at;
    memcpy(head.magic, qjob->scheme.family || head.act_form & STATIC ? family_magic : magic, sizeof magic);
    if (!measure(&head, qjob->scheme.family, &size))
        return calm_fail(ctx, CALM_ENOMEM, "a quantized job of %zu x %zu is too large", qjob->out, qjob->in);
    CALM_TRY(calm_alloc(ctx, ctx->out, &at, size.total, 1, "a blob"));
    *bytes = at;
    *n_bytes = size.total;
    memcpy(at, &head, sizeof head);
    at += sizeof head;
    put_family(qjob, at, size.family);
    at += size.family;
    memcpy(at, qjob->scales, size.scales);
    at += size.scales;
    if (qjob->in_scale)
        memcpy(at, qjob->in_scale, size.in_scale);
    at += size.in_scale;
    if (qjob->bias_delta)
        memcpy(at, qjob->bias_delta, size.bias_delta);
    at += size.bias_delta;
    if (qjob->zeros)
        memcpy(at, qjob->zeros, qjob->out * qjob->n_groups);
    at += size.zeros;
    if (qjob->mins)
        memcpy(at, qjob->mins, size.mins);
    at += size.mins;
    if (qjob->order)
        memcpy(at, qjob->order, size.order);
    at += size.order;
    calm_pack_rows(qjob->codes, qjob->out, qjob->in, qjob->scheme.bits, (uint32_t *)(void *)at);
    return CALM_OK;
}

static calm_status damaged(calm_ctx *ctx, const char *name, const char *what)
{
    return calm_fail(ctx, CALM_EFORMAT, "%s: not a quantized job: %s", name, what);
}

/* Reads the fields behind the head; sets *family to the scheme's family, 0 for integers. */
static calm_status read_family(calm_ctx *ctx, const char *name, const uint8_t *bytes, size_t n_bytes,
                               const blob_head *head, int *family, blob_family *read)
{
    calm_scheme scheme;
    *family = 0;
    *read = (blob_family){.global = 0};
    if (memcmp(bytes, family_magic, sizeof family_magic) != 0)
        return CALM_OK;
    if (n_bytes < sizeof(blob_head) + sizeof *read)
        return damaged(ctx, name, "too short");
    memcpy(read, bytes + sizeof(blob_head), sizeof *read);
    if (head->act_form & STATIC && (!isfinite(read->act_global) || read->act_global <= 0))
        return damaged(ctx, name, "an impossible scale of activations");
    if (head->act_form & STATIC && read->name[0] == 0)    /* integers      */
        return CALM_OK;
    calm_ctx trial = *ctx;
    if (!memchr(read->name, 0, sizeof read->name) || calm_scheme_parse(&trial, read->name, &scheme) != CALM_OK ||
        !scheme.family)
        return damaged(ctx, name, "an unknown family of schemes");
    if (!isfinite(read->global) || (read->global > 0) != (calm_scale_global(&scheme, 1) > 0) ||
        !isfinite(read->act_global) || read->act_global < 0)
        return damaged(ctx, name, "an impossible global scale");
    *family = scheme.family;
    return CALM_OK;
}

static calm_status check_head(calm_ctx *ctx, const char *name, const blob_head *head, int family, size_t n_bytes,
                              sections *size)
{
    const calm_family *row = calm_scheme_family(&(calm_scheme){.family = family});
    const bool fixed = (head->act_form & STATIC) != 0;
    const bool floats = (head->act_form & FLOATS) != 0;
    if (fixed && ((family && row->act_rule != CALM_ACT_RULE_FP8) || memcmp(head->magic, magic, sizeof magic) == 0))
        return damaged(ctx, name, "impossible activations");
    if (!family && memcmp(head->magic, fixed ? family_magic : magic, sizeof magic) != 0)
        return damaged(ctx, name, "it does not begin with CALMQJ01");
    if (family && head->act_bits && (head->act_bits != row->act_bits || head->act_form & ~STATIC))
        return damaged(ctx, name, "activations that its family does not have");
    if (family && (head->bits != row->bits || !head->symmetric || (row->group && head->group != row->group &&
                                                                    head->group != head->in)))
        return damaged(ctx, name, "bits, group or zeros that its family does not have");
    if (head->bits < 2 || head->bits > 8 || head->act_bits < 0 || head->act_bits > 8)
        return damaged(ctx, name, "bits out of range");
    if (head->act_form & ORDERED && (head->act_form != ORDERED || head->act_bits || family))
        return damaged(ctx, name, "an order of columns that its scheme does not have");
    if (head->act_form & ~(ASYMMETRIC | VLLM | STATIC | FLOATS | ORDERED) ||
        (head->act_form & ~ORDERED && head->act_bits == 0) ||
        (fixed && (head->act_form != STATIC || head->act_bits != 8)) ||
        (floats && (head->act_form != FLOATS || head->act_bits != 8)))
        return damaged(ctx, name, "impossible activations");
    if (head->extras & ~(CALM_QJOB_SCALED | CALM_QJOB_BIASED))
        return damaged(ctx, name, "unknown sections");
    if (head->scale_dtype != CALM_BF16 && head->scale_dtype != CALM_F16)
        return damaged(ctx, name, "unknown dtype of scales");
    if (head->out == 0 || head->in == 0 || head->out > UINT32_MAX || head->in > UINT32_MAX || head->group == 0 ||
        head->group > head->in || head->n_groups != (head->in + head->group - 1) / head->group)
        return damaged(ctx, name, "impossible shape");
    if (!measure(head, family, size) || size->total != n_bytes)
        return damaged(ctx, name, "its length does not fit its shape");
    return CALM_OK;
}

static calm_status check_values(calm_ctx *ctx, const char *name, const calm_qjob *qjob)
{
    const size_t cells = qjob->out * qjob->n_groups;
    if (calm_find_nonfinite(qjob->scales, cells) < cells)
        return damaged(ctx, name, "a scale is not finite");
    for (size_t i = 0; qjob->in_scale && i < qjob->in; i++)
        if (!(qjob->in_scale[i] > 0 && qjob->in_scale[i] <= FLT_MAX))
            return damaged(ctx, name, "an input scale is not positive and finite");
    if (qjob->bias_delta && calm_find_nonfinite(qjob->bias_delta, qjob->out) < qjob->out)
        return damaged(ctx, name, "a correction of a bias is not finite");
    for (size_t i = 0; qjob->zeros && i < cells; i++)
        if (qjob->zeros[i] >> qjob->scheme.bits)
            return damaged(ctx, name, "a zero point out of range");
    if (qjob->mins && calm_find_nonfinite(qjob->mins, cells) < cells)
        return damaged(ctx, name, "a minimum is not finite");
    for (size_t i = 0; calm_scheme_levels(&qjob->scheme) && i < qjob->out * qjob->in; i++)
        if (qjob->codes[i] > calm_code_max(&qjob->scheme))
            return damaged(ctx, name, "a code without a level");
    return CALM_OK;
}

/* Fails unless the order of columns has every input once. */
static calm_status check_order(calm_ctx *ctx, const char *name, const calm_qjob *qjob)
{
    bool *seen;
    CALM_SCOPED_SCRATCH(ctx);
    if (!qjob->order)
        return CALM_OK;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, seen, qjob->in));
    for (size_t k = 0; k < qjob->in; k++) {
        const uint32_t j = qjob->order[k];
        if (j >= qjob->in || seen[j])
            return damaged(ctx, name, "an order of columns that names one twice, or one that is not there");
        seen[j] = true;
    }
    return CALM_OK;
}

calm_status calm_qblob_decode(calm_ctx *ctx, const char *name, const void *bytes, size_t n_bytes, calm_qjob *out)
{
    blob_head head;
    sections size;
    const uint8_t *at = bytes;
    uint32_t *words;
    int family;
    blob_family more;
    if (n_bytes < sizeof head)
        return damaged(ctx, name, "too short");
    memcpy(&head, at, sizeof head);
    at += sizeof head;
    CALM_TRY(read_family(ctx, name, bytes, n_bytes, &head, &family, &more));
    CALM_TRY(check_head(ctx, name, &head, family, n_bytes, &size));
    at += size.family;
    *out = (calm_qjob){.out = head.out, .in = head.in, .group = head.group, .n_groups = head.n_groups,
                       .damp = head.damp, .global = more.global, .act_global = more.act_global};
    out->scheme = (calm_scheme){.bits = head.bits, .family = family,
                                .group = family ? calm_scheme_family(&(calm_scheme){.family = family})->group
                                         : head.group == head.in ? 0 : head.group,
                                .symmetric = head.symmetric != 0, .act_bits = head.act_bits,
                                .act_asymmetric = (head.act_form & ASYMMETRIC) != 0,
                                .act_rule = rule_of(&head, family),
                                .act_order = (head.act_form & ORDERED) != 0,
                                .scale_dtype = (calm_dtype)head.scale_dtype};
    CALM_TRY(calm_qjob_new(ctx, (unsigned)head.extras, out));
    memcpy(out->scales, at, size.scales);
    at += size.scales;
    if (out->in_scale)
        memcpy(out->in_scale, at, size.in_scale);
    at += size.in_scale;
    if (out->bias_delta)
        memcpy(out->bias_delta, at, size.bias_delta);
    at += size.bias_delta;
    if (out->zeros)
        memcpy(out->zeros, at, out->out * out->n_groups);
    at += size.zeros;
    if (out->mins)
        memcpy(out->mins, at, size.mins);
    at += size.mins;
    if (out->order)
        memcpy(out->order, at, size.order);
    at += size.order;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, words, size.codes / 4));
    memcpy(words, at, size.codes);
    calm_unpack_rows(words, out->out, out->in, head.bits, out->codes);
    CALM_TRY(check_order(ctx, name, out));
    return check_values(ctx, name, out);
}
