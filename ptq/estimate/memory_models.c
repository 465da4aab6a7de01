/* What evaluations and the formats of a run need: whole models, next to the blocks that memory_plan.c adds up. */
#include "ptq/estimate/estimate_impl.h"

#include "ptq/calib/head_stats.h"
#include "ptq/calib/importance.h"
#include "ptq/eval/detail.h"
#include "ptq/eval/encode.h"
#include "ptq/choose/choose.h"
#include "ptq/measure/measure.h"
#include "ptq/search/search.h"
#include "ptq/state/outer_rows.h"

typedef calm_memory_estimate estimate;

/* A text that is evaluated to its end has at least this many windows, or its batches are full. */
#define UNKNOWN_WINDOWS ((size_t)8192)

/* The block that takes most of such a pass. */
static size_t most_planned_bytes(const estimate *e, size_t n_windows, size_t longest)
{
    size_t most = 0;
    for (size_t b = 0; b < e->config->n_blocks; b++)
        calm_memory_raise(&most, calm_memory_plan_block_bytes(e, b, n_windows, longest, 0));
    return most;
}

size_t calm_memory_plan_guard_bytes(const estimate *e, size_t block)
{
    const calm_windows *guard = &e->p->in.guard;
    if (!calm_guard_streams(e->p))
        return 0;
    return calm_guard_rows_bytes(e->p) +
           calm_memory_plan_block_bytes(e, block, calm_evaluation_batch(e->config, guard->n, guard->longest),
                                        guard->longest, 0);
}

size_t calm_memory_plan_gradient_bytes(const estimate *e, size_t n_windows)
{
    return calm_gradient_pass_bytes(e->p, n_windows, e->n_threads) +
           most_planned_bytes(e, calm_gradient_pass_windows(e->p, n_windows), e->longest);
}

/* n models with their plans against the float model on this many windows.  `test`: where they differ is kept too. */
static size_t measured_bytes(const estimate *e, size_t n, size_t n_windows, size_t longest, size_t n_checkpoints,
                             bool test)
{
    const calm_config *config = e->config;
    const bool encodes = calm_inputs_encode(&e->p->in);
    const size_t batch = (encodes ? calm_encode_batch : calm_evaluation_batch)(config, n_windows, longest);
    calm_evaluation_shape shape = {.config = config, .n_windows = n_windows, .longest = longest, .n = n,
                                   .has_reference = true, .n_checkpoints = n_checkpoints};
    if (test && !encodes) {
        shape.n_kl = n_windows * longest;
        shape.worst = CALM_RUN_WORST;
    }
    if (!n || !n_windows)
        return 0;
    shape.block_bytes = most_planned_bytes(e, batch, longest);
    if (!encodes)
        return calm_evaluate_bytes(&shape) + calm_size_max(calm_evaluate_scratch_bytes(&shape, e->n_threads),
                                                          calm_evaluate_detail_scratch_bytes(shape.n_kl));
    /* Of several ranks: the parts that all embeddings are joined from. */
    const size_t joined = e->p->several ? calm_encode_bytes(config, n_windows) : 0;
    return joined + (n + 1) * (calm_encode_bytes(config, n_windows) + calm_embedding_compare_bytes(n_windows)) +
           calm_size_max(calm_encode_scratch_bytes(config, n_windows, longest, n + 1, shape.block_bytes),
                         calm_embedding_compare_scratch_bytes(n_windows));
}

/* A piece of the embedding in work; where a format writes its tensors one after the other also the whole embedding:
 * codes and scales, and the largest of the tensors. */
static size_t outer_bytes(const estimate *e, bool whole)
{
    const size_t n = e->config->vocab * e->config->hidden;
    return calm_outer_rows_bytes(e->p->outer, calm_recipe_operands(e->p->in.recipe), e->config->vocab,
                                 e->config->hidden, e->n_threads) +
           (whole ? 2 * CALM_BYTES(uint8_t, n) + 3 * CALM_BYTES(float, n / 32) : 0);
}

/* Is a head fitted to what it reads? */
static bool fits_head(const estimate *e)
{
    return calm_recipe_fits_head(e->p->in.recipe) && !e->config->arch->encoder;
}

/* The Gram matrix of that, and what it takes besides to collect it. */
static size_t head_bytes(const estimate *e)
{
    return fits_head(e) ? calm_head_stats_bytes(e->config->hidden) : 0;
}

static size_t head_collect_bytes(const estimate *e)
{
    const size_t windows = e->windows - calm_head_stats_first(&e->p->in.calib, e->config->hidden);
    return fits_head(e) ? calm_head_stats_scratch_bytes(e->p->in.model, windows, e->longest, e->n_threads) : 0;
}

/* A rounded table, and either the piece of it that is being rounded or the model that has it. */
static size_t probed_bytes(const estimate *e, size_t windows)
{
    const size_t table = calm_run_file_probe_bytes(e->p);
    return table ? table + calm_size_max(measured_bytes(e, 1, windows, e->longest, 2, false), 2 * outer_bytes(e, false))
                 : 0;
}

/* The hybrid and the uniform runs on the guard's windows, probes on the first of the calibration's, the result on
 * the text. */
void calm_memory_plan_add_evaluations(const estimate *e, calm_memory_plan *out)
{
    const calm_recipe *recipe = e->p->in.recipe;
    const bool probes = recipe->n_budgets || recipe->selection.score == CALM_SCORE_PROBE_KL;
    const size_t probed = calm_inputs_probe_windows(&e->p->in);
    const size_t n_probes = calm_size_min(e->layout->n_jobs * recipe->n_pool, CALM_SUBJECTS_AT_ONCE);
    const size_t n_trials = calm_size_min(recipe->n_pool + 1, CALM_SUBJECTS_AT_ONCE);
    const size_t asked = recipe->eval_windows > 0 ? (size_t)recipe->eval_windows : UNKNOWN_WINDOWS;
    const size_t text = calm_size_min(asked, UNKNOWN_WINDOWS);    /* texts have fewer than people ask for */
    const size_t longest = calm_size_max(e->longest, (size_t)recipe->seqlen);
    if (recipe->guard_windows)
        out->evaluate = measured_bytes(e, n_trials, e->p->in.guard.n, e->p->in.guard.longest, 1, false);
    /* A tie doubles the windows: those that come to them, at most half of all, are measured alone. */
    const size_t most = calm_size_min(e->p->in.guard_all.n - e->p->in.guard.n, (e->p->in.guard_all.n + 1) / 2);
    if (recipe->n_pool > 1 && !recipe->keep_hybrid)
        calm_memory_raise(&out->evaluate, measured_bytes(e, n_trials, most, e->p->in.guard_all.longest, 1, false));
    if (probes && recipe->sensitivity != CALM_SENSITIVITY_GRADIENT)
        calm_memory_raise(&out->evaluate, measured_bytes(e, n_probes, probed, e->longest, 1, false));
    if (recipe->sensitivity == CALM_SENSITIVITY_GRADIENT)
        calm_memory_raise(&out->evaluate, calm_memory_plan_gradient_bytes(e, calm_inputs_gradient_windows(&e->p->in)));
    calm_memory_raise(&out->evaluate, probed_bytes(e, probed));
    if (e->p->result.evaluates)
        calm_memory_raise(&out->evaluate,
                          recipe->n_budgets > 1 ? measured_bytes(e, recipe->n_budgets, text, longest, 1, false)
                                                : measured_bytes(e, 1, text, longest, 2, true));
    calm_memory_raise(&out->evaluate, calm_run_file_probe_bytes(e->p) ? head_collect_bytes(e) : 0);
    out->evaluate += head_bytes(e);
}

/* Pages of the largest tensor while it is copied: an embedding, when there is no block in memory. */
static size_t mapped_bytes(const estimate *e)
{
    const calm_safetensors *tensors = calm_model_tensors(e->p->in.model);
    size_t most = 0;
    for (size_t i = 0; i < calm_safetensors_count(tensors); i++)
        calm_memory_raise(&most, calm_safetensors_at(tensors, i)->bytes);
    return most;
}

/* Exporters in turn; each holds one block, and the importance matrix its own capture. */
void calm_memory_plan_add_formats(const estimate *e, calm_memory_plan *out)
{
    const calm_recipe *recipe = e->p->in.recipe;
    out->assemble = mapped_bytes(e) + head_collect_bytes(e);
    for (size_t f = 0; f < calm_formats_count(&recipe->formats); f++) {
        const calm_exporter *exporter = calm_formats_at(&recipe->formats, f);
        for (size_t s = 0; s < recipe->n_schemes; s++) {
            const calm_scheme scheme = calm_mix_largest(&recipe->schemes[s]);
            calm_memory_raise(&out->assemble, calm_exporter_write_bytes(exporter, e->p->in.model, &scheme, e->extras));
        }
        if ((exporter->outer || (exporter->check_outer && recipe->formats.options.head)) && e->p->outer)
            calm_memory_raise(&out->assemble, mapped_bytes(e) + outer_bytes(e, exporter->form != NULL));
        if (exporter->wants_importance || (recipe->kv_cache && exporter->caches))
            calm_memory_raise(&out->assemble,
                  calm_importance_collect_bytes(e->p->in.model, e->longest) +
                      calm_importance_collect_scratch_bytes(e->p->in.model, e->windows, e->longest, e->n_threads));
    }
    out->assemble += head_bytes(e);
}
