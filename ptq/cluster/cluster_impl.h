/* The inside of a cluster: cluster.c has what the run calls, watch.c the thread. */
#pragma once

#include <pthread.h>

#include "ptq/cluster/cluster.h"
#include "ptq/cluster/seat.h"
#include "ptq/cluster/wire.h"

#define CALM_PLACE_MAX 160

/* A rank, as it is known here: rank 0 knows all, others rank 0. */
typedef struct calm_peer {
    int fd;                          /* control connection; -1: none, or gone */
    long pid;
    char host[CALM_HOST_MAX];
    char place[CALM_PLACE_MAX];      /* what it works on; "": it said nothing  */
    char summary[CALM_PLACE_MAX];    /* what it did, once its rows are all there */
    char *mail;                      /* work or an answer that came from it, of the heap; NULL: none */
    size_t n_mail;
    double worked;                   /* seconds for its answers           */
} calm_peer;

struct calm_cluster {
    calm_transport transport;
    calm_cluster_hooks hooks;
    calm_peer *peers;                /* [ranks]                               */
    calm_seat *seats;                /* [ranks] on rank 0; NULL elsewhere     */
    int on_node;                     /* ranks of this machine                 */
    char token[CALM_HOST_MAX];       /* who connects must know it             */
    char own_host[CALM_HOST_MAX];
    bool agreed;                     /* a failure is that of all ranks, which have been told */

    pthread_t watcher;
    bool watching;
    int wake[2];                     /* to the watcher: 'c' close, 't' SIGTERM */

    pthread_mutex_t store;           /* who may use rank 0's store            */
    bool asked;                      /* rank 0: for work, once at least       */
    double waited;                   /* rank 0: seconds, for answers          */
    int lent;                        /* depth; of the run's thread alone      */
    bool receives;
    calm_cluster_receiver receiver;  /* under `store`                         */

    pthread_mutex_t lock;            /* of what follows                       */
    pthread_cond_t changed;
    int n_done;
    bool working;                    /* at what rank 0 asked for              */
    bool closing;                    /* the run's thread ends the run itself  */
    bool ended;                      /* rank 0 said so                        */
    calm_status end_status;
};

/* Start and stop the watching thread (watch.c). */
calm_status calm_watch_start(calm_ctx *ctx, calm_cluster *cluster);
void calm_watch_stop(calm_cluster *cluster);
