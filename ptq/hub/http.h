/* HTTP for the hub: one request at a time over kept connections; the only user of curl.
 *
 * Redirects are followed here and not by curl, hop by hop: the token goes to the endpoint's own scheme, host and port
 * and nowhere else, and from https nothing leads to http. */
#pragma once

#include <stdint.h>

#include "ptq/hub/reponame.h"
#include "ptq/hub/settings.h"

typedef struct calm_http calm_http;

/* How a request ended, and what that means for another attempt. */
typedef enum calm_http_end {
    CALM_HTTP_ANSWERED,       /* a complete answer; `code` says which                             */
    CALM_HTTP_UNREACHABLE,    /* no such host, or none that answers                               */
    CALM_HTTP_UNTRUSTED,      /* TLS: a certificate that does not hold, or no common protocol     */
    CALM_HTTP_STALLED,        /* nothing came for the time allowed                                */
    CALM_HTTP_CUT,            /* the connection ended in the middle                               */
    CALM_HTTP_MISLED,         /* too many redirects, or one that is not followed                  */
    CALM_HTTP_STOPPED         /* the sink failed; the context has the reason                      */
} calm_http_end;

typedef struct calm_http_reply {
    calm_http_end end;
    long code;                      /* of the last hop; 0: none came                                          */
    bool foreign;                   /* the last hop was another host than the endpoint's                      */
    bool met;                       /* some host has answered this client, now or earlier                     */
    char detail[256];               /* curl's words, or where a redirect led; never has a token               */
    char error_code[64];            /* X-Error-Code, from the endpoint                                        */
    char error_message[128];        /* X-Error-Message, from the endpoint                                     */
    char commit[64];                /* X-Repo-Commit, from the endpoint; "": none                             */
    char etag[CALM_HUB_ETAG];       /* X-Linked-Etag, else ETag, from the endpoint, without W/ and quotes     */
    char stored[CALM_HUB_ETAG];     /* ETag of the last hop as it is, of a part that was sent to storage      */
    int64_t linked_bytes;           /* X-Linked-Size; -1: none                                                */
    int64_t length;                 /* of the body as announced; -1: not                                      */
    int64_t range_begin, range_of;  /* Content-Range; -1: none                                                */
    long retry_after;               /* seconds; 0: not said                                                   */
} calm_http_reply;

/* Takes the body of an answer 200 or 206, of a request with a body any answer's, in pieces; a failure ends the request.
 * `reply` has all headers. */
typedef calm_status calm_http_sink(calm_ctx *ctx, void *user, const calm_http_reply *reply, const void *bytes,
                                   size_t n_bytes);

typedef struct calm_http_request {
    const char *url;
    bool head;              /* headers alone, and from the endpoint: a redirect to another host is the answer         */
    const char *method;     /* "POST" or "PUT", with the body below; NULL: GET                                        */
    const char *type;       /* Content-Type of the body, and what is accepted                                         */
    const void *bytes;      /* [n_bytes] the body                                                                     */
    size_t n_bytes;
    uint64_t from;          /* first byte wanted; 0: all                                                              */
    calm_http_sink *sink;   /* NULL: the body is thrown away                                                          */
    void *user;
} calm_http_request;

/* Open a client.  `settings` (endpoint, token, times) must outlive it.  Close *out, which may be NULL, also after a
 * failure.  CALM_EARG: the endpoint is no address.  CALM_ENOMEM. */
calm_status calm_http_open(calm_ctx *ctx, const calm_hub_settings *settings, calm_http **out);
void calm_http_close(calm_http *http);

/* Send one request, and follow its redirects; one with a body is sent on by 307 and 308 alone.  CALM_OK whenever
 * `reply` says how it ended, also without an answer.  Fails as the sink does; CALM_ENOMEM. */
calm_status calm_http_ask(calm_ctx *ctx, calm_http *http, const calm_http_request *request, calm_http_reply *reply);
