/* The exporters of one result, and what they can store. */
#include "ptq/recipe/formats.h"

#include <string.h>

#include "ptq/arch/arch.h"
#include "ptq/arch/kind.h"
#include "ptq/base/message.h"
#include "ptq/export/companions.h"
#include "ptq/export/config_file.h"
#include "ptq/model/tensor_use.h"
#include "ptq/model/transforms.h"
#include "ptq/plan/engine_family.h"
#include "ptq/quant/mix.h"

/* ---- the list of formats ---- */

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

static calm_status parse_outer(calm_ctx *ctx, const char *key, const char *name, const calm_scheme **out)
{
    calm_scheme *scheme;
    *out = NULL;
    if (!name)
        return CALM_OK;
    CALM_TRY(CALM_NEW(ctx, ctx->out, scheme, 1));
    *out = scheme;
    return calm_scheme_parse(ctx, name, scheme) == CALM_OK ? CALM_OK : calm_fail_prefix(ctx, "`export.%s`", key);
}

calm_status calm_formats_parse_outer(calm_ctx *ctx, const char *embed, const char *head, calm_export_options *out)
{
    CALM_TRY(parse_outer(ctx, "embed_scheme", embed, &out->embed));
    return parse_outer(ctx, "head_scheme", head, &out->head);
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

calm_status calm_formats_default(calm_ctx *ctx, bool ggml_types, const calm_engine *target, calm_formats *out)
{
    calm_words names = {0};
    char *usual;    /* of no names */
    CALM_TRY(calm_formats_read_by(ctx, out, target, &usual));
    if (ggml_types) {
        CALM_TRY(calm_words_split(ctx, "gguf", &names));
    } else if (!usual) {
        CALM_TRY(calm_words_split(ctx, calm_engine_formats(target), &names));
        names.n = 1;
        out->meant = target;
    }
    return calm_formats_parse(ctx, &names, out);
}

calm_tie calm_formats_tie(const calm_formats *formats)
{
    calm_tie tie = CALM_TIE_NONE;
    for (size_t i = 0; i < calm_formats_count(formats); i++)
        tie = calm_tie_stronger(tie, calm_formats_at(formats, i)->tie);
    return tie;
}

/* ---- embedding and head ---- */

/* Returns the user's scheme for a table; NULL: none.  Both options apply to a tied table. */
static calm_status find_asked(calm_ctx *ctx, const calm_export_options *options, bool tied, calm_outer table,
                              const calm_scheme **out)
{
    const calm_scheme *of[CALM_N_OUTERS] = {options->embed, options->head};
    *out = of[table] || !tied ? of[table] : of[!table];
    if (!tied || !of[0] || !of[1])
        return CALM_OK;
    const char *a = CALM_SCHEME_NAME(of[0]);
    const char *b = CALM_SCHEME_NAME(of[1]);
    return strcmp(a, b) == 0 ? CALM_OK
                             : calm_fail(ctx, CALM_EARG, "`export.embed_scheme` %s and `export.head_scheme` %s: the "
                                         "model has one table for both; name one of them", a, b);
}

/* Fails if the format cannot store this scheme for a table of any model; `also` describes the table. */
static calm_status check_table(calm_ctx *ctx, const calm_exporter *exporter, calm_outer table, const char *also,
                               const calm_scheme *scheme, const char *key)
{
    char *format, *holding;
    const char *name = CALM_SCHEME_NAME(scheme);
    CALM_TRY(calm_format_name(ctx, exporter, &format));
    if (scheme->act_bits)
        return calm_fail(ctx, CALM_EARG,
                         "`export.%s` %s: tables take weight-only schemes, such as q6_k or w8a16_g32", key, name);
    if (scheme->act_order)
        return calm_fail(ctx, CALM_EARG, "`export.%s` %s: the columns of tables stay in order; leave _actorder out",
                         key, name);
    if (!exporter->check_outer || (exporter->head_alone && table != CALM_OUTER_HEAD))
        return calm_fail(ctx, CALM_EARG, "`export.%s` %s: `formats` %s is written with a float %s%s; take gguf, mlx",
                         key, name, format, calm_outer_name(table), also);
    if (!scheme->family || exporter->families & 1u << scheme->family)
        return CALM_OK;
    CALM_TRY(calm_exporter_holding(ctx, scheme, &holding));
    return calm_fail(ctx, CALM_EARG, "`export.%s` %s: `formats` %s does not hold it%s", key, name, format, holding);
}

/* Fails if the format cannot store the user's scheme for the model's table. */
static calm_status check_asked(calm_ctx *ctx, const calm_exporter *exporter, const calm_model *model, calm_outer table,
                               const calm_scheme *scheme, const char *key)
{
    const calm_tensor *tensor;
    const bool tied = calm_model_config(model)->tied;
    if (calm_model_config(model)->arch->encoder)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "`export.%s` %s: the tables of encoders stay float", key,
                         CALM_SCHEME_NAME(scheme));
    CALM_TRY(check_table(ctx, exporter, table, tied ? ", which is this model's head" : "", scheme, key));
    CALM_TRY(calm_model_table(ctx, model, table == CALM_OUTER_HEAD && !tied, &tensor));
    return exporter->check_outer(ctx, scheme, tensor->name, tensor->shape[1]);
}

/* Finds the scheme with the most weights, the first of equals; bits 0: a job stays float. */
static calm_status most_of(calm_ctx *ctx, const calm_model *model, const calm_plan *plan, calm_scheme *out)
{
    struct sum {
        char name[CALM_SCHEME_NAME_MAX];
        size_t first;     /* first job with the scheme */
        double weights;
    } *sums;
    const calm_layout *layout = calm_model_layout(model);
    size_t n = 0, most = 0;
    *out = (calm_scheme){0};
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, sums, plan->n_jobs));
    for (size_t i = 0; i < plan->n_jobs; i++) {
        size_t at = 0;
        if (!plan->jobs[i].quantized)
            return CALM_OK;
        calm_scheme_name(&plan->jobs[i].scheme, sums[n].name);
        while (strcmp(sums[at].name, sums[n].name) != 0)
            at++;
        if (at == n)
            sums[n++].first = i;
        sums[at].weights += (double)layout->jobs[i].out * (double)layout->jobs[i].in;
    }
    for (size_t at = 1; at < n; at++)
        most = sums[at].weights > sums[most].weights ? at : most;
    if (n)
        *out = plan->jobs[sums[most].first].scheme;
    return CALM_OK;
}

calm_status calm_formats_outer(calm_ctx *ctx, const calm_formats *formats, const calm_exporter *exporter,
                                const calm_model *model, const calm_plan *plan, calm_outer_plan *out)
{
    const calm_config *config = calm_model_config(model);
    calm_scheme most = {0};
    *out = (calm_outer_plan){0};
    if (exporter->outer)
        CALM_TRY(most_of(ctx, model, plan, &most));
    for (calm_outer t = 0; t < CALM_N_OUTERS; t++) {
        const bool head = t == CALM_OUTER_HEAD || config->tied;
        const calm_place place = {head ? CALM_PLACE_HEAD : CALM_PLACE_EMBEDDING, 0, 1, 1, false};
        const calm_scheme *asked;
        calm_scheme scheme = {0};
        CALM_TRY(find_asked(ctx, &formats->options, config->tied, t, &asked));
        if (asked)
            scheme = calm_scheme_at(asked, &place);
        else if (exporter->outer && most.bits && !config->arch->encoder)
            scheme = exporter->outer(t, &most, config->tied);
        if (!scheme.bits)
            continue;
        const calm_scheme whole = scheme;
        scheme = calm_scheme_for(&whole, config->hidden);
        if (asked)
            CALM_TRY(check_asked(ctx, exporter, model, t, &scheme,
                                 asked == formats->options.head ? "head_scheme" : "embed_scheme"));
        /* A default scheme is not used if its groups do not divide the columns. */
        else if (exporter->check_outer(ctx, &scheme, "", config->hidden) != CALM_OK) {
            calm_ctx_clear_failure(ctx);
            continue;
        }
        out->scheme[t] = scheme;
        out->asked[t] = whole;
    }
    return CALM_OK;
}

static calm_status check_transforms(calm_ctx *ctx, const calm_exporter *exporter, calm_status failure)
{
    char *name;
    if (exporter->transforms)
        return CALM_OK;
    CALM_TRY(calm_format_name(ctx, exporter, &name));
    return calm_fail(ctx, failure, "`formats` %s: its readers apply no transforms of inputs (`rotate` r1r2r4, "
                     "inputs); take `formats` compressed-tensors, or `rotate` r1r2 or none", name);
}

/* Fails if a format can hold none of the schemes, tables and transforms, whatever the model. */
static calm_status check_any(calm_ctx *ctx, const calm_formats *formats, const calm_scheme *schemes, size_t n,
                             bool transforms)
{
    const calm_scheme *outer[CALM_N_OUTERS] = {formats->options.embed, formats->options.head};
    static const char *const keys[CALM_N_OUTERS] = {"embed_scheme", "head_scheme"};
    for (size_t i = 0; i < calm_formats_count(formats); i++) {
        const calm_exporter *exporter = calm_formats_at(formats, i);
        char *format, *holding;
        CALM_TRY(calm_format_name(ctx, exporter, &format));
        for (size_t j = 0; j < n; j++) {
            const char *why = schemes[j].bits ? calm_exporter_refuses(exporter, &schemes[j]) : NULL;
            if (!why)
                continue;
            CALM_TRY(calm_exporter_holding(ctx, &schemes[j], &holding));
            return calm_fail(ctx, CALM_EARG, "`formats` %s cannot hold %s: %s%s", format,
                             CALM_SCHEME_NAME(&schemes[j]), why, holding);
        }
        if (transforms)
            CALM_TRY(check_transforms(ctx, exporter, CALM_EARG));
        for (calm_outer t = 0; t < CALM_N_OUTERS; t++)
            if (outer[t] && outer[t]->bits)
                CALM_TRY(check_table(ctx, exporter, t, "", outer[t], keys[t]));
    }
    return CALM_OK;
}

calm_status calm_formats_check_asked(calm_ctx *ctx, const calm_formats *formats, const calm_scheme *schemes, size_t n,
                                     bool transforms)
{
    char *name;
    const calm_status status = check_any(ctx, formats, schemes, n, transforms);
    if (status != CALM_EARG || !formats->meant)
        return status;
    CALM_TRY(calm_format_name(ctx, calm_formats_at(formats, 0), &name));
    return calm_fail_prefix(ctx, "without `formats`, `target` %s means %s", calm_engine_name(formats->meant), name);
}

calm_status calm_formats_check(calm_ctx *ctx, const calm_formats *formats, const calm_model *model,
                               const calm_plan *plan)
{
    for (size_t i = 0; i < calm_formats_count(formats); i++) {
        const calm_exporter *exporter = calm_formats_at(formats, i);
        calm_outer_plan outer;
        const calm_export_input input = {.model = model, .plan = plan, .options = &formats->options,
                                         .outer = &outer};
        CALM_TRY(calm_formats_outer(ctx, formats, exporter, model, plan, &outer));
        if (calm_transforms_any(calm_model_config(model)))
            CALM_TRY(check_transforms(ctx, exporter, CALM_EUNSUPPORTED));
        CALM_TRY(calm_exporter_check(ctx, exporter, &input));
    }
    return CALM_OK;
}

/* ---- tensors that the model does not read ---- */

/* Appends the names of the formats that store only tensors which the model reads, "gguf, mlx"; *n: their number. */
static calm_status name_strict(calm_ctx *ctx, const calm_formats *formats, calm_text *out, size_t *n)
{
    *n = 0;
    for (size_t i = 0; i < calm_formats_count(formats); i++) {
        char *name;
        if (!calm_formats_at(formats, i)->strict)
            continue;
        CALM_TRY(calm_format_name(ctx, calm_formats_at(formats, i), &name));
        calm_text_printf(out, "%s%s", (*n)++ ? ", " : "", name);
    }
    return calm_text_check(ctx, out);
}

static calm_status note_left_out(calm_ctx *ctx, const calm_formats *formats, const calm_model *model)
{
    CALM_SCOPED_TEXT(strict);
    CALM_SCOPED_TEXT(foreign);
    CALM_SCOPED_TEXT(buffers);
    size_t n_strict;
    CALM_TRY(name_strict(ctx, formats, &strict, &n_strict));
    const size_t n = calm_model_list_use(model, CALM_TENSOR_FOREIGN, &foreign),
                 n_buffers = calm_model_list_use(model, CALM_TENSOR_BUFFER, &buffers);
    CALM_TRY(calm_text_check(ctx, &foreign));
    CALM_TRY(calm_text_check(ctx, &buffers));
    if (!n_strict || n + n_buffers == 0)
        return CALM_OK;
    CALM_SCOPED_TEXT(text);
    if (n)
        calm_text_printf(&text, "%zu tensor%s that the model does not read: %s", n, n == 1 ? "" : "s", foreign.data);
    if (n_buffers)
        calm_text_printf(&text, "%s%zu buffer%s that follow%s from config.json: %s", n ? "; and " : "", n_buffers,
                         n_buffers == 1 ? "" : "s", n_buffers == 1 ? "s" : "", buffers.data);
    CALM_TRY(calm_text_check(ctx, &text));
    calm_log(ctx, CALM_LOG_INFO, "%s: left out %s", strict.data, text.data);
    return CALM_OK;
}

/* Returns the name of the first tensor of a block beyond config.json's number of blocks; NULL: there is none. */
static const char *first_beyond(const calm_model *model)
{
    const calm_safetensors *set = calm_model_tensors(model);
    for (size_t i = 0; i < calm_safetensors_count(set); i++)
        if (calm_model_tensor_use(model, calm_safetensors_at(set, i)->name) == CALM_TENSOR_BEYOND)
            return calm_safetensors_at(set, i)->name;
    return NULL;
}

static calm_status note_missing_code(calm_ctx *ctx, const calm_model *model)
{
    CALM_SCOPED_SCRATCH(ctx);
    calm_words files, missing = {0};
    CALM_TRY(calm_export_list_companions(ctx, calm_model_dir(model), &files, &missing));
    for (size_t i = 0; i < missing.n; i++)
        calm_log(ctx, CALM_LOG_WARNING, "%s: the Python class %.200s is named, but its module is not in this "
                 "directory: it is not copied", calm_model_dir(model), missing.of[i]);
    return CALM_OK;
}

calm_status calm_formats_note_files(calm_ctx *ctx, const calm_formats *formats, const calm_model *model)
{
    const size_t n_blocks = calm_model_config(model)->n_blocks;
    const char *beyond = first_beyond(model);
    if (beyond)
        calm_log(ctx, CALM_LOG_WARNING,
                 "%s: config.json counts %zu block%s, but the files hold more: nothing reads %s and %zu other "
                 "tensors", calm_model_dir(model), n_blocks,
                 n_blocks == 1 ? "" : "s", beyond, calm_model_list_use(model, CALM_TENSOR_BEYOND, NULL) - 1);
    if (calm_export_unties_head(model))
        calm_log(ctx, CALM_LOG_INFO,
                 "%s: tie_word_embeddings is true, but the head has other values than the embedding: the output says "
                 "false, so that readers take the head", calm_model_dir(model));
    CALM_TRY(note_left_out(ctx, formats, model));
    return note_missing_code(ctx, model);
}

/* Checks a plan's quantized jobs in a format against the engine's class for the model's family. */
static calm_status check_family(calm_ctx *ctx, const char *format, const calm_engine *target, const calm_model *model,
                                const calm_plan *plan)
{
    const calm_layout *layout = calm_model_layout(model);
    const calm_config *config = calm_model_config(model);
    for (size_t j = 0; j < plan->n_jobs; j++) {
        const calm_job_ref *job = &layout->jobs[j];
        const calm_engine_job own = {layout->linears[job->first].module, job->expert >= 0, job->traits->turns,
                                     &plan->jobs[j].scheme};
        if (plan->jobs[j].quantized)
            CALM_TRY(calm_engine_check_family(ctx, target, format, config->arch->name, &own));
    }
    return CALM_OK;
}

calm_status calm_formats_check_target(calm_ctx *ctx, const calm_formats *formats, const calm_engine *target,
                                      const calm_model *model, const calm_plan *plan)
{
    const calm_config *config = calm_model_config(model);
    for (size_t i = 0; i < calm_formats_count(formats); i++) {
        const calm_engine_linear head = {.name = "the head", .out = config->vocab, .in = config->hidden, .head = true};
        calm_outer_plan outer;
        char *name;
        CALM_TRY(calm_format_name(ctx, calm_formats_at(formats, i), &name));
        if (!calm_engine_reads(target, name))
            continue;
        CALM_TRY(check_family(ctx, name, target, model, plan));
        CALM_TRY(calm_formats_outer(ctx, formats, calm_formats_at(formats, i), model, plan, &outer));
        if (outer.scheme[CALM_OUTER_HEAD].bits)
            CALM_TRY(calm_engine_check_scheme(ctx, target, name, &head, &outer.scheme[CALM_OUTER_HEAD]));
    }
    return CALM_OK;
}

calm_status calm_formats_describe(calm_ctx *ctx, const calm_formats *formats, const char *auto_class, calm_text *out)
{
    const size_t n = calm_formats_count(formats);
    for (size_t i = 0; i < n; i++) {
        char *name;
        CALM_TRY(calm_format_name(ctx, calm_formats_at(formats, i), &name));
        calm_text_printf(out, "%s%s", i ? ", " : "", name);
    }
    calm_text_printf(out, "%s.\n\n", n > 1 ? ", a folder each" : "");
    if (n == 1 && strcmp(calm_formats_at(formats, 0)->name, "compressed_tensors") == 0)
        calm_text_printf(out, "    from transformers import %s    # with compressed-tensors installed\n"
                              "    model = %s.from_pretrained(\"DIRECTORY\")\n\n", auto_class, auto_class);
    return CALM_OK;
}

bool calm_formats_have_tables(const calm_formats *formats)
{
    const calm_scheme *embed = formats->options.embed, *head = formats->options.head;
    bool any = (embed && embed->bits) || (head && head->bits);
    for (size_t i = 0; i < calm_formats_count(formats); i++)
        any |= calm_formats_at(formats, i)->outer && !embed && !head;
    return any;
}

bool calm_formats_want_importance(const calm_formats *formats)
{
    bool any = false;
    for (size_t i = 0; i < calm_formats_count(formats); i++)
        any |= calm_formats_at(formats, i)->wants_importance;
    return any;
}
