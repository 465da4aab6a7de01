/* The guard block by block: which plans it runs, and when. */
#include "ptq/choose/choose_impl.h"

#include "ptq/state/run_pool.h"

/* Hashes everything that determines the hidden states: model, windows, and the pool's candidates. */
static calm_status identify(calm_ctx *ctx, const calm_run *p, calm_guard_rows *r)
{
    char windows[CALM_SHA256_HEX];
    calm_sha256 sha;
    CALM_TRY(calm_run_evaluation_key(ctx, p, "rows of the guard", r->windows, windows));
    calm_sha256_init(&sha);
    calm_sha256_field(&sha, windows);
    calm_sha256_field(&sha, p->key);
    /* The keys of blocks that stay float are empty. */
    for (size_t i = 0; i < calm_model_layout(p->in.model)->n_jobs * p->in.recipe->n_pool; i++)
        calm_sha256_field(&sha, p->in.candidates[i].key);
    return calm_sha256_finish(ctx, &sha, r->identity);
}

calm_status calm_guard_rows_begin(calm_ctx *ctx, calm_run *p, bool missing)
{
    calm_guard_rows *r;
    if (!p->choosing->drops || !calm_guard_streams(p))
        return CALM_OK;
    CALM_TRY(calm_guard_rows_open(ctx, p, &p->in.guard, p->in.recipe->n_pool + 1, &r));
    CALM_TRY(identify(ctx, p, r));
    CALM_SCOPED_OUT(ctx, p->arena);
    for (size_t i = 0; i < r->n; i++)
        CALM_TRY(calm_choice_uniform(ctx, &p->in, CALM_STAYS_FLOAT, &r->plans[i].choice));
    CALM_TRY(calm_guard_rows_load(ctx, p, r));
    /* If no candidate is missing, the guard's figures may also be in the store. */
    if (missing || r->position)
        p->guard_rows = r;
    return CALM_OK;
}

/* ---- choices of plans ---- */

/* Sets the hybrid's choice in the next block; drops the hybrid if the choice is not possible yet. */
static calm_status choose_hybrid(calm_ctx *ctx, calm_run *p, calm_guard_plan *hybrid)
{
    const calm_guard_rows *r = p->guard_rows;
    const calm_layout *layout = calm_model_layout(p->in.model);
    /* After all candidates are computed, the choice is already made. */
    const calm_status status = p->computed ? CALM_OK : calm_run_choose_block(ctx, p, r->position);
    if (status == CALM_ENOMEM)
        return status;
    calm_ctx_clear_failure(ctx);    /* the choice is repeated at the end, which reports the failure */
    hybrid->of_class = status == CALM_OK ? hybrid->of_class : CALM_GUARD_GONE;
    for (size_t job = layout->block_begin[r->position]; job < layout->block_begin[r->position + 1]; job++)
        hybrid->choice[job] = p->choice[job];
    return CALM_OK;
}

/* Sets every plan's choice in the next block, by the rules of the guard's trials (guard.c). */
static calm_status choose(calm_ctx *ctx, calm_run *p)
{
    const calm_guard_rows *r = p->guard_rows;
    const calm_layout *layout = calm_model_layout(p->in.model);
    calm_pool pool;
    CALM_SCOPED_RESULTS(ctx);
    /* Released before the block is loaded, because the arrays cover the whole layout, which is large for mixtures. */
    CALM_TRY(choose_hybrid(ctx, p, &r->plans[0]));
    CALM_TRY(calm_pool_of_run(ctx, p, &p->in.recipe->selection, &pool));
    pool.pending = false;    /* the units of this block are complete */
    for (size_t i = 1; i < r->n; i++) {
        calm_solution solution;
        size_t *choice;
        if (r->plans[i].of_class == CALM_GUARD_GONE)
            continue;
        /* Substitutes in a block do not depend on other blocks, unless the entry fails in all; then there is no plan.
         * */
        CALM_TRY(calm_solve_uniform(ctx, &pool, &p->scope, i - 1, &solution));
        CALM_TRY(calm_run_spread(ctx, p, &pool, &solution, &choice));
        for (size_t job = layout->block_begin[r->position]; job < layout->block_begin[r->position + 1]; job++)
            r->plans[i].choice[job] = choice[job];
    }
    return CALM_OK;
}

calm_status calm_guard_rows_pass(calm_ctx *ctx, calm_run *p, size_t block)
{
    while (p->guard_rows && p->guard_rows->position <= block) {
        if (p->guard_rows->plans[0].choice)    /* else the plans are complete */
            CALM_TRY(choose(ctx, p));
        CALM_TRY(calm_guard_rows_cross(ctx, p));
        calm_memory_note(ctx, &p->held.capture);
    }
    return CALM_OK;
}

bool calm_guard_rows_are_past(const calm_run *p, size_t block)
{
    const calm_guard_rows *r = p->guard_rows;
    if (!r)    /* without a guard, only choice and export follow */
        return !p->computed && !p->in.guard.n;
    /* Codes that were computed again for a plan without states stay until it is measured. */
    return r->position > block && (!p->computed || !r->identity[0]);
}

calm_status calm_guard_rows_finish(calm_ctx *ctx, calm_run *p)
{
    calm_guard_rows *r = p->guard_rows;
    if (!r)
        return CALM_OK;
    CALM_TRY(calm_guard_rows_pass(ctx, p, calm_model_config(p->in.model)->n_blocks - 1));
    CALM_SCOPED_RESULTS(ctx);
    /* The keys identify the plans among the guard's trials. */
    for (size_t i = 0; i < r->n; i++) {
        calm_plan plan;
        if (r->plans[i].of_class == CALM_GUARD_GONE || !r->plans[i].choice)
            continue;
        CALM_TRY(calm_plan_of_choice(ctx, &p->in, r->plans[i].choice, &plan));
        CALM_TRY(calm_plan_key(ctx, &plan, r->plans[i].key));
    }
    r->finished = true;
    return CALM_OK;
}
