/* Private parts of a push.  Only push*.c include this file. */
#pragma once

#include "ptq/hub/fetch.h"
#include "ptq/hub/push.h"
#include "ptq/io/json.h"

#define CALM_PUSH_LFS_TYPE "application/vnd.git-lfs+json"

/* A POST request to the hub's API, and its answer. */
typedef struct calm_push_call {
    const char *what;        /* the request for messages, "ORG/NAME: commit"                              */
    const char *url, *type;  /* address; Content-Type                                                     */
    const char *body;        /* [n_body] */
    size_t n_body;
    long also;               /* a status that counts as success besides 2xx; 0: none                      */
    long code;               /* out: status of the answer                                                 */
    calm_json *answer;       /* out: the answer, NULL if it is not JSON; freed by the caller              */
} calm_push_call;

/* Sends the request, and repeats it after temporary failures.  CALM_EARG: the hub does not accept the token, or its
 * owner may not write to the repository.  CALM_EIO, CALM_ENOTFOUND: as calm_hub_refused. */
calm_status calm_push_post(calm_ctx *ctx, const calm_hub_session *s, calm_push_call *call);

/* Does the same with a JSON object as the body, which it releases. */
calm_status calm_push_post_json(calm_ctx *ctx, const calm_hub_session *s, calm_json *body, calm_push_call *call);

/* Uploads those of the large files [n] that the storage host lacks, and adds their bytes to *sent.  CALM_EMISMATCH: a
 * file has changed since its digest was computed. */
calm_status calm_push_large(calm_ctx *ctx, calm_hub_session *s, calm_push_file *const *files, size_t n, size_t *sent);
