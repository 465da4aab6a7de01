/* Cluster: the ranks of one run.
 *
 * Rank 0 is the run: it alone reads the command's outputs and writes the store.  The others compute blocks and send it
 * rows.  Collective functions are called by every rank in the same order; each is a no-op for one rank, whose
 * calm_cluster is NULL.
 *
 * A thread watches the control connections (wire.h).  It puts the rows of other ranks while rank 0 computes, and ends
 * the process when another rank has died or failed: a rank that waits or computes could not do so itself. */
#pragma once

#include <stdbool.h>

#include "ptq/base/scope.h"
#include "ptq/base/text.h"
#include "ptq/cluster/transport.h"

typedef struct calm_cluster calm_cluster;

typedef struct calm_cluster_hooks {
    /* End this process now; `sentence` NULL: another rank says why.  Called from the watching thread, returns not. */
    void (*end)(void *user, calm_status status, const char *sentence);
    void *user;
} calm_cluster_hooks;

/* Start, on every rank, also where ctx has a failure already (calm_cluster_settle).  *out NULL: one rank, or it failed.
 * CALM_EUNSUPPORTED: built without MPI, or MPI knows another number of ranks than the launcher. */
calm_status calm_cluster_start(calm_ctx *ctx, const calm_cluster_hooks *hooks, calm_cluster **out);

/* End, on every rank.  Where nothing failed, or all ranks wait for the end, the others end with the same status; where
 * this rank alone failed, the run ends: rank 0 is told the sentence of another.  NULL is allowed. */
void calm_cluster_end(calm_ctx *ctx, calm_cluster **cluster);

/* This rank and their number: 0 and 1 of NULL. */
int calm_cluster_rank(const calm_cluster *cluster);
int calm_cluster_ranks(const calm_cluster *cluster);

/* Ranks of this machine; 1 of NULL. */
int calm_cluster_on_node(const calm_cluster *cluster);

/* Rank 0: log what is wrong with where the ranks are (seat.h).  Nothing on others, or of NULL. */
void calm_cluster_note_cores(calm_ctx *ctx, const calm_cluster *cluster);

/* What carries rows between them. */
const calm_transport *calm_cluster_transport(const calm_cluster *cluster);

/* Say what this rank works on, for the sentence about its death: "block 3 (model.layers.3)". */
void calm_cluster_place(calm_cluster *cluster, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- collective ---- */

/* Every rank fails where one has, also in what came before: the same status on all, and the sentence of rank 0 where it
 * failed, else of the lowest rank that did, which is named. */
calm_status calm_cluster_settle(calm_ctx *ctx, calm_cluster *cluster);

/* Something that must be the same on all ranks. */
typedef struct calm_cluster_fact {
    const char *name;     /* "program", "recipe"                                  */
    const char *value;    /* digest or name; compared up to CALM_CLUSTER_FACT - 1 bytes */
} calm_cluster_fact;
#define CALM_CLUSTER_FACT 96

/* Compare facts [n] with rank 0's.  CALM_EUNSUPPORTED on all ranks: the first difference, its rank and machine. */
calm_status calm_cluster_agree(calm_ctx *ctx, calm_cluster *cluster, const calm_cluster_fact *facts, size_t n);

/* Is `folder` the same on all ranks?  Each writes a file there that rank 0 looks for, and looks for rank 0's.
 * CALM_EIO on all ranks: it is not; the message names the rank. */
calm_status calm_cluster_probe(calm_ctx *ctx, calm_cluster *cluster, const char *folder);

/* Bytes of rank 0 to all: *bytes [*n] in ctx->out of the others. */
calm_status calm_cluster_share(calm_ctx *ctx, calm_cluster *cluster, void *bytes, size_t *n);

/* ---- rows of the store ---- */

/* What rank 0 does with the rows of another, and with a run that ends in the watching thread. */
typedef struct calm_cluster_receiver {
    calm_status (*rows)(calm_ctx *ctx, void *user, int rank, const char *bytes, size_t n);
    void (*failed)(calm_ctx *ctx, void *user, const char *sentence);
    const char *store;    /* its path, for the sentence */
    void *user;
} calm_cluster_receiver;

/* Rank 0, before the others send any; NULL: from now on rows are refused, and `user` may go.  From its return on the
 * caller has the store; it is lent with CALM_SCOPED_LEND. */
void calm_cluster_receive(calm_cluster *cluster, const calm_cluster_receiver *receiver);

/* Another rank: send rows to rank 0. */
calm_status calm_cluster_tell(calm_ctx *ctx, calm_cluster *cluster, const void *bytes, size_t n);

/* Another rank: all of its rows are sent; `summary` says what it did.  Rank 0: wait until those of all ranks are
 * put. */
calm_status calm_cluster_done(calm_ctx *ctx, calm_cluster *cluster, const char *summary);

/* Rank 0, after that: what a rank said, ""; its machine in *host. */
const char *calm_cluster_summary(const calm_cluster *cluster, int rank, const char **host);

/* ---- after that: work that rank 0 gives ---- */

/* Compute what rank 0 asks for in bytes [n]; ctx->out and ctx->scratch live until it has been answered. */
typedef calm_status calm_cluster_work_fn(calm_ctx *ctx, void *user, const char *bytes, size_t n, calm_text *answer);

/* Another rank: work until the end of the run; the status that rank 0 ended with. */
calm_status calm_cluster_serve(calm_ctx *ctx, calm_cluster *cluster, calm_cluster_work_fn *work, void *user);

/* Rank 0: give work to a rank that has none; wait for its answer, bytes [*n] in ctx->scratch.  A rank that fails at
 * it ends the run. */
calm_status calm_cluster_ask(calm_ctx *ctx, calm_cluster *cluster, int rank, const void *bytes, size_t n);
calm_status calm_cluster_answer(calm_ctx *ctx, calm_cluster *cluster, int rank, char **bytes, size_t *n);

/* Rank 0: seconds that a rank worked at what it was asked for and has answered. */
double calm_cluster_worked(const calm_cluster *cluster, int rank);

/* Rank 0: seconds that it waited for answers. */
double calm_cluster_waited(const calm_cluster *cluster);

/* Has any rank been asked? */
bool calm_cluster_asked(const calm_cluster *cluster);

/* Rank 0 computes and leaves the store to the watching thread until the scope ends; they nest.  Nothing on other
 * ranks, or of NULL. */
#define CALM_SCOPED_LEND(cluster) CALM_SCOPED(calm_lent, calm_lend_end) lent_ = calm_lend_begin(cluster)
typedef struct calm_lent {
    calm_cluster *cluster;
} calm_lent;
calm_lent calm_lend_begin(calm_cluster *cluster);
void calm_lend_end(calm_lent *lent);
