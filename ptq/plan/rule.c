/* Chooses one candidate per unit. */
#include "ptq/plan/rule.h"

#include <math.h>

#include "ptq/base/scope.h"
#include "ptq/plan/scores.h"

static bool can_win(const calm_contender *contender)
{
    /* NaN: the score was not measured.  -infinity would win over every number. */
    return !contender->failure && isfinite(contender->metric);
}

const char *calm_choice_rule_name(calm_choice_rule rule)
{
    return rule == CALM_CHOICE_RULE_ARGMAX ? "argmax" : "token";
}

/* CKA ignores the magnitude of an output and a shift, and decides wrongly if candidates differ in these.  rel_mae
 * depends on both, and massive tokens count in proportion to their magnitude, not to its square (docs/results.md). */
const char *calm_choice_rule_metric(calm_choice_rule rule)
{
    return rule == CALM_CHOICE_RULE_ARGMAX ? "rel_mae" : "cka_token";
}

/* Returns true if a is better than b; NaN comes after every number. */
static bool before(double a, double b)
{
    return isnan(a) || isnan(b) ? isnan(b) && !isnan(a) : a < b;
}

static calm_status no_winner(calm_ctx *ctx, const calm_contender *contenders, size_t n)
{
    CALM_SCOPED_TEXT(text);
    for (size_t i = 0; i < n; i++)
        calm_text_printf(&text, "%s%s: %s", i ? "; " : "", contenders[i].entry_name,
                         contenders[i].failure ? contenders[i].failure : "score is not finite");
    return calm_fail(ctx, CALM_ENUMERIC, "no candidate can be chosen (%s)", text.data ? text.data : "none was run");
}

/* The bound is always above the least value: cka_debiased may be negative, and for a logarithm a factor would be wide
 * far from 0 and narrow near it. */
double calm_shortlist_bound(const char *metric_name, double least, double factor)
{
    if (calm_score_is_log(metric_name))
        return least + log(factor);
    return least < 0 ? least / factor : least * factor;
}

calm_status calm_choose(calm_ctx *ctx, calm_choice_rule rule, double shortlist, const char *metric_name,
                        const calm_contender *contenders, size_t n, size_t *winner, char **reason)
{
    size_t best = n, chosen = n, listed = 0;
    /* Of equals the first of the pool wins, in the recipe's order.  Exact ties are common: if no weight can absorb an
     * input scale, smoothquant and rtn have the same bits.  An order by key, a digest, would be random. */
    for (size_t i = 0; i < n; i++)
        if (can_win(&contenders[i]) && (best == n || before(contenders[i].metric, contenders[best].metric)))
            best = i;
    if (best == n)
        return no_winner(ctx, contenders, n);
    *winner = best;
    if (rule == CALM_CHOICE_RULE_ARGMAX)
        return calm_strf(ctx, ctx->out, reason, "least %s of %zu", metric_name, n);
    /* Scores of few tokens do not separate near equals, and a similarity of outputs ignores shift and scale.  So within
     * the shortlist the job's output error decides, which has less noise and depends on both. */
    const double bound = calm_shortlist_bound(metric_name, contenders[best].metric, shortlist);
    for (size_t i = 0; i < n; i++) {
        const calm_contender *c = &contenders[i];
        if (!can_win(c) || (i != best && c->metric > bound))
            continue;
        listed++;
        if (chosen == n || before(c->tie_metric, contenders[chosen].tie_metric))
            chosen = i;
    }
    *winner = chosen;
    if (listed == 1)
        return calm_strf(ctx, ctx->out, reason, "least %s of %zu, no other within %g", metric_name, n, shortlist);
    return calm_strf(ctx, ctx->out, reason, "least log_rel_mse of %zu within %g of the least %s%s", listed, shortlist,
                     metric_name, chosen == best ? "" : " (not the least itself)");
}
