/* Learned blocks of a run in the store: their keys and rows; and the guard's judgement of the learned plan. */
#include "ptq/learn/learn_impl.h"

#include <string.h>

#include "ptq/plan/key.h"
#include "ptq/quant/qblob.h"

/* Returns the number of quantized jobs of the block, which are the ones that are learned. */
static size_t count_quantized(const calm_learn_stage *s, size_t block)
{
    const calm_layout *layout = calm_model_layout(s->p->in.model);
    size_t n = 0;
    for (size_t j = layout->block_begin[block]; j < layout->block_begin[block + 1]; j++)
        n += s->start->jobs[j].quantized;
    return n;
}

/* ---- keys and stored blocks ---- */

/* Computes the key of a block and the keys of its jobs; `prefix`, the key of the block before, becomes the block's. */
static calm_status make_keys(calm_ctx *ctx, calm_learn_stage *s, size_t block, char prefix[CALM_SHA256_HEX])
{
    const calm_layout *layout = calm_model_layout(s->p->in.model);
    const size_t begin = layout->block_begin[block], n = layout->block_begin[block + 1] - begin;
    calm_learned *learned;
    const char **starts;
    CALM_TRY(CALM_NEW(ctx, ctx->out, learned, 1));
    CALM_TRY(CALM_NEW(ctx, ctx->out, learned->jobs, n));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, starts, n));
    const size_t quantized = count_quantized(s, block);
    for (size_t j = 0; j < n; j++) {
        const calm_plan_job *job = &s->start->jobs[begin + j];
        /* A float job of a learned block is "stays"; a block that is not learned has only "float", as it gives later
         * blocks other hidden states. */
        starts[j] = job->quantized ? ((const calm_candidate *)job->source)->key : quantized ? "stays" : "float";
    }
    CALM_TRY(calm_key_learned(ctx, s->p->calib_key, s->learner, prefix, block, starts, n, learned->key));
    for (size_t j = 0; j < n; j++)
        CALM_TRY(calm_key_learned_job(ctx, learned->key, &layout->jobs[begin + j], learned->jobs[j].key));
    memcpy(prefix, learned->key, CALM_SHA256_HEX);
    /* A block that is not learned also has a key, which the keys of later blocks contain. */
    s->blocks[block] = quantized ? learned : NULL;
    return CALM_OK;
}

/* Adds a block's figures to the result. */
static void add_facts(const calm_learn_stage *s, size_t block, const calm_store_learned *row)
{
    const calm_inputs *in = &s->p->in;
    const size_t *begin = calm_model_layout(in->model)->block_begin + block;
    calm_learned_facts *facts = s->facts;
    size_t codes = 0;
    for (size_t j = begin[0]; j < begin[1]; j++)
        codes += s->start->jobs[j].quantized ? (size_t)calm_model_weights(in->model, j, j + 1, false) : 0;
    facts->n++;
    facts->kept += row->kept != NULL;
    facts->changed += row->kept ? 0 : (size_t)row->changed;
    facts->codes += row->kept ? 0 : codes;
    facts->before += row->kept ? 0 : row->loss_before;
    facts->after += row->kept ? 0 : row->loss_after;
    facts->seconds += row->seconds;
}

/* Reads a block from the store, if all of it is there and undamaged. */
static calm_status find_block(calm_ctx *ctx, calm_learn_stage *s, size_t block)
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
        if (!s->start->jobs[layout->block_begin[block] + j].quantized)
            continue;
        CALM_TRY(calm_store_candidate_find(ctx, s->p->in.store, to->key, &candidate, &to->id));
        if (!to->id || candidate.failure || !calm_run_blob_is_sound(ctx, s->p, candidate.blob))
            return CALM_OK;
        memcpy(to->blob, candidate.blob, CALM_SHA256_HEX);
        to->bits_per_weight = candidate.bits_per_weight;
    }
    s->there[block] = true;
    add_facts(s, block, &row);
    return calm_store_run_learned(ctx, s->p->in.store, s->p->result.run_id, id);
}

calm_status calm_learn_look_up(calm_ctx *ctx, calm_learn_stage *s, bool whole)
{
    const size_t n_blocks = calm_model_config(s->p->in.model)->n_blocks;
    char before[CALM_SHA256_HEX] = "float", prefix[CALM_SHA256_HEX];
    CALM_TRY(CALM_NEW(ctx, ctx->out, s->blocks, n_blocks));
    CALM_TRY(CALM_NEW(ctx, ctx->out, s->there, n_blocks));
    for (size_t b = s->p->in.first_block; b < s->p->in.end_block; b++) {
        CALM_SCOPED_SCRATCH(ctx);
        CALM_TRY(make_keys(ctx, s, b, before));
    }
    for (size_t b = s->p->in.first_block; b < s->p->in.end_block; b++) {
        CALM_SCOPED_SCRATCH(ctx);
        /* The last of these keys covers all starts. */
        memcpy(prefix, before, sizeof prefix);
        if (whole)
            CALM_TRY(make_keys(ctx, s, b, prefix));
        if (s->blocks[b])
            CALM_TRY(find_block(ctx, s, b));
    }
    return CALM_OK;
}

/* ---- rows ---- */

/* Writes blob and row of one job of a learned block. */
static calm_status keep_job(calm_ctx *ctx, const calm_learn_stage *s, size_t job, const calm_qjob *qjob,
                            calm_candidate *learned)
{
    const calm_plan_job *start = &s->start->jobs[job];
    char *name, *chain;
    calm_store_candidate from;
    void *bytes;
    size_t n_bytes;
    int64_t id;
    /* Name and chain of the start from the store, followed by the learner. */
    CALM_TRY(calm_store_candidate_find(ctx, s->p->in.store, ((const calm_candidate *)start->source)->key, &from, &id));
    CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%s%s", id ? from.algorithm : start->entry_name, s->suffix));
    CALM_TRY(calm_strf(ctx, ctx->scratch, &chain, "%s+%s", id ? from.chain : "", s->learner));
    CALM_TRY(calm_qblob_encode(ctx, qjob, &bytes, &n_bytes));
    CALM_TRY(calm_run_put_blob(ctx, s->p, bytes, n_bytes, learned->blob));
    const char *scheme = CALM_SCHEME_NAME(&qjob->scheme);
    learned->bits_per_weight = calm_scheme_bits_per_weight(&qjob->scheme, qjob->out, qjob->in);
    const calm_store_candidate row = {.key = learned->key, .job_id = s->p->job_ids[job],
                                      .calibration_id = s->p->result.calibration_id, .algorithm = name, .chain = chain,
                                      .scheme = scheme, .blob = learned->blob, .blob_bytes = (int64_t)n_bytes,
                                      .bits_per_weight = learned->bits_per_weight};
    return calm_store_candidate_put(ctx, s->p->in.store, &row, &learned->id);
}

calm_status calm_learn_keep(calm_ctx *ctx, calm_learn_stage *s, size_t block, const calm_learn_result *result,
                            double seconds)
{
    const calm_layout *layout = calm_model_layout(s->p->in.model);
    const size_t begin = layout->block_begin[block], n = layout->block_begin[block + 1] - begin;
    const calm_learn_outcome *outcome = &result->outcome;
    calm_learned *learned = s->blocks[block];
    int64_t *candidates, *starts, block_id, id;
    char *name;
    void *bytes;
    size_t n_bytes, kept = 0;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, candidates, n));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, starts, n));
    for (size_t j = 0; j < n; j++) {
        if (!s->start->jobs[begin + j].quantized)
            continue;
        CALM_TRY(keep_job(ctx, s, begin + j, &result->jobs[j], &learned->jobs[j]));
        candidates[kept] = learned->jobs[j].id;
        starts[kept++] = ((const calm_candidate *)s->start->jobs[begin + j].source)->id;
    }
    CALM_TRY(calm_vectors_encode(ctx, &result->vectors, &bytes, &n_bytes));
    CALM_TRY(calm_run_put_blob(ctx, s->p, bytes, n_bytes, learned->blob));
    CALM_TRY(calm_model_block_name(ctx, s->p->in.model, block, &name));
    const char *kind = calm_inputs_encode(&s->p->in) ? "encoder" : "decoder";
    CALM_TRY(calm_store_block_id(ctx, s->p->in.store,
                                 &(calm_store_block){s->p->result.model_id, (int64_t)block, name, kind}, &block_id));
    const calm_store_learned row = {.key = learned->key, .block_id = block_id,
                                    .calibration_id = s->p->result.calibration_id, .learner = s->learner,
                                    .kept = outcome->kept, .blob = learned->blob, .blob_bytes = (int64_t)n_bytes,
                                    .loss_before = outcome->before, .loss_after = outcome->after,
                                    .changed = (int64_t)outcome->changed, .seconds = seconds};
    CALM_TRY(calm_store_learned_put(ctx, s->p->in.store, &row, candidates, starts, kept, &id));
    add_facts(s, block, &row);
    return calm_store_run_learned(ctx, s->p->in.store, s->p->result.run_id, id);
}


/* ---- the plan and the judgement ---- */

calm_status calm_learn_plan(calm_ctx *ctx, const calm_learn_stage *s, size_t end, calm_plan *out)
{
    const size_t n_blocks = calm_model_config(s->p->in.model)->n_blocks;
    calm_learned **blocks;
    CALM_TRY(CALM_NEW(ctx, ctx->out, blocks, n_blocks));
    memcpy(blocks, s->blocks, end * sizeof *blocks);
    return calm_plan_learn(ctx, &s->p->in, s->start, blocks, out);
}

calm_status calm_learn_judge(calm_ctx *ctx, const calm_learn_stage *s, const calm_plan *plan)
{
    calm_run *p = s->p;
    calm_trial *trials, *two;
    char *name;
    CALM_TRY(calm_strf(ctx, ctx->out, &name, "%s%s", p->result.name, s->suffix));
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
                           "%s; %s, it %s: %+.5f, with a paired standard error of %.5f (%zu windows)",
                           p->result.verdict, s->suffix + 2,
                           better ? "is better" : "is no better, so it stays as it was",
                           -two[1].delta, two[1].se, p->in.guard.n));
        /* The table's differences are from the hybrid. */
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
