/* Hidden rows between ranks, by the run's thread, a few windows at a time.  While blocks are computed a thread moves
 * them (flow.h); afterwards both ends wait for each other. */
#ifndef CALM_RUN_RANK_ROWS_H
#define CALM_RUN_RANK_ROWS_H

#include "ptq/cluster/cluster.h"
#include "ptq/model/batch.h"

/* Send windows first .. first + n - 1 of a batch to a rank that receives as many, of the same lengths.  CALM_EIO. */
calm_status calm_rank_rows_send(calm_ctx *ctx, calm_cluster *cluster, int rank, const calm_batch *batch, size_t first,
                                size_t n);
calm_status calm_rank_rows_receive(calm_ctx *ctx, calm_cluster *cluster, int rank, const calm_batch *batch,
                                   size_t first, size_t n);

/* What either holds of ctx->scratch when the longest window has so many tokens. */
size_t calm_rank_rows_bytes(size_t longest, size_t width);

#endif
