/* The guard's rule. */
#include "ptq/choose/choose_impl.h"

#include <string.h>

/* Returns the measured uniform run with the least loss, of all or of those that may replace the hybrid; 0: none.  All
 * uniform runs are equally simple, so the least mean loss decides between them.  A uniform run may replace the hybrid
 * if its loss is lower, or higher by at most one standard error. */
static size_t least_uniform(const calm_trial *trials, size_t n, bool all)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (trials[i].id && (all || trials[i].delta < 0 || trials[i].delta <= trials[i].se) &&
            (best == 0 || calm_measure_loss(&trials[i].measure) < calm_measure_loss(&trials[best].measure)))
            best = i;
    return best;
}

size_t calm_guard_pick(const calm_trial *trials, size_t n)
{
    return least_uniform(trials, n, false);
}

size_t calm_guard_least_uniform(const calm_trial *trials, size_t n)
{
    return least_uniform(trials, n, true);
}
