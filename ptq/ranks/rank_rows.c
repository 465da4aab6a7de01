/* Sends and receives windows of hidden states through the transport, in order. */
#include "ptq/ranks/ranks.h"

#include <string.h>
#include <unistd.h>


#define AT_ONCE CALM_FLOW_AT_ONCE
#define IDLE_MICROSECONDS 100     /* pause between two tests of the oldest transfer */
#define TAG 0                     /* a tag that no block's input uses    */

/* The state of a transfer of several windows in one direction. */
typedef struct moving {
    calm_cluster *cluster;
    int rank;
    bool sends;
    const calm_batch *batch;
    size_t first;
    float *rows[AT_ONCE];         /* [longest, D] */
    calm_transfer transfer[AT_ONCE];
} moving;

static calm_status begin(calm_ctx *ctx, moving *m, size_t i)
{
    const calm_transport *t = calm_cluster_transport(m->cluster);
    const size_t w = m->first + i, n = calm_batch_tokens(m->batch, w), bytes = n * m->batch->width * sizeof(float);
    float *slot = m->rows[i % AT_ONCE], *x;
    if (!m->sends)
        return t->receive(ctx, t->state, m->rank, TAG, slot, bytes, &m->transfer[i % AT_ONCE]);
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(calm_row_store_get(ctx, &m->batch->hidden, calm_batch_row(m->batch, w), n, &x));
    memcpy(slot, x, bytes);
    return t->send(ctx, t->state, m->rank, TAG, slot, bytes, &m->transfer[i % AT_ONCE]);
}

static calm_status end(calm_ctx *ctx, moving *m, size_t i)
{
    const calm_transport *t = calm_cluster_transport(m->cluster);
    const size_t w = m->first + i, n = calm_batch_tokens(m->batch, w), row = calm_batch_row(m->batch, w);
    float *x;
    for (bool complete = false; !complete;) {
        CALM_TRY(t->test(ctx, t->state, &m->transfer[i % AT_ONCE], &complete));
        if (!complete)
            usleep(IDLE_MICROSECONDS);
    }
    if (m->sends)
        return CALM_OK;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(calm_row_store_get(ctx, &m->batch->hidden, row, n, &x));
    memcpy(x, m->rows[i % AT_ONCE], n * m->batch->width * sizeof *x);
    return calm_row_store_put(ctx, &m->batch->hidden, row, n, x);
}

static calm_status move_all(calm_ctx *ctx, moving *m, size_t n)
{
    /* The store is lent: if a rank dies, the watching thread ends the run and puts how it ended. */
    CALM_SCOPED_LEND(m->cluster);
    CALM_SCOPED_SCRATCH(ctx);
    size_t longest = 0;
    for (size_t i = 0; i < n; i++)
        longest = calm_size_max(longest, calm_batch_tokens(m->batch, m->first + i));
    for (size_t i = 0; i < AT_ONCE; i++)
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, m->rows[i], longest * m->batch->width));
    for (size_t i = 0; i < n + AT_ONCE; i++) {
        if (i >= AT_ONCE && i - AT_ONCE < n)
            CALM_TRY(end(ctx, m, i - AT_ONCE));
        if (i < n)
            CALM_TRY(begin(ctx, m, i));
    }
    return CALM_OK;
}

calm_status calm_rank_rows_send(calm_ctx *ctx, calm_cluster *cluster, int rank, const calm_batch *batch, size_t first,
                                size_t n)
{
    moving m = {.cluster = cluster, .rank = rank, .sends = true, .batch = batch, .first = first};
    return move_all(ctx, &m, n);
}

calm_status calm_rank_rows_receive(calm_ctx *ctx, calm_cluster *cluster, int rank, const calm_batch *batch,
                                   size_t first, size_t n)
{
    moving m = {.cluster = cluster, .rank = rank, .batch = batch, .first = first};
    return move_all(ctx, &m, n);
}

size_t calm_rank_rows_bytes(size_t longest, size_t width)
{
    /* One more window, for a batch in a file. */
    return (AT_ONCE + 1) * calm_row_store_bytes(longest, width);
}
