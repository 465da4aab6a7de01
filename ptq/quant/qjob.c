/* Quantized jobs and their dequantization to float32. */
#include "ptq/quant/qjob.h"


calm_status calm_qjob_new(calm_ctx *ctx, unsigned extras, calm_qjob *qjob)
{
    size_t codes, scales;
    if (!calm_size_mul(&codes, qjob->out, qjob->in) || !calm_size_mul(&scales, qjob->out, qjob->n_groups))
        return calm_fail(ctx, CALM_ENOMEM, "a quantized job of %zu x %zu with %zu scales a row does not fit", qjob->out,
                         qjob->in, qjob->n_groups);
    CALM_TRY(CALM_NEW(ctx, ctx->out, qjob->codes, codes));
    CALM_TRY(CALM_NEW(ctx, ctx->out, qjob->scales, scales));
    if (!qjob->scheme.symmetric)
        CALM_TRY(CALM_NEW(ctx, ctx->out, qjob->zeros, scales));
    if (calm_scheme_has_mins(&qjob->scheme))
        CALM_TRY(CALM_NEW(ctx, ctx->out, qjob->mins, scales));
    if (qjob->scheme.act_order)
        CALM_TRY(CALM_NEW(ctx, ctx->out, qjob->order, qjob->in));
    if (extras & CALM_QJOB_SCALED)
        CALM_TRY(CALM_NEW(ctx, ctx->out, qjob->in_scale, qjob->in));
    return extras & CALM_QJOB_BIASED ? CALM_NEW(ctx, ctx->out, qjob->bias_delta, qjob->out) : CALM_OK;
}

unsigned calm_qjob_extras(const calm_qjob *qjob)
{
    return (qjob->in_scale ? CALM_QJOB_SCALED : 0u) | (qjob->bias_delta ? CALM_QJOB_BIASED : 0u);
}

size_t calm_qjob_bytes(const calm_scheme *scheme, size_t out, size_t in, unsigned extras)
{
    const size_t scales = out * calm_scheme_groups(scheme, in);
    const size_t zeros = scheme->symmetric ? 0 : CALM_BYTES(uint8_t, scales);
    const size_t mins = calm_scheme_has_mins(scheme) ? CALM_BYTES(float, scales) : 0;
    return CALM_BYTES(uint8_t, out * in) + CALM_BYTES(float, scales) + zeros + mins +
           (scheme->act_order ? CALM_BYTES(uint32_t, in) : 0) +
           (extras & CALM_QJOB_SCALED ? CALM_BYTES(float, in) : 0) +
           (extras & CALM_QJOB_BIASED ? CALM_BYTES(float, out) : 0);
}

calm_grid calm_qjob_grid(const calm_qjob *qjob, size_t cell)
{
    return (calm_grid){.scale = qjob->scales[cell], .min = qjob->mins ? qjob->mins[cell] : 0,
                       .zero = qjob->zeros ? qjob->zeros[cell] : calm_symmetric_zero(&qjob->scheme)};
}

calm_qjob calm_qjob_rows(const calm_qjob *qjob, size_t first, size_t n)
{
    const size_t cell = first * qjob->n_groups;
    calm_qjob rows = *qjob;
    rows.out = n;
    rows.codes += first * qjob->in;
    rows.scales += cell;
    rows.zeros = qjob->zeros ? qjob->zeros + cell : NULL;
    rows.mins = qjob->mins ? qjob->mins + cell : NULL;
    rows.bias_delta = qjob->bias_delta ? qjob->bias_delta + first : NULL;
    return rows;
}

/* Columns that are decoded before they are reordered. */
#define PIECE ((size_t)64)

/* Decodes columns start .. start + n - 1 of the codes of a row to w [I]. */
static void decode(const calm_qjob *qjob, calm_grid grid, const uint8_t *codes, size_t start, size_t n, float *w)
{
    float piece[PIECE];
    if (!qjob->order) {
        calm_grid_decode(&qjob->scheme, grid, codes + start, n, w + start);
        return;
    }
    for (size_t at = start, few; at < start + n; at += few) {
        few = calm_size_min(PIECE, start + n - at);
        calm_grid_decode(&qjob->scheme, grid, codes + at, few, piece);
        for (size_t k = 0; k < few; k++)
            w[qjob->order[at + k]] = piece[k];
    }
}

void calm_qjob_dequantize(const calm_qjob *qjob, float *w)
{
    for (size_t i = 0; i < qjob->out; i++)
        for (size_t g = 0; g < qjob->n_groups; g++) {
            const size_t start = g * qjob->group;
            decode(qjob, calm_qjob_grid(qjob, i * qjob->n_groups + g), qjob->codes + i * qjob->in, start,
                   calm_size_min(qjob->in - start, qjob->group), w + i * qjob->in);
        }
}

void calm_qjob_effective(const calm_qjob *qjob, float *w)
{
    if (!qjob || !w)
        return;
    calm_qjob_dequantize(qjob, w);
    for (size_t i = 0; qjob->in_scale && i < qjob->out; i++)
        for (size_t j = 0; j < qjob->in; j++)
            w[i * qjob->in + j] /= qjob->in_scale[j];
}
