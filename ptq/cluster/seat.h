/* Seats: the machine of each rank and the cores that it may use, and warnings about a bad placement. */
#pragma once

#include <sched.h>
#include <stddef.h>

#include "ptq/base/context.h"

#define CALM_HOST_MAX 128

/* The place of one rank. */
typedef struct calm_seat {
    char host[CALM_HOST_MAX];
    cpu_set_t cores;    /* cores that it may use          */
    int n_cores;        /* number of its machine's cores  */
    int threads;        /* number of threads it computes with */
} calm_seat;

/* Returns the seat of this process on machine `host`. */
calm_seat calm_seat_here(const char *host, int threads);

/* Returns the number of seats [n] on the machine of `rank`, which counts, too. */
int calm_seat_neighbours(const calm_seat *seats, size_t n, size_t rank);

/* Logs bad placements among seats [n], the first machine of each kind: more threads than cores; ranks that must share
 * cores although others are free, as after a wrong binding; ranks that nothing keeps apart (a note); less than half of
 * the cores used (a note). */
void calm_seat_judge(calm_ctx *ctx, const calm_seat *seats, size_t n);
