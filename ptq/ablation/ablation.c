/* Experiments: measures trials of every way of choosing together.
 *
 * All rows of an experiment are plans over the same candidates, so that they differ only in the choice.  Many plans are
 * equal; calm_trials_measure evaluates equal plans once, which makes a table of a hundred rows affordable. */
#include "ptq/ablation/ablation_impl.h"

#include "ptq/choose/choose.h"
#include "ptq/finish/finish.h"
#include "ptq/learn/learn.h"
#include "ptq/measure/measure.h"
#include <math.h>
#include <string.h>

#include "ptq/state/run_pool.h"
#include "ptq/base/rng.h"

/* Random rows have seeds 0 .. N_RANDOM - 1: fixed, so that two experiments draw the same plans. */
#define N_RANDOM 5
/* A random stream for these draws, because calibration windows may use the same seeds. */
#define RANDOM_STREAM 0x61626c6174650000u    /* "ablate" */

/* Rows and the trial of each.  Rows and their texts are in `keep` and outlive the run; trials point to the run's
 * candidates and are freed with it. */
typedef struct table {
    calm_ablation_row *rows;    /* [room] in `keep`               */
    calm_trial *trials;         /* [room] in ctx->out             */
    size_t n, room;
    calm_arena *keep;
} table;

/* The inputs and results of the stages of one run. */
typedef struct experiment {
    const calm_ablation_plan *plan;
    bool repeats;               /* a seed: only uniform runs and the recipe's hybrid */
    calm_arena *keep;
    calm_ablation *out;
} experiment;

/* ---- rows ---- */

/* Allocates an empty table for all rows: uniform runs; each point and score under two rules; factors of the shortlist;
 * the learned hybrid; an oracle per kind of unit; random draws. */
static calm_status start(calm_ctx *ctx, const calm_run *p, const experiment *e, table *out)
{
    *out = (table){.keep = e->keep};
    out->room = p->in.recipe->n_pool + 2 * CALM_N_POINTS * CALM_N_SCORES + e->plan->n_shortlists + CALM_N_UNITS +
                 1 + N_RANDOM;    /* named scores are a part of all scores */
    CALM_TRY(CALM_NEW(ctx, out->keep, out->rows, out->room));
    return CALM_NEW(ctx, ctx->out, out->trials, out->room);
}

/* Adds a row, which is measured later with all others.  choice NULL: the plan cannot exist, because of `failure`. */
static calm_status add(calm_ctx *ctx, const calm_run *p, table *t, calm_ablation_row row, const size_t *choice,
                       const char *failure)
{
    calm_trial *trial = &t->trials[t->n];
    *trial = (calm_trial){.name = row.name, .missing = failure, .bits_per_weight = NAN};
    if (choice)
        CALM_TRY(calm_trial_new(ctx, &p->in, row.name, choice, trial));
    t->rows[t->n++] = row;
    return CALM_OK;
}

/* Adds the baselines, one entry in all units.  They are the first rows of every table, as best_uniform assumes. */
static calm_status add_uniform(calm_ctx *ctx, const calm_run *p, table *t)
{
    for (size_t entry = 0; entry < p->in.recipe->n_pool; entry++) {
        calm_ablation_row row = {.kind = "uniform", .seed = -1};
        size_t *choice;
        CALM_TRY(calm_strf(ctx, t->keep, &row.name, "%s", p->in.recipe->pool[entry].name));
        CALM_TRY(calm_choice_uniform(ctx, &p->in, entry, &choice));
        CALM_TRY(add(ctx, p, t, row, choice, NULL));
    }
    return CALM_OK;
}

/* Adds a hybrid, or with probe_kl the oracle.  If every entry failed in a unit, the row has no plan.  `more` ends the
 * row's name. */
static calm_status add_selected(calm_ctx *ctx, const calm_run *p, table *t, const char *kind,
                                const calm_selection *selection, const char *more)
{
    calm_ablation_row row = {.kind = kind, .seed = -1, .unit = calm_unit_name(selection->unit),
                             .metric = calm_score_name(selection->point, selection->score),
                             .rule = calm_choice_rule_name(selection->rule)};
    const calm_requests requests = calm_run_requests(p, selection->unit);
    calm_solution solution;
    calm_pool pool;
    size_t *choice;
    char *failure;
    CALM_TRY(calm_strf(ctx, t->keep, &row.name, "%s %s %s%s", row.unit, row.metric, row.rule, more));
    CALM_TRY(calm_pool_of_run(ctx, p, selection, &pool));
    const calm_status status = calm_solve(ctx, &pool, &requests, &solution);
    if (status == CALM_OK) {
        CALM_TRY(calm_run_spread(ctx, p, &pool, &solution, &choice));
        return add(ctx, p, t, row, choice, NULL);
    }
    /* A plan that candidates' failures exclude is a row of the table; every other failure ends the experiment. */
    if (status != CALM_ENUMERIC)
        return status;
    char said[CALM_MESSAGE_MAX];
    /* The message is copied before the failure is cleared, and to `keep` after it: running out of memory there is a
     * separate failure. */
    memcpy(said, ctx->message, sizeof said);
    calm_ctx_clear_failure(ctx);
    CALM_TRY(calm_strf(ctx, t->keep, &failure, "%s", said));
    return add(ctx, p, t, row, NULL, failure);
}

/* Can cka_linear choose for every unit?  It exists for jobs, weight-only schemes, and inputs whose Gram matrix was
 * collected.  Where one job does not have it the rows would be failures of no interest: they are left out. */
static bool has_linear(const calm_run *p)
{
    const calm_layout *layout = calm_model_layout(p->in.model);
    size_t first, end;
    calm_inputs_jobs(&p->in, &first, &end);
    for (size_t job = first; job < end; job++) {
        /* An expert without scoring tokens is chosen for blindly. */
        bool any = layout->jobs[job].expert >= 0 || calm_inputs_keeps(&p->in, job);
        for (size_t entry = 0; entry < p->in.recipe->n_pool; entry++) {
            const calm_candidate *candidate = calm_candidate_at(&p->in, job, entry);
            any |= !candidate->failure && !isnan(candidate->scores.value[CALM_POINT_JOB][CALM_SCORE_CKA_LINEAR]);
        }
        if (!any)    /* no entry of this job has the score */
            return false;
    }
    return true;
}

/* Adds every point, score and rule.  The scores before probe_kl in the enum need no measurement of the whole model;
 * rows of probe_kl are oracles. */
static calm_status add_hybrids(calm_ctx *ctx, const calm_run *p, table *t)
{
    const bool linear = has_linear(p);
    for (calm_point point = 0; point < CALM_N_POINTS; point++)
        for (int score = 0; score <= CALM_SCORE_CKA_LINEAR; score++)
            for (calm_choice_rule rule = CALM_CHOICE_RULE_TOKEN; rule <= CALM_CHOICE_RULE_ARGMAX; rule++) {
                const calm_selection selection = {calm_point_unit(point), rule,
                                                  p->in.recipe->selection.shortlist, point, score};
                if (score == CALM_SCORE_CKA_LINEAR && (point != CALM_POINT_JOB || !linear))
                    continue;
                CALM_TRY(add_selected(ctx, p, t, "hybrid", &selection, ""));
            }
    return CALM_OK;
}

/* Adds hybrids of jobs by the named scores, under every rule. */
static calm_status add_named(calm_ctx *ctx, const calm_run *p, const experiment *e, table *t)
{
    for (size_t i = 0; i < e->plan->metrics.n; i++)
        for (calm_choice_rule rule = CALM_CHOICE_RULE_TOKEN; rule <= CALM_CHOICE_RULE_ARGMAX; rule++) {
            calm_selection selection = {.unit = CALM_UNIT_JOB, .rule = rule,
                                        .shortlist = p->in.recipe->selection.shortlist};
            CALM_TRY(calm_score_need(ctx, CALM_UNIT_JOB, e->plan->metrics.of[i], &selection.point, &selection.score));
            CALM_TRY(add_selected(ctx, p, t, "hybrid", &selection, ""));
        }
    return CALM_OK;
}

/* Adds the recipe's hybrid with each factor of the shortlist. */
static calm_status add_shortlists(calm_ctx *ctx, const calm_run *p, const experiment *e, table *t)
{
    calm_selection selection = p->in.recipe->selection;
    selection.rule = CALM_CHOICE_RULE_TOKEN;
    for (size_t i = 0; i < e->plan->n_shortlists; i++) {
        char *factor;
        selection.shortlist = e->plan->shortlists[i];
        CALM_TRY(calm_strf(ctx, ctx->scratch, &factor, " %.15g", selection.shortlist));
        CALM_TRY(add_selected(ctx, p, t, "hybrid", &selection, factor));
    }
    return CALM_OK;
}

/* Learns from the recipe's hybrid.  The guard does not judge it: the table shows both. */
static calm_status learn_hybrid(calm_ctx *ctx, calm_run *p, calm_trial *hybrid, calm_trial *out)
{
    const size_t n_guard = p->in.guard.n;
    p->result.plan = hybrid->plan;
    p->result.name = hybrid->name;
    p->result.trials = hybrid;
    p->result.n_trials = 1;
    p->in.guard.n = 0;
    const calm_status status = calm_run_learn(ctx, p);
    p->in.guard.n = n_guard;
    if (status == CALM_OK)
        calm_trial_of_plan(ctx, &p->in, p->result.name, &p->result.plan, out);
    p->result.plan = (calm_plan){0};
    p->result.name = NULL;
    p->result.trials = NULL;
    p->result.n_trials = 0;
    return ctx->status;
}

/* Adds the learned hybrid after the hybrid that it starts from, p->choice. */
static calm_status add_learned(calm_ctx *ctx, calm_run *p, table *t)
{
    const calm_selection *selection = &p->in.recipe->selection;
    calm_ablation_row *row = &t->rows[t->n];
    calm_trial hybrid, *learned = &t->trials[t->n];
    char *name;
    if (!p->in.recipe->learn)
        return CALM_OK;
    CALM_TRY(calm_strf(ctx, ctx->out, &name, "%s %s %s", calm_unit_name(selection->unit),
                       calm_score_name(selection->point, selection->score), calm_choice_rule_name(selection->rule)));
    CALM_TRY(calm_trial_new(ctx, &p->in, name, p->choice, &hybrid));
    *learned = hybrid;
    if (!hybrid.missing)
        CALM_TRY(learn_hybrid(ctx, p, &hybrid, learned));
    /* The name says what was learned; if nothing could be learned, the suffix keeps the row apart. */
    const bool same = strcmp(learned->name, name) == 0;
    CALM_TRY(calm_strf(ctx, t->keep, &row->name, "%s%s", learned->name, same ? ", not learned" : ""));
    row->kind = "hybrid";
    row->unit = calm_unit_name(selection->unit);
    row->metric = calm_score_name(selection->point, selection->score);
    row->rule = calm_choice_rule_name(selection->rule);
    row->seed = -1;
    learned->name = row->name;
    t->n++;
    return CALM_OK;
}

/* Adds the recipe's hybrid, and its factors. */
static calm_status add_recipe(calm_ctx *ctx, calm_run *p, const experiment *e, table *t)
{
    CALM_TRY(add_selected(ctx, p, t, "hybrid", &p->in.recipe->selection, ""));
    CALM_TRY(add_learned(ctx, p, t));
    return add_shortlists(ctx, p, e, t);
}

/* Adds the best choice unit by unit if costs of units add up: in each unit the entry with the least probe. */
static calm_status add_oracles(calm_ctx *ctx, const calm_run *p, table *t)
{
    for (calm_unit unit = 0; unit < CALM_N_UNITS; unit++) {
        const calm_selection selection = {.unit = unit, .rule = CALM_CHOICE_RULE_ARGMAX,
                                          .point = calm_unit_point(unit), .score = CALM_SCORE_PROBE_KL};
        CALM_TRY(add_selected(ctx, p, t, "oracle", &selection, ""));
    }
    return CALM_OK;
}

calm_status calm_ablation_draw(calm_ctx *ctx, const calm_run *p, long long seed, size_t **choice)
{
    size_t first, end;
    /* Jobs outside of the run get CALM_STAYS_FLOAT; the others are overwritten below. */
    CALM_TRY(calm_choice_uniform(ctx, &p->in, 0, choice));
    calm_inputs_jobs(&p->in, &first, &end);
    for (size_t job = first; job < end; job++) {
        size_t alive = 0, drawn;
        if (calm_inputs_keeps(&p->in, job))
            continue;
        for (size_t entry = 0; entry < p->in.recipe->n_pool; entry++)
            alive += !calm_candidate_at(&p->in, job, entry)->failure;
        if (!alive)
            return calm_fail(ctx, CALM_ENUMERIC, "%s: every candidate failed",
                             calm_model_layout(p->in.model)->jobs[job].name);
        /* The counter is the job's number, so a job's draw does not depend on other jobs.  Uniform values are below 1,
         * so `drawn` is below `alive`. */
        drawn = (size_t)(calm_rng_uniform((uint64_t)seed, RANDOM_STREAM, job) * (double)alive);
        for (size_t entry = 0; entry < p->in.recipe->n_pool; entry++)
            if (!calm_candidate_at(&p->in, job, entry)->failure && drawn-- == 0)    /* then wraps around: one hit */
                (*choice)[job] = entry;
    }
    return CALM_OK;
}

static calm_status add_random(calm_ctx *ctx, const calm_run *p, table *t)
{
    for (long long seed = 0; seed < N_RANDOM; seed++) {
        calm_ablation_row row = {.kind = "random", .unit = calm_unit_name(CALM_UNIT_JOB), .seed = seed};
        size_t *choice;
        CALM_TRY(calm_strf(ctx, t->keep, &row.name, "random %lld", seed));
        CALM_TRY(calm_ablation_draw(ctx, p, seed, &choice));
        CALM_TRY(add(ctx, p, t, row, choice, NULL));
    }
    return CALM_OK;
}

/* ---- figures ---- */

/* Returns the measured uniform run of least KL, the first of equals; t->n: there is none.  Uniform runs are the first
 * rows. */
static size_t best_uniform(const table *t, size_t n_pool)
{
    size_t best = t->n;
    for (size_t i = 0; i < n_pool; i++)
        if (t->trials[i].id && (best == t->n || calm_measure_loss(&t->trials[i].measure) <
                                                    calm_measure_loss(&t->trials[best].measure)))
            best = i;
    return best;
}

/* Counts the units of a plan (of the row's kind, or else jobs), and those in which a job has another candidate than in
 * the best uniform run; -1 without such a run. */
static void count_units(const calm_run *p, const calm_plan *plan, const calm_plan *best, calm_ablation_row *row)
{
    const int unit = row->unit ? calm_option_value_index(CALM_UNIT_NAMES, row->unit) : CALM_UNIT_JOB;
    size_t first, end;
    row->units = row->differs = 0;
    calm_inputs_jobs(&p->in, &first, &end);
    for (size_t job = first, unit_end; job < end; job = unit_end) {
        size_t begin;
        bool other = false, decided = false;
        calm_layout_unit(calm_model_layout(p->in.model), (calm_unit)unit, job, &begin, &unit_end);
        for (size_t j = begin; j < unit_end; j++)
            decided |= !calm_inputs_keeps(&p->in, j);
        for (size_t j = begin; j < unit_end && best; j++)
            other |= plan->jobs[j].quantized && strcmp(((const calm_candidate *)plan->jobs[j].source)->key,
                                                       ((const calm_candidate *)best->jobs[j].source)->key) != 0;
        row->units += decided;
        row->differs += other;
    }
    if (!best)
        row->differs = -1;
}

/* Numbers the plans of measured rows; equal plans have the same number, which shows scores that lead to the same
 * model. */
static void number_plans(table *t)
{
    long long n = 0;
    for (size_t i = 0; i < t->n; i++) {
        size_t same = 0;
        while (same < i && (t->trials[same].missing || strcmp(t->trials[same].key, t->trials[i].key) != 0))
            same++;
        t->rows[i].plan = t->trials[i].missing ? -1 : same < i ? t->rows[same].plan : ++n;
    }
}

/* Returns the seconds to quantize the candidates of one plan, as if its algorithms were known before; for a learned
 * plan only the seconds of learning. */
static double seconds_of(const calm_run *p, const calm_plan *plan)
{
    double sum = plan->blocks ? p->result.learned.seconds + p->result.tuned.seconds : 0;
    for (size_t job = 0; job < plan->n_jobs; job++)
        if (plan->jobs[job].quantized)
            sum += ((const calm_candidate *)plan->jobs[job].source)->seconds;
    return sum;
}

/* Fills the rows from their trials.  A hybrid costs the seconds of the whole pool (pool_seconds), because its scores
 * need every candidate; a row of one plan costs the seconds of that plan. */
static calm_status take_figures(calm_ctx *ctx, const calm_run *p, table *t, size_t best, calm_ablation *out)
{
    out->pool_seconds = 0;
    for (size_t i = 0; i < calm_model_layout(p->in.model)->n_jobs * p->in.recipe->n_pool; i++)
        out->pool_seconds += p->in.candidates[i].seconds;
    for (size_t i = 0; i < t->n; i++) {
        const calm_trial *trial = &t->trials[i];
        calm_ablation_row *row = &t->rows[i];
        row->loss = row->ppl = row->top1 = row->error = row->spearman = row->delta = row->se = row->seconds = NAN;
        row->bits = trial->bits_per_weight;
        row->units = row->differs = -1;
        if (trial->missing) {
            CALM_TRY(calm_strf(ctx, t->keep, &row->failure, "%s", trial->missing));
            continue;
        }
        row->seconds = seconds_of(p, &trial->plan);
        row->loss = calm_measure_loss(&trial->measure);
        if (trial->measure.kind == CALM_STORE_EMBEDDINGS) {
            row->error = trial->measure.embeddings.error;
            row->spearman = trial->measure.embeddings.spearman;
        } else {
            row->ppl = trial->measure.predictions.ppl;
            row->top1 = trial->measure.predictions.top1;
        }
        count_units(p, &trial->plan, best < t->n ? &t->trials[best].plan : NULL, row);
        if (best < t->n)
            calm_measure_compare(&t->trials[best].measure, &trial->measure, p->eval.n, &row->delta, &row->se);
    }
    return CALM_OK;
}

/* Stores the rows in one transaction, so that a table is complete or absent. */
static calm_status put_rows(calm_ctx *ctx, const calm_run *p, const table *t)
{
    CALM_SCOPED_TRANSACTION(ctx, p->in.store);
    for (size_t i = 0; i < t->n; i++) {
        const calm_ablation_row *row = &t->rows[i];
        const calm_store_ablation put = {.run_id = p->result.run_id, .subject = row->name, .kind = row->kind,
                                         .unit = row->unit, .metric = row->metric, .rule = row->rule,
                                         .bits = row->bits, .seconds = row->seconds, .differs = row->differs,
                                         .failure = row->failure, .evaluation_id = t->trials[i].id,
                                         .delta = row->delta, .delta_se = row->se};
        CALM_TRY(calm_store_ablation_put(ctx, p->in.store, &put));
    }
    return calm_store_commit(ctx, p->in.store);
}

/* Sorts by rising loss, rows without loss last, by insertion: it is stable, and there are few rows. */
static void sort_rows(calm_ablation_row *rows, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        const calm_ablation_row row = rows[i];
        size_t at = i;
        for (; at && !isnan(row.loss) && (isnan(rows[at - 1].loss) || row.loss < rows[at - 1].loss); at--)
            rows[at] = rows[at - 1];
        rows[at] = row;
    }
}

/* ---- one run ---- */

/* Measures the float model on the same windows, for its perplexity, unless an earlier run of the model has. */
static calm_status measure_float(calm_ctx *ctx, calm_run *p, calm_ablation *out)
{
    int64_t id;
    out->float_ppl = NAN;
    if (calm_inputs_encode(&p->in))
        return CALM_OK;
    CALM_TRY(calm_run_find_evaluation(ctx, p, "float", &p->eval, &p->result.eval_float, &id));
    if (!id) {
        CALM_TRY(calm_run_measure(ctx, p, &p->result.eval_float, NULL, 0, NULL, &p->eval, NULL, NULL));
        CALM_TRY(calm_run_put_evaluation(ctx, p, "float", "float", p->in.recipe->eval_name, &p->eval,
                                         &p->result.eval_float, &id));
    }
    out->float_ppl = p->result.eval_float.predictions.ppl;
    const calm_store_verdict verdict = {p->result.run_id, id, "test", "float", NAN, NAN};
    return calm_store_verdict_put(ctx, p->in.store, &verdict);
}

/* Measures the rows of a run and stores them.  Differences are to the best uniform run, which is known only after all
 * are measured. */
static calm_status measure(calm_ctx *ctx, calm_run *p, const experiment *e, table *t, calm_ablation *out)
{
    CALM_TRY(calm_run_read_eval(ctx, p));
    CALM_TRY(calm_trials_measure(ctx, p, t->trials, t->n, &p->eval, p->in.recipe->eval_name, CALM_STAGE_EVALUATE));
    CALM_TRY(measure_float(ctx, p, out));
    const size_t best = best_uniform(t, p->in.recipe->n_pool);
    CALM_TRY(take_figures(ctx, p, t, best, out));
    number_plans(t);
    CALM_TRY(put_rows(ctx, p, t));
    calm_event_complete(&p->events, CALM_STAGE_EVALUATE);
    calm_memory_note(ctx, &p->held.evaluate);
    CALM_TRY(calm_strf(ctx, ctx->out, &p->result.verdict, "an ablation of %zu ways of choosing%s", t->n,
                       e->repeats ? ", calibration windows drawn again" : ""));
    out->best = best < t->n ? t->rows[best].name : NULL;
    out->windows = p->eval.n;
    out->window_tokens = p->eval.longest;
    return CALM_OK;
}

/* Adds the rows of one calibration's table. */
static calm_status add_all(calm_ctx *ctx, calm_run *p, const experiment *e, table *t)
{
    CALM_TRY(add_uniform(ctx, p, t));
    if (e->plan->brief)
        return add_recipe(ctx, p, e, t);
    CALM_TRY(e->plan->metrics.n ? add_named(ctx, p, e, t) : add_hybrids(ctx, p, t));
    CALM_TRY(add_learned(ctx, p, t));
    CALM_TRY(add_shortlists(ctx, p, e, t));
    if (e->plan->probes)
        CALM_TRY(add_oracles(ctx, p, t));
    return e->plan->metrics.n ? CALM_OK : add_random(ctx, p, t);
}

/* Builds the whole table of one calibration. */
static calm_status compare_all(calm_ctx *ctx, calm_run *p, const experiment *e)
{
    table t;
    CALM_TRY(start(ctx, p, e, &t));
    /* Before rows are added: probes become scores of the candidates, which oracles read. */
    for (calm_unit unit = 0; unit < CALM_N_UNITS && e->plan->probes; unit++)
        CALM_TRY(calm_run_probe_all(ctx, p, unit));
    CALM_TRY(add_all(ctx, p, e, &t));
    CALM_TRY(measure(ctx, p, e, &t, e->out));
    e->out->run_id = p->result.run_id;
    e->out->encoder = calm_inputs_encode(&p->in);
    e->out->probes = e->plan->probes;
    e->out->rows = t.rows;
    e->out->n_rows = t.n;
    sort_rows(t.rows, t.n);    /* last, because trials are in the order of adding */
    return calm_ablation_notes(ctx, p, e->keep, e->out);
}

/* Adds the rows of one seed; the array is copied, because an arena cannot extend it. */
static calm_status repeat(calm_ctx *ctx, calm_run *p, const experiment *e)
{
    calm_ablation *out = e->out, of_seed = {0};
    calm_ablation_row *rows;
    table t;
    CALM_TRY(start(ctx, p, e, &t));
    CALM_TRY(add_uniform(ctx, p, &t));
    CALM_TRY(add_recipe(ctx, p, e, &t));
    for (size_t i = 0; i < t.n; i++) {
        t.rows[i].kind = "seed";
        t.rows[i].seed = p->in.recipe->seed;
    }
    CALM_TRY(measure(ctx, p, e, &t, &of_seed));
    CALM_TRY(CALM_NEW(ctx, e->keep, rows, out->n_rows + t.n));
    memcpy(rows, out->rows, out->n_rows * sizeof *rows);
    memcpy(rows + out->n_rows, t.rows, t.n * sizeof *rows);
    out->rows = rows;
    out->n_rows += t.n;
    out->n_seed_rows += t.n;
    return CALM_OK;
}

/* Replaces choice, guard, export and evaluation of an ordinary run (calm_run_stages). */
static calm_status stages(calm_ctx *ctx, calm_run *p, void *user)
{
    const experiment *e = user;
    CALM_TRY(calm_run_choose(ctx, p));
    return e->repeats ? repeat(ctx, p, e) : compare_all(ctx, p, e);
}

/* Runs a recipe.  ctx->out is rewound afterwards; otherwise windows, plans and results of every seed would stay in
 * memory until the end. */
static calm_status run_one(calm_ctx *ctx, const calm_recipe *recipe, experiment *e)
{
    CALM_SCOPED(calm_scratch_scope, calm_scratch_leave) results = {ctx->out, calm_arena_save(ctx->out)};
    CALM_SCOPED(calm_run *, calm_run_close) run = NULL;
    const char *note = recipe->scheme_note;
    if (e->repeats)
        calm_log(ctx, CALM_LOG_INFO, "%s with calibration windows of seed %lld", e->out->scheme, recipe->seed);
    else
        calm_log(ctx, CALM_LOG_INFO, "%s%s%s", e->out->scheme, note ? ": " : "", note ? note : "");
    return calm_run_stages(ctx, recipe, &e->plan->options, stages, e, &run);
}

/* ---- an experiment ---- */

calm_status calm_ablation_check(calm_ctx *ctx, const calm_recipe *recipe)
{
    CALM_SCOPED(calm_scratch_scope, calm_scratch_leave) results = {ctx->out, calm_arena_save(ctx->out)};
    CALM_SCOPED(calm_run *, calm_run_close) run = NULL;
    {
        CALM_SCOPED_SILENCE(ctx);    /* the experiment logs the same notes */
        CALM_TRY(calm_run_open(ctx, recipe, &run));
    }
    if (!run->result.evaluates)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: without its tokenizer there is no text to evaluate on",
                         recipe->model.dir);
    return CALM_OK;
}

calm_status calm_ablate(calm_ctx *ctx, const calm_recipe *recipe, const calm_ablation_plan *plan, calm_arena *keep,
                        calm_ablation *out)
{
    experiment e = {.plan = plan, .keep = keep, .out = out};
    /* Every candidate is in some row, and the next table over this store needs all of them again. */
    calm_recipe whole = *recipe;
    whole.keep_candidates = true;
    recipe = &whole;
    /* Texts and rows of `out` are in `keep`: nothing refers to a run. */
    *out = (calm_ablation){0};
    CALM_TRY(calm_strf(ctx, keep, &out->scheme, "%s", CALM_SCHEME_NAME(&recipe->schemes[0])));
    CALM_TRY(run_one(ctx, recipe, &e));
    e.repeats = true;
    for (size_t i = 0; i < plan->n_seeds; i++) {
        calm_recipe again = *recipe;
        again.seed = plan->seeds[i];
        /* The points that the recipe's hybrid reads. */
        again.score_points = 1u << recipe->selection.point | 1u << CALM_POINT_JOB;
        CALM_TRY(run_one(ctx, &again, &e));
    }
    return calm_ablation_seeds(ctx, keep, out);
}
