/* The transport over MPI.  Two threads call it, never at the same time: the run's own, and that of a flow. */
#include "ptq/cluster/transport.h"

#include <mpi.h>
#include <stdlib.h>

#define PIECE ((size_t)1 << 30)    /* most bytes of one call, because MPI counts in int */

bool calm_transport_built(void)
{
    return true;
}

static calm_status check(calm_ctx *ctx, int code, const char *what)
{
    char words[MPI_MAX_ERROR_STRING];
    int n;
    if (code == MPI_SUCCESS)
        return CALM_OK;
    if (MPI_Error_string(code, words, &n) != MPI_SUCCESS)
        words[0] = '\0';
    return calm_fail(ctx, CALM_EIO, "MPI: cannot %s: %s", what, words);
}

static calm_status broadcast(calm_ctx *ctx, void *state, void *bytes, size_t n)
{
    (void)state;
    for (size_t at = 0; at < n; at += PIECE)
        CALM_TRY(check(ctx, MPI_Bcast((char *)bytes + at, (int)calm_size_min(n - at, PIECE), MPI_BYTE, 0,
                                      MPI_COMM_WORLD), "broadcast"));
    return CALM_OK;
}

static calm_status gather(calm_ctx *ctx, void *state, const void *bytes, size_t n, void *all)
{
    (void)state;
    if (n > PIECE)
        return calm_fail(ctx, CALM_EARG, "MPI: %zu bytes are too many to gather", n);
    return check(ctx, MPI_Gather(bytes, (int)n, MPI_BYTE, all, (int)n, MPI_BYTE, 0, MPI_COMM_WORLD), "gather");
}

/* Allocates the request of a transfer. */
static calm_status new_request(calm_ctx *ctx, size_t n, calm_transfer *out)
{
    if (n > PIECE)
        return calm_fail(ctx, CALM_EARG, "MPI: %zu bytes are too many for one transfer", n);
    out->state = malloc(sizeof(MPI_Request));
    return out->state ? CALM_OK : calm_fail(ctx, CALM_ENOMEM, "MPI: out of memory");
}

/* Checks the begin of a transfer, and frees its request after a failure. */
static calm_status begun(calm_ctx *ctx, int code, const char *what, calm_transfer *out)
{
    if (code != MPI_SUCCESS) {
        free(out->state);
        out->state = NULL;
    }
    return check(ctx, code, what);
}

static calm_status send(calm_ctx *ctx, void *state, int to, int tag, const void *bytes, size_t n, calm_transfer *out)
{
    (void)state;
    CALM_TRY(new_request(ctx, n, out));
    return begun(ctx, MPI_Isend(bytes, (int)n, MPI_BYTE, to, tag, MPI_COMM_WORLD, out->state), "send", out);
}

static calm_status receive(calm_ctx *ctx, void *state, int from, int tag, void *bytes, size_t n, calm_transfer *out)
{
    (void)state;
    CALM_TRY(new_request(ctx, n, out));
    return begun(ctx, MPI_Irecv(bytes, (int)n, MPI_BYTE, from, tag, MPI_COMM_WORLD, out->state), "receive", out);
}

static calm_status test(calm_ctx *ctx, void *state, calm_transfer *transfer, bool *complete)
{
    (void)state;
    int flag = 1, code = MPI_SUCCESS;
    if (transfer->state)
        code = MPI_Test(transfer->state, &flag, MPI_STATUS_IGNORE);
    *complete = flag;
    if (flag || code != MPI_SUCCESS) {
        free(transfer->state);
        transfer->state = NULL;
    }
    return check(ctx, code, "continue with a transfer");
}

static void finish(void *state)
{
    (void)state;
    MPI_Finalize();
}

calm_status calm_transport_begin(calm_ctx *ctx, calm_transport *out)
{
    int threads, rank, ranks;
    *out = (calm_transport){.ranks = 1};
    CALM_TRY(check(ctx, MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &threads), "start"));
    /* MPI returns failures as codes, so that calm writes the message and ends the process. */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (threads < MPI_THREAD_SERIALIZED)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "MPI: this library does not take calls from two threads in turn");
    CALM_TRY(check(ctx, MPI_Comm_rank(MPI_COMM_WORLD, &rank), "say which rank this is"));
    CALM_TRY(check(ctx, MPI_Comm_size(MPI_COMM_WORLD, &ranks), "say how many ranks there are"));
    *out = (calm_transport){.rank = rank, .ranks = ranks, .broadcast = broadcast, .gather = gather, .send = send,
                            .receive = receive, .test = test, .finish = finish};
    return CALM_OK;
}
