/* Observers of a forward pass. */
#include "ptq/layers/observer.h"

calm_status calm_observe(const calm_observer *observer, calm_ctx *ctx, const calm_observation *seen)
{
    return observer && observer->fn ? observer->fn(observer->user, ctx, seen) : CALM_OK;
}
