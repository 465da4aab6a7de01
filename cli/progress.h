/* Progress on stderr: one bar per stage on a terminal, plain lines otherwise, nothing when quiet. */
#pragma once

#include "ptq/base/event.h"

#define CALM_PROGRESS_MAX 9

typedef struct calm_progress_stage {
    const char *name, *unit;    /* "quantize", "candidates"                                     */
    size_t done, total;
    size_t base;                /* done when its clock began: of the store, or counted before    */
    bool idle;                  /* it was complete at its first event: nothing to show          */
    double seconds;             /* spent in this stage so far                                   */
    double active_since;        /* calm_seconds() when it last became the active one            */
    double shown;               /* seconds at the last plain line; < 0: none yet                */
    bool complete;              /* its last plain line is out                                   */
    bool has_loss;
    double loss;                /* of learning: of its last step                                */
} calm_progress_stage;

typedef struct calm_progress {
    bool quiet, terminal;       /* terminal: one that moves its cursor; else plain lines        */
    calm_progress_stage stage[CALM_PROGRESS_MAX];
    size_t n, active, drawn;    /* stages; the one at work; lines on the screen                 */
    double last_draw;
    size_t of_event[CALM_N_STAGES];    /* the stage of each kind of event, plus 1; 0: not announced */
    size_t bytes_per_unit;      /* of a pull: small models are counted in kB, others in MB      */
    calm_log_fn *log;           /* who had warnings and notes before                            */
    void *log_user;
} calm_progress;

/* Before any: warnings and notes of ctx go to stderr, with `quiet` nowhere. */
void calm_progress_notes(calm_ctx *ctx, bool quiet);

/* Begin: from here on warnings and notes of ctx go to stderr too, above the bars.  `quiet` draws and notes nothing.
 * Returns calm_progress_events. */
calm_events calm_progress_begin(calm_ctx *ctx, calm_progress *progress, bool quiet);

/* Draw the last state and leave the lines on the screen; ctx logs to whom it did at the beginning.
 * Returns the failure of ctx. */
calm_status calm_progress_end(calm_ctx *ctx, calm_progress *progress);

/* Add a stage; returns its number. */
size_t calm_progress_add(calm_progress *progress, const char *name, const char *unit);

/* Add all stages of a run, so that their bars are shown from the beginning. */
void calm_progress_add_run(calm_progress *progress);

/* A calm_tick_fn: updates stage 0; `user` is the progress. */
void calm_progress_tick(void *user, size_t done, size_t total);

/* Events that update the stage of their kind, added at the first event. */
calm_events calm_progress_events(calm_progress *progress);
