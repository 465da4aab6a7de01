/* Dealing blocks to ranks. */
#ifndef CALM_RUN_DEAL_H
#define CALM_RUN_DEAL_H

#include <stdbool.h>

#include "ptq/base/context.h"

typedef struct calm_deal_block {
    bool todo;      /* it has something to compute; else it is only passed through */
    double cost;    /* in any unit                                                 */
} calm_deal_block;

/* Which rank has which of blocks [n], into owner [n]: the same wherever it is computed.  Blocks with work go round the
 * ranks, or each to the rank that is free first, where that ends earlier: blocks whose costs differ.  One without work
 * goes with the next that has some, which needs its rows.  CALM_ENOMEM. */
calm_status calm_deal_blocks(calm_ctx *ctx, const calm_deal_block *blocks, size_t n, size_t ranks, int *owner);

#endif
