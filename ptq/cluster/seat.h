/* Seats: the machine of each rank and the cores that it may use, and warnings about a bad placement. */
#pragma once

#include <sched.h>
#include <stddef.h>

#include "ptq/base/context.h"

#define CALM_HOST_MAX 128

/* One rank. */
typedef struct calm_seat {
    char host[CALM_HOST_MAX];
    cpu_set_t cores;    /* that it may use                */
    int n_cores;        /* that its machine has           */
    int threads;        /* that it computes with          */
} calm_seat;

/* This process on machine `host`. */
calm_seat calm_seat_here(const char *host, int threads);

/* Ranks of seats [n] on the machine of one of them, itself included. */
int calm_seat_neighbours(const calm_seat *seats, size_t n, size_t rank);

/* Log what is wrong with seats [n], of each kind the first machine: more threads than cores; ranks that must share
 * cores although others are free, as after a wrong binding; ranks that nothing keeps apart (a note); less than half of
 * the cores used (a note). */
void calm_seat_judge(calm_ctx *ctx, const calm_seat *seats, size_t n);
