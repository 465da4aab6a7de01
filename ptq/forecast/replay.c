/* Simulates a run on several ranks by events: a rank has computed a part, or a window has arrived.
 *
 * Ranks of a machine that compute at the same time share its cores evenly, so the work of each shrinks at its share.  A
 * window occupies both machines' connections from its beginning; within a machine the flows' threads copy it, which
 * takes no time here. */
#include "ptq/forecast/forecast.h"

#include <math.h>

#include "ptq/base/scope.h"
#include "ptq/data/windows.h"
#include "ptq/ranks/ranks.h"

#define AT_ONCE CALM_FLOW_AT_ONCE
#define NO_BLOCK SIZE_MAX

typedef enum phase { NEXT, PASS, QUEUE, WAIT, WORK, END } phase;

/* A window that is sent to another rank. */
typedef struct parcel {
    size_t block, window;    /* the block whose input it is; its number */
    bool begun, gone;
    double arrives;          /* time of arrival, once begun */
} parcel;

typedef struct worker {
    phase phase;
    size_t block;                         /* the rank's current block; n_blocks: no block is left */
    size_t first, n;                      /* windows of the part that is sent on         */
    size_t queued;                        /* windows of this part that are queued        */
    double left;                          /* seconds of work left; 0: the rank waits     */
    double busy, work;                    /* time in which it computed; seconds of work done */
    size_t expected, n_arrived;           /* block whose windows arrive; number arrived  */
    size_t n_queued, n_left;              /* windows given to the flow; windows arrived elsewhere */
    parcel out[AT_ONCE];
} worker;

typedef struct replay {
    const calm_replay_costs *costs;
    const calm_replay_cluster *cluster;
    calm_replay *result;
    worker *ranks;                         /* [ranks]                                    */
    int *owner;                           /* [n_blocks] rank of the block               */
    double *free_in, *free_out;           /* [machines] time at which its connection is free */
    int *active;                          /* [machines] number of ranks that compute    */
    double now;
} replay;

/* ---- the machine ---- */

static size_t machine(const replay *r, size_t rank)
{
    return rank / (size_t)r->cluster->per_node;
}

/* Returns the seconds of work that a rank does in one second. */
static double rate(const replay *r, size_t rank)
{
    const double wanted = (double)r->active[machine(r, rank)] * r->cluster->threads;
    return wanted > r->cluster->cores ? r->cluster->cores / wanted : 1;
}

static void count_active(replay *r)
{
    for (size_t i = 0; i < (size_t)r->cluster->ranks; i++)
        r->active[machine(r, i)] = 0;
    for (size_t i = 0; i < (size_t)r->cluster->ranks; i++)
        r->active[machine(r, i)] += r->ranks[i].left > 0;
}

/* Advances the clock to `then`. */
static void advance(replay *r, double then)
{
    for (size_t i = 0; i < (size_t)r->cluster->ranks; i++) {
        worker *at = &r->ranks[i];
        if (at->left <= 0)
            continue;
        at->busy += then - r->now;
        at->work += (then - r->now) * rate(r, i);
        at->left -= (then - r->now) * rate(r, i);
        /* Rounding error of the clock. */
        if (at->left < 1e-6)
            at->left = 0;
    }
    r->now = then;
}

/* Returns when the first rank has finished its work; INFINITY: none computes. */
static double next_computed(const replay *r)
{
    double least = INFINITY;
    for (size_t i = 0; i < (size_t)r->cluster->ranks; i++)
        if (r->ranks[i].left > 0)
            least = fmin(least, r->now + r->ranks[i].left / rate(r, i));
    return least;
}

/* ---- windows on the way ---- */

/* Begins to send a window. */
static void begin_parcel(replay *r, size_t from, parcel *p)
{
    const size_t a = machine(r, from), b = machine(r, (size_t)r->owner[p->block]);
    const double looks = CALM_FLOW_IDLE_MICROSECONDS * 1e-6;
    double begins = r->now, takes = 0, latency = 0;
    if (a != b) {
        takes = r->costs->window_bytes / r->cluster->bandwidth;
        latency = r->cluster->latency;
        begins = fmax(begins, fmax(r->free_out[a], r->free_in[b]));
        r->free_out[a] = r->free_in[b] = begins + takes;
    }
    p->begun = true;
    p->arrives = begins + takes + latency + looks;
    r->result->rows_bytes += r->costs->window_bytes;
}

/* Begins windows that a rank has queued and the other expects; frees those that have arrived.  Returns true if anything
 * changed. */
static bool move_parcels(replay *r, size_t from)
{
    worker *sender = &r->ranks[from];
    bool moved = false;
    for (size_t i = sender->n_left; i < sender->n_queued; i++) {
        parcel *p = &sender->out[i % AT_ONCE];
        worker *to = &r->ranks[r->owner[p->block]];
        if (!p->begun && to->expected == p->block && p->window < to->n_arrived + AT_ONCE) {
            begin_parcel(r, from, p);
            moved = true;
        }
        if (p->begun && !p->gone && p->arrives <= r->now) {
            p->gone = moved = true;
            to->n_arrived++;
        }
    }
    while (sender->n_left < sender->n_queued && sender->out[sender->n_left % AT_ONCE].gone)
        sender->n_left++;
    return moved;
}

/* Returns when the first window arrives; INFINITY: none is on the way. */
static double next_arrival(const replay *r)
{
    double least = INFINITY;
    for (size_t i = 0; i < (size_t)r->cluster->ranks; i++)
        for (size_t k = r->ranks[i].n_left; k < r->ranks[i].n_queued; k++) {
            const parcel *p = &r->ranks[i].out[k % AT_ONCE];
            if (p->begun && !p->gone)
                least = fmin(least, p->arrives);
        }
    return least;
}

/* ---- a rank: calm_flow_enter and the loop around it ---- */

static bool mine(const replay *r, size_t me, size_t block)
{
    return r->owner[block] == (int)me;
}

static bool is_received(const replay *r, size_t me, size_t block)
{
    return r->costs->flows && block > 0 && !mine(r, me, block - 1);
}

static size_t next_received(const replay *r, size_t me, size_t block)
{
    for (size_t b = block ? block : 1; r->costs->flows && b < r->costs->n_blocks; b++)
        if (mine(r, me, b) && !mine(r, me, b - 1))
            return b;
    return NO_BLOCK;
}

static void go_to(replay *r, size_t me, size_t block)
{
    const calm_replay_costs *costs = r->costs;
    worker *at = &r->ranks[me];
    while (block < costs->n_blocks && !mine(r, me, block))
        block++;
    at->block = block;
    at->first = at->n = at->queued = 0;
    if (block == costs->n_blocks)
        at->phase = END;
    else
        at->phase = costs->flows && block + 1 < costs->n_blocks && !mine(r, me, block + 1) ? PASS : WAIT;
}

/* Runs the next windows for the rank with the next block, if they have arrived. */
static bool begin_pass(replay *r, size_t me)
{
    const calm_replay_costs *costs = r->costs;
    worker *at = &r->ranks[me];
    const size_t rest = costs->windows - at->first, threads = (size_t)r->cluster->threads;
    at->n = costs->blocks[at->block].together || threads > rest ? rest : threads;
    if (is_received(r, me, at->block) && at->n_arrived < at->first + at->n)
        return false;
    at->left = costs->blocks[at->block].pass * (double)at->n / (double)costs->windows;
    at->queued = 0;
    at->phase = QUEUE;
    return true;
}

static bool queue_windows(replay *r, size_t me)
{
    worker *at = &r->ranks[me];
    bool moved = false;
    for (; at->queued < at->n && at->n_queued - at->n_left < AT_ONCE; at->queued++, at->n_queued++) {
        at->out[at->n_queued % AT_ONCE] = (parcel){.block = at->block + 1, .window = at->first + at->queued};
        moved = true;
    }
    if (at->queued < at->n)
        return moved;
    at->first += at->n;
    at->phase = at->first == r->costs->windows ? WAIT : PASS;
    return true;
}

static bool begin_work(replay *r, size_t me)
{
    const calm_replay_block *block = &r->costs->blocks[r->ranks[me].block];
    worker *at = &r->ranks[me];
    if (is_received(r, me, at->block)) {
        if (at->n_arrived < r->costs->windows)
            return false;
        at->expected = next_received(r, me, at->block + 1);
        at->n_arrived = 0;
    }
    at->left = block->pass + block->work;
    at->phase = WORK;
    if (me)
        r->result->blobs_bytes += block->blobs;
    return true;
}

/* Does what a rank that does not compute can do now.  Returns true if anything changed. */
static bool step(replay *r, size_t me)
{
    worker *at = &r->ranks[me];
    if (at->left > 0)
        return false;
    switch (at->phase) {
    case PASS:
        return begin_pass(r, me);
    case QUEUE:
        return queue_windows(r, me);
    case WAIT:
        return begin_work(r, me);
    case WORK:
        at->phase = NEXT;
        return true;
    case NEXT:
        go_to(r, me, at->block + 1);
        return true;
    case END:
        break;
    }
    return false;
}

/* Simulates all blocks of all ranks. */
static calm_status run_blocks(calm_ctx *ctx, replay *r)
{
    const size_t n = (size_t)r->cluster->ranks;
    for (size_t i = 0; i < n; i++) {
        go_to(r, i, 0);
        r->ranks[i].expected = next_received(r, i, 0);
        r->result->unused += r->ranks[i].phase == END;
    }
    for (;;) {
        bool done = true, moved = true;
        while (moved) {
            moved = false;
            for (size_t i = 0; i < n; i++)
                moved |= move_parcels(r, i) | step(r, i);
        }
        for (size_t i = 0; i < n; i++)
            done &= r->ranks[i].phase == END && r->ranks[i].n_left == r->ranks[i].n_queued;
        if (done)
            return CALM_OK;
        count_active(r);
        const double then = fmin(next_computed(r), next_arrival(r));
        /* flow.c explains why a run has no such deadlock. */
        if (!isfinite(then))
            return calm_fail(ctx, CALM_ENUMERIC, "the replay of %zu ranks stands still", n);
        advance(r, fmax(then, r->now));
    }
}

/* Divides the blocks as calm_division_share does. */
static calm_status deal(calm_ctx *ctx, replay *r)
{
    const calm_replay_costs *costs = r->costs;
    calm_deal_block *blocks;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, r->owner, costs->n_blocks));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, blocks, costs->n_blocks));
    for (size_t b = 0; b < costs->n_blocks; b++)
        blocks[b] = (calm_deal_block){costs->blocks[b].todo, costs->blocks[b].cost};
    return costs->divides ? calm_assign_blocks(ctx, blocks, costs->n_blocks, (size_t)r->cluster->ranks, r->owner)
                          : CALM_OK;
}

/* ---- before and after the blocks ---- */

/* Every rank does the work in `left`; all wait for the last. */
static void finish_all(replay *r)
{
    for (count_active(r); isfinite(next_computed(r)); count_active(r))
        advance(r, next_computed(r));
}

/* Rank 0 works alone. */
static void run_alone(replay *r, double seconds)
{
    r->ranks[0].left = seconds;
    finish_all(r);
}

/* As calm_division_evaluate: a single batch is not divided. */
static void measure(replay *r, const calm_replay_parts *parts)
{
    const size_t n = (size_t)r->cluster->ranks;
    if (parts->batch >= parts->windows) {
        run_alone(r, parts->seconds);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const size_t own = calm_windows_before(parts->windows, parts->batch, i + 1, n) -
                           calm_windows_before(parts->windows, parts->batch, i, n);
        r->ranks[i].left = parts->seconds * (double)own / (double)parts->windows;
    }
    finish_all(r);
}

/* As learn_ranks.h: the others run the float half of the passes while rank 0 takes its steps; all share the other
 * half. */
static void learn(replay *r)
{
    const double n = (double)r->cluster->ranks, half = r->costs->passes / 2;
    for (int i = 0; i < r->cluster->ranks; i++)
        r->ranks[i].left = i ? half / (n - 1) : r->costs->alone + (n > 1 ? 0 : half);
    finish_all(r);
    for (int i = 0; i < r->cluster->ranks; i++)
        r->ranks[i].left = half / n;
    finish_all(r);
}

calm_status calm_replay_run(calm_ctx *ctx, const calm_replay_costs *costs, const calm_replay_cluster *cluster,
                            calm_replay *out)
{
    const size_t n = (size_t)cluster->ranks;
    replay r = {.costs = costs, .cluster = cluster, .result = out};
    double busy = 0;
    CALM_SCOPED_SCRATCH(ctx);
    *out = (calm_replay){0};
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, r.ranks, n));
    CALM_TRY(deal(ctx, &r));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, r.free_in, n));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, r.free_out, n));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, r.active, n));
    for (size_t i = 0; i < n; i++)
        r.ranks[i].left = costs->begin;
    finish_all(&r);
    const double begun = r.now;
    CALM_TRY(run_blocks(ctx, &r));
    out->blocks_seconds = r.now - begun;
    run_alone(&r, costs->look * out->blobs_bytes);
    measure(&r, &costs->guard);
    learn(&r);
    measure(&r, &costs->test);
    out->seconds = r.now;
    for (size_t i = 0; i < n; i++) {
        busy += r.ranks[i].busy;
        out->work += r.ranks[i].work;
        out->most_work = fmax(out->most_work, r.ranks[i].work);
    }
    out->idle = r.now > 0 ? 1 - busy / ((double)n * r.now) : 0;
    return CALM_OK;
}
