/* Appends keys and values to those of earlier tokens (past.h). */
#include "ptq/layers/attention_impl.h"

#include <string.h>

#include "ptq/layers/past.h"

/* Appends the first `width` columns of x [n, stride] to `rows`, after `before` rows. */
static void append(const float *x, size_t n, size_t stride, size_t width, size_t before, float *rows)
{
    for (size_t t = 0; t < n; t++)
        memcpy(rows + (before + t) * width, x + t * stride, width * sizeof *x);
}

void calm_heads_remember(const calm_block *block, calm_heads *a)
{
    const calm_past *past = a->span->past;
    const size_t n = a->span->n_tokens;
    /* Keys of another block are in the carried rows, from the first token on. */
    if (!past || a->config->kv == CALM_KV_SHARED)
        return;
    const calm_past_block *kept = &past->blocks[block->index];
    if (a->shared) {
        /* A head's value follows its key: one copy moves both. */
        append(a->k, n, a->kv_stride, a->kv_stride, past->n, kept->k);
        append(a->shared, n, a->shared_stride, a->shared_width, past->n, kept->shared);
        a->v = kept->k + a->k_width;
        a->shared = kept->shared;
        a->shared_stride = a->shared_width;
    } else {
        const size_t width = a->config->n_kv * a->config->head_dim;
        append(a->k, n, a->kv_stride, width, past->n, kept->k);
        append(a->v, n, a->kv_stride, width, past->n, kept->v);
        a->v = kept->v;
        a->kv_stride = width;
    }
    a->k = kept->k;
}
