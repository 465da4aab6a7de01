/* What to tell people about a request that came to nothing. */
#ifndef CALM_HUB_REFUSED_H
#define CALM_HUB_REFUSED_H

#include "ptq/hub/http.h"

/* Record the failure: what happened and what to do.  `what` is the repository, or "ORG/NAME: FILE".
 * CALM_ENOTFOUND: no such repository, revision or file.  CALM_EIO: everything else (network, token, gate). */
calm_status calm_hub_refused(calm_ctx *ctx, const calm_hub_settings *settings, const calm_hub_name *name,
                             const char *what, const calm_http_reply *reply);

/* Might the same request do better a little later? */
bool calm_hub_is_passing(const calm_http_reply *reply);

#endif
