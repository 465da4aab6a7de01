/* A forecast, printed. */
#include "cli/dry_run.h"

#include <stdio.h>

#include "cli/print.h"
#include "ptq/run/forecast.h"

static calm_status print_json(calm_ctx *ctx, const calm_forecast *f)
{
    const calm_memory_plan *b = &f->memory;
    calm_json *root = calm_json_new_object(), *memory = calm_json_new_object(), *stages = calm_json_new_object();
    calm_json *disk = calm_json_new_object(), *time = calm_json_new_object(), *result = calm_json_new_object();
    calm_json_set_int(memory, "peak_bytes", (int64_t)b->peak);
    calm_json_set_int(memory, "limit_bytes", (int64_t)b->limit);
    calm_json_set_int(stages, "capture", (int64_t)b->capture);
    calm_json_set_int(stages, "quantize", (int64_t)b->quantize);
    calm_json_set_int(stages, "score", (int64_t)b->score);
    calm_json_set_int(stages, "evaluate", (int64_t)b->evaluate);
    calm_json_set_int(stages, "assemble", (int64_t)b->assemble);
    calm_json_set(memory, "stages", stages);
    calm_json_set_bool(memory, "spilled", b->knobs.spill);
    calm_json_set_bool(memory, "job_by_job", b->knobs.job_by_job);
    calm_json_set_int(memory, "candidates_at_once", (int64_t)b->knobs.candidates_at_once);
    calm_json_set_int(memory, "experts_at_once", (int64_t)b->knobs.experts_at_once);
    calm_json_set_int(disk, "output_bytes", (int64_t)f->bytes_after);
    calm_json_set_int(disk, "store_bytes", (int64_t)f->store_bytes);
    calm_json_set_int(disk, "spill_bytes", (int64_t)b->spill_bytes);
    calm_json_set_number(time, "seconds", f->seconds);
    calm_json_set_number(time, "sgemm_gflops", f->sgemm_flops / 1e9);
    calm_json_set_number(time, "dgemm_gflops", f->dgemm_flops / 1e9);
    calm_json_set_int(result, "bytes_before", (int64_t)f->bytes_before);
    calm_json_set_int(result, "bytes_after", (int64_t)f->bytes_after);
    calm_json_set_number(result, "bits_per_weight", f->bits_per_weight);
    calm_json_set(root, "memory", memory);
    calm_json_set(root, "disk", disk);
    calm_json_set(root, "time", time);
    calm_json_set(root, "result", result);
    calm_json_set_int(root, "candidates", (int64_t)f->n_candidates);
    const calm_status status = calm_print_json(ctx, root);
    calm_json_free(root);
    return status;
}

static void print_text(const calm_forecast *f)
{
    const calm_memory_plan *b = &f->memory;
    const double seconds = f->seconds, before = f->bytes_before;
    printf("memory   %.2f GB at most, of %.2f GB allowed\n", (double)b->peak / 1e9, (double)b->limit / 1e9);
    printf("         capture %.2f, quantize %.2f, score %.2f, evaluate %.2f, assemble %.2f GB\n",
           (double)b->capture / 1e9, (double)b->quantize / 1e9, (double)b->score / 1e9, (double)b->evaluate / 1e9,
           (double)b->assemble / 1e9);
    printf("disk     %.2f GB of output, %.2f GB in the store, %.2f GB of hidden rows while it runs\n",
           f->bytes_after / 1e9, f->store_bytes / 1e9, (double)b->spill_bytes / 1e9);
    printf("time     about %.0f %s on this machine (%.0f GFLOP/s in float, %.0f in double), %zu candidates\n",
           seconds < 120    ? seconds
           : seconds < 7200 ? seconds / 60
                            : seconds / 3600,
           seconds < 120    ? "seconds"
           : seconds < 7200 ? "minutes"
                            : "hours",
           f->sgemm_flops / 1e9, f->dgemm_flops / 1e9, f->n_candidates);
    printf("result   %.2f GB -> %.2f GB (%.1f %%), %.3f bits per weight in the quantized linears\n", before / 1e9,
           f->bytes_after / 1e9, 100 * f->bytes_after / before, f->bits_per_weight);
}

calm_status calm_dry_run(calm_ctx *ctx, const calm_recipe *recipe, bool json)
{
    calm_forecast forecast;
    CALM_TRY(calm_forecast_make(ctx, recipe, &forecast));
    if (json)
        return print_json(ctx, &forecast);
    print_text(&forecast);
    return CALM_OK;
}
