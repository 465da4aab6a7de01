/* The size limit of a selection, which needs the sizes of float tensors from the model's headers. */
#include "ptq/stored/stored_impl.h"

#include <math.h>
#include <string.h>

#include "ptq/base/text.h"
#include "ptq/choose/choose.h"

/* ---- resolving the options ---- */

/* Resolves the limit: the options', else the stored selection's, else the recipe's.  CALM_EFORMAT: a recipe cannot
 * ask for the stored size (calm_size_parse_file) or the stored bits per weight. */
static calm_status resolve(calm_ctx *ctx, const calm_reselect_options *o, const calm_stored_run *run,
                           calm_reselect_size *out)
{
    const calm_json *select = calm_json_get(run->recipe, "select");
    const bool budget = calm_json_get(select, "budget") != NULL;
    const calm_json *own = calm_json_get(select, "size") || calm_json_get(select, "file_bits") ? select : run->recipe;
    *out = (calm_reselect_size){.file_bytes = o->file_bytes, .file_bits = o->file_bits};
    if (o->file_bytes || o->file_bits > 0 || !isnan(o->budget) || (own != select && budget))
        return CALM_OK;
    const calm_json *size = calm_json_get(own, "size"), *bits = calm_json_get(own, "file_bits");
    const int64_t bytes = calm_json_int(size, 0);
    if (size)
        CALM_TRY(calm_json_expect(ctx, size, CALM_JSON_INT, "run %lld: \"size\" of its recipe", (long long)run->id));
    if (size && (bytes < CALM_FILE_BYTES_MIN || bytes > CALM_FILE_BYTES_MAX))
        return calm_fail(ctx, CALM_EFORMAT, "run %lld: \"size\" of its recipe: expected %lld to %lld bytes, found %lld",
                         (long long)run->id, CALM_FILE_BYTES_MIN, CALM_FILE_BYTES_MAX, (long long)bytes);
    out->file_bytes = (size_t)bytes;
    return calm_stored_run_bits(ctx, run, "file_bits", bits, CALM_FILE_BITS_MAX, &out->file_bits);
}

/* Restores the part of the recipe that the file depends on, in ctx->out. */
static calm_status restore(calm_ctx *ctx, const calm_stored_run *run, const calm_pool *pool,
                           const calm_reselect_size *size, calm_recipe *out)
{
    const calm_json *blocks = calm_json_get(run->recipe, "blocks"), *kept = calm_json_get(run->recipe, "keep_float");
    const calm_json *pinned = calm_json_get(run->recipe, "float_pins");
    char *asked;
    *out = (calm_recipe){.n_schemes = pool->n_schemes,
                         .float_groups = calm_json_get(run->recipe, "group_fallback") != NULL,
                         .split_v = calm_json_bool(calm_json_get(run->recipe, "split_v"), false),
                         .file_bytes = size->file_bytes, .file_bits = size->file_bits,
                         .first_block = calm_json_int(calm_json_at(blocks, 0), 0),
                         .last_block = calm_json_int(calm_json_at(blocks, 1), -1)};
    CALM_TRY(calm_strf(ctx, ctx->out, &out->model.dir, "%s", run->model_path));
    CALM_TRY(calm_recipe_how(ctx, run->recipe, &out->how));
    for (size_t i = 0; i < calm_json_size(kept); i++)
        CALM_TRY(calm_words_add(ctx, &out->keep_float, calm_json_string(calm_json_at(kept, i), "")));
    for (size_t i = 0; i < calm_json_size(pinned); i++)
        CALM_TRY(calm_words_add(ctx, &out->float_pins, calm_json_string(calm_json_at(pinned, i), "")));
    if (size->file_bytes)
        CALM_TRY(calm_strf(ctx, ctx->out, &asked, "`choice.size` %zuB", size->file_bytes));
    else
        CALM_TRY(calm_strf(ctx, ctx->out, &asked, "`choice.bits_per_weight` %g", size->file_bits));
    out->file_asked = asked;
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->schemes, pool->n_schemes));
    memcpy(out->schemes, pool->schemes, pool->n_schemes * sizeof *out->schemes);
    CALM_TRY(calm_formats_of_recipe(ctx, run->recipe, &out->formats));
    if (calm_formats_count(&out->formats) > 1)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: run %lld wrote several formats, whose files differ in size",
                         asked, (long long)run->id);
    return calm_formats_parse_outer(ctx, calm_json_string(calm_json_get(run->recipe, "embed_scheme"), NULL),
                                    calm_json_string(calm_json_get(run->recipe, "head_scheme"), NULL),
                                    &out->formats.options);
}

/* ---- the model ---- */

/* Fails if the run's jobs are not those of the model. */
static calm_status check_jobs(calm_ctx *ctx, const calm_run *p, const calm_stored_run *run)
{
    const calm_layout *layout = calm_model_layout(p->in.model);
    const size_t n_blocks = calm_model_config(p->in.model)->n_blocks;
    bool same = p->in.first_block < p->in.end_block && p->in.end_block <= n_blocks;
    same = same && calm_inputs_count(&p->in) == p->pool.n_jobs;
    for (size_t j = 0; same && j < p->pool.n_jobs; j++) {
        const calm_job_ref *job = &layout->jobs[calm_inputs_job(&p->in, j)];
        same = strcmp(job->name, p->pool.jobs[j].name) == 0 && job->out == p->pool.jobs[j].out &&
               job->in == p->pool.jobs[j].in;
    }
    return same ? CALM_OK
                : calm_fail(ctx, CALM_EMISMATCH, "%s: is not the model of run %lld, whose jobs it does not have",
                            run->model_path, (long long)run->id);
}

/* Opens the model's headers for the sizes of float tensors, and computes the file's sizes. */
static calm_status open_file(calm_ctx *ctx, const calm_stored_run *run, const calm_requests *requests, calm_run *p)
{
    CALM_TRY(calm_inputs_open_given(ctx, &p->in));
    const size_t n_blocks = calm_model_config(p->in.model)->n_blocks;
    p->in.first_block = (size_t)p->in.recipe->first_block;
    p->in.end_block = p->in.recipe->last_block < 0 ? n_blocks : (size_t)p->in.recipe->last_block + 1;
    if (p->in.first_block < p->in.end_block && p->in.end_block <= n_blocks)
        CALM_TRY(calm_inputs_keep_float(ctx, &p->in));
    CALM_TRY(check_jobs(ctx, p, run));
    CALM_TRY(calm_scope_open(ctx, &p->pool, requests, &p->scope));
    return calm_run_file_open(ctx, p);
}

/* Returns a scheme's name for the selection's recipe. */
static calm_status name_scheme(calm_ctx *ctx, const calm_scheme *scheme, const char **out)
{
    char *text;
    CALM_TRY(calm_strf(ctx, ctx->out, &text, "%s", scheme->bits ? CALM_SCHEME_NAME(scheme) : "float"));
    *out = text;
    return CALM_OK;
}

calm_status calm_reselected_size(calm_ctx *ctx, const calm_reselect_options *o, const calm_stored_run *run,
                                    calm_pool *pool, calm_requests *requests, calm_reselect_size *out)
{
    calm_recipe *recipe;
    calm_run *p;
    CALM_TRY(resolve(ctx, o, run, out));
    if (!out->file_bytes && !(out->file_bits > 0))
        return CALM_OK;
    if (calm_json_get(run->recipe, "rotate"))
        return calm_fail(ctx, CALM_EUNSUPPORTED, "run %lld rotated its model, whose file calm select does not add up: "
                         "say `choice.budget`", (long long)run->id);
    if (!run->model_path)
        return calm_fail(ctx, CALM_ENOTFOUND, "the store does not say where the model of run %lld is",
                         (long long)run->id);
    CALM_TRY(CALM_NEW(ctx, ctx->out, recipe, 1));
    CALM_TRY(CALM_NEW(ctx, ctx->out, p, 1));
    CALM_TRY(calm_choosing_open(ctx, p));
    CALM_TRY(restore(ctx, run, pool, out, recipe));
    p->in.recipe = recipe;
    p->pool = *pool;
    const calm_status status = open_file(ctx, run, requests, p);
    calm_inputs_close(&p->in);
    CALM_TRY(status);
    requests->budget = INFINITY;
    p->choosing->file->pool.table = 0;
    p->choosing->file->pool.taken = true;
    pool->file = out->file = &p->choosing->file->pool;
    CALM_TRY(name_scheme(ctx, &p->choosing->file->outer[0].scheme[CALM_OUTER_EMBEDDING], &out->embed));
    return name_scheme(ctx, &p->choosing->file->outer[0].scheme[CALM_OUTER_HEAD], &out->head);
}
