/* Fetching a model with progress: `calm pull`, and `--model ORG/NAME` for one that is not in the cache. */
#ifndef CALM_CLI_PULL_H
#define CALM_CLI_PULL_H

#include "ptq/hub/hub.h"

/* calm_hub_pull with a bar of the bytes that come, and its notes, on stderr; `quiet`: without. */
calm_status calm_pull_shown(calm_ctx *ctx, const calm_hub_settings *settings, const calm_hub_name *name, bool quiet,
                            calm_hub_snapshot *out);

#endif
