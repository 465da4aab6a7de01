/* The context behind calm.h: arenas, memory account and events. */
#pragma once

#include "ptq/base/event.h"

typedef struct calm_library {
    calm_ctx ctx;    /* first: a calm_ctx of calm_start is the beginning of its calm_library */
    calm_arena out, scratch;
    calm_memory memory;
    calm_events events;
    atomic_bool stop;
} calm_library;

/* Where the context's progress goes. */
const calm_events *calm_library_events(const calm_ctx *ctx);
