/* Choice: one candidate per unit from its stored scores (docs/method.md section 5).
 *
 *   token    c* = least value of the metric (cka_token).  The shortlist has the candidates up to f c*
 *            (c* / f if c* < 0; c* + log f for a logarithmic metric), f: the shortlist's factor.  Of the
 *            shortlist the least log_rel_mse wins; the first of equals
 *   argmax   the least value of the metric wins (rel_mae; with cka it is CALM as published); the first of equals */
#pragma once

#include "ptq/base/context.h"

typedef enum calm_choice_rule { CALM_CHOICE_RULE_TOKEN, CALM_CHOICE_RULE_ARGMAX } calm_choice_rule;

#define CALM_CHOICE_RULE_NAMES "token|argmax"    /* in the order of calm_choice_rule, for option tables */

/* Returns the name of a rule: "token". */
const char *calm_choice_rule_name(calm_choice_rule rule);

/* Returns the name of the metric that a rule reads by default. */
const char *calm_choice_rule_metric(calm_choice_rule rule);

/* Factors of the shortlist: the default of a recipe, the factor of runs stored before it was an option, the maximum.
 * Factor 1 leaves only ties in the shortlist; the maximum leaves the choice to log_rel_mse. */
#define CALM_SHORTLIST_DEFAULT 1.05
#define CALM_SHORTLIST_UNSAID  1.05
#define CALM_SHORTLIST_MAX     1e6

/* Returns the upper bound of the shortlist: factor x least; least / factor if least < 0; least + log factor for a
 * logarithmic metric (calm_score_is_log). */
double calm_shortlist_bound(const char *metric_name, double least, double factor);

/* The values of a candidate that the rule reads. */
typedef struct calm_contender {
    const char *entry_name;   /* name in the sentence `reason`                               */
    const char *failure;      /* not NULL: the candidate failed, and never wins              */
    double metric;            /* the rule's metric, a loss                                   */
    double tie_metric;        /* log_rel_mse                                                 */
} calm_contender;

/* Sets *winner to the index of the winner among contenders [n], which are in the pool's order, and *reason to a
 * sentence that explains it, in ctx->out.  A metric that is not finite never wins.  shortlist: the factor, >= 1; argmax
 * ignores it.  CALM_ENUMERIC: no candidate can win; the message says why each failed. */
calm_status calm_choose(calm_ctx *ctx, calm_choice_rule rule, double shortlist, const char *metric_name,
                        const calm_contender *contenders, size_t n, size_t *winner, char **reason);
