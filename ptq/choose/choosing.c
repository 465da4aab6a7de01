/* What choosing keeps for itself, and the calls that lower rooms make into the guard. */
#include "ptq/choose/choose_impl.h"

calm_status calm_choosing_open(calm_ctx *ctx, calm_run *p)
{
    static const calm_guard_hooks hooks = {calm_guard_rows_begin, calm_drop_block_codes, calm_guard_rows_of};
    p->guard = &hooks;
    return CALM_NEW(ctx, ctx->out, p->choosing, 1);
}
