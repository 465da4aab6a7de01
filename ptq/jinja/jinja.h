/* Jinja templates, the language of chat templates, rendered as transformers renders them: trim_blocks and
 * lstrip_blocks, no HTML escaping, break and continue, {% generation %}, transformers' tojson, and its sandbox,
 * which refuses methods that change a list or a dict.
 *
 * A Jinja feature that calm does not have (include, extends, import, block, call, recursive loops, or a filter,
 * test, method or function without a table row) is CALM_EUNSUPPORTED, with its name and line.  strftime_now returns
 * a fixed day, 26 July 2024, so that all runs render the same text.
 *
 * Templates are untrusted: nesting, steps, memory and output are limited, and exceeding a limit is CALM_EFORMAT. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/base/text.h"
#include "ptq/io/json.h"

typedef struct calm_jinja calm_jinja;    /* a parsed template */

/* Parses `text` [n], which is copied.  `where` appears in error messages, also of later renderings.  *out is freed
 * with calm_jinja_free.  CALM_EFORMAT, CALM_EUNSUPPORTED, CALM_ENOMEM. */
calm_status calm_jinja_new(calm_ctx *ctx, const char *where, const char *text, size_t n, calm_jinja **out);
void calm_jinja_free(calm_jinja *jinja);

/* Renders the template with the members of the object `variables`, and appends the text.  Rendering does not change
 * the template: threads may render it at the same time, each with its own context.  CALM_EFORMAT: the template
 * fails, or rejects its variables (raise_exception); CALM_EUNSUPPORTED. */
calm_status calm_jinja_render(calm_ctx *ctx, const calm_jinja *jinja, const calm_json *variables, calm_text *out);
