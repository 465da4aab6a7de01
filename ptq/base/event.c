/* Events: calls of their receivers. */
#include "ptq/base/event.h"

void calm_event(const calm_events *events, calm_stage stage, size_t done, size_t total)
{
    if (events && events->fn && total)
        events->fn(events->user, stage, done, total);
}

void calm_event_complete(const calm_events *events, calm_stage stage)
{
    if (events && events->fn)
        events->fn(events->user, stage, 0, 0);
}

void calm_event_figure(const calm_events *events, calm_stage stage, double value)
{
    if (events && events->figure)
        events->figure(events->user, stage, value);
}

void calm_stage_tick(void *user, size_t done, size_t total)
{
    const calm_stage_events *of = user;
    calm_event(of->events, of->stage, done, total);
}

void calm_tick_shared(void *user, size_t done, size_t total)
{
    const calm_shared_tick *shared = user;
    (void)total;
    if (shared->fn)
        shared->fn(shared->user, shared->before + done, shared->total);
}
