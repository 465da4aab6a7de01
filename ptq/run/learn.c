/* Learned blocks: the result of the run, learned on from block to block, and judged.
 *
 * Two passes go through the calibration windows in lockstep: the float model's rows, and those that the learned blocks
 * before leave.  Blocks that the store has are taken from there; a block that was not finished begins again. */
#include <math.h>
#include <string.h>

#include "ptq/base/threads.h"
#include "ptq/plan/assemble.h"
#include "ptq/plan/key.h"
#include "ptq/quant/qblob.h"
#include "ptq/run/learn_impl.h"
#include "ptq/run/stored_learned.h"

/* With fewer windows nothing is learned, or it warns: what fits them says little of other text. */
#define LEAST_WINDOWS ((size_t)8)
#define FEW_WINDOWS ((size_t)32)

/* The stage as it goes on. */
typedef struct stage {
    calm_run *p;
    const calm_plan *start;    /* what is learned on from                              */
    calm_learned **blocks;     /* [n_blocks] in the run's arena; NULL: not a block of the run */
    bool *there;               /* [n_blocks] the store has it                          */
    calm_plan plan;            /* with the blocks learned so far                       */
    calm_batch floats, quantized;
    size_t end;                /* blocks that have to be run                           */
    size_t steps, done, total; /* of a block; of all                                   */
} stage;

/* Windows that learning sees: those that candidates were fitted to. */
static size_t learning_windows(const calm_run *p)
{
    return p->in.calib.n - calm_inputs_held_windows(&p->in);
}

/* Does the learner change anything of what competes? */
static bool learns(const calm_run *p, const calm_learner *learner)
{
    bool changes = false;
    for (size_t i = 0; i < p->in.recipe->n_schemes; i++)
        changes |= calm_learner_changes(learner, &p->in.recipe->schemes[i]);
    return changes;
}

/* What refuses a recipe that asks for it, or warns. */
static calm_status check(calm_ctx *ctx, const calm_run *p)
{
    const size_t n = learning_windows(p);
    if (!learns(p, p->in.recipe->learner)) {
        calm_log(ctx, CALM_LOG_WARNING, "`learn` blocks: 8 bits leave nothing to learn; the result stays as it is");
        return CALM_OK;
    }
    if (calm_model_config(p->in.model)->moe.n_experts)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: `learn` blocks does not learn mixtures of experts",
                         p->in.recipe->model.dir);
    if (n < LEAST_WINDOWS)
        return calm_fail(ctx, CALM_EARG, "`learn` blocks has %zu calibration windows besides those that are held out, "
                         "expected at least %zu; more `calibration.samples`", n, LEAST_WINDOWS);
    if (n < FEW_WINDOWS)
        calm_log(ctx, CALM_LOG_WARNING, "`learn` blocks has %zu calibration windows besides those that are held out: "
                 "below %zu it may learn what is peculiar to them (more `calibration.samples`)", n, FEW_WINDOWS);
    return CALM_OK;
}

/* Operations and updates of a learner. */
static void count(calm_run *p, const calm_learner *learner)
{
    const calm_config *config = calm_model_config(p->in.model);
    const double rows = (double)p->in.calib.begin[p->in.calib.n], window = rows / (double)p->in.calib.n;
    size_t first, end, steps, checks;
    calm_inputs_jobs(&p->in, &first, &end);
    calm_learner_losses(learner, learning_windows(p), &steps, &checks);
    const double weights = calm_inputs_weights(&p->in, first, end, true);
    /* Scores and contexts of attention: for half of a window where no token looks ahead. */
    const double attention = (config->arch->encoder ? 4 : 2) * window * (double)(config->n_heads * config->head_dim) *
                             (double)(p->in.end_block - p->in.first_block);
    const double forward = 2 * weights + attention;
    /* The backward pass has two products for each of the forward pass, and half of the attention once more; both passes
     * to the next block run over all windows. */
    p->result.learned.operations = window * (double)steps * (3 * forward + attention / 2) +
                                   window * (double)checks * forward + 2 * rows * forward;
    p->result.learned.updates = weights * (double)steps;
}

calm_status calm_run_foresee_learning(calm_ctx *ctx, calm_run *p)
{
    calm_learner *learner = p->in.recipe->learner;
    if (learner)
        CALM_TRY(check(ctx, p));
    else
        CALM_TRY(calm_learner_parse(ctx, "learn", &learner));
    /* What would be refused is not foreseen. */
    if (learns(p, learner) && !calm_model_config(p->in.model)->moe.n_experts && learning_windows(p) >= LEAST_WINDOWS)
        count(p, learner);
    return CALM_OK;
}

/* Is every job of the block quantized?  A float weight that an input scale folds into would have to be learned too. */
static bool is_quantized(const stage *s, size_t block)
{
    const calm_layout *layout = calm_model_layout(s->p->in.model);
    bool all = true;
    for (size_t j = layout->block_begin[block]; j < layout->block_begin[block + 1]; j++)
        all &= s->start->jobs[j].quantized;
    return all;
}

/* ---- keys, and what the store has ---- */

/* The key of a block and those of its jobs; `prefix` becomes the block's. */
static calm_status make_keys(calm_ctx *ctx, stage *s, size_t block, char prefix[CALM_SHA256_HEX])
{
    const calm_layout *layout = calm_model_layout(s->p->in.model);
    const size_t begin = layout->block_begin[block], n = layout->block_begin[block + 1] - begin;
    calm_learned *learned;
    const char **starts;
    CALM_TRY(CALM_NEW(ctx, ctx->out, learned, 1));
    CALM_TRY(CALM_NEW(ctx, ctx->out, learned->jobs, n));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, starts, n));
    for (size_t j = 0; j < n; j++) {
        const calm_plan_job *job = &s->start->jobs[begin + j];
        starts[j] = job->quantized ? ((const calm_candidate *)job->source)->key : "float";
    }
    CALM_TRY(calm_key_learned(ctx, s->p->calib_key, calm_learner_canonical(s->p->in.recipe->learner), prefix, block,
                              starts, n, learned->key));
    for (size_t j = 0; j < n; j++)
        CALM_TRY(calm_key_learned_job(ctx, learned->key, &layout->jobs[begin + j], learned->jobs[j].key));
    memcpy(prefix, learned->key, CALM_SHA256_HEX);
    /* A block that stays as it is has a key for those behind it. */
    s->blocks[block] = is_quantized(s, block) ? learned : NULL;
    return CALM_OK;
}

/* A block's figures, into the result. */
static void add_facts(calm_run *p, size_t block, const calm_store_learned *row)
{
    const calm_layout *layout = calm_model_layout(p->in.model);
    const size_t codes = (size_t)calm_inputs_weights(&p->in, layout->block_begin[block], layout->block_begin[block + 1],
                                                     false);
    calm_learned_facts *facts = &p->result.learned;
    facts->n++;
    facts->kept += row->kept != NULL;
    facts->changed += row->kept ? 0 : (size_t)row->changed;
    facts->codes += row->kept ? 0 : codes;
    facts->before += row->kept ? 0 : row->loss_before;
    facts->after += row->kept ? 0 : row->loss_after;
    facts->seconds += row->seconds;
}

/* Take a block from the store, if all of it is there and sound. */
static calm_status find_block(calm_ctx *ctx, stage *s, size_t block)
{
    const calm_layout *layout = calm_model_layout(s->p->in.model);
    const size_t n = layout->block_begin[block + 1] - layout->block_begin[block];
    calm_learned *learned = s->blocks[block];
    calm_store_learned row;
    int64_t id;
    CALM_TRY(calm_store_learned_find(ctx, s->p->in.store, learned->key, &row, &id));
    if (!id || !calm_run_blob_is_sound(ctx, s->p, row.blob))
        return CALM_OK;
    memcpy(learned->blob, row.blob, CALM_SHA256_HEX);
    for (size_t j = 0; j < n; j++) {
        calm_store_candidate candidate;
        calm_candidate *to = &learned->jobs[j];
        CALM_TRY(calm_store_candidate_find(ctx, s->p->in.store, to->key, &candidate, &to->id));
        if (!to->id || candidate.failure || !calm_run_blob_is_sound(ctx, s->p, candidate.blob))
            return CALM_OK;
        memcpy(to->blob, candidate.blob, CALM_SHA256_HEX);
        to->bits_per_weight = candidate.bits_per_weight;
    }
    s->there[block] = true;
    add_facts(s->p, block, &row);
    return calm_store_run_learned(ctx, s->p->in.store, s->p->result.run_id, id);
}

/* Keys of all blocks, which need nothing but the start, and how many blocks have to be run. */
static calm_status look_up(calm_ctx *ctx, stage *s)
{
    const size_t n_blocks = calm_model_config(s->p->in.model)->n_blocks;
    char prefix[CALM_SHA256_HEX] = "float";
    size_t checks;
    CALM_TRY(CALM_NEW(ctx, ctx->out, s->blocks, n_blocks));
    CALM_TRY(CALM_NEW(ctx, ctx->out, s->there, n_blocks));
    calm_learner_losses(s->p->in.recipe->learner, learning_windows(s->p), &s->steps, &checks);
    for (size_t b = s->p->in.first_block; b < s->p->in.end_block; b++) {
        CALM_SCOPED_SCRATCH(ctx);
        CALM_TRY(make_keys(ctx, s, b, prefix));
        if (!s->blocks[b])
            continue;
        CALM_TRY(find_block(ctx, s, b));
        s->end = s->there[b] ? s->end : b + 1;
        s->total += s->steps;
        s->done += s->there[b] ? s->steps : 0;
    }
    return CALM_OK;
}

/* ---- one block ---- */

/* Blob and row of one job of a learned block. */
static calm_status keep_job(calm_ctx *ctx, const stage *s, size_t job, const calm_qjob *qjob, calm_candidate *learned)
{
    const calm_plan_job *start = &s->start->jobs[job];
    char scheme[CALM_SCHEME_NAME_MAX], *name, *chain;
    calm_store_candidate from;
    void *bytes;
    size_t n_bytes;
    int64_t id;
    /* Name and chain of the start, as the store has them, and what came after. */
    CALM_TRY(calm_store_candidate_find(ctx, s->p->in.store, ((const calm_candidate *)start->source)->key, &from, &id));
    CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%s" CALM_LEARNED_SUFFIX, id ? from.algorithm : start->entry_name));
    CALM_TRY(calm_strf(ctx, ctx->scratch, &chain, "%s+%s", id ? from.chain : "",
                       calm_learner_canonical(s->p->in.recipe->learner)));
    CALM_TRY(calm_qblob_encode(ctx, qjob, &bytes, &n_bytes));
    CALM_TRY(calm_run_put_blob(ctx, s->p, bytes, n_bytes, learned->blob));
    calm_scheme_name(&qjob->scheme, scheme);
    learned->bits_per_weight = calm_scheme_bits_per_weight(&qjob->scheme, qjob->out, qjob->in);
    const calm_store_candidate row = {.key = learned->key, .job_id = s->p->job_ids[job],
                                      .calibration_id = s->p->result.calibration_id, .algorithm = name, .chain = chain,
                                      .scheme = scheme, .blob = learned->blob, .blob_bytes = (int64_t)n_bytes,
                                      .bits_per_weight = learned->bits_per_weight};
    return calm_store_candidate_put(ctx, s->p->in.store, &row, &learned->id);
}

/* All rows of a learned block, in the caller's transaction. */
static calm_status keep_rows(calm_ctx *ctx, stage *s, size_t block, const calm_learn_result *result, double seconds)
{
    const calm_layout *layout = calm_model_layout(s->p->in.model);
    const size_t begin = layout->block_begin[block], n = layout->block_begin[block + 1] - begin;
    const calm_learn_outcome *outcome = &result->outcome;
    calm_learned *learned = s->blocks[block];
    int64_t *candidates, *starts, block_id, id;
    char *name;
    void *bytes;
    size_t n_bytes;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, candidates, n));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, starts, n));
    for (size_t j = 0; j < n; j++) {
        CALM_TRY(keep_job(ctx, s, begin + j, &result->jobs[j], &learned->jobs[j]));
        candidates[j] = learned->jobs[j].id;
        starts[j] = ((const calm_candidate *)s->start->jobs[begin + j].source)->id;
    }
    CALM_TRY(calm_vectors_encode(ctx, &result->vectors, &bytes, &n_bytes));
    CALM_TRY(calm_run_put_blob(ctx, s->p, bytes, n_bytes, learned->blob));
    CALM_TRY(calm_model_block_name(ctx, s->p->in.model, block, &name));
    const char *kind = calm_inputs_encode(&s->p->in) ? "encoder" : "decoder";
    CALM_TRY(calm_store_block_id(ctx, s->p->in.store,
                                 &(calm_store_block){s->p->result.model_id, (int64_t)block, name, kind}, &block_id));
    const calm_store_learned row = {.key = learned->key, .block_id = block_id,
                                    .calibration_id = s->p->result.calibration_id,
                                    .learner = calm_learner_canonical(s->p->in.recipe->learner),
                                    .kept = outcome->kept, .blob = learned->blob, .blob_bytes = (int64_t)n_bytes,
                                    .loss_before = outcome->before, .loss_after = outcome->after,
                                    .changed = (int64_t)outcome->changed, .seconds = seconds};
    CALM_TRY(calm_store_learned_put(ctx, s->p->in.store, &row, candidates, starts, n, &id));
    add_facts(s->p, block, &row);
    return calm_store_run_learned(ctx, s->p->in.store, s->p->result.run_id, id);
}

/* A calm_tick_fn over the steps of a block. */
static void tick(void *user, size_t done, size_t total)
{
    const stage *s = user;
    (void)total;
    calm_event(&s->p->events, CALM_STAGE_LEARN, s->done + done, s->total);
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

/* Learn a block that the store does not have, and keep it. */
static calm_status learn_block(calm_ctx *ctx, stage *s, size_t block)
{
    const double begun = calm_seconds();
    const calm_learn_task task = {s->p, s->start, block, &s->quantized, &s->floats, tick, s};
    calm_learn_result result;
    CALM_SCOPED_ARENA(arena);
    CALM_SCOPED_OUT(ctx, &arena);
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(calm_learn_block(ctx, &task, &result));
    const double seconds = calm_seconds() - begun;
    /* The block as a whole or nothing of it. */
    CALM_TRY(calm_store_begin(ctx, s->p->in.store));
    keep_rows(ctx, s, block, &result, seconds);
    CALM_TRY(calm_store_end(ctx, s->p->in.store));
    log_block(ctx, block, &result.outcome, seconds);
    s->done += s->steps;
    return CALM_OK;
}

/* ---- all blocks ---- */

/* The plan as far as it is learned, in the run's arena. */
static calm_status plan_so_far(calm_ctx *ctx, stage *s, size_t end)
{
    const size_t n_blocks = calm_model_config(s->p->in.model)->n_blocks;
    calm_learned **blocks;
    CALM_TRY(CALM_NEW(ctx, ctx->out, blocks, n_blocks));
    memcpy(blocks, s->blocks, end * sizeof *blocks);
    return calm_plan_learn(ctx, &s->p->in, s->start, blocks, &s->plan);
}

static calm_status run_blocks(calm_ctx *ctx, stage *s)
{
    const calm_model *model = s->p->in.model;
    for (size_t b = 0; b < s->end; b++) {
        const bool inside = b >= s->p->in.first_block;
        CALM_TRY(calm_batch_load_block(ctx, model, &s->p->rope, b, NULL, NULL, &s->floats));
        if (inside && s->blocks[b] && !s->there[b])
            CALM_TRY(learn_block(ctx, s, b));
        CALM_SCOPED_ARENA(arena);
        CALM_SCOPED_OUT(ctx, &arena);
        CALM_TRY(plan_so_far(ctx, s, inside ? b + 1 : 0));
        calm_plan_override override = {model, &s->plan};
        CALM_TRY(calm_batch_load_block(ctx, model, &s->p->rope, b, inside ? calm_plan_apply : NULL, &override,
                                       &s->quantized));
    }
    return CALM_OK;
}

/* Both passes, from the embeddings on. */
static calm_status embed_and_run(calm_ctx *ctx, stage *s)
{
    const calm_run *p = s->p;
    const size_t held = calm_inputs_held_windows(&p->in), n = learning_windows(p);
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

/* ---- the judgement ---- */

/* The learned result beside the plain one, on windows that neither was made from; without them it is the result. */
static calm_status judge(calm_ctx *ctx, calm_run *p, const calm_plan *plan)
{
    calm_trial *trials, *two;
    char *name;
    CALM_TRY(calm_strf(ctx, ctx->out, &name, "%s" CALM_LEARNED_SUFFIX, p->result.name));
    CALM_TRY(CALM_NEW(ctx, ctx->out, trials, p->result.n_trials + 2));
    memcpy(trials, p->result.trials, p->result.n_trials * sizeof *trials);
    two = trials + p->result.n_trials;
    CALM_TRY(calm_trial_of_plan(ctx, &p->in, name, plan, &two[0]));
    CALM_TRY(calm_trial_of_plan(ctx, &p->in, p->result.name, &p->result.plan, &two[1]));
    bool better = true;
    if (p->in.guard.n) {
        CALM_TRY(calm_trials_measure(ctx, p, two, 2, &p->in.guard, p->in.recipe->calib_name, CALM_STAGE_CHOOSE));
        better = calm_guard_pick(two, 2) == 0;
        CALM_TRY(calm_strf(ctx, ctx->out, &p->result.verdict,
                           "%s; learned, it %s: %+.5f, with a paired standard error of %.5f (%zu windows)",
                           p->result.verdict, better ? "is better" : "is no better, so it stays plain", -two[1].delta,
                           two[1].se, p->in.guard.n));
        /* Differences of the table are to the hybrid. */
        if (trials[0].id)
            calm_measure_compare(&trials[0].measure, &two[0].measure, p->in.guard.n, &two[0].delta, &two[0].se);
        CALM_TRY(calm_trials_put(ctx, p, two, 1, "guard"));
    }
    p->result.trials = trials;
    p->result.n_trials++;
    if (better) {
        p->result.plan = *plan;
        p->result.name = name;
    }
    return CALM_OK;
}

calm_status calm_run_learn(calm_ctx *ctx, calm_run *p)
{
    const calm_plan start = p->result.plan;
    stage s = {.p = p, .start = &start, .floats.hidden.file = -1, .quantized.hidden.file = -1};
    if (!p->in.recipe->learner || !learns(p, p->in.recipe->learner))
        return CALM_OK;
    CALM_TRY(look_up(ctx, &s));
    calm_event(&p->events, CALM_STAGE_LEARN, s.done, s.total);
    if (s.end)
        CALM_TRY(embed_and_run(ctx, &s));
    calm_event_complete(&p->events, CALM_STAGE_LEARN);
    calm_memory_plan_note(ctx, &p->held.learn);
    CALM_TRY(plan_so_far(ctx, &s, p->in.end_block));
    if (p->result.learned.n > p->result.learned.kept)
        CALM_TRY(judge(ctx, p, &s.plan));
    calm_memory_plan_note(ctx, &p->held.evaluate);
    return CALM_OK;
}
