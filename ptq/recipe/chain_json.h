/* An algorithm of a recipe that is written as an object: {"name": "gptq", "options": {"order": "none"}}. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/io/json.h"

/* Its chain as text, in ctx->out: the named one's with each option at the part that has it
 * ("absmax+gptq(order=activation, order=none)"; the last of an option counts).  `where` stands in messages. CALM_EARG:
 * no part has the option (the nearest is suggested), or several have. */
calm_status calm_chain_of_json(calm_ctx *ctx, const char *where, const calm_json *item, char **out);
