/* Error messages of failed requests. */
#pragma once

#include "ptq/hub/http.h"

/* Fails with a message that says what happened and what to do.  `what` is the repository, or "ORG/NAME: FILE".
 * CALM_ENOTFOUND: no such repository, revision or file.  CALM_EIO: everything else (network, token, gate). */
calm_status calm_hub_refused(calm_ctx *ctx, const calm_hub_settings *settings, const calm_hub_name *name,
                             const char *what, const calm_http_reply *reply);

/* Is the failure temporary, so that the same request may succeed later? */
bool calm_hub_is_temporary(const calm_http_reply *reply);
