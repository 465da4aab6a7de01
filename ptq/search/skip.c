/* Candidates that are not tried (--effort light): smoothing where a quantized input has no outliers. */
#include <math.h>

#include "ptq/search/search_impl.h"
#include "ptq/state/run_pool.h"

size_t calm_run_skip(calm_ctx *ctx, const calm_run *p, size_t job)
{
    size_t n = 0;
    /* NaN without --effort light, or while the crest is unknown: the loop below then does nothing. */
    const double crest = p->in.recipe->skip_smoothing ? calm_run_crest(ctx, p, job) : NAN;
    for (size_t entry = 0; entry < p->in.recipe->n_pool && crest < CALM_LIGHT_CREST; entry++) {
        const calm_entry *of = &p->in.recipe->pool[entry];
        calm_candidate *candidate = calm_candidate_at(&p->in, job, entry);
        /* Only what smooths is left out, and never what a pin asks for.  A crest says what a scale per token costs the
         * input's codes; of float inputs there are none, and AWQ's scales are about the weights. */
        if (!calm_algorithm_smooths(of->algorithm) || !of->scheme.act_bits || candidate->skipped ||
            calm_run_pins(p, job, entry))
            continue;
        /* One that the store has is left out too: results must not depend on what earlier runs computed. */
        n += candidate->todo;
        candidate->todo = false;
        candidate->skipped = true;
        candidate->failure = CALM_NOT_TRIED;
    }
    return n;
}
