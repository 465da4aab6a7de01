/* Weights of input columns from llama.cpp's importance matrix, instead of the calibration's mean squares. */
#include <stdio.h>

#include "ptq/export/gguf_layout.h"
#include "ptq/io/imatrix.h"
#include "ptq/state/inputs.h"

/* Finds the file's entry for a job's input.  Its linears read one input, so the first entry that exists counts; NULL:
 * the file has none, and *missing is its name. */
static calm_status find_entry(calm_ctx *ctx, const calm_inputs *in, const calm_job_ref *job,
                              const calm_imatrix_entry **out, const char **missing)
{
    const calm_layout *layout = calm_model_layout(in->model);
    *out = NULL;
    for (size_t i = job->first; i < job->first + job->n && !*out; i++) {
        calm_gguf_spot spot;
        char *name;
        CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%s.weight", layout->linears[i].module));
        CALM_TRY(calm_gguf_need_spot(ctx, "`calibration.imatrix`", in->model, name, &spot));
        *out = calm_imatrix_find(in->imatrix, spot.name);
        *missing = *out ? NULL : spot.name;
    }
    return CALM_OK;
}

/* Does calm_inputs_column_weights; *missing: the name that the file lacks, or NULL. */
static calm_status read_weights(calm_ctx *ctx, const calm_inputs *in, size_t job, double *squares, bool *any,
                                const char **missing)
{
    const calm_job_ref *ref = &calm_model_layout(in->model)->jobs[job];
    const bool expert = ref->expert >= 0;
    const calm_imatrix_entry *entry;
    *any = false;
    CALM_TRY(find_entry(ctx, in, ref, &entry, missing));
    if (!entry)
        return CALM_OK;
    return calm_imatrix_means(ctx, in->imatrix, entry, expert ? (size_t)ref->expert : 0,
                              expert ? calm_model_config(in->model)->moe.n_experts : 1, ref->in, squares, any);
}

calm_status calm_inputs_column_weights(calm_ctx *ctx, const calm_inputs *in, size_t job, double *squares, bool *any)
{
    const char *missing;
    CALM_SCOPED_RESULTS(ctx);
    return read_weights(ctx, in, job, squares, any, &missing);
}

/* Counts of what the file lacks. */
typedef struct lack {
    size_t n_jobs, n_missing, n_unseen;
    char missing[64];    /* name of the first missing entry */
} lack;

static calm_status look_at_job(calm_ctx *ctx, const calm_inputs *in, size_t job, lack *out)
{
    const char *missing;
    double *squares;
    bool any;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_SCOPED_RESULTS(ctx);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, squares, calm_model_layout(in->model)->jobs[job].in));
    CALM_TRY(read_weights(ctx, in, job, squares, &any, &missing));
    out->n_jobs++;
    out->n_unseen += !any && !missing;
    if (missing && !out->n_missing++)
        snprintf(out->missing, sizeof out->missing, "%s", missing);
    return CALM_OK;
}

static calm_status say_lack(calm_ctx *ctx, const calm_inputs *in, const lack *found)
{
    const char *path = calm_imatrix_path(in->imatrix);
    if (found->n_missing == found->n_jobs)
        return calm_fail(ctx, CALM_EFORMAT, "%s: expected entries as %s, found none of this model among %zu, the first "
                         "of them %s", path, found->missing, calm_imatrix_count(in->imatrix),
                         calm_imatrix_at(in->imatrix, 0)->name);
    if (found->n_missing)
        calm_log(ctx, CALM_LOG_WARNING, "%s: no entry of the inputs of %zu of %zu jobs, the first %s; there the "
                 "calibration's own mean squares count", path, found->n_missing, found->n_jobs, found->missing);
    if (found->n_unseen)
        calm_log(ctx, CALM_LOG_WARNING, "%s: no token reached the experts of %zu of %zu jobs; there the calibration's "
                 "own mean squares count", path, found->n_unseen, found->n_jobs);
    return CALM_OK;
}

calm_status calm_inputs_open_imatrix(calm_ctx *ctx, calm_inputs *in)
{
    lack found = {0};
    size_t first, end;
    if (!in->recipe->imatrix)
        return CALM_OK;
    CALM_TRY(calm_imatrix_open(ctx, in->recipe->imatrix, &in->imatrix));
    calm_inputs_jobs(in, &first, &end);
    for (size_t job = first; job < end; job++)
        if (!calm_inputs_keeps(in, job))
            CALM_TRY(look_at_job(ctx, in, job, &found));
    return say_lack(ctx, in, &found);
}
