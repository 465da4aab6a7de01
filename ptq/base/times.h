/* Times of a run: wall clock and CPU seconds of its stages. */
#pragma once

#include "ptq/base/scope.h"

typedef enum calm_time_stage {
    CALM_TIME_READ,          /* model, texts, digests                                   */
    CALM_TIME_FORWARD,       /* forward passes over the calibration windows             */
    CALM_TIME_GRAM,          /* Gram matrices of inputs                                 */
    CALM_TIME_FACTORS,       /* shared by the candidates of a job: Hessian, factor of its inverse */
    CALM_TIME_ALGORITHMS,    /* candidates                                              */
    CALM_TIME_SCORES,
    CALM_TIME_GUARD,         /* probes, the choice, and whole plans on held-out windows */
    CALM_TIME_LEARNING,
    CALM_TIME_EXPORT,        /* includes a fitted head                                  */
    CALM_TIME_EVALUATION,
    CALM_TIME_STORE,
    CALM_TIME_OTHER,
    CALM_N_TIMES
} calm_time_stage;

/* Seconds. */
typedef struct calm_time {
    double wall;
    double cpu;    /* of all threads of the process, which includes spinning               */
} calm_time;

/* Returns the current values of both clocks. */
calm_time calm_time_now(void);

/* Returns seconds of a CPU clock, which does not advance while other processes occupy the cores: the difference of
 * two readings is how long `n_threads` parallel threads need on an idle machine.  One thread: CPU time of the
 * calling thread; more: of the process, divided by the threads. */
double calm_time_busy(int n_threads);

/* Times of all stages, of which one runs at a time.  All zero before calm_times_begin. */
typedef struct calm_times {
    calm_time stage[CALM_N_TIMES];
    calm_time_stage now;
    calm_time since;    /* clock values up to which time is counted        */
} calm_times;

/* Returns the name of a stage: "read", "forward" ... */
const char *calm_time_stage_name(calm_time_stage stage);

/* Starts counting, in CALM_TIME_OTHER. */
void calm_times_begin(calm_times *times);

/* Adds the time since the last count to the current stage, which continues. */
void calm_times_settle(calm_times *times);

/* Returns the sum over all stages. */
calm_time calm_times_sum(const calm_times *times);

/* Stage to restore at the end of a scope. */
typedef struct calm_time_scope {
    calm_times *times;
    calm_time_stage caller;
} calm_time_scope;

/* calm_time_enter makes `stage` the current stage; calm_time_leave restores the previous one.  Nothing is counted
 * for NULL and before calm_times_begin.  Only for the thread that runs the stages: the CPU time of workers counts
 * for the stage that waits for them. */
calm_time_scope calm_time_enter(calm_times *times, calm_time_stage stage);
void calm_time_leave(calm_time_scope *scope);

/* Counts time for `stage` until the end of the scope.  At most one in a scope. */
#define CALM_SCOPED_TIME(times, stage)                                                                                 \
    CALM_SCOPED(calm_time_scope, calm_time_leave) time_scope_ = calm_time_enter((times), (stage))
