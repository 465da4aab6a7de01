/* A small hub on the loopback address, with a storage host on another port, that misbehaves as a test asks it to.
 *
 * One thread answers one request after the other and notes what it was asked.  Every response closes its connection. */
#ifndef CALM_TESTS_HUB_SERVER_H
#define CALM_TESTS_HUB_SERVER_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ptq/hub/settings.h"

#define HUB_COMMIT "0123456789abcdef0123456789abcdef01234567"
#define HUB_FILES_MAX 64
#define HUB_REQUESTS_MAX 256

typedef struct hub_file {
    const char *name;
    const char *bytes;
    size_t n_bytes;
    bool lfs;                  /* listed with its SHA-256, and served by the storage host after a redirect         */
    /* faults, each for the body of this file */
    size_t cut_at;             /* the connection ends after this many bytes of an answer ...                         */
    int n_cuts;                /* ... this many times                                                                */
    bool no_ranges;            /* 200 and everything, whatever range was asked for                                 */
    bool wrong_range;          /* 206 from another byte than asked for                                             */
    bool flipped;              /* the last byte is another one                                                     */
    bool stalls;               /* nothing after the first `cut_at` bytes, until the client goes                    */
    long extra;                /* bytes that the listing claims over those there are (or below)                    */
    bool unannounced;          /* no Content-Length: the end of the connection is the end of the body              */
    int status, n_status;      /* answer with this status this many times instead                                    */
    const char *error;         /* X-Error-Code of that answer                                                      */
    const char *location;      /* of the redirect, instead of the storage host                                     */
    /* filled in by hub_start */
    char sha256[65], sha1[41];
} hub_file;

typedef struct hub_request {
    bool storage;              /* it came to the storage host */
    char method[8], path[512], range[64];
    char authorization[256];   /* "": no such header          */
} hub_request;

typedef struct hub_server {
    /* set before hub_start */
    const char *repo;          /* "test/tiny"                                                                      */
    hub_file files[HUB_FILES_MAX];
    size_t n_files;
    const char *token;         /* needed for everything; NULL: none is                                             */
    int status;                /* answer of the API instead of the listing; 0: none                                */
    const char *error;         /* X-Error-Code of that answer                                                      */
    const char *message;       /* X-Error-Message of it                                                            */
    const char *listing;       /* body of the listing instead of the true one                                      */
    size_t listing_bytes;      /* > 0: that many blanks in front of it                                             */
    const char *listing_location;    /* redirect of the listing, once, to this path or address                     */
    bool no_blobs;             /* the listing has names alone, as from a mirror                                    */
    bool loops;                /* every resolve leads to itself                                                    */
    /* after hub_start */
    char endpoint[64], storage[64];
    hub_request requests[HUB_REQUESTS_MAX];
    size_t n_requests;         /* read them when no request is running                                             */
    int listeners[2], wake[2];
    pthread_t thread;
} hub_server;

/* Add a file; bytes are borrowed.  Returns it, for its faults. */
hub_file *hub_add(hub_server *hub, const char *name, const char *bytes, size_t n_bytes, bool lfs);

/* Listen on two free ports and answer; exits the process where that cannot be. */
void hub_start(hub_server *hub);

/* Settings to ask it with that cache: no token, three attempts, no pauses, one second without a byte is a stall. */
calm_hub_settings hub_settings(const hub_server *hub, const char *cache);

/* Stop answering and join the thread. */
void hub_stop(hub_server *hub);

/* How many requests came for that path (its beginning) with that method; NULL: any. */
size_t hub_count(const hub_server *hub, const char *method, const char *path);

#endif
