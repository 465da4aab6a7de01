/* Exporters of one result, side by side. */
#include "ptq/recipe/formats.h"

#include <string.h>

#include "ptq/base/option.h"

/* ---- which ---- */

calm_status calm_formats_parse(calm_ctx *ctx, const calm_words *names, calm_formats *out)
{
    out->n = 0;
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->exporters, names->n));
    for (size_t i = 0; i < names->n; i++) {
        const calm_exporter *exporter;
        CALM_TRY(calm_exporter_find(ctx, names->of[i], &exporter));
        for (size_t j = 0; j < out->n; j++)
            if (out->exporters[j] == exporter)
                return calm_fail(ctx, CALM_EARG, "`formats` %s is named twice", names->of[i]);
        out->exporters[out->n++] = exporter;
    }
    return CALM_OK;
}

size_t calm_formats_count(const calm_formats *formats)
{
    return formats->n ? formats->n : 1;
}

const calm_exporter *calm_formats_at(const calm_formats *formats, size_t index)
{
    size_t n;
    return formats->n ? formats->exporters[index] : calm_exporters(&n)[0];
}

calm_status calm_format_name(calm_ctx *ctx, const calm_exporter *exporter, char **out)
{
    CALM_TRY(calm_strf(ctx, ctx->out, out, "%s", exporter->name));
    for (char *at = *out; *at; at++)
        *at = *at == '_' ? '-' : *at;
    return CALM_OK;
}

calm_status calm_formats_of_recipe(calm_ctx *ctx, const calm_json *recipe, calm_formats *out)
{
    const calm_json *several = calm_json_get(recipe, "formats");
    const char *name = calm_json_string(calm_json_get(recipe, "format"), "compressed_tensors");
    calm_words names = {0};
    if (!several)
        CALM_TRY(calm_words_add(ctx, &names, name));
    for (size_t i = 0; i < calm_json_size(several); i++)
        CALM_TRY(calm_words_add(ctx, &names, calm_json_string(calm_json_at(several, i), "?")));
    return calm_formats_parse(ctx, &names, out);
}

calm_status calm_formats_read_by(calm_ctx *ctx, const calm_formats *formats, const calm_engine *target, char **out)
{
    *out = NULL;
    for (size_t i = 0; i < calm_formats_count(formats); i++) {
        CALM_TRY(calm_format_name(ctx, calm_formats_at(formats, i), out));
        if (calm_engine_reads(target, *out))
            return CALM_OK;
    }
    *out = NULL;
    return CALM_OK;
}

calm_tie calm_formats_tie(const calm_formats *formats)
{
    calm_tie tie = CALM_TIE_NONE;
    for (size_t i = 0; i < calm_formats_count(formats); i++)
        tie = calm_tie_both(tie, calm_formats_at(formats, i)->tie);
    return tie;
}

/* A format holds integers, and the families that its exporter names. */
static calm_status check_families(calm_ctx *ctx, const char *format, const calm_exporter *exporter,
                                  const calm_export_input *input)
{
    for (size_t j = 0; j < input->plan->n_jobs; j++) {
        const calm_plan_job *job = &input->plan->jobs[j];
        char name[CALM_SCHEME_NAME_MAX];
        if (!job->quantized || !job->scheme.family || exporter->families & 1u << job->scheme.family)
            continue;
        calm_scheme_name(&job->scheme, name);
        return calm_fail(ctx, CALM_EUNSUPPORTED, "`formats` %s: %s is %s, which the format does not hold", format,
                         calm_model_layout(input->model)->jobs[j].name, name);
    }
    return CALM_OK;
}

calm_status calm_formats_check(calm_ctx *ctx, const calm_formats *formats, const calm_model *model,
                               const calm_plan *plan)
{
    const calm_export_input input = {.model = model, .plan = plan, .options = &formats->options};
    for (size_t i = 0; i < calm_formats_count(formats); i++) {
        const calm_exporter *exporter = calm_formats_at(formats, i);
        char *name;
        CALM_TRY(calm_format_name(ctx, exporter, &name));
        if (calm_model_config(model)->down_hadamard && !exporter->transforms)
            return calm_fail(ctx, CALM_EUNSUPPORTED,
                             "`formats` %s: its readers apply no transform before down (r4); take `formats` "
                             "compressed-tensors, or `rotate` r1r2", name);
        CALM_TRY(check_families(ctx, name, exporter, &input));
        CALM_TRY(exporter->check(ctx, &input));
    }
    return CALM_OK;
}

calm_status calm_formats_describe(calm_ctx *ctx, const calm_formats *formats, calm_text *out)
{
    const size_t n = calm_formats_count(formats);
    for (size_t i = 0; i < n; i++) {
        char *name;
        CALM_TRY(calm_format_name(ctx, calm_formats_at(formats, i), &name));
        calm_text_printf(out, "%s%s", i ? ", " : "", name);
    }
    calm_text_printf(out, "%s.\n\n", n > 1 ? ", a folder each" : "");
    if (n == 1 && strcmp(calm_formats_at(formats, 0)->name, "compressed_tensors") == 0)
        calm_text_printf(out,
                         "    from transformers import AutoModelForCausalLM    # with compressed-tensors installed\n"
                         "    model = AutoModelForCausalLM.from_pretrained(\"DIRECTORY\")\n\n");
    return CALM_OK;
}

bool calm_formats_want_importance(const calm_formats *formats)
{
    bool any = false;
    for (size_t i = 0; i < calm_formats_count(formats); i++)
        any |= calm_formats_at(formats, i)->wants_importance;
    return any;
}
