/* Names of stored scores. */
#include "ptq/plan/scores.h"

#include <math.h>
#include <string.h>

/* The store has one column for the unit and one for the name, so scores of block deltas have separate names. */
static const char *const delta_names[CALM_N_METRICS] = {
#define CALM_SCORE_ROW(field, name, help) "delta_" name,
    CALM_METRIC_LIST(CALM_SCORE_ROW)
#undef CALM_SCORE_ROW
};

void calm_score_set_clear(calm_score_set *set)
{
    for (calm_point point = 0; point < CALM_N_POINTS; point++)
        for (int score = 0; score < CALM_N_SCORES; score++)
            set->value[point][score] = NAN;
}

bool calm_score_set_has(const calm_score_set *set, calm_point point)
{
    for (int metric = 0; metric < CALM_N_METRICS; metric++)
        if (isnan(set->value[point][metric]))
            return false;
    return true;
}

void calm_score_set_put(calm_score_set *set, calm_point point, const calm_scores *scores)
{
    memcpy(set->value[point], scores->value, sizeof scores->value);
}

calm_unit calm_point_unit(calm_point point)
{
    /* Points and units have the same order, except that delta is a second point of a block. */
    return point == CALM_POINT_DELTA ? CALM_UNIT_BLOCK : (calm_unit)point;
}

calm_point calm_unit_point(calm_unit unit)
{
    return (calm_point)unit;
}

static bool is_named(const char *name, calm_metric metric)
{
    return name && (strcmp(name, calm_metric_name(metric)) == 0 || strcmp(name, delta_names[metric]) == 0);
}

bool calm_score_is_log(const char *name)
{
    return is_named(name, CALM_METRIC_LOG_REL_MSE);
}

double calm_score_loss(const char *name, double value)
{
    if (calm_score_is_log(name))
        return exp(value);
    return is_named(name, CALM_METRIC_REL_MAE) ? value * value : value;
}

const char *calm_score_name(calm_point point, int score)
{
    const bool delta = point == CALM_POINT_DELTA;
    if (score < CALM_N_METRICS)
        return delta ? delta_names[score] : calm_metric_name((calm_metric)score);
    if (score == CALM_SCORE_CKA_LINEAR)
        return point == CALM_POINT_JOB ? "cka_linear" : NULL;
    return delta ? NULL : score == CALM_SCORE_PROBE_KL ? "probe_kl" : "gradient_kl";
}

bool calm_score_find(calm_unit unit, const char *name, calm_point *point, int *score)
{
    for (calm_point p = 0; p < CALM_N_POINTS; p++)
        for (int s = 0; s < CALM_N_SCORES && calm_point_unit(p) == unit; s++) {
            const char *found = calm_score_name(p, s);
            if (!found || strcmp(found, name) != 0)
                continue;
            *point = p;
            *score = s;
            return true;
        }
    return false;
}

calm_status calm_score_need(calm_ctx *ctx, calm_unit unit, const char *name, calm_point *point, int *score)
{
    const char *names[CALM_N_POINTS * CALM_N_SCORES];
    size_t n = 0;
    if (calm_score_find(unit, name, point, score))
        return CALM_OK;
    for (calm_point p = 0; p < CALM_N_POINTS; p++)
        for (int s = 0; s < CALM_N_SCORES; s++)
            if (calm_point_unit(p) == unit && calm_score_name(p, s))
                names[n++] = calm_score_name(p, s);
    const char *near = calm_nearest(name, names, n);
    return calm_fail(ctx, CALM_EARG, "`choice.metric` %s: a %s has no such score%s%s%s", name, calm_unit_name(unit),
                     near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}
