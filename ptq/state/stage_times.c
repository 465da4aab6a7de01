/* Time of a run by stage. */
#include "ptq/state/stage_times.h"

#include "ptq/state/state.h"

/* Adds the candidates' time, divided among the pool's entries. */
static size_t add_entries(const calm_time *all, const calm_recipe *recipe, const double *pool_seconds,
                          calm_stage_time *out)
{
    double sum = 0;
    for (size_t i = 0; i < recipe->n_pool; i++)
        sum += pool_seconds[i];
    for (size_t i = 0; i < recipe->n_pool; i++) {
        const double share = sum > 0 ? pool_seconds[i] / sum : 1 / (double)recipe->n_pool;
        out[i] = (calm_stage_time){recipe->pool[i].name, {all->wall * share, all->cpu * share}};
    }
    return recipe->n_pool;
}

calm_status calm_run_times_list(calm_ctx *ctx, const calm_times *times, const calm_recipe *recipe,
                                  const double *pool_seconds, calm_stage_time **out, size_t *n)
{
    *n = 0;
    CALM_TRY(CALM_NEW(ctx, ctx->out, *out, CALM_N_TIMES + recipe->n_pool));
    for (calm_time_stage s = 0; s < CALM_N_TIMES; s++)
        if (s == CALM_TIME_ALGORITHMS)
            *n += add_entries(&times->stage[s], recipe, pool_seconds, *out + *n);
        else
            (*out)[(*n)++] = (calm_stage_time){calm_time_stage_name(s), times->stage[s]};
    return CALM_OK;
}

calm_status calm_run_times_forecast(calm_ctx *ctx, const struct calm_run *run, const calm_stage_time *forecast,
                                    size_t n)
{
    CALM_SCOPED_TRANSACTION(ctx, run->in.store);
    for (size_t i = 0; i < n; i++)
        CALM_TRY(calm_store_stage_forecast(ctx, run->in.store, run->result.run_id, (int64_t)i,
                                           forecast[i].time.wall));
    return calm_store_commit(ctx, run->in.store);
}
