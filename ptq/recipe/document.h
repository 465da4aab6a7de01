/* Recipe documents: the JSON form of a spec.
 *
 * One table (document_shape.c) says every place of a document and its shape; the option table of ptq/recipe/spec.h says
 * which option it is.  Reading, writing, checking and the published JSON Schema are made from the two. */
#pragma once

#include "ptq/io/json.h"
#include "ptq/recipe/spec.h"

/* What "calm_recipe" must be. */
#define CALM_RECIPE_VERSION 1

/* Larger files are no recipes. */
#define CALM_RECIPE_BYTES ((size_t)1 << 20)

/* At most this many faults are listed. */
#define CALM_DOCUMENT_FAULTS 32

typedef struct calm_document_fault {
    const char *pointer;    /* RFC 6901, "" is the document itself: "/calibration/samples"                 */
    const char *message;    /* "expected a whole number, found \"many\""                                    */
} calm_document_fault;

/* Faults as they are found. */
typedef struct calm_faults {
    calm_document_fault of[CALM_DOCUMENT_FAULTS];
    size_t n;
} calm_faults;

/* Compare a document with the table.  Faults come in the order of the document, texts in ctx->out; none: it is one.  An
 * unknown key is reported at its own pointer with the nearest known one.  CALM_ENOMEM. */
calm_status calm_document_faults(calm_ctx *ctx, const calm_json *document, calm_faults *faults);

/* The first fault as an error, "WHERE: POINTER: MESSAGE".  CALM_EFORMAT. */
calm_status calm_document_check(calm_ctx *ctx, const char *where, const calm_json *document);

/* Read a file and check it; *out is freed by the caller.  CALM_EFORMAT: not JSON, or not a recipe. */
calm_status calm_document_read(calm_ctx *ctx, const char *path, calm_json **out);

/* The JSON Schema (draft 2020-12) of documents; freed by the caller, NULL without memory. */
calm_json *calm_document_schema(void);

/* Fill a spec from a checked document: every value that it has and that was not given (spec->given).  What was given
 * although the document has it goes to spec->overrides.  Digests go to spec->demanded, but those of a model or a text
 * that was given. `path` stands in messages.  Texts in ctx->out, the document may be freed.  CALM_EARG: options of an
 * algorithm that it has not, a word that would read as several, a revision of what is no name on the hub. */
calm_status calm_spec_read(calm_ctx *ctx, const calm_json *document, const char *path, calm_recipe_spec *spec);

/* The document of a spec, in a fixed order; *out is freed by the caller.  Every number and word is written, also when
 * it is the default; texts that are not given are left out. */
calm_status calm_spec_write(calm_ctx *ctx, const calm_recipe_spec *spec, calm_json **out);
