/* Private parts of a cluster: cluster.c has the functions for the run, watch.c the watching thread. */
#pragma once

#include <pthread.h>

#include "ptq/cluster/cluster.h"
#include "ptq/cluster/seat.h"
#include "ptq/cluster/wire.h"

#define CALM_PLACE_MAX 160

/* Another rank: rank 0 has all ranks as peers, another rank only rank 0. */
typedef struct calm_peer {
    int fd;                          /* control connection; -1: none, or closed */
    long pid;
    char host[CALM_HOST_MAX];
    char place[CALM_PLACE_MAX];      /* what it works on; "": not known       */
    char summary[CALM_PLACE_MAX];    /* what it did; set after all its rows   */
    char *mail;                      /* received work or answer, on the heap; NULL: none */
    size_t n_mail;
    double worked;                   /* seconds that it worked on answers     */
} calm_peer;

struct calm_cluster {
    calm_transport transport;
    calm_cluster_hooks hooks;
    calm_peer *peers;                /* [ranks]                               */
    calm_seat *seats;                /* [ranks] on rank 0; NULL elsewhere     */
    int on_node;                     /* number of ranks on this machine       */
    char token[CALM_HOST_MAX];       /* secret that a connecting rank must send */
    char own_host[CALM_HOST_MAX];
    bool agreed;                     /* all ranks know the failure and share it */

    pthread_t watcher;
    bool watching;
    int wake[2];                     /* pipe to the watcher: 'c' close, 't' SIGTERM */

    pthread_mutex_t store;           /* held by the thread that may use rank 0's store */
    bool asked;                      /* rank 0 has asked a rank for work      */
    double waited;                   /* seconds that rank 0 waited for answers */
    int lent;                        /* depth of CALM_SCOPED_LEND; run's thread only */
    bool receives;                   /* receiver is set                       */
    calm_cluster_receiver receiver;  /* protected by `store`                  */

    pthread_mutex_t lock;            /* protects the members below            */
    pthread_cond_t changed;
    int n_done;                      /* number of ranks that have sent all rows */
    bool working;                    /* this rank does work for rank 0        */
    bool closing;                    /* the run's thread ends the run itself  */
    bool ended;                      /* rank 0 has sent CALM_FRAME_END        */
    calm_status end_status;
};

/* Start and stop the watching thread (watch.c). */
calm_status calm_watch_start(calm_ctx *ctx, calm_cluster *cluster);
void calm_watch_stop(calm_cluster *cluster);
