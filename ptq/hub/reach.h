/* Asks whether the hub answers. */
#pragma once

#include "ptq/hub/settings.h"

/* Ask the endpoint once, for at most this many seconds.  *why, in ctx->out: NULL, an answer came, whatever it was;
 * else what was wrong.  CALM_EARG: the endpoint is no address.  CALM_ENOMEM. */
calm_status calm_hub_reach(calm_ctx *ctx, const calm_hub_settings *settings, long seconds, const char **why);
