/* Events: progress of long work, stage by stage. */
#pragma once

#include "ptq/base/context.h"

/* Receives a measured value of a stage next to its progress: for learning, the loss of the last step. */
typedef void calm_figure_fn(void *user, calm_stage stage, double value);

/* The receiver of events.  fn NULL, or a NULL calm_events: events are dropped. */
typedef struct calm_events {
    calm_event_fn *fn;
    void *user;
    calm_figure_fn *figure;    /* NULL: figures are dropped */
} calm_events;

/* A stage and its receiver: the `user` of calm_stage_tick. */
typedef struct calm_stage_events {
    const calm_events *events;
    calm_stage stage;
} calm_stage_events;

/* A calm_tick_fn that reports progress of a stage; `user` is a calm_stage_events. */
void calm_stage_tick(void *user, size_t done, size_t total);

/* Reports the progress of several tasks as one: `before` of `total` units were complete when this task began. */
typedef struct calm_shared_tick {
    calm_tick_fn *fn;    /* NULL: nothing is reported */
    void *user;
    size_t before, total;
} calm_shared_tick;

/* A calm_tick_fn that adds `before`; `user` is a calm_shared_tick. */
void calm_tick_shared(void *user, size_t done, size_t total);

/* calm_event reports progress of a stage (nothing for total 0); calm_event_complete reports that it is complete. */
void calm_event(const calm_events *events, calm_stage stage, size_t done, size_t total);
void calm_event_complete(const calm_events *events, calm_stage stage);

/* Reports a measured value of a stage; called before the progress that it belongs to. */
void calm_event_figure(const calm_events *events, calm_stage stage, double value);
