/* Cluster: the ranks of one run.
 *
 * Only rank 0 writes the store and the command's output.  The other ranks compute blocks and send store rows to rank
 * 0.  Every rank must call the collective functions in the same order.  A run with one rank has calm_cluster NULL, for
 * which they do nothing.
 *
 * A thread watches the control connections (wire.h).  On rank 0 it puts the rows of other ranks while rank 0 computes;
 * on every rank it ends the process when another rank has died or failed, because a rank that waits or computes cannot
 * do so itself. */
#pragma once

#include <stdbool.h>

#include "ptq/base/scope.h"
#include "ptq/base/text.h"
#include "ptq/cluster/transport.h"

typedef struct calm_cluster calm_cluster;

typedef struct calm_cluster_hooks {
    /* Ends this process at once and does not return; called from the watching thread.  `sentence` says why; NULL:
     * another rank reports it. */
    void (*end)(void *user, calm_status status, const char *sentence);
    void *user;
} calm_cluster_hooks;

/* Starts the cluster; every rank must call it, also if ctx already has a failure (calm_cluster_agree_status).  *out is
 * NULL with one rank, or after a failure.  CALM_EUNSUPPORTED: built without MPI, or MPI and the launcher give different
 * numbers of ranks. */
calm_status calm_cluster_start(calm_ctx *ctx, const calm_cluster_hooks *hooks, calm_cluster **out);

/* Ends the cluster; every rank must call it.  If nothing failed, or all ranks wait for the end, the other ranks end
 * with the status of rank 0.  If only this rank failed, the run ends: a rank other than 0 first sends its message to
 * rank 0.  NULL is allowed. */
void calm_cluster_end(calm_ctx *ctx, calm_cluster **cluster);

/* Return the number of this rank, from 0, and the number of ranks; 0 and 1 for NULL. */
int calm_cluster_rank(const calm_cluster *cluster);
int calm_cluster_ranks(const calm_cluster *cluster);

/* Returns the number of ranks on this machine; 1 for NULL. */
int calm_cluster_on_node(const calm_cluster *cluster);

/* Logs warnings about the placement of the ranks (seat.h), on rank 0 only. */
void calm_cluster_note_cores(calm_ctx *ctx, const calm_cluster *cluster);

/* Returns the transport that carries hidden states between ranks. */
const calm_transport *calm_cluster_transport(const calm_cluster *cluster);

/* Sets what this rank works on, "block 3 (model.layers.3)", for the message if it dies. */
void calm_cluster_place(calm_cluster *cluster, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- collective ---- */

/* Fails on every rank if one rank has failed, also before the call: with the same status on all, and the message of
 * rank 0 if it failed, else of the lowest rank that failed, which the message names. */
calm_status calm_cluster_agree_status(calm_ctx *ctx, calm_cluster *cluster);

/* Something that must be the same on all ranks. */
typedef struct calm_cluster_fact {
    const char *name;     /* "program", "recipe"                                  */
    const char *value;    /* digest or name; compared up to CALM_CLUSTER_FACT - 1 bytes */
} calm_cluster_fact;
#define CALM_CLUSTER_FACT 96

/* Compares facts [n] with rank 0's.  CALM_EUNSUPPORTED on all ranks: the first difference, its rank and machine. */
calm_status calm_cluster_agree(calm_ctx *ctx, calm_cluster *cluster, const calm_cluster_fact *facts, size_t n);

/* Checks that all ranks see the same `folder`: each rank writes a file there for rank 0 to find, and looks for the file
 * of rank 0.  CALM_EIO on all ranks: one rank does not see it; the message names the rank. */
calm_status calm_cluster_probe(calm_ctx *ctx, calm_cluster *cluster, const char *folder);

/* Copies bytes of rank 0 to all ranks: the others get *bytes [*n] in ctx->out. */
calm_status calm_cluster_share(calm_ctx *ctx, calm_cluster *cluster, void *bytes, size_t *n);

/* ---- rows of the store ---- */

/* Functions of rank 0 that the watching thread calls: `rows` for the rows of another rank, `failed` before the thread
 * ends the run. */
typedef struct calm_cluster_receiver {
    calm_status (*rows)(calm_ctx *ctx, void *user, int rank, const char *bytes, size_t n);
    void (*failed)(calm_ctx *ctx, void *user, const char *sentence);
    const char *store;    /* path of the store, for messages */
    void *user;
} calm_cluster_receiver;

/* Sets the receiver on rank 0, before the other ranks send rows; NULL: from now on rows are refused, and `user` may be
 * freed.  After the call only the caller may use the store, except in scopes of CALM_SCOPED_LEND. */
void calm_cluster_receive(calm_cluster *cluster, const calm_cluster_receiver *receiver);

/* Sends rows from another rank to rank 0. */
calm_status calm_cluster_tell(calm_ctx *ctx, calm_cluster *cluster, const void *bytes, size_t n);

/* Another rank: tells rank 0 that it has sent all rows; `summary` says what it did.  Rank 0: waits until the rows of
 * all ranks are put. */
calm_status calm_cluster_done(calm_ctx *ctx, calm_cluster *cluster, const char *summary);

/* Returns a rank's summary, or "", on rank 0 after calm_cluster_done; *host is its machine. */
const char *calm_cluster_summary(const calm_cluster *cluster, int rank, const char **host);

/* ---- after calm_cluster_done: work that rank 0 gives ---- */

/* Computes what rank 0 asks for in bytes [n]; ctx->out and ctx->scratch are valid until the answer is sent. */
typedef calm_status calm_cluster_work_fn(calm_ctx *ctx, void *user, const char *bytes, size_t n, calm_text *answer);

/* Another rank: does work until the end of the run; returns the status that rank 0 ended with. */
calm_status calm_cluster_serve(calm_ctx *ctx, calm_cluster *cluster, calm_cluster_work_fn *work, void *user);

/* Rank 0: gives work to a rank that has none; waits for its answer, *bytes [*n] in ctx->scratch.  If the rank fails,
 * the run ends. */
calm_status calm_cluster_ask(calm_ctx *ctx, calm_cluster *cluster, int rank, const void *bytes, size_t n);
calm_status calm_cluster_answer(calm_ctx *ctx, calm_cluster *cluster, int rank, char **bytes, size_t *n);

/* Returns the seconds that a rank worked on answers, on rank 0. */
double calm_cluster_worked(const calm_cluster *cluster, int rank);

/* Returns the seconds that rank 0 waited for answers. */
double calm_cluster_waited(const calm_cluster *cluster);

/* Has rank 0 asked any rank? */
bool calm_cluster_asked(const calm_cluster *cluster);

/* On rank 0, lets the watching thread use the store until the scope ends, while the run's thread computes; scopes
 * nest. */
#define CALM_SCOPED_LEND(cluster) CALM_SCOPED(calm_lent, calm_lend_end) lent_ = calm_lend_begin(cluster)
typedef struct calm_lent {
    calm_cluster *cluster;
} calm_lent;
calm_lent calm_lend_begin(calm_cluster *cluster);
void calm_lend_end(calm_lent *lent);
