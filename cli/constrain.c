/* The target of a run: what its units may have, before anything is computed. */
#include <string.h>

#include "cli/pipeline.h"

/* Jobs of the run as the constraint knows them. */
static calm_status list_jobs(calm_ctx *ctx, const calm_pipeline *p, calm_constraint_job **out, size_t *n)
{
    const calm_layout *layout = calm_model_layout(p->model);
    size_t first, end, unit = 0;
    calm_pipeline_jobs(p, &first, &end);
    *n = end - first;
    CALM_TRY(CALM_NEW(ctx, ctx->out, *out, *n));
    for (size_t job = first, unit_end; job < end; job = unit_end, unit++) {
        size_t begin;
        calm_layout_unit(layout, p->recipe->selection.unit, job, &begin, &unit_end);
        for (size_t j = job; j < unit_end; j++) {
            const calm_job_ref *ref = &layout->jobs[j];
            (*out)[j - first] = (calm_constraint_job){.name = ref->name, .out = ref->out, .in = ref->in,
                                                      .block = ref->block, .unit = unit, .expert = ref->expert >= 0,
                                                      .down = ref->kind == CALM_JOB_DOWN};
        }
    }
    return CALM_OK;
}

/* What pins leave: [n_units][n_schemes] in ctx->scratch. */
static calm_status list_offers(calm_ctx *ctx, const calm_pipeline *p, const calm_constraint *c, bool **out)
{
    const calm_recipe *recipe = p->recipe;
    size_t first, end, n;
    calm_pipeline_jobs(p, &first, &end);
    if (!calm_size_mul(&n, c->n_jobs, recipe->n_schemes))
        return calm_fail(ctx, CALM_ENOMEM, "%zu jobs of %zu schemes", c->n_jobs, recipe->n_schemes);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, *out, n));
    for (size_t j = 0; j < c->n_jobs; j++) {
        const size_t pin = calm_pipeline_pinned(p, first + j);
        for (size_t s = 0; s < recipe->n_schemes; s++)
            (*out)[c->jobs[j].unit * recipe->n_schemes + s] = pin == CALM_NO_PIN || recipe->pool[pin].of_scheme == s;
    }
    return CALM_OK;
}

/* Why the first job has none of the scheme, for a note. */
static calm_status note_dropped(calm_ctx *ctx, const calm_pipeline *p, const calm_constraint *c, size_t scheme)
{
    const calm_engine_linear linear = {c->jobs[0].name, c->jobs[0].out, c->jobs[0].in, c->jobs[0].expert};
    char name[CALM_SCHEME_NAME_MAX], *why;
    calm_scheme_name(&c->schemes[scheme], name);
    for (size_t i = 0; i < p->recipe->n_pins; i++)
        if (p->recipe->pool[p->recipe->pins[i].entry].of_scheme == scheme)
            return calm_engine_check_scheme(ctx, c->target, c->format, &linear, &c->schemes[scheme]);
    CALM_TRY(calm_engine_explain(ctx, c->target, c->format, &linear, &c->schemes[scheme], &why));
    calm_log(ctx, CALM_LOG_INFO, "%s is left out: target %s has no use for it anywhere; of %s it %s", name,
             calm_engine_name(c->target), linear.name, why);
    return CALM_OK;
}

/* The recipe without schemes that no job can have, so that nothing of theirs is computed; p->recipe is then a copy. */
static calm_status drop_schemes(calm_ctx *ctx, calm_pipeline *p, const calm_constraint *c)
{
    const calm_recipe *from = p->recipe;
    calm_recipe *to;
    size_t *number, *entry;    /* new numbers of schemes and entries */
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, number, from->n_schemes));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, entry, from->n_pool));
    CALM_TRY(CALM_NEW(ctx, ctx->out, to, 1));
    *to = *from;
    CALM_TRY(CALM_NEW(ctx, ctx->out, to->schemes, from->n_schemes));
    CALM_TRY(CALM_NEW(ctx, ctx->out, to->range_said, from->n_schemes));
    CALM_TRY(CALM_NEW(ctx, ctx->out, to->pool, from->n_pool));
    CALM_TRY(CALM_NEW(ctx, ctx->out, to->pins, from->n_pins + 1));
    to->n_schemes = to->n_pool = 0;
    for (size_t s = 0; s < from->n_schemes; s++) {
        number[s] = SIZE_MAX;
        if (!calm_constraint_knows(c, s)) {
            CALM_TRY(note_dropped(ctx, p, c, s));
            continue;
        }
        to->schemes[to->n_schemes] = from->schemes[s];
        to->range_said[to->n_schemes] = from->range_said[s];
        number[s] = to->n_schemes++;
    }
    for (size_t i = 0; i < from->n_pool; i++) {
        if (number[from->pool[i].of_scheme] == SIZE_MAX)
            continue;
        entry[i] = to->n_pool;
        to->pool[to->n_pool] = from->pool[i];
        to->pool[to->n_pool++].of_scheme = number[from->pool[i].of_scheme];
    }
    for (size_t i = 0; i < from->n_pins; i++)
        to->pins[i] = (calm_pin){from->pins[i].unit, entry[from->pins[i].entry]};
    for (size_t job = 0; job < calm_model_layout(p->model)->n_jobs; job++)
        if (p->pinned[job] != CALM_NO_PIN)
            p->pinned[job] = entry[p->pinned[job]];
    p->recipe = to;
    return CALM_OK;
}

calm_status calm_pipeline_constrain(calm_ctx *ctx, calm_pipeline *p)
{
    const calm_recipe *recipe = p->recipe;
    calm_constraint *c = &p->constraint;
    calm_constraint_job *jobs;
    bool *offered;
    size_t known = 0;
    *c = (calm_constraint){0};
    if (!calm_engine_is_any(recipe->target) && !recipe->target_format && recipe->output)
        calm_log(ctx, CALM_LOG_WARNING, "target %s reads %s and not what this run writes: the plan is legal for it, the "
                                        "checkpoint is for others", calm_engine_name(recipe->target),
                 calm_engine_formats(recipe->target));
    c->target = recipe->target;
    c->format = recipe->target_format;
    c->tie = recipe->target_tie;
    c->schemes = recipe->schemes;
    c->n_schemes = recipe->n_schemes;
    CALM_TRY(list_jobs(ctx, p, &jobs, &c->n_jobs));
    c->jobs = jobs;
    for (size_t s = 0; s < recipe->n_schemes; s++)
        known += calm_constraint_knows(c, s);
    if (known && known < recipe->n_schemes)
        CALM_TRY(drop_schemes(ctx, p, c));
    c->schemes = p->recipe->schemes;
    c->n_schemes = p->recipe->n_schemes;
    CALM_TRY(list_offers(ctx, p, c, &offered));
    return calm_constraint_apply(ctx, offered, c);
}

bool calm_pipeline_takes(const calm_pipeline *p, size_t job, size_t scheme)
{
    size_t first, end;
    calm_pipeline_jobs(p, &first, &end);
    return !p->constraint.takes || calm_constraint_takes(&p->constraint, p->constraint.jobs[job - first].unit, scheme);
}

calm_status calm_trial_constrain(calm_ctx *ctx, const calm_pipeline *p, const size_t *choice, calm_trial *trial)
{
    size_t first, end;
    char name[CALM_SCHEME_NAME_MAX], *lacks;
    calm_pipeline_jobs(p, &first, &end);
    for (size_t job = first; job < end && !trial->lacks; job++) {
        if (choice[job] == CALM_STAYS_FLOAT || calm_pipeline_takes(p, job, p->recipe->pool[choice[job]].of_scheme))
            continue;
        calm_scheme_name(&p->recipe->pool[choice[job]].scheme, name);
        CALM_TRY(calm_strf(ctx, ctx->out, &lacks, "%s: %s does not take %s there",
                           calm_model_layout(p->model)->jobs[job].name, p->constraint.asks, name));
        trial->lacks = lacks;
    }
    return CALM_OK;
}

calm_status calm_pipeline_say_cost(calm_ctx *ctx, const calm_pipeline *p, const calm_share_total *total,
                                   const char **verdict)
{
    char *cost, *text;
    if (!p->constraint.takes)
        return CALM_OK;
    CALM_TRY(calm_constraint_cost(ctx, &p->constraint, total ? total->held : 0, "predicted KL", total ? total->loss : 0,
                                  total ? total->unconstrained : 0, &cost));
    CALM_TRY(calm_strf(ctx, ctx->out, &text, "%s; %s", *verdict, cost));
    *verdict = text;
    return CALM_OK;
}
