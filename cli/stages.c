/* Time by stage. */
#include "cli/stages.h"

#include <math.h>

#include "ptq/state/stage_times.h"

/* Least time of a run for which calm prints times and spends some seconds on a forecast. */
#define LEAST_SECONDS 60.0
/* Least share of the sum for which a stage has its row in the text. */
#define LEAST_SHARE 0.01

/* Rows of the run, or of the forecast if there is no run; `forecast` has the forecast's rows at the same indices. */
typedef struct stages {
    calm_stage_time *rows, *forecast;    /* [n]; forecast NULL: none */
    size_t n;
} stages;

static calm_status list(calm_ctx *ctx, const calm_result *r, const calm_forecast *f, stages *out)
{
    *out = (stages){NULL, NULL, 0};
    if (f)
        CALM_TRY(calm_run_times_list(ctx, &f->times, f->recipe, f->pool_seconds, &out->forecast, &out->n));
    if (!r) {
        out->rows = out->forecast;
        return CALM_OK;
    }
    return calm_run_times_list(ctx, &r->times, r->recipe, r->pool_seconds, &out->rows, &out->n);
}

static void add_row(calm_table *table, const char *name, const calm_time *time, const calm_time *all, double forecast,
                    bool both)
{
    CALM_CELLS(table, CALM_TEXT(name), CALM_FIXED(time->wall, 1), CALM_FIXED(time->cpu, 1),
               CALM_FIXED(100 * time->wall / all->wall, 1));
    if (both)
        CALM_CELLS(table, CALM_FIXED(forecast, 1));
}

calm_status calm_stages_print(calm_ctx *ctx, const calm_result *r, const calm_forecast *f, calm_text *out)
{
    CALM_SCOPED_TABLE(table);
    stages all;
    calm_stage_time small = {"others", {0, 0}};
    double small_forecast = 0, sum_forecast = 0;
    const bool both = r && f;
    const calm_time sum = calm_times_sum(r ? &r->times : &f->times);
    if (sum.wall < LEAST_SECONDS)
        return CALM_OK;
    CALM_TRY(list(ctx, r, f, &all));
    calm_table_columns(&table, both ? "stage|#seconds|#CPU s|#%|#forecast s" : "stage|#seconds|#CPU s|#%");
    for (size_t i = 0; i < all.n; i++) {
        const calm_time *time = &all.rows[i].time;
        const double forecast = both ? all.forecast[i].time.wall : 0;
        sum_forecast += forecast;
        if (time->wall >= LEAST_SHARE * sum.wall || (both && forecast >= LEAST_SHARE * f->seconds)) {
            add_row(&table, all.rows[i].name, time, &sum, forecast, both);
            continue;
        }
        small.time.wall += time->wall;
        small.time.cpu += time->cpu;
        small_forecast += forecast;
    }
    add_row(&table, small.name, &small.time, &sum, small_forecast, both);
    add_row(&table, "all", &sum, &sum, sum_forecast, both);
    calm_text_printf(out, "\n");
    return calm_table_write(ctx, &table, 2, out);
}

calm_json *calm_stages_json(calm_ctx *ctx, const calm_result *r, const calm_forecast *f)
{
    stages all;
    if (list(ctx, r, f, &all) != CALM_OK)
        return NULL;
    calm_json *rows = calm_json_new_array();
    for (size_t i = 0; i < all.n; i++) {
        const calm_time *time = &all.rows[i].time;
        calm_json *row = CALM_OBJECT(CALM_KV("stage", all.rows[i].name), CALM_KV("seconds", time->wall),
                                     CALM_KV("cpu_seconds", time->cpu));
        calm_json_add(rows, r ? CALM_EXTEND(row, CALM_KV("forecast_seconds", f ? all.forecast[i].time.wall : NAN))
                              : row);
    }
    return rows;
}

/* Keeps the forecast in the store for calm report; a failure does not matter to the run. */
static void keep(calm_ctx *ctx, const calm_run *run, const calm_forecast *forecast)
{
    stages all;
    if (list(ctx, NULL, forecast, &all) == CALM_OK)
        calm_run_times_forecast(ctx, run, all.forecast, all.n);
    calm_ctx_clear_failure(ctx);
}

calm_status calm_stages_forecast(calm_ctx *ctx, const calm_run *run, calm_forecast **out)
{
    const calm_result *r = calm_run_result(run);
    *out = NULL;
    if (r->seconds < LEAST_SECONDS || r->n_ranks || r->n_cached || r->recipe->n_budgets > 1)
        return CALM_OK;
    calm_forecast *forecast;
    CALM_SCOPED_SILENCE(ctx);    /* the run has printed these notes already */
    CALM_TRY(CALM_NEW(ctx, ctx->out, forecast, 1));
    const calm_status status = calm_forecast_make(ctx, r->recipe, NULL, NULL, forecast);
    calm_ctx_clear_failure(ctx);
    /* Rows of different pools do not correspond. */
    *out = status == CALM_OK && forecast->recipe->n_pool == r->recipe->n_pool ? forecast : NULL;
    if (*out)
        keep(ctx, run, forecast);
    return CALM_OK;
}
