/* Assigns blocks to ranks.
 *
 * Blocks become ready in order, each as soon as the one before has begun, because the output of a block is sent on
 * before its candidates are computed.  So the next free rank takes the next block, as in a queue with several servers.
 * */
#include "ptq/ranks/ranks.h"

#include <math.h>
#include <string.h>

#include "ptq/base/scope.h"

/* An assignment and its time. */
typedef struct dealing {
    double *busy;    /* [ranks] time until which each rank is busy */
    int *owner;      /* [n] rank of each block */
    double begun;    /* begin of the last block */
    double ends;     /* end of the last rank */
} dealing;

static void give(dealing *d, size_t rank, double cost)
{
    d->begun = fmax(d->begun, d->busy[rank]);
    d->busy[rank] = d->begun + cost;
    d->ends = fmax(d->ends, d->busy[rank]);
}

static size_t free_first(const dealing *d, size_t ranks)
{
    size_t best = 0;
    for (size_t r = 1; r < ranks; r++)
        if (d->busy[r] < d->busy[best])
            best = r;
    return best;
}

/* Assigns all blocks, to the ranks in turn or to the first free rank. */
static calm_status deal(calm_ctx *ctx, const calm_deal_block *blocks, size_t n, size_t ranks, bool round, dealing *out)
{
    size_t turn = 0;
    *out = (dealing){.ends = 0};
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, out->busy, ranks));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, out->owner, n));
    for (size_t first = 0, end; first < n; first = end, turn++) {
        const size_t rank = round ? turn % ranks : free_first(out, ranks);
        double cost = 0;
        /* Blocks without work go with the next block with work, or with the last. */
        for (end = first; end < n; end++) {
            cost += blocks[end].cost;
            out->owner[end] = (int)rank;
            if (blocks[end].todo) {
                end++;
                break;
            }
        }
        give(out, rank, cost);
    }
    return CALM_OK;
}

calm_status calm_assign_blocks(calm_ctx *ctx, const calm_deal_block *blocks, size_t n, size_t ranks, int *owner)
{
    dealing round, queue;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(deal(ctx, blocks, n, ranks, true, &round));
    CALM_TRY(deal(ctx, blocks, n, ranks, false, &queue));
    memcpy(owner, (queue.ends < round.ends ? queue : round).owner, n * sizeof *owner);
    return CALM_OK;
}
