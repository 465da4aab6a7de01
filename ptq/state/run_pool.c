/* Builds a pool of the candidates in memory. */
#include "ptq/arch/kind.h"
#include "ptq/state/run_pool.h"

#include <math.h>

/* ---- the pool ---- */

/* Returns true if the crest is needed: only the activation rule reads it, which applies if activations are quantized
 * and an algorithm smooths. */
static bool wants_crest(const calm_recipe *recipe)
{
    bool smooths = false;
    for (size_t i = 0; i < recipe->n_pool; i++)
        smooths |= calm_algorithm_smooths(recipe->pool[i].algorithm);
    return smooths && calm_recipe_quantizes_activations(recipe);
}

/* Returns calm_engine_linear.part of a job. */
static size_t part_rows(const calm_layout *layout, const calm_job_ref *job)
{
    size_t part = 0;
    for (size_t i = job->first; i + 1 < job->first + job->n; i++)
        part = calm_engine_part(part, layout->linears[i].out);
    return part;
}

/* Describes a job of the layout for the pool. */
static calm_pool_job describe_job(calm_ctx *ctx, const calm_run *p, size_t job, const char *unit, bool crest)
{
    const calm_layout *layout = calm_model_layout(p->in.model);
    const calm_job_ref *ref = &layout->jobs[job];
    return (calm_pool_job){
        .id = p->job_ids ? p->job_ids[job] : 0, .name = ref->name, .role = ref->role, .unit = unit,
        .block = ref->block, .out = ref->out, .in = ref->in, .part = part_rows(layout, ref),
        .expert = ref->expert >= 0,
        .down = ref->traits->place == CALM_PLACE_DOWN, .crest = crest ? calm_run_crest(ctx, p, job) : NAN};
}

/* Lists the jobs to quantize, in the layout's order, each with the name of its unit. */
static calm_status list_jobs(calm_ctx *ctx, const calm_run *p, calm_unit kind, calm_pool *pool)
{
    const calm_layout *layout = calm_model_layout(p->in.model);
    /* Before the survey the store is not open, or has no rows of the jobs. */
    const bool crest = p->surveyed && wants_crest(p->in.recipe);
    const size_t n = calm_inputs_count(&p->in);
    calm_pool_job *jobs;
    calm_scheme *schemes;
    const calm_scheme *mix = &p->in.recipe->schemes[0];
    CALM_TRY(CALM_NEW(ctx, ctx->out, jobs, n));
    CALM_TRY(CALM_NEW(ctx, ctx->out, schemes, mix->mix ? n : 0));
    size_t unit_end = 0;
    char *unit = NULL;
    for (size_t i = 0; i < n; i++) {
        const size_t job = calm_inputs_job(&p->in, i);
        size_t begin;
        if (job >= unit_end) {    /* float jobs of a unit are not listed */
            calm_layout_unit(layout, kind, job, &begin, &unit_end);
            CALM_TRY(calm_layout_unit_name(ctx, layout, kind, job, &unit));
        }
        jobs[i] = describe_job(ctx, p, job, unit, crest);
        if (!mix->mix)
            continue;
        schemes[i] = calm_scheme_at(mix, &layout->jobs[job].place);
        jobs[i].scheme = &schemes[i];
    }
    pool->jobs = jobs;
    pool->n_jobs = n;
    return CALM_OK;
}

/* Fills the cells of all jobs and entries with the scores at the selection's point, as far as they are known. */
static calm_status fill_cells(calm_ctx *ctx, const calm_run *p, const calm_selection *selection, calm_pool *pool)
{
    calm_pool_cell *cells;
    const size_t n = pool->n_jobs * pool->n_entries;    /* no overflow: both lists are in memory */
    CALM_TRY(CALM_NEW(ctx, ctx->out, cells, n));
    pool->cells = cells;
    /* While the pool is pending, a cell without a score is no error: the score may still be measured. */
    pool->pending = !p->computed;
    pool->numbered = p->surveyed;
    for (size_t i = 0; i < n && p->surveyed; i++) {
        const calm_candidate *candidate =
            calm_candidate_at(&p->in, calm_inputs_job(&p->in, i / pool->n_entries), i % pool->n_entries);
        const double *at_point = candidate->scores.value[selection->point];
        /* Ties are broken by the squared error at the same point, for any score. */
        cells[i] = (calm_pool_cell){
            .id = candidate->id, .key = candidate->key, .blob = candidate->blob[0] ? candidate->blob : NULL,
            .failure = candidate->failure, .metric = at_point[selection->score],
            .tie = at_point[CALM_METRIC_LOG_REL_MSE],
            .probe = candidate->scores.value[calm_unit_point(selection->unit)]
                                            [pool->gradient ? CALM_SCORE_GRADIENT_KL : CALM_SCORE_PROBE_KL]};
    }
    return CALM_OK;
}

calm_status calm_pool_of_run(calm_ctx *ctx, const calm_run *p, const calm_selection *selection, calm_pool *out)
{
    calm_pool_entry *entries;
    CALM_TRY(calm_recipe_entries(ctx, p->in.recipe, &entries));
    *out = (calm_pool){.entries = entries, .n_entries = p->in.recipe->n_pool, .schemes = p->in.recipe->schemes,
                       .n_schemes = p->in.recipe->n_schemes, .unit = selection->unit, .rule = selection->rule,
                       .shortlist = selection->shortlist,
                       .gradient = p->in.recipe->sensitivity == CALM_SENSITIVITY_GRADIENT,
                       .metric = calm_score_name(selection->point, selection->score)};
    CALM_TRY(list_jobs(ctx, p, selection->unit, out));
    CALM_TRY(fill_cells(ctx, p, selection, out));
    out->file = p->pool_file;
    /* What the user can do if no candidate has the score. */
    CALM_TRY(calm_strf(ctx, ctx->out, &out->remedy,
                       "%zu rows were scored (--score-samples, --seqlen), it needs at least 4",
                       calm_inputs_scored_rows(&p->in)));
    return calm_pool_index(ctx, out);
}

/* ---- requests ---- */

calm_requests calm_run_requests(const calm_run *p, calm_unit unit)
{
    const calm_recipe *recipe = p->in.recipe;
    calm_requests out = {.forbid = recipe->forbid, .n_forbid = recipe->n_forbid, .budget = NAN,
                         .engine = recipe->engine, .format = recipe->engine_format, .tie = recipe->engine_tie};
    /* Pins name units of the recipe's kind; for another kind the same name means something else or nothing. */
    if (unit == recipe->selection.unit) {
        out.pins = recipe->pins;
        out.n_pins = recipe->n_pins;
    }
    return out;
}

/* Logs why no job can have the scheme; fails if a pin asks for it. */
static calm_status note_dropped(calm_ctx *ctx, const calm_run *p, const calm_pool *pool, const calm_scope *pinned,
                                const calm_requests *requests, size_t scheme)
{
    const calm_engine_linear linear = calm_limits_linear(&pool->jobs[0]);
    char *why;
    const char *name = CALM_SCHEME_NAME(&pool->schemes[scheme]);
    /* A pin to such a scheme cannot be followed: that is an error of the user, not something to skip quietly. */
    for (size_t u = 0; u < pool->n_units; u++) {
        size_t entry;
        if (calm_scope_only_entry(pool, pinned, u, &entry) && pool->entries[entry].of_scheme == scheme)
            return calm_engine_check_scheme(ctx, requests->engine, requests->format, &linear, &pool->schemes[scheme]);
    }
    CALM_TRY(calm_engine_explain(ctx, requests->engine, requests->format, &linear, &pool->schemes[scheme], &why));
    calm_log(ctx, CALM_LOG_INFO, "%s is left out: target %s has no use for it anywhere; of %s it %s", name,
             calm_engine_name(p->in.recipe->engine), linear.name, why);
    return CALM_OK;
}

/* Removes schemes that no job can have from the recipe, so that none of their candidates are computed; p->in.recipe is
 * then a copy. */
static calm_status drop_schemes(calm_ctx *ctx, calm_run *p, const calm_pool *pool, const bool *known)
{
    const calm_recipe *from = p->in.recipe;
    calm_recipe *to;
    size_t *number;    /* [n_schemes] new number of each scheme */
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, number, from->n_schemes));
    CALM_TRY(CALM_NEW(ctx, ctx->out, to, 1));
    /* The caller's recipe is const and may serve other runs: changed parts are copied. */
    *to = *from;
    CALM_TRY(CALM_NEW(ctx, ctx->out, to->schemes, from->n_schemes));
    CALM_TRY(CALM_NEW(ctx, ctx->out, to->act_range_explicit, from->n_schemes));
    CALM_TRY(CALM_NEW(ctx, ctx->out, to->pool, from->n_pool));
    to->n_schemes = to->n_pool = 0;
    for (size_t s = 0; s < from->n_schemes; s++) {
        /* Always written, but counted only if it is kept: the next scheme overwrites a removed one. */
        to->schemes[to->n_schemes] = from->schemes[s];
        to->act_range_explicit[to->n_schemes] = from->act_range_explicit[s];
        number[s] = to->n_schemes;
        to->n_schemes += known[s];
    }
    /* Entries refer to schemes by number, so they are renumbered. */
    for (size_t i = 0; i < from->n_pool; i++) {
        to->pool[to->n_pool] = from->pool[i];
        to->pool[to->n_pool].of_scheme = number[from->pool[i].of_scheme];
        to->n_pool += known[pool->entries[i].of_scheme];
    }
    p->in.recipe = to;
    return CALM_OK;
}

calm_status calm_run_check_pins(calm_ctx *ctx, const calm_run *p, const calm_pool *pool, calm_scope *out)
{
    const calm_requests all = calm_run_requests(p, p->in.recipe->selection.unit);
    const calm_requests pins = {.budget = NAN, .pins = all.pins, .n_pins = all.n_pins};
    return calm_scope_open(ctx, pool, &pins, out);
}

/* Removes the schemes that the target runs for no job, unless it runs none: then the scope explains why. */
static calm_status drop_unknown(calm_ctx *ctx, calm_run *p)
{
    const calm_unit unit = p->in.recipe->selection.unit;
    const calm_requests requests = calm_run_requests(p, unit);
    const calm_limits limits = {.engine = requests.engine, .format = requests.format};
    calm_scope pinned;
    calm_pool pool;
    bool *known;
    size_t n_known = 0;
    CALM_TRY(calm_pool_of_run(ctx, p, &p->in.recipe->selection, &pool));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, known, pool.n_schemes));
    for (size_t s = 0; s < pool.n_schemes; s++)
        n_known += known[s] = calm_limits_any_job_allows(&limits, &pool, s);
    /* If the target runs none of the schemes, the scope's failure names job and scheme. */
    if (n_known == 0 || n_known == pool.n_schemes)
        return CALM_OK;
    CALM_TRY(calm_run_check_pins(ctx, p, &pool, &pinned));
    for (size_t s = 0; s < pool.n_schemes; s++)
        if (!known[s])
            CALM_TRY(note_dropped(ctx, p, &pool, &pinned, &requests, s));
    return drop_schemes(ctx, p, &pool, known);
}

calm_status calm_run_rescope(calm_ctx *ctx, calm_run *p)
{
    const calm_requests requests = calm_run_requests(p, p->in.recipe->selection.unit);
    CALM_TRY(calm_pool_of_run(ctx, p, &p->in.recipe->selection, &p->pool));
    return calm_scope_open(ctx, &p->pool, &requests, &p->scope);
}

calm_status calm_run_restrict(calm_ctx *ctx, calm_run *p)
{
    const calm_recipe *recipe = p->in.recipe;
    if (!calm_engine_is_any(recipe->engine) && !recipe->engine_format && recipe->output)
        calm_log(ctx, CALM_LOG_WARNING,
                 "target %s reads %s and not what this run writes: the plan is legal for it, the "
                 "checkpoint is for others",
                 calm_engine_name(recipe->engine), calm_engine_formats(recipe->engine));
    /* First, because the scope covers the remaining pool. */
    CALM_TRY(drop_unknown(ctx, p));
    return calm_run_rescope(ctx, p);
}

calm_status calm_run_check_budgets(calm_ctx *ctx, const calm_run *p)
{
    for (size_t i = 0; i < p->in.recipe->n_budgets; i++)
        CALM_TRY(calm_budget_check(ctx, &p->pool, &p->scope, p->in.recipe->budgets[i]));
    return CALM_OK;
}

/* ---- jobs of the layout ---- */

/* Returns the unit of p->pool with a job of the layout. */
static size_t unit_of(const calm_run *p, size_t job)
{
    const size_t index = calm_inputs_index(&p->in, job);
    size_t low = 0, high = p->pool.n_units;
    /* Binary search: mixtures have thousands of units, and every job asks for every scheme. */
    while (high - low > 1) {
        const size_t middle = (low + high) / 2;
        if (p->pool.unit_begin[middle] <= index)
            low = middle;
        else
            high = middle;
    }
    return low;
}

bool calm_run_takes(const calm_run *p, size_t job, size_t scheme)
{
    return !calm_inputs_keeps(&p->in, job) &&
           (!p->scope.limits.takes || calm_limits_allow(&p->scope.limits, unit_of(p, job), scheme));
}

bool calm_run_pins(const calm_run *p, size_t job, size_t entry)
{
    return p->in.recipe->n_pins && !calm_inputs_keeps(&p->in, job) &&
           calm_scope_pins(&p->pool, &p->scope, unit_of(p, job), entry);
}

calm_status calm_run_spread(calm_ctx *ctx, const calm_run *p, const calm_pool *pool, const calm_solution *solution,
                            size_t **choice)
{
    /* Float jobs are in the layout but not in the pool. */
    CALM_TRY(calm_choice_uniform(ctx, &p->in, CALM_STAYS_FLOAT, choice));
    for (size_t u = 0; u < pool->n_units; u++)
        for (size_t job = pool->unit_begin[u]; job < pool->unit_begin[u + 1]; job++)
            (*choice)[calm_inputs_job(&p->in, job)] = solution->choice[u];
    return CALM_OK;
}
