/* Sums and look-ups over a pool. */
#include "ptq/plan/pool.h"

#include <math.h>
#include <string.h>

/* The rule "smooth iff crest > 6" agreed with CKA in 23 of 24 jobs at W4A4 (docs/method.md section 5). */
#define SMOOTH_CREST 6.0

calm_status calm_pool_index(calm_ctx *ctx, calm_pool *pool)
{
    pool->n_units = 0;
    CALM_TRY(CALM_NEW(ctx, ctx->out, pool->unit_begin, pool->n_jobs + 1));
    for (size_t job = 0; job < pool->n_jobs; job++)
        if (job == 0 || strcmp(pool->jobs[job].unit, pool->jobs[job - 1].unit) != 0)
            pool->unit_begin[pool->n_units++] = job;
    pool->unit_begin[pool->n_units] = pool->n_jobs;
    return CALM_OK;
}

const calm_pool_cell *calm_pool_cell_at(const calm_pool *pool, size_t job, size_t entry)
{
    return &pool->cells[job * pool->n_entries + entry];
}

const char *calm_pool_unit(const calm_pool *pool, size_t unit)
{
    return pool->jobs[pool->unit_begin[unit]].unit;
}

/* An entry is usable for a unit only if it succeeded on all of the unit's jobs.  A cell without a candidate was skipped
 * by a light run and counts as failed, unless the run will still compute it. */
const char *calm_pool_failure(const calm_pool *pool, size_t unit, size_t entry)
{
    const char *failure = NULL;
    for (size_t job = pool->unit_begin[unit]; job < pool->unit_begin[unit + 1] && !failure && !pool->pending; job++) {
        const calm_pool_cell *cell = calm_pool_cell_at(pool, job, entry);
        failure = cell->failure ? cell->failure : cell->id ? NULL : CALM_NOT_TRIED;
    }
    return failure;
}

bool calm_pool_is_expert(const calm_pool *pool, size_t unit)
{
    return pool->unit != CALM_UNIT_BLOCK && pool->jobs[pool->unit_begin[unit]].expert;
}

double calm_pool_weights(const calm_pool *pool, size_t begin, size_t end)
{
    double weights = 0;
    for (size_t job = begin; job < end; job++)
        weights += (double)pool->jobs[job].out * (double)pool->jobs[job].in;
    return weights;
}

const calm_scheme *calm_pool_scheme(const calm_pool_job *job, const calm_scheme *scheme)
{
    return job->scheme ? job->scheme : scheme;
}

double calm_pool_bits(const calm_pool *pool, size_t begin, size_t end, const calm_scheme *scheme)
{
    double bits = 0;
    for (size_t job = begin; job < end; job++) {
        const size_t out = pool->jobs[job].out, in = pool->jobs[job].in;
        const calm_scheme *own = calm_pool_scheme(&pool->jobs[job], scheme);
        bits += calm_scheme_bits_per_weight(own, out, in) * (double)out * (double)in;
    }
    return bits;
}

const char *calm_pool_advice(const calm_pool *pool, size_t job, size_t entry, bool *disagrees)
{
    const double crest = pool->jobs[job].crest;
    bool any_smooths = false;
    *disagrees = false;
    for (size_t i = 0; i < pool->n_entries; i++)
        any_smooths |= pool->entries[i].smooths;
    if (!any_smooths || !pool->entries[entry].scheme.act_bits || isnan(crest))
        return NULL;
    /* Channels far above the others determine a token's scale and leave few codes to the others; only then moving them
     * into the weights helps. */
    const bool smooth = crest > SMOOTH_CREST;
    *disagrees = pool->entries[entry].smooths != smooth;
    return smooth ? "smooth" : "plain";
}
