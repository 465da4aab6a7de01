/* JSON Schema: is a document of a stranger what we expect?  A small interpreter for the keywords that our schemas use.
 *
 *   structure   type properties required additionalProperties propertyNames minProperties maxProperties items
 *               minItems maxItems
 *   values      enum const minimum maximum exclusiveMinimum exclusiveMaximum minLength maxLength pattern
 *   choice      anyOf oneOf $ref (#/$defs/NAME of the same document) $defs
 *   for people  $schema $id title description examples default $comment
 *
 * Meanings are those of draft 2020-12: lengths count characters, 1.0 is an integer, a pattern may match anywhere.  The
 * one difference: ^ and $ are at every line (ptq/io/regex.h), so a pattern that is to hold of a whole text comes with a
 * maxLength.  Any other keyword in a schema is an error, so that none is believed to be checked. */
#ifndef CALM_IO_JSON_SCHEMA_H
#define CALM_IO_JSON_SCHEMA_H

#include "ptq/io/json.h"

/* Deepest nesting of a document, and of one that a schema refers into. */
#define CALM_SCHEMA_DEPTH 64

/* At most so many faults are listed. */
#define CALM_SCHEMA_FAULTS 32

typedef struct calm_json_fault {
    const char *pointer;    /* RFC 6901, "" is the document itself: "/calibration/samples"                 */
    const char *message;    /* "expected a whole number, found \"many\""                                    */
} calm_json_fault;

/* Is the schema one that this interpreter reads whole: known keywords with values of their types, references that exist,
 * patterns that compile?  `where` stands in messages.  CALM_EUNSUPPORTED: no, with the place. */
calm_status calm_json_schema_check(calm_ctx *ctx, const char *where, const calm_json *schema);

/* Compare a document with a schema that is checked.  Faults [*n] in the order of the document, in ctx->out; none: it is
 * valid.  An unknown member is reported at its own pointer with the nearest known name; of several alternatives that all
 * refuse, the one that came deepest into the value speaks.  CALM_ENOMEM. */
calm_status calm_json_schema_faults(calm_ctx *ctx, const calm_json *schema, const calm_json *value,
                                    calm_json_fault **faults, size_t *n);

/* The first fault as an error, "WHERE: POINTER: MESSAGE".  CALM_EFORMAT. */
calm_status calm_json_schema_expect(calm_ctx *ctx, const char *where, const calm_json *schema, const calm_json *value);

#endif
