/* Results: facts, and the gates that they must hold. */
#include "ptq/run/result.h"

#include <math.h>
#include <string.h>

calm_window_facts calm_window_facts_of(const calm_windows *windows)
{
    calm_window_facts out = {.n = windows->n, .longest = windows->longest};
    /* NULL: windows that were never read. */
    if (windows->begin)
        out.tokens = windows->begin[windows->n];
    memcpy(out.sha256, windows->sha256, sizeof out.sha256);
    return out;
}

/* ---- gates ---- */

/* A figure of the other kind of model is not among the gates that calm_gates_check let through. */
static double measured(const calm_result *r, calm_figure figure)
{
    const calm_eval_result *predictions = &r->eval_result.predictions;
    const calm_embedding_result *embeddings = &r->eval_result.embeddings;
    switch (figure) {
    case CALM_FIGURE_PPL:
        return predictions->ppl;
    case CALM_FIGURE_PPL_FLOAT:
        return r->eval_float.predictions.ppl;
    case CALM_FIGURE_PPL_RATIO:
        return predictions->ppl / r->eval_float.predictions.ppl;
    case CALM_FIGURE_KL:
        return predictions->kl;
    case CALM_FIGURE_TOP1:
        return predictions->top1;
    case CALM_FIGURE_BITS:
        return r->bits_per_weight;
    case CALM_FIGURE_BYTES:
        return (double)r->bytes_after;
    case CALM_FIGURE_SIZE_RATIO:
        return (double)r->bytes_after / (double)r->bytes_before;
    case CALM_FIGURE_COSINE:
        return embeddings->cosine;
    case CALM_FIGURE_COSINE_MIN:
        return embeddings->cosine_min;
    case CALM_FIGURE_SPEARMAN:
        return embeddings->spearman;
    case CALM_FIGURE_ERROR:
        return embeddings->error;
    case CALM_N_FIGURES:
        break;
    }
    return NAN;
}

calm_status calm_gates_measure(calm_ctx *ctx, calm_result *r)
{
    /* One more, so that it is not NULL: NULL says that nothing was measured yet. */
    CALM_TRY(CALM_NEW(ctx, ctx->out, r->gate_values, r->recipe->n_gates + 1));
    for (size_t i = 0; i < r->recipe->n_gates; i++)
        r->gate_values[i] = measured(r, r->recipe->gates[i].figure);
    return CALM_OK;
}

calm_status calm_gates_put(calm_ctx *ctx, const calm_result *r)
{
    /* The values are kept whether or not the gates hold: a failed run is where they matter. */
    CALM_TRY(calm_store_begin(ctx, r->store));
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
