/* Checks of several formats. */
#include "ptq/export/format_checks.h"

#include <string.h>

/* Returns whether groups of this size divide the rows of all quantized linears. */
static bool divides_all(const calm_export_input *input, size_t group)
{
    for (size_t i = 0; i < input->plan->n_jobs; i++)
        if (input->plan->jobs[i].quantized && calm_model_layout(input->model)->jobs[i].in % group != 0)
            return false;
    return true;
}

/* Fails because readers need groups that divide the row; proposes the largest usual group size that divides all. */
static calm_status check_group(calm_ctx *ctx, const char *format, const calm_export_input *input, size_t index)
{
    static const size_t usual[] = {128, 64, 32, 16, 8};
    const calm_plan_job *job = &input->plan->jobs[index];
    const calm_job_ref *ref = &calm_model_layout(input->model)->jobs[index];
    const char *name = calm_model_layout(input->model)->linears[ref->first].module;
    size_t proposal = 0;
    if (!job->quantized || calm_scheme_divides(&job->scheme, ref->in))
        return CALM_OK;
    if (job->scheme.family)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: %s has %zu input columns, which groups of %zu, as %s has, do not "
                         "divide; `group_fallback` float leaves it float", format, name, ref->in, job->scheme.group,
                         CALM_SCHEME_NAME(&job->scheme));
    for (size_t i = 0; i < sizeof usual / sizeof *usual && !proposal; i++)
        proposal = usual[i] < job->scheme.group && divides_all(input, usual[i]) ? usual[i] : 0;
    if (!proposal)
        return calm_fail(ctx, CALM_EUNSUPPORTED,
                         "%s: %s has %zu input columns, which groups of %zu do not divide; `group_fallback` row "
                         "gives it one scale per row, float leaves it float",
                         format, name, ref->in, job->scheme.group);
    return calm_fail(ctx, CALM_EUNSUPPORTED,
                     "%s: %s has %zu input columns, which groups of %zu do not divide; groups of %zu do "
                     "(`schemes` w%da%d_g%zu; `group_fallback` %zu where they must), or `group_fallback` float leaves "
                     "it float",
                     format, name, ref->in, job->scheme.group, proposal, job->scheme.bits,
                     job->scheme.act_bits ? job->scheme.act_bits : 16, proposal, proposal);
}

calm_status calm_check_groups(calm_ctx *ctx, const char *format, const calm_export_input *input)
{
    for (size_t i = 0; i < input->plan->n_jobs; i++)
        CALM_TRY(check_group(ctx, format, input, i));
    return CALM_OK;
}

calm_status calm_check_experts(calm_ctx *ctx, const char *format, const calm_export_input *input)
{
    const calm_layout *table = calm_model_layout(input->model);
    const calm_plan_job *jobs = input->plan->jobs;
    const calm_scheme floating = {0};
    size_t first = 0;    /* the block's first job of an expert */
    for (size_t j = 0; j < table->n_jobs; j++) {
        if (table->jobs[j].expert < 0)
            continue;
        if (table->jobs[first].expert < 0 || table->jobs[first].block != table->jobs[j].block)
            first = j;
        const char *name = CALM_SCHEME_NAME(jobs[j].quantized ? &jobs[j].scheme : &floating);
        const char *other = CALM_SCHEME_NAME(jobs[first].quantized ? &jobs[first].scheme : &floating);
        const calm_scheme *own = &jobs[j].scheme, *others = &jobs[first].scheme;
        const bool groups = own->bits == others->bits && own->group != others->group;
        if (strcmp(name, other) != 0)
            return calm_fail(ctx, CALM_EUNSUPPORTED,
                             "%s: %s is %s, but %s is %s: readers take one scheme for all experts of a block%s",
                             format, table->jobs[j].name, name, table->jobs[first].name, other,
                             groups ? " (`group_fallback` float leaves all of these float)" : "");
    }
    return CALM_OK;
}

const char *calm_export_refuses_activations(const calm_scheme *scheme)
{
    const bool whole = scheme->bits == 2 || scheme->bits == 3 || scheme->bits == 4 || scheme->bits == 8;
    return scheme->act_bits ? "the format has no quantized activations"
           : whole          ? NULL
                            : "the format has weights of 2, 3, 4 or 8 bits alone";
}

const char *calm_export_refuses_but_4_bits(const calm_scheme *scheme)
{
    const char *other = calm_export_refuses_activations(scheme);
    return scheme->act_bits || scheme->bits == 4 ? other : "the format has weights of 4 bits alone";
}

calm_status calm_export_check_quantized(calm_ctx *ctx, const char *format, const calm_export_input *input)
{
    for (size_t i = 0; i < input->plan->n_jobs; i++)
        if (input->plan->jobs[i].quantized)
            return CALM_OK;
    return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: nothing is quantized: the float checkpoint is what you have", format);
}

calm_status calm_check_words(calm_ctx *ctx, const char *format, const calm_export_input *input, bool columns, bool rows)
{
    const calm_layout *layout = calm_model_layout(input->model);
    for (size_t j = 0; j < layout->n_jobs; j++) {
        const size_t bits = (size_t)input->plan->jobs[j].scheme.bits;
        for (size_t i = layout->jobs[j].first; i < layout->jobs[j].first + layout->jobs[j].n; i++) {
            const calm_linear_ref *linear = &layout->linears[i];
            if (!input->plan->jobs[j].quantized)
                continue;
            const bool bad_in = columns && linear->in * bits % 32 != 0;
            if (bad_in || (rows && linear->out * bits % 32 != 0))
                return calm_fail(
                    ctx, CALM_EUNSUPPORTED,
                    "%s: %s has %zu %s of %zu bits, which do not fill 32-bit words; compressed-tensors takes "
                    "any number",
                    format, linear->module, bad_in ? linear->in : linear->out, bad_in ? "columns" : "rows", bits);
        }
    }
    return CALM_OK;
}
