/* Explains in words why a unit has its candidate. */
#pragma once

#include "cli/inspect/inspect_units.h"

/* A unit and the rule's judgement. */
typedef struct calm_inspect_judged {
    const calm_inspect_units *units;
    size_t unit;
    size_t rule;           /* entry that the rule chooses; CALM_INSPECT_NONE: it cannot */
    double least;          /* of the metric among those that compete with it            */
} calm_inspect_judged;

/* Is the stored choice of a unit what the rule makes of the stored scores (`rule`, as calm_inspect_choose has it)?  In
 * words: "yes", "no: pinned", ... */
const char *calm_inspect_consistent(const calm_inspect_units *units, size_t unit, size_t rule);

/* Why the entry, which has a candidate, was chosen or not, in one sentence in ctx->out. */
calm_status calm_inspect_reason(calm_ctx *ctx, const calm_inspect_judged *j, size_t entry, char **out);
