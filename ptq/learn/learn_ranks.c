/* The passes of learning on several ranks. */
#include "ptq/learn/learn_impl.h"

#include <stdlib.h>

#include "ptq/plan/assemble.h"
#include "ptq/ranks/ranks.h"

/* Hidden states of which model. */
typedef enum which {
    FLOATS,
    QUANTIZED,
    N_WHICH,
} which;

/* Request for a pass of windows first .. first + n - 1 through a block.  run: compute it; send: send the result to rank
 * 0; planned: a plan follows in the message. */
typedef struct pass {
    uint64_t which, block, first, n;
    bool run, send, planned;
} pass;

struct calm_learn_share {
    calm_arena arena[N_WHICH];
    calm_batch batch[N_WHICH];
};

/* ---- division of the windows ---- */

/* Do windows share sums?  They do in mixtures, whose experts multiply the rows of all windows together. */
static bool meets(const calm_run *p)
{
    return calm_config_is_mixture(calm_model_config(p->in.model));
}

/* Computes the part of a batch's windows that a rank runs through the float or the quantized block. */
static void part_of(const calm_run *p, which of, const calm_batch *batch, int rank, size_t *first, size_t *n)
{
    const size_t ranks = (size_t)calm_cluster_ranks(p->cluster), r = (size_t)rank;
    size_t end = 0;
    *first = 0;
    if (meets(p)) {
        end = r == (of == FLOATS ? ranks - 1 : 0) ? batch->n : 0;
    } else if (of == QUANTIZED) {
        *first = batch->n * r / ranks;
        end = batch->n * (r + 1) / ranks;
    } else if (r > 0) {    /* rank 0 learns meanwhile */
        *first = batch->n * (r - 1) / (ranks - 1);
        end = batch->n * r / (ranks - 1);
    }
    *n = end - *first;
}

/* ---- rank 0 ---- */

void calm_learn_ranks_note(calm_ctx *ctx, const calm_run *p)
{
    const int ranks = calm_cluster_ranks(p->cluster);
    if (ranks > 1)
        calm_log(ctx, CALM_LOG_INFO, "blocks are learned one after the other, by rank 0; %s %d other rank%s",
                 meets(p) ? "the float model's rows come from one of" : "passes through all windows are shared with",
                 ranks - 1, ranks > 2 ? "s" : "");
}

/* Asks every other rank that has windows for a pass of its part. */
static calm_status ask_all(calm_ctx *ctx, const calm_run *p, const calm_batch *batch, const pass *what,
                           const calm_plan *plan)
{
    for (int r = 1; r < calm_cluster_ranks(p->cluster); r++) {
        CALM_SCOPED_TEXT(message);
        const uint64_t kind = CALM_RANK_PASS;
        pass own = *what;
        size_t first, n;
        part_of(p, (which)own.which, batch, r, &first, &n);
        if (!n)
            continue;
        own.first = batch->first + first;
        own.n = n;
        own.planned = plan != NULL;
        calm_rank_message_put(&message, &kind, sizeof kind);
        calm_rank_message_put(&message, &own, sizeof own);
        if (plan)
            calm_rank_put_plan(p, plan, &message);
        CALM_TRY(calm_text_check(ctx, &message));
        CALM_TRY(calm_cluster_ask(ctx, p->cluster, r, message.data, message.length));
    }
    return CALM_OK;
}

/* Waits for their answers; with `rows` receives their parts of the batch first. */
static calm_status take_all(calm_ctx *ctx, const calm_run *p, which of, const calm_batch *batch, bool rows)
{
    for (int r = 1; r < calm_cluster_ranks(p->cluster); r++) {
        size_t first, n, n_bytes;
        char *bytes;
        CALM_SCOPED_SCRATCH(ctx);
        part_of(p, of, batch, r, &first, &n);
        if (!n)
            continue;
        if (rows)
            CALM_TRY(calm_rank_rows_receive(ctx, p->cluster, r, batch, first, n));
        CALM_TRY(calm_cluster_answer(ctx, p->cluster, r, &bytes, &n_bytes));
    }
    return CALM_OK;
}

calm_status calm_learn_ranks_float(calm_ctx *ctx, const calm_run *p, size_t block, calm_batch *floats)
{
    if (calm_cluster_ranks(p->cluster) < 2)
        return calm_batch_load_block(ctx, p->in.model, &p->rope, block, NULL, NULL, floats);
    /* Blocks after the first have been run ahead, and are only sent. */
    CALM_TRY(ask_all(ctx, p, floats, &(pass){.which = FLOATS, .block = block, .run = block == 0, .send = true}, NULL));
    return take_all(ctx, p, FLOATS, floats, true);
}

calm_status calm_learn_ranks_ahead(calm_ctx *ctx, const calm_run *p, size_t next, const calm_batch *floats)
{
    return ask_all(ctx, p, floats, &(pass){.which = FLOATS, .block = next, .run = true}, NULL);
}

calm_status calm_learn_ranks_quantized(calm_ctx *ctx, const calm_run *p, size_t block, const calm_plan *plan,
                                       calm_batch *quantized)
{
    calm_plan_override override = {p->in.model, plan};
    calm_override_fn *apply = plan ? calm_plan_apply : NULL;
    size_t first, n;
    if (calm_cluster_ranks(p->cluster) < 2)
        return calm_batch_load_block(ctx, p->in.model, &p->rope, block, apply, &override, quantized);
    /* Wait for the passes ahead first, because a rank has one question at a time. */
    CALM_TRY(take_all(ctx, p, FLOATS, quantized, false));
    CALM_TRY(ask_all(ctx, p, quantized, &(pass){.which = QUANTIZED, .block = block, .run = true, .send = true}, plan));
    part_of(p, QUANTIZED, quantized, 0, &first, &n);
    /* Rank 0 has the first windows, which are at the front of the batch in memory and in a file. */
    calm_batch own = *quantized;
    own.n = n;
    own.rows = n ? calm_batch_row(quantized, n - 1) + calm_batch_tokens(quantized, n - 1) : 0;
    if (n)
        CALM_TRY(calm_batch_load_block(ctx, p->in.model, &p->rope, block, apply, &override, &own));
    return take_all(ctx, p, QUANTIZED, quantized, true);
}

/* ---- another rank ---- */

void calm_learn_share_close(calm_learn_share **share)
{
    for (int i = 0; *share && i < N_WHICH; i++) {
        calm_batch_close(&(*share)->batch[i]);
        calm_arena_clear(&(*share)->arena[i]);
    }
    free(*share);
    *share = NULL;
}

/* Opens the batch for the passes of this rank, with its embeddings. */
static calm_status open_batch(calm_ctx *ctx, calm_run *p, const pass *what)
{
    if (!p->learn_share && !(p->learn_share = calloc(1, sizeof *p->learn_share)))
        return calm_fail(ctx, CALM_ENOMEM, "learning: out of memory");
    calm_learn_share *share = p->learn_share;
    for (int i = 0; i < N_WHICH; i++)
        if (!share->batch[i].windows)
            share->batch[i].hidden.file = -1;
    calm_batch *batch = &share->batch[what->which];
    calm_batch_close(batch);
    calm_arena_clear(&share->arena[what->which]);
    return calm_batch_embed(ctx, p->in.model, &p->in.calib, (size_t)what->first, (size_t)what->n,
                            &share->arena[what->which], p->spill_dir, batch);
}

calm_status calm_rank_pass(calm_ctx *ctx, calm_run *p, calm_rank_message *in, calm_text *answer)
{
    calm_plan plan;
    calm_plan_override override = {p->in.model, &plan};
    pass what;
    (void)answer;    /* hidden states are sent separately */
    calm_rank_message_read(in, &what, sizeof what);
    if (!in->bad && what.planned)
        CALM_TRY(calm_rank_read_plan(ctx, p, in, &plan));
    in->bad |= what.which >= N_WHICH || what.block >= calm_model_config(p->in.model)->n_blocks ||
               what.n > p->in.calib.n || what.first > p->in.calib.n - what.n;
    if (!in->bad && what.run && what.block == 0)
        CALM_TRY(open_batch(ctx, p, &what));
    calm_batch *batch = p->learn_share && !in->bad ? &p->learn_share->batch[what.which] : NULL;
    if (!batch || batch->first != what.first || batch->n != what.n)
        return calm_fail(ctx, CALM_EFORMAT, "what rank 0 asks for is no pass of this run");
    calm_cluster_place(p->cluster, "the pass of %zu windows through block %zu, which is learned", (size_t)what.n,
                       (size_t)what.block);
    if (what.run)
        CALM_TRY(calm_batch_load_block(ctx, p->in.model, &p->rope, (size_t)what.block,
                                       what.planned ? calm_plan_apply : NULL, &override, batch));
    return what.send ? calm_rank_rows_send(ctx, p->cluster, 0, batch, 0, batch->n) : CALM_OK;
}
