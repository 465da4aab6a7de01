/* Where the time of a run goes: wall clock and CPU of its stages. */
#pragma once

#include "ptq/base/scope.h"

typedef enum calm_time_stage {
    CALM_TIME_READ,          /* model, texts, digests                                   */
    CALM_TIME_FORWARD,       /* passes over the calibration windows                     */
    CALM_TIME_GRAM,          /* Gram matrices of inputs                                 */
    CALM_TIME_FACTORS,       /* what candidates of a job share: H, a factor of its inverse */
    CALM_TIME_ALGORITHMS,    /* candidates                                              */
    CALM_TIME_SCORES,
    CALM_TIME_GUARD,         /* probes, the choice, and whole plans on held-out windows */
    CALM_TIME_LEARNING,
    CALM_TIME_EXPORT,        /* with a fitted head                                      */
    CALM_TIME_EVALUATION,
    CALM_TIME_STORE,
    CALM_TIME_OTHER,
    CALM_N_TIMES
} calm_time_stage;

/* Seconds. */
typedef struct calm_time {
    double wall;
    double cpu;    /* of all threads of the process; those that spin while they wait count */
} calm_time;

/* What both clocks show. */
calm_time calm_time_now(void);

/* Seconds of a clock that stands still while other processes have the cores: what `n_threads` threads that work side by
 * side compute between two readings takes as long on a machine that does nothing else.  Of one thread: the calling
 * one's; of more: of the whole process. */
double calm_time_busy(int n_threads);

/* One stage at a time runs.  All zero before calm_times_begin. */
typedef struct calm_times {
    calm_time stage[CALM_N_TIMES];
    calm_time_stage now;
    calm_time since;    /* what the clocks showed when it was last counted */
} calm_times;

/* "read", "forward" ... */
const char *calm_time_stage_name(calm_time_stage stage);

/* Count from now on, in CALM_TIME_OTHER. */
void calm_times_begin(calm_times *times);

/* Count what has passed; the same stage continues. */
void calm_times_settle(calm_times *times);

/* Of all stages. */
calm_time calm_times_sum(const calm_times *times);

/* What went on before. */
typedef struct calm_time_scope {
    calm_times *times;
    calm_time_stage caller;
} calm_time_scope;

/* The stage in progress is `stage`; back to what it was.  Nothing is counted for NULL and before calm_times_begin.  For
 * the thread that runs the stages: the time of its workers is that of the stage that waits for them. */
calm_time_scope calm_time_enter(calm_times *times, calm_time_stage stage);
void calm_time_leave(calm_time_scope *scope);

/* To the end of the scope.  One in a scope. */
#define CALM_SCOPED_TIME(times, stage)                                                                                 \
    CALM_SCOPED(calm_time_scope, calm_time_leave) time_scope_ = calm_time_enter((times), (stage))
