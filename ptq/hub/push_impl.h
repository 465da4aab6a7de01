/* What the files of a push share.  Only push*.c include it. */
#pragma once

#include "ptq/hub/fetch.h"
#include "ptq/hub/push.h"
#include "ptq/io/json.h"

#define CALM_PUSH_LFS_TYPE "application/vnd.git-lfs+json"

/* One request of the API with a body. */
typedef struct calm_push_call {
    const char *what;        /* for messages: what the hub was asked for, "ORG/NAME: commit"              */
    const char *url, *type;
    const char *body;        /* [n_body] */
    size_t n_body;
    long also;               /* an answer that is no failure next to 2xx; 0: none                         */
    long code;               /* out: the answer's */
    calm_json *answer;       /* out: its JSON, NULL where it is none; freed by the caller                 */
} calm_push_call;

/* POST it, again after passing failures.  CALM_EARG: the hub does not take the token, or its owner may not write there.
 * CALM_EIO, CALM_ENOTFOUND: as calm_hub_refused. */
calm_status calm_push_post(calm_ctx *ctx, const calm_hub_session *s, calm_push_call *call);

/* The same with a JSON object as the body, which is released. */
calm_status calm_push_post_json(calm_ctx *ctx, const calm_hub_session *s, calm_json *body, calm_push_call *call);

/* Send the large files [n] that the storage host does not have; *sent += their bytes.  CALM_EMISMATCH: a file has
 * changed since its digest was taken. */
calm_status calm_push_large(calm_ctx *ctx, calm_hub_session *s, calm_push_file *const *files, size_t n, size_t *sent);
