/* Asks whether the hub answers. */
#pragma once

#include "ptq/hub/settings.h"

/* Sends one request to the endpoint, for at most this many seconds.  *why, in ctx->out, says why no answer came; NULL:
 * an answer came, with any status.  CALM_EARG: the endpoint is not a URL.  CALM_ENOMEM. */
calm_status calm_hub_reach(calm_ctx *ctx, const calm_hub_settings *settings, long seconds, const char **why);
