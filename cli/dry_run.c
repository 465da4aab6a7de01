/* Prints a forecast. */
#include "cli/dry_run.h"

#include <math.h>
#include <stdio.h>

#include "cli/print.h"
#include "cli/stages.h"
#include "ptq/forecast/forecast.h"
#include "ptq/recipe/preset.h"
#include "ptq/recipe/resolve.h"

/* Forecast seconds of each preset; NAN: the preset contradicts other options. */
typedef struct extents {
    double seconds[CALM_RECIPE_N_PRESETS];
    calm_recipe_preset asked;
} extents;

/* Forecasts the seconds of the same run with another preset. */
static void forecast_other(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe_preset preset,
                           calm_forecast_rates *rates, double *out)
{
    calm_recipe_spec other = *spec;
    calm_recipe recipe;
    calm_forecast forecast;
    other.preset = (int)preset;
    const bool made = calm_recipe_resolve(ctx, &other, &(calm_events){0}, &recipe) == CALM_OK &&
                      calm_forecast_make(ctx, &recipe, NULL, rates, &forecast) == CALM_OK;
    *out = made ? forecast.seconds : NAN;
    calm_ctx_clear_failure(ctx);
}

static void forecast_presets(calm_ctx *ctx, const calm_recipe_spec *spec, calm_forecast_rates *rates, double seconds,
                             extents *out)
{
    out->asked = (calm_recipe_preset)spec->preset;
    for (calm_recipe_preset p = 0; p < CALM_RECIPE_N_PRESETS; p++)
        if (p == out->asked)
            out->seconds[p] = seconds;
        else
            forecast_other(ctx, spec, p, rates, &out->seconds[p]);
}

static calm_json *presets_json(const extents *all)
{
    calm_json *list = calm_json_new_array();
    for (calm_recipe_preset p = 0; p < CALM_RECIPE_N_PRESETS; p++)
        if (isfinite(all->seconds[p]))
            calm_json_add(list, CALM_OBJECT(CALM_KV("name", calm_recipe_preset_name(p)),
                                            CALM_KV("seconds", all->seconds[p]),
                                            CALM_KV("asked", (bool)(p == all->asked))));
    return list;
}

static calm_status print_json(calm_ctx *ctx, const calm_forecast *f, const extents *all)
{
    const calm_memory_plan *b = &f->memory;
    calm_json *stages = CALM_OBJECT(CALM_KV("capture", b->capture), CALM_KV("quantize", b->quantize),
                                    CALM_KV("score", b->score), CALM_KV("learn", b->learn),
                                    CALM_KV("evaluate", b->evaluate),
                                    CALM_KV("assemble", b->assemble));
    calm_json *memory = CALM_OBJECT(
        CALM_KV("peak_bytes", b->peak), CALM_KV("limit_bytes", b->limit), CALM_KV("stages", stages),
        CALM_KV("spilled", b->knobs.spill), CALM_KV("job_by_job", b->knobs.job_by_job),
        CALM_KV("candidates_at_once", b->knobs.candidates_at_once),
        CALM_KV("experts_at_once", b->knobs.experts_at_once));
    calm_json *disk = CALM_OBJECT(CALM_KV("output_bytes", (int64_t)f->bytes_after),
                                  CALM_KV("store_bytes", (int64_t)f->store_bytes),
                                  CALM_KV("store_kept_bytes", (int64_t)f->kept_bytes),
                                  CALM_KV("spill_bytes", b->spill_bytes));
    calm_json *time = CALM_OBJECT(CALM_KV("seconds", f->seconds),
                                  CALM_KV("learn_seconds", f->learn_seconds > 0 ? calm_json_of_number(f->learn_seconds)
                                                                                : NULL),
                                  CALM_KV("tie_seconds", f->tie_seconds),
                                  CALM_KV("sgemm_gflops", f->sgemm_flops / 1e9),
                                  CALM_KV("dgemm_gflops", f->dgemm_flops / 1e9),
                                  CALM_KV("stages", calm_stages_json(ctx, NULL, f)));
    calm_json *result = CALM_OBJECT(CALM_KV("bytes_before", (int64_t)f->bytes_before),
                                    CALM_KV("bytes_after", (int64_t)f->bytes_after),
                                    CALM_KV("bits_per_weight", f->bits_per_weight));
    return calm_print_json(ctx, CALM_OBJECT(CALM_KV("memory", memory), CALM_KV("disk", disk), CALM_KV("time", time),
                                            CALM_KV("result", result), CALM_KV("presets", presets_json(all)),
                                            CALM_KV("candidates", f->n_candidates),
                                            CALM_KV("score_rows", f->score_rows),
                                            CALM_KV("evaluation_windows", f->eval_windows)));
}

/* "about 7 minutes" */
typedef struct duration {
    double number;
    const char *unit;
} duration;

static duration duration_of(double seconds)
{
    return seconds < 120    ? (duration){seconds, "seconds"}
           : seconds < 7200 ? (duration){seconds / 60, "minutes"}
                            : (duration){seconds / 3600, "hours"};
}

/* Appends "9.9 MB", "1.52 GB". */
static void print_bytes(double bytes, calm_text *out)
{
    if (bytes < 1e9)
        calm_text_printf(out, "%.1f MB", bytes / 1e6);
    else
        calm_text_printf(out, "%.2f GB", bytes / 1e9);
}

static void print_presets(const extents *all, calm_text *out)
{
    const char *heading = "presets";
    for (calm_recipe_preset p = 0; p < CALM_RECIPE_N_PRESETS; p++) {
        const duration time = duration_of(all->seconds[p]);
        if (!isfinite(all->seconds[p]))
            continue;
        calm_text_printf(out, "%-7s  %-8s %s %4.0f %-7s  %s\n", heading, calm_recipe_preset_name(p),
                         p == all->asked ? "*" : " ", time.number, time.unit, calm_recipe_preset_about(p));
        heading = "";
    }
}

/* `learns`: the recipe learns by gradients. */
static void print_text(const calm_forecast *f, bool learns, calm_text *out)
{
    const calm_memory_plan *b = &f->memory;
    const double before = f->bytes_before;
    const duration time = duration_of(f->seconds);
    calm_text_printf(out, "memory   %.2f GB at most, of %.2f GB allowed\n", (double)b->peak / 1e9,
                     (double)b->limit / 1e9);
    calm_text_printf(out, "         capture %.2f, quantize %.2f, score %.2f, evaluate %.2f, assemble %.2f GB\n",
           (double)b->capture / 1e9, (double)b->quantize / 1e9, (double)b->score / 1e9, (double)b->evaluate / 1e9,
           (double)b->assemble / 1e9);
    if (f->learn_seconds > 0)
        calm_text_printf(out, "learn    %.2f GB, about %.0f seconds of the time below\n", (double)b->learn / 1e9,
                         f->learn_seconds);
    else if (learns)
        calm_text_printf(out, "learn    8 bits leave nothing to learn\n");
    calm_text_printf(out, "disk     ");
    print_bytes(f->bytes_after, out);
    calm_text_printf(out, " of output, ");
    print_bytes(f->kept_bytes, out);
    calm_text_printf(out, " in the store; while it runs ");
    print_bytes(f->store_bytes, out);
    calm_text_printf(out, " there, ");
    print_bytes((double)b->spill_bytes, out);
    calm_text_printf(out, " of hidden states\n");
    calm_text_printf(out, "time     about %.0f %s on this machine (%.0f GFLOP/s in float, %.0f in double), "
                          "%zu candidates\n", time.number, time.unit, f->sgemm_flops / 1e9, f->dgemm_flops / 1e9,
                     f->n_candidates);
    if (f->tie_seconds > 0)
        calm_text_printf(out, "         up to %.0f seconds more if hybrid and a uniform run are within one standard "
                              "error: the guard then measures both on more windows\n", ceil(f->tie_seconds));
    calm_text_printf(out, "result   ");
    print_bytes(before, out);
    calm_text_printf(out, " -> ");
    print_bytes(f->bytes_after, out);
    calm_text_printf(out, " (%.1f %%), %.3f bits per weight in the quantized linears\n",
                     100 * f->bytes_after / before, f->bits_per_weight);
}

calm_status calm_dry_run(calm_ctx *ctx, const calm_recipe_spec *spec, const calm_recipe *recipe, bool json)
{
    calm_forecast forecast;
    extents all;
    calm_forecast_rates rates = {0};
    CALM_SCOPED_SILENCE(ctx);    /* warnings and notes belong to a real run, and each preset would repeat them */
    CALM_TRY(calm_forecast_make(ctx, recipe, NULL, &rates, &forecast));
    forecast_presets(ctx, spec, &rates, forecast.seconds, &all);
    if (json)
        return print_json(ctx, &forecast, &all);
    CALM_SCOPED_TEXT(text);
    print_text(&forecast, recipe->learn != CALM_LEARN_NONE, &text);
    print_presets(&all, &text);
    calm_stages_print(ctx, NULL, &forecast, &text);
    return calm_print_folded(ctx, &text);
}
