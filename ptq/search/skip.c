/* Candidates that --effort light does not try: smoothing of quantized inputs without outliers. */
#include <math.h>

#include "ptq/search/search_impl.h"
#include "ptq/state/run_pool.h"

size_t calm_run_skip(calm_ctx *ctx, const calm_run *p, size_t job)
{
    size_t n = 0;
    /* NaN without --effort light, or if the crest is unknown: then nothing is skipped. */
    const double crest = p->in.recipe->skip_smoothing ? calm_run_crest(ctx, p, job) : NAN;
    for (size_t entry = 0; entry < p->in.recipe->n_pool && crest < CALM_LIGHT_CREST; entry++) {
        const calm_entry *of = &p->in.recipe->pool[entry];
        calm_candidate *candidate = calm_candidate_at(&p->in, job, entry);
        /* Only smoothing is skipped, and never what a pin needs.  The crest measures how badly one scale per token fits
         * the input's codes; float inputs have no codes, and AWQ's scales are for the weights. */
        if (!calm_algorithm_smooths(of->algorithm) || !of->scheme.act_bits || candidate->skipped ||
            calm_run_pins(p, job, entry))
            continue;
        /* Stored candidates are skipped too: results must not depend on what earlier runs computed. */
        n += candidate->todo;
        candidate->todo = false;
        candidate->skipped = true;
        candidate->failure = CALM_NOT_TRIED;
    }
    return n;
}
