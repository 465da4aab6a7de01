/* Computes codes of rejected candidates again for plans that are measured after the codes were dropped. */
#include "ptq/choose/choose_impl.h"

#include <string.h>

static bool lacks_codes(const calm_plan *plan)
{
    bool lacks = false;
    for (size_t j = 0; j < plan->n_jobs; j++)
        lacks |= plan->jobs[j].quantized && ((const calm_candidate *)plan->jobs[j].source)->dropped;
    return lacks;
}

/* Opens hidden states for the plans among of[0 .. n) that lack codes; NULL: all codes are computed at once.  This is so
 * for a single plan, which may be the result, and for plans with learned blocks, whose candidates are not the pool's.
 * */
static calm_status open_lacking(calm_ctx *ctx, calm_run *p, const calm_trial *trials, const size_t *of, size_t n,
                                const calm_windows *windows, calm_guard_rows **out)
{
    size_t lacking = 0;
    bool learned = false;
    *out = NULL;
    for (size_t i = 0; i < n; i++) {
        lacking += lacks_codes(&trials[of[i]].plan);
        learned |= trials[of[i]].plan.blocks != NULL;
    }
    if (lacking < 2 || learned || p->guard_rows || !p->choosing->drops || !calm_guard_streams(p))
        return CALM_OK;
    CALM_TRY(calm_guard_rows_open(ctx, p, windows, lacking, out));
    for (size_t i = 0; i < n; i++) {
        const calm_trial *trial = &trials[of[i]];
        calm_guard_plan *plan = &(*out)->plans[lacking - 1];
        if (!lacks_codes(&trial->plan))
            continue;
        plan->plan = &trial->plan;
        memcpy(plan->key, trial->key, sizeof plan->key);
        lacking--;
    }
    return CALM_OK;
}

calm_status calm_guard_rows_recompute(calm_ctx *ctx, calm_run *p, const calm_trial *trials, const size_t *of,
                                      size_t n, const calm_windows *windows)
{
    calm_guard_rows *r;
    CALM_TRY(calm_guard_rows_finish(ctx, p));
    CALM_TRY(open_lacking(ctx, p, trials, of, n, windows, &r));
    /* Plans with hidden states need no codes. */
    for (size_t i = 0; i < n; i++)
        if (!calm_guard_rows_of(p, trials[of[i]].key, windows, &(calm_subject){0}))
            calm_recompute_mark(&trials[of[i]].plan);
    /* calm_drop_block_codes now runs the plans through each block that is computed again. */
    p->guard_rows = r ? r : p->guard_rows;
    CALM_TRY(calm_recompute_marked(ctx, p));
    return r ? calm_guard_rows_finish(ctx, p) : CALM_OK;
}
