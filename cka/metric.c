/* Names of the metrics, from CALM_METRIC_LIST. */
#include "cka/cka.h"

static const char *const names[CALM_N_METRICS] = {
#define CALM_METRIC_ROW(field, name, help) name,
    CALM_METRIC_LIST(CALM_METRIC_ROW)
#undef CALM_METRIC_ROW
};

const char *calm_metric_name(calm_metric metric)
{
    return metric < CALM_N_METRICS ? names[metric] : "?";
}
