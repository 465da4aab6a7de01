/* Observers: callbacks that see the activations at the hook points (kinds.def) of a forward pass. */
#pragma once

#include <stdint.h>

#include "ptq/arch/roles.h"
#include "ptq/base/context.h"

/* Activations at a hook point: the rows of one window, or (expert >= 0) the rows of several windows that were routed to
 * an expert, in the order of windows and tokens. */
typedef struct calm_observation {
    calm_hook hook;
    long expert;                  /* CALM_NO_EXPERT, CALM_SHARED_EXPERT or its number     */
    size_t window;                /* number of the window; undefined for an expert's rows */
    const float *x;               /* [n_rows, width] borrowed                             */
    size_t n_rows, width;
    const uint32_t *rows;         /* experts: [n_rows] rows of the batch; else NULL       */
} calm_observation;

/* Sees one observation.  Several threads call it at once, for different windows or experts.  A failure ends the forward
 * pass. */
typedef calm_status calm_hook_fn(void *user, calm_ctx *ctx, const calm_observation *seen);

typedef struct calm_observer {
    calm_hook_fn *fn;    /* NULL: none */
    void *user;
} calm_observer;

/* Calls observer->fn and returns its status; CALM_OK if the observer or its fn is NULL. */
calm_status calm_observe(const calm_observer *observer, calm_ctx *ctx, const calm_observation *seen);
