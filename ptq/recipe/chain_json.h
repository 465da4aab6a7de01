/* An algorithm of a recipe as a JSON object: {"name": "gptq", "options": {"order": "none"}}. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/io/json.h"

/* Converts the object to the text of its chain, in ctx->out: the chain of that name, with each option appended to the
 * part that has it ("absmax+gptq(order=activation, order=none)"; the last value of an option counts).  `where` begins
 * messages.  CALM_EARG: no part has the option (the message has the nearest name), or several parts have it. */
calm_status calm_chain_of_json(calm_ctx *ctx, const char *where, const calm_json *item, char **out);
