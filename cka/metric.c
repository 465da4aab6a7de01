/* Names of the metrics, from CALM_METRIC_LIST. */
#include <string.h>

#include "cka/cka.h"

static const struct {
    const char *name, *help;
} metrics[CALM_N_METRICS] = {
#define CALM_METRIC_ROW(field, name, help) {name, help},
    CALM_METRIC_LIST(CALM_METRIC_ROW)
#undef CALM_METRIC_ROW
};

const char *calm_metric_name(calm_metric metric)
{
    return metric < CALM_N_METRICS ? metrics[metric].name : "?";
}

const char *calm_metric_help(calm_metric metric)
{
    return metric < CALM_N_METRICS ? metrics[metric].help : "?";
}

calm_metric calm_metric_find(const char *name)
{
    int i = 0;
    while (i < CALM_N_METRICS && strcmp(metrics[i].name, name) != 0)
        i++;
    return (calm_metric)i;
}
