/* Formats: which exporters write a result, and where their files are.
 *
 *   one format       its files are in the output folder
 *   several          each has a subfolder with its name (compressed-tensors/, gguf/); card and recipe are above them,
 *                    and each folder of a model has a card of its format
 *
 * The final evaluation reads the first format that is a checkpoint. */
#pragma once

#include "ptq/base/option.h"
#include "ptq/export/export.h"
#include "ptq/plan/engines.h"

typedef struct calm_formats {
    const calm_exporter **exporters;    /* [n] in ctx->out; n 0: only compressed-tensors */
    size_t n;
    const calm_engine *meant;           /* engine whose format this is, since none was named; NULL: another reason */
    calm_export_options options;
} calm_formats;

/* Parses names ("compressed-tensors", "gguf") into out->exporters; no name: compressed-tensors.  CALM_EARG: an unknown
 * name (the message has the nearest), or a name twice. */
calm_status calm_formats_parse(calm_ctx *ctx, const calm_words *names, calm_formats *out);

/* Sets the format of a recipe that names none, in zeroed *out: gguf for GGUF's types, compressed-tensors if the engine
 * (NULL: any) reads it, or else the format that it reads best. */
calm_status calm_formats_default(calm_ctx *ctx, bool ggml_types, const calm_engine *target, calm_formats *out);

/* Parses the schemes of embedding and head (NULL: not given) into ctx->out.  CALM_EARG: a bad name. */
calm_status calm_formats_parse_outer(calm_ctx *ctx, const char *embed, const char *head, calm_export_options *out);

/* Return the number of formats, and one of them. */
size_t calm_formats_count(const calm_formats *formats);
const calm_exporter *calm_formats_at(const calm_formats *formats, size_t index);

/* Returns the name of an exporter as users type it, with '-' instead of '_', in ctx->out. */
calm_status calm_format_name(calm_ctx *ctx, const calm_exporter *exporter, char **out);

/* Parses the formats in a stored run's recipe, as calm_formats_parse does. */
calm_status calm_formats_of_recipe(calm_ctx *ctx, const calm_json *recipe, calm_formats *out);

/* Returns the first of the formats that the engine reads, with '-' instead of '_', in ctx->out; NULL: none. */
calm_status calm_formats_read_by(calm_ctx *ctx, const calm_formats *formats, const calm_engine *target, char **out);

/* Returns which jobs share a scheme in the written files. */
calm_tie calm_formats_tie(const calm_formats *formats);

/* Appends a sentence for a model card, "compressed-tensors." or "gptq, gguf, a folder each.", and for transformers how
 * to load the model by `auto_class` (ptq/model/auto_class.h). */
calm_status calm_formats_describe(calm_ctx *ctx, const calm_formats *formats, const char *auto_class, calm_text *out);

/* Logs what the model's files contain and config.json does not say: tensors that the forward pass does not read and a
 * format leaves out, blocks beyond the configured number, a separate head although the embedding is tied, and missing
 * Python modules that config.json names. */
calm_status calm_formats_note_files(calm_ctx *ctx, const calm_formats *formats, const calm_model *model);

/* Fails with CALM_EARG if the engine reads one of the formats but cannot run the plan in it, because of the head or
 * because its class for the family does not load a quantized job.  The message has engine, scheme, reason and
 * remedy. */
calm_status calm_formats_check_target(calm_ctx *ctx, const calm_formats *formats, const calm_engine *target,
                                      const calm_model *model, const calm_plan *plan);

/* Does what calm_formats_check does, before a model is known: for schemes [n] of jobs, the schemes of embedding and
 * head, and rotated inputs of down projections (`transforms`: r4).  CALM_EARG: a format cannot store one of them; the
 * message says which formats can. */
calm_status calm_formats_check_asked(calm_ctx *ctx, const calm_formats *formats, const calm_scheme *schemes, size_t n,
                                     bool transforms);

/* Fails if one of the formats cannot store the plan; the message names the format and what it cannot store. */
calm_status calm_formats_check(calm_ctx *ctx, const calm_formats *formats, const calm_model *model,
                               const calm_plan *plan);

/* Computes what a format makes of embedding and head: the schemes that the user gave, else the format's own if the plan
 * leaves no job float.  The caller fills out->rows.  CALM_EUNSUPPORTED: the format cannot store a scheme.  CALM_EARG: a
 * tied table has two schemes, or a scheme quantizes activations. */
calm_status calm_formats_outer(calm_ctx *ctx, const calm_formats *formats, const calm_exporter *exporter,
                                const calm_model *model, const calm_plan *plan, calm_outer_plan *out);

/* Returns true if a format quantizes embedding or head, by the user's options or by default. */
bool calm_formats_have_tables(const calm_formats *formats);

/* Returns true if a format needs mean squares of activations over the calibration windows. */
bool calm_formats_want_importance(const calm_formats *formats);
