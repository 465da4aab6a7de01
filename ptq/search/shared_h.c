/* Data that the candidates of a job share: H in place of the job's Gram matrix, and a factor of its inverse.
 *
 * If candidates run one after the other, there is memory for one factor.  A chain with other factors (restarts) may
 * overwrite it; the next candidate that needs the shared factor computes it again.  If candidates run in parallel and
 * two or more read the factor, it is computed before them; other factors have separate memory. */
#include "ptq/search/search_impl.h"

#include "algorithms/inverse.h"
#include "ptq/base/threads.h"

double calm_run_damping(const calm_recipe *recipe)
{
    double damp = 0;
    for (size_t i = 0; i < recipe->n_pool && damp == 0; i++)
        damp = calm_algorithm_damping(recipe->pool[i].algorithm);
    return damp;
}

double calm_run_factor(const calm_recipe *recipe)
{
    double damp = 0;
    for (size_t i = 0; i < recipe->n_pool && damp == 0; i++)
        damp = calm_algorithm_factor(recipe->pool[i].algorithm);
    return damp;
}

bool calm_run_reads_factor(const calm_recipe *recipe, const calm_algorithm *algorithm)
{
    const double damp = calm_algorithm_factor(algorithm);
    return damp > 0 && damp == calm_run_factor(recipe);
}

/* The jobs of a slice. */
typedef struct share_job {
    const calm_block_work *work;
    const calm_work **first;    /* first item of each job */
} share_job;

/* Task: computes H of one job, and its factor. */
static calm_status make_share(calm_ctx *ctx, size_t index, void *user)
{
    const share_job *job = user;
    const calm_work *item = job->first[index];
    const calm_run *p = job->work->p;
    const calm_job_ref *ref = &calm_model_layout(p->in.model)->jobs[item->job];
    const calm_stats *stats = &item->from->capture->job[ref->kind].stats;
    calm_job_share *share = item->share;
    calm_status status = CALM_OK;
    ctx->out = &share->arena;
    if (!share->hessian.h && stats->gram)
        /* In place of the capture's matrix; from now on all read H. */
        status = calm_hessian_make(ctx, ref->name, ref->in, stats, (double *)(uintptr_t)stats->gram,
                                   calm_run_damping(p->in.recipe), &share->hessian);
    if (status == CALM_ENUMERIC) {    /* candidates that need H report the failure */
        calm_ctx_clear_failure(ctx);
        status = CALM_OK;
    }
    ctx->out = &share->factor;
    if (status == CALM_OK && share->hessian.h && !share->hessian.inverse && share->n_readers > 1 &&
        p->memory.knobs.candidates_at_once != 1)
        status = calm_hessian_factor(ctx, ref->name, ref->in, calm_run_factor(p->in.recipe), &share->hessian);
    if (!share->hessian.inverse)    /* not shared, or it failed: each chain computes a separate factor */
        calm_arena_clear(&share->factor);
    ctx->out = NULL;
    return status;
}

calm_status calm_run_share_make(calm_ctx *ctx, const calm_block_work *work)
{
    share_job job = {work, NULL};
    size_t n = 0;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, job.first, work->n));
    for (size_t i = 0; i < work->n; i++)    /* items of a job are neighbours, and those of v follow q and k */
        if (i == 0 || work->items[i].share != work->items[i - 1].share)
            job.first[n++] = &work->items[i];
    return calm_parallel_for(ctx, n, make_share, &job);
}

static void drop_factor(calm_job_share *share)
{
    share->hessian.inverse = NULL;
    calm_arena_clear(&share->factor);
}

calm_status calm_run_share_enter(calm_ctx *ctx, const calm_block_work *work, calm_work *item, const calm_hessian **out)
{
    calm_job_share *share = item->share;
    calm_hessian *hessian = &share->hessian;
    const bool alone = work->p->memory.knobs.candidates_at_once == 1;
    *out = hessian->h ? hessian : NULL;
    /* There is no memory for the shared factor, a copy of H and the copy's factor. */
    if (alone && calm_algorithm_copies(item->used, hessian->damp))
        drop_factor(share);
    if (!alone || !item->reads || !hessian->h || hessian->inverse)
        return CALM_OK;
    hessian->lent = true;
    const calm_job_ref *ref = &calm_model_layout(work->p->in.model)->jobs[item->job];
    return calm_inverse_new(ctx, &share->factor, ref->name, ref->in, &hessian->inverse);
}

void calm_run_share_leave(calm_work *item)
{
    size_t left;
    if (!item->reads)
        return;
/* Sequentially consistent: the last reader frees the factor after all others have read it. */
#pragma omp atomic capture seq_cst
    left = --item->share->n_readers;
    if (left == 0)
        drop_factor(item->share);
}

void calm_run_share_clear(calm_captured *captured, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < CALM_N_JOBS; j++) {
            calm_arena_clear(&captured[i].share[j].factor);
            calm_arena_clear(&captured[i].share[j].arena);
        }
}
