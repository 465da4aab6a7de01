/* Repeats requests after temporary failures, and downloads one file from the hub into the cache. */
#pragma once

#include "ptq/base/text.h"
#include "ptq/hub/cache.h"
#include "ptq/hub/http.h"

typedef struct calm_hub_session {
    const calm_hub_settings *settings;
    const calm_hub_name *name;
    calm_http *http;
    const char *repo_dir;
    const char *commit;             /* NULL until the listing is read                                   */
    calm_tick_fn *tick;             /* gets done_bytes and total_bytes; may be NULL                     */
    void *tick_user;
    int64_t done_bytes, total_bytes;    /* fetched bytes; bytes that were missing at the start          */
} calm_hub_session;

/* After a failed request: if another attempt may help, logs, pauses and returns true; *attempt counts from 0.
 * false with ctx->status CALM_EINTERRUPTED: an interruption ends the attempts. */
bool calm_hub_retry(calm_ctx *ctx, const calm_hub_session *s, const char *what, const calm_http_reply *reply,
                    int *attempt);

/* Downloads `url` into `out`; messages name it as `what` ("ORG/NAME", "ORG/NAME: config.json").  CALM_EFORMAT: more
 * than `limit` bytes.  CALM_EIO, CALM_ENOTFOUND: as calm_hub_refused. */
calm_status calm_hub_get_text(calm_ctx *ctx, const calm_hub_session *s, const char *url, const char *what,
                              size_t limit, calm_text *out);

/* Requests the size and the etag of a file, which the listing does not give. */
calm_status calm_hub_get_metadata(calm_ctx *ctx, const calm_hub_session *s, calm_hub_file *file);

/* Does the cache have the file's blob, in the listed size? */
bool calm_hub_has_blob(calm_ctx *ctx, const calm_hub_session *s, const calm_hub_file *file);

/* Returns the bytes of the file that an interrupted transfer left in the cache; 0: none that can be used. */
int64_t calm_hub_partial_bytes(calm_ctx *ctx, const calm_hub_session *s, const calm_hub_file *file);

/* Downloads the blob into the cache, continuing an interrupted transfer; verifies it, then renames it to its name.
 * CALM_EMISMATCH: the content or the size differs from the hub's listing (no byte is kept).  CALM_ENOSPC.  CALM_EIO,
 * CALM_ENOTFOUND: calm_hub_refused (refused.h). */
calm_status calm_hub_fetch(calm_ctx *ctx, calm_hub_session *s, calm_hub_file *file);
