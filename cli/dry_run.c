/* A forecast, printed. */
#include "cli/dry_run.h"

#include <math.h>
#include <stdio.h>

#include "cli/print.h"
#include "ptq/forecast/forecast.h"

static calm_status print_json(calm_ctx *ctx, const calm_forecast *f)
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
                                  CALM_KV("dgemm_gflops", f->dgemm_flops / 1e9));
    calm_json *result = CALM_OBJECT(CALM_KV("bytes_before", (int64_t)f->bytes_before),
                                    CALM_KV("bytes_after", (int64_t)f->bytes_after),
                                    CALM_KV("bits_per_weight", f->bits_per_weight));
    return calm_print_json(ctx, CALM_OBJECT(CALM_KV("memory", memory), CALM_KV("disk", disk), CALM_KV("time", time),
                                            CALM_KV("result", result), CALM_KV("candidates", f->n_candidates),
                                            CALM_KV("score_rows", f->score_rows),
                                            CALM_KV("evaluation_windows", f->eval_windows)));
}

/* `learns`: the recipe asks for it. */
static void print_text(const calm_forecast *f, bool learns)
{
    const calm_memory_plan *b = &f->memory;
    const double seconds = f->seconds, before = f->bytes_before;
    printf("memory   %.2f GB at most, of %.2f GB allowed\n", (double)b->peak / 1e9, (double)b->limit / 1e9);
    printf("         capture %.2f, quantize %.2f, score %.2f, evaluate %.2f, assemble %.2f GB\n",
           (double)b->capture / 1e9, (double)b->quantize / 1e9, (double)b->score / 1e9, (double)b->evaluate / 1e9,
           (double)b->assemble / 1e9);
    if (f->learn_seconds > 0)
        printf("learn    %.2f GB, about %.0f seconds of the time below\n", (double)b->learn / 1e9, f->learn_seconds);
    else if (learns)
        printf("learn    8 bits leave nothing to learn\n");
    printf("disk     %.2f GB of output, %.2f GB in the store; while it runs %.2f GB there, %.2f GB of hidden rows\n",
           f->bytes_after / 1e9, f->kept_bytes / 1e9, f->store_bytes / 1e9, (double)b->spill_bytes / 1e9);
    printf("time     about %.0f %s on this machine (%.0f GFLOP/s in float, %.0f in double), %zu candidates\n",
           seconds < 120    ? seconds
           : seconds < 7200 ? seconds / 60
                            : seconds / 3600,
           seconds < 120    ? "seconds"
           : seconds < 7200 ? "minutes"
                            : "hours",
           f->sgemm_flops / 1e9, f->dgemm_flops / 1e9, f->n_candidates);
    if (f->tie_seconds > 0)
        printf("         up to %.0f seconds more if the guard leaves hybrid and a uniform run within an error: it then "
               "measures both on more windows\n", ceil(f->tie_seconds));
    printf("result   %.2f GB -> %.2f GB (%.1f %%), %.3f bits per weight in the quantized linears\n", before / 1e9,
           f->bytes_after / 1e9, 100 * f->bytes_after / before, f->bits_per_weight);
}

calm_status calm_dry_run(calm_ctx *ctx, const calm_recipe *recipe, bool json)
{
    calm_forecast forecast;
    CALM_TRY(calm_forecast_make(ctx, recipe, NULL, &forecast));
    if (json)
        return print_json(ctx, &forecast);
    print_text(&forecast, recipe->learn != CALM_LEARN_NONE);
    return CALM_OK;
}
