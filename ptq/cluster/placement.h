/* Where the ranks of a run are: machines, the cores they may use, and what is wrong with it. */
#ifndef CALM_CLUSTER_PLACEMENT_H
#define CALM_CLUSTER_PLACEMENT_H

#include <sched.h>
#include <stddef.h>

#include "ptq/base/context.h"

#define CALM_HOST_MAX 128

/* One rank. */
typedef struct calm_place {
    char host[CALM_HOST_MAX];
    cpu_set_t cores;    /* that it may use                */
    int n_cores;        /* that its machine has           */
    int threads;        /* that it computes with          */
} calm_place;

/* This process on machine `host`. */
calm_place calm_place_here(const char *host, int threads);

/* Ranks of places [n] on the machine of one of them, itself included. */
int calm_places_beside(const calm_place *places, size_t n, size_t rank);

/* Log what is wrong with places [n], of each kind the first machine: more threads than cores; ranks that must share
 * cores although others are free, as after a wrong binding; ranks that nothing keeps apart (a note); less than half of
 * the cores used (a note). */
void calm_places_judge(calm_ctx *ctx, const calm_place *places, size_t n);

#endif
