/* Recipe documents: the JSON form of a spec.
 *
 * The table of document_shape.c has every place of a document and its shape; the option table of ptq/recipe/spec.h has
 * the option of each place.  Reading, writing, checking and the published JSON Schema use both tables. */
#pragma once

#include "ptq/io/json.h"
#include "ptq/recipe/spec.h"

/* The value of "calm_recipe". */
#define CALM_RECIPE_VERSION 1

/* Size limit of a recipe file, bytes. */
#define CALM_RECIPE_BYTES ((size_t)1 << 20)

/* The most faults that are listed. */
#define CALM_DOCUMENT_FAULTS 32

typedef struct calm_document_fault {
    const char *pointer;    /* JSON pointer (RFC 6901), "" is the document: "/calibration/samples" */
    const char *message;    /* "expected a whole number, found \"many\""                                    */
} calm_document_fault;

/* Faults in the order in which they are found. */
typedef struct calm_faults {
    calm_document_fault of[CALM_DOCUMENT_FAULTS];
    size_t n;
} calm_faults;

/* Compares a document with the table and lists its faults in document order (texts in ctx->out); no fault: the document
 * is a recipe.  An unknown key is reported at its pointer, with the nearest known key.  CALM_ENOMEM. */
calm_status calm_document_faults(calm_ctx *ctx, const calm_json *document, calm_faults *faults);

/* Fails with CALM_EFORMAT and the first fault, "WHERE: POINTER: MESSAGE", if there is one. */
calm_status calm_document_check(calm_ctx *ctx, const char *where, const calm_json *document);

/* Reads a file and checks it; the caller frees *out.  CALM_EFORMAT: not JSON, or not a recipe. */
calm_status calm_document_read(calm_ctx *ctx, const char *path, calm_json **out);

/* Returns the JSON Schema (draft 2020-12) of recipes; the caller frees it; NULL: out of memory. */
calm_json *calm_document_schema(void);

/* Copies the values of a checked document into a spec, except options that are given already (spec->given); of those,
 * the ones that the document also has go to spec->overrides.  SHA-256 digests go to spec->demanded, except those of a
 * model or a text that is given.  `path` begins messages.  Texts are in ctx->out; the document may be freed.
 * CALM_EARG: an algorithm lacks an option, a word would be split into several, a revision of a model that is not on the
 * hub. */
calm_status calm_spec_read(calm_ctx *ctx, const calm_json *document, const char *path, calm_recipe_spec *spec);

/* Writes a spec as a document, in a fixed order; the caller frees *out.  Numbers and words are written even if they are
 * defaults; texts that are not given are left out. */
calm_status calm_spec_write(calm_ctx *ctx, const calm_recipe_spec *spec, calm_json **out);
