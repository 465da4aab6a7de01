/* Progress on stderr: one bar per stage on a terminal, plain lines otherwise, nothing when quiet. */
#pragma once

#include "ptq/base/event.h"

#define CALM_PROGRESS_MAX 9

typedef struct calm_progress_stage {
    const char *name, *unit;    /* "quantize", "candidates" */
    size_t done, total;
    size_t base;                /* `done` when the clock began: found in the store, or earlier */
    bool idle;                  /* complete at its first event: nothing to show                */
    double seconds;             /* time spent in this stage so far                             */
    double active_since;        /* calm_seconds() when it last became active                   */
    double shown;               /* `seconds` at the last plain line; < 0: none yet             */
    bool complete;              /* its last plain line is printed                              */
    bool has_loss;
    double loss;                /* learning: loss of the last step */
} calm_progress_stage;

typedef struct calm_progress {
    bool quiet, terminal;       /* terminal: a terminal that moves its cursor; else plain lines */
    calm_progress_stage stage[CALM_PROGRESS_MAX];
    size_t n, active, drawn;    /* number of stages; active stage; lines on the screen */
    double last_draw;
    size_t of_event[CALM_N_STAGES];    /* stage of each kind of event, plus 1; 0: not announced */
    size_t bytes_per_unit;      /* pull: small models count in kB, others in MB                 */
    calm_log_fn *log;           /* ctx->log before calm_progress_begin                          */
    void *log_user;
} calm_progress;

/* Makes ctx print warnings and notes to stderr while there are no bars; `quiet`: nowhere. */
void calm_progress_notes(calm_ctx *ctx, bool quiet);

/* Starts a progress display: ctx prints warnings and notes to stderr above the bars.  `quiet` prints nothing.
 * Returns calm_progress_events. */
calm_events calm_progress_begin(calm_ctx *ctx, calm_progress *progress, bool quiet);

/* Erases the bars and restores the log function of ctx.  Returns the failure of ctx. */
calm_status calm_progress_end(calm_ctx *ctx, calm_progress *progress);

/* Adds a stage; returns its number. */
size_t calm_progress_add(calm_progress *progress, const char *name, const char *unit);

/* Adds all stages of a run, so that their bars are visible from the beginning. */
void calm_progress_add_run(calm_progress *progress);

/* A calm_tick_fn that updates stage 0; `user` is the progress. */
void calm_progress_tick(void *user, size_t done, size_t total);

/* Returns events that update the stage of their kind; the first event of a kind adds the stage. */
calm_events calm_progress_events(calm_progress *progress);
