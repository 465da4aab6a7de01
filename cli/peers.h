/* Options as other tools spell them (cli/peers.def). */
#pragma once

#include "ptq/base/context.h"

/* Replace in argv [argc] other tools' spellings of long options, and underscores for dashes, by the names that the
 * command has; `names` [n] are these.  New words are in ctx->out.  CALM_EARG, with `owner` ("calm quantize") in the
 * message: calm has something else for an option, which the message names. */
calm_status calm_peers_replace(calm_ctx *ctx, const char *owner, const char *const *names, size_t n, int argc,
                               char **argv);

/* What calm has for another tool's command: "calm eval --model DIR"; NULL: nothing. */
const char *calm_peers_command(const char *word);
