/* Options as other tools spell them (cli/peers.def). */
#pragma once

#include "ptq/base/context.h"

/* Replaces in argv [argc] other tools' spellings of long options, and underscores for dashes, by the command's option
 * names, which are `names` [n].  New words are in ctx->out.  CALM_EARG: calm has something else instead of an option;
 * the message names it and `owner` ("calm quantize"). */
calm_status calm_peers_replace(calm_ctx *ctx, const char *owner, const char *const *names, size_t n, int argc,
                               char **argv);

/* Returns calm's command line that replaces another tool's command, "calm eval --model DIR"; NULL: there is none. */
const char *calm_peers_command(const char *word);
