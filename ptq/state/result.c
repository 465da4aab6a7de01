/* Results: facts about windows, gates, and names of plans. */
#include "ptq/state/result.h"

#include <string.h>

calm_window_facts calm_window_facts_of(const calm_windows *windows)
{
    calm_window_facts out = {.n = windows->n, .longest = windows->longest, .available = windows->n_available,
                             .tokens = windows->begin ? windows->begin[windows->n] : 0};    /* NULL: never read */
    memcpy(out.sha256, windows->sha256, sizeof out.sha256);
    return out;
}

/* ---- gates ---- */

calm_status calm_gates_measure(calm_ctx *ctx, calm_result *r)
{
    const calm_eval_result *predictions = &r->eval_result.predictions;
    const calm_embedding_result *embeddings = &r->eval_result.embeddings;
    const double ppl_float = r->eval_float.predictions.ppl, bytes = (double)r->bytes_after;
    /* Figures of the other kind of model are meaningless; calm_gates_check refuses gates on them. */
    const double figures[CALM_N_FIGURES] = {
        [CALM_FIGURE_PPL] = predictions->ppl, [CALM_FIGURE_PPL_FLOAT] = ppl_float,
        [CALM_FIGURE_PPL_RATIO] = predictions->ppl / ppl_float, [CALM_FIGURE_KL] = predictions->kl,
        [CALM_FIGURE_TOP1] = predictions->top1, [CALM_FIGURE_BITS] = r->bits_per_weight, [CALM_FIGURE_BYTES] = bytes,
        [CALM_FIGURE_SIZE_RATIO] = bytes / (double)r->bytes_before, [CALM_FIGURE_COSINE] = embeddings->cosine,
        [CALM_FIGURE_COSINE_MIN] = embeddings->cosine_min, [CALM_FIGURE_SPEARMAN] = embeddings->spearman,
        [CALM_FIGURE_ERROR] = embeddings->error};
    /* One more than needed, because NULL means that nothing was measured. */
    CALM_TRY(CALM_NEW(ctx, ctx->out, r->gate_values, r->recipe->n_gates + 1));
    for (size_t i = 0; i < r->recipe->n_gates; i++)
        r->gate_values[i] = figures[r->recipe->gates[i].figure];
    return CALM_OK;
}

calm_status calm_gates_put(calm_ctx *ctx, const calm_result *r)
{
    /* Values are stored even if gates do not hold: a failed run is where they matter. */
    CALM_SCOPED_TRANSACTION(ctx, r->store);
    for (size_t i = 0; i < r->recipe->n_gates; i++) {
        const calm_store_gate row = {r->run_id, (int64_t)i, r->recipe->gates[i].text, r->gate_values[i],
                                     calm_gate_holds(&r->recipe->gates[i], r->gate_values[i])};
        CALM_TRY(calm_store_gate_put(ctx, r->store, &row));
    }
    return calm_store_commit(ctx, r->store);
}

calm_status calm_gates_verdict(calm_ctx *ctx, const calm_result *r)
{
    const calm_recipe *recipe = r->recipe;
    size_t first = recipe->n_gates, n = 0;
    for (size_t i = 0; r->gate_values && i < recipe->n_gates; i++)
        if (!calm_gate_holds(&recipe->gates[i], r->gate_values[i])) {
            first = n ? first : i;
            n++;
        }
    return n == 0 ? CALM_OK
                  : calm_fail(ctx, CALM_EMISMATCH,
                              "gate \"%s\" does not hold: measured %.6g (%zu of %zu gates fail); the "
                              "checkpoint is written: %s",
                              recipe->gates[first].text, r->gate_values[first], n, recipe->n_gates, recipe->output);
}

/* ---- names of plans ---- */

size_t calm_trial_same_uniform(const calm_trial *trials, size_t n)
{
    size_t same = 0;
    for (size_t i = 1; i < n; i++)
        same = strcmp(trials[i].key, trials[0].key) == 0 ? i : same;
    return same;
}

/* Returns the entry of all quantized jobs of a plan; NULL: they differ. */
static const char *common_entry(const calm_plan *plan)
{
    const char *common = NULL;
    for (size_t job = 0; job < plan->n_jobs; job++) {
        const char *name = plan->jobs[job].quantized ? plan->jobs[job].entry_name : NULL;
        if (name && common && strcmp(name, common) != 0)
            return NULL;
        common = name ? name : common;
    }
    return common;
}

const char *calm_trial_after(const char *name)
{
    return strstr(name, ", ");
}

calm_status calm_trial_label(calm_ctx *ctx, const calm_trial *trials, size_t n, const calm_plan *choices,
                              const char *name, const char **out)
{
    const size_t same = calm_trial_same_uniform(trials, n), length = strlen("hybrid");
    const char *uniform = same ? trials[same].name : common_entry(choices);
    *out = name;
    if (!name || !uniform || strncmp(name, "hybrid", length) != 0)    /* NULL: several budgets */
        return CALM_OK;
    /* "hybrid", "hybrid of 3 bits", "hybrid, learned": the part after the comma is kept. */
    const char *more = calm_trial_after(name);
    return calm_strf(ctx, ctx->out, out, "%s%s", uniform, more ? more : "");
}

calm_status calm_trial_labels(calm_ctx *ctx, const calm_trial *trials, size_t n, const char ***out)
{
    const size_t same = calm_trial_same_uniform(trials, n);
    CALM_TRY(CALM_NEW(ctx, ctx->out, *out, n));
    for (size_t i = 0; i < n; i++)
        if (i == 0 || i != same)
            CALM_TRY(calm_trial_label(ctx, trials, n, &trials[0].plan, trials[i].name, &(*out)[i]));
    return CALM_OK;
}

calm_status calm_result_label(calm_ctx *ctx, const calm_result *r, const char *name, const char **out)
{
    return calm_trial_label(ctx, r->trials, r->n_trials, r->n_trials ? &r->trials[0].plan : &r->plan, name, out);
}
