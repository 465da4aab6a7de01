/* One block: capture its sublayers one after the other, and compute and keep the candidates of each. */
#include <string.h>

#include "cli/blocks.h"

/* Where a block's work stands. */
typedef struct block_run {
    calm_pipeline *p;
    size_t index;
    bool activations;       /* statistics are wanted */
    calm_batch *batch;
    calm_block block;
    const calm_missing *lacks;
    size_t *done;
} block_run;

static bool wanted(const calm_pipeline *p, size_t job)
{
    bool todo = false;
    for (size_t a = 0; a < p->recipe->n_algorithms; a++)
        todo |= calm_pipeline_candidate(p, job, a)->todo;
    return todo;
}

/* ---- candidates ---- */

static calm_status list_items(calm_ctx *ctx, const block_run *run, const calm_captured *captured, size_t n,
                              calm_block_work *work)
{
    const calm_pipeline *p = run->p;
    CALM_TRY(CALM_NEW(ctx, ctx->out, work->items, n * CALM_N_JOBS * p->recipe->n_algorithms));
    for (size_t i = 0; i < n; i++)
        for (calm_job_kind kind = 0; kind < CALM_N_JOBS; kind++)
            for (size_t a = 0; a < p->recipe->n_algorithms && captured[i].capture->job[kind].used; a++)
                if (calm_pipeline_candidate(p, captured[i].job[kind], a)->todo)
                    work->items[work->n++] =
                        (calm_work){.from = &captured[i], .job = captured[i].job[kind], .algorithm = a};
    return CALM_OK;
}

static calm_status prepare_scores(calm_ctx *ctx, const block_run *run, calm_captured *captured, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const calm_capture *capture = captured[i].capture;
        if (capture->score_rows >= CALM_LEAST_SCORE_ROWS && !captured[i].reference)
            CALM_TRY(calm_score_prepare(ctx, capture->score_output, capture->score_rows, run->block.config->hidden,
                                        &captured[i].reference));
    }
    return CALM_OK;
}

/* Quantize, score and keep the items of `work`; nothing of them stays in memory. */
static calm_status compute_slice(calm_ctx *ctx, block_run *run, calm_captured *captured, size_t n,
                                 calm_block_work *work)
{
    calm_pipeline *p = run->p;
    calm_budget_note(&p->held.capture);
    work->n_done = p->n_cached + *run->done;
    calm_progress_update(p->progress, CALM_STAGE_QUANTIZE, work->n_done, work->n_total);
    calm_status status = calm_block_quantize(ctx, work);
    calm_budget_note(&p->held.quantize);
    work->n_done = p->n_cached + *run->done;
    calm_progress_update(p->progress, CALM_STAGE_SCORE, work->n_done, work->n_total);
    if (status == CALM_OK)
        status = prepare_scores(ctx, run, captured, n);
    if (status == CALM_OK)
        status = calm_block_score(ctx, work);
    if (status == CALM_OK)
        status = calm_block_keep(ctx, work);
    for (size_t i = 0; i < work->n; i++)
        calm_arena_clear(&work->items[i].arena);
    calm_budget_note(&p->held.score);
    *run->done += work->n;
    return status;
}

/* What `capture` saw, with its jobs. */
static calm_captured describe(const block_run *run, const calm_capture *capture)
{
    const calm_layout *layout = calm_model_layout(run->p->model);
    calm_captured out = {.capture = capture};
    size_t begin, end;
    calm_layout_group(layout, run->index, capture->sublayer, capture->expert, &begin, &end);
    for (size_t job = begin; job < end; job++)
        out.job[layout->jobs[job].kind] = job;
    return out;
}

/* All candidates of what was captured, at once or in slices. */
static calm_status compute(calm_ctx *ctx, block_run *run, calm_captured *captured, size_t n)
{
    calm_pipeline *p = run->p;
    calm_block_work all = {.p = p, .block = &run->block};
    CALM_TRY(list_items(ctx, run, captured, n, &all));
    const size_t most =
        p->budget.knobs.slices && p->budget.knobs.candidates_at_once ? p->budget.knobs.candidates_at_once : all.n;
    for (size_t first = 0; first < all.n; first += most) {
        calm_block_work slice = all;
        slice.items = all.items + first;
        slice.n = all.n - first < most ? all.n - first : most;
        slice.n_total = p->n_cached + run->lacks->n_candidates;
        CALM_TRY(compute_slice(ctx, run, captured, n, &slice));
    }
    return CALM_OK;
}

/* ---- attention, dense MLP, shared expert ---- */

/* One pass over the calibration windows for the job kinds of `jobs`. */
static calm_status run_pass(calm_ctx *ctx, block_run *run, calm_sublayer sublayer, long expert, unsigned jobs,
                            bool activations, bool stay)
{
    calm_pipeline *p = run->p;
    calm_capture capture;
    const calm_capture_options options = {.jobs = jobs,
                                          .grams = jobs && (calm_recipe_caps(p->recipe) & CALM_NEEDS_GRAM),
                                          .samples = calm_recipe_caps(p->recipe) & CALM_NEEDS_SAMPLES,
                                          .activations = activations,
                                          .score_windows = jobs ? (size_t)p->recipe->score_windows : 0,
                                          .stay = stay,
                                          .group_bytes = p->budget.knobs.group_bytes};
    CALM_TRY(calm_capture_sublayer(ctx, &run->block, sublayer, expert, &p->rope, run->batch, &options, &capture));
    if (activations)
        CALM_TRY(calm_activations_keep(ctx, p, run->index, &capture));
    calm_captured captured = describe(run, &capture);
    return compute(ctx, run, &captured, 1);
}

static calm_status run_dense(calm_ctx *ctx, block_run *run, calm_sublayer sublayer, long expert)
{
    const calm_layout *layout = calm_model_layout(run->p->model);
    const bool shared = expert == CALM_SHARED_EXPERT;
    unsigned todo = 0;
    size_t begin, end;
    calm_arena pass, *caller = ctx->out;
    calm_status status = CALM_OK;
    calm_layout_group(layout, run->index, sublayer, expert, &begin, &end);
    for (size_t job = begin; job < end; job++)
        todo |= wanted(run->p, job) ? 1u << layout->jobs[job].kind : 0;
    if (!todo && !run->activations)
        return shared ? CALM_OK
                      : calm_batch_sublayer(ctx, &run->block, sublayer, &run->p->rope, run->batch, NULL);
    calm_arena_init(&pass);
    ctx->out = &pass;
    bool activations = run->activations, more = true;
    while (more && status == CALM_OK) {
        /* All at once, or the lowest that is left. */
        const unsigned jobs = run->p->budget.knobs.job_by_job ? todo & (0u - todo) : todo;
        todo &= ~jobs;
        more = todo != 0;
        status = run_pass(ctx, run, sublayer, expert, jobs, activations, shared || more);
        activations = false;
        calm_arena_clear(&pass);
    }
    ctx->out = caller;
    return status;
}

/* ---- mixtures ---- */

/* How many tokens each expert saw, into the store. */
static calm_status keep_counts(calm_ctx *ctx, const block_run *run, const calm_routing *routing)
{
    const calm_layout *layout = calm_model_layout(run->p->model);
    CALM_TRY(calm_store_begin(ctx, run->p->store));
    for (size_t job = layout->block_begin[run->index]; job < layout->block_begin[run->index + 1]; job++) {
        const long expert = layout->jobs[job].expert;
        if (expert < 0)
            continue;
        const size_t tokens = routing->begin[expert + 1] - routing->begin[expert];
        CALM_TRY(
            calm_store_expert_put(ctx, run->p->store, run->p->job_ids[job], run->p->calibration_id, (int64_t)tokens));
    }
    return calm_store_commit(ctx, run->p->store);
}

static bool wave_wanted(const block_run *run, size_t first, size_t n)
{
    const calm_layout *layout = calm_model_layout(run->p->model);
    bool todo = run->activations;
    for (size_t e = first; e < first + n && !todo; e++) {
        size_t begin, end;
        calm_layout_group(layout, run->index, CALM_SUBLAYER_MLP, (long)e, &begin, &end);
        for (size_t job = begin; job < end; job++)
            todo |= wanted(run->p, job);
    }
    return todo;
}

static calm_status run_wave(calm_ctx *ctx, block_run *run, const calm_routing *routing, size_t first, size_t n,
                            calm_moe_sum *sum)
{
    calm_pipeline *p = run->p;
    const calm_capture_options options = {.jobs = CALM_CAPTURE_ALL_JOBS, .grams = calm_recipe_caps(p->recipe) & CALM_NEEDS_GRAM,
                                          .samples = calm_recipe_caps(p->recipe) & CALM_NEEDS_SAMPLES,
                                          .activations = run->activations,
                                          .score_windows = (size_t)p->recipe->score_windows};
    calm_capture *captures;
    calm_captured *captured;
    CALM_TRY(CALM_NEW(ctx, ctx->out, captures, n));
    CALM_TRY(CALM_NEW(ctx, ctx->out, captured, n));
    CALM_TRY(calm_capture_experts(ctx, &run->block, run->batch, routing, first, n, &options, sum, captures));
    for (size_t i = 0; i < n; i++) {
        captured[i] = describe(run, &captures[i]);
        if (run->activations)
            CALM_TRY(calm_activations_keep(ctx, p, run->index, &captures[i]));
    }
    return compute(ctx, run, captured, n);
}

/* Experts from `first` on that are in work at once: as many as the budget says, or fewer where they saw more tokens than it
 * allows for (twice an even share each). */
static size_t wave_size(const block_run *run, const calm_routing *routing, size_t first)
{
    const calm_moe_config *moe = &run->block.config->moe;
    const size_t most = run->p->budget.knobs.experts_at_once, left = moe->n_experts - first;
    const size_t share = 2 * run->batch->rows * moe->top_k / moe->n_experts + 1;
    size_t n = most < left ? most : left;
    while (n > 1 && routing->begin[first + n] - routing->begin[first] > most * share)
        n--;
    return n;
}

static calm_status run_experts(calm_ctx *ctx, block_run *run, const calm_routing *routing, calm_moe_sum *sum)
{
    calm_arena wave, *caller = ctx->out;
    calm_status status = CALM_OK;
    calm_arena_init(&wave);
    ctx->out = &wave;
    for (size_t first = 0, n; first < run->block.config->moe.n_experts && status == CALM_OK; first += n) {
        n = wave_size(run, routing, first);
        if (wave_wanted(run, first, n))
            status = run_wave(ctx, run, routing, first, n, sum);
        else
            status = calm_moe_experts(ctx, &run->block, run->batch, routing, first, n, NULL, sum);
        calm_arena_clear(&wave);
    }
    ctx->out = caller;
    return status;
}

static calm_status run_mixture(calm_ctx *ctx, block_run *run)
{
    calm_moe_watch *watch = NULL;
    calm_routing routing;
    calm_moe_sum sum = {.rows.file = -1};
    calm_capture whole;
    if (run->activations)
        CALM_TRY(calm_moe_watch_begin(ctx, run->batch, &watch));
    const calm_observer observer = calm_moe_watch_observer(watch);
    CALM_TRY(calm_moe_route(ctx, &run->block, run->batch, &observer, &routing));
    CALM_TRY(keep_counts(ctx, run, &routing));
    if (run->block.moe.shared[CALM_ROLE_DOWN].w)
        CALM_TRY(run_dense(ctx, run, CALM_SUBLAYER_MLP, CALM_SHARED_EXPERT));
    CALM_TRY(calm_moe_begin(ctx, run->batch, ctx->out, &sum));
    calm_status status = run_experts(ctx, run, &routing, &sum);
    if (status == CALM_OK)
        status = calm_moe_end(ctx, &run->block, run->batch, &observer, &sum);
    calm_row_store_close(&sum.rows);
    CALM_TRY(status);
    if (!watch)
        return CALM_OK;
    CALM_TRY(calm_moe_watch_end(ctx, watch, &whole));
    return calm_activations_keep(ctx, run->p, run->index, &whole);
}

/* ---- the block ---- */

calm_status calm_block_process(calm_ctx *ctx, calm_pipeline *p, size_t index, const calm_missing *lacks,
                               calm_batch *batch, size_t *done)
{
    block_run run = {.p = p, .index = index, .batch = batch, .lacks = lacks, .done = done};
    const bool inside = index >= p->first_block && index < p->end_block;
    run.activations = inside && lacks->activations[index];
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++) {
        CALM_TRY(calm_model_load_sublayer(ctx, p->model, index, s, &run.block));
        if (!inside)
            CALM_TRY(calm_batch_sublayer(ctx, &run.block, s, &p->rope, batch, NULL));
        else if (s == CALM_SUBLAYER_MLP && run.block.moe.router)
            CALM_TRY(run_mixture(ctx, &run));
        else
            CALM_TRY(run_dense(ctx, &run, s, CALM_NO_EXPERT));
        calm_arena_clear(ctx->out);
    }
    return CALM_OK;
}
