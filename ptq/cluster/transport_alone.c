/* One machine: there is nobody to carry bytes to. */
#include "ptq/cluster/transport.h"

#include <string.h>

static calm_status broadcast(calm_ctx *ctx, void *state, void *bytes, size_t n)
{
    (void)ctx, (void)state, (void)bytes, (void)n;
    return CALM_OK;
}

static calm_status gather(calm_ctx *ctx, void *state, const void *bytes, size_t n, void *all)
{
    (void)ctx, (void)state;
    memcpy(all, bytes, n);
    return CALM_OK;
}

static calm_status send(calm_ctx *ctx, void *state, int to, int tag, const void *bytes, size_t n, calm_transfer *out)
{
    (void)state, (void)tag, (void)bytes, (void)n, (void)out;
    return calm_fail(ctx, CALM_EARG, "rank %d: there is no other rank", to);
}

static calm_status receive(calm_ctx *ctx, void *state, int from, int tag, void *bytes, size_t n, calm_transfer *out)
{
    (void)state, (void)tag, (void)bytes, (void)n, (void)out;
    return calm_fail(ctx, CALM_EARG, "rank %d: there is no other rank", from);
}

static calm_status test(calm_ctx *ctx, void *state, calm_transfer *transfer, bool *complete)
{
    (void)ctx, (void)state, (void)transfer;
    *complete = true;
    return CALM_OK;
}

static void finish(void *state)
{
    (void)state;
}

void calm_transport_alone(calm_transport *out)
{
    *out = (calm_transport){.ranks = 1, .broadcast = broadcast, .gather = gather, .send = send, .receive = receive,
                            .test = test, .finish = finish};
}
