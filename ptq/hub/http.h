/* HTTP for the hub: one request at a time over kept connections; only http.c uses curl.
 *
 * calm follows redirects itself, one by one, so that the token is sent only to the endpoint's own scheme, host and
 * port, and no redirect leads from https to http. */
#pragma once

#include <stdint.h>

#include "ptq/hub/reponame.h"
#include "ptq/hub/settings.h"

typedef struct calm_http calm_http;

/* How a request ended. */
typedef enum calm_http_end {
    CALM_HTTP_ANSWERED,       /* a complete answer with status `code`                             */
    CALM_HTTP_UNREACHABLE,    /* the host does not exist or does not answer                       */
    CALM_HTTP_UNTRUSTED,      /* TLS: an invalid certificate, or no common protocol               */
    CALM_HTTP_STALLED,        /* no byte came for settings.stall_seconds                          */
    CALM_HTTP_CUT,            /* the connection ended before the answer did                       */
    CALM_HTTP_MISLED,         /* too many redirects, or one that calm does not follow             */
    CALM_HTTP_STOPPED         /* the sink failed; the context has the reason                      */
} calm_http_end;

typedef struct calm_http_reply {
    calm_http_end end;
    long code;                      /* status of the last hop; 0: none came                                   */
    bool foreign;                   /* the last hop was another host than the endpoint's                      */
    bool met;                       /* some host has answered this client, now or earlier                     */
    char detail[256];               /* curl's message, or a redirect's target; never has a token              */
    char error_code[64];            /* X-Error-Code, from the endpoint                                        */
    char error_message[128];        /* X-Error-Message, from the endpoint                                     */
    char commit[64];                /* X-Repo-Commit, from the endpoint; "": none                             */
    char etag[CALM_HUB_ETAG];       /* X-Linked-Etag, else ETag, from the endpoint, without W/ and quotes     */
    char stored[CALM_HUB_ETAG];     /* ETag of the last hop, unchanged: that of a part uploaded to storage    */
    int64_t linked_bytes;           /* X-Linked-Size; -1: none                                                */
    int64_t length;                 /* Content-Length of the body; -1: none                                   */
    int64_t range_begin, range_of;  /* Content-Range; -1: none                                                */
    long retry_after;               /* Retry-After in seconds; 0: none                                        */
} calm_http_reply;

/* Receives the body of an answer in pieces: of status 200 or 206, or of any status if the request has a body.  A
 * failure ends the request.  `reply` has all headers. */
typedef calm_status calm_http_sink(calm_ctx *ctx, void *user, const calm_http_reply *reply, const void *bytes,
                                   size_t n_bytes);

typedef struct calm_http_request {
    const char *url;
    bool head;              /* a HEAD request to the endpoint; a redirect to another host is the answer               */
    const char *method;     /* "POST" or "PUT", with the body below; NULL: GET                                        */
    const char *type;       /* Content-Type of the body, and the Accept header                                        */
    const void *bytes;      /* [n_bytes] the body                                                                     */
    size_t n_bytes;
    uint64_t from;          /* first byte to request; 0: all                                                          */
    calm_http_sink *sink;   /* NULL: the body is ignored                                                              */
    void *user;
} calm_http_request;

/* Opens a client.  `settings` (endpoint, token, times) must outlive it.  Close *out, which may be NULL, also after a
 * failure.  CALM_EARG: the endpoint is not a URL.  CALM_ENOMEM. */
calm_status calm_http_open(calm_ctx *ctx, const calm_hub_settings *settings, calm_http **out);
void calm_http_close(calm_http *http);

/* Sends one request and follows its redirects; a request with a body follows only 307 and 308.  Returns CALM_OK
 * whenever `reply` says how it ended, even without an answer.  Fails as the sink does; CALM_ENOMEM. */
calm_status calm_http_ask(calm_ctx *ctx, calm_http *http, const calm_http_request *request, calm_http_reply *reply);
