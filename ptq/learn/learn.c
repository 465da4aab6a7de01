/* Learns the blocks of the run's result in order, and lets the guard judge the learned plan.
 *
 * Two passes go through the calibration windows block by block: the hidden states of the float model, and those after
 * the learned blocks.  Stored blocks are read; an unfinished block begins again. */
#include <math.h>

#include "ptq/base/threads.h"
#include "ptq/layers/block_pass.h"
#include "ptq/learn/learn_impl.h"
#include "ptq/state/work.h"

/* State of learning. */
typedef struct stage {
    calm_learn_stage of;
    calm_plan plan;            /* the plan with the blocks learned so far */
    calm_batch floats, quantized;
    size_t end;                /* number of blocks that have to be run */
    size_t steps, done, total; /* steps of a block; steps done, and of all blocks */
} stage;

size_t calm_learn_windows(const calm_run *p)
{
    return p->in.calib.n - calm_inputs_held_windows(&p->in);
}

size_t calm_learn_round(const calm_run *p, const calm_learner *learner)
{
    const size_t tokens = calm_learner_tokens(learner);
    size_t n = 0;
    for (size_t w = calm_inputs_held_windows(&p->in); w < p->in.calib.n; n++)
        w = calm_windows_range_end(&p->in.calib, w, p->in.calib.n, tokens);
    return n;
}

/* Does the learner change any scheme of the pool? */
static bool learns(const calm_run *p, const calm_learner *learner)
{
    bool changes = false;
    for (size_t i = 0; i < p->in.recipe->n_schemes; i++)
        changes |= calm_learner_changes(learner, &p->in.recipe->schemes[i]);
    return changes;
}

/* Refuses a recipe that asks for learning with too few windows, or warns. */
static calm_status check(calm_ctx *ctx, const calm_run *p)
{
    const calm_recipe *recipe = p->in.recipe;
    const char *name = calm_recipe_learn_name(recipe->learn);
    const size_t n = calm_learn_windows(p);
    if (recipe->learner && !learns(p, recipe->learner)) {
        calm_log(ctx, CALM_LOG_WARNING, "`learn` blocks: 8 bits leave nothing to learn%s",
                 calm_learn_tunes(p) ? " but the scales" : "; the result stays as it is");
        if (!calm_learn_tunes(p))
            return CALM_OK;
    }
    if (n < CALM_LEARN_LEAST_WINDOWS)
        return calm_fail(ctx, CALM_EARG, "`learn` %s has %zu calibration windows besides those that are held out, "
                         "expected at least %zu; more `calibration.samples`", name, n, CALM_LEARN_LEAST_WINDOWS);
    if (n < CALM_LEARN_FEW_WINDOWS)
        calm_log(ctx, CALM_LOG_WARNING, "`learn` %s has %zu calibration windows besides those that are held out: "
                 "below %zu it may learn what is peculiar to them (more `calibration.samples`)", name, n,
                 CALM_LEARN_FEW_WINDOWS);
    return CALM_OK;
}

/* Estimates operations and updates of a learner. */
static void count(calm_run *p, const calm_learner *learner)
{
    const size_t n = calm_learn_windows(p), round = calm_learn_round(p, learner);
    const double rows = (double)(p->in.calib.begin[p->in.calib.n] - p->in.calib.begin[p->in.calib.n - n]);
    const double window = rows / (double)n, step = rows / (double)round;
    size_t first, end, steps, checks;
    calm_inputs_jobs(&p->in, &first, &end);
    calm_learner_losses(learner, round, &steps, &checks);
    const double weights = calm_model_weights(p->in.model, first, end, true);
    const double forward = calm_run_work_blocks(&p->in, p->in.first_block, p->in.end_block, window);
    /* Both passes through the block run over all windows. */
    p->result.learned.back_operations = step * (double)steps * CALM_BLOCK_BOTH * forward;
    p->result.learned.pass_operations = 2 * rows * forward;
    p->result.learned.operations = p->result.learned.back_operations + step * (double)checks * forward +
                                   p->result.learned.pass_operations;
    p->result.learned.updates = weights * (double)steps;
}

calm_status calm_learning_estimate(calm_ctx *ctx, calm_run *p)
{
    calm_learner *learner = p->in.recipe->learner;
    if (p->in.recipe->learn)
        CALM_TRY(check(ctx, p));
    if (calm_learn_tunes(p))
        calm_learn_model_estimate(p, &p->result.tuned);
    if (p->in.recipe->learn == CALM_LEARN_KL)
        return CALM_OK;
    if (!learner)
        CALM_TRY(calm_learner_parse(ctx, "learn", &learner));
    /* Learning that would be refused is not estimated. */
    if (learns(p, learner) && calm_learn_windows(p) >= CALM_LEARN_LEAST_WINDOWS)
        count(p, learner);
    return CALM_OK;
}

/* ---- stored blocks ---- */

/* Reads the stored blocks, and counts the blocks that have to be run. */
static calm_status look_up(calm_ctx *ctx, stage *s)
{
    const calm_run *p = s->of.p;
    size_t checks;
    CALM_TRY(calm_learn_look_up(ctx, &s->of, false));
    const calm_learner *learner = p->in.recipe->learner;
    calm_learner_losses(learner, calm_learn_round(p, learner), &s->steps, &checks);
    for (size_t b = p->in.first_block; b < p->in.end_block; b++) {
        if (!s->of.blocks[b])
            continue;
        s->end = s->of.there[b] ? s->end : b + 1;
        s->total += s->steps;
        s->done += s->of.there[b] ? s->steps : 0;
    }
    return CALM_OK;
}

/* ---- one block ---- */

/* A calm_tick_fn over the steps of a block. */
static void tick(void *user, size_t done, size_t total)
{
    const stage *s = user;
    (void)total;
    calm_event(&s->of.p->events, CALM_STAGE_LEARN, s->done + done, s->total);
}

static void log_block(calm_ctx *ctx, size_t block, const calm_learn_outcome *outcome, double seconds)
{
    if (outcome->kept)
        calm_log(ctx, CALM_LOG_WARNING, "block %zu stays as it was: %s", block, outcome->kept);
    else
        calm_log(ctx, CALM_LOG_INFO, "block %zu learned: loss %.5f -> %.5f, %.1f %% of its codes changed, %.1f s",
                 block, outcome->before, outcome->after, 100.0 * (double)outcome->changed / (double)outcome->codes,
                 seconds);
}

/* Learns a block that the store does not have, and stores it. */
static calm_status learn_block(calm_ctx *ctx, stage *s, size_t block)
{
    const double begun = calm_seconds();
    const calm_learn_task task = {s->of.p, s->of.start, block, &s->quantized, &s->floats, tick, s};
    calm_learn_result result;
    CALM_SCOPED_RESULTS(ctx);
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(calm_learn_block(ctx, &task, &result));
    const double seconds = calm_seconds() - begun;
    /* In one transaction, so that a block is stored as a whole. */
    CALM_SCOPED_TRANSACTION(ctx, s->of.p->in.store);
    CALM_TRY(calm_learn_keep(ctx, &s->of, block, &result, seconds));
    CALM_TRY(calm_store_commit(ctx, s->of.p->in.store));
    log_block(ctx, block, &result.outcome, seconds);
    s->done += s->steps;
    return CALM_OK;
}

/* ---- all blocks ---- */

static calm_status run_blocks(calm_ctx *ctx, stage *s)
{
    calm_run *p = s->of.p;
    calm_learn_ranks_note(ctx, p);
    for (size_t b = 0; b < s->end; b++) {
        const bool inside = b >= p->in.first_block;
        CALM_TRY(calm_learn_ranks_float(ctx, p, b, &s->floats));
        if (b + 1 < s->end)
            CALM_TRY(calm_learn_ranks_ahead(ctx, p, b + 1, &s->floats));
        if (inside && s->of.blocks[b] && !s->of.there[b])
            CALM_TRY(learn_block(ctx, s, b));
        if (b + 1 == s->end)    /* no later block needs the hidden states */
            break;
        CALM_SCOPED_RESULTS(ctx);
        CALM_TRY(calm_learn_plan(ctx, &s->of, inside ? b + 1 : 0, &s->plan));
        CALM_TRY(calm_learn_ranks_quantized(ctx, p, b, inside ? &s->plan : NULL, &s->quantized));
    }
    return CALM_OK;
}

/* Runs both passes, from the embeddings on. */
static calm_status embed_and_run(calm_ctx *ctx, stage *s)
{
    const calm_run *p = s->of.p;
    const size_t held = calm_inputs_held_windows(&p->in), n = calm_learn_windows(p);
    CALM_SCOPED_ARENA(hidden);
    calm_status status = calm_batch_embed(ctx, p->in.model, &p->in.calib, held, n, &hidden, p->spill_dir, &s->floats);
    if (status == CALM_OK)
        status = calm_batch_embed(ctx, p->in.model, &p->in.calib, held, n, &hidden, p->spill_dir, &s->quantized);
    if (status == CALM_OK)
        status = run_blocks(ctx, s);
    calm_batch_close(&s->floats);
    calm_batch_close(&s->quantized);
    return status;
}

static calm_status learn_blocks(calm_ctx *ctx, calm_run *p)
{
    const calm_plan start = p->result.plan;
    stage s = {.of = {.p = p, .learner = calm_learner_canonical(p->in.recipe->learner), .suffix = CALM_LEARNED_SUFFIX,
                      .start = &start, .facts = &p->result.learned},
               .floats.hidden.file = -1, .quantized.hidden.file = -1};
    CALM_TRY(look_up(ctx, &s));
    calm_event(&p->events, CALM_STAGE_LEARN, s.done, s.total);
    if (s.end)
        CALM_TRY(embed_and_run(ctx, &s));
    calm_event_complete(&p->events, CALM_STAGE_LEARN);
    calm_memory_note(ctx, &p->held.learn);
    CALM_TRY(calm_learn_plan(ctx, &s.of, p->in.end_block, &s.plan));
    if (p->result.learned.n > p->result.learned.kept)
        CALM_TRY(calm_learn_judge(ctx, &s.of, &s.plan));
    calm_memory_note(ctx, &p->held.evaluate);
    return CALM_OK;
}

calm_status calm_run_learn(calm_ctx *ctx, calm_run *p)
{
    if (p->in.recipe->learner && learns(p, p->in.recipe->learner))
        CALM_TRY(learn_blocks(ctx, p));
    return calm_learn_tunes(p) ? calm_learn_model(ctx, p) : CALM_OK;
}
