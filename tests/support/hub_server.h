/* A small hub on the loopback address, with a storage host on another port, and faults that a test chooses.
 *
 * One thread answers one request after the other and records the requests.  Every response closes its connection. */
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
    bool lfs;                  /* listed with its SHA-256; a redirect leads to the storage host */
    /* faults, each for the body of this file */
    size_t cut_at;             /* the connection ends after this many bytes of an answer ...    */
    int n_cuts;                /* ... this many times                                           */
    bool no_ranges;            /* answer 200 with the whole file, whatever the range            */
    bool wrong_range;          /* answer 206 from another byte than requested                   */
    bool flipped;              /* the last byte is wrong                                        */
    bool stalls;               /* send nothing after the first `cut_at` bytes                   */
    long extra;                /* bytes that the listing adds to the size (negative: subtracts) */
    bool unannounced;          /* no Content-Length: the body ends with the connection          */
    int status, n_status;      /* answer with this status this many times instead               */
    const char *error;         /* X-Error-Code of that answer                                   */
    const char *location;      /* target of the redirect, instead of the storage host           */
    /* hub_start fills these in */
    char sha256[65], sha1[41];
} hub_file;

typedef struct hub_request {
    bool storage;              /* the storage host received it */
    char method[8], path[512], range[64];
    char authorization[256];   /* "": no such header */
} hub_request;

typedef struct hub_server {
    /* set before hub_start */
    const char *repo;          /* "test/tiny" */
    hub_file files[HUB_FILES_MAX];
    size_t n_files;
    const char *token;         /* required for every request; NULL: no token               */
    int status;                /* status of the API instead of the listing; 0: the listing */
    const char *error;         /* X-Error-Code of that answer                              */
    const char *message;       /* X-Error-Message of that answer                           */
    const char *listing;       /* wrong body of the listing; NULL: the true one            */
    size_t listing_bytes;      /* > 0: number of blanks before the listing                 */
    const char *listing_location;    /* redirect the listing once to this path or address  */
    bool no_blobs;             /* the listing has only names, as from a mirror             */
    bool loops;                /* every resolve redirects to itself                        */
    /* valid after hub_start */
    char endpoint[64], storage[64];
    hub_request requests[HUB_REQUESTS_MAX];
    size_t n_requests;         /* read them only while no request runs */
    int listeners[2], wake[2];
    pthread_t thread;
} hub_server;

/* Adds a file, whose bytes are borrowed, and returns it so that the test can set faults. */
hub_file *hub_add(hub_server *hub, const char *name, const char *bytes, size_t n_bytes, bool lfs);

/* Listens on two free ports and answers; ends the process if that fails. */
void hub_start(hub_server *hub);

/* Returns settings for this hub and that cache: no token, three attempts, no pauses, a stall after one second without
 * a byte. */
calm_hub_settings hub_settings(const hub_server *hub, const char *cache);

/* Stops the hub and joins its thread. */
void hub_stop(hub_server *hub);

/* Returns the number of requests with that method for paths that begin with `path`; NULL: any. */
size_t hub_count(const hub_server *hub, const char *method, const char *path);

#endif
