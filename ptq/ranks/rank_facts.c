/* The work of each rank in a run and its idle time, for the report. */
#include <math.h>
#include <stdio.h>

#include "ptq/base/threads.h"
#include "ptq/ranks/ranks.h"

/* A rank's summary of its blocks: the format to write it, and the format with which rank 0 reads it. */
#define SAYS  "%zu %.9g %.9g"
#define READS "%zu %lf %lf"

/* On rank 0, reads the summaries of all ranks, in the run's arena. */
static calm_status collect_facts(calm_ctx *ctx, calm_run *p)
{
    const size_t n = (size_t)calm_cluster_ranks(p->cluster);
    CALM_TRY(CALM_NEW(ctx, p->arena, p->result.ranks, n));
    p->result.n_ranks = n;
    for (size_t r = 0; r < n; r++) {
        calm_rank_facts *facts = &p->result.ranks[r];
        const char *said = calm_cluster_summary(p->cluster, (int)r, &facts->host);
        CALM_TRY(calm_strf(ctx, p->arena, (char **)&facts->host, "%s", facts->host));
        if (sscanf(said, READS, &facts->blocks, &facts->block_seconds, &facts->row_seconds) != 3)
            return calm_fail(ctx, CALM_EFORMAT, "rank %zu (on %s) does not say what it did", r, facts->host);
        calm_log(ctx, CALM_LOG_INFO, "rank %zu (on %s): %zu blocks in %.1f s, %.1f s of them waiting for rows", r,
                 facts->host, facts->blocks, facts->block_seconds, facts->row_seconds);
    }
    return CALM_OK;
}

calm_status calm_division_collect(calm_ctx *ctx, calm_run *p, const calm_missing *missing)
{
    char summary[128];
    size_t n = 0;
    if (!p->cluster)
        return CALM_OK;
    for (size_t b = 0; b < missing->end; b++)
        n += missing->any[b] && calm_division_mine(p, missing, b);
    const double done = calm_seconds();
    snprintf(summary, sizeof summary, SAYS, n, done - p->ranks->divided, p->ranks->waited);
    calm_cluster_place(p->cluster, "what follows the blocks");
    CALM_TRY(calm_cluster_done(ctx, p->cluster, summary));
    if (calm_cluster_rank(p->cluster) != 0)
        return CALM_OK;
    p->ranks->waited += calm_seconds() - done;
    return collect_facts(ctx, p);
}

calm_status calm_division_account(calm_ctx *ctx, calm_run *p)
{
    CALM_SCOPED_TEXT(all);
    if (!p->result.n_ranks)
        return CALM_OK;
    p->result.divided_seconds = calm_seconds() - p->ranks->divided;
    calm_text_printf(&all, "%zu, idle", p->result.n_ranks);
    for (size_t r = 0; r < p->result.n_ranks; r++) {
        calm_rank_facts *facts = &p->result.ranks[r];
        facts->asked_seconds = r ? calm_cluster_worked(p->cluster, (int)r) : NAN;
        facts->idle_seconds = p->result.divided_seconds - (facts->block_seconds - facts->row_seconds) -
                              facts->asked_seconds;
        if (r == 0)    /* rank 0 works without being asked */
            facts->idle_seconds = p->ranks->waited + calm_cluster_waited(p->cluster);
        calm_text_printf(&all, "%s %.1f %%", r ? "," : "", 100 * facts->idle_seconds / p->result.divided_seconds);
    }
    calm_text_printf(&all, " of %.1f s", p->result.divided_seconds);
    CALM_TRY(calm_text_check(ctx, &all));
    return calm_store_environment_put(ctx, p->in.store, p->result.run_id, "ranks", all.data);
}
