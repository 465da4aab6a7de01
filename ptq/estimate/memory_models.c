/* Memory of evaluations and of formats: whole models, in addition to the blocks of memory_blocks.c. */
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

/* The assumed number of windows of a text that is evaluated as a whole: more would not need larger batches. */
#define UNKNOWN_WINDOWS ((size_t)8192)

/* The block with the largest peak in a pass of n_windows windows. */
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

/* Peak of comparing n models with their plans with the float model on n_windows windows; test: it also finds the tokens
 * with the largest divergence. */
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
    /* With several ranks: the parts that are joined to all embeddings. */
    const size_t joined = e->p->several ? calm_encode_bytes(config, n_windows) : 0;
    return joined + (n + 1) * (calm_encode_bytes(config, n_windows) + calm_embedding_compare_bytes(n_windows)) +
           calm_size_max(calm_encode_scratch_bytes(config, n_windows, longest, n + 1, shape.block_bytes),
                         calm_embedding_compare_scratch_bytes(n_windows));
}

/* Bytes of a piece of the embedding while it is quantized; whole: also of all its codes and scales and the largest of
 * its tensors, for a format that writes its tensors one after the other. */
static size_t outer_bytes(const estimate *e, bool whole)
{
    const size_t n = e->config->vocab * e->config->hidden;
    return calm_outer_rows_bytes(e->p->outer, calm_recipe_operands(e->p->in.recipe), e->config->vocab,
                                 e->config->hidden, e->n_threads) +
           (whole ? 2 * CALM_BYTES(uint8_t, n) + 3 * CALM_BYTES(float, n / 32) : 0);
}

/* Returns true if a head is fitted to its inputs. */
static bool fits_head(const estimate *e)
{
    return calm_recipe_fits_head(e->p->in.recipe) && !e->config->arch->encoder;
}

/* Bytes of the head's Gram matrix; and the peak besides while it is collected. */
static size_t head_bytes(const estimate *e)
{
    return fits_head(e) ? calm_head_stats_bytes(e->config->hidden) : 0;
}

static size_t head_collect_bytes(const estimate *e)
{
    const size_t windows = e->windows - calm_head_stats_first(&e->p->in.calib, e->config->hidden);
    return fits_head(e) ? calm_head_stats_scratch_bytes(e->p->in.model, e->p->in.recipe->operands, windows,
                                                         e->longest, e->n_threads) : 0;
}

/* Bytes of a quantized table, and of either the piece that is being quantized or the model that uses the table. */
static size_t probed_bytes(const estimate *e, size_t windows)
{
    const size_t table = calm_run_file_probe_bytes(e->p);
    return table ? table + calm_size_max(measured_bytes(e, 1, windows, e->longest, 2, false), 2 * outer_bytes(e, false))
                 : 0;
}

/* The hybrid and the uniform runs on the guard's windows, probes on the first calibration windows, the result on the
 * evaluation's text. */
void calm_memory_plan_add_evaluations(const estimate *e, calm_memory_plan *out)
{
    const calm_recipe *recipe = e->p->in.recipe;
    const bool probes = recipe->n_budgets || recipe->selection.score == CALM_SCORE_PROBE_KL;
    const size_t probed = calm_inputs_probe_windows(&e->p->in);
    const size_t n_probes = calm_size_min(e->layout->n_jobs * recipe->n_pool, CALM_SUBJECTS_AT_ONCE);
    const size_t n_trials = calm_size_min(recipe->n_pool + 1, CALM_SUBJECTS_AT_ONCE);
    const size_t asked = recipe->eval_windows > 0 ? (size_t)recipe->eval_windows : UNKNOWN_WINDOWS;
    const size_t text = calm_size_min(asked, UNKNOWN_WINDOWS);    /* a text may have fewer than asked for */
    const size_t longest = calm_size_max(e->longest, (size_t)recipe->seqlen);
    if (recipe->guard_windows)
        out->evaluate = measured_bytes(e, n_trials, e->p->in.guard.n, e->p->in.guard.longest, 1, false);
    /* A tie doubles the windows: only the added windows, at most half of all, are measured then. */
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

/* Bytes of the largest tensor's pages while it is copied: an embedding, when no block is in memory. */
static size_t mapped_bytes(const estimate *e)
{
    const calm_safetensors *tensors = calm_model_tensors(e->p->in.model);
    size_t most = 0;
    for (size_t i = 0; i < calm_safetensors_count(tensors); i++)
        calm_memory_raise(&most, calm_safetensors_at(tensors, i)->bytes);
    return most;
}

/* Exporters run one after the other; each holds one block, and the importance matrix also its capture. */
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
