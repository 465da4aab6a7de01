/* Bytes of the blobs of all candidates, or of the chosen ones, block by block. */
#include "ptq/estimate/estimate_impl.h"

#include <math.h>

#include "ptq/plan/assemble.h"
#include "ptq/quant/qblob.h"
#include "ptq/search/search.h"
#include "ptq/choose/choose.h"

double calm_forecast_blob_bytes(const calm_run *p, size_t job, size_t entry)
{
    const calm_layout *layout = calm_model_layout(p->in.model);
    const calm_entry *of = &p->in.recipe->pool[entry];
    const calm_job_ref *ref = &layout->jobs[job];
    const calm_scheme asked = calm_scheme_at(&of->scheme, &ref->place), scheme = calm_scheme_for(&asked, ref->in);
    const unsigned caps = calm_algorithm_caps(of->algorithm);
    const unsigned extras = (caps & CALM_SETS_IN_SCALE && calm_run_absorbs(p, job) ? CALM_QJOB_SCALED : 0u) |
                            (caps & CALM_SETS_BIAS ? CALM_QJOB_BIASED : 0u);
    return (double)calm_qblob_bytes(&scheme, ref->out, ref->in, calm_assembled_extras(layout, ref, extras));
}

/* Bytes of blobs of jobs: of all entries, and of the largest and second largest entry, which are the most that hybrid
 * and uniform result need. */
typedef struct blobs {
    double all, first, second;
} blobs;

static void add(const calm_run *p, size_t job, blobs *sum)
{
    double first = 0, second = 0;
    for (size_t i = 0; i < p->in.recipe->n_pool; i++) {
        const double bytes = calm_forecast_blob_bytes(p, job, i);
        sum->all += bytes;
        second = fmax(second, fmin(first, bytes));
        first = fmax(first, bytes);
    }
    sum->first += first;
    sum->second += second;
}

/* Sums all blocks; *rejected: bytes of the rejected candidates in the block with the most. */
static blobs add_blocks(const calm_run *p, double *rejected)
{
    const calm_layout *layout = calm_model_layout(p->in.model);
    blobs total = {0};
    *rejected = 0;
    for (size_t b = p->in.first_block; b < p->in.end_block; b++) {
        blobs block = {0};
        for (size_t job = layout->block_begin[b]; job < layout->block_begin[b + 1]; job++)
            add(p, job, &block);
        *rejected = fmax(*rejected, block.all - block.first);
        total = (blobs){total.all + block.all, total.first + block.first, total.second + block.second};
    }
    return total;
}

bool calm_forecast_follows(const calm_run *p)
{
    double rejected;
    if (!calm_guard_can_stream(p))
        return false;
    const blobs total = add_blocks(p, &rejected);
    return total.first + rejected + calm_guard_rows_file_bytes(p) < total.all;
}

void calm_forecast_store(const calm_run *p, double *running, double *kept)
{
    const calm_recipe *recipe = p->in.recipe;
    const bool follows = calm_guard_streams(p), sheds = follows || (calm_choice_is_final(p) && !p->in.guard.n);
    /* Without guard windows, or with keep_hybrid, only the hybrid is needed. */
    const bool one = !p->in.guard.n || recipe->keep_hybrid;
    double rejected;
    const blobs total = add_blocks(p, &rejected);
    const double learned = total.first * ((recipe->learner != NULL) + (recipe->tune_steps > 0));
    const double rows = follows ? calm_guard_rows_file_bytes(p) : 0;
    *kept = learned + (recipe->keep_candidates ? total.all : one ? total.first : total.first + total.second);
    /* If the run deletes rejected candidates, those of one block exist at a time, until the block has chosen.  The
     * guard's hidden states are deleted before a uniform result is computed again and before learning. */
    *running = sheds ? fmax(*kept, total.first + rejected + rows) : total.all + learned;
}
