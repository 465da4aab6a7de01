/* Formats: which exporters write a result, and where each one's files lie.
 *
 *   one format       its files are the output's own
 *   several          each has a folder of its name (compressed-tensors/, gguf/); card and recipe are above them
 *
 * The first format that is a checkpoint is the one that is evaluated as it was written. */
#pragma once

#include "ptq/base/option.h"
#include "ptq/export/export.h"
#include "ptq/plan/engines.h"

typedef struct calm_formats {
    const calm_exporter **exporters;    /* [n] in ctx->out; n 0: compressed-tensors alone */
    size_t n;
    calm_export_options options;
} calm_formats;

/* Parse names ("compressed-tensors", "gguf") into out->exporters; none: compressed-tensors.  CALM_EARG: an unknown name
 * (with the nearest), one named twice. */
calm_status calm_formats_parse(calm_ctx *ctx, const calm_words *names, calm_formats *out);

/* Parse names of schemes of embedding and head, NULL: not asked, into ctx->out.  CALM_EARG: a bad name. */
calm_status calm_formats_ask_outer(calm_ctx *ctx, const char *embed, const char *head, calm_export_options *out);

/* Number of formats, and one of them. */
size_t calm_formats_count(const calm_formats *formats);
const calm_exporter *calm_formats_at(const calm_formats *formats, size_t index);

/* The name of an exporter as it is typed, with - for _; in ctx->out. */
calm_status calm_format_name(calm_ctx *ctx, const calm_exporter *exporter, char **out);

/* The formats that a stored run's recipe names; as calm_formats_parse. */
calm_status calm_formats_of_recipe(calm_ctx *ctx, const calm_json *recipe, calm_formats *out);

/* The first of the formats that the target reads, with - for _, in ctx->out; NULL: none. */
calm_status calm_formats_read_by(calm_ctx *ctx, const calm_formats *formats, const calm_engine *target, char **out);

/* Jobs that share a scheme in what is written. */
calm_tie calm_formats_tie(const calm_formats *formats);

/* For a card: "compressed-tensors." or "gptq, gguf, a folder each.", and for transformers how it is loaded. */
calm_status calm_formats_describe(calm_ctx *ctx, const calm_formats *formats, calm_text *out);

/* Notes about what the model's files hold and config.json does not say: tensors that the forward pass does not read
 * and that a format leaves out, blocks beyond those that are counted, a separate head next to a tied embedding;
 * and Python modules that it names and that are not there. */
calm_status calm_formats_note_files(calm_ctx *ctx, const calm_formats *formats, const calm_model *model);

/* CALM_EARG where the engine reads one of them, but not the head as the plan's file has it, or its class of the family
 * passes over a quantized job: engine, scheme, why and what would do. */
calm_status calm_formats_check_target(calm_ctx *ctx, const calm_formats *formats, const calm_engine *target,
                                      const calm_model *model, const calm_plan *plan);

/* As calm_formats_check, before there is a model: schemes [n] of jobs, those asked of tables, and whether inputs of
 * down are transformed (r4).  CALM_EARG: one of the formats has no such thing, and which have. */
calm_status calm_formats_check_asked(calm_ctx *ctx, const calm_formats *formats, const calm_scheme *schemes, size_t n,
                                     bool transforms);

/* Refuse, by name, what one of them cannot express. */
calm_status calm_formats_check(calm_ctx *ctx, const calm_formats *formats, const calm_model *model,
                               const calm_plan *plan);

/* What one of them makes of embedding and head: as asked, else the format's own of a plan that leaves no job float.
 * `rows` is the caller's.  CALM_EUNSUPPORTED, by name: a scheme that the format does not hold.  CALM_EARG: two schemes
 * for one tied table, a scheme that quantizes activations. */
calm_status calm_formats_outer(calm_ctx *ctx, const calm_formats *formats, const calm_exporter *exporter,
                                const calm_model *model, const calm_plan *plan, calm_outer_plan *out);

/* Does one of them quantize embedding or head, as asked or by default? */
bool calm_formats_have_tables(const calm_formats *formats);

/* Does one of them run the model over the calibration windows? */
bool calm_formats_want_importance(const calm_formats *formats);
