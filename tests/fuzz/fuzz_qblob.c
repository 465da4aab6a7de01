/* Blobs of quantized jobs: decoded values are in range and encode to the same bytes, except the padding. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ptq/quant/qblob.h"
#include "tests/fuzz/fuzz.h"

static void check_job(const calm_qjob *q)
{
    const size_t cells = q->out * q->n_groups;
    for (size_t i = 0; i < q->out * q->in; i++)
        if (q->codes[i] >> q->scheme.bits)
            abort();
    for (size_t i = 0; i < cells; i++)
        if (!isfinite(q->scales[i]) || (q->zeros && q->zeros[i] >> q->scheme.bits))
            abort();
    for (size_t i = 0; q->in_scale && i < q->in; i++)
        if (!(q->in_scale[i] > 0) || !isfinite(q->in_scale[i]))
            abort();
    for (size_t i = 0; q->bias_delta && i < q->out; i++)
        if (!isfinite(q->bias_delta[i]))
            abort();
    if ((q->zeros == NULL) != q->scheme.symmetric)
        abort();
}

int calm_fuzz_one(const uint8_t *data, size_t size)
{
    calm_ctx *ctx = fuzz_context();
    calm_qjob first, second;
    void *bytes;
    size_t n;
    if (calm_qblob_decode(ctx, "blob", data, size, &first) != CALM_OK) {
        if (!ctx->message[0])
            abort();
        return 0;
    }
    check_job(&first);
    if (calm_qblob_encode(ctx, &first, &bytes, &n) != CALM_OK || n != size ||
        calm_qblob_decode(ctx, "again", bytes, n, &second) != CALM_OK ||
        memcmp(first.codes, second.codes, first.out * first.in) != 0 ||
        memcmp(first.scales, second.scales, first.out * first.n_groups * sizeof *first.scales) != 0 ||
        (first.bias_delta == NULL) != (second.bias_delta == NULL) ||
        (first.bias_delta &&
         memcmp(first.bias_delta, second.bias_delta, first.out * sizeof *first.bias_delta) != 0))
        abort();
    return 0;
}
