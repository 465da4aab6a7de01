/* Proposes a scheme instead of one that an engine cannot run. */
#include <stdlib.h>

#include "ptq/plan/engines.h"

/* Returns how different two schemes are: by width first, then activations, then groups. */
static size_t distance(const calm_scheme *a, const calm_scheme *b)
{
    return (size_t)abs(a->bits - b->bits) * 100 + (size_t)abs(a->act_bits - b->act_bits) * 1000 +
           (a->group != b->group) + (a->group == 0 || b->group == 0);
}

/* Finds a usual scheme that the engine runs for the linear, nearest to `scheme` in bits (if possible with the same kind
 * of activations); false: none. */
static bool propose(const calm_engine *engine, const char *format, const calm_engine_linear *linear,
                    const calm_scheme *scheme, calm_scheme *out)
{
    static const int widths[] = {2, 3, 4, 8};
    static const size_t groups[] = {128, 64, 32, 0};
    size_t best = SIZE_MAX;
    /* At most 32 schemes, so each is checked, and any proposal is certain to work. */
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        for (size_t j = 0; j < sizeof groups / sizeof *groups; j++)
            for (int act_bits = 0; act_bits <= 8; act_bits += 8) {
                const calm_scheme usual = {.bits = widths[i], .group = groups[j], .symmetric = true,
                                           .act_bits = act_bits, .scale_dtype = scheme->scale_dtype};
                const size_t d = distance(&usual, scheme);
                if ((act_bits && (widths[i] != 8 || groups[j])) || d >= best ||
                    calm_engine_verdict(engine, format, linear, &usual) != CALM_ENGINE_TAKES)
                    continue;
                best = d;
                *out = usual;
            }
    return best != SIZE_MAX;
}

calm_status calm_engine_check_scheme(calm_ctx *ctx, const calm_engine *engine, const char *format,
                                     const calm_engine_linear *linear, const calm_scheme *scheme)
{
    char *reason;
    calm_scheme proposal;
    if (calm_engine_verdict(engine, format, linear, scheme) == CALM_ENGINE_TAKES)
        return CALM_OK;
    const char *name = CALM_SCHEME_NAME(scheme);
    CALM_TRY(calm_engine_explain(ctx, engine, format, linear, scheme, &reason));
    if (!propose(engine, format, linear, scheme, &proposal))
        return calm_fail(ctx, CALM_EARG,
                         "`target` %s takes no %s for %s [%zu, %zu]: it %s; no usual scheme would do: leave the block "
                         "out (`blocks`) or give another `target`",
                         calm_engine_name(engine), name, linear->name, linear->out, linear->in, reason);
    const char *other = CALM_SCHEME_NAME(&proposal);
    return calm_fail(ctx, CALM_EARG, "`target` %s takes no %s for %s [%zu, %zu]: it %s; `%s` %s would do",
                     calm_engine_name(engine), name, linear->name, linear->out, linear->in, reason,
                     linear->head ? "export.head_scheme" : "schemes", other);
}
