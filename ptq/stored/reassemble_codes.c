/* Deleted codes of a stored run, computed again from the recipe document in the store. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "ptq/recipe/document.h"
#include "ptq/recipe/resolve.h"
#include "ptq/stored/stored_impl.h"
#include "ptq/run/run.h"
#include "ptq/tensor/blas_family.h"
#include "ptq/tensor/linalg.h"
#include "store/blob.h"

/* Returns true if the candidate is in the pool and not learned: only codes of such candidates are deleted. */
static bool is_of_pool(const calm_assembly *a, size_t job, const calm_candidate *candidate)
{
    bool found = false;
    for (size_t entry = 0; entry < a->recipe.n_pool; entry++)
        found |= calm_candidate_at(&a->in, job, entry) == candidate;
    return found;
}

/* Lists the keys of the plan's candidates without a blob; *first: the first such job, for messages. */
static calm_status list_absent(calm_ctx *ctx, const calm_assembly *a, const char ***keys, size_t *n, size_t *first)
{
    const calm_plan *plan = &a->result.plan;
    *n = 0;
    CALM_TRY(CALM_NEW(ctx, ctx->out, *keys, plan->n_jobs));
    for (size_t j = plan->n_jobs; j-- > 0;) {
        const calm_candidate *candidate = plan->jobs[j].source;
        if (!plan->jobs[j].quantized || candidate->failure || !is_of_pool(a, j, candidate) ||
            calm_blob_present(calm_store_blobs(a->in.store), candidate->blob, candidate->blob_bytes))
            continue;
        (*keys)[(*n)++] = candidate->key;
        *first = j;
    }
    return CALM_OK;
}

/* Reads the run's recipe, changed to compute candidates without writing output. */
static calm_status read_recipe(calm_ctx *ctx, const calm_assemble_options *o, const calm_assembly *a,
                               const calm_json *document, calm_recipe *out)
{
    calm_recipe_spec spec;
    char *where;
    CALM_TRY(calm_strf(ctx, ctx->out, &where, "%s: the recipe of run %lld", o->store, (long long)a->run.id));
    CALM_TRY(calm_document_check(ctx, where, document));
    CALM_TRY(calm_spec_init(ctx, &spec));
    CALM_TRY(calm_spec_read(ctx, document, where, &spec));
    spec.calib_dtype = (int)a->recipe.operands;    /* the document may say auto */
    spec.model = a->recipe.model.dir;
    spec.adapter = a->recipe.how.adapter;
    spec.store = o->store;
    memset(&spec.demanded, 0, sizeof spec.demanded);    /* the candidates' keys are a stronger check */
    CALM_TRY(calm_recipe_resolve(ctx, &spec, &o->events, out));
    out->output = NULL;
    out->eval_path = NULL;
    out->n_gates = 0;
    return CALM_OK;
}

/* Adds to the reason of a failure which codes it concerns. */
static calm_status explain(calm_ctx *ctx, const calm_assembly *a, size_t first, size_t n, calm_status status)
{
    const calm_plan_job *job = &a->result.plan.jobs[first];
    char why[CALM_MESSAGE_MAX], more[64] = "";
    memcpy(why, ctx->message, sizeof why);
    calm_ctx_clear_failure(ctx);
    if (n > 1)
        snprintf(more, sizeof more, " (and of %zu others)", n - 1);
    return calm_fail(ctx, status,
                     "%s: the codes of %s%s are not in %s, which drops those of candidates that lose, and cannot be "
                     "computed again: %.400s; calm quantize with the recipe of run %lld and `keep_candidates` computes "
                     "and keeps them",
                     calm_model_layout(a->in.model)->jobs[first].name, job->entry_name, more, a->recipe.store, why,
                     (long long)a->run.id);
}

/* Explains a failure by another kernel family, if it is another: keys of candidates depend on it. */
static calm_status blame_kernels(calm_ctx *ctx, const calm_assembly *a, calm_status status)
{
    const char *kernels = NULL, *have = calm_linalg_kernels();
    calm_ctx quiet = *ctx;    /* the failure stays if the store has no answer */
    calm_ctx_clear_failure(&quiet);
    calm_stored_run_kernels(&quiet, a->in.store, a->run.id, &kernels);
    if (!kernels || strcasecmp(kernels, have) == 0)
        return status;
    calm_ctx_clear_failure(ctx);
    return calm_fail(ctx, CALM_EMISMATCH, "run %lld computed with OpenBLAS's %s kernels, this process has %s (start it "
                     "with " CALM_BLAS_VARIABLE "=%s on a CPU that runs them)", (long long)a->run.id, kernels, have,
                     kernels);
}

/* Computes the codes again; the caller explains failures. */
static calm_status recall(calm_ctx *ctx, const calm_assemble_options *o, const calm_assembly *a,
                          const char *const *keys, size_t n)
{
    const calm_run_options how = {.command = o->command, .events = o->events};
    const calm_json *document = calm_json_get(a->run.recipe, "document");
    CALM_SCOPED(calm_scratch_scope, calm_scratch_leave) results = {ctx->out, calm_arena_save(ctx->out)};
    calm_recipe recipe;
    if (!document)
        return calm_fail(ctx, CALM_ENOTFOUND, "run %lld has no recipe document in the store", (long long)a->run.id);
    CALM_TRY(read_recipe(ctx, o, a, document, &recipe));
    const calm_status status = calm_run_recompute(ctx, &recipe, &how, a->run.id, keys, n);
    return status == CALM_EMISMATCH ? blame_kernels(ctx, a, status) : status;
}

calm_status calm_assembly_recompute(calm_ctx *ctx, const calm_assemble_options *o, const calm_assembly *a)
{
    const char **keys;
    size_t n, first = 0;
    CALM_TRY(list_absent(ctx, a, &keys, &n, &first));
    if (!n)
        return CALM_OK;
    const calm_status status = recall(ctx, o, a, keys, n);
    return status == CALM_OK || status == CALM_ENOMEM || status == CALM_ENOSPC ? status
                                                                                : explain(ctx, a, first, n, status);
}
