/* The context behind calm.h: arenas, memory account and events. */
#pragma once

#include "ptq/base/event.h"

typedef struct calm_library {
    calm_ctx ctx;    /* first, so that the calm_ctx of calm_start is also its calm_library */
    calm_arena out, scratch;
    calm_memory memory;
    calm_events events;
    atomic_bool stop;
} calm_library;

/* Returns the events that receive the context's progress. */
const calm_events *calm_library_events(const calm_ctx *ctx);
