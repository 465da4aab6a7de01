/* Transport of bytes between the ranks of a run: a table of functions, which one file per library fills in.  Nothing
 * outside transport_mpi.c knows MPI.
 *
 * broadcast and gather are collective: every rank calls them in the same order, from one thread at a time. */
#pragma once

#include <stdbool.h>

#include "ptq/base/context.h"

/* A transfer of rows that is under way; the bytes belong to the caller until it is complete. */
typedef struct calm_transfer {
    void *state;    /* the library's */
} calm_transfer;

typedef struct calm_transport {
    int rank, ranks;
    void *state;
    /* bytes [n] of rank 0 to all ranks. */
    calm_status (*broadcast)(calm_ctx *ctx, void *state, void *bytes, size_t n);
    /* bytes [n] of every rank to all [ranks][n] of rank 0; `all` is not read elsewhere. */
    calm_status (*gather)(calm_ctx *ctx, void *state, const void *bytes, size_t n, void *all);
    /* Begin to send bytes [n] to a rank, or to receive at most as many from one; `tag` >= 0 keeps transfers apart. */
    calm_status (*send)(calm_ctx *ctx, void *state, int to, int tag, const void *bytes, size_t n, calm_transfer *out);
    calm_status (*receive)(calm_ctx *ctx, void *state, int from, int tag, void *bytes, size_t n, calm_transfer *out);
    /* Is it complete?  It is then released; returns at once. */
    calm_status (*test)(calm_ctx *ctx, void *state, calm_transfer *transfer, bool *complete);
    /* After the last call; every rank calls it. */
    void (*finish)(void *state);
} calm_transport;

/* Begin with the library that calm was built with; called once in a process.  Where it fails, `out` is one rank that
 * has no functions.
 * CALM_EUNSUPPORTED: it was built without one (transport_none.c, or transport_mpi.c). */
calm_status calm_transport_begin(calm_ctx *ctx, calm_transport *out);

/* Was calm built with such a library? */
bool calm_transport_built(void);
