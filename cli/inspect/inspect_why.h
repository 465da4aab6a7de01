/* Explains in words why a unit has its candidate. */
#pragma once

#include "cli/inspect/inspect_units.h"

/* A unit and the rule's choice for it. */
typedef struct calm_inspect_judged {
    const calm_inspect_units *units;
    size_t unit;
    size_t rule;           /* entry that the rule chooses; CALM_INSPECT_NONE: it cannot */
    double least;          /* least metric among the entries that compete               */
} calm_inspect_judged;

/* Says whether the stored choice of a unit is `rule`, the entry that calm_inspect_choose finds: "yes", "no: pinned",
 * ... */
const char *calm_inspect_consistent(const calm_inspect_units *units, size_t unit, size_t rule);

/* Writes to ctx->out, in one sentence, why the entry, which has a candidate, was chosen or not. */
calm_status calm_inspect_reason(calm_ctx *ctx, const calm_inspect_judged *j, size_t entry, char **out);
