/* Choice: one candidate per unit from its stored scores (docs/method.md section 5).
 *
 *   token    c* = least value of the metric (cka_token); shortlist = candidates within a factor f of that: up to f c*
 *            (c* / f where c* < 0; c* + log f of a logarithm); the least log_rel_mse of the shortlist wins, of equals
 *            the first
 *   argmax   the least value of the metric (rel_mae; with cka CALM as published) wins, of equals the first */
#pragma once

#include "ptq/base/context.h"

typedef enum calm_choice_rule { CALM_CHOICE_RULE_TOKEN, CALM_CHOICE_RULE_ARGMAX } calm_choice_rule;

#define CALM_CHOICE_RULE_NAMES "token|argmax"    /* in the order of calm_choice_rule, for option tables */

/* "token" */
const char *calm_choice_rule_name(calm_choice_rule rule);

/* Name of the metric that a rule reads where none is asked for. */
const char *calm_choice_rule_metric(calm_choice_rule rule);

/* Factors of the shortlist: that of a recipe that says none, that of runs stored before it could be said, and the
 * greatest.  At 1 a shortlist holds ties alone; the greatest leaves the choice to log_rel_mse. */
#define CALM_SHORTLIST_DEFAULT 1.05
#define CALM_SHORTLIST_UNSAID  1.05
#define CALM_SHORTLIST_MAX     1e6

/* Upper bound of the shortlist: factor x least, least / factor where that is below 0; least + log factor where the
 * metric is a logarithm (calm_score_is_log). */
double calm_shortlist_bound(const char *metric_name, double least, double factor);

/* What the rule reads of a candidate. */
typedef struct calm_contender {
    const char *entry_name;   /* for the reason                                              */
    const char *failure;      /* not NULL: it failed, and never wins                         */
    double metric;            /* loss that the rule reads first                              */
    double tie_metric;        /* log_rel_mse                                                 */
} calm_contender;

/* Index of the winner among contenders [n], which are in the pool's order, and, in ctx->out, one sentence that says
 * why. A metric that is not finite never wins.  `shortlist`: the factor, >= 1; argmax does not read it.
 * CALM_ENUMERIC when no candidate can win (says why each failed). */
calm_status calm_choose(calm_ctx *ctx, calm_choice_rule rule, double shortlist, const char *metric_name,
                        const calm_contender *contenders, size_t n, size_t *winner, char **reason);
