/* The peak memory of each stage of a run. */
#include "ptq/state/memory_plan.h"

#include "ptq/base/memory.h"

void calm_memory_note(calm_ctx *ctx, size_t *held)
{
    *held = calm_size_max(*held, calm_memory_peak(ctx->memory));
    calm_memory_restart(ctx->memory);
}
