/* Budgets: widths of all units that share so many bits per weight (docs/method.md section 5.3).
 *
 *   options of a unit   at each width the entry that the selection takes
 *   loss                kappa * score, kappa = probe KL / score of the narrowest option: a score compares the options of
 *                       one unit, the probe says what that unit's score costs the model
 *   plan                least sum of losses within the bits, exactly (ptq/hybrid/knapsack.h) */
#include <math.h>
#include <string.h>

#include "cli/pipeline.h"
#include "cli/solve.h"

typedef struct sharing {
    calm_share *units;
    size_t n;
    double weights;                    /* of all jobs                              */
} sharing;

/* Bits of jobs begin .. end - 1 at one scheme. */
static double bits_at(const calm_pipeline *p, size_t begin, size_t end, const calm_scheme *scheme)
{
    double bits = 0;
    for (size_t job = begin; job < end; job++)
        bits += calm_pipeline_job_bits(p, job, scheme);
    return bits;
}

calm_status calm_pipeline_check_budgets(calm_ctx *ctx, const calm_pipeline *p)
{
    const calm_recipe *recipe = p->recipe;
    size_t first, end;
    double least = 0, most = 0;
    calm_pipeline_jobs(p, &first, &end);
    const double weights = calm_pipeline_weights(p, first, end, false);
    for (size_t job = first; job < end; job++) {
        const size_t pin = calm_pipeline_pinned(p, job);
        double low = INFINITY, high = 0;
        for (size_t s = 0; s < recipe->n_schemes; s++) {
            const double bits = calm_pipeline_job_bits(p, job, &recipe->schemes[s]);
            if ((pin != CALM_NO_PIN && recipe->pool[pin].of_scheme != s) || !calm_pipeline_takes(p, job, s))
                continue;
            low = fmin(low, bits);
            high = fmax(high, bits);
        }
        least += low;
        most += high;
    }
    for (size_t i = 0; i < recipe->n_budgets; i++)
        if (recipe->budgets[i] * weights < least || recipe->budgets[i] * weights > most)
            return calm_fail(ctx, CALM_EARG, "--budget %g: the plans of these schemes take from %.4f to %.4f bits per weight%s%s",
                             recipe->budgets[i], least / weights, most / weights,
                             p->constraint.takes ? " for " : "",
                             p->constraint.takes ? p->constraint.asks : "");
    return CALM_OK;
}

/* ---- options ---- */

/* The entry of each scheme that has one for the unit, in the order of their bits. */
static calm_status list_options(calm_ctx *ctx, const calm_pipeline *p, calm_share *unit)
{
    const calm_recipe *recipe = p->recipe;
    for (size_t first = 0, n; first < recipe->n_pool; first += n) {
        const size_t scheme = recipe->pool[first].of_scheme;
        size_t entry;
        char *reason;
        for (n = 1; first + n < recipe->n_pool && recipe->pool[first + n].of_scheme == scheme; n++)
            continue;
        const size_t pin = calm_pipeline_pinned(p, unit->begin);
        if (pin != CALM_NO_PIN && recipe->pool[pin].of_scheme != scheme)
            continue;
        const calm_status status =
            calm_pipeline_select(ctx, p, &recipe->selection, unit->begin, first, n, &entry, &reason);
        if (status == CALM_ENUMERIC)    /* nothing reached this width: the others are left */
            calm_ctx_forgive(ctx);
        else if (status != CALM_OK)
            return status;
        if (status != CALM_OK)
            continue;
        calm_share_add(unit, entry, scheme, !calm_pipeline_takes(p, unit->begin, scheme), reason,
                       bits_at(p, unit->begin, unit->end, &recipe->schemes[scheme]));
    }
    return unit->n ? CALM_OK : calm_fail(ctx, CALM_ENUMERIC, "%s: every candidate of every width failed",
                                         calm_model_layout(p->model)->jobs[unit->begin].name);
}

static calm_status list_units(calm_ctx *ctx, const calm_pipeline *p, sharing *out)
{
    size_t first, end;
    calm_pipeline_jobs(p, &first, &end);
    *out = (sharing){.weights = calm_pipeline_weights(p, first, end, false)};
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->units, end - first));
    for (size_t job = first; job < end; job = out->units[out->n++].end) {
        calm_share *unit = &out->units[out->n];
        CALM_TRY(calm_share_new(ctx, p->recipe->n_schemes, unit));
        calm_layout_unit(calm_model_layout(p->model), p->recipe->selection.unit, job, &unit->begin, &unit->end);
        unit->set = p->constraint.set ? p->constraint.set[out->n] : out->n;
        unit->pinned = calm_pipeline_pinned(p, unit->begin) != CALM_NO_PIN;
        CALM_TRY(list_options(ctx, p, unit));
    }
    return CALM_OK;
}

/* ---- losses ---- */

static double score_of(const calm_pipeline *p, const calm_share *unit, size_t option)
{
    const calm_selection *selection = &p->recipe->selection;
    return calm_pipeline_candidate(p, unit->begin, unit->entries[option])->scores.value[selection->point][selection->score];
}

/* A unit that could not be scored (an expert without scoring tokens) is worth nothing: its narrowest option. */
static calm_status set_losses(calm_ctx *ctx, const calm_pipeline *p, calm_share *unit)
{
    const calm_point point = calm_unit_point(p->recipe->selection.unit);
    const double probe =
        calm_pipeline_candidate(p, unit->begin, unit->entries[0])->scores.value[point][CALM_SCORE_PROBE_KL];
    double *scores;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, scores, unit->n));
    for (size_t i = 0; i < unit->n; i++)
        scores[i] = score_of(p, unit, i);
    calm_share_lose(unit, calm_share_kappa(probe, scores[0]), scores);
    return CALM_OK;
}

static calm_status measure_losses(calm_ctx *ctx, calm_pipeline *p, sharing *s)
{
    calm_probe *probes;
    CALM_TRY(CALM_NEW(ctx, ctx->out, probes, s->n));
    for (size_t u = 0; u < s->n; u++)
        probes[u] = (calm_probe){s->units[u].begin, s->units[u].entries[0]};
    CALM_TRY(calm_pipeline_probe(ctx, p, p->recipe->selection.unit, probes, s->n));
    for (size_t u = 0; u < s->n; u++)
        CALM_TRY(set_losses(ctx, p, &s->units[u]));
    return CALM_OK;
}

/* ---- one budget ---- */

/* The best plan within the bits, into picked [n] (options) and p->choice. */
static calm_status fill(calm_ctx *ctx, calm_pipeline *p, const sharing *s, calm_pareto *pareto, size_t *picked)
{
    CALM_TRY(calm_share_fill(ctx, s->units, s->n, pareto->budget * s->weights, picked, &pareto->total));
    for (size_t u = 0; u < s->n; u++)
        for (size_t job = s->units[u].begin; job < s->units[u].end; job++)
            p->choice[job] = s->units[u].entries[picked[u]];
    return CALM_OK;
}

/* The plan that takes its own entry of one scheme for each unit; false when a unit has none of that width. */
static bool choose_width(const sharing *s, const calm_recipe *recipe, size_t scheme, size_t *choice)
{
    for (size_t u = 0; u < s->n; u++) {
        const calm_share *unit = &s->units[u];
        size_t i = 0;
        while (i < unit->n && !unit->pinned && recipe->pool[unit->entries[i]].of_scheme != scheme)
            i++;
        if (i == unit->n)
            return false;
        for (size_t job = unit->begin; job < unit->end; job++)
            choice[job] = unit->entries[i];
    }
    return true;
}

/* The hybrid, then each width throughout and each entry throughout where that fits. */
static calm_status list_trials(calm_ctx *ctx, calm_pipeline *p, const sharing *s, calm_pareto *out)
{
    const calm_recipe *recipe = p->recipe;
    const double limit = out->budget * (1 + 1e-12);
    char scheme[CALM_SCHEME_NAME_MAX], *name;
    size_t *choice;
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->trials, 1 + recipe->n_schemes + recipe->n_pool));
    CALM_TRY(calm_strf(ctx, ctx->out, &name, recipe->n_budgets > 1 ? "hybrid of %g bits" : "hybrid", out->budget));
    CALM_TRY(calm_trial_new(ctx, p, name, p->choice, &out->trials[out->n_trials++]));
    for (size_t i = 0; i < recipe->n_schemes; i++) {
        CALM_TRY(calm_pipeline_uniform(ctx, p, 0, &choice));
        if (!choose_width(s, recipe, i, choice))
            continue;
        calm_scheme_name(&recipe->schemes[i], scheme);
        CALM_TRY(calm_strf(ctx, ctx->out, &name, "all %s", scheme));
        CALM_TRY(calm_trial_new(ctx, p, name, choice, &out->trials[out->n_trials]));
        CALM_TRY(calm_trial_constrain(ctx, p, choice, &out->trials[out->n_trials]));
        out->n_trials += out->trials[out->n_trials].bits_per_weight <= limit;
    }
    for (size_t i = 0; i < recipe->n_pool; i++) {
        CALM_TRY(calm_pipeline_uniform_pinned(ctx, p, i, &choice));
        CALM_TRY(calm_trial_new(ctx, p, recipe->pool[i].name, choice, &out->trials[out->n_trials]));
        CALM_TRY(calm_trial_constrain(ctx, p, choice, &out->trials[out->n_trials]));
        out->n_trials += out->trials[out->n_trials].bits_per_weight <= limit;
    }
    return CALM_OK;
}

/* The choices of the only budget, with what the unit lost and what it takes. */
static calm_status put_choices(calm_ctx *ctx, const calm_pipeline *p, const sharing *s, const size_t *picked)
{
    CALM_TRY(calm_store_begin(ctx, p->store));
    for (size_t u = 0; u < s->n; u++) {
        const calm_share *unit = &s->units[u];
        char *reason;
        CALM_TRY(calm_share_reason(ctx, unit, picked[u], "predicted KL", &reason));
        for (size_t job = unit->begin; job < unit->end; job++)
            CALM_TRY(calm_pipeline_put_choice(ctx, p, job, reason));
    }
    return calm_store_commit(ctx, p->store);
}

calm_status calm_pipeline_share_bits(calm_ctx *ctx, calm_pipeline *p)
{
    const calm_recipe *recipe = p->recipe;
    sharing s;
    size_t *picked;
    calm_memory_plan_note(&p->held.capture);
    CALM_TRY(list_units(ctx, p, &s));
    CALM_TRY(measure_losses(ctx, p, &s));
    CALM_TRY(CALM_NEW(ctx, ctx->out, picked, s.n));
    CALM_TRY(CALM_NEW(ctx, ctx->out, p->pareto, recipe->n_budgets));
    for (size_t i = 0; i < recipe->n_budgets; i++) {
        calm_pareto *pareto = &p->pareto[i];
        pareto->budget = recipe->budgets[i];
        CALM_TRY(fill(ctx, p, &s, pareto, picked));
        CALM_TRY(list_trials(ctx, p, &s, pareto));
        CALM_TRY(calm_guard_judge(ctx, p, pareto->trials, pareto->n_trials, &pareto->result, &pareto->verdict));
        CALM_TRY(calm_pipeline_say_cost(ctx, p, &pareto->total, &pareto->verdict));
    }
    if (recipe->n_budgets == 1) {
        CALM_TRY(put_choices(ctx, p, &s, picked));
        p->trials = p->pareto[0].trials;
        p->n_trials = p->pareto[0].n_trials;
        p->verdict = p->pareto[0].verdict;
        p->result_name = p->trials[p->pareto[0].result].name;
        p->result = p->trials[p->pareto[0].result].plan;
    }
    calm_progress_finish(p->progress, CALM_STAGE_CHOOSE);
    calm_memory_plan_note(&p->held.evaluate);
    return CALM_OK;
}
