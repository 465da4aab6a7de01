/* Progress on stderr: one bar per stage on a terminal, plain lines otherwise, nothing when quiet. */
#ifndef CALM_CLI_PROGRESS_H
#define CALM_CLI_PROGRESS_H

#include "ptq/base/context.h"

#define CALM_PROGRESS_MAX 8

typedef struct calm_progress_stage {
    const char *name, *unit;    /* "quantize", "candidates"                                     */
    size_t done, total;
    double seconds;             /* spent in this stage so far                                   */
    double entered;             /* when it became the active one                                */
    double shown;               /* seconds at the last plain line; < 0: none yet                */
    bool complete;              /* its last plain line is out                                   */
} calm_progress_stage;

typedef struct calm_progress {
    bool quiet, terminal;
    calm_progress_stage stage[CALM_PROGRESS_MAX];
    size_t n, active, drawn;    /* stages; the one at work; lines on the screen                 */
    double last_draw;
} calm_progress;

/* `quiet` draws nothing. */
void calm_progress_init(calm_progress *progress, bool quiet);

/* Announce a stage; returns its number. */
size_t calm_progress_add(calm_progress *progress, const char *name, const char *unit);

/* Stage `index` has done `done` of `total`; it becomes the active stage, whose clock runs.
 * May be called from any thread. */
void calm_progress_update(calm_progress *progress, size_t index, size_t done, size_t total);

/* Stage `index` is complete, whatever it counted; no second line for one that is complete already. */
void calm_progress_finish(calm_progress *progress, size_t index);

/* Draw the last state and leave the lines on the screen. */
void calm_progress_end(calm_progress *progress);

/* Take the bars off the screen, so that something else can be printed; the next update draws them again. */
void calm_progress_hide(calm_progress *progress);

/* A calm_log_fn that prints warnings and notes above the bars; `user` is the progress. */
void calm_progress_log(void *user, calm_log_level level, const char *line);

#endif
