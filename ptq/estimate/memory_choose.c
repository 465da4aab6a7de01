/* Chooses the cheapest knobs whose estimate is within the memory limit. */
#include <stdint.h>

#include "ptq/base/file.h"
#include "ptq/base/memory.h"
#include "ptq/estimate/estimate_impl.h"
#include "ptq/state/state.h"

#define MIB ((size_t)1024 * 1024)
/* How much the memory at start differs between two runs of the same command. */
#define SPREAD_BYTES ((size_t)2000000)
/* Limit for captured inputs when memory is short. */
#define SMALL_GROUP (8 * MIB)

/* Adds room for spare pages as far as the limit has it; the plan fits without. */
static void add_room(size_t limit, calm_memory_plan *plan)
{
    plan->room = calm_size_min(plan->room, limit > plan->peak ? limit - plan->peak : 0);
    calm_memory_plan_raise_all(plan, plan->room);
}

calm_status calm_memory_plan_choose(calm_ctx *ctx, const calm_run *p, size_t limit, calm_memory_plan *out)
{
    static const size_t experts[] = {16, 8, 4, 2, 1};
    /* Free pages that arenas keep are not part of the memory at start. */
    calm_memory_release(ctx->memory);
    const size_t threads = (size_t)ctx->n_threads, base = calm_memory_resident();
    const size_t n_experts = calm_model_config(p->in.model)->moe.n_experts ? sizeof experts / sizeof *experts : 1;
    size_t smallest = SIZE_MAX;
    *out = (calm_memory_plan){.base = base};
    /* Knobs in the recipe are used whatever they need: tests show with them that knobs change no result. */
    if (p->in.recipe->knobs) {
        calm_memory_plan_estimate(p, threads, p->in.recipe->knobs, out);
        /* There is no limit. */
        add_room(SIZE_MAX, out);
        return CALM_OK;
    }
    /* The innermost knobs cost the least time: hidden states in a file, slices, small groups; then small waves, idle
     * threads, and a pass per job. */
    for (int by_job = 0; by_job < 2; by_job++)
        for (size_t at_once = threads; at_once > 0; at_once--)
            for (size_t x = 0; x < n_experts; x++)
                /* Bit 0: hidden states in a file; 1: candidates in slices; 2: small groups of captured inputs. */
                for (int choice = 0; choice < 8; choice++) {
                    const calm_knobs knobs = {.spill = choice & 1, .slices = choice & 2, .job_by_job = by_job,
                                              .candidates_at_once = at_once, .experts_at_once = experts[x],
                                              .group_bytes = choice & 4 ? SMALL_GROUP : 0};
                    calm_memory_plan_estimate(p, threads, &knobs, out);
                    smallest = calm_size_min(smallest, out->peak);
                    if (out->peak <= limit) {
                        add_room(limit, out);
                        return CALM_OK;
                    }
                }
    return calm_fail(ctx, CALM_ENOMEM,
                     "the run does not fit in %.3f GB of memory; the smallest limit it fits in is `memory` %.2fGB (%s)",
                     (double)limit / 1e9, (double)(smallest + SPREAD_BYTES + 4999999) / 1e9,    /* rounded up */
                     "fewer `calibration.samples`, `calibration.score_samples` or threads need less");
}

calm_status calm_memory_plan_limit(calm_ctx *ctx, const calm_recipe *recipe, size_t *out)
{
    const size_t free_bytes = calm_memory_available();
    if (recipe->memory)
        return calm_size_parse(ctx, "memory", recipe->memory, out);
    /* 30 % is left to other programs and to the page cache, which holds the mapped weights.  4 GiB if the system does
     * not say how much is free. */
    *out = free_bytes ? free_bytes / 10 * 7 : (size_t)4 * 1024 * MIB;
    return CALM_OK;
}

calm_status calm_memory_plan_apply(calm_ctx *ctx, calm_run *p, calm_memory_plan *out)
{
    size_t limit;
    char *dir;
    CALM_TRY(calm_memory_plan_limit(ctx, p->in.recipe, &limit));
    if (!p->in.recipe->memory)    /* the ranks of a machine share its free memory */
        limit /= (size_t)calm_cluster_on_node(p->cluster);
    CALM_TRY(calm_memory_plan_choose(ctx, p, limit, out));
    out->limit = limit;
    const calm_knobs *knobs = &out->knobs;
    if (knobs->spill) {
        /* Next to the store, where the user has put large files before; /tmp may be in memory. */
        CALM_TRY(calm_path_parent(ctx, p->in.recipe->store, &dir));
        CALM_TRY(calm_strf(ctx, ctx->out, &p->spill_dir, "%s", dir));
    }
    /* Arenas check this limit, so all other resident memory is subtracted first. */
    const size_t elsewhere = out->base > calm_memory_used(ctx->memory) ? out->base - calm_memory_used(ctx->memory) : 0;
    out->reserved = elsewhere + out->program + out->kept;
    calm_memory_set_limit(ctx->memory, limit > out->reserved ? limit - out->reserved : 1);
    calm_log(ctx, CALM_LOG_INFO, "memory: %.2f GB expected, %.2f GB allowed%s%s%s", (double)out->peak / 1e9,
             (double)limit / 1e9, knobs->spill ? "; hidden rows in a file" : "",
             knobs->candidates_at_once < (size_t)ctx->n_threads ? "; fewer candidates at once than threads" : "",
             knobs->job_by_job ? "; one job of a sublayer at a time" : "");
    return CALM_OK;
}
