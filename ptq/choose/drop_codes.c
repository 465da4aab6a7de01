/* Drops codes of rejected candidates from the store: block by block if nothing later needs them, else when the run has
 * its results.
 *
 * Rows, scores and digests stay, so choosing needs no codes, and codes that are needed again are recomputed
 * (recompute.c). */
#include "ptq/choose/choose_impl.h"
#include "store/blob.h"

/* Lists the candidates of the result; the store itself keeps those of choices. */
static calm_status list_result(calm_ctx *ctx, const calm_plan *plan, int64_t **ids, size_t *n)
{
    *n = 0;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, *ids, plan->n_jobs));
    for (size_t j = 0; j < plan->n_jobs; j++)
        if (plan->jobs[j].quantized)
            (*ids)[(*n)++] = ((const calm_candidate *)plan->jobs[j].source)->id;
    return CALM_OK;
}

/* Lists the candidates to keep: those chosen in blocks up to `block`, and all of later blocks.  After all candidates
 * were computed, it also lists those that this block has not just computed again. */
static calm_status list_open(calm_ctx *ctx, const calm_run *p, size_t block, int64_t **ids, size_t *n)
{
    const calm_layout *layout = calm_model_layout(p->in.model);
    const size_t n_candidates = layout->n_jobs * p->in.recipe->n_pool;
    *n = 0;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, *ids, n_candidates));
    for (size_t i = 0; i < n_candidates; i++) {
        const size_t job = i / p->in.recipe->n_pool, entry = i % p->in.recipe->n_pool;
        const bool stays = p->computed && (layout->jobs[job].block != block || !p->in.candidates[i].todo);
        if (p->in.candidates[i].id && (stays || layout->jobs[job].block > block || p->choice[job] == entry))
            (*ids)[(*n)++] = p->in.candidates[i].id;
    }
    return CALM_OK;
}

static calm_status drop_rejected(calm_ctx *ctx, calm_run *p, size_t block)
{
    const calm_layout *layout = calm_model_layout(p->in.model);
    calm_store_dropped dropped;
    int64_t *keep;
    size_t n;
    if (!p->computed)
        CALM_TRY(calm_run_choose_block(ctx, p, block));
    CALM_TRY(list_open(ctx, p, block, &keep, &n));
    CALM_TRY(calm_store_drop_rejected(ctx, p->in.store, p->result.run_id, keep, n, &dropped));
    p->choosing->dropped.n += dropped.n;
    p->choosing->dropped.bytes += dropped.bytes;
    for (size_t i = layout->block_begin[block] * p->in.recipe->n_pool;
         i < layout->block_begin[block + 1] * p->in.recipe->n_pool; i++) {
        calm_candidate *candidate = &p->in.candidates[i];
        candidate->dropped = candidate->blob[0] && !calm_blob_present(calm_store_blobs(p->in.store), candidate->blob,
                                                                      candidate->blob_bytes);
    }
    return CALM_OK;
}

calm_status calm_drop_block_codes(calm_ctx *ctx, calm_run *p, size_t block)
{
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(calm_guard_rows_pass(ctx, p, block));
    if (p->choosing->drops && calm_choice_is_final(p) && calm_guard_rows_are_past(p, block) &&
        drop_rejected(ctx, p, block) != CALM_OK)
        calm_ctx_clear_failure(ctx);    /* choice and drop are repeated at the end, which reports the failure */
    return CALM_OK;
}

calm_status calm_drop_rejected_codes(calm_ctx *ctx, const calm_run *p)
{
    const calm_recipe *recipe = p->in.recipe;
    calm_store_dropped dropped;
    int64_t *keep;
    size_t n, n_dropped;
    CALM_SCOPED_SCRATCH(ctx);
    /* With several budgets there is no choice yet; a later run may choose any of the plans. */
    if (recipe->keep_candidates || recipe->n_budgets > 1)
        return CALM_OK;
    CALM_TRY(list_result(ctx, &p->result.plan, &keep, &n));
    if (calm_store_drop_rejected(ctx, p->in.store, p->result.run_id, keep, n, &dropped) != CALM_OK) {
        /* Only a warning, because the results are already written. */
        calm_log(ctx, CALM_LOG_WARNING, "%s; the store still has codes of rejected candidates", ctx->message);
        calm_ctx_clear_failure(ctx);
    } else if ((n_dropped = dropped.n + p->choosing->dropped.n) > 0) {
        calm_log(ctx, CALM_LOG_INFO, "dropped the codes of %zu rejected candidates: %.1f MB (`keep_candidates` "
                 "keeps them)", n_dropped, (double)(dropped.bytes + p->choosing->dropped.bytes) / 1e6);
    }
    return CALM_OK;
}
