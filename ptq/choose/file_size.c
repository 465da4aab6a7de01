/* File sizes as sums over the parts of uniform plans: one plan per scheme, and one per table choice. */
#include "ptq/choose/choose_impl.h"

#include "ptq/arch/arch.h"
#include "ptq/base/option.h"
#include "ptq/state/run_pool.h"

/* Largest number of schemes of an embedding or head. */
#define MOST_TABLES 16

/* ---- parts ---- */

calm_status calm_run_plan_of_scheme(calm_ctx *ctx, const calm_run *p, size_t scheme, calm_plan *out)
{
    const calm_layout *layout = calm_model_layout(p->in.model);
    size_t first, end;
    calm_inputs_jobs(&p->in, &first, &end);
    *out = (calm_plan){.n_jobs = layout->n_jobs};
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->jobs, layout->n_jobs));
    for (size_t j = first; j < end; j++) {
        const calm_job_ref *job = &layout->jobs[j];
        const calm_scheme own = calm_scheme_at(&p->in.recipe->schemes[scheme], &job->place);
        out->jobs[j].scheme = calm_scheme_for(&own, job->in);
        out->jobs[j].quantized = own.bits && calm_run_takes(p, j, scheme);
    }
    return CALM_OK;
}

/* Returns an upper bound of the offsets in headers; twice the model's bytes, since rotation may add a separate head. */
static size_t longest_offset(const calm_inputs *in)
{
    return 2 * calm_model_float_bytes(in->model);
}

/* Computes the parts of the file, without warnings, which the export repeats. */
static calm_status list_parts(calm_ctx *ctx, const calm_inputs *in, const calm_plan *plan, const calm_outer_plan *outer,
                              calm_file_parts *out)
{
    const calm_formats *formats = &in->recipe->formats;
    const calm_export_input input = {.model = in->model, .plan = plan, .options = &formats->options, .outer = outer};
    CALM_SCOPED_SILENCE(ctx);
    return calm_exporter_parts(ctx, calm_formats_at(formats, 0), &input, longest_offset(in), out);
}

/* Returns the bits of a part that count: a budget in bits per weight counts only tensors, a size the whole file. */
static uint64_t counted(const calm_run *p, const calm_file_part *part)
{
    return 8 * (uint64_t)(part->data + (p->in.recipe->file_bytes ? part->label : 0));
}

/* Divides the bits of a part of all experts of a block equally among the experts' jobs; the first gets the remainder.
 * */
static void share(const calm_run *p, const calm_file_part *part, uint64_t bits, size_t scheme)
{
    const calm_layout *layout = calm_model_layout(p->in.model);
    const size_t experts = calm_model_config(p->in.model)->moe.n_experts, n_schemes = p->in.recipe->n_schemes;
    uint64_t left = bits % experts;
    for (size_t j = layout->block_begin[part->job->block]; j < layout->block_begin[part->job->block + 1]; j++) {
        if (layout->jobs[j].expert < 0 || layout->jobs[j].kind != part->job->kind)
            continue;
        p->choosing->file->bits[calm_inputs_index(&p->in, j) * n_schemes + scheme] += bits / experts + left;
        left = 0;
    }
}

/* Adds the bits of the run's jobs to file->bits, unless `alone`; *rest gets all other bits, *elements the number of
 * weights of all parts. */
static void add_parts(const calm_run *p, const calm_file_parts *parts, size_t scheme, bool alone, uint64_t *rest,
                      double *elements)
{
    const calm_layout *layout = calm_model_layout(p->in.model);
    size_t first, end;
    calm_inputs_jobs(&p->in, &first, &end);
    *rest = p->in.recipe->file_bytes ? 8 * (uint64_t)parts->head : 0;
    *elements = 0;
    for (size_t i = 0; i < parts->n; i++) {
        const calm_file_part *part = &parts->of[i];
        const size_t job = part->job ? (size_t)(part->job - layout->jobs) : end;
        *elements += (double)part->elements;
        if (job < first || job >= end || calm_inputs_keeps(&p->in, job))
            *rest += counted(p, part);
        else if (!alone && part->experts)
            share(p, part, counted(p, part), scheme);
        else if (!alone)
            p->choosing->file->bits[calm_inputs_index(&p->in, job) * p->in.recipe->n_schemes + scheme] +=
                counted(p, part);
    }
}

/* ---- tables ---- */

/* Lists the schemes that a table may have: the one that the recipe asks for, or else those of the format's outer_pool
 * that fit its rows, or else float. */
static calm_status list_schemes(calm_ctx *ctx, const calm_run *p, calm_outer which, const calm_plan *plan,
                                calm_scheme list[MOST_TABLES], size_t *n)
{
    const calm_config *config = calm_model_config(p->in.model);
    const calm_formats *formats = &p->in.recipe->formats;
    const calm_exporter *exporter = calm_formats_at(formats, 0);
    const calm_scheme *asked[CALM_N_OUTERS] = {formats->options.embed, formats->options.head};
    calm_outer_plan outer;
    calm_words names = {0};
    *n = 0;
    CALM_TRY(calm_formats_outer(ctx, formats, exporter, p->in.model, plan, &outer));    /* may refuse the request */
    if (asked[which] || (config->tied && asked[!which]))
        list[(*n)++] = outer.scheme[which];
    else if (exporter->outer_pool && !config->arch->encoder)
        CALM_TRY(calm_words_split(ctx, exporter->outer_pool, &names));
    for (size_t i = 0; i < names.n && *n < MOST_TABLES; i++) {
        calm_scheme scheme;
        CALM_TRY(calm_scheme_parse(ctx, names.of[i], &scheme));
        scheme = calm_scheme_for(&scheme, config->hidden);
        bool there = false;    /* two schemes may fall back to the same one */
        for (size_t k = 0; k < *n; k++)
            there |= calm_scheme_same(&list[k], &scheme);
        if (exporter->check_outer(ctx, &scheme, "", config->hidden) != CALM_OK)
            calm_ctx_clear_failure(ctx);
        else if (!there)
            list[(*n)++] = scheme;
    }
    if (!*n)
        list[(*n)++] = (calm_scheme){0};
    return CALM_OK;
}

/* Lists every pair of schemes of embedding and head; tied tables have the same scheme. */
static calm_status list_tables(calm_ctx *ctx, const calm_run *p, const calm_plan *plan)
{
    const bool tied = calm_model_config(p->in.model)->tied;
    calm_file_budget *file = p->choosing->file;
    calm_scheme list[CALM_N_OUTERS][MOST_TABLES];
    size_t n[CALM_N_OUTERS];
    for (calm_outer t = 0; t < CALM_N_OUTERS; t++)
        CALM_TRY(list_schemes(ctx, p, t, plan, list[t], &n[t]));
    const size_t all = tied ? n[0] : n[0] * n[1];
    CALM_TRY(CALM_NEW(ctx, ctx->out, file->tables, all));
    CALM_TRY(CALM_NEW(ctx, ctx->out, file->outer, all));
    for (size_t i = 0; i < all; i++) {
        file->outer[i].scheme[0] = list[0][i % n[0]];
        file->outer[i].scheme[1] = tied ? list[0][i] : list[1][i / n[0]];
        CALM_TRY(calm_outer_describe(ctx, &file->outer[i], &file->tables[i].name));
    }
    file->pool.tables = file->tables;
    file->pool.n_tables = all;
    file->pool.table = all > 1 ? all : 0;
    return CALM_OK;
}

/* ---- the budget ---- */

/* Computes the bits of the jobs for each scheme, of the rest for each table choice, and the limit. */
static calm_status measure(calm_ctx *ctx, calm_run *p)
{
    calm_file_budget *file = p->choosing->file;
    double elements = 0;
    uint64_t rest;
    for (size_t s = 0; s < p->in.recipe->n_schemes; s++) {
        CALM_SCOPED_ARENA(parts_arena);
        calm_file_parts parts;
        calm_plan plan;
        CALM_TRY(calm_run_plan_of_scheme(ctx, p, s, &plan));
        if (s == 0)
            CALM_TRY(list_tables(ctx, p, &plan));
        CALM_SCOPED_OUT(ctx, &parts_arena);
        CALM_TRY(list_parts(ctx, &p->in, &plan, &file->outer[0], &parts));
        add_parts(p, &parts, s, false, &file->tables[0].bits, &elements);
        for (size_t t = 1; s == 0 && t < file->pool.n_tables; t++) {
            CALM_TRY(list_parts(ctx, &p->in, &plan, &file->outer[t], &parts));
            add_parts(p, &parts, s, true, &rest, &elements);
            file->tables[t].bits = rest;
        }
    }
    const double limit = p->in.recipe->file_bits * elements;
    file->pool.limit = p->in.recipe->file_bytes ? 8 * (uint64_t)p->in.recipe->file_bytes : (uint64_t)limit;
    file->pool.unit = p->in.recipe->file_bytes ? 8 : elements;
    file->pool.what = p->in.recipe->file_bytes ? "bytes" : "bits per weight";
    return CALM_OK;
}

calm_status calm_run_file_open(calm_ctx *ctx, calm_run *p)
{
    if (!p->in.recipe->file_asked)
        return CALM_OK;
    CALM_TRY(CALM_NEW(ctx, ctx->out, p->choosing->file, 1));
    CALM_TRY(CALM_NEW(ctx, ctx->out, p->choosing->file->bits, p->pool.n_jobs * p->in.recipe->n_schemes));
    p->choosing->file->pool.bits = p->choosing->file->bits;
    p->choosing->file->pool.asked = p->in.recipe->file_asked;
    CALM_TRY(measure(ctx, p));
    p->pool.file = p->pool_file = &p->choosing->file->pool;
    return CALM_OK;
}

/* Sums the exporter's parts; for a format without weights, the bytes of float tensors and the jobs' bits. */
static calm_status sum_parts(calm_ctx *ctx, const calm_run *p, const calm_plan *plan, double bits, double weights,
                             size_t *bytes)
{
    const calm_formats *formats = &p->in.recipe->formats;
    const calm_exporter *exporter = calm_formats_at(formats, 0);
    const size_t each = calm_dtype_bytes(calm_model_config(p->in.model)->dtype);
    calm_outer_plan outer;
    calm_file_parts parts;
    if (!exporter->form && !exporter->parts) {
        *bytes = calm_model_float_bytes(p->in.model) - (size_t)weights * each + (size_t)(bits / 8);
        return CALM_OK;
    }
    CALM_TRY(calm_formats_outer(ctx, formats, exporter, p->in.model, plan, &outer));
    CALM_TRY(list_parts(ctx, &p->in, plan, &outer, &parts));
    *bytes = parts.head;
    for (size_t i = 0; i < parts.n; i++)
        *bytes += parts.of[i].data + parts.of[i].label;
    return CALM_OK;
}

calm_status calm_run_file_of_scheme(calm_ctx *ctx, const calm_run *p, size_t scheme, size_t *bytes, double *bits)
{
    const calm_layout *layout = calm_model_layout(p->in.model);
    size_t first, end;
    double weights = 0;
    calm_plan plan;
    CALM_SCOPED_RESULTS(ctx);
    calm_inputs_jobs(&p->in, &first, &end);
    CALM_TRY(calm_run_plan_of_scheme(ctx, p, scheme, &plan));
    *bits = 0;
    for (size_t j = first; j < end; j++) {
        const calm_job_ref *job = &layout->jobs[j];
        const double n = (double)job->out * (double)job->in;
        const calm_scheme own = calm_scheme_at(&p->in.recipe->schemes[scheme], &job->place);
        if (calm_inputs_keeps(&p->in, j))
            continue;
        *bits += n * calm_scheme_bits_per_weight(&own, job->out, job->in);
        weights += n;
    }
    return sum_parts(ctx, p, &plan, *bits, weights, bytes);
}
