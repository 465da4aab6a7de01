/* Verifying: what a lock says, compared with an output directory, or with the same run once more. */
#ifndef CALM_RUN_VERIFY_H
#define CALM_RUN_VERIFY_H

#include "ptq/run/lock_run.h"

typedef struct calm_verify_options {
    const char *output;                     /* compare this directory, compute nothing; NULL: run again              */
    const char *work;                       /* where the folder of a run is made, and removed again                  */
    const char *model, *store, *memory;     /* instead of what the recipe says; NULL: model as it says, no store     */
    const char *command;                    /* as typed, for the store                                               */
    calm_events events;
} calm_verify_options;

typedef struct calm_verified {
    bool ran;                               /* false: an output was compared, or inputs differ                       */
    size_t n_cached;                        /* candidates that were taken from the store                             */
    calm_differences differences;
    calm_differences environment;           /* this program and machine against the lock's: no fault in itself       */
} calm_verified;

/* Compare with an open lock, which was read from `path`.  What differs is no failure here.  CALM_EFORMAT: its recipe
 * writes no checkpoint.  Fails as resolving and running the recipe do. */
calm_status calm_lock_verify(calm_ctx *ctx, const char *path, const calm_json *lock, const calm_verify_options *options,
                             calm_verified *out);

#endif
