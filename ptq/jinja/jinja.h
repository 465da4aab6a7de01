/* Templates in Jinja, the language of chat templates, rendered as transformers renders them: trim_blocks and
 * lstrip_blocks, no escaping of HTML, break and continue, {% generation %}, the tojson of transformers, and its
 * sandbox, which refuses methods that change a list or a dict.
 *
 * What a template may use and calm does not have (include, extends, import, block, call, recursive loops, a filter,
 * test, method or function that is in no table here) is CALM_EUNSUPPORTED, with its name and line.  strftime_now gives
 * a fixed day, 26 July 2024, so that two runs read the same text.
 *
 * Templates are untrusted: nesting, steps, memory and output have limits, and passing one is CALM_EFORMAT. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/base/text.h"
#include "ptq/io/json.h"

typedef struct calm_jinja calm_jinja;    /* a parsed template */

/* Parse `text` [n], which is copied.  `where` stands in error messages, also of later renderings.  *out is freed with
 * calm_jinja_free.  CALM_EFORMAT, CALM_EUNSUPPORTED, CALM_ENOMEM. */
calm_status calm_jinja_new(calm_ctx *ctx, const char *where, const char *text, size_t n, calm_jinja **out);
void calm_jinja_free(calm_jinja *jinja);

/* Append the text that the template makes of the members of `variables`, an object.  A template is only read: threads
 * may render it at once, each with its own context.
 * CALM_EFORMAT: the template fails, or refuses what it is given (raise_exception); CALM_EUNSUPPORTED. */
calm_status calm_jinja_render(calm_ctx *ctx, const calm_jinja *jinja, const calm_json *variables, calm_text *out);
