/* Transfers of hidden states that enter blocks, window by window.
 *
 * Two batches alternate: the run's thread works on one while the flow's thread fills the other for the rank's next
 * block. The output of a block is computed twice: here, to send it before the block's candidates are computed, and in
 * the capture; if the next rank waited for the capture, the ranks would work one after the other.
 *
 * There is no deadlock: a rank waits only for states of a lower block, or for memory at a rank that still works on a
 * lower block. */
#include "ptq/ranks/ranks.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "ptq/base/threads.h"
#include "ptq/model/forward.h"
#include "ptq/quant/exponent_code.h"

#define AT_ONCE CALM_FLOW_AT_ONCE
#define TAGS 32768                /* number of tags that every MPI supports            */

/* A window that is being transferred. */
typedef struct parcel {
    int rank, tag;
    size_t window, n;             /* its number; its rows      */
    char *code;                   /* memory for [longest, D] floats, in the arena */
    size_t bytes;                 /* bytes to send             */
    calm_transfer transfer;
} parcel;

struct calm_flow {
    calm_run *p;
    const calm_missing *missing;
    const calm_transport *transport;
    calm_batch batches[2];
    int current;                  /* batch that the run's thread works on   */
    calm_arena arena;             /* memory of the flow's thread            */

    pthread_t thread;
    bool running;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stop;
    calm_status status;           /* the thread's failure */
    char message[CALM_MESSAGE_MAX];
    size_t expected;              /* block whose input arrives; SIZE_MAX: none */
    size_t n_posted, n_arrived;   /* its windows that were requested, and received */
    size_t n_queued, n_sent, n_left;    /* outgoing windows: queued, passed to MPI, complete */
    parcel in[AT_ONCE], out[AT_ONCE];   /* ring buffers: MPI keeps the order of transfers */
};

/* Returns the largest number of bytes of a window in transfer. */
static size_t most_bytes(const calm_batch *batch, size_t n_rows)
{
    return calm_exponent_code_most(n_rows * batch->width, sizeof(float));
}

/* ---- the thread ---- */

/* Begins to receive the next windows of the expected block, in order. */
static calm_status post_receives(calm_ctx *ctx, calm_flow *f)
{
    const calm_batch *into = &f->batches[1 - f->current];
    for (; f->expected != SIZE_MAX && f->n_posted < into->n && f->n_posted - f->n_arrived < AT_ONCE; f->n_posted++) {
        parcel *slot = &f->in[f->n_posted % AT_ONCE];
        slot->window = f->n_posted;
        slot->n = calm_batch_tokens(into, f->n_posted);
        CALM_TRY(f->transport->receive(ctx, f->transport->state, f->missing->owner[f->expected - 1],
                                       (int)(f->expected % TAGS), slot->code, most_bytes(into, slot->n),
                                       &slot->transfer));
    }
    return CALM_OK;
}

/* Stores the windows that have arrived, in order. */
static calm_status take_arrived(calm_ctx *ctx, calm_flow *f, bool *moved)
{
    const calm_batch *into = &f->batches[1 - f->current];
    for (bool complete = true; complete && f->n_arrived < f->n_posted;) {
        parcel *slot = &f->in[f->n_arrived % AT_ONCE];
        float *x;
        CALM_TRY(f->transport->test(ctx, f->transport->state, &slot->transfer, &complete));
        if (!complete)
            break;
        const size_t row = calm_batch_row(into, slot->window);
        CALM_SCOPED_SCRATCH(ctx);
        CALM_TRY(calm_row_store_get(ctx, &into->hidden, row, slot->n, &x));
        CALM_TRY(calm_exponent_decode(ctx, "hidden rows of another rank", slot->code, most_bytes(into, slot->n),
                                      slot->n * into->width, sizeof *x, x));
        CALM_TRY(calm_row_store_put(ctx, &into->hidden, row, slot->n, x));
        f->n_arrived++;
        *moved = true;
    }
    return CALM_OK;
}

/* Begins to send queued windows, and frees those that are complete, in order. */
static calm_status push_sends(calm_ctx *ctx, calm_flow *f, bool *moved)
{
    for (; f->n_sent < f->n_queued; f->n_sent++) {
        parcel *slot = &f->out[f->n_sent % AT_ONCE];
        CALM_TRY(f->transport->send(ctx, f->transport->state, slot->rank, slot->tag, slot->code, slot->bytes,
                                    &slot->transfer));
    }
    for (bool complete = true; complete && f->n_left < f->n_sent;) {
        CALM_TRY(f->transport->test(ctx, f->transport->state, &f->out[f->n_left % AT_ONCE].transfer, &complete));
        f->n_left += complete;
        *moved |= complete;
    }
    return CALM_OK;
}

static calm_status move_rows(calm_ctx *ctx, calm_flow *f, bool *moved)
{
    CALM_TRY(push_sends(ctx, f, moved));
    CALM_TRY(take_arrived(ctx, f, moved));
    return post_receives(ctx, f);
}

static void *flow_thread(void *user)
{
    calm_flow *f = user;
    calm_ctx ctx;
    calm_ctx_init(&ctx, &f->arena, &f->arena);
    pthread_mutex_lock(&f->lock);
    while (!f->stop && f->status == CALM_OK) {
        bool moved = false;
        f->status = move_rows(&ctx, f, &moved);
        if (f->status != CALM_OK)
            memcpy(f->message, ctx.message, sizeof f->message);
        if (moved || f->status != CALM_OK)
            pthread_cond_broadcast(&f->changed);
        pthread_mutex_unlock(&f->lock);
        /* Release the lock, so that the run's thread gets it even while many windows are moved. */
        usleep(moved ? 1 : CALM_FLOW_IDLE_MICROSECONDS);
        pthread_mutex_lock(&f->lock);
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

/* ---- waiting ---- */

/* Waits, holding the lock, for a change that the flow's thread signals. */
static void wait_change(calm_flow *f)
{
    const double begun = calm_seconds();
    pthread_cond_wait(&f->changed, &f->lock);
    f->p->ranks->waited += calm_seconds() - begun;
}

/* Reports a failure of the flow's thread as the run's. */
static calm_status check(calm_ctx *ctx, const calm_flow *f)
{
    return f->status == CALM_OK ? CALM_OK : calm_fail(ctx, f->status, "%s", f->message);
}

/* Waits until this many windows of the expected block have arrived. */
static calm_status wait_arrived(calm_ctx *ctx, calm_flow *f, size_t n)
{
    CALM_SCOPED_LEND(f->p->cluster);
    pthread_mutex_lock(&f->lock);
    while (f->n_arrived < n && f->status == CALM_OK)
        wait_change(f);
    const calm_status status = check(ctx, f);
    pthread_mutex_unlock(&f->lock);
    return status;
}

/* Queues a copy of a window's hidden states for a rank.  The copy needs no lock, because only this thread queues, and
 * the flow's thread does not use the slot before. */
static calm_status queue(calm_ctx *ctx, calm_flow *f, int rank, size_t block, size_t window, const float *rows)
{
    const size_t n = calm_batch_tokens(&f->batches[0], window);
    CALM_SCOPED_LEND(f->p->cluster);
    pthread_mutex_lock(&f->lock);
    while (f->status == CALM_OK && f->n_queued - f->n_left == AT_ONCE)
        wait_change(f);
    const bool waiting = f->n_left < f->n_queued;
    calm_status status = check(ctx, f);
    pthread_mutex_unlock(&f->lock);
    CALM_TRY(status);
    parcel *slot = &f->out[f->n_queued % AT_ONCE];
    slot->rank = rank;
    slot->tag = (int)(block % TAGS);
    slot->bytes = calm_exponent_encode(rows, n * f->batches[0].width, sizeof *rows, !waiting, slot->code);
    pthread_mutex_lock(&f->lock);
    f->n_queued++;
    status = check(ctx, f);
    pthread_mutex_unlock(&f->lock);
    return status;
}

calm_status calm_flow_finish(calm_ctx *ctx, calm_flow *f)
{
    CALM_SCOPED_LEND(f->p->cluster);
    pthread_mutex_lock(&f->lock);
    while (f->n_left < f->n_queued && f->status == CALM_OK)
        wait_change(f);
    const calm_status status = check(ctx, f);
    pthread_mutex_unlock(&f->lock);
    return status;
}

/* ---- blocks ---- */

/* Returns this rank's next block from `block` on whose input comes from another rank; SIZE_MAX: none. */
static size_t next_received(const calm_flow *f, size_t block)
{
    const calm_missing *m = f->missing;
    for (size_t b = block ? block : 1; b < m->end; b++)
        if (calm_division_mine(f->p, m, b) && !calm_division_mine(f->p, m, b - 1))
            return b;
    return SIZE_MAX;
}

/* Lets the flow's thread fill the batch that is not in work; called with the lock. */
static void expect(calm_flow *f, size_t block)
{
    f->expected = block;
    f->n_posted = f->n_arrived = 0;
}

/* Copies windows first .. first + n - 1 of a batch to a new batch, in ctx->out, or in a file if the batch has one. */
static calm_status part_of(calm_ctx *ctx, const calm_flow *f, const calm_batch *from, size_t first, size_t n,
                           calm_batch *out)
{
    const size_t row = calm_batch_row(from, first);
    if (n == from->n)
        return calm_batch_copy(ctx, from, n, ctx->out, f->p->spill_dir, out);
    CALM_SCOPED_SCRATCH(ctx);
    float *x;
    *out = (calm_batch){.windows = from->windows, .first = from->first + first, .n = n, .width = from->width,
                        .carried = from->carried};
    out->rows = calm_batch_row(from, first + n - 1) + calm_batch_tokens(from, first + n - 1) - row;
    CALM_TRY(calm_row_store_open(ctx, ctx->out, out->rows, out->width, NULL, &out->hidden));
    CALM_TRY(calm_row_store_get(ctx, &from->hidden, row, out->rows, &x));
    memcpy(out->hidden.data, x, out->rows * out->width * sizeof *x);
    return CALM_OK;
}

/* Runs the float block on windows and queues its output. */
static calm_status hand_on_part(calm_ctx *ctx, calm_flow *f, const calm_block *block, size_t index,
                                const calm_batch *batch, size_t first, size_t n)
{
    CALM_SCOPED_RESULTS(ctx);
    CALM_SCOPED(calm_batch, calm_batch_close) part = {.hidden.file = -1};
    {
        CALM_SCOPED_LEND(f->p->cluster);
        CALM_TRY(part_of(ctx, f, batch, first, n, &part));
        CALM_TRY(calm_batch_block(ctx, block, &f->p->rope, &part, NULL));
    }
    for (size_t i = 0; i < n; i++) {
        CALM_SCOPED_SCRATCH(ctx);
        float *x;
        CALM_TRY(calm_row_store_get(ctx, &part.hidden, calm_batch_row(&part, i), calm_batch_tokens(&part, i), &x));
        CALM_TRY(queue(ctx, f, f->missing->owner[index + 1], index + 1, first + i, x));
    }
    return CALM_OK;
}

/* Computes and sends the output of a block, a few windows at a time as they arrive.  A mixture runs all windows at
 * once, as in the capture, because its experts multiply the rows of all windows together, and sums must have the same
 * order. */
static calm_status hand_on(calm_ctx *ctx, calm_flow *f, size_t index, const calm_batch *batch, bool arriving)
{
    calm_block block;
    CALM_SCOPED_RESULTS(ctx);
    CALM_TRY(calm_model_load_block(ctx, f->p->in.model, index, &block));
    const size_t most = block.moe.router ? batch->n : (size_t)ctx->n_threads;
    for (size_t first = 0, n; first < batch->n; first += n) {
        n = calm_size_min(batch->n - first, most);
        if (arriving)
            CALM_TRY(wait_arrived(ctx, f, first + n));
        CALM_TRY(hand_on_part(ctx, f, &block, index, batch, first, n));
    }
    return CALM_OK;
}

calm_status calm_flow_enter(calm_ctx *ctx, calm_flow *f, size_t block, calm_batch **batch)
{
    const calm_missing *m = f->missing;
    const bool received = block > 0 && !calm_division_mine(f->p, m, block - 1);
    const bool handed = block + 1 < m->end && !calm_division_mine(f->p, m, block + 1);
    calm_batch *now = &f->batches[received ? 1 - f->current : f->current];
    if (handed)
        CALM_TRY(hand_on(ctx, f, block, now, received));
    if (received) {
        CALM_TRY(wait_arrived(ctx, f, now->n));
        pthread_mutex_lock(&f->lock);
        f->current = 1 - f->current;
        expect(f, next_received(f, block + 1));
        pthread_mutex_unlock(&f->lock);
    }
    *batch = now;
    return CALM_OK;
}

/* ---- open and close ---- */

/* Opens a batch for all windows, not filled yet. */
static calm_status new_batch(calm_ctx *ctx, const calm_run *p, calm_arena *arena, calm_batch *out)
{
    const calm_windows *windows = &p->in.calib;
    *out = (calm_batch){.windows = windows, .n = windows->n, .rows = windows->begin[windows->n],
                        .width = calm_batch_width(calm_model_config(p->in.model)),
                        .carried = calm_model_config(p->in.model)->carried, .spill_dir = p->spill_dir,
                        .hidden.file = -1};
    CALM_TRY(calm_row_store_open(ctx, arena, out->rows, out->width, p->spill_dir, &out->hidden));
    return calm_batch_new_shared(ctx, calm_model_config(p->in.model), arena, out);
}

static calm_status fill(calm_ctx *ctx, calm_flow *f, calm_arena *arena)
{
    const calm_run *p = f->p;
    if (calm_division_mine(p, f->missing, 0)) {
        CALM_SCOPED_LEND(p->cluster);
        CALM_TRY(calm_batch_embed(ctx, p->in.model, &p->in.calib, 0, p->in.calib.n, arena, p->spill_dir,
                                  &f->batches[0]));
        CALM_TRY(calm_batch_new_shared(ctx, calm_model_config(p->in.model), arena, &f->batches[0]));
    } else {
        CALM_TRY(new_batch(ctx, p, arena, &f->batches[0]));
    }
    CALM_TRY(new_batch(ctx, p, arena, &f->batches[1]));
    for (size_t i = 0; i < AT_ONCE; i++) {
        CALM_TRY(CALM_NEW_RAW(ctx, arena, f->in[i].code, most_bytes(&f->batches[0], p->in.calib.longest)));
        CALM_TRY(CALM_NEW_RAW(ctx, arena, f->out[i].code, most_bytes(&f->batches[0], p->in.calib.longest)));
    }
    return CALM_OK;
}

calm_status calm_flow_open(calm_ctx *ctx, calm_run *p, const calm_missing *missing, calm_arena *arena, calm_flow **out)
{
    calm_flow *f;
    CALM_TRY(CALM_NEW(ctx, arena, f, 1));
    *f = (calm_flow){.p = p, .missing = missing, .transport = calm_cluster_transport(p->cluster),
                     .batches = {{.hidden.file = -1}, {.hidden.file = -1}}, .expected = SIZE_MAX};
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->changed, NULL);
    *out = f;
    CALM_TRY(fill(ctx, f, arena));
    /* The flow's thread fills the batch that is not in work, which is the first one at the beginning. */
    expect(f, next_received(f, 0));
    const int error = pthread_create(&f->thread, NULL, flow_thread, f);
    f->running = !error;
    return error ? calm_fail_errno(ctx, error, "ranks: cannot start a thread") : CALM_OK;
}

void calm_flow_close(calm_flow **flow)
{
    calm_flow *f = *flow;
    if (!f)
        return;
    if (f->running) {
        pthread_mutex_lock(&f->lock);
        f->stop = true;
        pthread_mutex_unlock(&f->lock);
        pthread_join(f->thread, NULL);
    }
    for (int i = 0; i < 2; i++)
        calm_batch_close(&f->batches[i]);
    calm_arena_clear(&f->arena);
    pthread_mutex_destroy(&f->lock);
    pthread_cond_destroy(&f->changed);
    *flow = NULL;
}
