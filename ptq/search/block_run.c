/* One block: captures its sublayers one after the other, and computes and stores the candidates of each. */

#include "ptq/base/threads.h"
#include "ptq/base/times.h"
#include "ptq/search/search_impl.h"
#include "ptq/calib/gram.h"
#include "ptq/state/run_pool.h"
#include "ptq/arch/kind.h"
#include "ptq/plan/assemble.h"

/* The work on a block. */
typedef struct block_run {
    calm_run *p;
    size_t index;
    bool activations;       /* collect activation statistics */
    calm_batch *batch, *exact;    /* hidden states; those behind float blocks, or NULL */
    calm_block block;
    const calm_missing *missing;
    size_t *done;
} block_run;

/* Returns true if candidates of the job are still to compute. */
static bool wanted(const calm_run *p, size_t job)
{
    bool todo = false;
    for (size_t entry = 0; entry < p->in.recipe->n_pool; entry++)
        todo |= calm_candidate_at(&p->in, job, entry)->todo;
    return todo;
}

/* ---- candidates ---- */

/* Lists the candidates of a job to compute, or instead those that equal a listed or stored candidate. */
static void add_items(const calm_run *p, calm_captured *captured, size_t job, bool twins, calm_block_work *work)
{
    calm_job_share *share = &captured->share[calm_model_layout(p->in.model)->jobs[job].kind];
    for (size_t entry = 0; entry < p->in.recipe->n_pool; entry++) {
        if (!calm_candidate_at(&p->in, job, entry)->todo)
            continue;
        const size_t twin = calm_candidate_equal(p, captured, job, entry);
        if ((twin != entry) != twins)
            continue;
        work->items[work->n + work->n_twins] =
            (calm_work){.from = captured, .share = share, .job = job, .entry = entry, .twin = twin};
        *(twins ? &work->n_twins : &work->n) += 1;
    }
}

/* Lists the captured jobs' candidates to compute, then the candidates that equal one of them.  --effort light decides
 * here, because the crest of an input is known only after the capture. */
static calm_status list_items(calm_ctx *ctx, const block_run *run, calm_captured *captured, size_t n,
                              calm_block_work *work)
{
    const calm_run *p = run->p;
    CALM_TRY(CALM_NEW(ctx, ctx->out, work->items, n * CALM_N_JOBS * p->in.recipe->n_pool));
    /* Equal candidates come last: then the candidates that they copy are stored, whichever slice computed them. */
    for (int twins = 0; twins < 2; twins++)
        for (size_t i = 0; i < n; i++)
            for (size_t job = captured[i].begin; job < captured[i].end; job++) {
                if (!captured[i].capture->job[calm_model_layout(p->in.model)->jobs[job].kind].used)
                    continue;
                if (!twins)
                    *run->done += calm_run_skip(ctx, p, job);
                add_items(p, &captured[i], job, twins, work);
            }
    calm_candidate_count(work);
    return CALM_OK;
}

/* Prepares the reference of a job's cka_linear, which needs a Gram matrix of at least two rows. */
static calm_status prepare_linear(calm_ctx *ctx, const block_run *run, calm_captured *captured, size_t index)
{
    const calm_layout *layout = calm_model_layout(run->p->in.model);
    const calm_job_ref *ref = &layout->jobs[index];
    const calm_job_capture *job = &captured->capture->job[ref->kind];
    calm_cka_linear_ref **linear = &captured->linear[index - captured->begin];
    const calm_hessian *h = &captured->share[layout->jobs[index].kind].hessian;
    /* After the job's candidates are quantized, H has replaced the Gram matrix. */
    const calm_cka_input input = {.rows = job->stats.rows, .in = job->width, .gram = h->blind ? NULL : job->stats.gram,
                                  .diagonal = h->diagonal, .sum = job->stats.sum};
    /* The job's linears are stored one after the other, so they are the rows of one matrix for the score. */
    const float *w = captured->capture->weight[layout->linears[ref->first].role].w;
    /* Called once per slice: the reference of an earlier slice is used again. */
    if (!job->used || !job->stats.gram || input.rows < 2 || *linear ||
        !calm_recipe_scores_linear(run->p->in.recipe))
        return CALM_OK;
    const calm_status status = calm_cka_linear_prepare(ctx, w, ref->out, &input, linear);
    if (status == CALM_ENUMERIC)    /* candidates that need the Gram matrix report the failure */
        calm_ctx_clear_failure(ctx);
    return status == CALM_ENUMERIC ? CALM_OK : status;
}

/* Prepares the reference that outputs of a sublayer or expert are compared with. */
static calm_status prepare_reference(calm_ctx *ctx, const block_run *run, calm_captured *captured)
{
    const calm_capture *capture = captured->capture;
    /* Once, although several slices and the unit's score ask for it. */
    if (capture->score_rows < CALM_LEAST_SCORE_ROWS || captured->reference)
        return CALM_OK;
    return calm_score_prepare_weighted(ctx, capture->score_output, capture->score_rows,
                                       calm_expert_width(run->block.config, capture->expert), capture->score_weight,
                                       &captured->reference);
}

/* Prepares the references of everything that was captured together: an output per sublayer or expert, and cka_linear
 * per job. */
static calm_status prepare_all(calm_ctx *ctx, const block_run *run, calm_captured *captured, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        CALM_TRY(prepare_reference(ctx, run, &captured[i]));
        for (size_t job = captured[i].begin; job < captured[i].end; job++)
            CALM_TRY(prepare_linear(ctx, run, &captured[i], job));
    }
    return CALM_OK;
}

/* Counts the time since `begun` as time of scores: all threads compute their products or wait for them. */
static void count_scores(const calm_ctx *ctx, const block_run *run, double begun)
{
    run->p->result.score_seconds += (calm_seconds() - begun) * ctx->n_threads;
}

static calm_status prepare_scores(calm_ctx *ctx, const block_run *run, calm_captured *captured, size_t n)
{
    CALM_SCOPED_TIME(&run->p->result.times, CALM_TIME_SCORES);
    const double begun = calm_seconds();
    const calm_status status = prepare_all(ctx, run, captured, n);
    count_scores(ctx, run, begun);
    return status;
}

/* Quantizes, scores and stores the items of `work`, and frees them. */
static calm_status compute_slice(calm_ctx *ctx, block_run *run, calm_captured *captured, size_t n,
                                 calm_block_work *work)
{
    calm_run *p = run->p;
    work->n_done = p->result.n_cached + *run->done;
    calm_event(&p->events, CALM_STAGE_QUANTIZE, work->n_done, work->n_total);
    calm_status status = calm_block_quantize(ctx, work);
    calm_memory_note(ctx, &p->held.quantize);
    work->n_done = p->result.n_cached + *run->done;
    calm_event(&p->events, CALM_STAGE_SCORE, work->n_done, work->n_total);
    /* Only after quantizing: the references would need memory together with the algorithms' scratch. */
    if (status == CALM_OK)
        status = prepare_scores(ctx, run, captured, n);
    if (status == CALM_OK)
        status = calm_block_score(ctx, work);
    calm_parallel_rest();    /* the store has one writer */
    if (status == CALM_OK)
        status = calm_block_keep(ctx, work);
    /* After a failure too: only the items own their arenas. */
    for (size_t i = 0; i < work->n; i++)
        calm_arena_clear(&work->items[i].arena);
    calm_memory_note(ctx, &p->held.score);
    *run->done += work->n;
    return status;
}

/* With an importance matrix: replaces the mean squares of a job's input by the matrix's. */
static calm_status weigh_columns(calm_ctx *ctx, const block_run *run, size_t job, const calm_job_capture *captured)
{
    const calm_stats *stats = &captured->stats;
    double *squares;
    bool any;
    CALM_SCOPED_SCRATCH(ctx);
    if (!run->p->in.imatrix || !captured->used || !stats->gram || !stats->rows)
        return CALM_OK;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, squares, captured->width));
    CALM_TRY(calm_inputs_column_weights(ctx, &run->p->in, job, squares, &any));
    /* The capture owns the Gram matrix, and nothing has read it yet. */
    return any ? calm_gram_rescale(ctx, captured->width, squares, stats->rows, (double *)(uintptr_t)stats->gram)
               : CALM_OK;
}

/* Describes a capture and its jobs. */
static calm_status describe(calm_ctx *ctx, const block_run *run, const calm_capture *capture, calm_captured *out)
{
    const calm_layout *layout = calm_model_layout(run->p->in.model);
    *out = (calm_captured){.capture = capture};
    calm_layout_fold_set(layout, run->index, capture->sublayer, capture->expert, &out->begin, &out->end);
    for (size_t j = out->begin; j < out->end; j++)    /* a separate job v reads the input of q and k */
        if (j == out->begin || layout->jobs[j].kind != layout->jobs[j - 1].kind)
            CALM_TRY(weigh_columns(ctx, run, j, &capture->job[layout->jobs[j].kind]));
    return CALM_OK;
}

/* Computes all candidates of the captures, at once or in slices. */
static calm_status compute_all(calm_ctx *ctx, block_run *run, calm_captured *captured, size_t n)
{
    calm_run *p = run->p;
    calm_block_work all = {.p = p, .block = &run->block};
    CALM_TRY(list_items(ctx, run, captured, n, &all));
    /* The memory peak so far belongs to the capture. */
    calm_memory_note(ctx, &p->held.capture);
    /* Without slices all results stay in memory until they are scored: more parallel tasks, more memory. */
    const size_t most =
        p->memory.knobs.slices && p->memory.knobs.candidates_at_once ? p->memory.knobs.candidates_at_once : all.n;
    for (size_t first = 0; first < all.n; first += most) {
        calm_block_work slice = all;
        slice.items = all.items + first;
        slice.n = calm_size_min(all.n - first, most);
        slice.n_total = p->result.n_cached + run->missing->n_candidates;
        CALM_TRY(compute_slice(ctx, run, captured, n, &slice));
    }
    *run->done += all.n_twins;
    CALM_SCOPED_TIME(&run->p->result.times, CALM_TIME_STORE);
    return calm_candidate_store_equals(ctx, &all);
}

/* Does the same, and frees what the candidates of a job share. */
static calm_status compute(calm_ctx *ctx, block_run *run, calm_captured *captured, size_t n)
{
    const calm_status status = compute_all(ctx, run, captured, n);
    calm_run_share_clear(captured, n);
    return status;
}

/* Scores the captured sublayers or experts as a whole, if the input of their first job was kept. */
static calm_status compute_units(calm_ctx *ctx, block_run *run, calm_captured *captured, size_t n)
{
    CALM_SCOPED_TIME(&run->p->result.times, CALM_TIME_SCORES);
    const double begun = calm_seconds();
    for (size_t i = 0; i < n; i++) {
        if (!calm_unit_missing(run->p, captured[i].begin, captured[i].end, CALM_POINT_SUBLAYER))
            continue;
        CALM_TRY(prepare_reference(ctx, run, &captured[i]));
        CALM_TRY(calm_sublayer_score(ctx, run->p, &run->block, &captured[i]));
    }
    count_scores(ctx, run, begun);
    return CALM_OK;
}

/* Returns the factors of input rows of the block's jobs (row_weights.c); NULL: all 1. */
static float *const *factors_of(const block_run *run)
{
    return run->p->row_factors ? run->p->row_factors + run->index * CALM_N_JOBS : NULL;
}

/* ---- attention, dense MLP, shared expert ---- */

/* The parameters of a pass over the calibration windows. */
typedef struct pass {
    calm_sublayer sublayer;
    long expert;
    unsigned jobs;        /* kinds of jobs whose candidates are computed */
    bool activations;     /* collect activation statistics */
    bool units;           /* score the sublayer as a whole */
    bool stay;            /* leave the rows unchanged for another pass */
} pass;

/* Captures the jobs of one pass, stores activation statistics, and computes the candidates. */
static calm_status run_pass(calm_ctx *ctx, block_run *run, const pass *how)
{
    calm_run *p = run->p;
    calm_capture capture;
    const calm_capture_options options = {.jobs = how->jobs,
                                          .inputs = calm_scored_inputs(run->block.config, how->sublayer, how->jobs,
                                                                       how->units),
                                          .grams = how->jobs && (calm_recipe_caps(p->in.recipe) & CALM_NEEDS_GRAM),
                                          .samples = how->jobs && calm_run_keeps_rows(p, run->index, how->sublayer,
                                                                                 how->expert),
                                          .activations = how->activations,
                                          .score_windows =
                                              how->jobs || how->units ? calm_inputs_scored_windows(&p->in) : 0,
                                          .score_tokens = p->in.score_tokens,
                                          .held_windows = calm_inputs_held_windows(&p->in),
                                          .stay = how->stay,
                                          .times = &p->result.times,
                                          .group_bytes = p->memory.knobs.group_bytes,
                                          .factors = factors_of(run),
                                          .exact = run->exact,
                                          .crosses = how->jobs && calm_recipe_caps(p->in.recipe) & CALM_NEEDS_CROSS};
    {
        CALM_SCOPED_LEND(p->cluster);
        CALM_TRY(calm_capture_sublayer(ctx, &run->block, how->sublayer, how->expert, &p->rope, run->batch, &options,
                                       &capture));
    }
    /* Before the candidates: --effort light reads the crest of the inputs from the store. */
    if (how->activations)
        CALM_TRY(calm_activations_keep(ctx, p, run->index, &capture));
    calm_captured captured;
    CALM_TRY(describe(ctx, run, &capture, &captured));
    CALM_TRY(compute(ctx, run, &captured, 1));
    return how->units ? compute_units(ctx, run, &captured, 1) : CALM_OK;
}

/* Runs a float sublayer that has nothing to compute over the rows of both batches. */
static calm_status move_on(calm_ctx *ctx, const block_run *run, calm_sublayer sublayer)
{
    CALM_SCOPED_LEND(run->p->cluster);
    if (run->exact)
        CALM_TRY(calm_batch_sublayer(ctx, &run->block, sublayer, &run->p->rope, run->exact, NULL));
    return calm_batch_sublayer(ctx, &run->block, sublayer, &run->p->rope, run->batch, NULL);
}

/* Runs all passes over a sublayer that sees every token.  The last pass advances the hidden states. */
static calm_status run_dense(calm_ctx *ctx, block_run *run, calm_sublayer sublayer, long expert)
{
    const calm_layout *layout = calm_model_layout(run->p->in.model);
    const bool shared = expert == CALM_SHARED_EXPERT;
    unsigned todo = 0;
    size_t begin, end;
    calm_layout_fold_set(layout, run->index, sublayer, expert, &begin, &end);
    for (size_t job = begin; job < end; job++)
        todo |= wanted(run->p, job) ? 1u << layout->jobs[job].kind : 0;
    const bool units = calm_unit_missing(run->p, begin, end, CALM_POINT_SUBLAYER);
    /* Nothing to compute: the rows are only advanced.  A shared expert's output is added at the end of the mixture. */
    if (!todo && !run->activations && !units)
        return shared ? CALM_OK : move_on(ctx, run, sublayer);
    /* A pass leaves its Gram matrices and inputs in ctx->out; they are freed before the next pass. */
    CALM_SCOPED_RESULTS(ctx);
    for (bool activations = run->activations, more = true; more;) {
        /* All jobs at once, or the lowest one left. */
        const unsigned jobs = run->p->memory.knobs.job_by_job ? todo & (0u - todo) : todo;
        todo &= ~jobs;
        more = todo != 0;
        /* The unit's score needs all of its candidates, so it is computed in the last pass.  Rows stay unchanged in all
         * other passes, and for a shared expert always. */
        CALM_TRY(run_pass(ctx, run, &(pass){sublayer, expert, jobs, activations, units && !more, shared || more}));
        /* The first pass has observed the inputs of all jobs. */
        activations = false;
        calm_arena_clear(ctx->out);
        calm_memory_note(ctx, &run->p->held.score);    /* the peak since the capture belongs to scoring */
    }
    return CALM_OK;
}

/* ---- mixtures ---- */

/* Stores how many tokens each expert got. */
static calm_status keep_counts(calm_ctx *ctx, const block_run *run, const calm_routing *routing)
{
    const calm_layout *layout = calm_model_layout(run->p->in.model);
    CALM_SCOPED_TRANSACTION(ctx, run->p->in.store);
    for (size_t job = layout->block_begin[run->index]; job < layout->block_begin[run->index + 1]; job++) {
        const long expert = layout->jobs[job].expert;
        if (expert < 0)
            continue;
        /* Rows of the routing are sorted by expert. */
        const size_t tokens = routing->begin[expert + 1] - routing->begin[expert];
        CALM_TRY(calm_store_expert_put(ctx, run->p->in.store, run->p->job_ids[job], run->p->result.calibration_id,
                                       (int64_t)tokens));
    }
    return calm_store_commit(ctx, run->p->in.store);
}

/* Returns true if candidates or statistics of an expert are missing. */
static bool wave_wanted(const block_run *run, size_t first, size_t n)
{
    const calm_layout *layout = calm_model_layout(run->p->in.model);
    bool todo = run->activations;
    for (size_t e = first; e < first + n && !todo; e++) {
        size_t begin, end;
        calm_layout_fold_set(layout, run->index, CALM_SUBLAYER_MLP, (long)e, &begin, &end);
        for (size_t job = begin; job < end; job++)
            todo |= wanted(run->p, job);
        todo |= calm_unit_missing(run->p, begin, end, CALM_POINT_SUBLAYER);
    }
    return todo;
}

/* Captures n experts together, stores activation statistics, and computes the candidates. */
static calm_status run_wave(calm_ctx *ctx, block_run *run, const calm_routing *routing, size_t first, size_t n,
                            calm_moe_sum *sum)
{
    calm_run *p = run->p;
    const calm_capture_options options = {.jobs = CALM_CAPTURE_ALL_JOBS,
                                          .grams = calm_recipe_caps(p->in.recipe) & CALM_NEEDS_GRAM,
                                          .samples = calm_run_keeps_rows(p, run->index, CALM_SUBLAYER_MLP, (long)first),
                                          .activations = run->activations,
                                          .score_windows = calm_inputs_scored_windows(&p->in),
                                          .score_tokens = p->in.score_tokens,
                                          .held_windows = calm_inputs_held_windows(&p->in),
                                          .times = &p->result.times,
                                          .factors = factors_of(run)};
    calm_capture *captures;
    calm_captured *captured;
    CALM_TRY(CALM_NEW(ctx, ctx->out, captures, n));
    CALM_TRY(CALM_NEW(ctx, ctx->out, captured, n));
    {
        CALM_SCOPED_LEND(p->cluster);
        CALM_TRY(calm_capture_experts(ctx, &run->block, run->batch, routing, first, n, &options, sum, captures));
    }
    for (size_t i = 0; i < n; i++) {
        CALM_TRY(describe(ctx, run, &captures[i], &captured[i]));
        if (run->activations)
            CALM_TRY(calm_activations_keep(ctx, p, run->index, &captures[i]));
    }
    CALM_TRY(compute(ctx, run, captured, n));
    return compute_units(ctx, run, captured, n);
}

/* Runs all routed experts, a wave at a time, and adds their weighted outputs to *sum. */
static calm_status run_experts(calm_ctx *ctx, block_run *run, const calm_routing *routing, calm_moe_sum *sum)
{
    CALM_SCOPED_RESULTS(ctx);
    for (size_t first = 0, n; first < run->block.config->moe.n_experts; first += n) {
        n = calm_wave_experts(run->p, routing, first, (size_t)ctx->n_threads);
        if (wave_wanted(run, first, n))
            CALM_TRY(run_wave(ctx, run, routing, first, n, sum));
        else
            /* Nothing to compute, but their outputs are part of the next block's input. */
            CALM_TRY(calm_moe_experts(ctx, &run->block, run->batch, routing, first, n, NULL, sum));
        calm_arena_clear(ctx->out);
        calm_memory_note(ctx, &run->p->held.score);
    }
    return CALM_OK;
}

/* Runs the MLP of a mixture.  Routing comes first: it decides which tokens each expert's statistics contain. */
static calm_status run_mixture(calm_ctx *ctx, block_run *run)
{
    calm_moe_watch *watch = NULL;
    calm_routing routing;
    /* file -1: closing is safe even if calm_moe_begin fails. */
    calm_moe_sum sum = {.rows.file = -1};
    calm_capture whole;
    if (run->activations)
        CALM_TRY(calm_moe_watch_begin(ctx, run->block.config, run->batch, &watch));
    const calm_observer observer = calm_moe_watch_observer(watch);
    CALM_TRY(calm_moe_route(ctx, &run->block, run->batch, &observer, &routing));
    CALM_TRY(keep_counts(ctx, run, &routing));
    if (calm_moe_has_shared(&run->block))
        CALM_TRY(run_dense(ctx, run, CALM_SUBLAYER_MLP, CALM_SHARED_EXPERT));
    CALM_TRY(calm_moe_begin(ctx, run->block.config, run->batch, ctx->out, &sum));
    calm_status status = run_experts(ctx, run, &routing, &sum);
    if (status == CALM_OK)
        status = calm_moe_end(ctx, &run->block, run->batch, &observer, &sum);
    /* After a failure too: the sum may be in a file. */
    calm_row_store_close(&sum.rows);
    CALM_TRY(status);
    if (!watch)
        return CALM_OK;
    CALM_TRY(calm_moe_watch_end(ctx, watch, &whole));
    return calm_activations_keep(ctx, run->p, run->index, &whole);
}

/* ---- the block ---- */

/* Computes candidates of a dense block from its weights alone, with one job's candidates in memory at a time. */
static calm_status run_blind(calm_ctx *ctx, block_run *run)
{
    const calm_model *model = run->p->in.model;
    const calm_layout *layout = calm_model_layout(model);
    run->block = (calm_block){.index = run->index, .config = calm_config_at(calm_model_config(model), run->index)};
    for (size_t job = layout->block_begin[run->index]; job < layout->block_begin[run->index + 1]; job++) {
        const calm_job_ref *ref = &layout->jobs[job];
        calm_capture capture = {.expert = CALM_NO_EXPERT, .weight = run->block.weight};
        calm_captured captured = {.capture = &capture, .begin = job, .end = job + 1};
        if (!wanted(run->p, job))
            continue;
        capture.job[ref->kind] = (calm_job_capture){.used = true, .width = ref->in};
        {
            CALM_SCOPED_TIME(&run->p->result.times, CALM_TIME_READ);
            CALM_TRY(calm_model_load_job(ctx, model, ref, run->block.weight));
        }
        CALM_TRY(compute(ctx, run, &captured, 1));
        calm_arena_clear(ctx->out);
    }
    return CALM_OK;
}

static calm_status load_sublayer(calm_ctx *ctx, block_run *run, calm_sublayer sublayer)
{
    CALM_SCOPED_TIME(&run->p->result.times, CALM_TIME_READ);
    return calm_model_load_sublayer(ctx, run->p->in.model, run->index, sublayer, &run->block);
}

/* Runs attention, then the MLP on the output of the float attention, whatever was quantized there. */
static calm_status run_sublayers(calm_ctx *ctx, block_run *run, bool inside)
{
    calm_run *p = run->p;
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++) {
        if (!calm_kind_at(calm_model_config(p->in.model), run->index, s))
            continue;
        CALM_TRY(load_sublayer(ctx, run, s));
        /* Blocks that the recipe leaves float only advance the hidden states. */
        if (!inside)
            CALM_TRY(move_on(ctx, run, s));
        else if (s == CALM_SUBLAYER_MLP && run->block.moe.router)
            CALM_TRY(run_mixture(ctx, run));
        else
            CALM_TRY(run_dense(ctx, run, s, CALM_NO_EXPERT));
        /* Only one sublayer's weights are in memory at a time. */
        calm_arena_clear(ctx->out);
    }
    return CALM_OK;
}

calm_status calm_run_choose_block(calm_ctx *ctx, calm_run *p, size_t block)
{
    calm_pool pool;
    CALM_TRY(calm_pool_of_run(ctx, p, &p->in.recipe->selection, &pool));
    pool.pending = false;    /* this block's candidates are computed */
    for (size_t u = 0; u < pool.n_units; u++) {
        const char *reason;
        size_t entry;
        if (pool.jobs[pool.unit_begin[u]].block != block)
            continue;
        CALM_TRY(calm_solve_unit(ctx, &pool, &p->scope, u, CALM_ANY_SCHEME, &entry, &reason));
        for (size_t job = pool.unit_begin[u]; job < pool.unit_begin[u + 1]; job++)
            p->choice[calm_inputs_job(&p->in, job)] = entry;
    }
    return CALM_OK;
}

/* With a quantized prefix: chooses for this block, and runs the chosen block on the rows before it. */
static calm_status pass_quantized(calm_ctx *ctx, block_run *run, const calm_batch *before)
{
    calm_run *p = run->p;
    calm_plan plan;
    calm_block block;
    CALM_TRY(calm_run_choose_block(ctx, p, run->index));
    CALM_TRY(calm_plan_of_choice(ctx, &p->in, p->choice, &plan));
    calm_plan_override override = {p->in.model, &plan};
    CALM_TRY(calm_model_load_block(ctx, p->in.model, run->index, &block));
    CALM_TRY(calm_plan_apply(&override, ctx, run->index, &block));
    /* Restores the rows before the block, because run_sublayers has advanced them by float weights. */
    CALM_TRY(calm_batch_assign(ctx, before, run->batch));
    return calm_batch_block(ctx, &block, &p->rope, run->batch, NULL);
}

static calm_status score_whole(calm_ctx *ctx, const block_run *run, const calm_batch *scored)
{
    CALM_SCOPED_TIME(&run->p->result.times, CALM_TIME_SCORES);
    const double begun = calm_seconds();
    const calm_status status = calm_block_score_whole(ctx, run->p, run->index, scored);
    count_scores(ctx, run, begun);
    return status;
}

/* Runs the block's sublayers, its scores as a whole, and with a quantized prefix the chosen block for the next one. */
static calm_status run_block(calm_ctx *ctx, block_run *run, bool inside, const calm_batch *before,
                             const calm_batch *scored)
{
    CALM_TRY(run->batch ? run_sublayers(ctx, run, inside) : run_blind(ctx, run));
    CALM_TRY(scored ? score_whole(ctx, run, scored) : CALM_OK);
    calm_memory_note(ctx, &run->p->held.score);
    calm_arena_clear(ctx->out);
    return before ? pass_quantized(ctx, run, before) : CALM_OK;
}

calm_status calm_block_process(calm_ctx *ctx, calm_run *p, size_t index, const calm_missing *missing,
                               calm_batch *batch, calm_batch *exact, size_t *done)
{
    block_run run = {.p = p, .index = index, .batch = batch, .exact = exact, .missing = missing, .done = done};
    const bool inside = index >= p->in.first_block && index < p->in.end_block;
    const bool again = inside && p->in.recipe->prefix != CALM_PREFIX_FLOAT,
               scores = inside && missing->blocks[index];
    CALM_SCOPED_OPERANDS(ctx, p->in.recipe->operands);
    CALM_SCOPED_ARENA(kept);
    /* Closed at the end even if they were not made. */
    CALM_SCOPED(calm_batch, calm_batch_close) before = {.hidden.file = -1}, scored = {.hidden.file = -1};
    run.activations = inside && missing->activations[index];
    if (again)
        CALM_TRY(calm_batch_copy(ctx, batch, batch->n, &kept, p->spill_dir, &before));
    /* In memory even if hidden states are in a file: the scoring windows are few, and both runs of the block read
     * them. */
    if (scores)
        CALM_TRY(calm_batch_cut(ctx, batch, &p->in.scoring, &kept, &scored));
    return run_block(ctx, &run, inside, again ? &before : NULL, scores ? &scored : NULL);
}
