/* Memory of a run, from its shapes, stage by stage: blocks (memory_blocks.c), learning, whole models and formats
 * (memory_models.c). */
#include "ptq/estimate/estimate_impl.h"

#include "ptq/base/memory.h"
#include "ptq/calib/capture.h"
#include "ptq/learn/learn.h"
#include "ptq/search/search.h"
#include "ptq/tensor/linalg.h"
#include "ptq/tensor/product.h"

typedef calm_memory_estimate estimate;

/* Resident memory outside of arenas that appears after the plan: code and constants at their first use (1.4 MB were
 * measured), SQLite's cache (2 MB), buffers of files; per thread its stack, and the copies that BLAS or products of
 * bfloat16 pack. */
#define PROGRAM_BYTES ((size_t)6 * 1024 * 1024)
#define STACK_BYTES   ((size_t)256 * 1024)

static size_t program_bytes(const estimate *e)
{
    size_t rows = calm_size_max(e->longest, (size_t)e->p->in.recipe->seqlen);
    for (size_t j = 0; j < e->layout->n_jobs; j++)
        rows = calm_size_max(rows, e->layout->jobs[j].in);
    return PROGRAM_BYTES + e->n_threads * (STACK_BYTES + calm_linalg_buffer_bytes(rows) +
                                           calm_multiply_scratch_bytes(e->p->in.recipe->operands, rows));
}

void calm_memory_plan_raise_all(calm_memory_plan *plan, size_t bytes)
{
    size_t *const stages[] = {&plan->capture, &plan->quantize, &plan->score,
                              &plan->learn,   &plan->evaluate, &plan->assemble};
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
        *stages[i] += bytes;
        calm_memory_raise(&plan->peak, *stages[i]);
    }
}

void calm_memory_plan_estimate(const calm_run *p, size_t n_threads, const calm_knobs *knobs, calm_memory_plan *out)
{
    const calm_config *config = calm_model_config(p->in.model);
    const calm_windows *calib = &p->in.calib;
    /* Resident before the first arena: measured, because libraries and the store's cache have no formula. */
    const size_t base = out->base;
    estimate e = {.p = p, .config = config, .layout = calm_model_layout(p->in.model), .knobs = knobs,
                  .n_threads = n_threads, .longest = calib->longest, .windows = calib->n,
                  .rows = calib->begin[calib->n],
                  .score_rows = calm_inputs_scored_rows(&p->in),
                  .held_rows = calib->begin[calm_inputs_held_windows(&p->in)],
                  .caps = calm_recipe_caps(p->in.recipe)};
    e.extras = (e.caps & CALM_SETS_IN_SCALE ? CALM_QJOB_SCALED : 0u) |
               (e.caps & CALM_SETS_BIAS ? CALM_QJOB_BIASED : 0u);
    *out = (calm_memory_plan){.base = base, .knobs = *knobs};
    /* Without a pass over the calibration, blocks are quantized from their weights alone. */
    const bool blind = !calm_inputs_read_rows(&p->in);
    estimate over = e;
    if (blind)
        over.longest = over.windows = over.rows = over.score_rows = over.held_rows = 0;
    for (size_t b = p->in.first_block; b < p->in.end_block; b++) {
        (blind ? calm_memory_plan_add_weights_only : calm_memory_plan_add_block)(&over, b, out);
        calm_memory_raise(&out->capture, calm_memory_plan_hidden_bytes(&over) + calm_memory_plan_guard_bytes(&e, b));
    }
    /* Activation statistics of the embeddings and of the final norm. */
    calm_memory_raise(&out->capture, calm_memory_plan_hidden_bytes(&over) + calm_actstat_new_bytes(over.rows) +
                                         calm_actstat_texts_bytes(calib->n_texts, over.rows) +
                                         calm_capture_rows_scratch_bytes(over.windows, over.longest));
    if (calm_inputs_row_weight(&p->in) == CALM_WEIGHT_GRADIENT)    /* the gradient pass precedes the capture */
        calm_memory_raise(&out->capture, calm_run_weigh_rows_bytes(p) + calm_memory_plan_gradient_bytes(&e, calib->n));
    out->learn = calm_size_max(calm_learn_bytes(p, e.extras, knobs->spill, n_threads),
                               calm_learn_model_bytes(p, e.extras, knobs->spill, n_threads));
    calm_memory_plan_add_evaluations(&e, out);
    calm_memory_plan_add_formats(&e, out);
    const size_t chunks = (8 + 2 * n_threads) * CALM_ARENA_CHUNK;    /* partly used chunks of arenas */
    out->program = program_bytes(&e);
    const size_t always = base + out->program + chunks;
    calm_memory_plan_raise_all(out, 0);
    /* The C library's free lists per thread grow with the peak of arenas, so they are added afterwards. */
    out->kept = calm_memory_kept(out->peak, n_threads);
    /* Spare pages are optional: calm_memory_plan_choose adds them as far as the limit allows. */
    out->room = calm_memory_room(out->peak);
    calm_memory_plan_raise_all(out, always + out->kept);
    const bool twice = p->in.recipe->prefix != CALM_PREFIX_FLOAT || p->in.recipe->learner || p->several;
    const size_t copies = p->in.recipe->prefix == CALM_PREFIX_ASYMMETRIC ? 3 : twice ? 2 : 1;
    const size_t rows = e.rows * calm_batch_width(config) * sizeof(float) * copies;
    out->spill_bytes = knobs->spill ? rows * (config->moe.n_experts ? 2 : 1) : 0;
}
