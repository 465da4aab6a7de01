/* Finds the tensors that are tables. */
#include "ptq/export/outer.h"

#include <string.h>

#include "ptq/arch/arch.h"

/* Number of elements of a piece. */
#define PIECE ((size_t)1024 * 1024)
#define BLOCK_ROWS ((size_t)128)    /* a multiple of the rows that share scales in any scheme */

const char *calm_outer_name(calm_outer table)
{
    return table == CALM_OUTER_HEAD ? "head" : "embedding";
}

calm_status calm_outer_describe(calm_ctx *ctx, const calm_outer_plan *plan, const char **out)
{
    char name[CALM_N_OUTERS][CALM_SCHEME_NAME_MAX] = {"float", "float"}, *text;
    *out = NULL;
    for (calm_outer t = 0; t < CALM_N_OUTERS; t++)
        if (plan->scheme[t].bits)
            calm_scheme_name(&plan->scheme[t], name[t]);
    if (!plan->scheme[0].bits && !plan->scheme[1].bits)
        return CALM_OK;
    CALM_TRY(strcmp(name[0], name[1]) ? calm_strf(ctx, ctx->out, &text, "embedding %s, head %s", name[0], name[1])
                                      : calm_strf(ctx, ctx->out, &text, "embedding and head %s", name[0]));
    *out = text;
    return CALM_OK;
}

/* Is `name` prefix + module + ".weight"? */
static bool is_weight(const char *name, const char *prefix, const char *module)
{
    const size_t n = strlen(prefix), m = module ? strlen(module) : 0;
    return module && strncmp(name, prefix, n) == 0 && strncmp(name + n, module, m) == 0 &&
           strcmp(name + n + m, ".weight") == 0;
}

const calm_scheme *calm_outer_of(const calm_model *model, const calm_outer_plan *plan, const char *tensor)
{
    const calm_names *names = calm_model_config(model)->arch->names;
    const bool head = is_weight(tensor, "", calm_model_layout(model)->head);
    const calm_outer which = head ? CALM_OUTER_HEAD : CALM_OUTER_EMBEDDING;
    if (!plan || (head ? calm_model_config(model)->tied : !is_weight(tensor, calm_model_prefix(model), names->embed)))
        return NULL;
    return plan->scheme[which].bits ? &plan->scheme[which] : NULL;
}

const calm_scheme *calm_outer_own_head(const calm_model *model, const calm_outer_plan *plan)
{
    const bool own = plan && !calm_model_config(model)->tied && plan->scheme[CALM_OUTER_HEAD].bits;
    return own ? &plan->scheme[CALM_OUTER_HEAD] : NULL;
}

size_t calm_outer_piece(size_t vocab, size_t width)
{
    /* At least the square root of PIECE; blocks of rows are not divided. */
    return calm_size_min(calm_size_max(PIECE / width, width) / BLOCK_ROWS * BLOCK_ROWS, vocab);
}
