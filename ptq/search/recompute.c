/* Computes the codes of rejected candidates again when a plan needs them; drop_codes.c deletes them.
 *
 * Their rows keep scores and digests, so that choosing needs no codes.  Candidates are computed again as missing ones
 * are, block by block from the same rows, and so have the same bytes. */
#include <string.h>

#include "ptq/search/search_impl.h"
#include "ptq/state/run_pool.h"
#include "store/blob.h"

static size_t n_candidates(const calm_run *p)
{
    return calm_model_layout(p->in.model)->n_jobs * p->in.recipe->n_pool;
}

/* ---- which candidates ---- */

void calm_recompute_mark(const calm_plan *plan)
{
    for (size_t j = 0; j < plan->n_jobs; j++) {
        /* Candidates of a learned block are not in the pool, and their codes are never deleted. */
        const calm_candidate *candidate = plan->jobs[j].source;
        if (plan->jobs[j].quantized && candidate->dropped)
            ((calm_candidate *)(uintptr_t)candidate)->wanted = true;
    }
}

/* Marks the wanted candidates as `todo`, unless their codes exist again because an equal candidate was computed.
 * Returns the number of marked candidates. */
static size_t list_wanted(calm_run *p)
{
    size_t n = 0;
    for (size_t i = 0; i < n_candidates(p); i++) {
        calm_candidate *candidate = &p->in.candidates[i];
        candidate->todo = candidate->wanted && !calm_blob_present(calm_store_blobs(p->in.store), candidate->blob,
                                                                  candidate->blob_bytes);
        candidate->dropped &= candidate->todo || !candidate->wanted;
        candidate->wanted = false;
        n += candidate->todo;
    }
    return n;
}

/* ---- computing again ---- */

/* Fills the list of blocks to run and the number of candidates in them. */
static calm_status count(calm_ctx *ctx, const calm_run *p, calm_missing *out)
{
    const calm_layout *layout = calm_model_layout(p->in.model);
    const size_t n_blocks = calm_model_config(p->in.model)->n_blocks;
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->activations, n_blocks));
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->blocks, n_blocks));
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->any, n_blocks));
    for (size_t i = 0; i < n_candidates(p); i++) {
        const size_t block = layout->jobs[i / p->in.recipe->n_pool].block;
        if (!p->in.candidates[i].todo)
            continue;
        out->any[block] = true;
        out->n_candidates++;
        out->end = calm_size_max(out->end, block + 1);
    }
    return CALM_OK;
}

/* Fails if a candidate fails now: the plans that need it were made with its result. */
static calm_status check(calm_ctx *ctx, const calm_run *p)
{
    for (size_t i = 0; i < n_candidates(p); i++) {
        const calm_candidate *candidate = &p->in.candidates[i];
        if (candidate->todo && candidate->failure)
            return calm_fail(ctx, CALM_ENUMERIC, "%s: %s had a result, and computed again it has none: %s",
                             calm_model_layout(p->in.model)->jobs[i / p->in.recipe->n_pool].name,
                             p->in.recipe->pool[i % p->in.recipe->n_pool].name, candidate->failure);
    }
    return CALM_OK;
}

calm_status calm_recompute_marked(calm_ctx *ctx, calm_run *p)
{
    const size_t n_jobs = calm_model_layout(p->in.model)->n_jobs;
    calm_missing missing = {0};
    size_t *choice;
    if (!list_wanted(p))
        return CALM_OK;
    /* With a quantized prefix blocks choose again, from a part of the pool; the run's choice is restored. */
    CALM_TRY(CALM_NEW(ctx, ctx->out, choice, n_jobs));
    memcpy(choice, p->choice, n_jobs * sizeof *choice);
    CALM_TRY(count(ctx, p, &missing));
    CALM_TRY(calm_recompute_prefix(ctx, p, &missing));
    calm_log(ctx, CALM_LOG_INFO, "the codes of %zu rejected candidates are not in %s: they are computed again, in "
             "blocks up to %zu", missing.n_candidates, p->in.recipe->store, missing.end - 1);
    const calm_status status = calm_run_missing(ctx, p, &missing);
    memcpy(p->choice, choice, n_jobs * sizeof *choice);
    CALM_TRY(status);
    return check(ctx, p);
}

/* Returns the candidate of a key; NULL: the recipe does not give it. */
static calm_candidate *find(const calm_run *p, const char *key)
{
    calm_candidate *found = NULL;
    for (size_t i = 0; i < n_candidates(p); i++)
        found = strcmp(p->in.candidates[i].key, key) == 0 ? &p->in.candidates[i] : found;
    return found;
}

calm_status calm_recompute_keys(calm_ctx *ctx, calm_run *p, const char *const *keys, size_t n)
{
    for (size_t i = 0; i < n_candidates(p); i++) {
        calm_candidate *candidate = &p->in.candidates[i];
        calm_store_candidate row = {0};
        if (candidate->key[0])    /* candidates in blocks that stay float have no key */
            CALM_TRY(calm_store_candidate_find(ctx, p->in.store, candidate->key, &row, &candidate->id));
        calm_run_adopt(candidate, &row);
        candidate->skipped = !candidate->id;
        candidate->failure = candidate->id ? candidate->failure : CALM_NOT_TRIED;
        candidate->dropped = row.blob && !calm_blob_present(calm_store_blobs(p->in.store), row.blob,
                                                            (size_t)row.blob_bytes);
    }
    for (size_t i = 0; i < n; i++) {
        calm_candidate *candidate = find(p, keys[i]);
        if (!candidate)
            return calm_fail(ctx, CALM_EMISMATCH, "its recipe gives other candidates now: a text, the model or the "
                             "algorithms are not those of then");
        candidate->wanted = true;
    }
    p->surveyed = p->computed = true;
    CALM_TRY(calm_run_rescope(ctx, p));
    return calm_recompute_marked(ctx, p);
}
