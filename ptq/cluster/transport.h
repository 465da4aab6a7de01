/* Transport of bytes between the ranks of a run: a table of functions, which one file per library fills in.  Only
 * transport_mpi.c uses MPI.
 *
 * broadcast and gather are collective: every rank calls them in the same order, from one thread at a time. */
#pragma once

#include <stdbool.h>

#include "ptq/base/context.h"

/* An unfinished transfer.  Its bytes belong to the caller, who must keep them unchanged until it is complete. */
typedef struct calm_transfer {
    void *state;    /* the library's */
} calm_transfer;

typedef struct calm_transport {
    int rank, ranks;
    void *state;
    /* Copies bytes [n] of rank 0 to all ranks. */
    calm_status (*broadcast)(calm_ctx *ctx, void *state, void *bytes, size_t n);
    /* Copies bytes [n] of every rank to all [ranks][n] of rank 0; other ranks do not use `all`. */
    calm_status (*gather)(calm_ctx *ctx, void *state, const void *bytes, size_t n, void *all);
    /* Begin to send bytes [n] to a rank, or to receive at most n bytes from one; a receive gets the send of its `tag`
     * >= 0. */
    calm_status (*send)(calm_ctx *ctx, void *state, int to, int tag, const void *bytes, size_t n, calm_transfer *out);
    calm_status (*receive)(calm_ctx *ctx, void *state, int from, int tag, void *bytes, size_t n, calm_transfer *out);
    /* Tests, without waiting, whether a transfer is complete, and then releases it. */
    calm_status (*test)(calm_ctx *ctx, void *state, calm_transfer *transfer, bool *complete);
    /* Ends the transport; every rank calls it, last. */
    void (*finish)(void *state);
} calm_transport;

/* Begins with the library that calm was built with; called once in a process.  After a failure *out is a single rank
 * without functions.
 * CALM_EUNSUPPORTED: calm was built without a library (transport_none.c), or MPI lacks a feature (transport_mpi.c). */
calm_status calm_transport_begin(calm_ctx *ctx, calm_transport *out);

/* Was calm built with a transport library? */
bool calm_transport_built(void);
