/* A view of a model with another embedding or head. */
#include "ptq/model/model_impl.h"

calm_status calm_model_view(calm_ctx *ctx, const calm_model *model, const calm_tensor *const tables[2],
                            const calm_model **out)
{
    calm_model *view;
    CALM_TRY(CALM_NEW(ctx, ctx->out, view, 1));
    *view = *model;
    /* Like for quantized tables, a name marks that there is one. */
    for (int head = 0; head < 2; head++)
        if (tables[head])
            view->tables[head].floats = *tables[head];
    *out = view;
    return CALM_OK;
}
